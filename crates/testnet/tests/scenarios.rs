//! `cargo test -p testnet --test scenarios [WORD]`: tests/scenarios with the `millrace` of this build,
//! or with the server that `SUBJECT` names.

use std::process::ExitCode;

use testnet::scenario::suite::Suite;
use testnet::subject::Subject;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    if !nix::unistd::geteuid().is_root() {
        println!("SKIP: scenarios need root for network namespaces");
        return ExitCode::SUCCESS;
    }
    let suite = match Subject::from_environment() {
        Ok(Some(subject)) => Suite::from_words(subject, "scenarios", &words),
        Ok(None) => {
            println!(
                "SKIP: scenarios need a server: `cargo build -p millrace` first, or set SUBJECT"
            );
            return ExitCode::SUCCESS;
        }
        Err(failure) => Err(failure),
    };
    match suite {
        Ok(suite) => suite.run(),
        Err(failure) => {
            eprintln!("{failure}");
            ExitCode::FAILURE
        }
    }
}
