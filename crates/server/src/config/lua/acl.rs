//! Who may ask: setACL and its relatives.

use super::objects::netmask::AnyNetmask;
use super::objects::netmask_group;
use super::{console, define, spec, wrong};
use crate::pipeline::acl::Netmask;
use mlua::{Lua, Value};

pub(super) fn register(lua: &Lua) -> mlua::Result<()> {
    define(lua, "setACL", |lua, masks: Value| {
        let masks = netmask_group::list(masks, lua)?;
        spec(lua)?.acl = masks;
        Ok(())
    })?;
    define(lua, "setACLFromFile", |lua, path: String| {
        let masks = read_file(&path)?;
        spec(lua)?.acl = masks;
        Ok(())
    })?;
    define(lua, "addACL", |lua, mask: AnyNetmask| {
        spec(lua)?.acl.push(mask.0);
        Ok(())
    })?;
    define(lua, "rmACL", |lua, mask: AnyNetmask| {
        spec(lua)?.acl.retain(|entry| *entry != mask.0);
        Ok(())
    })?;
    define(lua, "showACL", |lua, ()| {
        let masks = spec(lua)?.acl.clone();
        masks.iter().for_each(|mask| console::say(lua, mask));
        Ok(())
    })
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
