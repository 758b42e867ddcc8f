//! How long a function of the configuration may run, so that one that loops holds nobody up for ever.
//!
//! All code of the state runs interpreted: LuaJIT's hooks are not called within compiled traces. The hook looks at the
//! clock every [`EVERY`] instructions; a shorter call costs no look at all. What one instruction does in C (a search in a
//! long text, reading a file) is not interrupted, but what follows it is. One thing escapes: LuaJIT calls no hooks in the
//! handler that `xpcall` calls for the error of a hook, so that a handler which loops then loops on.

use crate::clock::Now;
use mlua::debug::HookTriggers;
use mlua::{Lua, VmState};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Instructions between two looks at the clock: some 50 µs.
const EVERY: u32 = 10_000;

/// What a state's hook knows of the call that runs. Only whoever has the state's lock writes it.
#[derive(Debug, Default)]
pub(super) struct Leash {
    /// Nanoseconds; 0 while nothing runs that has a limit.
    limit: AtomicU64,
    /// When the hook first saw the call; 0: not yet.
    since: AtomicU64,
    /// The call was stopped.
    pulled: AtomicBool,
}

impl Leash {
    /// For a new state, before any code runs in it.
    pub(super) fn attach(lua: &Lua) -> mlua::Result<Arc<Leash>> {
        lua.load("jit.off() jit.flush()").exec()?;
        let leash = Arc::new(Leash::default());
        leash.watch(lua)?;
        Ok(leash)
    }

    /// Runs `act`, and stops the code of the state that it calls after `limit`.
    ///
    /// # Errors
    /// The error of `act`, or that it was stopped, even where the code caught that and went on.
    pub(super) fn within<R>(
        self: &Arc<Leash>,
        lua: &Lua,
        limit: Duration,
        act: impl FnOnce() -> mlua::Result<R>,
    ) -> Result<R, Ended> {
        self.since.store(0, Relaxed);
        self.limit.store(limit.as_nanos() as u64, Relaxed);
        let result = act();
        self.limit.store(0, Relaxed);
        if self.pulled.swap(false, Relaxed) {
            self.watch(lua).map_err(Ended::Failed)?;
            return Err(Ended::Stopped);
        }
        result.map_err(Ended::Failed)
    }

    fn watch(self: &Arc<Leash>, lua: &Lua) -> mlua::Result<()> {
        let leash = Arc::clone(self);
        // Of the state, not of one coroutine: LuaJIT has one hook for all of them.
        lua.set_global_hook(
            HookTriggers::new().every_nth_instruction(EVERY),
            move |lua, _| leash.look(lua),
        )
    }

    fn look(&self, lua: &Lua) -> mlua::Result<VmState> {
        let limit = self.limit.load(Relaxed);
        if limit == 0 {
            return Ok(VmState::Continue);
        }
        let (now, since) = (Now::read().0, self.since.load(Relaxed));
        if since == 0 {
            self.since.store(now, Relaxed);
        }
        if since == 0 || now.saturating_sub(since) <= limit {
            return Ok(VmState::Continue);
        }
        self.pulled.store(true, Relaxed);
        // A `pcall` around the loop catches this error, and the loop around the `pcall` goes on: from now on every
        // instruction is one, until nothing is left that catches.
        lua.set_global_hook(HookTriggers::new().every_nth_instruction(1), move |_, _| {
            Err(stopped(limit))
        })?;
        Err(stopped(limit))
    }
}

/// Why a call has no result.
#[derive(Debug)]
pub(super) enum Ended {
    Failed(mlua::Error),
    /// It ran too long.
    Stopped,
}

/// What the code sees of its end, and the console shows; the limit is in nanoseconds.
fn stopped(limit: u64) -> mlua::Error {
    let limit = Duration::from_nanos(limit);
    super::wrong(format!(
        "stopped after {limit:?}: it loops, or does too much for one call"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    const LIMIT: Duration = Duration::from_millis(20);

    fn run(text: &str) -> Result<String, Ended> {
        let lua = super::super::ffi::new_state();
        let leash = Leash::attach(&lua).unwrap();
        let begun = Instant::now();
        let result = leash.within(&lua, LIMIT, || lua.load(text).eval());
        assert!(begun.elapsed() < Duration::from_secs(60), "{text}");
        // The next call has its own time.
        let next = "local n = 0 for _ = 1, 30000 do n = n + 1 end return n";
        let next = leash.within(&lua, Duration::from_secs(60), || {
            lua.load(next).eval::<i64>()
        });
        assert_eq!(next.unwrap(), 30_000);
        result
    }

    #[test]
    fn a_loop_is_stopped_whatever_catches_the_error() {
        for text in [
            "while true do end",
            "while true do pcall(function() while true do end end) end",
            "pcall(function() while true do end end) return 'went on'",
            "xpcall(function() while true do end end, function() end) return 'went on'",
            "coroutine.wrap(function() while true do end end)()",
            "local t = {} for n = 1, 1e9 do t[n % 10] = n end",
            "table.sort({3, 2, 1}, function() while true do end end)",
        ] {
            let result = run(text);
            assert!(matches!(result, Err(Ended::Stopped)), "{text}: {result:?}");
        }
    }

    #[test]
    fn the_error_tells_the_limit() {
        let error = stopped(LIMIT.as_nanos() as u64).to_string();
        assert!(
            error.ends_with("stopped after 20ms: it loops, or does too much for one call"),
            "{error}"
        );
    }

    #[test]
    fn what_is_short_runs_to_its_end() {
        assert_eq!(run("return 'done'").unwrap(), "done");
        let result = run("error('no')");
        assert!(matches!(&result, Err(Ended::Failed(_))), "{result:?}");
    }
}
