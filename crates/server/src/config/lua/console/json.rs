//! Tables of Lua as JSON in dnsdist's form: objects, keys sorted, `{"1": 1, "a": 2}`; a list is an object too.

use super::super::wrong;
use mlua::{Table, Value};
use std::collections::BTreeMap;

/// Tables within tables; deeper ones, and those that contain themselves, are cut.
const DEPTH_MAX: usize = 16;

/// Octets of the braces of a table, and of what stands around a key: `"": , `.
const BRACES: usize = 2;
const AROUND: usize = 6;

/// # Errors
/// It would take more than `most` octets, or a key has no text.
pub(super) fn text(table: &Table, most: usize) -> mlua::Result<String> {
    object(table, DEPTH_MAX, &mut Room { most, left: most })
}

/// What a text may take, in octets, and what is left of that: a table that is in others many times is shown as often, and
/// nine times in each of sixteen is for ever.
struct Room {
    most: usize,
    left: usize,
}

impl Room {
    fn take(&mut self, octets: usize) -> mlua::Result<()> {
        let left = self.left.checked_sub(octets);
        self.left = left.ok_or_else(|| {
            wrong(format!(
                "the table takes more than {} bytes: see setConsoleOutputMaxMsgSize",
                self.most
            ))
        })?;
        Ok(())
    }
}

fn object(table: &Table, depth: usize, room: &mut Room) -> mlua::Result<String> {
    room.take(BRACES)?;
    let mut members = BTreeMap::new();
    for pair in table.pairs::<Value, Value>() {
        let (key, value) = pair?;
        let key = plain(&key)?;
        room.take(key.len() + AROUND)?;
        members.insert(key, member(&value, depth, room)?);
    }
    let members = members
        .iter()
        .map(|(key, value)| format!("{}: {value}", quoted(key)));
    Ok(format!("{{{}}}", members.collect::<Vec<_>>().join(", ")))
}

fn member(value: &Value, depth: usize, room: &mut Room) -> mlua::Result<String> {
    let text = match value {
        Value::Boolean(_) | Value::Integer(_) => value.to_string()?,
        Value::Number(number) if number.is_finite() => value.to_string()?,
        Value::Nil | Value::Number(_) => "null".to_owned(),
        Value::Table(table) if depth > 0 => return object(table, depth - 1, room),
        Value::Table(_) => quoted("…"),
        other => quoted(&plain(other)?),
    };
    room.take(text.len())?;
    Ok(text)
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
