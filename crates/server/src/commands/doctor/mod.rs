//! `millrace doctor`: what of this machine keeps AF_XDP from being fast, or from working at all: the value found, what would
//! be right, and the command that changes it.
//!
//! Facts are gathered first ([`facts`]), then judged ([`checks`]), so that each judgement has a test with a wrong value.

mod checks;
mod facts;

use checks::{Finding, Judgement};
use clap::Parser;
use facts::Facts;
use nix::net::if_::if_nametoindex;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// What of this machine AF_XDP would want otherwise
#[derive(Debug, Clone, PartialEq, Eq, Parser)]
#[command(name = "millrace doctor", bin_name = "millrace doctor")]
#[command(about = "Check what AF_XDP needs of this machine; exit status 1 when something is wrong")]
pub(super) struct DoctorArguments {
    /// Look at this interface only; may be repeated [default: all Ethernet interfaces that are up]
    #[arg(long = "interface", value_name = "INTERFACE")]
    interfaces: Vec<String>,

    /// Where the instance's control socket is: it knows which programs are its own
    #[arg(long, value_name = "PATH", default_value = crate::control::protocol::DEFAULT_PATH)]
    control: PathBuf,
}

impl DoctorArguments {
    /// Reads the words behind `millrace`, of which the first is `doctor`.
    ///
    /// # Errors
    /// What is wrong with them; the help text, when that was asked for.
    pub(super) fn read(words: &[OsString]) -> Result<DoctorArguments, clap::Error> {
        DoctorArguments::try_parse_from(words)
    }

    /// Prints all findings; fails when something is wrong, or an interface is not there.
    pub(super) fn run(&self) -> ExitCode {
        let is_missing = |name: &&String| if_nametoindex(name.as_str()).is_err();
        if let Some(name) = self.interfaces.iter().find(is_missing) {
            super::complain(format_args!(
                "there is no interface {name}: `ip link` lists those of this host"
            ));
            return ExitCode::FAILURE;
        }
        let facts = Facts::gather(Path::new("/"), &self.interfaces, &self.control);
        let findings = checks::all(&facts);
        findings.iter().for_each(super::put);
        let wrong = findings.iter().filter(|finding| finding.is_wrong()).count();
        match wrong {
            0 => {
                super::put("nothing is wrong\n");
                ExitCode::SUCCESS
            }
            number => {
                super::put(format_args!(
                    "{number} of {} could be better\n",
                    findings.len()
                ));
                ExitCode::FAILURE
            }
        }
    }
}

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let place = match &self.interface {
            Some(name) => format!("{name}: {}", self.what),
            None => self.what.to_owned(),
        };
        match &self.judgement {
            Judgement::Good => writeln!(f, "ok     {place}: {}", self.value),
            Judgement::Unknown => writeln!(f, "?      {place}: {}", self.value),
            Judgement::Wrong { right, command } => {
                writeln!(f, "WRONG  {place}: {}", self.value)?;
                writeln!(f, "       right would be: {right}")?;
                writeln!(f, "       {command}")
            }
        }
    }
}

#[cfg(test)]
mod tests;
