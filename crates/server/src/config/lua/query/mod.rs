//! Functions of the configuration on the path of queries: LuaAction, LuaRule, LuaResponseAction and Lua policies, and the
//! objects `dq` and `dr` that they are given.
//!
//! ```text
//!  worker: Query ── copied into ──▶ Subject ◀── dq, dq.dh (made once per state) ◀── the function
//!                ◀─ what changed ──    │ dead when the call ends: to use dq then is an error
//! ```
//!
//! Queries lie in frames, which move on; so a function works on a copy. The objects are made once per state and pointed at
//! each query in turn: a new object for each would cost more than the call.

mod answers;
mod asynchronous;
mod check;
mod count;
mod fixed;
mod functions;
mod header;
mod messages;
mod names;
mod options;
mod policy;
mod proxy;
mod question;
mod response;
mod subject;
#[cfg(test)]
mod tests;
mod verdicts;

pub(super) use check::check_function;
pub(super) use count::count_filter;
pub(super) use header::OwnHeader;
pub(super) use policy::{LuaPolicy, run_built_in};

use mlua::{AnyUserData, Lua};
use std::sync::Arc;
use subject::{Shared, Subject};

pub(super) fn register(lua: &Lua) -> mlua::Result<()> {
    lua.set_app_data(Objects::new(lua)?);
    asynchronous::register(lua)?;
    functions::register(lua)
}

/// The objects of a state.
struct Objects {
    query: Object,
    response: Object,
}

/// One object, and what it looks at.
#[derive(Clone)]
struct Object {
    subject: Shared,
    value: AnyUserData,
    header: AnyUserData,
}

impl Objects {
    fn new(lua: &Lua) -> mlua::Result<Objects> {
        let (query, response) = (Subject::shared("dq"), Subject::shared("dr"));
        Ok(Objects {
            query: Object {
                value: lua.create_userdata(question::Question(query.clone()))?,
                header: lua.create_userdata(header::DnsHeader(query.clone()))?,
                subject: query,
            },
            response: Object {
                value: lua.create_userdata(response::DnsResponse(response.clone()))?,
                header: lua.create_userdata(header::DnsHeader(response.clone()))?,
                subject: response,
            },
        })
    }
}

/// The object that `select` names.
fn object(lua: &Lua, select: impl FnOnce(&Objects) -> &Object) -> mlua::Result<Object> {
    let objects = lua
        .app_data_ref::<Objects>()
        .ok_or_else(|| super::wrong("the state has lost its objects"))?;
    Ok(select(&objects).clone())
}

/// The object `dh` of a message: that of the state, or one of its own where the message was suspended.
fn header_of(lua: &Lua, subject: &Shared, own: Object) -> mlua::Result<AnyUserData> {
    match Arc::ptr_eq(subject, &own.subject) {
        true => Ok(own.header),
        false => lua.create_userdata(header::DnsHeader(Arc::clone(subject))),
    }
}
