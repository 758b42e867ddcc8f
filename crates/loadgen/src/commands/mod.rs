//! The command line: which of the commands is meant, and what it says.

mod xdp;

use crate::failure::{Failure, Outcome};
use clap::Parser;
use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::ExitCode;

const USAGE: &str = "\
floodgate measures DNS servers. Every answer is matched to its query.

  floodgate xdp [OPTIONS] -i FILE TARGET    open loop over AF_XDP, as kxdpgun
  floodgate COMMAND --help                  what a command takes
";

/// Runs what the arguments ask for, the program's name first among them.
///
/// # Errors
/// One line that says what is wrong, and what would be right.
pub fn run(arguments: Vec<OsString>) -> Outcome<ExitCode> {
    let program = arguments.first().map(OsString::as_os_str);
    let program = program.and_then(|path| Path::new(path).file_name());
    let rest = arguments.get(1..).unwrap_or_default();
    if program == Some(OsStr::new("kxdpgun")) {
        return xdp::run(rest);
    }
    match rest.first().and_then(|word| word.to_str()) {
        Some("xdp") => xdp::run(&rest[1..]),
        None | Some("-h" | "--help" | "help") => {
            print!("{USAGE}");
            Ok(ExitCode::SUCCESS)
        }
        Some("-V" | "--version") => {
            println!("floodgate {}", env!("CARGO_PKG_VERSION"));
            Ok(ExitCode::SUCCESS)
        }
        Some(_) => xdp::run(rest),
    }
}

/// Parses a command's arguments. `Ok(None)`: help or version was asked for, and printed.
fn parse<C: Parser>(name: &str, arguments: &[OsString]) -> Outcome<Option<C>> {
    let with_name = [OsString::from(name)]
        .into_iter()
        .chain(arguments.iter().cloned());
    match C::try_parse_from(with_name) {
        Ok(command) => Ok(Some(command)),
        Err(error) if !error.use_stderr() => {
            print!("{error}");
            Ok(None)
        }
        Err(error) => {
            let text = error.to_string();
            let lines = text
                .lines()
                .map(str::trim)
                .take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more"));
            let what = lines
                .filter(|line| !line.is_empty())
                .collect::<Vec<_>>()
                .join(" ");
            let what = what.strip_prefix("error: ").unwrap_or(&what);
            Err(Failure::new(format!(
                "{what} (`{name} --help` shows what is right)"
            )))
        }
    }
}
