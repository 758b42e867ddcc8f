//! `millrace zone check FILE NAME` and `millrace zone print FILE NAME`: a zone file read as the server reads it.

use crate::local::{self, Progress};
use clap::{Parser, Subcommand};
use std::ffi::OsString;
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use wire::name::NameBuf;

/// Zone files
#[derive(Debug, Clone, PartialEq, Eq, Parser)]
#[command(name = "millrace zone")]
pub(super) struct ZoneArguments {
    #[command(subcommand)]
    command: Word,
}

#[derive(Debug, Clone, PartialEq, Eq, Subcommand)]
enum Word {
    /// Say what is wrong with a zone file, and what is odd
    Check(Which),
    /// Print a zone's records, one a line, names in canonical order
    Print(Which),
}

#[derive(Debug, Clone, PartialEq, Eq, clap::Args)]
struct Which {
    /// The zone's file
    file: PathBuf,
    /// The zone's name
    name: NameBuf,
}

impl ZoneArguments {
    /// Reads the words behind `millrace`, of which the first is `zone`.
    ///
    /// # Errors
    /// What is wrong with them; the help text, when that was asked for.
    pub(super) fn read(words: &[OsString]) -> Result<ZoneArguments, clap::Error> {
        ZoneArguments::try_parse_from(words)
    }

    pub(super) fn run(&self) -> ExitCode {
        let (Word::Check(which) | Word::Print(which)) = &self.command;
        let read = match local::read(which.name.as_name(), &which.file, &Progress::default()) {
            Ok(read) => read,
            Err(errors) => {
                errors.iter().for_each(|error| eprintln!("{error}"));
                return ExitCode::FAILURE;
            }
        };
        // Whoever closed our standard output does not want to read on.
        let _ = match &self.command {
            Word::Check(which) => check(which, &read),
            Word::Print(_) => print(&read),
        };
        ExitCode::SUCCESS
    }
}

fn check(which: &Which, read: &local::ReadZone) -> io::Result<()> {
    let file = which.file.display();
    for warning in &read.warnings {
        eprintln!("{file}: warning: {warning}");
    }
    let zone = &read.zone;
    let signed = if zone.is_signed() { ", signed" } else { "" };
    writeln!(
        io::stdout(),
        "{file}: zone {}, serial {}, {} names, {} records{signed}, {} octets in memory",
        zone.apex(),
        zone.soa().serial,
        zone.names_count(),
        zone.records_count(),
        zone.memory()
    )
}

fn print(read: &local::ReadZone) -> io::Result<()> {
    let mut out = BufWriter::new(io::stdout().lock());
    for record in read.zone.records() {
        writeln!(out, "{record}")?;
    }
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn check_and_print_take_a_file_and_a_name() {
        let read = ZoneArguments::read(&words("zone check example.zone example.com")).unwrap();
        let name = "example.com.".parse().unwrap();
        let file = "example.zone".into();
        assert_eq!(read.command, Word::Check(Which { file, name }));
        assert!(ZoneArguments::read(&words("zone print example.zone")).is_err());
        assert!(ZoneArguments::read(&words("zone print example.zone a..b")).is_err());
    }
}
