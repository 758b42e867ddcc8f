//! The daemon `millrace`.

use std::process::ExitCode;

fn main() -> ExitCode {
    millrace::commands::run(std::env::args_os(), millrace::serve::serve)
}
