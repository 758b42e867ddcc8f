//! Zones of the running instance, asked about and told over its control socket. What takes long is begun, and its state
//! asked for until it is done.

use super::bar::{DRAWN_EVERY, bar, draw};
use crate::control::client;
use crate::control::protocol::Request;
use crate::local::{Begun, ZoneStatus};
use serde::de::DeserializeOwned;
use std::io::{self, IsTerminal};
use std::path::Path;
use std::process::ExitCode;
use std::thread::sleep;

/// Prints a line a zone.
pub(super) fn status(control: &Path, names: &[String]) -> ExitCode {
    let zones = names.to_vec();
    exit(
        ask::<ZoneStatus>(control, Request::ZoneStatus { zones }).map(|zones| {
            zones.iter().for_each(|zone| println!("{zone}"));
            true
        }),
    )
}

/// Has something begun for each zone, waits until it is done, and prints what it came to.
pub(super) fn begin(
    control: &Path,
    names: &[String],
    request: impl FnOnce(Vec<String>) -> Request,
) -> ExitCode {
    exit(ask::<Begun>(control, request(names.to_vec())).and_then(|begun| wait(control, begun)))
}

/// Whether all went well.
fn wait(control: &Path, mut begun: Vec<Begun>) -> Result<bool, String> {
    let is_watched = io::stderr().is_terminal();
    let count = begun.len();
    let mut all_well = true;
    while !begun.is_empty() {
        let zones = begun.iter().map(|zone| zone.name.clone()).collect();
        let states = ask::<ZoneStatus>(control, Request::ZoneStatus { zones })?;
        let state = |zone: &Begun| states.iter().find(|state| state.name == zone.name);
        let is_done = |zone: &Begun| state(zone).is_none_or(|state| state.works >= zone.works);
        if is_watched {
            draw("");
        }
        for state in begun.iter().filter(|zone| is_done(zone)).filter_map(state) {
            println!("{}: {}", state.name, state.said);
            all_well &= !state.failed;
        }
        begun.retain(|zone| !is_done(zone));
        if let Some(first) = begun.first() {
            if is_watched && let Some(state) = state(first) {
                let work = state.work.as_deref().unwrap_or("waiting");
                let what = format!(
                    "{} of {count} done; {} {work}",
                    count - begun.len(),
                    first.name
                );
                draw(&bar(&what, state.done, state.total));
            }
            sleep(DRAWN_EVERY);
        }
    }
    Ok(all_well)
}

fn ask<T: DeserializeOwned>(control: &Path, request: Request) -> Result<Vec<T>, String> {
    let result = client::request(control, &request).map_err(|error| error.to_string())?;
    serde_json::from_value(result).map_err(|error| {
        format!("what came is not what this version understands; is the instance of another one? {error}")
    })
}

fn exit(outcome: Result<bool, String>) -> ExitCode {
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(reason) => {
            eprintln!("{reason}");
            ExitCode::FAILURE
        }
    }
}
