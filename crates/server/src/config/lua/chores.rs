//! What the control thread calls: `maintenance()` once a second, and the callbacks that files register.

use super::callback::{Callback, Limit};
use super::state::LuaState;
use super::{define, resolve, wrong};
use crate::clock::Now;
use mlua::{Function, IntoLuaMulti, Lua, Value};
use std::sync::Arc;

/// The name of the dialect that files define for dnsdist to call.
pub(super) const MAINTENANCE: &str = "maintenance";

/// The functions that a state has for the control thread.
#[derive(Default)]
pub(super) struct Chores {
    /// addMaintenanceCallback, behind the global `maintenance`.
    maintenance: Vec<Arc<Callback>>,
    /// addExitCallback.
    exit: Vec<Arc<Callback>>,
    /// addServerStateChangeCallback.
    server_state: Vec<Arc<Callback>>,
    /// The global of this name as it was found last, and what is kept of it.
    global: Option<(Function, Arc<Callback>)>,
}

type Kind = fn(&mut Chores) -> &mut Vec<Arc<Callback>>;

const KINDS: [(&str, Kind); 3] = [
    ("addMaintenanceCallback", |chores| &mut chores.maintenance),
    ("addExitCallback", |chores| &mut chores.exit),
    ("addServerStateChangeCallback", |chores| {
        &mut chores.server_state
    }),
];

pub(super) fn register(lua: &Lua) -> mlua::Result<()> {
    lua.set_app_data(Chores::default());
    for (name, kind) in KINDS {
        define(lua, name, move |lua, function: Function| {
            let callback = Arc::new(Callback::new(lua, name, function));
            change(lua, |chores| kind(chores).push(callback))
        })?;
    }
    Ok(())
}

fn change<R>(lua: &Lua, change: impl FnOnce(&mut Chores) -> R) -> mlua::Result<R> {
    let mut chores = lua
        .app_data_mut::<Chores>()
        .ok_or_else(|| wrong("the state has lost its callbacks"))?;
    Ok(change(&mut chores))
}

/// Looks for the global `maintenance`, which any chunk may have defined; whether there is something to do every second.
pub(super) fn look(lua: &Lua) -> mlua::Result<bool> {
    let global = match lua.globals().raw_get(MAINTENANCE)? {
        Value::Function(function) => Some(function),
        _ => None,
    };
    let known = change(lua, |chores| {
        chores.global.as_ref().map(|(known, _)| known.clone())
    })?;
    if known != global {
        let global = global.map(|function| {
            let callback = Callback::new(lua, MAINTENANCE, function.clone());
            (function, Arc::new(callback))
        });
        change(lua, |chores| chores.global = global)?;
    }
    let is_resolving = resolve::is_waiting(lua)?;
    change(lua, |chores| {
        is_resolving || chores.global.is_some() || !chores.maintenance.is_empty()
    })
}

impl LuaState {
    /// Calls `maintenance()` and its sisters, if there are any: for the control thread, once a second.
    pub fn maintain(&self) {
        if self.has_maintenance() {
            let global =
                |chores: &Chores| chores.global.as_ref().map(|(_, global)| Arc::clone(global));
            self.call_all((), |chores| {
                let all = global(chores).into_iter();
                all.chain(chores.maintenance.iter().cloned()).collect()
            });
            resolve::step(self);
        }
    }

    /// Tells the callbacks that the checks of the server `name` (`ns1 (192.0.2.2:53)`) found it up, or down.
    pub fn server_changed(&self, name: &str, up: bool) {
        self.call_all((name, up), |chores| chores.server_state.clone());
    }

    /// Calls what files want called at the end.
    pub fn exit(&self) {
        self.call_all((), |chores| chores.exit.clone());
    }

    fn call_all(
        &self,
        arguments: impl IntoLuaMulti + Clone,
        select: impl FnOnce(&Chores) -> Vec<Arc<Callback>>,
    ) {
        let callbacks = self.with(|lua| change(lua, |chores| select(chores)));
        for callback in callbacks.unwrap_or_default() {
            callback.call(self, Now::read(), Limit::CONTROL, |_, function| {
                function.call::<()>(arguments.clone())
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::config::LuaState;
    use crate::config::pools::PoolNames;
    use crate::config::spec::{Purpose, Spec};
    use std::sync::atomic::Ordering::Relaxed;

    fn state(text: &str) -> LuaState {
        let state = LuaState::new(Spec::new(Purpose::Serve, PoolNames::default())).unwrap();
        state.run("test.conf", text.as_bytes()).unwrap();
        state
    }

    #[test]
    fn callbacks_share_the_globals_of_the_file() {
        let state = state(
            r#"said = ""
               function maintenance() said = said .. "m" end
               addMaintenanceCallback(function() said = said .. "n" end)
               addServerStateChangeCallback(function(name, up) said = said .. name .. tostring(up) end)
               addExitCallback(function() said = said .. "." end)"#,
        );
        state.maintain();
        state.server_changed("ns1 (192.0.2.2:53)", false);
        state.exit();
        let text = br#"assert(said == "mnns1 (192.0.2.2:53)false.", said)"#;
        state.run("test", text).unwrap();
    }

    #[test]
    fn what_fails_does_not_keep_the_others_from_their_turn() {
        let state = state(
            r#"count = 0
               function maintenance() error("no") end
               addMaintenanceCallback(function() count = count + 1 end)"#,
        );
        state.maintain();
        state.maintain();
        state.run("test", b"assert(count == 2)").unwrap();
        let counts = &state.counts;
        assert_eq!(
            (counts.calls.load(Relaxed), counts.errors.load(Relaxed)),
            (4, 2)
        );
    }

    #[test]
    fn addresses_come_to_the_function_that_asked_for_them() {
        let state = state(
            r#"said = {}
               local function tell(name, addresses)
                 for _, address in ipairs(addresses) do
                   said[name] = address:toString()
                 end
                 count = (count or 0) + 1
               end
               getAddressInfo("192.0.2.7", function(name, addresses)
                 tell(name, addresses)
                 getAddressInfo("2001:db8::7", tell)
               end)
               getAddressInfo("name.invalid..", tell)"#,
        );
        let is_done = b"if count ~= 3 then error('not yet') end";
        let began = std::time::Instant::now();
        while state.run("test", is_done).is_err() {
            assert!(began.elapsed().as_secs() < 60, "three are told");
            state.maintain();
            std::thread::yield_now();
        }
        let text =
            br#"assert(said["192.0.2.7"] == "192.0.2.7" and said["2001:db8::7"] == "2001:db8::7")"#;
        state.run("test", text).unwrap();
        state.maintain();
        state.run("test", b"assert(count == 3)").unwrap();
    }

    #[test]
    fn a_state_without_callbacks_is_left_alone() {
        let state = state("x = 1");
        let before = state.counts.locks.load(Relaxed);
        state.maintain();
        assert_eq!(state.counts.locks.load(Relaxed), before);
        state
            .run("=console", b"function maintenance() x = 2 end")
            .unwrap();
        state.maintain();
        state.run("test", b"assert(x == 2)").unwrap();
    }
}
