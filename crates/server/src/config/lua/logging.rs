//! What the configuration logs, and how lines look.

use super::options::{Flag, Options, shown};
use super::{define, spec, wrong};
use crate::log::{self, Facility, Priority, Shape, Times};
use mlua::{FromLua, Lua, LuaString, Table, Value};
use std::path::PathBuf;

pub(super) fn register(lua: &Lua) -> mlua::Result<()> {
    for (name, priority) in LEVELS {
        // Octets of a message may be in it: what is no UTF-8 is no reason to fail.
        define(lua, name, move |_, text: LuaString| {
            log::write(priority, "lua", &text.to_string_lossy(), &[]);
            Ok(())
        })?;
    }
    define(lua, "setVerbose", |lua, Flag(verbose): Flag| {
        spec(lua)?.logging.verbose = verbose;
        Ok(())
    })?;
    define(lua, "getVerbose", |lua, ()| Ok(spec(lua)?.logging.verbose))?;
    define(lua, "setStructuredLogging", set_structured_logging)?;
    define(lua, "setSyslogFacility", |lua, facility: Value| {
        let shown = shown(&facility);
        let found = match &facility {
            Value::String(name) => Facility::by_name(&name.to_string_lossy()),
            _ => u32::from_lua(facility, lua)
                .ok()
                .and_then(Facility::by_number),
        };
        let Some(facility) = found else {
            return Err(wrong(format!(
                "a facility of syslog expected (daemon, local0, …, or its number), got {shown}"
            )));
        };
        spec(lua)?.logging.outlets.syslog = Some(facility);
        Ok(())
    })?;
    define(lua, "setVerboseLogDestination", |lua, path: PathBuf| {
        // The file is opened when there is something to write.
        let folder = path
            .parent()
            .filter(|folder| !folder.as_os_str().is_empty());
        if folder.is_some_and(|folder| !folder.is_dir()) {
            let path = path.display();
            return Err(wrong(format!(
                "{path}: a file in a folder that exists expected"
            )));
        }
        spec(lua)?.logging.outlets.verbose_file = Some(path);
        Ok(())
    })
}

const LEVELS: [(&str, Priority); 4] = [
    ("errlog", Priority::Error),
    ("warnlog", Priority::Warning),
    ("infolog", Priority::Info),
    ("vinfolog", Priority::Debug),
];

fn set_structured_logging(
    lua: &Lua,
    (Flag(enable), table): (Flag, Option<Table>),
) -> mlua::Result<()> {
    let mut options = Options::new(lua, "setStructuredLogging", table);
    let backend: Option<String> = options.get("backend")?;
    let times: Option<String> = options.get("timeFormat")?;
    let priority_key: Option<String> = options.get("levelPrefix")?;
    let named = options.flag("setInstanceFromServerID")?.unwrap_or(false);
    options.finish()?;
    let shape = match backend.as_deref() {
        _ if !enable => Shape::Plain,
        None | Some("default") => Shape::Structured,
        Some("systemd-journal") => Shape::Journal,
        Some("json") => Shape::Json,
        Some(other) => {
            return Err(wrong(format!(
                "backend: default, json or systemd-journal expected, got {other}"
            )));
        }
    };
    let mut spec = spec(lua)?;
    spec.logging.shape = shape;
    spec.log_instance = named;
    if let Some(key) = priority_key.filter(|key| !key.is_empty()) {
        spec.logging.priority_key = key.into();
    }
    spec.logging.times = match times.as_deref() {
        None => spec.logging.times,
        Some("ISO8601") => Times::Iso8601,
        Some("numeric") => Times::Numeric,
        Some(other) => {
            return Err(wrong(format!(
                "timeFormat: ISO8601 or numeric expected, got {other}"
            )));
        }
    };
    Ok(())
}
