//! `--check-config`: loads everything, touches nothing, says whether it is good.

use super::arguments::ServeArguments;
use crate::config::spec::Purpose;
use crate::config::{self, ConfigError};
use crate::log::{self, Priority, Shape};
use std::path::Path;
use std::process::ExitCode;

pub(super) fn run(arguments: &ServeArguments) -> ExitCode {
    log::set(arguments.log_settings(log::Settings::DEFAULT));
    match check(arguments) {
        Ok(()) => {
            say_good(arguments.file().unwrap_or(Path::new("")));
            ExitCode::SUCCESS
        }
        Err(error) => {
            super::say_why(&error);
            error.status().into()
        }
    }
}

fn check(arguments: &ServeArguments) -> Result<(), ConfigError> {
    let state = arguments.load(Purpose::Check, None)?;
    state.edit(|spec| {
        log::set(arguments.log_settings(spec.logging));
        super::say_remarks(spec);
        config::derive(spec, None)
    })?;
    Ok(())
}

/// dnsdist's words to the letter: scripts compare them.
fn say_good(file: &Path) {
    match log::settings().shape {
        Shape::Plain => println!("Configuration '{}' OK!", file.display()),
        _ => log::write(
            Priority::Info,
            "setup",
            "Configuration OK",
            &[("path", &file.display())],
        ),
    }
}
