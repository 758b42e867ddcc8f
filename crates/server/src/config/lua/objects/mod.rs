//! The classes of the dialect, each in a file of its own, with the functions that make their objects.

pub(super) mod address;
pub(super) mod cache;
mod ipcipher;
mod limiter;
pub(super) mod name;
pub(super) mod name_set;
pub(super) mod netmask;
pub(super) mod netmask_group;
mod overlay;
pub(super) mod pool;
pub(super) mod server;
pub(super) mod suffixes;
mod timed_set;

use super::options::shown;
use super::wrong;
use mlua::{FromLua, Lua, MetaMethod, Table, UserData, UserDataFields, Value};

pub(super) fn register(lua: &Lua) -> mlua::Result<()> {
    address::register(lua)?;
    limiter::register(lua)?;
    name::register(lua)?;
    name_set::register(lua)?;
    netmask::register(lua)?;
    netmask_group::register(lua)?;
    overlay::register(lua)?;
    pool::register(lua)?;
    timed_set::register(lua)?;
    suffixes::register(lua)
}

/// The items of a list, in the order of their places. For Lua a list ends at its first hole: what stands behind a variable that
/// was never set, or behind an item that was taken out, would be lost without a word.
pub(super) fn list_of<T: FromLua>(table: &Table) -> mlua::Result<Vec<T>> {
    let pairs = table.pairs::<Place, T>();
    let mut items = pairs.collect::<mlua::Result<Vec<_>>>()?;
    items.sort_by_key(|(Place(place), _)| *place);
    Ok(items.into_iter().map(|(_, item)| item).collect())
}

/// Where an item stands in its list.
struct Place(i64);

impl FromLua for Place {
    fn from_lua(value: Value, _: &Lua) -> mlua::Result<Place> {
        match value {
            Value::Integer(place) => Ok(Place(place)),
            other => Err(wrong(format!(
                "a list expected, got a table with the key {}",
                shown(&other)
            ))),
        }
    }
}

/// A name that the class `T` does not have is nil, as in dnsdist, where files ask so for what there is; who calls it is told its name
/// (`place::readable`). To be said of classes that have attributes, or nothing at all; of those with methods alone it is so anyway.
pub(super) fn unknown_is_nil<T, F: UserDataFields<T>>(fields: &mut F) {
    fields.add_meta_field_with(MetaMethod::Index, Lua::create_table);
}

/// A copy of the object of class `T` in `value`; `wanted` tells people what that is.
pub(super) fn object<T: UserData + Clone + 'static>(
    value: &Value,
    wanted: &str,
) -> mlua::Result<T> {
    if let Value::UserData(object) = value
        && let Ok(object) = object.borrow::<T>()
    {
        return Ok(object.clone());
    }
    Err(wrong(format!("{wanted} expected, got {}", shown(value))))
}
