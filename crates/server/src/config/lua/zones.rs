//! Zones of our own: the table `millrace`.

use super::options::Options;
use super::servers::pool_names;
use super::{place, spec, wrong};
use crate::config::spec::ZoneSpec;
use mlua::{Lua, Table, Value};
use wire::name::NameBuf;

/// What our own functions are found in.
pub(super) const TABLE: &str = "millrace";

pub(super) fn register(lua: &Lua) -> mlua::Result<()> {
    let table = lua.create_table()?;
    let add = lua.create_function(|lua, options: Table| {
        add_zone(lua, options).map_err(|error| place::located(lua, "millrace.addZone", &error))
    })?;
    table.raw_set("addZone", add)?;
    lua.globals().raw_set(TABLE, table)
}

/// `millrace.addZone{name="example.com.", file="example.com.zone"}`: a file without a path is looked for beside the
/// configuration.
fn add_zone(lua: &Lua, table: Table) -> mlua::Result<()> {
    let mut options = Options::new(lua, "millrace.addZone", Some(table));
    let name: Option<String> = options.get("name")?;
    let name =
        name.ok_or_else(|| wrong("name: the zone's name is missing, as in name=\"example.com.\""))?;
    let apex: NameBuf = name
        .parse()
        .map_err(|error| wrong(format!("name: '{name}': {error}")))?;
    let file: Option<String> = options.get("file")?;
    let file = file.ok_or_else(|| {
        wrong("file: the zone's file is missing, as in file=\"example.com.zone\"")
    })?;
    // Without them the zone would be another one than its primaries'.
    options.not_yet(&["primaries", "template"])?;
    options.no_effect_yet(&["notify", "acl"])?;
    let pools = options.get::<Value>("pool")?;
    let pools = pools.map(|names| pool_names(lua, names)).transpose()?;
    let statistics = options.flag("statistics")?.unwrap_or(false);
    options.finish()?;
    let place = place::caller(lua);
    let mut spec = spec(lua)?;
    if spec.zones.iter().any(|zone| zone.apex == apex) {
        return Err(wrong(format!(
            "name: {apex} was added before: one zone has a name"
        )));
    }
    let file = place.folder().join(file);
    spec.zones.push(ZoneSpec {
        place,
        apex,
        file,
        pools: pools.unwrap_or_default(),
        statistics,
    });
    Ok(())
}
