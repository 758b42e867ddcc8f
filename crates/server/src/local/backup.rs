//! `millrace zone backup` and `restore`: a zone, its journal and its timers in a folder of an operator's choice.
//!
//! ```text
//! FOLDER/example.com/zone      what is held, as the text of a zone file
//! FOLDER/example.com/journal   crate zone: transfer::journal; its newest change leads to that zone
//! FOLDER/example.com/timers    JSON: when a primary last confirmed a secondary's zone
//! FOLDER/example.com/label     JSON: which format, zone and serial, when, and the SHA-256 of the files above
//! ```
//!
//! `FOLDER/example.com` is there whole or not at all: it is written as `example.com~new` and renamed when all of it is on the
//! disk; one that is replaced is `example.com~old` meanwhile. What is restored was compared with its label, read and built
//! before anything changes.

use super::live::{Live, seconds_now};
use super::settings::ZoneSettings;
use super::store::{self, Facts};
use super::timers::Timers;
use super::{StateDirectory, read};
use crate::log;
use nix::unistd::{User, geteuid};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;
use wire::name::{Name, NameBuf};
use zone::transfer::journal;
use zone::zone::Zone;

/// The files of a backup, as its label names them.
const ZONE: &str = "zone";
const JOURNAL: &str = "journal";
const TIMERS: &str = "timers";
const LABEL: &str = "label";

/// What every label says first.
const MAGIC: &str = "millrace zone backup";

/// Which form the files have.
const FORMAT: u32 = 1;

/// What is copied into which folder, or from where it is restored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackupOrder {
    pub folder: PathBuf,
    #[serde(default)]
    pub parts: Parts,
    /// A backup that is there already is replaced.
    #[serde(default)]
    pub is_forced: bool,
}

/// What of a zone is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parts {
    pub zonefile: bool,
    pub journal: bool,
    pub timers: bool,
}

impl Default for Parts {
    /// knotc(8): "By default, filters +zonefile, +timers, +kaspdb, +catalog, and +nojournal are set."
    fn default() -> Parts {
        Parts {
            zonefile: true,
            journal: false,
            timers: true,
        }
    }
}

impl Parts {
    fn names(self) -> impl Iterator<Item = &'static str> {
        let all = [
            (self.zonefile, ZONE),
            (self.journal, JOURNAL),
            (self.timers, TIMERS),
        ];
        all.into_iter()
            .filter_map(|(is_meant, name)| is_meant.then_some(name))
    }
}

/// What a backup holds of a zone.
pub(super) struct Holding {
    pub(super) zone: Option<Arc<Zone>>,
    /// The octets of a journal of which the newest change leads to the zone.
    pub(super) journal: Option<Vec<u8>>,
    /// Of a secondary.
    pub(super) timers: Option<Timers>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Label {
    label: String,
    format: u32,
    zone: String,
    serial: u32,
    /// When it was made.
    date: String,
    /// Which version has made it.
    by: String,
    /// The SHA-256 of each file, in hexadecimal.
    files: BTreeMap<String, String>,
}

// ---------------------------------------------------------------------------------------------------- backup

/// Copies the zone as it is held now. What it came to.
///
/// # Errors
/// What would be right; a backup that was there is as it was.
pub(super) fn backup(
    live: &Live,
    order: &BackupOrder,
    settings: &ZoneSettings,
    state: &Arc<StateDirectory>,
) -> Result<String, String> {
    let place = Place::new(&order.folder, live.apex.as_name());
    place.check(order.is_forced, state)?;
    let holding = live.holding(settings, state);
    let holding = holding.ok_or("it is not loaded: there is nothing to copy")?;
    let outcome = place.begin().and_then(|()| {
        let label = write(&place.fresh, &holding, order.parts, &live.apex)?;
        place.finish(order.is_forced)?;
        Ok(label)
    });
    if outcome.is_err() {
        // Where that fails too, the next backup begins with it.
        let _ = remove_all(&place.fresh);
    }
    let label = outcome?;
    let mut said = format!(
        "serial {} copied to {}: {}",
        label.serial,
        place.own.display(),
        listed(label.files.keys())
    );
    if order.parts.journal && holding.journal.is_none() {
        said += "; it has no journal";
    }
    Ok(said)
}

/// Where the backup of one zone is, and what is beside it meanwhile. No zone's file name has a tilde.
struct Place {
    folder: PathBuf,
    own: PathBuf,
    fresh: PathBuf,
    old: PathBuf,
}

impl Place {
    fn new(folder: &Path, apex: Name<'_>) -> Place {
        let own = store::folder_in(folder, apex);
        let beside = |ending: &str| {
            let mut path = own.as_os_str().to_owned();
            path.push(ending);
            PathBuf::from(path)
        };
        Place {
            folder: folder.to_owned(),
            fresh: beside("~new"),
            old: beside("~old"),
            own,
        }
    }

    /// Whether a backup may be made here.
    fn check(&self, is_forced: bool, state: &StateDirectory) -> Result<(), String> {
        let kept = state.path().canonicalize().ok();
        if kept.is_some() && self.folder.canonicalize().ok() == kept {
            return Err(format!(
                "{}: zones are kept there: another directory expected, as one below it",
                self.folder.display()
            ));
        }
        let own = self.own.display();
        match (self.own.exists(), self.own.join(LABEL).exists()) {
            (false, _) => Ok(()),
            (true, true) if is_forced => Ok(()),
            (true, true) => Err(format!(
                "{own} is a backup already: another directory expected, or +force, which replaces it"
            )),
            (true, false) => Err(format!(
                "{own} is there and is no backup: another directory expected"
            )),
        }
    }

    fn begin(&self) -> Result<(), String> {
        let made = remove_all(&self.fresh).and_then(|()| fs::create_dir_all(&self.fresh));
        made.map_err(|error| {
            let folder = self.folder.display();
            unwritten(format!("{folder}: cannot be written: {error}"))
        })
    }

    /// Puts what is on the disk in its place.
    fn finish(&self, is_forced: bool) -> Result<(), String> {
        let finish = || {
            if is_forced && self.own.exists() {
                remove_all(&self.old)?;
                fs::rename(&self.own, &self.old)?;
            }
            if let Err(error) = fs::rename(&self.fresh, &self.own) {
                // It is there only if it was moved just now.
                let _ = fs::rename(&self.old, &self.own);
                return Err(error);
            }
            // Where that fails, the next backup does it.
            let _ = remove_all(&self.old);
            File::open(&self.folder)?.sync_all()
        };
        finish().map_err(|error: io::Error| {
            let path = self.own.display();
            unwritten(format!("{path}: cannot be written: {error}"))
        })
    }
}

/// Writes what is held into this folder, the label last.
fn write(folder: &Path, holding: &Holding, parts: Parts, apex: &NameBuf) -> Result<Label, String> {
    let zone = holding.zone.as_ref().ok_or("there is no zone to copy")?;
    let mut files = BTreeMap::new();
    for name in parts.names() {
        let path = folder.join(name);
        let written = match (name, &holding.journal, holding.timers) {
            (ZONE, _, _) => store::write_text(zone, &path),
            (JOURNAL, Some(octets), _) => store::write_whole(octets, &path),
            (TIMERS, _, Some(timers)) => store::write_whole(&json(&Facts::of(timers))?, &path),
            _ => continue,
        };
        written.map_err(unwritten)?;
        files.insert(name.to_owned(), checksum(&path)?);
    }
    if files.is_empty() {
        return Err("of what is asked for it has nothing: there is nothing to copy".to_owned());
    }
    let label = Label {
        label: MAGIC.to_owned(),
        format: FORMAT,
        zone: apex.to_string(),
        serial: zone.soa().serial,
        date: log::utc(SystemTime::now()),
        by: concat!("millrace ", env!("CARGO_PKG_VERSION")).to_owned(),
        files,
    };
    store::write_whole(&json(&label)?, &folder.join(LABEL)).map_err(unwritten)?;
    Ok(label)
}

fn json(value: &impl Serialize) -> Result<Vec<u8>, String> {
    let mut octets = serde_json::to_vec_pretty(value).map_err(|error| error.to_string())?;
    octets.push(b'\n');
    Ok(octets)
}

// --------------------------------------------------------------------------------------------------- restore

/// Puts back what a backup holds of the zone. What it came to.
///
/// # Errors
/// What is wrong with it, or could not be written: what was there serves on.
pub(super) fn restore(
    live: &Live,
    order: &BackupOrder,
    settings: &ZoneSettings,
    state: &Arc<StateDirectory>,
) -> Result<String, String> {
    let folder = store::folder_in(&order.folder, live.apex.as_name());
    let held = live.held().map(|zone| zone.soa().serial);
    let restored = checked(live, &folder, order.parts, settings).and_then(|(label, back)| {
        let warning = live.put_back(&back, settings, state)?;
        Ok((label, back, warning))
    });
    let (label, back, warning) = restored.map_err(|reason| match held {
        Some(serial) => format!("not restored: {reason}; serial {serial} serves on"),
        None => format!("not restored: {reason}"),
    })?;
    let names = held_names(&back);
    let mut said = format!(
        "serial {} restored from {}, made {}: {}",
        label.serial,
        folder.display(),
        label.date,
        listed(names.iter())
    );
    let is_older = |held: &u32| zone::transfer::serial::is_newer(*held, label.serial);
    if let Some(held) = held.filter(|held| back.zone.is_some() && is_older(held)) {
        said += &format!("; secondaries that have serial {held} do not see it");
    }
    if let Some(warning) = warning {
        said += &format!("; {warning}");
    }
    Ok(said)
}

/// What is asked for and there, and fits together: nothing has changed yet.
fn checked(
    live: &Live,
    folder: &Path,
    parts: Parts,
    settings: &ZoneSettings,
) -> Result<(Label, Holding), String> {
    let label = Label::read(folder, &live.apex)?;
    let mut back = Holding {
        zone: None,
        journal: None,
        timers: None,
    };
    for name in parts.names() {
        let path = folder.join(name);
        let Some(expected) = label.files.get(name) else {
            continue;
        };
        if checksum(&path)? != *expected {
            let path = path.display();
            return Err(format!(
                "{path} is not as it was written: the backup is damaged"
            ));
        }
        match name {
            ZONE => back.zone = Some(zone_of(live, &path, &label)?),
            JOURNAL => back.journal = Some(journal_of(live, &path, &label, settings)?),
            _ if !settings.is_secondary() => continue,
            _ => back.timers = Some(timers_of(&path)?),
        }
    }
    if held_names(&back).is_empty() {
        return Err(format!(
            "{} holds {}, of which nothing is asked for",
            folder.display(),
            listed(label.files.keys())
        ));
    }
    // A journal alone goes on with the zone that is here.
    let zone = back.zone.clone().or_else(|| live.held());
    if back.journal.is_some() && !zone.is_some_and(|zone| label.is_of(&zone)) {
        return Err(format!(
            "the journal leads to serial {}, which is not here: +zonefile restores both",
            label.serial
        ));
    }
    Ok((label, back))
}

impl Label {
    fn read(folder: &Path, apex: &NameBuf) -> Result<Label, String> {
        let path = folder.join(LABEL);
        let named = path.display();
        let octets = match fs::read(&path) {
            Ok(octets) => octets,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let folder = folder.display();
                return Err(format!("{folder}: there is no backup of the zone"));
            }
            Err(error) => return Err(unwritten(format!("{named}: cannot be read: {error}"))),
        };
        let label: Label = serde_json::from_slice(&octets)
            .map_err(|error| format!("{named}: no label of a backup: {error}"))?;
        match (label.label.as_str(), label.format) {
            (MAGIC, FORMAT) if label.zone.eq_ignore_ascii_case(&apex.to_string()) => Ok(label),
            (MAGIC, FORMAT) => Err(format!("{named}: a backup of zone {}", label.zone)),
            (MAGIC, format) => Err(format!(
                "{named}: format {format}, of another version ({}); this one reads format {FORMAT}",
                label.by
            )),
            _ => Err(format!("{named}: no label of a backup")),
        }
    }

    fn is_of(&self, zone: &Zone) -> bool {
        zone.soa().serial == self.serial
    }
}

fn zone_of(live: &Live, path: &Path, label: &Label) -> Result<Arc<Zone>, String> {
    let read = read(live.apex.as_name(), path, &live.progress);
    let read = read.map_err(|errors| errors.into_iter().next().unwrap_or_default())?;
    if !label.is_of(&read.zone) {
        return Err(format!("{}: its serial is not the label's", path.display()));
    }
    Ok(Arc::new(read.zone))
}

fn journal_of(
    live: &Live,
    path: &Path,
    label: &Label,
    settings: &ZoneSettings,
) -> Result<Vec<u8>, String> {
    let said = |reason: &str| format!("{}: {reason}", path.display());
    let octets = fs::read(path).map_err(|error| said(&format!("cannot be read: {error}")))?;
    let journal = journal::read(&octets, live.apex.as_name());
    let journal = journal.map_err(|error| said(&error.to_string()))?;
    if journal.length != octets.len() || journal.newest() != Some(label.serial) {
        return Err(said("it does not lead to the serial of the label"));
    }
    if !settings.is_kept() || octets.len() as u64 > settings.journal_octets {
        let reason = "no journal as long as this is kept here: +nojournal restores the rest";
        return Err(said(reason));
    }
    Ok(octets)
}

fn timers_of(path: &Path) -> Result<Timers, String> {
    let said = |error: &dyn fmt::Display| format!("{}: cannot be used: {error}", path.display());
    let octets = fs::read(path).map_err(|error| said(&error))?;
    let facts: Facts = serde_json::from_slice(&octets).map_err(|error| said(&error))?;
    // A time that is to come would keep the zone from ever being asked for.
    let refreshed = facts.refreshed.min(seconds_now());
    Ok(Timers::kept(refreshed, facts.expires))
}

// ----------------------------------------------------------------------------------------------------- files

/// How what could not be written is said: whoever gives the order is most often somebody else than who writes.
pub(super) fn unwritten(error: impl fmt::Display) -> String {
    let uid = geteuid();
    let name = User::from_uid(uid).ok().flatten().map(|user| user.name);
    let user = name.unwrap_or_else(|| uid.to_string());
    format!(
        "{error}; the daemon is user {user}, who has to be allowed that: under the package's unit below /var/lib/millrace"
    )
}

/// The SHA-256 of a file, in hexadecimal.
fn checksum(path: &Path) -> Result<String, String> {
    let digest = || {
        let mut file = File::open(path)?;
        let mut sum = Sha256::new();
        let mut octets = vec![0; 1 << 16];
        loop {
            let length = file.read(&mut octets)?;
            if length == 0 {
                break;
            }
            sum.update(&octets[..length]);
        }
        Ok(data_encoding::HEXLOWER.encode(&sum.finalize()))
    };
    digest().map_err(|error: io::Error| format!("{}: cannot be read: {error}", path.display()))
}

/// Removes a folder, if there is one.
fn remove_all(path: &Path) -> io::Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn held_names(back: &Holding) -> Vec<&'static str> {
    let parts = Parts {
        zonefile: back.zone.is_some(),
        journal: back.journal.is_some(),
        timers: back.timers.is_some(),
    };
    parts.names().collect()
}

fn listed<T: AsRef<str>>(names: impl Iterator<Item = T>) -> String {
    let names: Vec<T> = names.collect();
    let names: Vec<&str> = names.iter().map(AsRef::as_ref).collect();
    names.join(", ")
}

#[cfg(test)]
mod tests;
