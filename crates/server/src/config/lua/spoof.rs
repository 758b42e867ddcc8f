//! Actions that answer with records made up in the configuration.

use super::actions::{ActionObject, answer_flags_of, made};
use super::objects::address::AnyAddress;
use super::objects::list_of;
use super::objects::name::AnyName;
use super::options::{Flag, Options};
use super::{define, wrong};
use crate::pipeline::rules::actions::spoof::{
    NegativeAndSOAAction, SpoofAction, SpoofCNAMEAction, SpoofOptions, SpoofPacketAction,
    SpoofRawAction,
};
use mlua::{FromLua, Lua, LuaString, MultiValue, Table, Value};
use std::net::IpAddr;

pub(super) fn register(lua: &Lua) -> mlua::Result<()> {
    define(lua, "SpoofAction", spoof)?;
    define(
        lua,
        "SpoofCNAMEAction",
        |lua, (name, table): (AnyName, Option<Table>)| {
            let mut options = Options::new(lua, "SpoofCNAMEAction", table);
            let action = SpoofCNAMEAction {
                target: name.0,
                options: spoof_options(&mut options)?,
            };
            options.finish()?;
            made(action)
        },
    )?;
    define(lua, "SpoofRawAction", spoof_raw)?;
    define(
        lua,
        "SpoofPacketAction",
        |_, (packet, length): (LuaString, Option<usize>)| {
            let octets = packet.as_bytes();
            let length = length.unwrap_or(octets.len());
            let action = octets.get(..length).and_then(SpoofPacketAction::new);
            made(action.ok_or_else(|| {
                wrong(format!(
                    "{length} octets of {}: a whole message, of 12 octets or more, expected",
                    octets.len()
                ))
            })?)
        },
    )?;
    // The second name is that before 1.6.
    for name in ["NegativeAndSOAAction", "SetNegativeAndSOAAction"] {
        define(lua, name, move |lua, arguments| {
            negative(lua, name, arguments)
        })?;
    }
    Ok(())
}

/// `SpoofAction(address [, options])`, `SpoofAction({address, …} [, options])`, and as before 1.6 `SpoofAction(address,
/// address [, options])`.
fn spoof(lua: &Lua, arguments: MultiValue) -> mlua::Result<ActionObject> {
    let mut addresses = Vec::new();
    let mut table = None;
    for (place, argument) in arguments.into_iter().enumerate() {
        match argument {
            Value::Table(list) if place == 0 => {
                let listed = list_of::<AnyAddress>(&list)?;
                addresses.extend(listed.iter().map(|address| address.0.ip()));
            }
            Value::Table(options) => table = Some(options),
            Value::Nil => {}
            address => addresses.push(ip(lua, address)?),
        }
    }
    if addresses.is_empty() {
        return Err(wrong("an address, or a table of addresses, expected"));
    }
    let mut options = Options::new(lua, "SpoofAction", table);
    let action = SpoofAction::new(&addresses, spoof_options(&mut options)?);
    options.finish()?;
    made(action)
}

fn ip(lua: &Lua, value: Value) -> mlua::Result<IpAddr> {
    Ok(AnyAddress::from_lua(value, lua)?.0.ip())
}

/// `SpoofRawAction(data [, options])`, `SpoofRawAction({data, …} [, options])`.
fn spoof_raw(lua: &Lua, (data, table): (Value, Option<Table>)) -> mlua::Result<ActionObject> {
    let data: Vec<LuaString> = match data {
        Value::Table(list) => list_of(&list)?,
        one => vec![LuaString::from_lua(one, lua)?],
    };
    let data: Vec<Box<[u8]>> = data.iter().map(|data| (*data.as_bytes()).into()).collect();
    if let Some(long) = data.iter().find(|data| data.len() > usize::from(u16::MAX)) {
        return Err(wrong(format!(
            "{} octets: a record has 65535 at most",
            long.len()
        )));
    }
    let mut options = Options::new(lua, "SpoofRawAction", table);
    let action = SpoofRawAction {
        data,
        type_for_any: options.number("typeForAny", "a DNSQType")?,
        options: spoof_options(&mut options)?,
    };
    options.finish()?;
    made(action)
}

/// `aa`, `ad`, `ra` and `ttl`.
pub(super) fn spoof_options(options: &mut Options<'_>) -> mlua::Result<SpoofOptions> {
    let default = SpoofOptions::default();
    Ok(SpoofOptions {
        flags: answer_flags_of(options)?,
        ttl: options.number("ttl", "seconds")?.unwrap_or(default.ttl),
    })
}

/// Serial, refresh, retry, expire, minimum.
type SoaNumbers = (u32, u32, u32, u32, u32);

/// `(nxd, zone, ttl, mname, rname, serial, refresh, retry, expire, minimum [, options])`.
fn negative(
    lua: &Lua,
    function: &'static str,
    arguments: MultiValue,
) -> mlua::Result<ActionObject> {
    let mut values: Vec<Value> = arguments.into_iter().collect();
    values.resize(11, Value::Nil);
    let numbers = values.split_off(5);
    let (Flag(nxdomain), zone, ttl, mname, rname): (Flag, AnyName, u32, AnyName, AnyName) =
        lua.unpack_multi(values.into_iter().collect())?;
    let mut numbers = numbers.into_iter();
    let soa: SoaNumbers = lua.unpack_multi(numbers.by_ref().take(5).collect())?;
    let table: Option<Table> = lua.unpack_multi(numbers.collect())?;
    let mut options = Options::new(lua, function, table);
    let action = NegativeAndSOAAction {
        nxdomain,
        zone: zone.0,
        ttl,
        soa: soa_data(&mname, &rname, soa),
        in_authority: options.flag("soaInAuthoritySection")?.unwrap_or(false),
        flags: answer_flags_of(&mut options)?,
    };
    options.finish()?;
    made(action)
}

/// RFC 1035 §3.3.13.
fn soa_data(mname: &AnyName, rname: &AnyName, numbers: SoaNumbers) -> Box<[u8]> {
    let (serial, refresh, retry, expire, minimum) = numbers;
    let mut data = mname.0.as_name().as_bytes().to_vec();
    data.extend_from_slice(rname.0.as_name().as_bytes());
    for number in [serial, refresh, retry, expire, minimum] {
        data.extend_from_slice(&number.to_be_bytes());
    }
    data.into()
}
