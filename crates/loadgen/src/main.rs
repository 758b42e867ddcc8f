//! See the library: `floodgate`'s command line begins in its module `commands`.

use floodgate::report::{all_is_said, tell};
use std::process::ExitCode;

fn main() -> ExitCode {
    let outcome = floodgate::commands::run(std::env::args_os().collect());
    match outcome.and_then(|code| all_is_said().map(|()| code)) {
        Ok(code) => code,
        Err(failure) => {
            tell(&format!("floodgate: {failure}\n"));
            ExitCode::FAILURE
        }
    }
}
