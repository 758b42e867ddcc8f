//! The command line: which of the commands is meant, and what it says.

mod bare;
mod queries;
mod sockets;
mod values;
mod xdp;

use crate::failure::{Failure, Outcome};
use crate::report::say;
use bare::Meaning;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, Parser};
use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::ExitCode;

const USAGE: &str = "\
floodgate measures DNS servers. Every answer is matched to its query.

  floodgate xdp [OPTIONS] -i FILE TARGET           open loop over AF_XDP, as kxdpgun
  floodgate sockets [OPTIONS] -s SERVER -d FILE    closed loop over sockets, as dnsperf
  floodgate queries --random N | --zipf NAMES | --from-zone FILE | --from-pcap FILE    writes files of queries
  floodgate COMMAND --help                         what a command takes
";

/// Runs what the arguments ask for, the program's name first among them.
///
/// # Errors
/// One line that says what is wrong, and what would be right.
pub fn run(arguments: Vec<OsString>) -> Outcome<ExitCode> {
    let program = arguments.first().map(OsString::as_os_str);
    let program = program.and_then(|path| Path::new(path).file_name());
    let rest = arguments.get(1..).unwrap_or_default();
    match program.and_then(OsStr::to_str) {
        Some("kxdpgun") => return xdp::run(rest),
        Some("dnsperf") => return sockets::run("dnsperf", rest),
        _ => {}
    }
    match rest.first().and_then(|word| word.to_str()) {
        Some("xdp") => xdp::run(&rest[1..]),
        Some("queries") => queries::run(&rest[1..]),
        Some("sockets") => sockets::run("floodgate sockets", &rest[1..]),
        Some("-h" | "--help" | "help") => {
            say(USAGE);
            Ok(ExitCode::SUCCESS)
        }
        Some("-V" | "--version") => {
            say(concat!("floodgate ", env!("CARGO_PKG_VERSION"), "\n"));
            Ok(ExitCode::SUCCESS)
        }
        _ => run_bare(rest),
    }
}

/// Runs the command that the options mean.
fn run_bare(arguments: &[OsString]) -> Outcome<ExitCode> {
    let unclear = |what| {
        Failure::new(format!(
            "{what}: `floodgate xdp … -i FILE TARGET` sends over AF_XDP, \
             `floodgate sockets … -s SERVER -d FILE` over sockets"
        ))
    };
    match bare::meaning(arguments, &both()) {
        Meaning::Xdp => xdp::run(arguments),
        Meaning::Sockets => sockets::run("floodgate", arguments),
        Meaning::Both => Err(unclear("these options belong to two commands")),
        Meaning::Neither => Err(unclear("these options do not say which command is meant")),
    }
}

/// What both commands take.
fn both() -> [clap::Command; 2] {
    [xdp::Command::command(), sockets::Command::command()]
}

/// Parses a command's arguments. `Ok(None)`: help or version was asked for, and printed.
fn parse<C: Parser>(name: &str, arguments: &[OsString]) -> Outcome<Option<C>> {
    let with_name = [OsString::from(name)]
        .into_iter()
        .chain(arguments.iter().cloned());
    match C::try_parse_from(with_name) {
        Ok(command) => Ok(Some(command)),
        Err(error) if !error.use_stderr() => {
            say(&error.to_string());
            Ok(None)
        }
        Err(error) => {
            let what = missing(name, &error, arguments).unwrap_or_else(|| complaint(&error));
            Err(Failure::new(format!(
                "{what} (`{name} --help` shows what is right)"
            )))
        }
    }
}

/// What clap says, as one line. No option of ours is a value behind `--`, so it need not say how to write that.
fn complaint(error: &clap::Error) -> String {
    let text = error.to_string();
    let lines = text
        .lines()
        .map(str::trim)
        .take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more"));
    let what = lines
        .filter(|line| !line.is_empty() && !line.starts_with("tip: to pass"))
        .collect::<Vec<_>>()
        .join(" ");
    what.strip_prefix("error: ").unwrap_or(&what).to_owned()
}

/// What is said of an option that the program has whose place a command takes, and the command has not.
fn missing(name: &str, error: &clap::Error, arguments: &[OsString]) -> Option<String> {
    let is_unknown = error.kind() == ErrorKind::UnknownArgument;
    let option = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(option)) => option.as_str(),
        _ => return None,
    };
    // `-T1`, `-TR`: clap takes the mode for one more option of a cluster, and -R has a value, which is missing or wrong.
    let mode = match option.trim_start_matches('-') {
        reused if reused.starts_with("remote-mac") => "R",
        digit if is_unknown && digit.ends_with(|end: char| end.is_ascii_digit()) => digit,
        _ => "",
    };
    let joined = format!("T{mode}");
    let is_joined = |word: &OsString| {
        let word = word.to_string_lossy();
        word.starts_with('-') && !word.starts_with("--") && word.contains(&joined)
    };
    let (option, what) = match (name, option) {
        ("floodgate xdp", _) if !mode.is_empty() && arguments.iter().any(is_joined) => {
            ("-T", "its test modes are not there; it has no value")
        }
        _ if !is_unknown => return None,
        ("floodgate xdp", "-G" | "--qlog") => {
            (option, "it is about QUIC, which is not there: leave it out")
        }
        ("floodgate xdp", "-U" | "--quic") => (
            option,
            "QUIC is not there; queries go over UDP, with -T over TCP",
        ),
        ("floodgate sockets", "-u") => (
            option,
            "dynamic updates are not there; -B sends messages of any kind",
        ),
        ("floodgate sockets", "-y") => (option, "TSIG is not there; queries go out unsigned"),
        _ => return None,
    };
    Some(format!("{option}: {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use testnet::manual::Page;

    #[test]
    fn options_of_neither_or_both_are_one_line_that_shows_both_commands() {
        for (line, what) in [
            ("floodgate", "which command is meant"),
            ("floodgate -Q 1000 -t 5", "which command is meant"),
            ("floodgate -s 192.0.2.1 -i f", "belong to two commands"),
        ] {
            let words = line.split_whitespace().map(OsString::from);
            let said = run(words.collect()).unwrap_err().to_string();
            for part in [what, "`floodgate xdp … -i FILE", "`floodgate sockets … -s"] {
                assert!(said.contains(part), "{line}: {said}");
            }
            assert_eq!(said.lines().count(), 1, "{said}");
        }
    }

    #[test]
    fn the_options_that_the_manual_prints_are_there() {
        let commands = [
            xdp::Command::command(),
            sockets::Command::command(),
            queries::Command::command(),
        ];
        let options = commands.iter().flat_map(|command| command.get_arguments());
        let options = options.filter_map(|option| option.get_long());
        let known: Vec<&str> = options.chain(["help"]).collect();
        let code = Page::read("docs/floodgate.md").code();
        let words = code.iter().flat_map(|line| line.split_whitespace());
        let printed: Vec<&str> = words.filter_map(|word| word.strip_prefix("--")).collect();
        assert!(printed.contains(&"ramp"), "{printed:?}");
        let gone = printed.into_iter().find(|option| !known.contains(option));
        assert_eq!(gone, None);
    }
}
