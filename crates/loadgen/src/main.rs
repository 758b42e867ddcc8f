//! See the library: `floodgate`'s command line begins in its module `commands`.

use std::process::ExitCode;

fn main() -> ExitCode {
    match floodgate::commands::run(std::env::args_os().collect()) {
        Ok(code) => code,
        Err(failure) => {
            eprintln!("floodgate: {failure}");
            ExitCode::FAILURE
        }
    }
}
