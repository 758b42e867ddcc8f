//! What outlives the process: per zone a snapshot, a journal of the changes since (and of some before), and a few facts.
//!
//! ```text
//! STATE/example.com.zone      crate zone: transfer::snapshot
//! STATE/example.com.journal   crate zone: transfer::journal; longer than allowed → a new snapshot, and its older half goes
//! STATE/example.com.facts     JSON: when a primary last confirmed the zone, which files it was made of
//! ```
//!
//! What is recovered is the snapshot and those changes of the journal that lead on from it. Every file but the journal is
//! written beside the old one and renamed; the journal is only appended to, and a torn end is cut off. So whatever happens
//! (F37: a full disk, kill -9 at any octet) a committed version is recovered: the newest, or the one before.

mod files;

use super::state::NoRight;
use super::timers::Timers;
use super::unseen::Greatest;
use super::{Progress, Stamp, StateDirectory};
use crate::clock;
use crate::log;
use files::{Directory, Fresh};
use serde::{Deserialize, Serialize};
use std::fmt::{self, Write as _};
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use wire::name::{Name, NameBuf};
use zone::transfer::journal::{self, Checksum, Journal, JournalError};
use zone::transfer::{Change, apply, serial, snapshot};
use zone::zone::{Zone, ZoneBuilder};

/// Octets that are gathered before they are written to a snapshot.
const GATHERED: usize = 1 << 16;

/// The files of one zone.
pub(super) struct Store {
    apex: NameBuf,
    state: Arc<StateDirectory>,
    directory: Directory,
    snapshot: PathBuf,
    journal: PathBuf,
    facts: PathBuf,
    /// How long the journal may get, in octets.
    limit: u64,
    /// `None`: not looked at yet, or something went wrong.
    kept: Option<Kept>,
    /// What is in `kept` was seen while nobody else could write.
    is_sure: bool,
    /// Something went wrong while the journal was written: what of it is on the disk nobody knows (the kernel forgets what
    /// an fsync could not write), or it is longer than it may be: the next commit writes everything anew.
    is_doubtful: bool,
}

/// What the files hold.
#[derive(Clone, Copy)]
struct Kept {
    /// The serial that is recovered from them.
    serial: u32,
    /// Where the next entry goes; `None`: a new journal has to be begun.
    tail: Option<Tail>,
}

#[derive(Clone, Copy)]
struct Tail {
    length: u64,
    checksum: Checksum,
}

/// What is known of a zone besides its records.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Facts {
    /// When a primary last confirmed the zone: seconds since 1970.
    #[serde(default)]
    pub(super) refreshed: u64,
    /// When the zone expires by what that primary said: seconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) expires: Option<u64>,
    /// The files that the zone was made of.
    #[serde(default)]
    pub(super) stamps: Vec<Stamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) greatest: Greatest,
}

/// What was on the disk.
pub(super) struct Recovered {
    pub(super) zone: Zone,
    /// What is wrong with the journal, and which versions are lost by it.
    pub(super) damage: Option<String>,
}

/// Which journal leads to a zone that is restored.
pub(super) enum Past<'o> {
    /// The one that is here, where its newest change does.
    Own,
    /// One of these octets.
    Given(&'o [u8]),
    None,
}

/// What could not be done with which file, and the system's or the format's reason.
#[derive(Debug)]
pub(super) struct StoreError {
    text: String,
    is_denied: bool,
}

impl StoreError {
    /// Whether the user that the daemon runs as is not allowed it, which another folder or other rights would change.
    pub(super) fn is_denied(&self) -> bool {
        self.is_denied
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for StoreError {}

fn failed<E: fmt::Display>(what: &'static str, path: &Path) -> impl FnOnce(E) -> StoreError {
    move |error| StoreError {
        text: format!("{}: cannot be {what}: {error}", path.display()),
        is_denied: false,
    }
}

/// The same of what the system refuses.
pub(super) fn unable(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> StoreError {
    use io::ErrorKind::{PermissionDenied, ReadOnlyFilesystem};
    move |error| StoreError {
        is_denied: matches!(error.kind(), PermissionDenied | ReadOnlyFilesystem),
        ..failed(what, path)(error)
    }
}

impl Store {
    /// The files of zone `apex` in `directory`; nothing is touched yet.
    pub(super) fn new(state: &Arc<StateDirectory>, apex: &NameBuf, limit: u64) -> Store {
        let stem = files::stem(apex.as_name());
        let file = |ending: &str| state.path().join(format!("{stem}.{ending}"));
        Store {
            apex: apex.clone(),
            snapshot: file("zone"),
            journal: file("journal"),
            facts: file("facts"),
            directory: Directory::new(state.path()),
            state: Arc::clone(state),
            limit,
            kept: None,
            is_sure: false,
            is_doubtful: false,
        }
    }

    /// Whether it is what these settings ask for.
    pub(super) fn is_in(&self, state: &Arc<StateDirectory>, limit: u64) -> bool {
        self.limit == limit && Arc::ptr_eq(&self.state, state)
    }

    /// Whether a file is one of these, by whatever path.
    pub(super) fn owns(&self, path: &Path) -> bool {
        let folder = |path: &Path| path.parent().and_then(|folder| folder.canonicalize().ok());
        let own = [&self.snapshot, &self.journal, &self.facts];
        let is_own = |path: &Path| {
            own.iter()
                .any(|own| own.file_name() == path.file_name() && folder(own) == folder(path))
        };
        is_own(path) || path.canonicalize().is_ok_and(|path| is_own(&path))
    }

    /// Looks at the files anew: others may have written them.
    pub(super) fn forget(&mut self) {
        (self.kept, self.is_sure) = (None, false);
    }

    /// What [`StateDirectory::enter`] gives. What was seen before this process had the right may have changed.
    fn enter(state: &StateDirectory) -> Result<impl Sized + '_, StoreError> {
        state.enter().map_err(|error| match error {
            NoRight::System(error) => unable("written", state.path())(error),
            error => failed("written", state.path())(error),
        })
    }

    fn be_sure(&mut self) {
        if !std::mem::replace(&mut self.is_sure, true) {
            self.kept = None;
        }
    }

    /// Whether the files hold what was kept last: somebody may have renamed or removed their directory.
    fn is_there(&self) -> bool {
        let tail = self.kept.and_then(|kept| kept.tail);
        let journal = || fs::metadata(&self.journal).map_or(0, |file| file.len());
        self.snapshot_octets() > 0 && tail.is_none_or(|tail| journal() >= tail.length)
    }

    /// Whether this serial is on the disk, for all that is known.
    pub(super) fn has(&mut self, serial: u32) -> bool {
        !self.is_doubtful && self.is_there() && self.serial() == Some(serial)
    }

    /// How long the snapshot is; 0 where there is none.
    pub(super) fn snapshot_octets(&self) -> u64 {
        fs::metadata(&self.snapshot).map_or(0, |file| file.len())
    }

    /// The zone as it was committed last, from which it serves: what is lost of it is logged. `None` where there is none.
    ///
    /// # Errors
    /// Files that cannot be read, or are not what they should be: nothing is served from them.
    pub(super) fn load(&mut self) -> Result<Option<Zone>, StoreError> {
        let recovered = self.recover()?;
        Ok(recovered.map(|Recovered { zone, damage }| {
            if let Some(damage) = damage {
                let (apex, serial) = (&self.apex, zone.soa().serial);
                log::warn!("zone {apex}: {damage}; serial {serial} is loaded");
            }
            zone
        }))
    }

    /// The same without a word.
    ///
    /// # Errors
    /// Files that cannot be read, or are not what they should be.
    pub(super) fn recover(&mut self) -> Result<Option<Recovered>, StoreError> {
        self.kept = None;
        let Some(octets) = read(&self.snapshot)? else {
            return Ok(None);
        };
        let zone = self.built(&octets)?;
        drop(octets);
        let read = self.read_journal()?;
        let journal = read.as_ref().and_then(|read| read.as_ref().ok());
        let base = zone.soa().serial;
        let changes = journal.and_then(|journal| journal.since(base));
        let newer = changes.map(|changes| apply::apply(&zone, changes));
        let misfit = newer.as_ref().and_then(|newer| newer.as_ref().err());
        let damage = misfit.map(|misfit| format!("its changes do not fit the snapshot: {misfit}"));
        let damage = damage.or_else(|| damage_of(read.as_ref()?));
        // Changes that do not fit are of no use: the snapshot was committed, too.
        let zone = newer.and_then(Result::ok).map_or(zone, |(newer, _)| newer);
        let serial = zone.soa().serial;
        self.kept = Some(kept(serial, journal));
        let damage = damage.map(|damage| format!("{}: {damage}", self.journal.display()));
        Ok(Some(Recovered { zone, damage }))
    }

    fn built(&self, octets: &[u8]) -> Result<Zone, StoreError> {
        let records =
            snapshot::read(octets, self.apex.as_name()).map_err(failed("used", &self.snapshot))?;
        let mut builder = ZoneBuilder::new(self.apex.as_name());
        for record in records {
            let record = record.map_err(failed("used", &self.snapshot))?;
            builder
                .push(record)
                .map_err(failed("used", &self.snapshot))?;
        }
        let built = builder.finish().map_err(failed("used", &self.snapshot))?;
        Ok(built.0)
    }

    /// The serial that would be recovered; costs less than [`Store::load`].
    pub(super) fn serial(&mut self) -> Option<u32> {
        if let Some(kept) = self.kept {
            return Some(kept.serial);
        }
        let mut head = vec![0; snapshot::HEAD_LENGTH_MAX];
        let length = File::open(&self.snapshot).ok()?.read(&mut head).ok()?;
        let base = snapshot::serial(&head[..length], self.apex.as_name()).ok()?;
        let journal = self.read_journal().ok()?.and_then(Result::ok);
        let on = journal
            .as_ref()
            .and_then(|journal| journal.since(base)?.last()?.serials());
        let found = kept(on.map_or(base, |(_, to)| to), journal.as_ref());
        self.kept = Some(found);
        Some(found.serial)
    }

    /// What the journal holds, or why it is none: then it is written anew. `None`: there is no file.
    fn read_journal(&self) -> Result<Option<Result<Journal, JournalError>>, StoreError> {
        let octets = read(&self.journal)?;
        Ok(octets.map(|octets| journal::read(&octets, self.apex.as_name())))
    }

    /// The changes that lead from one serial to another, if the journal has them.
    pub(super) fn changes(&self, from: u32, to: u32) -> Option<Vec<Change>> {
        let octets = read(&self.journal).ok()??;
        let journal = journal::read(&octets, self.apex.as_name()).ok()?;
        journal.between(from, to).map(<[Change]>::to_vec)
    }

    /// The octets of the journal, where its newest change leads to this serial.
    pub(super) fn journal_to(&self, serial: u32) -> Option<Vec<u8>> {
        let mut octets = read(&self.journal).ok()??;
        let journal = journal::read(&octets, self.apex.as_name()).ok()?;
        octets.truncate(journal.length);
        (journal.newest() == Some(serial)).then_some(octets)
    }

    // -------------------------------------------------------------------------------------------- commits

    /// Keeps `new`. `old` is the version before it, if there is one; `changes` lead from it to `new`, where they are
    /// known. Only when this is done `new` is sure to survive.
    ///
    /// # Errors
    /// What went wrong: the version kept before stays, or this one, and the next commit tries everything anew.
    pub(super) fn commit(
        &mut self,
        old: Option<&Zone>,
        new: &Zone,
        changes: Option<&[Change]>,
    ) -> Result<(), StoreError> {
        let state = Arc::clone(&self.state);
        let _right = Store::enter(&state)?;
        self.be_sure();
        if !self.is_there() {
            self.kept = None;
        }
        let difference;
        let changes = match (changes, old) {
            (Some(changes), _) => changes,
            (None, Some(old)) if self.limit > 0 && follows(old, new) => {
                // What the journal has no room for need not be found out.
                difference = Change::between_within(old.records(), new.records(), self.limit);
                difference.as_slice()
            }
            (None, _) => &[],
        };
        let kept = self.serial().and(self.kept);
        let first = changes.first().and_then(Change::serials);
        // What leads to no greater serial would be read as the journal's end, and all behind it would be lost.
        let is_readable = !self.is_doubtful && changes.iter().all(is_step);
        match (kept, first) {
            (Some(kept), Some((from, _))) if kept.serial == from && is_readable => {
                self.append(kept, new, changes)
            }
            _ => self.rewrite_all(new),
        }
    }

    /// Appends the changes that lead to `new`.
    fn append(&mut self, kept: Kept, new: &Zone, changes: &[Change]) -> Result<(), StoreError> {
        let (mut octets, mut checksum, place) = match kept.tail {
            Some(tail) => (Vec::new(), tail.checksum, tail.length),
            None => {
                let (octets, checksum) = journal::header(self.apex.as_name());
                (octets, checksum, 0)
            }
        };
        for change in changes {
            let Some((entry, next)) = journal::entry(change, checksum) else {
                return self.rewrite_all(new);
            };
            match octets.is_empty() {
                // Most versions are one change, which may be long.
                true => octets = entry,
                false => octets.extend(entry),
            }
            checksum = next;
        }
        if octets.len() as u64 > self.limit {
            return self.rewrite_all(new);
        }
        self.kept = None;
        self.is_doubtful = true;
        let length = self.write_journal(&octets, place)?;
        self.is_doubtful = false;
        let tail = Tail { length, checksum };
        self.kept = Some(Kept {
            serial: new.soa().serial,
            tail: Some(tail),
        });
        if length > self.limit
            && let Err(error) = self.shorten(new)
        {
            // The version is kept all the same. The next one is not appended, so that the journal grows no further.
            self.is_doubtful = true;
            log::error!(
                "zone {}: {error}; serial {} is kept in a journal that is longer than its {} octets, further ones when there is room for a new snapshot",
                self.apex,
                new.soa().serial,
                self.limit
            );
        }
        Ok(())
    }

    /// Writes behind the first `place` octets; what stood there was torn.
    fn write_journal(&self, octets: &[u8], place: u64) -> Result<u64, StoreError> {
        let write = || {
            let mut file = self.directory.made(|| {
                OpenOptions::new()
                    .write(true)
                    .create(true)
                    .truncate(false)
                    .open(&self.journal)
            })?;
            file.set_len(place)?;
            file.seek(SeekFrom::Start(place))?;
            file.write_all(octets)?;
            file.sync_data()?;
            if place == 0 {
                self.directory.sync()?;
            }
            Ok(place + octets.len() as u64)
        };
        write().map_err(unable("written", &self.journal))
    }

    /// A new snapshot, then a journal of the newest changes that fill half of what is allowed: whichever of the two is
    /// there after a crash, the same version is recovered.
    fn shorten(&mut self, new: &Zone) -> Result<(), StoreError> {
        self.kept = None;
        self.snapshot_of(new)?.rename(&self.directory)?;
        let journal = self.read_journal()?.and_then(Result::ok);
        let mut start = journal.as_ref().map_or(0, |journal| journal.changes.len());
        let changes = journal.map(|journal| journal.changes).unwrap_or_default();
        let mut length = 0;
        while let Some(change) = start.checked_sub(1).and_then(|at| changes.get(at)) {
            length += change.records().map(octets_of).sum::<u64>();
            if length > self.limit / 2 {
                break;
            }
            start -= 1;
        }
        let (mut octets, mut checksum) = journal::header(self.apex.as_name());
        for change in &changes[start..] {
            let Some((entry, next)) = journal::entry(change, checksum) else {
                break;
            };
            octets.extend(entry);
            checksum = next;
        }
        staged(&octets, &self.journal, &self.directory)?.rename(&self.directory)?;
        let length = octets.len() as u64;
        self.kept = Some(Kept {
            serial: new.soa().serial,
            tail: Some(Tail { length, checksum }),
        });
        Ok(())
    }

    /// Keeps `new` and nothing of what was before.
    pub(super) fn rewrite(&mut self, new: &Zone) -> Result<(), StoreError> {
        let state = Arc::clone(&self.state);
        let _right = Store::enter(&state)?;
        self.be_sure();
        self.rewrite_all(new)
    }

    /// The same, where secondaries may have other versions up to serial `greatest`. That is written down first: else a crash
    /// between the two would leave a version from which changes seem to lead on.
    pub(super) fn begin_anew(&mut self, new: &Zone, greatest: Greatest) -> Result<(), StoreError> {
        let known = self.facts();
        if greatest.is_some() && greatest != known.greatest {
            self.write_facts(&Facts { greatest, ..known })?;
        }
        self.rewrite(new)
    }

    /// Keeps `zone`, these facts, and for secondaries a journal of which the newest change leads to the zone: as
    /// [`Store::shorten`] leaves both. All of it is on the disk beside what was kept before anything of that changes.
    ///
    /// # Errors
    /// What could not be written.
    pub(super) fn restore(
        &mut self,
        zone: &Zone,
        past: Past<'_>,
        facts: &Facts,
    ) -> Result<(), StoreError> {
        let state = Arc::clone(&self.state);
        let _right = Store::enter(&state)?;
        self.be_sure();
        self.kept = None;
        let serial = zone.soa().serial;
        let own;
        let journal = match past {
            Past::Own => {
                own = self.journal_to(serial);
                own.as_deref()
            }
            Past::Given(octets) => Some(octets),
            Past::None => None,
        };
        let is_unseen = facts.greatest.is_some();
        let facts = serde_json::to_vec(facts).map_err(failed("written", &self.facts))?;
        let snapshot = self.snapshot_of(zone)?;
        let journal = journal
            .map(|octets| staged(octets, &self.journal, &self.directory))
            .transpose()?;
        let mut facts = Some(staged(&facts, &self.facts, &self.directory)?);
        // As in Store::begin_anew.
        if let Some(facts) = facts.take_if(|_| is_unseen) {
            facts.rename(&self.directory)?;
        }
        self.replace(snapshot, serial)?;
        if let Some(journal) = journal {
            self.kept = None;
            journal.rename(&self.directory)?;
        }
        facts.map_or(Ok(()), |facts| facts.rename(&self.directory))
    }

    fn rewrite_all(&mut self, new: &Zone) -> Result<(), StoreError> {
        self.kept = None;
        let snapshot = self.snapshot_of(new)?;
        self.replace(snapshot, new.soa().serial)
    }

    /// Puts a snapshot of this serial in its place. The journal goes before the snapshot that it does not belong to comes:
    /// between the two the older snapshot is recovered.
    fn replace(&mut self, snapshot: files::Written, serial: u32) -> Result<(), StoreError> {
        remove(&self.journal)?;
        self.directory
            .sync()
            .map_err(unable("written", &self.journal))?;
        snapshot.rename(&self.directory)?;
        self.is_doubtful = false;
        self.kept = Some(Kept { serial, tail: None });
        Ok(())
    }

    /// Removes all that is kept. The journal goes first: without it the snapshot is recovered, and without that nothing.
    ///
    /// # Errors
    /// What could not be removed: it is recovered still.
    pub(super) fn clear(&mut self) -> Result<(), StoreError> {
        let state = Arc::clone(&self.state);
        let _right = Store::enter(&state)?;
        self.kept = None;
        for file in [&self.journal, &self.snapshot, &self.facts] {
            remove(file)?;
        }
        self.directory
            .sync()
            .map_err(unable("written", self.state.path()))
    }

    /// A snapshot beside the one that counts.
    fn snapshot_of(&self, zone: &Zone) -> Result<files::Written, StoreError> {
        let mut fresh = Fresh::create(&self.snapshot, &self.directory)?;
        let mut octets = Vec::with_capacity(GATHERED + 1_024);
        let apex = self.apex.as_name();
        let mut writer = snapshot::Writer::new(apex, zone.soa().serial, &mut octets);
        for record in zone.records() {
            writer.record(record.as_ref(), &mut octets);
            if octets.len() > GATHERED {
                fresh.write(&octets)?;
                octets.clear();
            }
        }
        writer.finish(&mut octets);
        fresh.write(&octets)?;
        fresh.finish()
    }

    // ---------------------------------------------------------------------------------------------- facts

    /// What is known; nothing where it is not.
    pub(super) fn facts(&self) -> Facts {
        let octets = read(&self.facts).ok().flatten().unwrap_or_default();
        serde_json::from_slice(&octets).unwrap_or_default()
    }

    /// The timers of a secondary, as they were kept.
    pub(super) fn timers(&self) -> Timers {
        Timers::kept(self.refreshed(), self.facts().expires)
    }

    /// When a primary last confirmed the zone: seconds since 1970. Where that is not written down, as after a crash between
    /// the first snapshot and its facts: when the snapshot was written.
    pub(super) fn refreshed(&self) -> u64 {
        match self.facts().refreshed {
            0 => self.written(),
            refreshed => refreshed,
        }
    }

    /// When the snapshot was written: seconds since 1970; 0 where nobody knows.
    fn written(&self) -> u64 {
        let modified = fs::metadata(&self.snapshot).and_then(|file| file.modified());
        modified.map_or(0, clock::unix_of)
    }

    /// # Errors
    /// The facts before stay.
    pub(super) fn write_facts(&self, facts: &Facts) -> Result<(), StoreError> {
        let _right = Store::enter(&self.state)?;
        let octets = serde_json::to_vec(facts).map_err(failed("written", &self.facts))?;
        write_whole(&octets, &self.facts)
    }
}

impl Facts {
    /// Those of a secondary.
    pub(super) fn of(timers: Timers) -> Facts {
        Facts {
            refreshed: timers.refreshed,
            expires: timers.ends,
            ..Facts::default()
        }
    }
}

/// The folder of a zone in a folder of an operator's choice.
pub(super) fn folder_in(folder: &Path, apex: Name<'_>) -> PathBuf {
    folder.join(files::stem(apex))
}

/// Writes a file: beside the one that was there, which stays until all is on the disk.
///
/// # Errors
/// What could not be written.
pub(super) fn write_whole(octets: &[u8], path: &Path) -> Result<(), StoreError> {
    let directory = Directory::new(path.parent().unwrap_or(Path::new("/")));
    staged(octets, path, &directory)?.rename(&directory)
}

/// The same up to the moment when it takes the place of the one that was there.
fn staged(octets: &[u8], path: &Path, folder: &Directory) -> Result<files::Written, StoreError> {
    let mut fresh = Fresh::create(path, folder)?;
    fresh.write(octets)?;
    fresh.finish()
}

/// Where the text of a zone goes in a folder of an operator's choice.
pub(super) fn text_in(folder: &Path, apex: Name<'_>) -> PathBuf {
    folder.join(format!("{}.zone", files::stem(apex)))
}

/// Writes a zone as text, one record a line: beside the file that was there, which stays until all is on the disk. A symbolic
/// link is replaced: who else may write to the folder does not choose what is written to.
///
/// # Errors
/// What could not be written.
pub(super) fn write_text(zone: &Zone, path: &Path, progress: &Progress) -> Result<(), StoreError> {
    write_lines(zone, path, None, progress)
}

/// The same for a file that the configuration names: a symbolic link stays, and what it leads to is written; the mode of what
/// was there stays, and its owner where that is allowed.
///
/// # Errors
/// What could not be written.
pub(super) fn write_through(
    zone: &Zone,
    path: &Path,
    progress: &Progress,
) -> Result<(), StoreError> {
    let path = match path.canonicalize() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return write_lines(zone, path, None, progress);
        }
        found => found.map_err(unable("read", path))?,
    };
    let replaced = fs::metadata(&path).map_err(unable("read", &path))?;
    write_lines(zone, &path, Some(&replaced), progress)
}

fn write_lines(
    zone: &Zone,
    path: &Path,
    replaced: Option<&Metadata>,
    progress: &Progress,
) -> Result<(), StoreError> {
    let directory = Directory::new(path.parent().unwrap_or(Path::new("/")));
    let mut fresh = Fresh::create(path, &directory)?;
    if let Some(replaced) = replaced {
        fresh.resemble(replaced)?;
    }
    let mut text = String::with_capacity(GATHERED + 1_024);
    for record in zone.records() {
        // Nothing can fail when a String is written to.
        let _ = writeln!(text, "{record}");
        if text.len() > GATHERED {
            fresh.write(text.as_bytes())?;
            progress.add(text.len());
            text.clear();
        }
    }
    fresh.write(text.as_bytes())?;
    progress.add(text.len());
    fresh.finish()?.rename(&directory)
}

/// Removes a file, if there is one.
fn remove(path: &Path) -> Result<(), StoreError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(unable("removed", path)(error))
        }
        _ => Ok(()),
    }
}

/// Whether a change from one to the other can be in a journal.
fn follows(old: &Zone, new: &Zone) -> bool {
    serial::is_newer(new.soa().serial, old.soa().serial)
}

/// Whether a journal may have it.
fn is_step(change: &Change) -> bool {
    let serials = change.serials();
    serials.is_some_and(|(from, to)| serial::is_newer(to, from))
}

/// What is wrong with a journal, and which versions are lost by it.
fn damage_of(read: &Result<Journal, JournalError>) -> Option<String> {
    let journal = match read {
        Ok(journal) => journal,
        Err(error) => return Some(error.to_string()),
    };
    let (damage, length) = (journal.damage?, journal.length);
    let behind = match journal.newest() {
        Some(newest) => format!("the changes behind serial {newest}"),
        None => "all changes".to_owned(),
    };
    let lost = journal.lost.map_or_else(String::new, |lost| {
        format!(", up to serial {lost} as far as can be read")
    });
    Some(format!(
        "damaged at octet {length}: {damage}; {behind} are discarded{lost}"
    ))
}

/// A journal that leads elsewhere is begun anew.
fn kept(serial: u32, journal: Option<&Journal>) -> Kept {
    let fits = |journal: &&Journal| journal.changes.is_empty() || journal.newest() == Some(serial);
    let tail = journal.filter(fits).map(|journal| Tail {
        length: journal.length as u64,
        checksum: journal.checksum,
    });
    Kept { serial, tail }
}

/// Octets of a record in the journal.
fn octets_of(record: &zone::record::Record) -> u64 {
    (record.owner.len() + 10 + record.rdata.len()) as u64
}

/// The file's octets; `None` where there is no file.
fn read(path: &Path) -> Result<Option<Vec<u8>>, StoreError> {
    match fs::read(path) {
        Ok(octets) => Ok(Some(octets)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(unable("read", path)(error)),
    }
}

#[cfg(test)]
mod tests;
