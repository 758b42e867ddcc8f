//! DNSNameSet.

use super::super::define;
use super::name::{AnyName, without_dot};
use super::suffixes::names;
use crate::pipeline::rules::names::NameSet;
use mlua::{FromLua, Lua, MetaMethod, UserData, UserDataMethods, Value};
use std::sync::Arc;
use wire::name::NameBuf;

pub(super) fn register(lua: &Lua) -> mlua::Result<()> {
    define(lua, "newDNSNameSet", |_, ()| Ok(DnsNameSet::default()))
}

/// What newDNSNameSet returns. A rule has what was in it when the rule was made.
#[derive(Clone, Default)]
struct DnsNameSet(Arc<NameSet>);

/// Names as QNameSetRule takes them: a DNSNameSet, a name, or a table of names.
pub(in super::super) struct AnyNameSet(pub(in super::super) Arc<NameSet>);

impl FromLua for AnyNameSet {
    fn from_lua(value: Value, lua: &Lua) -> mlua::Result<AnyNameSet> {
        if let Value::UserData(object) = &value
            && let Ok(set) = object.borrow::<DnsNameSet>()
        {
            return Ok(AnyNameSet(Arc::clone(&set.0)));
        }
        let names = names(value, lua)?;
        Ok(AnyNameSet(Arc::new(
            names.iter().map(NameBuf::as_name).collect(),
        )))
    }
}

impl DnsNameSet {
    /// A line for each, without the last dot: as dnsdist 1.7.3 shows them.
    fn text(&self) -> String {
        let mut names: Vec<String> = self.0.iter().map(|name| without_dot(&name)).collect();
        names.sort_unstable();
        names.iter().map(|name| format!("{name}\n")).collect()
    }
}

impl UserData for DnsNameSet {
    fn add_methods<M: UserDataMethods<Self>>(methods: &mut M) {
        methods.add_method_mut("add", |_, set, name: AnyName| {
            Ok(Arc::make_mut(&mut set.0).insert(&name.0.as_name()))
        });
        methods.add_method_mut("delete", |_, set, name: AnyName| {
            Ok(i32::from(
                Arc::make_mut(&mut set.0).remove(&name.0.as_name()),
            ))
        });
        methods.add_method_mut("clear", |_, set, ()| {
            set.0 = Arc::default();
            Ok(())
        });
        methods.add_method("check", |_, set, name: AnyName| {
            Ok(set.0.contains(&name.0.as_name()))
        });
        methods.add_method("empty", |_, set, ()| Ok(set.0.is_empty()));
        methods.add_method("size", |_, set, ()| Ok(set.0.len()));
        methods.add_method("toString", |_, set, ()| Ok(set.text()));
        methods.add_meta_method(MetaMethod::ToString, |_, set, ()| Ok(set.text()));
    }
}
