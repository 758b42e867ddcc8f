//! The main Lua state: it lives as long as its configuration, with the Spec that it fills inside, behind one lock that
//! Lua rules, actions, policies, callbacks and the console take (closures share globals: that is how users keep state).
//!
//! ```text
//!  Daemon ──▶ Arc<LuaState> ◀── Config.lua ◀── workers, runtime
//!               └─ Mutex<Lua> ── Spec, the functions that rules of this Config name
//! ```
//!
//! A function of the configuration is called by whoever has its `Config`, which holds the state; the rule that names the
//! function does not, so that a state ends with its last configuration.

use super::leash::{Ended, Leash};
use super::{chores, place, unbuilt};
use crate::config::error::ConfigError;
use crate::config::place::Place;
use crate::config::spec::Spec;
use crate::config::{Config, derive};
use crate::holder::Holder;
use mlua::Lua;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A state and its lock.
pub struct LuaState {
    lua: Mutex<Lua>,
    leash: Arc<Leash>,
    /// The control thread has something to call every second.
    has_maintenance: AtomicBool,
    /// Of all states of this process, one after the other.
    pub counts: Arc<Counts>,
    /// What functions have suspended: one holder of all states, so that one that takes over finds what was suspended before.
    pub holder: Arc<Holder>,
}

/// What became of the lock, and of functions of the configuration that were called while serving.
#[derive(Debug, Default)]
pub struct Counts {
    /// Times that the lock was taken, for whatever reason: a configuration without functions on the path never takes it
    /// for a query.
    pub locks: AtomicU64,
    pub calls: AtomicU64,
    /// Calls that ended by an error.
    pub errors: AtomicU64,
    /// Of these, those that ran too long.
    pub stopped: AtomicU64,
    /// Calls that were left out because the function had run too long just before, or there was no memory for it.
    pub skipped: AtomicU64,
}

/// The status that a file gave to `os.exit`, and where.
struct Exit {
    place: Place,
    status: i32,
}

impl LuaState {
    /// A state with all functions of the language, and `spec` to fill.
    pub fn new(spec: Spec) -> Result<LuaState, ConfigError> {
        let lua = super::ffi::new_state();
        lua.set_app_data(spec);
        let holder = Arc::<Holder>::default();
        lua.set_app_data(Arc::clone(&holder));
        let leash = super::register(&lua)
            .and_then(|()| catch_exit(&lua))
            .and_then(|()| Leash::attach(&lua))
            .map_err(|error| ConfigError::Lua(error.to_string()))?;
        Ok(LuaState {
            lua: Mutex::new(lua),
            leash,
            has_maintenance: AtomicBool::new(false),
            counts: Arc::default(),
            holder,
        })
    }

    /// Counts on where the state of `previous` does, and finds what was suspended there.
    pub fn succeeding(self, previous: Option<&Config>) -> LuaState {
        match previous.and_then(|previous| previous.lua.as_ref()) {
            Some(old) => {
                let holder = Arc::clone(&old.holder);
                self.with(|lua| lua.set_app_data(Arc::clone(&holder)));
                LuaState {
                    counts: Arc::clone(&old.counts),
                    holder,
                    ..self
                }
            }
            None => self,
        }
    }

    /// Makes the configuration that workers read; it holds this state. See [`derive()`].
    ///
    /// # Errors
    /// Those of [`derive()`].
    pub fn derive(self: &Arc<LuaState>, previous: Option<&Config>) -> Result<Config, ConfigError> {
        let config = self.edit(|spec| derive(spec, previous))?;
        Ok(Config {
            lua: Some(Arc::clone(self)),
            ..config
        })
    }

    /// Runs the text of the file `path`.
    ///
    /// # Errors
    /// What Lua stopped at, or the status if the file called `os.exit`.
    pub fn run(&self, path: &str, text: &[u8]) -> Result<(), ConfigError> {
        let lua = self.lock();
        let done = self.run_whole(&lua, path, text);
        outcome(&lua, path, done)
    }

    /// The same, stopped after `limit`: the control thread, which reloads, has other work.
    ///
    /// # Errors
    /// Those of [`LuaState::run`], or that it ran too long.
    pub fn run_within(&self, limit: Duration, path: &str, text: &[u8]) -> Result<(), ConfigError> {
        let lua = self.lock();
        let run = || self.run_whole(&lua, path, text);
        match self.leash.within(&lua, limit, run) {
            Ok(()) => outcome(&lua, path, Ok(())),
            Err(Ended::Failed(error)) => outcome(&lua, path, Err(error)),
            Err(Ended::Stopped) => Err(ConfigError::Lua(format!(
                "{path}: stopped after {limit:?}: it loops, or does too much for a reload"
            ))),
        }
    }

    fn run_whole(&self, lua: &Lua, path: &str, text: &[u8]) -> mlua::Result<()> {
        place::run(lua, path, text)?;
        self.look(lua)?;
        unbuilt::refuse(lua)
    }

    /// Looks for what the control thread has to do every second.
    pub(super) fn look(&self, lua: &Lua) -> mlua::Result<()> {
        let has_maintenance = chores::look(lua)?;
        self.has_maintenance.store(has_maintenance, Relaxed);
        Ok(())
    }

    pub(super) fn has_maintenance(&self) -> bool {
        self.has_maintenance.load(Relaxed)
    }

    /// Reads or changes the configuration that the state filled.
    ///
    /// # Panics
    /// When a Lua function of ours calls this: it has the Spec already.
    pub fn edit<R>(&self, edit: impl FnOnce(&mut Spec) -> R) -> R {
        let lua = self.lock();
        let mut spec = lua
            .app_data_mut::<Spec>()
            .expect("LuaState::new put it there and nothing takes it out");
        edit(&mut spec)
    }

    /// Runs `act` on the state, behind its lock: no function of the configuration runs meanwhile. `act` must not call
    /// what takes the lock.
    pub(super) fn with<R>(&self, act: impl FnOnce(&Lua) -> R) -> R {
        act(&self.lock())
    }

    /// The same; code of the state that `act` calls is stopped after `limit`.
    ///
    /// # Errors
    /// The error of `act`, or that it ran too long.
    pub(super) fn with_limit<R>(
        &self,
        limit: Duration,
        act: impl FnOnce(&Lua) -> mlua::Result<R>,
    ) -> Result<R, Ended> {
        let lua = self.lock();
        self.leash.within(&lua, limit, || act(&lua))
    }

    fn lock(&self) -> MutexGuard<'_, Lua> {
        self.counts.locks.fetch_add(1, Relaxed);
        // A panic in one console command must not end the console: the state itself stays sound.
        self.lua.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What came of running the file `path`.
fn outcome(lua: &Lua, path: &str, done: mlua::Result<()>) -> Result<(), ConfigError> {
    if let Some(Exit { place, status }) = lua.remove_app_data::<Exit>() {
        return Err(ConfigError::Exit { place, status });
    }
    done.map_err(|error| ConfigError::Lua(place::readable(&error, path)))
}

/// Makes `os.exit(n)` end the reading of the file with status n. The real one would end the process, of which a reload
/// has a healthy configuration that goes on.
fn catch_exit(lua: &Lua) -> mlua::Result<()> {
    let exit = lua.create_function(|lua, status: mlua::Value| -> mlua::Result<()> {
        let status = match status {
            mlua::Value::Boolean(false) => 1,
            mlua::Value::Integer(status) => status as i32,
            mlua::Value::Number(status) => status as i32,
            _ => 0,
        };
        let place = place::caller(lua);
        let text = format!("{place}: os.exit({status})");
        lua.set_app_data(Exit { place, status });
        Err(super::wrong(text))
    })?;
    lua.globals()
        .get::<mlua::Table>("os")?
        .raw_set("exit", exit)
}
