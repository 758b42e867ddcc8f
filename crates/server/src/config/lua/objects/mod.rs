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

use super::wrong;
use mlua::{Lua, UserData, Value};

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
    Err(wrong(format!(
        "{wanted} expected, got {}",
        super::options::shown(value)
    )))
}
