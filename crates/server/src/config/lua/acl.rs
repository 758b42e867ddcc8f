//! Who may ask: setACL and its relatives.

use super::objects::netmask::AnyNetmask;
use super::objects::netmask_group;
use super::{console, define, spec, wrong};
use crate::pipeline::acl::Netmask;
use mlua::{Lua, Value};
use std::collections::HashSet;

pub(super) fn register(lua: &Lua) -> mlua::Result<()> {
    define(lua, "setACL", |lua, masks: Value| {
        let masks = netmask_group::list(masks, lua)?;
        spec(lua)?.acl = distinct(masks);
        Ok(())
    })?;
    define(lua, "setACLFromFile", |lua, path: String| {
        let masks = read_file(&path)?;
        spec(lua)?.acl = distinct(masks);
        Ok(())
    })?;
    define(lua, "addACL", |lua, mask: AnyNetmask| {
        add(&mut spec(lua)?.acl, mask.0);
        Ok(())
    })?;
    define(lua, "rmACL", |lua, mask: AnyNetmask| {
        // Whatever is said of it there, as dnsdist 1.7.3 does.
        spec(lua)?
            .acl
            .retain(|entry| entry.network != mask.0.network);
        Ok(())
    })?;
    define(lua, "showACL", |lua, ()| {
        let masks = spec(lua)?.acl.clone();
        masks.iter().for_each(|mask| console::say(lua, mask));
        Ok(())
    })
}

/// Puts a netmask into a list, in place of what it says of this network: an ACL says one thing of each.
pub(super) fn add(masks: &mut Vec<Netmask>, mask: Netmask) {
    masks.retain(|entry| entry.network != mask.network);
    masks.push(mask);
}

/// A list in which the last word on a network is the only one.
pub(super) fn distinct(masks: Vec<Netmask>) -> Vec<Netmask> {
    let mut seen = HashSet::new();
    let last = masks.into_iter().rev();
    let mut masks: Vec<Netmask> = last.filter(|mask| seen.insert(mask.network)).collect();
    masks.reverse();
    masks
}

/// One netmask per line; what follows a `#` is for people.
fn read_file(path: &str) -> mlua::Result<Vec<Netmask>> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| wrong(format!("{path}: cannot be read: {error}")))?;
    let mut masks = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let mask = line.split('#').next().unwrap_or_default().trim();
        if !mask.is_empty() {
            masks.push(
                mask.parse()
                    .map_err(|error| wrong(format!("{path}:{}: {error}", number + 1)))?,
            );
        }
    }
    Ok(masks)
}
