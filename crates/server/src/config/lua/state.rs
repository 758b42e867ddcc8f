//! The main Lua state: it lives as long as its configuration, with the Spec that it fills inside, behind one lock that
//! Lua rules, actions, policies, callbacks and the console take (closures share globals: that is how users keep state).

use super::{later, place};
use crate::config::error::ConfigError;
use crate::config::spec::Spec;
use mlua::Lua;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A state and its lock.
pub struct LuaState {
    lua: Mutex<Lua>,
}

/// The status that a file gave to `os.exit`.
struct ExitStatus(i32);

impl LuaState {
    /// A state with all functions of the language, and `spec` to fill.
    pub fn new(spec: Spec) -> Result<LuaState, ConfigError> {
        let lua = super::ffi::new_state();
        lua.set_app_data(spec);
        super::register(&lua)
            .and_then(|()| catch_exit(&lua))
            .map_err(|error| ConfigError::Lua(error.to_string()))?;
        Ok(LuaState {
            lua: Mutex::new(lua),
        })
    }

    /// Runs the text of the file `path`.
    ///
    /// # Errors
    /// What Lua stopped at, or the status if the file called `os.exit`.
    pub fn run(&self, path: &str, text: &[u8]) -> Result<(), ConfigError> {
        let lua = self.lock();
        let done = place::run(&lua, path, text).and_then(|()| later::refuse_callbacks(&lua));
        if let Some(ExitStatus(status)) = lua.remove_app_data::<ExitStatus>() {
            return Err(ConfigError::Exit(status));
        }
        done.map_err(|error| ConfigError::Lua(place::readable(&error, path)))
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

    fn lock(&self) -> MutexGuard<'_, Lua> {
        // A panic in one console command must not end the console: the state itself stays sound.
        self.lua.lock().unwrap_or_else(PoisonError::into_inner)
    }
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
        lua.set_app_data(ExitStatus(status));
        Err(super::wrong(format!(
            "{}: os.exit({status})",
            place::caller(lua)
        )))
    })?;
    lua.globals()
        .get::<mlua::Table>("os")?
        .raw_set("exit", exit)
}
