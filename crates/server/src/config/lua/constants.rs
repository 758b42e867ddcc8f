//! Tables of constants: DNSRCode.REFUSED, DNSQType.ANY and the others, from the registries of crate `wire`.

use mlua::{IntoLua, Lua};
use wire::codes;

pub(super) fn register(lua: &Lua) -> mlua::Result<()> {
    table(lua, "DNSRCode", codes::rcode::TABLE)?;
    table(lua, "DNSQType", codes::qtype::TABLE)?;
    table(lua, "DNSClass", codes::class::TABLE)?;
    table(lua, "DNSOpcode", codes::opcode::TABLE)?;
    table(lua, "EDNSOptionCode", codes::edns_option::TABLE)
}

fn table<N: IntoLua + Copy>(lua: &Lua, name: &str, entries: &[(&str, N)]) -> mlua::Result<()> {
    let table = lua.create_table_with_capacity(0, entries.len())?;
    for (name, number) in entries {
        table.raw_set(*name, *number)?;
    }
    lua.globals().raw_set(name, table)
}
