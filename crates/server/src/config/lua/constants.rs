//! Tables of constants: DNSRCode.REFUSED, DNSQType.ANY and the others, from the registries of crate `wire`.

use mlua::{IntoLua, Lua};
use wire::codes;

pub(super) fn register(lua: &Lua) -> mlua::Result<()> {
    table(lua, "DNSRCode", codes::rcode::TABLE)?;
    table(
        lua,
        "DNSQType",
        &[codes::qtype::TABLE, &PRIVATE_TYPES].concat(),
    )?;
    table(lua, "DNSClass", codes::class::TABLE)?;
    table(lua, "DNSOpcode", codes::opcode::TABLE)?;
    table(lua, "EDNSOptionCode", codes::edns_option::TABLE)?;
    table(lua, "DNSSection", &SECTIONS)?;
    table(lua, "DNSAction", &ACTIONS)?;
    table(lua, "DNSResponseAction", &RESPONSE_ACTIONS)?;
    table(
        lua,
        "DNSCryptExchangeVersion",
        &[("VERSION1", 0), ("VERSION2", 1)],
    )
}

/// Types for private use (RFC 6895, section 3.1) that dnsdist names.
const PRIVATE_TYPES: [(&str, u16); 3] = [("ADDR", 65_400), ("ALIAS", 65_401), ("LUA", 65_402)];

/// What RecordsCountRule and its sisters take.
const SECTIONS: [(&str, u8); 4] = [
    ("Question", 0),
    ("Answer", 1),
    ("Authority", 2),
    ("Additional", 3),
];

/// What functions of LuaAction return. The numbers are those that a running dnsdist shows.
const ACTIONS: [(&str, u8); 16] = [
    ("Drop", 0),
    ("Nxdomain", 1),
    ("Refused", 2),
    ("Spoof", 3),
    ("Allow", 4),
    ("HeaderModify", 5),
    ("Pool", 6),
    ("Delay", 7),
    ("Truncate", 8),
    ("ServFail", 9),
    ("None", 10),
    ("NoOp", 11),
    ("NoRecurse", 12),
    ("SpoofRaw", 13),
    ("SpoofPacket", 14),
    ("SetTag", 15),
];

/// What functions of LuaResponseAction return.
const RESPONSE_ACTIONS: [(&str, u8); 7] = [
    ("Allow", 0),
    ("Delay", 1),
    ("Drop", 2),
    ("HeaderModify", 3),
    ("ServFail", 4),
    ("None", 5),
    // Of dnsdist 1.9: behind those that a running 1.7 shows.
    ("Truncate", 6),
];

fn table<N: IntoLua + Copy>(lua: &Lua, name: &str, entries: &[(&str, N)]) -> mlua::Result<()> {
    let table = lua.create_table_with_capacity(0, entries.len())?;
    for (name, number) in entries {
        table.raw_set(*name, *number)?;
    }
    lua.globals().raw_set(name, table)
}
