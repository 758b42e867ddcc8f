//! A function of the configuration that is called while serving: its limits, and what is said when it fails.

use super::leash::Ended;
use super::state::LuaState;
use super::{place, unbuilt};
use crate::clock::Now;
use crate::config::place::Place;
use crate::heap;
use crate::log;
use mlua::{Function, Lua};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// How long one call may take, and what it costs to take longer.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limit {
    time: Duration,
    /// Who was stopped is not called for so long: else one query a moment would hold everybody up.
    rest: Duration,
}

impl Limit {
    /// For a query. A fifth of what the kernel program waits before it takes a worker for stalled.
    pub(super) const QUERY: Limit = Limit {
        time: Duration::from_millis(20),
        rest: Duration::from_secs(1),
    };

    /// For the control thread. Queries that need the state wait meanwhile.
    pub(super) const CONTROL: Limit = Limit {
        time: Duration::from_millis(500),
        rest: Duration::from_secs(10),
    };
}

/// How often the failures of one function are told.
const TELL_EVERY: Duration = Duration::from_secs(10);

/// A function, and who takes it.
pub(super) struct Callback {
    /// What it was given to: `LuaAction`, `maintenance`.
    what: &'static str,
    place: Place,
    function: Function,
    rests_until: AtomicU64,
    /// When a failure was told last; 0: never.
    told: AtomicU64,
    untold: AtomicU64,
}

impl Callback {
    /// The function that the running line of the configuration gives to `what`.
    pub(super) fn new(lua: &Lua, what: &'static str, function: Function) -> Callback {
        unbuilt::note(lua, &function);
        Callback {
            what,
            place: place::caller(lua),
            function,
            rests_until: AtomicU64::new(0),
            told: AtomicU64::new(0),
            untold: AtomicU64::new(0),
        }
    }

    pub(super) fn function(&self) -> Function {
        self.function.clone()
    }

    /// Has `act` call the function behind the lock of `state`, which is the one that it came from. `None`: it failed,
    /// which is counted and told, or rests, or there is no memory to run it.
    pub(super) fn call<R>(
        &self,
        state: &LuaState,
        now: Now,
        limit: Limit,
        act: impl FnOnce(&Lua, &Function) -> mlua::Result<R>,
    ) -> Option<R> {
        let counts = &state.counts;
        // A state whose allocator fails ends the process: `handle_alloc_error` in mlua's.
        if self.rests_until.load(Relaxed) > now.0 || heap::is_short() {
            counts.skipped.fetch_add(1, Relaxed);
            return None;
        }
        counts.calls.fetch_add(1, Relaxed);
        match state.with_limit(limit.time, |lua| act(lua, &self.function)) {
            Ok(result) => return Some(result),
            Err(Ended::Failed(error)) => self.tell(now, &place::text_of(&error)),
            Err(Ended::Stopped) => {
                counts.stopped.fetch_add(1, Relaxed);
                // Not `now`: that was before the call.
                let until = Now::read().0 + limit.rest.as_nanos() as u64;
                self.rests_until.store(until, Relaxed);
                self.tell(now, &format!(
                    "stopped after {} ms: it loops, or does too much for one call; it is not called again for {} s",
                    limit.time.as_millis(),
                    limit.rest.as_secs()
                ));
            }
        }
        counts.errors.fetch_add(1, Relaxed);
        None
    }

    fn tell(&self, now: Now, text: &str) {
        let told = self.told.load(Relaxed);
        if told != 0 && now.since(Now(told)) < TELL_EVERY {
            self.untold.fetch_add(1, Relaxed);
            return;
        }
        self.told.store(now.0.max(1), Relaxed);
        let (what, place) = (self.what, &self.place);
        match self.untold.swap(0, Relaxed) {
            0 => log::error!("{what} of {place}: {text}"),
            more => log::error!("{what} of {place}: {text} ({more} failures of it were not told)"),
        }
    }
}
