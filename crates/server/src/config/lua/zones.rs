//! Zones of our own: functions of the table `millrace`.
//!
//! ```lua
//! millrace.addKey{name="k.", algorithm="hmac-sha256", secret="…"}
//! millrace.addZoneTemplate{name="ours", primaries={{address="192.0.2.1:53", key="k."}}}
//! millrace.addZone{name="example.com.", template="ours", acl={{action="transfer", address={"192.0.2.0/24"}, key="k."}}}
//! ```

mod keys;
mod peers;

use super::options::Options;
use super::servers::pool_names;
use super::{place, placed, spec, wrong};
use crate::config::zones::ZoneSpec;
use crate::local::{TransferBounds, ZoneSettings};
use mlua::{Lua, Table, Value};
use std::sync::Arc;
use wire::name::{Name, NameBuf};

/// What our own functions are found in.
pub(super) const TABLE: &str = "millrace";

/// Where the state keeps the tables of millrace.addZoneTemplate, by name.
const TEMPLATES: &str = "millrace.templates";

pub(super) fn register(lua: &Lua) -> mlua::Result<()> {
    let table = lua.create_table()?;
    lua.set_named_registry_value(TEMPLATES, lua.create_table()?)?;
    table.raw_set("addKey", placed(lua, "millrace.addKey", keys::add)?)?;
    table.raw_set("addZone", placed(lua, "millrace.addZone", add_zone)?)?;
    let add_template = placed(lua, "millrace.addZoneTemplate", add_template)?;
    table.raw_set("addZoneTemplate", add_template)?;
    let set_directory = placed(lua, "millrace.setStateDirectory", set_state_directory)?;
    table.raw_set("setStateDirectory", set_directory)?;
    lua.globals().raw_set(TABLE, table)
}

/// `millrace.setStateDirectory("/var/lib/millrace")`: where zones from primaries and journals are kept.
fn set_state_directory(lua: &Lua, path: String) -> mlua::Result<()> {
    let path = place::caller(lua).folder().join(path);
    spec(lua)?.zones.state_directory = Some(path);
    Ok(())
}

/// A file without a path is looked for beside the configuration.
fn add_zone(lua: &Lua, table: Table) -> mlua::Result<()> {
    let table = with_template(lua, table)?;
    let mut options = Options::new(lua, "millrace.addZone", Some(table));
    options.skip("template");
    let name: Option<String> = options.get("name")?;
    let name =
        name.ok_or_else(|| wrong("name: the zone's name is missing, as in name=\"example.com.\""))?;
    let apex = name_of(&name)?;
    let (pools, statistics) = serving(lua, &mut options)?;
    let place = place::caller(lua);
    if spec(lua)?.zones.has(&apex) {
        return Err(wrong(format!(
            "name: {apex} was added before: one zone has a name"
        )));
    }
    let settings = settings(lua, apex, &mut options)?;
    options.finish()?;
    if settings.file.is_none() && !settings.is_secondary() {
        return Err(wrong(
            "file: the zone's file is missing, as in file=\"example.com.zone\"; or primaries, as in primaries={{address=\"192.0.2.1\"}}",
        ));
    }
    spec(lua)?.zones.list.push(ZoneSpec {
        place,
        settings: Arc::new(settings),
        pools,
        statistics,
    });
    Ok(())
}

fn name_of(text: &str) -> mlua::Result<NameBuf> {
    text.parse()
        .map_err(|error| wrong(format!("name: '{text}': {error}")))
}

/// The pools that a zone serves, and whether it has counters of its own.
fn serving(lua: &Lua, options: &mut Options<'_>) -> mlua::Result<(Vec<String>, bool)> {
    let pools = options.get::<Value>("pool")?;
    let pools = pools.map(|names| pool_names(lua, names)).transpose()?;
    let statistics = options.flag("statistics")?.unwrap_or(false);
    Ok((pools.unwrap_or_default(), statistics))
}

/// All of a zone's options but its name, and what [`serving`] reads.
fn settings(lua: &Lua, apex: NameBuf, options: &mut Options<'_>) -> mlua::Result<ZoneSettings> {
    let mut settings = ZoneSettings::new(apex);
    let file: Option<String> = options.get("file")?;
    settings.file = file.map(|file| {
        let file = file.replace("%s", &file_name(&settings.apex));
        place::caller(lua).folder().join(file)
    });
    settings.primaries = peers::primaries(lua, options.get("primaries")?)?;
    settings.notify = peers::told(lua, options.get("notify")?)?;
    settings.notify_delay = options.seconds("notifyDelay")?.unwrap_or_default();
    settings.acl = peers::acl(lua, options.get("acl")?)?;
    let times = &mut settings.times;
    bounds(options, ["refreshMin", "refreshMax"], &mut times.refresh)?;
    bounds(options, ["retryMin", "retryMax"], &mut times.retry)?;
    bounds(options, ["expireMin", "expireMax"], &mut times.expire)?;
    if let Some(journal) = options.number("journalSize", "octets")? {
        settings.journal_octets = journal;
    }
    if let Some(most) = options.number("maxSize", "octets")? {
        settings.transfer.octets = most;
    }
    if let Some(duration) = options.seconds("transferTimeout")? {
        settings.transfer.duration = duration;
    }
    let TransferBounds { octets, duration } = settings.transfer;
    let zeros = [
        ("maxSize", octets == 0),
        ("transferTimeout", duration.is_zero()),
    ];
    match zeros.into_iter().find(|(_, is_zero)| *is_zero) {
        Some((option, _)) => Err(wrong(format!(
            "{option}: 0: more expected, nothing could be transferred in; without it, the default holds"
        ))),
        None => Ok(settings),
    }
}

/// What `%s` in a template's file stands for: the zone's name without the dot at its end.
fn file_name(apex: &NameBuf) -> String {
    let name = apex.to_string().to_ascii_lowercase();
    // A name may hold what leads out of the folder.
    name.trim_end_matches('.').replace('/', "\\047")
}

fn bounds(
    options: &mut Options<'_>,
    [least, most]: [&'static str; 2],
    bounds: &mut (u32, u32),
) -> mlua::Result<()> {
    if let Some(seconds) = options.number(least, "seconds")? {
        bounds.0 = seconds;
    }
    if let Some(seconds) = options.number(most, "seconds")? {
        bounds.1 = seconds;
    }
    if bounds.0 > bounds.1 {
        return Err(wrong(format!(
            "{least}: {} is more than {most}, which is {}",
            bounds.0, bounds.1
        )));
    }
    Ok(())
}

// ------------------------------------------------------------------------------------------ templates

fn add_template(lua: &Lua, table: Table) -> mlua::Result<()> {
    let name: Option<String> = table.raw_get("name")?;
    let name = name
        .ok_or_else(|| wrong("name: the template's name is missing, as in name=\"secondaries\""))?;
    let templates: Table = lua.named_registry_value(TEMPLATES)?;
    if templates.contains_key(name.as_str())? {
        return Err(wrong(format!("name: template '{name}' was added before")));
    }
    // Whatever is wrong with it is said here, not at the zones that use it.
    let copy = copied(lua, [&table])?;
    let mut options = Options::new(lua, "millrace.addZoneTemplate", Some(copy));
    options.skip("name");
    serving(lua, &mut options)?;
    settings(lua, Name::ROOT.to_owned(), &mut options)?;
    options.finish()?;
    let template = copied(lua, [&table])?;
    template.raw_set("name", Value::Nil)?;
    templates.raw_set(name, template)
}

/// The zone's options, and those of its template that it does not have.
fn with_template(lua: &Lua, table: Table) -> mlua::Result<Table> {
    let name = match table.raw_get::<Value>("template")? {
        Value::Nil => return Ok(table),
        name => lua
            .unpack::<String>(name)
            .map_err(|error| wrong(format!("template: {}", place::text_of(&error))))?,
    };
    let templates: Table = lua.named_registry_value(TEMPLATES)?;
    let template: Option<Table> = templates.raw_get(name.as_str())?;
    let template = template.ok_or_else(|| {
        wrong(format!(
            "template: there is no '{name}': a millrace.addZoneTemplate{{name=\"{name}\", …}} must stand before this line"
        ))
    })?;
    copied(lua, [&template, &table])
}

/// A table with the entries of all, the later ones over the earlier.
fn copied<const N: usize>(lua: &Lua, tables: [&Table; N]) -> mlua::Result<Table> {
    let copy = lua.create_table()?;
    for table in tables {
        for pair in table.pairs::<Value, Value>() {
            let (key, value) = pair?;
            copy.raw_set(key, value)?;
        }
    }
    Ok(copy)
}
