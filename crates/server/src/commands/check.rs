//! `--check-config`: loads everything, touches nothing, says whether it is good.

use super::arguments::ServeArguments;
use crate::config::error::Fault;
use crate::config::spec::{Purpose, Spec};
use crate::config::{self, ConfigError};
use crate::local::{self, Progress};
use crate::log::{self, Priority, Shape};
use std::path::Path;
use std::process::ExitCode;

pub(super) fn run(arguments: &ServeArguments) -> ExitCode {
    log::set(settings(arguments, log::Settings::DEFAULT));
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
    arguments.check_owner()?;
    let state = arguments.load(Purpose::Check, None)?;
    state.edit(|spec| {
        log::set(settings(arguments, spec.log_settings()));
        super::say_remarks(spec);
        config::derive(spec, None)?;
        zones(spec)
    })
}

/// Lines go to whoever runs the check and nowhere else.
fn settings(arguments: &ServeArguments, file: log::Settings) -> log::Settings {
    let settings = arguments.log_settings(file);
    log::Settings {
        shape: match settings.shape {
            Shape::Journal => Shape::Structured,
            shape => shape,
        },
        outlets: log::Outlets::default(),
        ..settings
    }
}

/// Whether the zones that are to be served can be.
fn zones(spec: &Spec) -> Result<(), ConfigError> {
    let mut faults = Vec::new();
    for zone in &spec.zones.list {
        let settings = &zone.settings;
        // What a secondary has is its primary's matter.
        let Some(file) = settings.file.as_ref().filter(|_| !settings.is_secondary()) else {
            continue;
        };
        let errors = local::read(settings.apex.as_name(), file, &Progress::default()).err();
        faults.extend(errors.into_iter().flatten().map(|text| Fault {
            place: zone.place.clone(),
            text,
        }));
    }
    match faults.is_empty() {
        true => Ok(()),
        false => Err(ConfigError::Faults(faults)),
    }
}

/// dnsdist's words to the letter: scripts compare them.
fn say_good(file: &Path) {
    match log::settings().shape {
        Shape::Plain => super::put(format_args!("Configuration '{}' OK!\n", file.display())),
        _ => log::write(
            Priority::Info,
            "setup",
            "Configuration OK",
            &[("path", &file.display())],
        ),
    }
}
