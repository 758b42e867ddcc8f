//! Tags: selectors and actions on them.

use super::response_actions::ResponseActionObject;
use super::{actions, define, response_actions, selectors};
use crate::pipeline::rules::actions::tags::{SetTagAction, UnsetTagAction};
use crate::pipeline::rules::selectors::tags::TagRule;
use mlua::{Lua, LuaString};

pub(super) fn register(lua: &Lua) -> mlua::Result<()> {
    define(
        lua,
        "TagRule",
        |_, (name, value): (LuaString, Option<LuaString>)| {
            selectors::made(TagRule {
                name: octets(&name),
                value: value.as_ref().map(octets),
            })
        },
    )?;
    // Those without `Set` are the names before 1.6.
    for name in ["SetTagAction", "TagAction"] {
        define(lua, name, |_, tag: (LuaString, LuaString)| {
            actions::made(set(&tag))
        })?;
    }
    for name in ["SetTagResponseAction", "TagResponseAction"] {
        define(lua, name, |_, tag: (LuaString, LuaString)| {
            response_actions::response_made(set(&tag))
        })?;
    }
    define(lua, "UnsetTagAction", |_, name: LuaString| {
        actions::made(unset(&name))
    })?;
    define(
        lua,
        "UnsetTagResponseAction",
        |_, name: LuaString| -> mlua::Result<ResponseActionObject> {
            response_actions::response_made(unset(&name))
        },
    )
}

fn octets(text: &LuaString) -> Box<[u8]> {
    text.as_bytes()[..].into()
}

fn set((name, value): &(LuaString, LuaString)) -> SetTagAction {
    SetTagAction {
        name: octets(name),
        value: octets(value),
    }
}

fn unset(name: &LuaString) -> UnsetTagAction {
    UnsetTagAction { name: octets(name) }
}
