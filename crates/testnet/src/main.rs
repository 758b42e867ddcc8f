//! `lab`: the laboratory from the command line; `./dev lab` and `./dev test` call it.

use std::process::{Command, ExitCode};

use testnet::lab::{Lab, Plan, Topology};
use testnet::scenario::suite::Suite;
use testnet::subject::Subject;
use testnet::{During, Failure, Outcome};

const USAGE: &str = "usage: lab up | down | shell [client|server|backend] | scenarios [OPTION|WORD]...
  up      three network namespaces joined by veth pairs; they stay until `down`
  down    removes them, and what a killed run left
  shell   a shell in one of them (server, unless said otherwise)
  scenarios   runs tests/scenarios, those whose path holds a WORD if any is given
          --door sockets|xdp  one door instead of all   --jobs N  labs at once (default: one per CPU)
          --offload  with the clients' checksum offload on   --folder PATH  other scenarios
LAB names another lab than `millrace`: namespaces LAB-client, LAB-server, LAB-backend.
SUBJECT is the server under test: a path to `millrace`, or `dnsdist` (whose program DNSDIST may name).";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let prefix = std::env::var("LAB").unwrap_or_else(|_| "millrace".to_owned());
    let outcome = match words.as_slice() {
        ["up"] => up(&prefix),
        ["down"] => down(&prefix),
        ["shell"] => shell(&prefix, "server"),
        ["shell", role] => shell(&prefix, role),
        ["scenarios", rest @ ..] => return scenarios(&prefix, rest),
        _ => Err(Failure::new(USAGE)),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("{failure}");
            ExitCode::FAILURE
        }
    }
}

fn scenarios(prefix: &str, words: &[&str]) -> ExitCode {
    let suite = Subject::from_environment().and_then(|subject| {
        let subject = subject.ok_or_else(|| {
            Failure::new("no server to test: `cargo build -p millrace`, or set SUBJECT")
        })?;
        Suite::from_words(subject, &format!("{prefix}-scenarios"), words)
    });
    match suite {
        Ok(suite) => suite.run(),
        Err(failure) => {
            eprintln!("{failure}");
            ExitCode::FAILURE
        }
    }
}

fn up(prefix: &str) -> Outcome<()> {
    Lab::up(Plan {
        prefix: prefix.to_owned(),
        topology: Topology::TwoInterfaces,
    })?
    .keep()?;
    println!(
        "up: {prefix}-client (192.0.2.100, 2001:db8::100), {prefix}-server (192.0.2.1, 2001:db8::1; \
         198.51.100.1), {prefix}-backend (198.51.100.2, 2001:db8:1::2)"
    );
    Ok(())
}

fn down(prefix: &str) -> Outcome<()> {
    let gone = Lab::down(prefix)?;
    println!(
        "removed: {}",
        if gone.is_empty() {
            "nothing was there".to_owned()
        } else {
            gone.join(", ")
        }
    );
    Ok(())
}

fn shell(prefix: &str, role: &str) -> Outcome<()> {
    let lab = Lab::kept(prefix)?;
    let namespace = match role {
        "client" => lab.client(),
        "server" => lab.server(),
        "backend" => lab.backend(),
        _ => {
            return Err(Failure::new(format!(
                "no namespace {role}: client, server or backend"
            )));
        }
    };
    let shell = std::env::var("SHELL").unwrap_or_else(|_| "/bin/sh".to_owned());
    println!("in {}; `exit` leaves", namespace.name());
    let mut child = namespace.spawn(&mut Command::new(shell), Some(&lab.bpffs()))?;
    child.wait().during("waiting for the shell").map(drop)
}
