//! `millrace zone check FILE NAME` and `millrace zone print FILE NAME`: a zone file read as the server reads it. The other
//! words are for the running instance: see [`ask`].

mod ask;
mod bar;

use crate::control::protocol::{DEFAULT_PATH, Request};
use crate::local::{self, Progress};
use clap::{Parser, Subcommand};
use std::ffi::OsString;
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use wire::name::NameBuf;

/// Zone files, and zones of the running instance
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
    /// Say how zones are: serial, timers, what was done last
    Status(Names),
    /// Read files that have changed, ask primaries whether theirs are newer
    Reload(Names),
    /// Transfer whole zones from their primaries, whatever the serial
    Retransfer(Names),
    /// Tell secondaries which serial there is
    Notify(Names),
}

#[derive(Debug, Clone, PartialEq, Eq, clap::Args)]
struct Names {
    /// Zones; none: all
    names: Vec<String>,
    /// Where the instance's control socket is
    #[arg(long, value_name = "PATH", default_value = DEFAULT_PATH)]
    control: PathBuf,
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
        match &self.command {
            Word::Check(which) => of_file(which, |read| check(which, read)),
            Word::Print(which) => of_file(which, print),
            Word::Status(names) => ask::status(&names.control, &names.names),
            Word::Reload(names) => ask::begin(&names.control, &names.names, |zones| {
                Request::ZoneReload { zones }
            }),
            Word::Retransfer(names) => ask::begin(&names.control, &names.names, |zones| {
                Request::ZoneRetransfer { zones }
            }),
            Word::Notify(names) => ask::begin(&names.control, &names.names, |zones| {
                Request::ZoneNotify { zones }
            }),
        }
    }
}

/// Reads the file, with a bar where somebody watches, and does something with it.
fn of_file(which: &Which, act: impl FnOnce(&local::ReadZone) -> io::Result<()>) -> ExitCode {
    let progress = Progress::default();
    let reading = || local::read(which.name.as_name(), &which.file, &progress);
    match bar::shown(&progress, reading) {
        Ok(read) => {
            // Whoever closed our standard output does not want to read on.
            let _ = act(&read);
            ExitCode::SUCCESS
        }
        Err(errors) => {
            errors.iter().for_each(|error| eprintln!("{error}"));
            ExitCode::FAILURE
        }
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

    #[test]
    fn other_words_take_names_or_none() {
        let read = |line| ZoneArguments::read(&words(line)).unwrap().command;
        let names = |names: &[&str], control: &str| Names {
            names: names.iter().map(|name| (*name).to_owned()).collect(),
            control: control.into(),
        };
        assert_eq!(read("zone status"), Word::Status(names(&[], DEFAULT_PATH)));
        let expected = Word::Retransfer(names(&["a.", "b."], "/tmp/c"));
        assert_eq!(read("zone retransfer a. b. --control /tmp/c"), expected);
    }
}
