//! NetmaskGroup.

use super::super::{define, wrong};
use super::address::AnyAddress;
use super::list_of;
use super::netmask::AnyNetmask;
use crate::pipeline::acl::{Netmask, Netmasks};
use mlua::{FromLua, Lua, MetaMethod, UserData, UserDataMethods, Value};
use std::sync::Arc;

pub(super) fn register(lua: &Lua) -> mlua::Result<()> {
    define(lua, "newNMG", |_, masks: Option<AnyNetmasks>| {
        Ok(NetmaskGroup(masks.unwrap_or_default().0))
    })
}

/// What newNMG returns. A rule has what was in it when the rule was made.
#[derive(Clone, Default)]
pub(in super::super) struct NetmaskGroup(Arc<Netmasks>);

/// Netmasks as functions take them: a NetmaskGroup, a netmask, or a table of netmasks.
#[derive(Default)]
pub(in super::super) struct AnyNetmasks(pub(in super::super) Arc<Netmasks>);

impl FromLua for AnyNetmasks {
    fn from_lua(value: Value, lua: &Lua) -> mlua::Result<AnyNetmasks> {
        if let Value::UserData(object) = &value
            && let Ok(group) = object.borrow::<NetmaskGroup>()
        {
            return Ok(AnyNetmasks(Arc::clone(&group.0)));
        }
        Ok(AnyNetmasks(Arc::new(
            list(value, lua)?.into_iter().collect(),
        )))
    }
}

/// One netmask or a table of netmasks, in the order in which they are written.
pub(in super::super) fn list(value: Value, lua: &Lua) -> mlua::Result<Vec<Netmask>> {
    let Value::Table(table) = value else {
        return Ok(vec![AnyNetmask::from_lua(value, lua)?.0]);
    };
    let masks = list_of::<AnyNetmask>(&table)?;
    Ok(masks.into_iter().map(|mask| mask.0).collect())
}

/// What `addMasks` takes: a list, or addresses as keys, as the `exceed…` functions return them.
fn masks_of_table(value: Value, lua: &Lua) -> mlua::Result<Vec<Netmask>> {
    let Value::Table(table) = value else {
        return Err(wrong("a table of netmasks expected"));
    };
    let mut masks = Vec::new();
    for pair in table.pairs::<Value, Value>() {
        let mask = match pair? {
            (Value::Integer(_) | Value::Number(_), mask) => mask,
            (address, _) => address,
        };
        masks.push(AnyNetmask::from_lua(mask, lua)?.0);
    }
    Ok(masks)
}

impl NetmaskGroup {
    fn text(&self) -> String {
        format!("NetmaskGroup {}", self.0)
    }
}

impl UserData for NetmaskGroup {
    fn add_methods<M: UserDataMethods<Self>>(methods: &mut M) {
        methods.add_method_mut("addMask", |_, group, mask: AnyNetmask| {
            Arc::make_mut(&mut group.0).insert(mask.0);
            Ok(())
        });
        methods.add_method_mut("addMasks", |lua, group, masks: Value| {
            for mask in masks_of_table(masks, lua)? {
                Arc::make_mut(&mut group.0).insert(mask);
            }
            Ok(())
        });
        methods.add_method_mut("addNMG", |_, group, other: AnyNetmasks| {
            for mask in other.0.iter() {
                Arc::make_mut(&mut group.0).insert(mask);
            }
            Ok(())
        });
        methods.add_method_mut("clear", |_, group, ()| {
            group.0 = Arc::default();
            Ok(())
        });
        methods.add_method("match", |_, group, address: AnyAddress| {
            Ok(group.0.contains(address.0.ip()))
        });
        methods.add_method("size", |_, group, ()| Ok(group.0.len()));
        methods.add_method("toString", |_, group, ()| Ok(group.text()));
        methods.add_meta_method(MetaMethod::ToString, |_, group, ()| Ok(group.text()));
    }
}
