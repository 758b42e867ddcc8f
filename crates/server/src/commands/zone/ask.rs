//! Zones of the running instance, asked about and told over its control socket. What takes long is begun, and its state
//! asked for until it is done.

use super::super::{complain, put};
use super::bar::{DRAWN_EVERY, bar, draw};
use crate::control::client;
use crate::control::protocol::{REQUEST_MAX, ReadRequest, Request};
use crate::local::{Begun, ZoneStatus};
use serde::de::DeserializeOwned;
use std::io::{self, IsTerminal, Read};
use std::path::Path;
use std::process::ExitCode;
use std::thread::sleep;

/// The exit status of `millrace zone status` where a zone is answered with SERVFAIL: 1 says that nobody could be asked.
const NOT_SERVED: u8 = 3;

/// Prints a line a zone. The exit status is [`NOT_SERVED`] where one is not loaded or has expired.
pub(super) fn status(control: &Path, names: &[String]) -> ExitCode {
    let zones = names.to_vec();
    match ask::<ZoneStatus>(control, Request::ZoneStatus { zones }) {
        Ok(zones) => {
            zones.iter().for_each(|zone| put(format_args!("{zone}\n")));
            ExitCode::from(status_of(&zones))
        }
        Err(reason) => exit(Err(reason)),
    }
}

/// What the exit status says of these zones.
fn status_of(zones: &[ZoneStatus]) -> u8 {
    // One that has expired has no serial that is served either.
    let all_serve = zones.iter().all(|zone| zone.serial.is_some());
    if all_serve { 0 } else { NOT_SERVED }
}

/// Has something begun for each zone, waits until it is done, and prints what it came to.
pub(super) fn begin(control: &Path, request: Request) -> ExitCode {
    exit(ask::<Begun>(control, request).and_then(|begun| wait(control, begun)))
}

/// Prints records, once all of them are here: who reads them may take his time.
pub(super) fn read(control: &Path, asked: ReadRequest) -> ExitCode {
    let opened = client::open(control, &Request::ZoneRead(asked));
    let read = opened
        .map_err(|error| error.to_string())
        .and_then(|(_, mut stream)| all_of(&mut stream));
    exit(read.map(|text| {
        put(text);
        true
    }))
}

/// The lines of a reading, without the empty one at their end.
fn all_of(stream: &mut impl Read) -> Result<String, String> {
    let mut text = String::new();
    let cut = "the connection was cut before all records had come: try again";
    match stream.read_to_string(&mut text) {
        Err(error) => Err(format!("{cut} ({error})")),
        Ok(_) if text == "\n" || text.ends_with("\n\n") => {
            text.pop();
            Ok(text)
        }
        Ok(_) => Err(cut.to_owned()),
    }
}

/// Whether all went well.
fn wait(control: &Path, mut begun: Vec<Begun>) -> Result<bool, String> {
    let is_watched = io::stderr().is_terminal();
    let count = begun.len();
    let mut all_well = true;
    while !begun.is_empty() {
        let later = begun.split_off(fitting(&begun));
        let zones = begun.iter().map(|zone| zone.name.clone()).collect();
        let states = ask::<ZoneStatus>(control, Request::ZoneStatus { zones })?;
        let state = |zone: &Begun| states.iter().find(|state| state.name == zone.name);
        if is_watched {
            draw("");
        }
        begun.retain(|zone| {
            // Of a zone that is gone nothing will come.
            let Some(state) = state(zone) else {
                return false;
            };
            let Some(outcome) = state.outcome(zone.ticket) else {
                return true;
            };
            put(format_args!("{}: {}\n", state.name, outcome.said));
            all_well &= !outcome.failed;
            false
        });
        begun.extend(later);
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

/// How many of the first zones one request can name: it has [`REQUEST_MAX`] octets, and an instance any number of zones.
fn fitting(zones: &[Begun]) -> usize {
    let mut length = AROUND;
    // JSON makes a name twice as long at most, and puts two quotes and a comma around it.
    let has_room = |zone: &&Begun| {
        length += 2 * zone.name.len() + 3;
        length <= REQUEST_MAX
    };
    zones.iter().take_while(has_room).count()
}

/// Octets of a request without the names in it, at most.
const AROUND: usize = 100;

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
            complain(reason);
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scripts alarm on it.
    #[test]
    fn a_zone_that_is_not_served_is_an_exit_status() {
        let zone = |serial: Option<u32>, expired: bool| ZoneStatus {
            serial,
            expired,
            ..ZoneStatus::default()
        };
        assert_eq!(status_of(&[]), 0);
        assert_eq!(status_of(&[zone(Some(0), false)]), 0);
        let both = [zone(Some(7), false), zone(None, false)];
        assert_eq!(status_of(&both), 3, "not loaded");
        assert_eq!(status_of(&[zone(None, true)]), 3, "expired");
    }

    #[test]
    fn a_request_names_no_more_zones_than_it_can() {
        for name in ["example.com.", "\\\"\\\"\\\"."] {
            let zone = Begun {
                name: name.to_owned(),
                ticket: 1,
            };
            let many = vec![zone; 10_000];
            let count = fitting(&many);
            assert!((1_000..10_000).contains(&count), "{count}");
            let zones = many[..count].iter().map(|zone| zone.name.clone());
            let zones = zones.collect();
            let line = serde_json::to_string(&Request::ZoneStatus { zones }).unwrap();
            assert!(line.len() < REQUEST_MAX, "{}", line.len());
            assert_eq!(fitting(&many[..3]), 3);
        }
    }

    #[test]
    fn a_reading_that_was_cut_is_none() {
        let read = |text: &str| all_of(&mut text.as_bytes());
        assert_eq!(read("a\nb\n\n").unwrap(), "a\nb\n");
        for cut in ["", "a", "a\n"] {
            let reason = read(cut).unwrap_err();
            assert!(reason.contains("try again"), "{reason}");
        }
    }
}
