//! Policies: which server of a pool is asked.

use super::objects::server::ServerObject;
use super::objects::{object, pool};
use super::options::shown;
use super::query::{LuaPolicy, run_built_in};
use super::{define, spec, wrong};
use crate::backend::policy::Policy;
use crate::config::lua::objects::unknown_is_nil;
use crate::pipeline::route::Chooser;
use mlua::{
    AnyUserData, FromLua, Lua, MetaMethod, UserData, UserDataFields, UserDataMethods, Value,
};
use std::sync::Arc;

pub(super) fn register(lua: &Lua) -> mlua::Result<()> {
    for (name, policy) in Policy::ALL {
        lua.globals().raw_set(name, PolicyObject::BuiltIn(policy))?;
    }
    define(lua, "setServerPolicy", |lua, policy: PolicyObject| {
        let mut spec = spec(lua)?;
        spec.policy = policy.built_in().unwrap_or_default();
        spec.chooser = policy.chooser();
        Ok(())
    })?;
    define(
        lua,
        "setPoolServerPolicy",
        |lua, (policy, name): (PolicyObject, String)| {
            pool::make(lua, &name)?;
            let mut spec = spec(lua)?;
            let pool = spec.pool(&name);
            pool.policy = policy.built_in();
            pool.chooser = policy.chooser();
            Ok(())
        },
    )
}

/// What the globals named after policies hold, and what newServerPolicy makes.
#[derive(Clone)]
pub(super) enum PolicyObject {
    BuiltIn(Policy),
    Function(Arc<LuaPolicy>),
}

impl PolicyObject {
    fn built_in(&self) -> Option<Policy> {
        match self {
            PolicyObject::BuiltIn(policy) => Some(*policy),
            PolicyObject::Function(_) => None,
        }
    }

    fn chooser(&self) -> Option<Arc<dyn Chooser>> {
        match self {
            PolicyObject::BuiltIn(_) => None,
            PolicyObject::Function(policy) => Some(Arc::clone(policy) as Arc<dyn Chooser>),
        }
    }

    /// As dnsdist 1.7.3 shows it.
    fn text(&self) -> String {
        let kind = match self {
            PolicyObject::BuiltIn(_) => "",
            PolicyObject::Function(_) => " (Lua)",
        };
        format!("ServerPolicy{kind} \"{}\"", self.name())
    }

    fn name(&self) -> String {
        match self {
            PolicyObject::BuiltIn(policy) => policy.shown().into_owned(),
            PolicyObject::Function(policy) => policy.name().to_owned(),
        }
    }
}

/// `race(2)`: of all servers that are up, two are asked at once.
fn limited(policy: &PolicyObject, servers: &Value) -> mlua::Result<PolicyObject> {
    let Some(Policy::Race { .. }) = policy.built_in() else {
        return Err(wrong(format!(
            "{}: a policy, not a function: only race takes a number of servers",
            policy.name()
        )));
    };
    let width = whole(servers).and_then(|servers| u8::try_from(servers).ok());
    match width.filter(|width| *width >= 2) {
        Some(width) => Ok(PolicyObject::BuiltIn(Policy::Race { width })),
        None => Err(wrong(format!(
            "race({}): a number of servers from 2 to 255 expected; race without brackets asks all",
            given(servers)
        ))),
    }
}

/// A number without a fraction; LuaJIT has no others than floating ones.
fn whole(value: &Value) -> Option<i64> {
    match value {
        Value::Integer(number) => Some(*number),
        Value::Number(number) => Some(*number as i64).filter(|whole| *whole as f64 == *number),
        _ => None,
    }
}

/// What stood between the brackets.
fn given(value: &Value) -> String {
    match value {
        Value::Nil => String::new(),
        value => shown(value),
    }
}

/// `leastOutstanding.policy(servers, dq)`, for functions that choose among policies.
fn function_of(lua: &Lua, policy: &PolicyObject) -> mlua::Result<mlua::Function> {
    match policy.clone() {
        PolicyObject::BuiltIn(policy) => lua.create_function(
            move |lua, (servers, dq): (Vec<ServerObject>, AnyUserData)| {
                run_built_in(lua, policy, servers, &dq)
            },
        ),
        PolicyObject::Function(policy) => Ok(policy.function()),
    }
}

impl FromLua for PolicyObject {
    fn from_lua(value: Value, _: &Lua) -> mlua::Result<PolicyObject> {
        object(&value, "a policy")
    }
}

impl UserData for PolicyObject {
    fn add_fields<F: UserDataFields<Self>>(fields: &mut F) {
        unknown_is_nil(fields);
        fields.add_field_method_get("name", |_, policy| Ok(policy.name()));
        fields.add_field_method_get("isLua", |_, policy| Ok(policy.built_in().is_none()));
        for name in ["isFFI", "isPerThread"] {
            fields.add_field_method_get(name, |_, _| Ok(false));
        }
        fields.add_field_method_get("policy", function_of);
    }

    fn add_methods<M: UserDataMethods<Self>>(methods: &mut M) {
        methods.add_method("toString", |_, policy, ()| Ok(policy.text()));
        methods.add_meta_method(MetaMethod::ToString, |_, policy, ()| Ok(policy.text()));
        methods.add_meta_method(MetaMethod::Call, |_, policy, servers: Value| {
            limited(policy, &servers)
        });
    }
}
