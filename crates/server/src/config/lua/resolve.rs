//! getAddressInfo: addresses of names, asked for beside the queries, and handed to functions of the configuration.

use super::callback::{Callback, Limit};
use super::objects::address::ComboAddress;
use super::state::LuaState;
use super::{define, spec, wrong};
use crate::clock::Now;
use crate::config::spec::Purpose;
use crate::log;
use mlua::{Function, Lua};
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

/// So many names may wait: the system's resolver takes seconds for one that does not answer.
const WAITING_MAX: usize = 1_000;

/// A name, and who wants its addresses.
struct Wanted {
    name: String,
    callback: Arc<Callback>,
}

/// What was found for one: no addresses where the system found none.
struct Found {
    wanted: Wanted,
    addresses: Vec<SocketAddr>,
}

/// The names of a state that were asked for.
#[derive(Default)]
struct Resolutions {
    waiting: Vec<Wanted>,
    /// The thread that resolves; it ends when it has told all.
    under_way: Option<Receiver<Found>>,
}

pub(super) fn register(lua: &Lua) -> mlua::Result<()> {
    lua.set_app_data(Resolutions::default());
    define(
        lua,
        "getAddressInfo",
        |lua, (name, function): (String, Function)| {
            if spec(lua)?.purpose != Purpose::Serve {
                return Ok(());
            }
            let callback = Arc::new(Callback::new(lua, "getAddressInfo", function));
            change(lua, |resolutions| {
                if resolutions.waiting.len() >= WAITING_MAX {
                    return Err(wrong(format!("{WAITING_MAX} names wait already")));
                }
                resolutions.waiting.push(Wanted { name, callback });
                Ok(())
            })?
        },
    )
}

fn change<R>(lua: &Lua, change: impl FnOnce(&mut Resolutions) -> R) -> mlua::Result<R> {
    let mut resolutions = lua
        .app_data_mut::<Resolutions>()
        .ok_or_else(|| wrong("the state has lost the names that it asked for"))?;
    Ok(change(&mut resolutions))
}

/// Whether names wait for their addresses.
pub(super) fn is_waiting(lua: &Lua) -> mlua::Result<bool> {
    change(lua, |resolutions| {
        !resolutions.waiting.is_empty() || resolutions.under_way.is_some()
    })
}

/// Calls the functions whose addresses are there, and has a thread look for those that wait. Not while the file is read:
/// a thread that is started then would keep the privileges that the start gives up.
pub(super) fn step(state: &LuaState) {
    let (found, ended) = state.with(|lua| change(lua, collect)).unwrap_or_default();
    for Found { wanted, addresses } in found {
        let Wanted { name, callback } = wanted;
        let addresses: Vec<_> = addresses.into_iter().map(ComboAddress).collect();
        callback.call(state, Now::read(), Limit::CONTROL, |_, function| {
            function.call::<()>((name.as_str(), addresses))
        });
    }
    if ended {
        // Callbacks may have asked for more.
        let _ = state.with(|lua| change(lua, start));
    }
}

/// What has been found since the last time, and whether nobody looks for anything now.
fn collect(resolutions: &mut Resolutions) -> (Vec<Found>, bool) {
    let Some(receiver) = &resolutions.under_way else {
        return (Vec::new(), true);
    };
    let mut found = Vec::new();
    loop {
        match receiver.try_recv() {
            Ok(one) => found.push(one),
            Err(std::sync::mpsc::TryRecvError::Empty) => return (found, false),
            Err(std::sync::mpsc::TryRecvError::Disconnected) => break,
        }
    }
    resolutions.under_way = None;
    (found, true)
}

fn start(resolutions: &mut Resolutions) {
    if resolutions.waiting.is_empty() {
        return;
    }
    let (sender, receiver) = channel();
    let wanted = std::mem::take(&mut resolutions.waiting);
    let thread = std::thread::Builder::new().name("resolver".to_owned());
    match thread.spawn(move || resolve(wanted, &sender)) {
        Ok(_) => resolutions.under_way = Some(receiver),
        Err(error) => log::error!("getAddressInfo: no thread to resolve names: {error}"),
    }
}

fn resolve(wanted: Vec<Wanted>, found: &Sender<Found>) {
    for wanted in wanted {
        let addresses = (wanted.name.as_str(), 0).to_socket_addrs();
        let addresses = addresses.map(Iterator::collect).unwrap_or_else(|error| {
            log::warn!("getAddressInfo: {}: {error}", wanted.name);
            Vec::new()
        });
        if found.send(Found { wanted, addresses }).is_err() {
            // The configuration has ended.
            return;
        }
    }
}
