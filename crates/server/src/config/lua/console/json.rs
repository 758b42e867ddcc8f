//! Tables of Lua as JSON in dnsdist's form: objects, keys sorted, `{"1": 1, "a": 2}`; a list is an object too.

use mlua::{Table, Value};
use std::collections::BTreeMap;

/// Tables within tables; deeper ones, and those that contain themselves, are cut.
const DEPTH_MAX: usize = 16;

pub(super) fn text(table: &Table) -> mlua::Result<String> {
    object(table, DEPTH_MAX)
}

fn object(table: &Table, depth: usize) -> mlua::Result<String> {
    let mut members = BTreeMap::new();
    for pair in table.pairs::<Value, Value>() {
        let (key, value) = pair?;
        members.insert(plain(&key)?, member(&value, depth)?);
    }
    let members = members
        .iter()
        .map(|(key, value)| format!("{}: {value}", quoted(key)));
    Ok(format!("{{{}}}", members.collect::<Vec<_>>().join(", ")))
}

fn member(value: &Value, depth: usize) -> mlua::Result<String> {
    Ok(match value {
        Value::Boolean(_) | Value::Integer(_) => value.to_string()?,
        Value::Number(number) if number.is_finite() => value.to_string()?,
        Value::Nil | Value::Number(_) => "null".to_owned(),
        Value::Table(table) if depth > 0 => object(table, depth - 1)?,
        Value::Table(_) => quoted("…"),
        other => quoted(&plain(other)?),
    })
}

/// A text of Lua may be of any octets, and what is no UTF-8 is no reason to fail.
fn plain(value: &Value) -> mlua::Result<String> {
    match value {
        Value::String(text) => Ok(text.to_string_lossy()),
        other => other.to_string(),
    }
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
