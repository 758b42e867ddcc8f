//! One task per zone: it waits for the zone's times (RFC 1034 §4.3.5) and for orders, asks primaries, tells secondaries.

use super::ask::{self, AskError, Has, Patience, Received, Within};
use super::keeper::Shared;
use super::live::{Installed, Live};
use super::load::SAY_AFTER;
use super::order::{Letter, Order};
use super::room::Room;
use super::settings::{Peer, TimeBounds, ZoneSettings};
use super::tell::{self, Version};
use super::timers::{Heard, Timers, longer};
use super::{BackupOrder, Line, StateDirectory, backup, flush};
use crate::clock;
use crate::log;
use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::{Instant, sleep, sleep_until};
use zone::zone::{SoaTimes, ZoneBuilder};

/// How long a task sleeps before it looks at the system's clock again.
const LOOK_AGAIN: Duration = Duration::from_secs(60);

/// Orders that are looked at while primaries are asked, and obeyed behind that; more wait in the queue.
const PUT_OFF: usize = 16;

/// What a primary that was asked has, and for how long: see [`Heard::expires_in`].
enum Word {
    /// A newer version, which has come.
    Came(String, Option<u32>),
    /// A newer version, of this serial, which has not come, and why.
    Missed(u32, AskError),
    /// The version that is here.
    Same(String, Option<u32>),
}

/// What the task of one zone knows.
pub(super) struct Follower {
    live: Arc<Live>,
    /// Orders that came while primaries were asked, the oldest first.
    put_off: VecDeque<Box<Letter>>,
    settings: Arc<ZoneSettings>,
    state: Arc<StateDirectory>,
    shared: Arc<Shared>,
    telling: JoinSet<()>,
    /// The serial that secondaries were told last.
    told: Option<u32>,
    /// Until when they were not to be told of it.
    tell_from: Instant,
    /// What [`Shared::publish`] said last.
    wanted: u64,
    /// Primaries that said nothing when they were asked last.
    silent: Vec<SocketAddr>,
}

impl Follower {
    /// The task's of a zone, which has not begun.
    pub(super) fn new(
        live: &Arc<Live>,
        (settings, state): (Arc<ZoneSettings>, Arc<StateDirectory>),
        shared: &Arc<Shared>,
    ) -> Box<Follower> {
        Box::new(Follower {
            live: Arc::clone(live),
            put_off: VecDeque::new(),
            settings,
            state,
            shared: Arc::clone(shared),
            telling: JoinSet::new(),
            told: None,
            tell_from: Instant::now(),
            wanted: 0,
            silent: Vec::new(),
        })
    }

    pub(super) async fn follow(mut self: Box<Self>) {
        if self.settings.is_secondary() {
            let known = Timers::new(0);
            self.live
                .change_state(|state| *state.timers.get_or_insert(known));
        }
        // What is to be done is in boxes of its own: a task takes as much memory as the largest thing that it ever waits for, and most
        // of the thousands wait for nothing but time and orders.
        Box::pin(self.begin()).await;
        loop {
            let wake = self.wake();
            tokio::select! {
                letter = self.next_letter() => Box::pin(self.fulfil(*letter)).await,
                () = moment(wake) => Box::pin(self.tick()).await,
            }
        }
    }

    async fn begin(&mut self) {
        self.load_first().await;
        self.keep_first().await;
        self.tell();
    }

    async fn next_letter(&mut self) -> Box<Letter> {
        match self.put_off.pop_front() {
            Some(letter) => letter,
            None => self.live.orders.take().await,
        }
    }

    /// Loads what the start has left for later, and says how far that has come.
    async fn load_first(&mut self) {
        if !self.live.is_awaited() {
            return;
        }
        let shared = Arc::clone(&self.shared);
        // The semaphore is never closed.
        let _place = shared.loading.acquire().await;
        let (live, settings, state) = self.shares();
        let mut load = spawn_blocking(move || live.load(&settings, &state, &Room::WHOLE));
        let lines = loop {
            tokio::select! {
                lines = &mut load => break lines.unwrap_or_default(),
                () = sleep(SAY_AFTER) => {
                    let (done, total) = self.live.progress.read();
                    let (done, total) = (done / 1_000_000, total / 1_000_000);
                    log::info!("zone {}: loading, {done} of {total} MB read", self.live.apex);
                }
            }
        };
        lines.iter().for_each(Line::log);
        self.publish();
    }

    async fn keep_first(&self) {
        // Most zones: thousands of them need no thread to find that out.
        if !self.settings.is_kept() {
            return;
        }
        // The semaphore is never closed.
        let _place = self.shared.keeping.acquire().await;
        let (live, settings, state) = self.shares();
        let line = spawn_blocking(move || live.keep_first(&settings, &state)).await;
        if let Ok(Some(line)) = line {
            line.log();
        }
    }

    async fn keep_on(&self) {
        let (live, settings, state) = self.shares();
        let line = spawn_blocking(move || live.keep_on(&settings, &state)).await;
        if let Ok(Some(line)) = line {
            line.log();
        }
    }

    async fn catch_up(&mut self) {
        let (live, settings, state) = self.shares();
        let line = spawn_blocking(move || live.catch_up(&settings, &state)).await;
        if let Ok(Some(line)) = line {
            line.log();
        }
        self.publish();
        self.tell();
    }

    /// When the zone's times want something, in seconds since 1970.
    fn wake(&self) -> Option<u64> {
        // An order may have come since a clock went back: what is waited for is not when that is again where it was.
        let state = self.live.state_by_clock(clock::unix());
        let timers = state.timers?;
        // A frozen zone is not asked for; it expires all the same.
        let due = (!state.is_frozen).then(|| self.turn(timers));
        due.into_iter().chain(self.expires()).min()
    }

    /// When to ask next for the zone, in seconds since 1970.
    fn turn(&self, timers: Timers) -> u64 {
        let soa = self.live.held().map(|zone| zone.soa());
        timers.turn(self.live.apex.as_name(), soa, &self.settings.times)
    }

    /// When the zone expires, in seconds since 1970; `None`: it has, or cannot.
    fn expires(&self) -> Option<u64> {
        self.moment_of_life(Timers::expires)
    }

    /// When the zone is to be confirmed at the latest, so that it does not expire; the same.
    fn in_time(&self) -> Option<u64> {
        self.moment_of_life(Timers::in_time)
    }

    fn moment_of_life(&self, of: fn(&Timers, SoaTimes, &TimeBounds) -> u64) -> Option<u64> {
        let state = self.live.state();
        let soa = self.live.held()?.soa();
        let moment = of(&state.timers?, soa, &self.settings.times);
        (!state.is_expired).then_some(moment)
    }

    async fn tick(&mut self) {
        let now = clock::unix();
        let state = self.live.state_by_clock(now);
        let Some(timers) = state.timers else { return };
        self.expire_in_time();
        // A clock that was set, or stood still in a suspended host, has moved it.
        self.live.note_expiry(&self.settings);
        if !state.is_frozen && self.turn(timers) <= now {
            self.refresh(None, false).await;
        }
    }

    /// Where the zone's time is over, it serves no more.
    fn expire_in_time(&mut self) {
        let now = clock::unix();
        if self.expires().is_some_and(|expires| expires <= now) {
            self.live.expire();
            self.publish();
            log::error!(
                "zone {} has expired, and is answered with SERVFAIL until a primary confirms it or sends another version",
                self.live.apex
            );
        }
    }

    /// Waits for what a primary says, which may take an hour where it is a transfer `from` it: another one confirms the zone
    /// meanwhile, or it expires, where its time comes; and an order that makes it useless ends the waiting.
    async fn minding<T>(
        &mut self,
        from: Option<&Peer>,
        asking: impl Future<Output = Result<T, AskError>>,
    ) -> Result<T, AskError> {
        let mut asking = pin!(asking);
        let live = Arc::clone(&self.live);
        let mut asked_others = None;
        loop {
            let (expires, has_room) = (self.expires(), self.put_off.len() < PUT_OFF);
            let in_time = from.and_then(|_| self.in_time());
            tokio::select! {
                biased;
                said = &mut asking => return said,
                () = moment(in_time), if asked_others != expires => {
                    asked_others = expires;
                    self.ask_others(from).await;
                }
                () = moment(expires) => self.expire_in_time(),
                letter = live.orders.take(), if has_room => {
                    let is_useless = self.makes_useless(&letter.order);
                    self.obey_later(letter);
                    if is_useless {
                        return Err(AskError::Overtaken);
                    }
                }
            }
        }
    }

    /// Asks the primaries, without the one that a transfer is coming `from`, whether the zone is as it is here, until one of them
    /// confirms it.
    async fn ask_others(&mut self, from: Option<&Peer>) {
        let Some(own) = self.live.held().map(|zone| zone.soa().serial) else {
            return;
        };
        let (settings, from) = (Arc::clone(&self.settings), from.map(|peer| peer.address));
        let others = settings.primaries.iter();
        for other in others.filter(|other| Some(other.address) != from) {
            let has = ask::serial(other, self.live.apex.as_name(), Patience::SHORT).await;
            if let Ok(Word::Same(_, expires_in)) = has.and_then(|has| compared(other, has, own)) {
                let came = false;
                return self.confirm(Heard { came, expires_in }).await;
            }
        }
    }

    /// Whether what primaries say now is not wanted any more when this has been obeyed.
    fn makes_useless(&self, order: &Order) -> bool {
        match order {
            Order::Settings(settings, _) => settings.primaries != self.settings.primaries,
            order => matches!(order, Order::Purge),
        }
    }

    fn obey_later(&mut self, letter: Box<Letter>) {
        // A primary is asked once for all that it has told.
        if let Order::Notified { from, .. } = letter.order {
            let is_its_own = |other: &Letter| matches!(other.order, Order::Notified { from: other, .. } if other == from);
            self.put_off.retain(|other| !is_its_own(other));
        }
        self.put_off.push_back(letter);
    }

    async fn fulfil(&mut self, letter: Letter) {
        self.obey(letter.order).await;
        if let Some(ticket) = letter.ticket {
            self.live.fulfil(ticket);
        }
    }

    async fn obey(&mut self, order: Order) {
        match order {
            Order::Settings(settings, state) => self.change(settings, state).await,
            Order::MayWrite => self.catch_up().await,
            Order::Notified { from, serial } => {
                let held = self.live.held().map(|zone| zone.soa().serial);
                // RFC 1996 §3.11 would ask for the SOA record even then; whoever says the serial has said it.
                let is_news = serial.is_none() || held != serial || self.live.state().is_expired;
                if is_news && !self.live.holds_back() {
                    self.refresh(Some(from), false).await;
                }
            }
            Order::Notify => self.tell_again(),
            Order::Freeze => self.freeze().await,
            Order::Thaw => self.thaw().await,
            Order::Withhold(is_withheld) => self.withhold(is_withheld),
            Order::Flush(to) => self.flush(to).await,
            Order::Backup(order) => self.backup(order).await,
            Order::Reload
            | Order::Refresh
            | Order::Retransfer
            | Order::Purge
            | Order::Restore(_) => self.act(&order).await,
        }
    }

    /// Obeys those orders that not every zone can.
    async fn act(&mut self, order: &Order) {
        let is_secondary = self.settings.is_secondary();
        let reason = match order {
            Order::Refresh if !is_secondary => {
                "it has no primaries: there is nobody to ask; `millrace zone reload` reads its file"
            }
            Order::Retransfer if !is_secondary => {
                "it has no primaries: there is nowhere to transfer it from"
            }
            Order::Purge if !is_secondary => {
                "it has no primaries: nobody would send it again; what serves is its file"
            }
            Order::Purge => return self.purge().await,
            _ if self.live.holds_back() => {
                let apex = &self.live.apex;
                let said = format!("it is frozen: `millrace zone thaw {apex}` comes first");
                return self.live.end(true, said);
            }
            Order::Restore(order) => return self.restore(order.clone()).await,
            Order::Reload if !is_secondary => return self.reload().await,
            _ => return self.refresh(None, matches!(order, Order::Retransfer)).await,
        };
        self.live.end(true, reason.to_owned());
    }

    async fn change(&mut self, settings: Arc<ZoneSettings>, state: Arc<StateDirectory>) {
        // The zone of a primary that becomes a secondary is as good as if it had been confirmed now.
        let refreshed = self.live.held().map_or(0, |_| clock::unix());
        self.live
            .change_state(|live| match settings.is_secondary() {
                true => {
                    live.timers.get_or_insert(Timers::new(refreshed));
                }
                false => live.timers = None,
            });
        self.live.note_expiry(&settings);
        if self.settings.notify != settings.notify {
            self.told = None;
        }
        let has_others = settings.is_secondary() && self.settings.primaries != settings.primaries;
        let is_as_before = self.settings.is_kept() == settings.is_kept()
            && self.settings.is_secondary() == settings.is_secondary()
            && Arc::ptr_eq(&self.state, &state);
        if has_others {
            self.silent.clear();
        }
        (self.settings, self.state) = (settings, state);
        if !is_as_before {
            self.keep_on().await;
        }
        self.tell();
        // Not when the pauses behind failures of the former ones are over.
        if has_others && !self.live.holds_back() {
            self.refresh(None, false).await;
        }
    }

    // -------------------------------------------------------------------------------------------- secondaries

    /// Has the zone serve as it is now.
    fn publish(&mut self) {
        self.wanted = self.shared.publish();
    }

    /// Tells secondaries of a version that they were not told of, once it serves and the delay is over.
    fn tell(&mut self) {
        self.tell_within(self.settings.notify_delay);
    }

    fn tell_within(&mut self, delay: Duration) {
        let Some(zone) = self.live.served() else {
            return;
        };
        let serial = zone.soa().serial;
        if self.told != Some(serial) {
            self.told = Some(serial);
            self.tell_from = tell::from(self.tell_from, Instant::now(), delay);
            let version = Version::new(self.shared.met.subscribe(), self.wanted, self.tell_from);
            let (peers, doors) = (&self.settings.notify, &self.shared.telling);
            tell::all(&mut self.telling, peers, (&zone, &version), doors);
        }
    }

    fn tell_again(&mut self) {
        self.told = None;
        // A reload that is under way may have read a version that does not serve yet.
        self.publish();
        // Whoever gives this order has waited already.
        self.tell_within(Duration::ZERO);
        let (failed, said) = match (self.live.served(), self.settings.notify.len()) {
            (_, 0) => (true, "notify: nobody is to be told".to_owned()),
            (None, _) => (
                true,
                "it is not loaded: there is nothing to tell".to_owned(),
            ),
            (Some(zone), count) => {
                let serial = zone.soa().serial;
                let whom = match count {
                    1 => "1 server is".to_owned(),
                    _ => format!("{count} servers are"),
                };
                (false, format!("{whom} told of serial {serial}"))
            }
        };
        self.live.end(failed, said);
    }

    /// Reads the file of a primary, if it has changed.
    async fn reload(&mut self) {
        let shared = Arc::clone(&self.shared);
        // As at the start: cores are few, queries need them too, and what is read is in memory twice. The semaphore is never closed.
        let _place = shared.loading.acquire().await;
        let (live, settings, state) = self.shares();
        let lines = spawn_blocking(move || {
            if !live.needs_load(&settings) {
                live.end(false, "the file has not changed".to_owned());
            }
            live.load(&settings, &state, &Room::WHOLE)
        });
        let lines: Vec<Line> = lines.await.unwrap_or_default();
        lines.iter().for_each(Line::log);
        self.publish();
        self.tell();
    }

    // ------------------------------------------------------------------------------- what operators do with a zone

    async fn freeze(&self) {
        let live = Arc::clone(&self.live);
        // A load that is under way elsewhere may take its time.
        let frozen = spawn_blocking(move || live.freeze()).await;
        let said = match frozen {
            Ok(()) => "it is frozen",
            Err(_) => "freezing it failed: see the log",
        };
        self.live.end(frozen.is_err(), said.to_owned());
    }

    /// Does what was held back, once.
    async fn thaw(&mut self) {
        match (self.live.thaw(), self.settings.is_secondary()) {
            (true, true) => self.refresh(None, false).await,
            (true, false) => self.reload().await,
            (false, _) => {
                let said = "it is not frozen; nothing was held back".to_owned();
                self.live.end(false, said);
            }
        }
    }

    fn withhold(&self, is_withheld: bool) {
        self.live
            .change_state(|state| state.is_withheld = is_withheld);
        let said = match is_withheld {
            true => "it is transferred to nobody",
            false => "it is transferred to whom its acl allows it",
        };
        self.live.end(false, said.to_owned());
    }

    async fn flush(&self, to: Option<PathBuf>) {
        self.live.begin("writing");
        let (live, settings, state) = self.shares();
        let flush = move || flush::flush(&live, to.as_deref(), &settings, &state);
        let written = spawn_blocking(flush).await;
        let failed = "writing it failed: see the log";
        self.acted(written.unwrap_or_else(|_| Err(failed.to_owned())));
    }

    async fn purge(&mut self) {
        let (live, settings, state) = self.shares();
        let purged = spawn_blocking(move || live.purge(&settings, &state)).await;
        let outcome = match purged {
            Ok(Ok(())) => {
                self.told = None;
                self.publish();
                // The thaw of a frozen zone asks who has it, and says what came of it.
                self.live.holds_back();
                Ok("purged; answered with SERVFAIL until a primary has sent it".to_owned())
            }
            Ok(Err(error)) => Err(format!("it is not purged, and serves on: {error}")),
            Err(_) => Err("purging it failed: see the log".to_owned()),
        };
        self.acted(outcome);
    }

    async fn backup(&self, order: BackupOrder) {
        self.live.begin("copying");
        let (live, settings, state) = self.shares();
        let copy = move || backup::backup(&live, &order, &settings, &state);
        let copied = spawn_blocking(copy).await;
        let failed = "copying it failed: see the log";
        self.acted(copied.unwrap_or_else(|_| Err(failed.to_owned())));
    }

    async fn restore(&mut self, order: BackupOrder) {
        self.live.begin("restoring");
        let (live, settings, state) = self.shares();
        let restore = move || backup::restore(&live, &order, &settings, &state);
        let restored = spawn_blocking(restore).await;
        let failed = "restoring it failed: see the log";
        let outcome = restored.unwrap_or_else(|_| Err(failed.to_owned()));
        if outcome.is_ok() {
            self.publish();
            self.tell();
        }
        self.acted(outcome);
    }

    /// What an operator had done has ended so.
    fn acted(&self, outcome: Result<String, String>) {
        let apex = &self.live.apex;
        match &outcome {
            Ok(said) => log::info!("zone {apex}: {said}"),
            Err(reason) => log::error!("zone {apex}: {reason}"),
        }
        let failed = outcome.is_err();
        let (Ok(said) | Err(said)) = outcome;
        self.live.end(failed, said);
    }

    fn shares(&self) -> (Arc<Live>, Arc<ZoneSettings>, Arc<StateDirectory>) {
        (
            Arc::clone(&self.live),
            Arc::clone(&self.settings),
            Arc::clone(&self.state),
        )
    }

    // ---------------------------------------------------------------------------------------------- primaries

    /// Asks the primaries, `preferred` first and those last that were silent the last time, until one has sent a newer version.
    /// Whoever has the zone as it is here confirms it. `forced`: the whole zone, whatever its serial.
    ///
    /// RFC 1034 §4.3.5: where a zone has expired, the secondary "must assume that its copy of the zone is obsolete and discard it".
    /// So where nobody has that version or sends a newer one, whoever has an older one is asked once more, for that.
    async fn refresh(&mut self, preferred: Option<IpAddr>, forced: bool) {
        self.live.begin("asking primaries");
        let mut reasons = Vec::new();
        let (mut confirmed, mut is_missed) = (None::<(String, Option<u32>)>, false);
        let primaries = self.in_turn(preferred).into_iter();
        let mut turns: VecDeque<_> = primaries.map(|peer| (peer, forced)).collect();
        while let Some((peer, whole)) = turns.pop_front() {
            if confirmed.is_some() && whole && !forced {
                continue;
            }
            // Whoever was silent is not waited for again as long, where another one has confirmed the zone.
            let patience = match confirmed.is_some() && self.silent.contains(&peer.address) {
                true => Patience::SHORT,
                false => Patience::WHOLE,
            };
            let word = self.refresh_from(&peer, whole, patience).await;
            if let Ok(Word::Missed(_, error)) | Err(error) = &word
                && error.is_overtaken()
            {
                // No failure of theirs.
                return self.live.end(true, format!("not refreshed: {error}"));
            }
            self.remember(&peer, &word);
            let address = peer.address;
            let error = match word {
                Ok(Word::Came(said, expires_in)) => {
                    if peer.blocks_notify {
                        self.told = self.live.held().map(|zone| zone.soa().serial);
                    }
                    let came = true;
                    self.confirm(Heard { came, expires_in }).await;
                    return self.refreshed(said);
                }
                // It may be the one that is stuck: the others are asked, too.
                Ok(Word::Same(said, expires_in)) => {
                    self.confirm_by(&mut confirmed, said, expires_in).await;
                    continue;
                }
                Ok(Word::Missed(serial, error)) => {
                    is_missed = true;
                    format!("it offers serial {serial}, which did not come: {error}")
                }
                Err(error) => {
                    if matches!(error, AskError::Behind { .. }) && self.live.state().is_expired {
                        turns.push_back((peer, true));
                    }
                    error.to_string()
                }
            };
            reasons.push(format!("{address}: {error}"));
        }
        let is_confirmed = confirmed.is_some();
        reasons.splice(0..0, confirmed.map(|(said, _)| said));
        match is_confirmed && !is_missed {
            true => self.refreshed(reasons.join("; ")),
            false => self.not_refreshed(&reasons.join("; "), is_confirmed),
        }
    }

    /// The primaries in the order in which they are asked.
    fn in_turn(&self, preferred: Option<IpAddr>) -> Vec<Peer> {
        let mut primaries = self.settings.primaries.clone();
        primaries.sort_by_key(|peer| {
            let is_preferred = Some(peer.address.ip().to_canonical()) == preferred;
            (!is_preferred, self.silent.contains(&peer.address))
        });
        primaries
    }

    /// Whoever `said` so has the zone as it is here; `confirmed`: what those said who were asked before.
    ///
    /// RFC 1034 §4.3.5: "If the secondary finds it impossible to perform a serial check for the EXPIRE interval, it must assume
    /// that its copy of the zone is obsolete". It was possible: the zone is good for longer, also where another primary offers a
    /// newer version and does not deliver it; and from now on, for to wait for that may take an hour.
    async fn confirm_by(
        &mut self,
        confirmed: &mut Option<(String, Option<u32>)>,
        said: String,
        expires_in: Option<u32>,
    ) {
        let before = confirmed.as_ref().map(|(_, most)| *most);
        let most = before.map_or(expires_in, |before| longer(before, expires_in));
        confirmed.get_or_insert((said, most)).1 = most;
        if before != Some(most) {
            let (came, expires_in) = (false, most);
            self.confirm(Heard { came, expires_in }).await;
        }
    }

    /// Remembers whether this primary has said anything, for the next time.
    fn remember(&mut self, peer: &Peer, word: &Result<Word, AskError>) {
        self.silent.retain(|silent| *silent != peer.address);
        if let Ok(Word::Missed(_, error)) | Err(error) = word
            && error.is_silence()
        {
            self.silent.push(peer.address);
        }
    }

    /// `is_confirmed`: see [`Timers::failed`].
    fn not_refreshed(&self, said: &str, is_confirmed: bool) {
        let failures = self.live.change_state(|state| {
            let timers = state.timers.get_or_insert(Timers::new(0));
            timers.failed(clock::unix(), is_confirmed);
            timers.failures()
        });
        self.live.end(true, format!("not refreshed: {said}"));
        // A primary that is down for hours need not be said more often than it is asked more rarely.
        match failures.is_power_of_two() {
            true => log::warn!("zone {} was not refreshed: {said}", self.live.apex),
            false => log::verbose!("zone {} was not refreshed: {said}", self.live.apex),
        }
    }

    /// What a primary has, which is taken where it is newer.
    async fn refresh_from(
        &mut self,
        peer: &Peer,
        forced: bool,
        patience: Patience,
    ) -> Result<Word, AskError> {
        let apex = self.live.apex.clone();
        let held = self.live.held().filter(|_| !forced);
        let Some(held) = held else {
            return self.fetch(peer, None, forced, None).await;
        };
        let shared = Arc::clone(&self.shared);
        let asking = async {
            let _entered = shared.asking.enter(peer.address).await;
            ask::serial(peer, apex.as_name(), patience).await
        };
        let has = self.minding(None, asking).await?;
        let own = held.soa().serial;
        if !zone::transfer::serial::is_newer(has.serial, own) {
            return compared(peer, has, own);
        }
        let soa = held.soa_record();
        drop(held);
        let fetched = match self.fetch(peer, Some(&soa), false, None).await {
            Err(error) if error.asks_for_axfr() => {
                let whole = self.fetch(peer, None, false, Some(&error)).await;
                whole.map_err(|whole| AskError::Both(Box::new([error, whole])))
            }
            other => other,
        };
        Ok(fetched.unwrap_or_else(|error| Word::Missed(has.serial, error)))
    }

    /// Transfers the zone; where `held` is its SOA record, what has changed since. `useless`: what was wrong with the IXFR in whose
    /// place this is.
    async fn fetch(
        &mut self,
        peer: &Peer,
        held: Option<&zone::record::Record>,
        forced: bool,
        useless: Option<&AskError>,
    ) -> Result<Word, AskError> {
        let apex = self.live.apex.clone();
        let (shared, live) = (Arc::clone(&self.shared), Arc::clone(&self.live));
        let bounds = self.settings.transfer;
        let journal = self.live.held().map_or(0, |_| self.settings.journal_octets);
        let mut claim = shared.claims.begin(journal);
        let asking = async {
            let (place, stream) = shared.transfers.connected(peer).await?;
            live.begin("transferring");
            let within = Within {
                bounds,
                claim: &mut claim,
                progress: &live.progress,
            };
            let transfer = ask::transfer((peer, stream), apex.as_name(), held, within);
            Ok::<_, AskError>((place, transfer.await?))
        };
        // The place and the claim are held until what came serves.
        let (_place, (received, expires_in)) = self.minding(Some(peer), asking).await?;
        let is_changes = matches!(received, Received::Changes(_));
        let (installed, lost) = match received {
            Received::UpToDate(serial) => {
                let own = self.live.held().map_or(serial, |held| held.soa().serial);
                return compared(peer, Has { serial, expires_in }, own);
            }
            Received::Whole(builder) => self.install(builder, forced).await?,
            Received::Changes(changes) => {
                let (live, settings, state) = self.shares();
                let work = move || live.install_changes(&changes, &settings, &state);
                let installed = spawn_blocking(work).await;
                let installed = installed.unwrap_or_else(|_| Err("building it failed".to_owned()));
                installed.map_err(AskError::Zone)?
            }
        };
        if let Some(lost) = lost {
            log::error!("zone {apex}: {lost}");
        }
        let (zone, warning) = match installed {
            Installed::Older { came, held } => return Err(AskError::Older { came, held }),
            Installed::Newer(zone, warning) => (zone, warning),
        };
        let useless = useless.map_or_else(String::new, |error| {
            format!("; its IXFR was of no use: {error}")
        });
        let said = format!(
            "serial {} came by {}{} from {}{useless}",
            zone.soa().serial,
            ask::kind_of(held),
            match held.is_some() && !is_changes {
                true => " as a whole zone",
                false => "",
            },
            peer.address
        );
        log::info!("zone {apex}: {said}");
        let said = match warning {
            Some(warning) => {
                log::error!("zone {apex}: {warning}");
                format!("{said}; {warning}")
            }
            None => said,
        };
        Ok(Word::Came(said, expires_in))
    }

    /// Builds a zone that came, off the threads that serve.
    async fn install(
        &self,
        builder: Box<ZoneBuilder>,
        forced: bool,
    ) -> Result<(Installed, Option<String>), AskError> {
        let (live, settings, state) = self.shares();
        let work = move || {
            let (zone, _) = builder
                .finish()
                .map_err(|error| AskError::Zone(error.to_string()))?;
            Ok(live.install(zone, forced, &settings, &state))
        };
        let installed = spawn_blocking(work).await;
        installed.unwrap_or_else(|_| Err(AskError::Zone("building it failed".to_owned())))
    }

    /// A primary has the zone as it is here, or has sent a newer one, which serves.
    async fn confirm(&mut self, heard: Heard) {
        let (live, settings, state) = self.shares();
        let lost = spawn_blocking(move || live.confirm(heard, &settings, &state)).await;
        if let Ok(Some(lost)) = lost {
            log::verbose!("zone {}: {lost}", self.live.apex);
        }
        self.publish();
        self.tell();
    }

    /// Nothing is to be tried until REFRESH is over.
    fn refreshed(&self, said: String) {
        self.live.change_state(|state| {
            state.timers.as_mut().map(Timers::succeeded);
        });
        self.live.end(false, said);
    }
}

/// What a primary says whose serial is not newer than our `own`.
fn compared(peer: &Peer, has: Has, own: u32) -> Result<Word, AskError> {
    // RFC 1034 §4.3.5: serials "make it possible to determine which of two copies of a zone is more recent": a primary that
    // has the older one is itself out of date, and says nothing of ours.
    if has.serial != own {
        return Err(AskError::Behind {
            has: has.serial,
            held: own,
        });
    }
    let said = format!("serial {own} is confirmed by {}", peer.address);
    Ok(Word::Same(said, has.expires_in))
}

/// Waits for a moment, in seconds since 1970, that may never be.
async fn moment(seconds: Option<u64>) {
    match seconds {
        // In a box: most zones are a primary's, and have no moment to wait for.
        Some(seconds) => Box::pin(moment_by(clock::unix, seconds)).await,
        None => std::future::pending().await,
    }
}

/// The same by this clock. Tasks sleep by another one, which nobody sets and which stands still while the host is suspended: so
/// the moment has come when either says so.
async fn moment_by(clock: impl Fn() -> u64, seconds: u64) {
    let left = || Duration::from_secs(seconds.saturating_sub(clock()));
    let latest = Instant::now() + left();
    loop {
        let (left, now) = (left(), Instant::now());
        if left.is_zero() || now >= latest {
            return;
        }
        sleep_until(latest.min(now + left.min(LOOK_AGAIN))).await;
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{apex, text};
    use super::*;
    use crate::local::Keeper;
    use std::cell::Cell;
    use std::fs;
    use tokio::runtime::Handle;
    use tokio::time::timeout;

    /// The system's clock says the first of these, and the second from the second look on; how long a moment is waited for.
    async fn waited(clock: [u64; 2], seconds: u64) -> Duration {
        let looks = Cell::new(0);
        let clock = || {
            let look = looks.get();
            looks.set(look + 1);
            clock[usize::from(look > 1)]
        };
        let began = Instant::now();
        moment_by(clock, seconds).await;
        began.elapsed()
    }

    fn follower(settings: Arc<ZoneSettings>, state: &Arc<StateDirectory>) -> Box<Follower> {
        let live = Arc::new(Live::new(&apex()));
        let keeper = Keeper::new(Handle::current(), || {});
        Follower::new(&live, (settings, Arc::clone(state)), &keeper.shared)
    }

    /// There may be a hundred thousand of them.
    #[tokio::test]
    async fn a_task_that_waits_takes_little_memory() {
        let settings = Arc::new(ZoneSettings::new(apex()));
        let follower = follower(settings, &Arc::new(StateDirectory::default()));
        let octets = size_of_val(&follower.follow());
        assert!(octets <= 256, "{octets}");
    }

    #[tokio::test]
    async fn settings_take_effect_as_they_come_and_a_primary_is_asked_once_for_all_that_it_tells() {
        let settings = |octets: u64| {
            let mut settings = ZoneSettings::new(apex());
            settings.journal_octets = octets;
            Arc::new(settings)
        };
        let state = Arc::new(StateDirectory::default());
        let mut follower = follower(settings(1), &state);
        for octets in [3, 2, 4] {
            let order = Order::Settings(settings(octets), Arc::clone(&state));
            follower.obey(order).await;
            assert_eq!(follower.settings.journal_octets, octets);
        }
        for (last, serial) in [(1, 1), (2, 2), (1, 2)] {
            let from = IpAddr::from([192, 0, 2, last]);
            let serial = Some(serial);
            follower.obey_later(Order::Notified { from, serial }.into());
        }
        assert_eq!(follower.put_off.len(), 2, "each primary is asked once");
    }

    /// `millrace zone reload` orders it of all zones at once.
    #[tokio::test]
    async fn as_many_files_are_read_at_a_time_as_there_are_cores() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("zone");
        fs::write(&file, text(5, "")).unwrap();
        let mut settings = ZoneSettings::new(apex());
        settings.file = Some(file);
        let mut follower = follower(Arc::new(settings), &Arc::default());
        let shared = Arc::clone(&follower.shared);
        let cores = u32::try_from(shared.loading.available_permits()).unwrap();
        let others = shared.loading.acquire_many(cores).await.unwrap();
        let reads = timeout(Duration::from_millis(300), follower.reload());
        assert!(reads.await.is_err());
        assert!(follower.live.served().is_none());
        drop(others);
        follower.reload().await;
        assert_eq!(follower.live.served().unwrap().soa().serial, 5);
    }

    #[tokio::test(start_paused = true)]
    async fn a_zones_moment_comes_by_either_clock() {
        const WEEK: u64 = 604_800;
        let set_on = waited([1_000, 2_000 + WEEK], 1_000 + WEEK);
        assert!(set_on.await <= LOOK_AGAIN + Duration::from_secs(1));
        let set_back = waited([2 * WEEK, 0], 2 * WEEK + 600).await;
        assert!((600..=601).contains(&set_back.as_secs()), "{set_back:?}");
        assert_eq!(waited([WEEK, WEEK], WEEK).await, Duration::ZERO);
    }
}
