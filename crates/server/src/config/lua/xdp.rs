//! AF_XDP beyond dnsdist's words: functions of the table `millrace`.

use super::{spec, zones};
use mlua::{Lua, Table};

pub(super) fn register(lua: &Lua) -> mlua::Result<()> {
    let table: Table = lua.globals().raw_get(zones::TABLE)?;
    let keep = lua.create_function(|lua, keep: bool| {
        spec(lua)?.tuning.keep_xdp = keep;
        Ok(())
    })?;
    table.raw_set("setKeepXDP", keep)
}
