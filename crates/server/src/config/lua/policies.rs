//! Policies: which server of a pool is asked.

use super::objects::{object, pool};
use super::{define, spec, wrong};
use crate::backend::policy::Policy;
use mlua::{FromLua, Lua, MetaMethod, UserData, UserDataFields, UserDataMethods, Value};

pub(super) fn register(lua: &Lua) -> mlua::Result<()> {
    for (name, policy) in POLICIES {
        lua.globals().raw_set(name, PolicyObject { name, policy })?;
    }
    define(lua, "setServerPolicy", |lua, policy: PolicyObject| {
        spec(lua)?.policy = policy.known()?;
        Ok(())
    })?;
    define(
        lua,
        "setPoolServerPolicy",
        |lua, (policy, name): (PolicyObject, String)| {
            pool::number(lua, &name)?;
            spec(lua)?.pool(&name).policy = Some(policy.known()?);
            Ok(())
        },
    )
}

/// dnsdist's policies are globals; `None` are those that are not there yet.
const POLICIES: [(&str, Option<Policy>); 7] = [
    ("leastOutstanding", Some(Policy::LeastOutstanding)),
    ("firstAvailable", Some(Policy::FirstAvailable)),
    ("roundrobin", Some(Policy::RoundRobin)),
    ("wrandom", None),
    ("whashed", None),
    ("chashed", None),
    ("orderedWrandUntag", None),
];

#[derive(Clone, Copy)]
struct PolicyObject {
    name: &'static str,
    policy: Option<Policy>,
}

impl PolicyObject {
    fn known(self) -> mlua::Result<Policy> {
        self.policy.ok_or_else(|| {
            wrong(format!("{} is not in millrace yet: it would change who is asked; leastOutstanding, firstAvailable and roundrobin are", self.name))
        })
    }
}

impl FromLua for PolicyObject {
    fn from_lua(value: Value, _: &Lua) -> mlua::Result<PolicyObject> {
        object(&value, "a policy")
    }
}

impl UserData for PolicyObject {
    fn add_fields<F: UserDataFields<Self>>(fields: &mut F) {
        fields.add_field_method_get("name", |_, policy| Ok(policy.name));
    }

    fn add_methods<M: UserDataMethods<Self>>(methods: &mut M) {
        methods.add_method("toString", |_, policy, ()| Ok(policy.name));
        methods.add_meta_method(MetaMethod::ToString, |_, policy, ()| Ok(policy.name));
    }
}
