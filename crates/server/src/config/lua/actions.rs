//! Actions on queries, by the functions that make them.

use super::objects::{object, pool};
use super::options::{Flag, Options};
use super::{console, define};
use crate::pipeline::rules::Action;
use crate::pipeline::rules::actions::answer::{AnswerFlags, ERCodeAction, RCodeAction, TCAction};
use crate::pipeline::rules::actions::limit::{DropAction, QPSAction};
use crate::pipeline::rules::actions::pass::{
    AllowAction, ContinueAction, HTTPStatusAction, NoneAction, SetDisableValidationAction,
    SetNoRecurseAction, SetSkipCacheAction,
};
use crate::pipeline::rules::actions::route::{PoolAction, QPSPoolAction};
use mlua::{FromLua, Lua, LuaString, MetaMethod, Table, UserData, UserDataMethods, Value};
use std::sync::Arc;

pub(super) fn register(lua: &Lua) -> mlua::Result<()> {
    answers(lua)?;
    limits(lua)?;
    passes(lua)?;
    pools(lua)
}

fn answers(lua: &Lua) -> mlua::Result<()> {
    define(
        lua,
        "RCodeAction",
        |lua, (rcode, options): (u8, Option<Table>)| {
            made(RCodeAction::with_flags(
                rcode,
                answer_flags(lua, "RCodeAction", options)?,
            ))
        },
    )?;
    define(
        lua,
        "ERCodeAction",
        |lua, (rcode, options): (u16, Option<Table>)| {
            made(ERCodeAction::with_flags(
                rcode,
                answer_flags(lua, "ERCodeAction", options)?,
            ))
        },
    )?;
    type Status = (u16, LuaString, Option<LuaString>, Option<Table>);
    define(
        lua,
        "HTTPStatusAction",
        |lua, (status, _, _, options): Status| {
            answer_flags(lua, "HTTPStatusAction", options)?;
            made(HTTPStatusAction { status })
        },
    )?;
    define(lua, "TCAction", |_, ()| made(TCAction))
}

fn limits(lua: &Lua) -> mlua::Result<()> {
    define(lua, "DropAction", |_, ()| made(DropAction))?;
    define(lua, "QPSAction", |_, qps| made(QPSAction::new(qps)))
}

/// Those without `Set` are the names before 1.6.
fn passes(lua: &Lua) -> mlua::Result<()> {
    define(lua, "AllowAction", |_, ()| made(AllowAction))?;
    define(lua, "NoneAction", |_, ()| made(NoneAction))?;
    define(lua, "ContinueAction", |_, action: ActionObject| {
        made(ContinueAction(action.0))
    })?;
    for name in ["SetSkipCacheAction", "SkipCacheAction"] {
        define(lua, name, |_, ()| made(SetSkipCacheAction))?;
    }
    for name in ["SetNoRecurseAction", "NoRecurseAction"] {
        define(lua, name, |_, ()| made(SetNoRecurseAction))?;
    }
    for name in ["SetDisableValidationAction", "DisableValidationAction"] {
        define(lua, name, |_, ()| made(SetDisableValidationAction))?;
    }
    Ok(())
}

fn pools(lua: &Lua) -> mlua::Result<()> {
    define(lua, "PoolAction", |lua, (name, stop)| {
        made(pool_action(lua, name, stop)?)
    })?;
    define(
        lua,
        "QPSPoolAction",
        |lua, (qps, name, stop): (u32, String, Option<Flag>)| {
            made(QPSPoolAction::new(qps, pool_action(lua, name, stop)?))
        },
    )
}

fn pool_action(lua: &Lua, name: String, stop: Option<Flag>) -> mlua::Result<PoolAction> {
    Ok(PoolAction {
        pool: pool::number(lua, &name)?,
        name,
        stop: Flag::or(stop, true),
    })
}

/// `{aa=, ad=, ra=}` of the actions that answer.
fn answer_flags(
    lua: &Lua,
    function: &'static str,
    table: Option<Table>,
) -> mlua::Result<AnswerFlags> {
    let mut options = Options::new(lua, function, table);
    let flags = answer_flags_of(&mut options)?;
    options.finish()?;
    Ok(flags)
}

pub(super) fn answer_flags_of(options: &mut Options<'_>) -> mlua::Result<AnswerFlags> {
    Ok(AnswerFlags {
        aa: options.flag("aa")?,
        ad: options.flag("ad")?,
        ra: options.flag("ra")?,
    })
}

/// What the functions of this file return.
#[derive(Clone)]
pub(super) struct ActionObject(pub(super) Arc<dyn Action>);

pub(super) fn made(action: impl Action + 'static) -> mlua::Result<ActionObject> {
    Ok(ActionObject(Arc::new(action)))
}

impl FromLua for ActionObject {
    fn from_lua(value: Value, _: &Lua) -> mlua::Result<ActionObject> {
        object(&value, "an action")
    }
}

impl UserData for ActionObject {
    fn add_methods<M: UserDataMethods<Self>>(methods: &mut M) {
        methods.add_method("toString", |_, action, ()| Ok(action.0.describe()));
        methods.add_method("reload", |_, action, ()| {
            action.0.reload();
            Ok(())
        });
        methods.add_method("getStats", |lua, action, ()| {
            lua.create_table_from(action.0.statistics())
        });
        methods.add_method("printStats", |lua, action, ()| {
            for (name, count) in action.0.statistics() {
                console::say(lua, format!("{name}\t{count}"));
            }
            Ok(())
        });
        methods.add_meta_method(MetaMethod::ToString, |_, action, ()| {
            Ok(action.0.describe())
        });
    }
}
