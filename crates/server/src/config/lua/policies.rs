//! Policies: which server of a pool is asked.

use super::objects::{object, pool};
use super::{define, spec, wrong};
use crate::backend::policy::Policy;
use mlua::{FromLua, Lua, MetaMethod, UserData, UserDataFields, UserDataMethods, Value};

pub(super) fn register(lua: &Lua) -> mlua::Result<()> {
    for (name, policy) in Policy::ALL {
        lua.globals().raw_set(name, PolicyObject(policy))?;
    }
    define(lua, "setServerPolicy", |lua, policy: PolicyObject| {
        spec(lua)?.policy = policy.0;
        Ok(())
    })?;
    define(
        lua,
        "setPoolServerPolicy",
        |lua, (policy, name): (PolicyObject, String)| {
            pool::make(lua, &name)?;
            spec(lua)?.pool(&name).policy = Some(policy.0);
            Ok(())
        },
    )
}

/// What the globals named after policies hold.
#[derive(Clone, Copy)]
struct PolicyObject(Policy);

/// `race(2)`: of all servers that are up, two are asked at once.
fn limited(policy: Policy, servers: i64) -> mlua::Result<PolicyObject> {
    let width = u8::try_from(servers).ok().filter(|width| *width >= 2);
    match (policy, width) {
        (Policy::Race { .. }, Some(width)) => Ok(PolicyObject(Policy::Race { width })),
        (Policy::Race { .. }, None) => Err(wrong(format!(
            "race({servers}): a number of servers from 2 to 255 expected"
        ))),
        _ => Err(wrong(format!(
            "{}: a policy, not a function: only race takes a number of servers",
            policy.name()
        ))),
    }
}

impl FromLua for PolicyObject {
    fn from_lua(value: Value, _: &Lua) -> mlua::Result<PolicyObject> {
        object(&value, "a policy")
    }
}

impl UserData for PolicyObject {
    fn add_fields<F: UserDataFields<Self>>(fields: &mut F) {
        fields.add_field_method_get("name", |_, policy| Ok(policy.0.name()));
    }

    fn add_methods<M: UserDataMethods<Self>>(methods: &mut M) {
        methods.add_method("toString", |_, policy, ()| Ok(policy.0.name()));
        methods.add_meta_method(MetaMethod::ToString, |_, policy, ()| Ok(policy.0.name()));
        methods.add_meta_method(MetaMethod::Call, |_, policy, servers: i64| {
            limited(policy.0, servers)
        });
    }
}
