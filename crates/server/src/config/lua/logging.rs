//! What the configuration logs, and how lines look.

use super::options::Options;
use super::{define, spec, wrong};
use crate::log::{self, Priority, Shape, Times};
use mlua::{Lua, Table};

pub(super) fn register(lua: &Lua) -> mlua::Result<()> {
    for (name, priority) in LEVELS {
        define(lua, name, move |_, text: String| {
            log::write(priority, "lua", &text, &[]);
            Ok(())
        })?;
    }
    define(lua, "setVerbose", |lua, verbose| {
        spec(lua)?.logging.verbose = verbose;
        Ok(())
    })?;
    define(lua, "getVerbose", |lua, ()| Ok(spec(lua)?.logging.verbose))?;
    define(lua, "setStructuredLogging", set_structured_logging)
}

const LEVELS: [(&str, Priority); 4] = [
    ("errlog", Priority::Error),
    ("warnlog", Priority::Warning),
    ("infolog", Priority::Info),
    ("vinfolog", Priority::Debug),
];

fn set_structured_logging(lua: &Lua, (enable, table): (bool, Option<Table>)) -> mlua::Result<()> {
    let mut options = Options::new(lua, "setStructuredLogging", table);
    let backend: Option<String> = options.get("backend")?;
    let times: Option<String> = options.get("timeFormat")?;
    options.no_effect_yet(&["levelPrefix", "setInstanceFromServerID"])?;
    options.finish()?;
    let shape = match backend.as_deref() {
        _ if !enable => Shape::Plain,
        None | Some("default" | "systemd-journal") => Shape::Structured,
        Some("json") => Shape::Json,
        Some(other) => {
            return Err(wrong(format!(
                "backend: default, json or systemd-journal expected, got {other}"
            )));
        }
    };
    let mut spec = spec(lua)?;
    spec.logging.shape = shape;
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
