//! LuaAction, LuaRule, LuaResponseAction and the functions of Lua policies.

use super::super::callback::Callback;
use super::super::policies::PolicyObject;
use super::super::selectors::{self, SelectorObject};
use super::super::{actions, define, objects, response_actions, spec, wrong};
use super::policy::{self, LuaPolicy};
use super::verdicts::{LuaAction, LuaResponseAction, LuaRule};
use crate::backend::policy::Policy;
use crate::pipeline::route::Chooser;
use mlua::{Function, Lua, Value};
use std::sync::Arc;

pub(super) fn register(lua: &Lua) -> mlua::Result<()> {
    policy::register(lua);
    define(lua, "LuaAction", |lua, function: Value| {
        actions::made(LuaAction(callback(lua, "LuaAction", &function)?))
    })?;
    define(lua, "LuaResponseAction", |lua, function: Value| {
        let callback = callback(lua, "LuaResponseAction", &function)?;
        response_actions::response_made(LuaResponseAction(callback))
    })?;
    define(
        lua,
        "LuaRule",
        |lua, function: Value| -> mlua::Result<SelectorObject> {
            selectors::made(LuaRule(callback(lua, "LuaRule", &function)?))
        },
    )?;
    policies(lua)
}

fn policies(lua: &Lua) -> mlua::Result<()> {
    define(
        lua,
        "newServerPolicy",
        |lua, (name, function): (String, Value)| {
            let policy = policy(lua, "newServerPolicy", name, &function)?;
            Ok(PolicyObject::Function(policy))
        },
    )?;
    define(
        lua,
        "setServerPolicyLua",
        |lua, (name, function): (String, Value)| {
            let policy = policy(lua, "setServerPolicyLua", name, &function)?;
            let mut spec = spec(lua)?;
            // One that asked several servers would go on to.
            spec.policy = Policy::default();
            spec.chooser = Some(policy as Arc<dyn Chooser>);
            Ok(())
        },
    )?;
    define(
        lua,
        "setPoolServerPolicyLua",
        |lua, (name, function, pool): (String, Value, String)| {
            let policy = policy(lua, "setPoolServerPolicyLua", name, &function)?;
            objects::pool::make(lua, &pool)?;
            let mut spec = spec(lua)?;
            let pool = spec.pool(&pool);
            pool.policy = None;
            pool.chooser = Some(policy as Arc<dyn Chooser>);
            Ok(())
        },
    )
}

fn policy(
    lua: &Lua,
    what: &'static str,
    name: String,
    function: &Value,
) -> mlua::Result<Arc<LuaPolicy>> {
    let callback = callback(lua, what, function)?;
    Ok(Arc::new(LuaPolicy { name, callback }))
}

/// A function, or the name of a global one.
fn callback(lua: &Lua, what: &'static str, function: &Value) -> mlua::Result<Callback> {
    let function = match function {
        Value::Function(function) => function.clone(),
        Value::String(name) => lua.globals().get::<Function>(name).map_err(|_| {
            let name = name.to_string_lossy();
            wrong(format!(
                "'{name}' is no function that this file defines before this line"
            ))
        })?,
        other => {
            let shown = super::super::options::shown(other);
            return Err(wrong(format!("a function expected, got {shown}")));
        }
    };
    Ok(Callback::new(lua, what, function))
}
