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
//! disk. One that is replaced changes places with it in one step, and goes when that is on the disk; where the file system
//! cannot do that, it is `example.com~old` meanwhile. What is restored was compared with its label as it was read, and built
//! before anything changes. In folders that others may write to nothing is removed but files of these names.

use super::live::Live;
use super::settings::ZoneSettings;
use super::store::{self, Facts, StoreError};
use super::timers::Timers;
use super::{Progress, StateDirectory};
use crate::clock;
use crate::log;
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, RenameFlags, open, renameat2};
use nix::sys::stat::Mode;
use nix::unistd::{UnlinkatFlags, User, geteuid, unlinkat};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;
use wire::name::{Name, NameBuf};
use zone::file::{Opener, Reader, Settings};
use zone::transfer::journal;
use zone::zone::{Zone, ZoneBuilder};

/// The files of a backup, as its label names them.
const ZONE: &str = "zone";
const JOURNAL: &str = "journal";
const TIMERS: &str = "timers";
const LABEL: &str = "label";
const FILES: [&str; 4] = [ZONE, JOURNAL, TIMERS, LABEL];

/// How each of them ends while it is written.
const BESIDE: &str = ".new";

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
    place.begin()?;
    let written = write(&place.fresh, &holding, order.parts, live).and_then(|label| {
        let is_replaced = place.put(order.is_forced)?;
        Ok((label, is_replaced))
    });
    if written.is_err() {
        // Where that fails too, the next backup begins with it.
        let _ = remove(&place.fresh);
    }
    let (label, is_replaced) = written?;
    place.settle(is_replaced)?;
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
            (true, true) if is_forced => {
                holds_ours(&self.own).map_err(|error| format!("{own} is not replaced: {error}"))
            }
            (true, true) => Err(format!(
                "{own} is a backup already: another directory expected, or +force, which replaces it"
            )),
            (true, false) => Err(format!(
                "{own} is there and is no backup: another directory expected"
            )),
        }
    }

    fn begin(&self) -> Result<(), String> {
        let made = fs::create_dir_all(&self.folder);
        made.map_err(store::unable("written", &self.folder))
            .map_err(unwritten)?;
        // Not create_dir_all, which takes whatever is there for it.
        let made = remove(&self.fresh).and_then(|()| fs::create_dir(&self.fresh));
        made.map_err(store::unable("written", &self.fresh))
            .map_err(unwritten)
    }

    /// Puts what is on the disk in its place. Whether a backup was there, which is beside it now.
    fn put(&self, is_forced: bool) -> Result<bool, String> {
        let is_replaced = is_forced && self.own.exists();
        let put = match is_replaced {
            true => self.exchange(),
            false => fs::rename(&self.fresh, &self.own),
        };
        put.map_err(store::unable("written", &self.own))
            .map_err(unwritten)?;
        Ok(is_replaced)
    }

    /// What was put stays in its place; only then what it has replaced goes.
    fn settle(&self, is_replaced: bool) -> Result<(), String> {
        let settled = File::open(&self.folder).and_then(|folder| folder.sync_all());
        settled
            .map_err(store::unable("written", &self.own))
            .map_err(unwritten)?;
        if is_replaced {
            // It is one of the two. Where that fails, the next backup does it.
            let _ = remove(&self.fresh);
            let _ = remove(&self.old);
        }
        Ok(())
    }

    /// The new backup and the one before change places: at every moment one of the two is there.
    fn exchange(&self) -> io::Result<()> {
        let (fresh, own) = (self.fresh.as_path(), self.own.as_path());
        match renameat2(AT_FDCWD, fresh, AT_FDCWD, own, RenameFlags::RENAME_EXCHANGE) {
            // rename(2): "EINVAL: The filesystem does not support one of the flags in flags."
            Err(Errno::EINVAL | Errno::ENOSYS) => self.replace(),
            exchanged => exchanged.map_err(io::Error::from),
        }
    }

    /// The same in two steps. Between them the backup is `old` alone, which [`Label::read`] says.
    fn replace(&self) -> io::Result<()> {
        remove(&self.old)?;
        fs::rename(&self.own, &self.old)?;
        let put = fs::rename(&self.fresh, &self.own);
        if put.is_err() {
            // Where that fails too, it is there by its other name.
            let _ = fs::rename(&self.old, &self.own);
        }
        put
    }

    /// What is said where there is no label.
    fn missing(&self) -> String {
        let own = self.own.display();
        if self.old.join(LABEL).exists() {
            let old = self.old.display();
            return format!("{own} is not there: {old}, which was being replaced, can be renamed");
        }
        format!("{own}: there is no backup of the zone")
    }
}

/// Writes what is held into this folder, the label last.
fn write(folder: &Path, holding: &Holding, parts: Parts, live: &Live) -> Result<Label, String> {
    let zone = holding.zone.as_ref().ok_or("there is no zone to copy")?;
    let mut files = BTreeMap::new();
    for name in parts.names() {
        let path = folder.join(name);
        let written = match (name, &holding.journal, holding.timers) {
            (ZONE, _, _) => store::write_text(zone, &path, &live.progress),
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
        zone: live.apex.to_string(),
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
    let place = Place::new(&order.folder, live.apex.as_name());
    let held = live.held().map(|zone| zone.soa().serial);
    let restored = checked(live, &place, order.parts, settings).and_then(|(label, back)| {
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
        place.own.display(),
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
    place: &Place,
    parts: Parts,
    settings: &ZoneSettings,
) -> Result<(Label, Holding), String> {
    let label = Label::read(place, &live.apex)?;
    let mut back = Holding {
        zone: None,
        journal: None,
        timers: None,
    };
    for name in parts.names() {
        let path = place.own.join(name);
        let Some(expected) = label.files.get(name) else {
            continue;
        };
        if name == ZONE {
            back.zone = Some(zone_of(live, &path, &label, expected)?);
            continue;
        }
        let octets = octets_of(&path, expected)?;
        match name {
            JOURNAL => back.journal = Some(journal_of(live, &path, octets, &label, settings)?),
            _ if !settings.is_secondary() => continue,
            _ => back.timers = Some(timers_of(&path, &octets)?),
        }
    }
    if held_names(&back).is_empty() {
        return Err(format!(
            "{} holds {}, of which nothing is asked for",
            place.own.display(),
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
    fn read(place: &Place, apex: &NameBuf) -> Result<Label, String> {
        let path = place.own.join(LABEL);
        let named = path.display();
        let octets = match fs::read(&path) {
            Ok(octets) => octets,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(place.missing());
            }
            Err(error) => return Err(unwritten(store::unable("read", &path)(error))),
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

/// The zone of this file, of which each octet is read once: what is built is what was compared.
fn zone_of(live: &Live, path: &Path, label: &Label, expected: &str) -> Result<Arc<Zone>, String> {
    let unread = |error: io::Error| unwritten(store::unable("read", path)(error));
    let mut file = Summed::open(path, &live.progress).map_err(unread)?;
    let built = build(live.apex.as_name(), path, &mut file);
    compare(path, &file.finish().map_err(unread)?, expected)?;
    let zone = built?;
    if !label.is_of(&zone) {
        return Err(format!("{}: its serial is not the label's", path.display()));
    }
    Ok(Arc::new(zone))
}

/// # Errors
/// What is wrong first.
fn build(apex: Name<'_>, path: &Path, file: &mut Summed<'_>) -> Result<Zone, String> {
    let open: Opener<'_> = Box::new(|_| Err(io::Error::other("no backup includes a file")));
    let path = path.display().to_string();
    let mut reader = Reader::new(&path, file, open, Settings::new(apex));
    let mut builder = ZoneBuilder::new(apex);
    while let Some(record) = reader.read() {
        let pushed = builder.push(record.map_err(|error| error.to_string())?);
        if let Err(error) = pushed {
            return Err(reader.error(error.to_string()).to_string());
        }
    }
    let built = builder.finish();
    let (zone, _) = built.map_err(|error| format!("{path}: {error}"))?;
    Ok(zone)
}

fn journal_of(
    live: &Live,
    path: &Path,
    octets: Vec<u8>,
    label: &Label,
    settings: &ZoneSettings,
) -> Result<Vec<u8>, String> {
    let said = |reason: &str| format!("{}: {reason}", path.display());
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

fn timers_of(path: &Path, octets: &[u8]) -> Result<Timers, String> {
    let facts: Facts = serde_json::from_slice(octets)
        .map_err(|error| format!("{}: cannot be used: {error}", path.display()))?;
    // A time that is to come would keep the zone from ever being asked for.
    let refreshed = facts.refreshed.min(clock::unix());
    Ok(Timers::kept(refreshed, facts.expires))
}

// ----------------------------------------------------------------------------------------------------- files

/// How what could not be written or read is said: whoever gives the order is most often somebody else than who does it.
pub(super) fn unwritten(error: StoreError) -> String {
    if !error.is_denied() {
        return error.to_string();
    }
    let uid = geteuid();
    let name = User::from_uid(uid).ok().flatten().map(|user| user.name);
    let user = name.unwrap_or_else(|| uid.to_string());
    format!(
        "{error}; the daemon is user {user}, who has to be allowed that: under the package's unit below /var/lib/millrace"
    )
}

/// A file that is being read, and the SHA-256 of what was read of it.
struct Summed<'p> {
    file: File,
    sum: Sha256,
    progress: &'p Progress,
}

impl<'p> Summed<'p> {
    fn open(path: &Path, progress: &'p Progress) -> io::Result<Summed<'p>> {
        let file = File::open(path)?;
        progress.begin(file.metadata()?.len());
        Ok(Summed {
            file,
            sum: Sha256::new(),
            progress,
        })
    }

    /// The sum of the whole file, in hexadecimal: what is left of it is read, too.
    fn finish(mut self) -> io::Result<String> {
        io::copy(&mut self, &mut io::sink())?;
        Ok(data_encoding::HEXLOWER.encode(&self.sum.finalize()))
    }
}

impl Read for Summed<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read(buffer)?;
        self.sum.update(&buffer[..count]);
        self.progress.add(count);
        Ok(count)
    }
}

/// The SHA-256 of a file, in hexadecimal.
fn checksum(path: &Path) -> Result<String, String> {
    let progress = Progress::default();
    let sum = Summed::open(path, &progress).and_then(Summed::finish);
    sum.map_err(store::unable("read", path)).map_err(unwritten)
}

/// What a file holds, where it is what it was.
fn octets_of(path: &Path, expected: &str) -> Result<Vec<u8>, String> {
    let octets = fs::read(path).map_err(store::unable("read", path));
    let octets = octets.map_err(unwritten)?;
    let sum = data_encoding::HEXLOWER.encode(&Sha256::digest(&octets));
    compare(path, &sum, expected)?;
    Ok(octets)
}

/// # Errors
/// A sum that is not the label's.
fn compare(path: &Path, sum: &str, expected: &str) -> Result<(), String> {
    match sum == expected {
        true => Ok(()),
        false => Err(format!(
            "{} is not as it was written: the backup is damaged",
            path.display()
        )),
    }
}

/// # Errors
/// What is in this folder and is no file of a backup: nobody is allowed to lose it.
fn holds_ours(path: &Path) -> io::Result<()> {
    if fs::symlink_metadata(path)?.is_symlink() {
        return Err(io::Error::other("it is a symbolic link"));
    }
    for entry in fs::read_dir(path)? {
        let name = entry?.file_name();
        let name = name.to_string_lossy();
        if !FILES.contains(&name.strip_suffix(BESIDE).unwrap_or(&name)) {
            let what = format!("it holds {name}, which is no file of a backup");
            return Err(io::Error::other(what));
        }
    }
    Ok(())
}

/// Removes the folder of a backup, if there is one, and of its files none but ours.
fn remove(path: &Path) -> io::Result<()> {
    // What is opened is what is emptied, wherever its name leads meanwhile. open(2) of O_NOFOLLOW: "If the trailing component
    // (i.e., basename) of pathname is a symbolic link, then the open fails".
    let flags = OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let folder = match open(path, flags, Mode::empty()) {
        Err(Errno::ENOENT) => return Ok(()),
        opened => opened?,
    };
    holds_ours(path)?;
    for name in FILES {
        for ending in ["", BESIDE] {
            let name = format!("{name}{ending}");
            match unlinkat(&folder, name.as_str(), UnlinkatFlags::NoRemoveDir) {
                Err(error) if error != Errno::ENOENT => return Err(error.into()),
                _ => {}
            }
        }
    }
    fs::remove_dir(path)
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
