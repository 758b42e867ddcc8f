//! `millrace zone check FILE NAME` and `millrace zone print FILE NAME`: a zone file read as the server reads it. The other
//! words are for the running instance: see [`ask`].

mod ask;
mod backup;
mod bar;
mod check;

use super::{complain, written};
use crate::control::protocol::{DEFAULT_PATH, ReadRequest, Request};
use crate::local::{self, Progress};
use clap::{Parser, Subcommand};
use std::ffi::OsString;
use std::io::{self, BufWriter, Write};
use std::path::{PathBuf, absolute};
use std::process::ExitCode;
use wire::name::NameBuf;

/// Zone files, and zones of the running instance
#[derive(Debug, Clone, PartialEq, Eq, Parser)]
#[command(name = "millrace zone", bin_name = "millrace zone")]
pub(super) struct ZoneArguments {
    #[command(subcommand)]
    command: Word,
}

#[derive(Debug, Clone, PartialEq, Eq, Subcommand)]
enum Word {
    /// Say what is wrong with a zone file, and what is odd
    Check(check::Check),
    /// Print a zone's records, one a line, names in canonical order
    Print(Which),
    /// Say how zones are: serial, timers, what was done last; exit status 3 where one is not loaded or has expired
    Status(Names),
    /// Read files that have changed, ask primaries whether theirs are newer
    Reload(Names),
    /// Ask primaries now whether they have a newer serial, and transfer what is newer
    Refresh(Names),
    /// Transfer whole zones from their primaries, whatever the serial
    Retransfer(Names),
    /// Tell secondaries which serial there is
    Notify(Names),
    /// Leave zones as they are: no file is read, nothing is transferred in, no NOTIFY is followed
    Freeze(Names),
    /// End a freeze, and do once what was held back
    Thaw(Names),
    /// Refuse transfers of zones to anybody
    XfrFreeze(Names),
    /// Allow transfers again to whom the acl allows them
    XfrThaw(Names),
    /// Write what is served of secondaries into their files, or copies of any zones into a directory
    Flush(Flush),
    /// Copy zones, with their timers and journals, into a directory
    Backup(backup::Backup),
    /// Put zones back as `backup` has copied them, checked before anything changes
    Restore(backup::Restore),
    /// Forget a secondary's zone, its journal and timers: SERVFAIL until it is transferred anew
    Purge(Purge),
    /// Print records that are served
    Read(Read),
}

#[derive(Debug, Clone, PartialEq, Eq, clap::Args)]
struct Flush {
    #[command(flatten)]
    names: Names,
    /// Write copies there, as DIRECTORY/ZONE.zone, as the user that the instance runs as
    #[arg(long, value_name = "DIRECTORY")]
    to: Option<PathBuf>,
}

#[derive(Debug, Clone, PartialEq, Eq, clap::Args)]
struct Purge {
    /// The zone
    name: String,
    /// Where the instance's control socket is
    #[arg(long, value_name = "PATH", default_value = DEFAULT_PATH)]
    control: PathBuf,
}

#[derive(Debug, Clone, PartialEq, Eq, clap::Args)]
struct Read {
    /// The zone
    zone: String,
    /// A name in it, @ for the zone's own; none: all
    name: Option<String>,
    /// A type; none: all
    #[arg(value_name = "TYPE")]
    rtype: Option<String>,
    /// Where the instance's control socket is
    #[arg(long, value_name = "PATH", default_value = DEFAULT_PATH)]
    control: PathBuf,
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
            Word::Check(check) => check.run(),
            Word::Print(which) => of_file(which, |read| {
                written(print(read));
                ExitCode::SUCCESS
            }),
            Word::Status(names) => ask::status(&names.control, &names.names),
            Word::Reload(names) => names.begin(|zones| Request::ZoneReload { zones }),
            Word::Refresh(names) => names.begin(|zones| Request::ZoneRefresh { zones }),
            Word::Retransfer(names) => names.begin(|zones| Request::ZoneRetransfer { zones }),
            Word::Notify(names) => names.begin(|zones| Request::ZoneNotify { zones }),
            Word::Freeze(names) => names.begin(|zones| Request::ZoneFreeze { zones }),
            Word::Thaw(names) => names.begin(|zones| Request::ZoneThaw { zones }),
            Word::XfrFreeze(names) => names.begin(|zones| Request::ZoneXfrFreeze { zones }),
            Word::XfrThaw(names) => names.begin(|zones| Request::ZoneXfrThaw { zones }),
            Word::Flush(flush) => flush.run(),
            Word::Backup(backup) => backup.run(),
            Word::Restore(restore) => restore.run(),
            Word::Purge(Purge { name, control }) => {
                let zone = name.clone();
                ask::begin(control, Request::ZonePurge { zone })
            }
            Word::Read(read) => read.run(),
        }
    }
}

impl Names {
    /// Has something begun for these zones, and waits for it.
    fn begin(&self, request: impl FnOnce(Vec<String>) -> Request) -> ExitCode {
        ask::begin(&self.control, request(self.names.clone()))
    }
}

impl Flush {
    fn run(&self) -> ExitCode {
        // The instance is in another directory than whoever asks.
        match self.to.as_ref().map(absolute).transpose() {
            Ok(to) => self.names.begin(|zones| Request::ZoneFlush { zones, to }),
            Err(error) => {
                complain(format_args!("--to: {error}"));
                ExitCode::FAILURE
            }
        }
    }
}

impl Read {
    fn run(&self) -> ExitCode {
        let request = ReadRequest {
            zone: self.zone.clone(),
            name: self.name.clone(),
            rtype: self.rtype.clone(),
        };
        ask::read(&self.control, request)
    }
}

/// Reads the file, with a bar where somebody watches, and does something with it.
fn of_file(which: &Which, act: impl FnOnce(&local::ReadZone) -> ExitCode) -> ExitCode {
    let progress = Progress::default();
    let reading = || local::read(which.name.as_name(), &which.file, &progress);
    match bar::shown(&progress, reading) {
        Ok(read) => act(&read),
        Err(errors) => {
            errors.iter().for_each(complain);
            ExitCode::FAILURE
        }
    }
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
    fn print_takes_a_file_and_a_name() {
        let read = ZoneArguments::read(&words("zone print example.zone example.com")).unwrap();
        let name = "example.com.".parse().unwrap();
        let file = "example.zone".into();
        assert_eq!(read.command, Word::Print(Which { file, name }));
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
        let expected = Word::XfrFreeze(names(&["a."], DEFAULT_PATH));
        assert_eq!(read("zone xfr-freeze a."), expected);
        let expected = Flush {
            names: names(&["a."], DEFAULT_PATH),
            to: Some("copies".into()),
        };
        assert_eq!(read("zone flush --to copies a."), Word::Flush(expected));
    }

    #[test]
    fn one_zone_is_purged_and_read_at_a_time() {
        let read = |line| ZoneArguments::read(&words(line));
        for line in ["zone purge", "zone purge a. b.", "zone read"] {
            assert!(read(line).is_err(), "{line}");
        }
        assert!(read("zone purge a.").is_ok());
        let expected = Read {
            zone: "a.".to_owned(),
            name: Some("@".to_owned()),
            rtype: Some("NS".to_owned()),
            control: DEFAULT_PATH.into(),
        };
        let found = read("zone read a. @ NS").unwrap().command;
        assert_eq!(found, Word::Read(expected));
    }
}
