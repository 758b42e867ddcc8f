//! One zone as it lives on over reloads and transfers: what serves now, what is kept on disk, what has become of it.
//! Everything here blocks while it reads, builds or writes, and is called from threads that may.

use super::backup::{self, Holding};
use super::mailbox::Mailbox;
use super::placed::placed;
use super::progress::Progress;
use super::read::{self, ReadZone};
use super::room::Room;
use super::settings::ZoneSettings;
use super::status::Outcome;
use super::store::{self, Facts, StoreError};
use super::timers::{Heard, Timers};
use super::unseen::{are_same, step};
use super::work::{Work, lost};
use super::{Line, Stamp, StateDirectory};
use crate::clock::{self, Now};
use arc_swap::ArcSwapOption;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, absolute};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use wire::name::NameBuf;
use zone::transfer::{Change, apply, serial};
use zone::zone::Zone;

/// Outcomes that are remembered: more than are in the queue, for who asks a moment later.
const OUTCOMES: usize = 64;

/// What a zone's task does, in the status.
const LOADING: &str = "loading";

/// Warnings of one zone that are said; `millrace zone check` says all.
const WARNINGS_SAID: usize = 10;

/// One zone.
pub struct Live {
    pub apex: NameBuf,
    /// What is answered from; `None`: not loaded, or expired.
    served: ArcSwapOption<Zone>,
    /// The newest version, served or expired. Beside `work`, so that whoever looks at it does not wait for a load.
    held: ArcSwapOption<Zone>,
    /// Held while the zone is read, built or written.
    work: Mutex<Work>,
    /// Held for moments.
    state: Mutex<State>,
    /// When the zone of a secondary expires, in seconds of [`Now`]; 0: it does not.
    expires: AtomicU64,
    pub progress: Progress,
    pub(super) orders: Mailbox,
    /// It has a task, or had one.
    is_followed: AtomicBool,
}

/// What operators see.
#[derive(Debug, Clone, Default)]
pub(super) struct State {
    /// Of a secondary; seconds since 1970.
    pub(super) timers: Option<Timers>,
    pub(super) is_expired: bool,
    /// The start has left it for later.
    pub(super) is_awaited: bool,
    /// What is done now: "loading", "transferring".
    pub(super) work: Option<&'static str>,
    /// What the last work came to.
    pub(super) said: String,
    pub(super) failed: bool,
    /// How many operators' orders there were.
    pub(super) tickets: u64,
    /// What the last of them came to, the oldest first.
    pub(super) outcomes: VecDeque<Outcome>,
    /// Nothing changes the zone but its expiry.
    pub(super) is_frozen: bool,
    /// Something would have changed it meanwhile.
    pub(super) is_held_back: bool,
    /// It goes to nobody.
    pub(super) is_withheld: bool,
}

/// What a new version came to.
pub(super) enum Installed {
    /// It serves; and what is wrong with its serial, where secondaries do not see it.
    Newer(Arc<Zone>, Option<String>),
    /// Its serial is not newer than that of what is held.
    Older { came: u32, held: u32 },
}

impl Live {
    pub(super) fn new(apex: &NameBuf) -> Live {
        Live {
            apex: apex.clone(),
            served: ArcSwapOption::empty(),
            held: ArcSwapOption::empty(),
            work: Mutex::default(),
            state: Mutex::default(),
            expires: AtomicU64::new(0),
            progress: Progress::default(),
            orders: Mailbox::default(),
            is_followed: AtomicBool::new(false),
        }
    }

    /// What is answered from.
    pub(super) fn served(&self) -> Option<Arc<Zone>> {
        self.served.load_full()
    }

    /// Seconds until it expires, `now` being those of [`Now`]; `None`: it does not, being a primary's.
    pub(super) fn expires_in(&self, now: u64) -> Option<u32> {
        let expires = self.expires.load(Relaxed);
        let left = u32::try_from(expires.saturating_sub(now)).unwrap_or(u32::MAX);
        (expires > 0).then_some(left)
    }

    /// Writes down when the zone expires, by these settings.
    pub(super) fn note_expiry(&self, settings: &ZoneSettings) {
        let timers = self.state().timers.filter(|_| settings.is_secondary());
        let expires = self.served().zip(timers).map(|(zone, timers)| {
            let left = timers
                .expires(zone.soa(), &settings.times)
                .saturating_sub(clock::unix());
            (Now::read().seconds() + left).max(1)
        });
        self.expires.store(expires.unwrap_or(0), Relaxed);
    }

    /// Whether the zone has no task yet, for whoever asks first and gives it one.
    pub(super) fn begin_to_follow(&self) -> bool {
        !self.is_followed.swap(true, Relaxed)
    }

    /// A copy of what operators see.
    pub(super) fn state(&self) -> State {
        lock(&self.state).clone()
    }

    /// The same by a clock that says `now`, seconds since 1970: from now on, see [`Timers::by_clock`].
    pub(super) fn state_by_clock(&self, now: u64) -> State {
        self.change_state(|state| {
            state.timers = state.timers.map(|timers| timers.by_clock(now));
            state.clone()
        })
    }

    pub(super) fn change_state<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        change(&mut lock(&self.state))
    }

    /// A work begins.
    pub(super) fn begin(&self, what: &'static str) {
        self.progress.begin(0);
        self.change_state(|state| state.work = Some(what));
    }

    /// A work has ended, well or not.
    pub(super) fn end(&self, failed: bool, said: String) {
        self.change_state(|state| {
            state.work = None;
            (state.failed, state.said) = (failed, said);
        });
    }

    /// The number of an operator's order, by which its outcome is found.
    pub(super) fn ticket(&self) -> u64 {
        self.change_state(|state| {
            state.tickets += 1;
            state.tickets
        })
    }

    /// An operator's order has ended: what was said last came of it.
    pub(super) fn fulfil(&self, ticket: u64) {
        self.change_state(|state| {
            if state.outcomes.len() == OUTCOMES {
                state.outcomes.pop_front();
            }
            let (said, failed) = (state.said.clone(), state.failed);
            state.outcomes.push_back(Outcome {
                ticket,
                said,
                failed,
            });
        });
    }

    // -------------------------------------------------------------------------------------------- freezing

    /// From now on, until [`Live::thaw`], the zone stays as it is. A load that is under way is waited for.
    pub(super) fn freeze(&self) {
        let _work = lock(&self.work);
        self.change_state(|state| state.is_frozen = true);
    }

    /// Ends that; whether something was held back.
    pub(super) fn thaw(&self) -> bool {
        self.change_state(|state| {
            state.is_frozen = false;
            std::mem::take(&mut state.is_held_back)
        })
    }

    /// Whether the zone is frozen. Whoever asks wants to change it, which is remembered for its thaw.
    pub(super) fn holds_back(&self) -> bool {
        self.change_state(|state| {
            state.is_held_back |= state.is_frozen;
            state.is_frozen
        })
    }

    /// Whether the zone is transferred to nobody, whatever its acl says.
    pub(super) fn is_withheld(&self) -> bool {
        lock(&self.state).is_withheld
    }

    // -------------------------------------------------------------------------------------------- loading

    /// Whether [`Live::load`] would have something to do.
    pub(super) fn needs_load(&self, settings: &ZoneSettings) -> bool {
        self.wants_load(&lock(&self.work), settings)
    }

    fn wants_load(&self, work: &Work, settings: &ZoneSettings) -> bool {
        let is_changed = match (settings.is_secondary(), self.held()) {
            (_, None) => true,
            (true, Some(_)) => false,
            (false, Some(_)) => !is_unchanged(&work.stamps),
        };
        is_changed && !self.holds_back()
    }

    /// Reads the zone: of a primary its file, if that has changed; of a secondary what was kept of it, if it is not there
    /// yet. A zone that cannot be read stays as it was; one that does not fit in `room` is awaited, see
    /// [`Live::is_awaited`]. Lines for the operator, what went wrong first.
    pub(super) fn load(
        &self,
        settings: &ZoneSettings,
        state: &Arc<StateDirectory>,
        room: &Room,
    ) -> Vec<Line> {
        self.guarded(|| self.load_wanted(settings, state, room))
    }

    /// What `load` says; where it panics, that it did: whoever waits for the zone, or for all of them, does so no longer.
    pub(super) fn guarded(&self, load: impl FnOnce() -> Vec<Line>) -> Vec<Line> {
        catch_unwind(AssertUnwindSafe(load)).unwrap_or_else(|_| {
            let reason = "loading it ended in a panic, which is a fault of millrace: see stderr";
            let lines = self.unread(vec![reason.to_owned()]);
            self.end(true, lines[0].text.clone());
            lines
        })
    }

    fn load_wanted(
        &self,
        settings: &ZoneSettings,
        state: &Arc<StateDirectory>,
        room: &Room,
    ) -> Vec<Line> {
        let mut work = lock(&self.work);
        if !self.wants_load(&work, settings) {
            return Vec::new();
        }
        let former = self.state().work;
        self.begin(LOADING);
        let lines = match (settings.is_secondary(), &settings.file) {
            (true, _) => self.load_kept(&mut work, settings, state, room),
            (false, Some(file)) => self.load_file(&mut work, file, settings, (state, room)),
            (false, None) => Some(Vec::new()),
        };
        drop(work);
        let Some(lines) = lines else {
            self.progress.begin(0);
            self.change_state(|state| (state.is_awaited, state.work) = (true, None));
            return Vec::new();
        };
        let Some(first) = lines.first() else {
            // Nothing was there to be read: what its task does, or has done last, is said on.
            self.change_state(|state| {
                if state.work == Some(LOADING) {
                    state.work = former;
                }
            });
            return lines;
        };
        // What went wrong beside it, too: secondaries may not see the new version.
        let is_beside = |line: &&Line| line.is_error && !first.is_error;
        let beside = lines.iter().filter(is_beside);
        let said = beside.fold(first.text.clone(), |said, line| {
            format!("{said}; {}", line.text)
        });
        self.end(first.is_error, said);
        lines
    }

    /// Whether a start has left the zone for later, once: who asks has to load it.
    pub(super) fn is_awaited(&self) -> bool {
        self.change_state(|state| std::mem::take(&mut state.is_awaited))
    }

    /// `None`: there is no room for it now.
    fn load_file(
        &self,
        work: &mut Work,
        file: &Path,
        settings: &ZoneSettings,
        (state, room): (&Arc<StateDirectory>, &Room),
    ) -> Option<Vec<Line>> {
        let ReadZone {
            zone,
            warnings,
            stamps,
        } = match read::read_within(self.apex.as_name(), file, &self.progress, room) {
            Ok(read) => read?,
            Err(errors) => {
                // Without stamps, so that the next reload tries again.
                work.stamps.clear();
                return Some(self.unread(errors));
            }
        };
        let mut lines = vec![Line::info(format!(
            "zone {}: serial {}, {} records loaded",
            self.apex,
            zone.soa().serial,
            zone.records_count()
        ))];
        work.stamps = stamps;
        work.is_unkept = settings.is_kept();
        if let Some(old) = self.held() {
            lines.extend(match settings.is_kept() {
                true => self.keep(work, Some(&old), &zone, settings, state),
                false => self.compare(work, &old, &zone, settings),
            });
        }
        self.serve(Arc::new(zone));
        self.change_state(|state| (state.timers, state.is_expired) = (None, false));
        // Where their records are is looked up in the file, while the zone serves.
        let said = warnings.iter().take(WARNINGS_SAID);
        let told = said.map(|warning| (Some(warning.about()), warning.to_string()));
        let placed = placed(self.apex.as_name(), file, told.collect()).into_iter();
        lines.extend(placed.map(|said| Line::info(format!("zone {}: {said}", self.apex))));
        Some(lines)
    }

    /// Keeps what was read at the start from a file: not before whoever started us has given his privileges away, whose
    /// files these would be.
    pub(super) fn keep_first(
        &self,
        settings: &ZoneSettings,
        state: &Arc<StateDirectory>,
    ) -> Option<Line> {
        let mut work = lock(&self.work);
        let zone = self.held()?;
        self.keep(&mut work, None, &zone, settings, state)
    }

    /// Keeps the zone as it is, for settings that have it kept where those before did not, or kept it elsewhere: no load does,
    /// where the file has not changed, or the zone is made of none any more.
    pub(super) fn keep_on(
        &self,
        settings: &ZoneSettings,
        state: &Arc<StateDirectory>,
    ) -> Option<Line> {
        let mut work = lock(&self.work);
        let zone = self.held().filter(|_| settings.is_kept())?;
        if !settings.is_secondary() {
            work.is_unkept = true;
            return self.keep(&mut work, None, &zone, settings, state);
        }
        // What another process keeps the zone in meanwhile: see Live::catch_up.
        if state.is_others() {
            return None;
        }
        let timers = self.state().timers?;
        let is_there = work.store(self, settings, state).serial() == Some(zone.soa().serial);
        let kept = match is_there {
            true => Ok(()),
            false => work.replace(self, (None, &zone), None, settings, state).1,
        };
        let kept = kept.and_then(|()| work.write_facts(self, Facts::of(timers), settings, state));
        let error = kept.err()?;
        Some(Line::error(format!(
            "zone {}: {error}: after a restart it is asked from its primaries anew",
            self.apex
        )))
    }

    fn keep(
        &self,
        work: &mut Work,
        old: Option<&Zone>,
        zone: &Zone,
        settings: &ZoneSettings,
        state: &Arc<StateDirectory>,
    ) -> Option<Line> {
        // What another process keeps the zone in meanwhile: see Live::catch_up.
        if !work.is_unkept || state.is_others() {
            return None;
        }
        work.is_unkept = false;
        let said = work.keep_file(self, old, zone, settings, state);
        (!said.is_empty()).then(|| Line::error(format!("zone {}: {}", self.apex, said.join("; "))))
    }

    /// What is to be said of a version that is not kept, where somebody may have the one before.
    fn compare(
        &self,
        work: &mut Work,
        old: &Zone,
        zone: &Zone,
        settings: &ZoneSettings,
    ) -> Option<Line> {
        let serials = (old.soa().serial, zone.soa().serial);
        let has_secondaries = settings.may_have_secondaries();
        let is_same = || has_secondaries && are_same(old, zone);
        let step = step(&mut work.greatest, serials, is_same);
        let said = step.of_file().filter(|_| has_secondaries)?;
        Some(Line::error(format!("zone {}: {said}", self.apex)))
    }

    /// What is said where the zone cannot be read.
    fn unread(&self, errors: Vec<String>) -> Vec<Line> {
        let outcome = match self.served() {
            Some(old) => format!("serial {} serves on", old.soa().serial),
            None => "answered with SERVFAIL".to_owned(),
        };
        let line = |error| Line::error(format!("zone {}: {error}; {outcome}", self.apex));
        errors.into_iter().map(line).collect()
    }

    fn load_kept(
        &self,
        work: &mut Work,
        settings: &ZoneSettings,
        state: &Arc<StateDirectory>,
        room: &Room,
    ) -> Option<Vec<Line>> {
        let store = work.store(self, settings, state);
        if !room.holds_octets(store.snapshot_octets()) {
            return None;
        }
        let (zone, timers) = match store.load() {
            Ok(Some(zone)) => (zone, store.timers()),
            Ok(None) => return self.load_seed(settings, room),
            Err(error) => {
                let line = format!("zone {}: {error}; asked from its primaries anew", self.apex);
                return Some(vec![Line::error(line)]);
            }
        };
        Some(vec![self.take_up(settings, Arc::new(zone), timers)])
    }

    /// A secondary that never was one may begin with a file of a former server's.
    fn load_seed(&self, settings: &ZoneSettings, room: &Room) -> Option<Vec<Line>> {
        let Some(file) = settings.file.as_ref().filter(|file| file.exists()) else {
            return Some(Vec::new());
        };
        let read = match read::read_within(self.apex.as_name(), file, &self.progress, room) {
            Ok(read) => read?,
            Err(errors) => return Some(self.unread(errors)),
        };
        let modified = read.stamps.first().and_then(|stamp| stamp.modified);
        let refreshed = modified.map_or(0, clock::unix_of);
        Some(vec![self.take_up(
            settings,
            Arc::new(read.zone),
            Timers::new(refreshed),
        )])
    }

    /// A secondary's zone of a former life serves, unless it has expired meanwhile.
    fn take_up(&self, settings: &ZoneSettings, zone: Arc<Zone>, timers: Timers) -> Line {
        let soa = zone.soa();
        let now = clock::unix();
        let timers = timers.by_clock(now);
        let is_expired = now >= timers.expires(soa, &settings.times);
        let records = zone.records_count();
        self.held.store(Some(zone));
        self.served.store(self.held().filter(|_| !is_expired));
        self.change_state(|state| {
            (state.timers, state.is_expired) = (Some(timers), is_expired);
        });
        self.note_expiry(settings);
        let expired = if is_expired {
            "; it has expired, and is answered with SERVFAIL until a primary confirms it or sends another version"
        } else {
            ""
        };
        Line {
            is_error: is_expired,
            text: format!(
                "zone {}: serial {}, {records} records loaded as they were kept{expired}",
                self.apex, soa.serial
            ),
        }
    }

    /// This process may write now, which another one did until then: what that one kept last serves where it is newer,
    /// else what is held is kept. Lines for the operator.
    pub(super) fn catch_up(
        &self,
        settings: &ZoneSettings,
        state: &Arc<StateDirectory>,
    ) -> Option<Line> {
        if !settings.is_kept() {
            return None;
        }
        let mut work = lock(&self.work);
        let held = self.held();
        let store = work.store(self, settings, state);
        store.forget();
        let greatest = store.facts().greatest;
        work.greatest = work.greatest.or(greatest);
        if !settings.is_secondary() {
            return self.keep(&mut work, None, held.as_deref()?, settings, state);
        }
        let store = work.store(self, settings, state);
        let (own, kept) = (held.as_ref().map(|zone| zone.soa().serial), store.serial());
        let is_newer = kept.is_some_and(|kept| own.is_none_or(|own| serial::is_newer(kept, own)));
        let written = match &held {
            _ if is_newer => {
                let (zone, timers) = (store.load().ok()??, store.timers());
                return Some(self.take_up(settings, Arc::new(zone), timers));
            }
            Some(held) if own != kept => work.replace(self, (None, held), None, settings, state).1,
            _ => return None,
        };
        let error = written.err()?;
        Some(Line::error(format!("zone {}: {error}", self.apex)))
    }

    // ---------------------------------------------------------------------------------------- new versions

    /// The newest version, served or expired.
    pub(super) fn held(&self) -> Option<Arc<Zone>> {
        self.held.load_full()
    }

    /// Takes a whole zone that a primary sent. `forced`: even where its serial is not newer.
    ///
    /// The second value: why it will not survive a restart; it serves all the same.
    pub(super) fn install(
        &self,
        zone: Zone,
        forced: bool,
        settings: &ZoneSettings,
        state: &Arc<StateDirectory>,
    ) -> (Installed, Option<String>) {
        let mut work = lock(&self.work);
        let old = self.held();
        let came = zone.soa().serial;
        let is_newer = |old: &Arc<Zone>| serial::is_newer(came, old.soa().serial);
        if let Some(old) = old.as_ref().filter(|old| !forced && !is_newer(old)) {
            let held = old.soa().serial;
            return (Installed::Older { came, held }, None);
        }
        self.take_over(&mut work, (old, zone), None, settings, state)
    }

    /// Carries out changes that a primary sent.
    ///
    /// # Errors
    /// They do not fit: nothing has changed.
    pub(super) fn install_changes(
        &self,
        changes: &[Change],
        settings: &ZoneSettings,
        state: &Arc<StateDirectory>,
    ) -> Result<(Installed, Option<String>), String> {
        let mut work = lock(&self.work);
        let old = self.held().ok_or("changes of a zone that is not there")?;
        let (zone, _) = apply::apply(&old, changes).map_err(|error| error.to_string())?;
        let versions = (Some(old), zone);
        Ok(self.take_over(&mut work, versions, Some(changes), settings, state))
    }

    /// A version that a primary sent is kept, and serves in place of the one before.
    fn take_over(
        &self,
        work: &mut Work,
        (old, zone): (Option<Arc<Zone>>, Zone),
        changes: Option<&[Change]>,
        settings: &ZoneSettings,
        state: &Arc<StateDirectory>,
    ) -> (Installed, Option<String>) {
        let versions = (old.as_deref(), &zone);
        let (step, kept) = work.replace(self, versions, changes, settings, state);
        let lost = lost(kept, work.store(self, settings, state), settings);
        let has_secondaries = old.is_some() && settings.may_have_secondaries();
        let warning = step.warning().filter(|_| has_secondaries);
        let zone = Arc::new(zone);
        self.serve(Arc::clone(&zone));
        (Installed::Newer(zone, warning), lost)
    }

    fn serve(&self, zone: Arc<Zone>) {
        self.held.store(Some(Arc::clone(&zone)));
        self.served.store(Some(zone));
    }

    /// A primary has confirmed the zone now: written down, and an expired one serves again. Why it could not be written.
    pub(super) fn confirm(
        &self,
        heard: Heard,
        settings: &ZoneSettings,
        state: &Arc<StateDirectory>,
    ) -> Option<String> {
        let now = clock::unix();
        let mut work = lock(&self.work);
        self.served.store(self.held());
        let soa = self.held().map(|zone| zone.soa());
        let expires = self.change_state(|state| {
            let timers = state.timers.get_or_insert_with(|| Timers::new(now));
            timers.confirmed(now, heard, soa, &settings.times);
            state.is_expired = false;
            timers.ends
        });
        self.note_expiry(settings);
        let facts = Facts {
            refreshed: now,
            expires,
            ..Facts::default()
        };
        let written = work.write_facts(self, facts, settings, state);
        written.err().map(|error| error.to_string())
    }

    /// Forgets a secondary's zone, and what is kept of it: it is as if it never had been there.
    ///
    /// # Errors
    /// What could not be removed: the zone serves on.
    pub(super) fn purge(
        &self,
        settings: &ZoneSettings,
        state: &Arc<StateDirectory>,
    ) -> Result<(), StoreError> {
        let mut work = lock(&self.work);
        work.store(self, settings, state).clear()?;
        if let Some(held) = self.held() {
            // Secondaries have not forgotten it: what comes now may be another version of its serial.
            let serial = held.soa().serial;
            step(&mut work.greatest, (serial, serial), || false);
        }
        self.served.store(None);
        self.held.store(None);
        self.change_state(|state| {
            (state.timers, state.is_expired) = (Some(Timers::purged(clock::unix())), false);
        });
        self.note_expiry(settings);
        Ok(())
    }

    // -------------------------------------------------------------------------------------------- backups

    /// What a backup holds of the zone, all of it of one moment. `None`: the zone is not there.
    pub(super) fn holding(
        &self,
        settings: &ZoneSettings,
        state: &Arc<StateDirectory>,
    ) -> Option<Holding> {
        let mut work = lock(&self.work);
        let zone = self.held()?;
        let store = work.store(self, settings, state);
        Some(Holding {
            journal: store.journal_to(zone.soa().serial),
            timers: self.state().timers.filter(|_| settings.is_secondary()),
            zone: Some(zone),
        })
    }

    /// Takes what a backup held, which fits together. The records that it does not hold are those that are here; so is the
    /// journal, where its newest change leads to the serial that is restored: else there is none, nor where secondaries do not see
    /// that serial. A warning for the operator, where there is one.
    ///
    /// # Errors
    /// Why not: what is here serves on.
    pub(super) fn put_back(
        &self,
        back: &Holding,
        settings: &ZoneSettings,
        state: &Arc<StateDirectory>,
    ) -> Result<Option<String>, String> {
        let mut work = lock(&self.work);
        let own = back.zone.clone().or_else(|| self.held());
        let zone = own.ok_or("it is not loaded: only +zonefile can restore it")?;
        match (settings.is_secondary(), &settings.file) {
            (true, _) => self.put_back_kept(&mut work, zone, back, settings, state),
            (false, Some(file)) => {
                let past = work.past_of(self, &zone, back, settings, state);
                let left_out = past.left_out(back);
                if back.zone.is_some() {
                    self.put_back_file(&mut work, &zone, file, settings)?;
                }
                let kept = work.put_back(self, &zone, past, settings, state);
                let lost = |error: StoreError| {
                    format!("there is no journal, secondaries get whole zones: {error}")
                };
                Ok(kept.err().map(lost).or(left_out))
            }
            (false, None) => Err("it has no file= to be restored to".to_owned()),
        }
    }

    /// A secondary's zone and timers. Without timers those that are here stay; where there are none by which the zone would
    /// serve, it is as if a primary had confirmed it now.
    fn put_back_kept(
        &self,
        work: &mut Work,
        zone: Arc<Zone>,
        back: &Holding,
        settings: &ZoneSettings,
        state: &Arc<StateDirectory>,
    ) -> Result<Option<String>, String> {
        let now = clock::unix();
        let is_good = |timers: &Timers| timers.expires(zone.soa(), &settings.times) > now;
        let own = || self.state().timers.filter(is_good);
        let timers = match back.timers {
            Some(timers) if is_good(&timers) => timers,
            Some(_) => {
                let reason =
                    "by its timers it has expired since: +notimers restores it as confirmed now";
                return Err(reason.to_owned());
            }
            None => own().unwrap_or_else(|| Timers::new(now)),
        };
        let past = work.past_of(self, &zone, back, settings, state);
        let left_out = past.left_out(back);
        let facts = Facts::of(timers);
        let written = match back.zone.is_some() || back.journal.is_some() {
            true => work.restore(self, &zone, past, facts, settings, state),
            false => work.write_facts(self, facts, settings, state),
        };
        written.map_err(backup::unwritten)?;
        self.take_up(settings, zone, timers);
        Ok(left_out)
    }

    /// The file that a primary is made of.
    fn put_back_file(
        &self,
        work: &mut Work,
        zone: &Arc<Zone>,
        file: &Path,
        settings: &ZoneSettings,
    ) -> Result<(), String> {
        let path = absolute(file).map_err(|error| format!("{}: {error}", file.display()))?;
        // What was read of the backup is no part of what is written.
        self.progress.begin(0);
        store::write_through(zone, &path, &self.progress).map_err(backup::unwritten)?;
        work.stamps = Stamp::of(file).into_iter().collect();
        work.is_unkept = settings.is_kept();
        self.serve(Arc::clone(zone));
        self.change_state(|state| (state.timers, state.is_expired) = (None, false));
        Ok(())
    }

    /// The zone is no longer to be believed.
    pub(super) fn expire(&self) {
        self.served.store(None);
        self.change_state(|state| state.is_expired = true);
    }
}

fn is_unchanged(stamps: &[Stamp]) -> bool {
    let is_as_it_was = |stamp: &Stamp| Stamp::of(&stamp.path).as_ref() == Some(stamp);
    !stamps.is_empty() && stamps.iter().all(is_as_it_was)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
