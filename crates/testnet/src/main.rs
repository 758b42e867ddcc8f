//! `lab`: the laboratory from the command line; `./dev lab` and `./dev test` call it.

use std::process::{Command, ExitCode};

use testnet::lab::{self, Lab, Plan, Topology};
use testnet::metrics::{Metrics, Row};
use testnet::scenario::suite::Suite;
use testnet::subject::Subject;
use testnet::{During, Failure, Outcome, bench, resolvers, soak, tour};

const USAGE: &str = "usage: lab up | down | shell [client|server|backend] | metrics [WORD]... | run [--once] | bench | resolvers ADDRESS | soak [OPTION|WORD]... | scenarios [OPTION|WORD]...
  up      three network namespaces joined by veth pairs; they stay until `down`
  down    removes them, and what a killed run left
  shell   a shell in one of them (server, unless said otherwise)
  metrics the rows of the server in it that hold every WORD
  run     what `./dev run` does: lab, backend, server, a few queries, until Ctrl-C or `--once`
  bench   what `./dev bench` does: servers and yardsticks measured; `bench --help` says how
  resolvers ADDRESS   four scripted resolvers on ports 5301 to 5304, for a bench
  soak    the server under load for 20 minutes while faults come and go; only those whose name holds a WORD, if any is given
          --seed N   --minutes N | --seconds N   --rate N   queries a second; `flood`, `restarts`, `race`: other loads, without faults
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
        ["run"] => return run(&prefix, false),
        ["run", "--once"] => return run(&prefix, true),
        ["bench", ..] => return bench::run(&format!("{prefix}-bench"), &arguments[1..]),
        ["soak", rest @ ..] => return soaked(&prefix, rest),
        ["scenarios", rest @ ..] => return scenarios(&prefix, rest),
        ["up"] => up(&prefix),
        ["down"] => down(&prefix),
        ["shell"] => shell(&prefix, "server"),
        ["shell", role] => shell(&prefix, role),
        ["resolvers", address] => resolve(address),
        ["metrics", rest @ ..] => metrics(&prefix, rest),
        _ => Err(Failure::new(USAGE)),
    };
    or_say(outcome.map(|()| ExitCode::SUCCESS))
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
    let (namespace, bpffs) = lab::visit(prefix, role)?;
    let shell = std::env::var("SHELL").unwrap_or_else(|_| "/bin/sh".to_owned());
    println!("in {}; `exit` leaves", namespace.name());
    let mut child = namespace.spawn(&mut Command::new(shell), Some(&bpffs))?;
    child.wait().during("waiting for the shell").map(drop)
}

fn resolve(address: &str) -> Outcome<()> {
    let address = address.parse();
    resolvers::serve(address.map_err(|_| Failure::new(USAGE))?)
}

fn metrics(prefix: &str, words: &[&str]) -> Outcome<()> {
    let (namespace, _) = lab::visit(prefix, "server")?;
    let rows = Metrics::of(&namespace)?;
    rows.all()
        .map(Row::to_string)
        .filter(|row| words.iter().all(|word| row.contains(word)))
        .for_each(|row| println!("{row}"));
    Ok(())
}

/// The server that `SUBJECT` names, or the one that was built beside this program.
fn subject() -> Outcome<Subject> {
    let subject = Subject::from_environment()?;
    subject
        .ok_or_else(|| Failure::new("no server: `cargo build -p millrace` first, or set SUBJECT"))
}

fn run(prefix: &str, once: bool) -> ExitCode {
    or_say(subject().map(|subject| tour::run(prefix, &subject, once)))
}

fn scenarios(prefix: &str, words: &[&str]) -> ExitCode {
    let suite = subject()
        .and_then(|subject| Suite::from_words(subject, &format!("{prefix}-scenarios"), words));
    or_say(suite.map(|suite| suite.run()))
}

fn soaked(prefix: &str, words: &[&str]) -> ExitCode {
    let run = |subject| soak::run(&format!("{prefix}-soak"), &subject, words);
    or_say(subject().and_then(run))
}

fn or_say(outcome: Outcome<ExitCode>) -> ExitCode {
    outcome.unwrap_or_else(|failure| {
        eprintln!("{failure}");
        ExitCode::FAILURE
    })
}
