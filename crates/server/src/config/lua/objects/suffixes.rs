//! SuffixMatchNode.

use super::super::define;
use super::list_of;
use super::name::{AnyName, DnsName};
use crate::pipeline::rules::names::SuffixSet;
use mlua::{FromLua, Lua, UserData, UserDataMethods, Value};
use std::sync::Arc;
use wire::name::{Name, NameBuf};

pub(super) fn register(lua: &Lua) -> mlua::Result<()> {
    define(lua, "newSuffixMatchNode", |_, ()| {
        Ok(SuffixMatchNode::default())
    })
}

/// What newSuffixMatchNode returns. A rule has what was in it when the rule was made.
#[derive(Clone, Default)]
pub(in super::super) struct SuffixMatchNode(Arc<SuffixSet>);

/// Suffixes as functions take them: a SuffixMatchNode, a name, or a table of names.
pub(in super::super) struct AnySuffixes(pub(in super::super) Arc<SuffixSet>);

impl FromLua for AnySuffixes {
    fn from_lua(value: Value, lua: &Lua) -> mlua::Result<AnySuffixes> {
        if let Value::UserData(object) = &value
            && let Ok(node) = object.borrow::<SuffixMatchNode>()
        {
            return Ok(AnySuffixes(Arc::clone(&node.0)));
        }
        let names = names(value, lua)?;
        Ok(AnySuffixes(Arc::new(
            names.iter().map(NameBuf::as_name).collect(),
        )))
    }
}

/// One name or a table of names.
pub(super) fn names(value: Value, lua: &Lua) -> mlua::Result<Vec<NameBuf>> {
    let Value::Table(table) = value else {
        return Ok(vec![AnyName::from_lua(value, lua)?.0]);
    };
    let names = list_of::<AnyName>(&table)?;
    Ok(names.into_iter().map(|name| name.0).collect())
}

impl SuffixMatchNode {
    /// The longest suffix of `name` that is in the set.
    fn best(&self, name: &Name<'_>) -> Option<NameBuf> {
        name.suffixes()
            .find(|suffix| self.0.names().contains(suffix))
            .map(NameBuf::from)
    }
}

impl UserData for SuffixMatchNode {
    fn add_methods<M: UserDataMethods<Self>>(methods: &mut M) {
        methods.add_method_mut("add", |lua, node, added: Value| {
            for name in names(added, lua)? {
                Arc::make_mut(&mut node.0).insert(&name.as_name());
            }
            Ok(())
        });
        methods.add_method_mut("remove", |lua, node, removed: Value| {
            for name in names(removed, lua)? {
                Arc::make_mut(&mut node.0).remove(&name.as_name());
            }
            Ok(())
        });
        methods.add_method("check", |_, node, name: AnyName| {
            Ok(node.best(&name.0.as_name()).is_some())
        });
        methods.add_method("getBestMatch", |_, node, name: AnyName| {
            Ok(node.best(&name.0.as_name()).map(DnsName))
        });
    }
}
