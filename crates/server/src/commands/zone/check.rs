//! `millrace zone check`: what is wrong with a zone file and what is odd, and, where that is wanted, whether its signatures are
//! right.

use super::super::{complain, put};
use super::{Which, of_file};
use crate::clock::unix;
use crate::local::{ReadZone, placed};
use std::fmt::Display;
use std::num::NonZeroUsize;
use std::process::ExitCode;
use std::thread::available_parallelism;
use zone::zone::{Flaw, Warning};

#[derive(Debug, Clone, PartialEq, Eq, clap::Args)]
pub(super) struct Check {
    #[command(flatten)]
    which: Which,
    /// Verify the signatures of a signed zone, on all cores; what resolvers would not accept is an error, and the exit status 1
    #[arg(long)]
    dnssec: bool,
    /// When signatures are to be valid, as YYYYMMDDHHmmSS (UTC) or in seconds since 1970; without it: now
    #[arg(long, value_name = "TIME", value_parser = time)]
    time: Option<u32>,
}

fn time(text: &str) -> Result<u32, String> {
    let right = "YYYYMMDDHHmmSS such as 20261231235959, or seconds since 1970, is right";
    zone::rdata::time(text).ok_or_else(|| right.to_owned())
}

impl Check {
    pub(super) fn run(&self) -> ExitCode {
        of_file(&self.which, |read| self.of_zone(read))
    }

    fn of_zone(&self, read: &ReadZone) -> ExitCode {
        let (file, zone) = (self.which.file.display(), &read.zone);
        let oddities = zone.oddities(self.time.unwrap_or_else(|| unix() as u32));
        let flaws = self.flaws(read);
        let mut errors = 0;
        let mut told = Vec::new();
        let mut tell = |is_error: bool, about, what: &dyn Display| {
            errors += usize::from(is_error);
            let word = if is_error { "error" } else { "warning" };
            told.push((Some(about), format!("{word}: {what}")));
        };
        for warning in &read.warnings {
            let is_of_validation = matches!(warning, Warning::NoChain { .. });
            tell(self.dnssec && is_of_validation, warning.about(), warning);
        }
        for oddity in &oddities {
            let is_error = self.dnssec && oddity.is_of_validation();
            tell(is_error, oddity.about(), oddity);
        }
        for flaw in &flaws {
            tell(flaw.is_error(), flaw.about(), flaw);
        }
        let texts = placed(self.which.name.as_name(), &self.which.file, told);
        texts.iter().for_each(complain);
        let signed = match (zone.is_signed(), self.dnssec) {
            (false, _) => "",
            (true, true) if errors == 0 && flaws.iter().all(is_verified) => ", signed and verified",
            (true, _) => ", signed",
        };
        put(format_args!(
            "{file}: zone {}, serial {}, {} names, {} records{signed}, {} octets in memory\n",
            zone.apex(),
            zone.soa().serial,
            zone.names_count(),
            zone.records_count(),
            zone.memory()
        ));
        if zone.is_signed() && !self.dnssec {
            complain(format_args!(
                "{file}: its signatures are not verified: --dnssec does that"
            ));
        }
        match errors {
            0 => ExitCode::SUCCESS,
            _ => ExitCode::FAILURE,
        }
    }

    /// What is wrong with the signatures, where that is asked.
    fn flaws(&self, read: &ReadZone) -> Vec<Flaw> {
        let threads = available_parallelism().map_or(1, NonZeroUsize::get);
        match self.dnssec {
            true => read.zone.flaws(threads),
            false => Vec::new(),
        }
    }
}

/// Whether it leaves no signature unverified.
fn is_verified(flaw: &Flaw) -> bool {
    !matches!(flaw, Flaw::Unsupported { .. })
}

#[cfg(test)]
mod tests {
    use super::super::{Word, ZoneArguments};
    use super::*;
    use std::ffi::OsString;

    #[test]
    fn check_takes_a_time_and_verifies_where_asked() {
        let read = |options: &str| {
            let line = format!("zone check example.zone example.com{options}");
            let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            ZoneArguments::read(&words).map(|read| read.command)
        };
        let check = |dnssec, time| {
            Word::Check(Check {
                which: Which {
                    file: "example.zone".into(),
                    name: "example.com.".parse().unwrap(),
                },
                dnssec,
                time,
            })
        };
        let at = Some(1_795_305_600);
        assert_eq!(read("").unwrap(), check(false, None));
        assert_eq!(read(" --dnssec").unwrap(), check(true, None));
        let expected = check(true, at);
        let found = read(" --dnssec --time 20261122000000").unwrap();
        assert_eq!(found, expected);
        assert_eq!(read(" --time 1795305600").unwrap(), check(false, at));
        for wrong in ["tomorrow", "20261322000000", "4294967296"] {
            let error = read(&format!(" --time {wrong}")).unwrap_err();
            assert!(error.to_string().contains("YYYYMMDDHHmmSS"), "{error}");
        }
    }
}
