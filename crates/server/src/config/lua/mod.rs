//! The Lua side of the configuration: dnsdist's functions, one file per theme, each with a `register` function. They
//! fill the [`Spec`](super::spec::Spec) that lives in the state.

mod acl;
mod actions;
mod authority;
mod cache;
mod callback;
mod caught;
mod chores;
pub mod console;
mod constants;
pub mod datagrams;
mod ffi;
mod health;
mod interfaces;
mod later;
mod leash;
mod listeners;
mod logging;
mod metrics;
mod objects;
mod options;
mod place;
mod policies;
mod proxy;
mod query;
mod remember;
mod resolve;
mod response_actions;
mod rules;
mod runtime;
mod selectors;
mod servers;
mod spoof;
pub mod state;
mod subnets;
mod svc;
mod tags;
mod tee;
#[cfg(test)]
pub(super) mod tests;
mod tuning;
mod unbuilt;
mod web;
pub mod web_handlers;
mod xdp;
mod zones;

use super::spec::Spec;
use mlua::{AppDataRefMut, FromLuaMulti, Function, IntoLuaMulti, Lua, MultiValue};
use std::ops::{Deref, DerefMut};

/// Gives a new state all functions, objects and constants of the language.
fn register(lua: &Lua) -> mlua::Result<()> {
    caught::register(lua)?;
    objects::register(lua)?;
    constants::register(lua)?;
    acl::register(lua)?;
    actions::register(lua)?;
    cache::register(lua)?;
    chores::register(lua)?;
    console::register(lua)?;
    datagrams::register(lua)?;
    interfaces::register(lua)?;
    resolve::register(lua)?;
    listeners::register(lua)?;
    logging::register(lua)?;
    metrics::register(lua)?;
    policies::register(lua)?;
    proxy::register(lua)?;
    query::register(lua)?;
    remember::register(lua)?;
    response_actions::register(lua)?;
    rules::register(lua)?;
    runtime::register(lua)?;
    selectors::register(lua)?;
    servers::register(lua)?;
    spoof::register(lua)?;
    subnets::register(lua)?;
    svc::register(lua)?;
    tags::register(lua)?;
    tee::register(lua)?;
    tuning::register(lua)?;
    web::register(lua)?;
    web_handlers::register(lua)?;
    zones::register(lua)?;
    authority::register(lua)?;
    xdp::register(lua)?;
    later::register(lua)?;
    unbuilt::register(lua)
}

/// Makes `function` the global `name`. Its errors tell file, line and name.
fn define<A, R>(
    lua: &Lua,
    name: &'static str,
    function: impl Fn(&Lua, A) -> mlua::Result<R> + Send + Sync + 'static,
) -> mlua::Result<()>
where
    A: FromLuaMulti,
    R: IntoLuaMulti,
{
    debug_assert!(
        !lua.globals().contains_key(name)?,
        "{name} is registered twice"
    );
    lua.globals().raw_set(name, placed(lua, name, function)?)
}

/// `function` for Lua. Its errors tell file, line and name.
fn placed<A, R>(
    lua: &Lua,
    name: &'static str,
    function: impl Fn(&Lua, A) -> mlua::Result<R> + Send + Sync + 'static,
) -> mlua::Result<Function>
where
    A: FromLuaMulti,
    R: IntoLuaMulti,
{
    let at_start = AT_START.contains(&name);
    let most = AT_MOST.iter().find(|(known, _)| *known == name);
    let most = most.map_or(usize::MAX, |(_, most)| *most);
    lua.create_function(move |lua, arguments: MultiValue| {
        let numbers = place::numbers_among(&arguments);
        refuse_late(lua, at_start)
            .and_then(|()| refuse_more(&arguments, most))
            .and_then(|()| A::from_lua_args(arguments, 1, None, lua))
            .map_err(|error| place::with_number(error, &numbers))
            .and_then(|arguments| function(lua, arguments))
            .map_err(|error| place::located(lua, name, &error))
    })
}

/// Functions whose work is done when the instance starts or reloads.
const AT_START: [&str; 12] = [
    "addCapabilitiesToRetain",
    "addLocal",
    "millrace.addKey",
    "millrace.addZone",
    "millrace.addZoneTemplate",
    "millrace.setStateDirectory",
    "newXsk",
    "setLocal",
    "setMaxTCPClientThreads",
    "setMaxUDPOutstanding",
    "setRingBuffersOptions",
    "setRingBuffersSize",
];

/// dnsdist's words.
fn refuse_late(lua: &Lua, at_start: bool) -> mlua::Result<()> {
    match at_start && console::serving(lua).is_some() {
        true => Err(wrong(
            "cannot be used at runtime: write it in the configuration and reload",
        )),
        false => Ok(()),
    }
}

/// Functions that are easily given a list where they take a table, or options in one table too many, and how many arguments
/// they take: dnsdist refuses one more, and left out in silence it would be missed later.
const AT_MOST: [(&str, usize); 31] = [
    ("AndRule", 1),
    ("NotRule", 1),
    ("OpcodeRule", 1),
    ("OrRule", 1),
    ("PoolAction", 2),
    ("QClassRule", 1),
    ("QNameRule", 1),
    ("QNameSetRule", 1),
    ("QPSPoolAction", 3),
    ("QTypeRule", 1),
    ("RCodeAction", 2),
    ("RCodeRule", 1),
    ("RegexRule", 1),
    ("SpoofCNAMEAction", 2),
    ("TCPRule", 1),
    ("addACL", 1),
    ("addAction", 3),
    ("addConsoleACL", 1),
    ("addLocal", 2),
    ("addResponseAction", 3),
    ("controlSocket", 1),
    ("includeDirectory", 1),
    ("newServer", 2),
    ("rmACL", 1),
    ("setACL", 1),
    ("setConsoleACL", 1),
    ("setKey", 1),
    ("setLocal", 2),
    ("setPoolServerPolicy", 2),
    ("setProxyProtocolACL", 1),
    ("setServerPolicy", 1),
];

fn refuse_more(arguments: &MultiValue, most: usize) -> mlua::Result<()> {
    let given = arguments.iter().rposition(|argument| !argument.is_nil());
    let given = given.map_or(0, |last| last + 1);
    if given <= most {
        return Ok(());
    }
    let plural = if most == 1 { "" } else { "s" };
    Err(wrong(format!(
        "at most {most} argument{plural} expected, got {given}"
    )))
}

/// An error of ours: [`define`] puts file, line and function before it.
fn wrong(text: impl Into<String>) -> mlua::Error {
    mlua::Error::RuntimeError(text.into())
}

/// The configuration that the state fills, for as long as a function of ours looks at it. Writing to it is counted: whoever
/// runs Lua knows by that whether the configuration has to be derived anew.
struct Held<'l>(AppDataRefMut<'l, Spec>);

impl Deref for Held<'_> {
    type Target = Spec;

    fn deref(&self) -> &Spec {
        &self.0
    }
}

impl DerefMut for Held<'_> {
    fn deref_mut(&mut self) -> &mut Spec {
        self.0.edits += 1;
        &mut self.0
    }
}

/// The configuration that the state fills.
fn spec(lua: &Lua) -> mlua::Result<Held<'_>> {
    match lua.try_app_data_mut::<Spec>() {
        Ok(Some(spec)) => Ok(Held(spec)),
        Ok(None) | Err(_) => Err(wrong(
            "the configuration is being edited by a function that called this one",
        )),
    }
}
