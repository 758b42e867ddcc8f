//! EDNS client subnet: setECSOverride and its relatives, and the actions on it.

use super::actions::made;
use super::options::Flag;
use super::{define, spec, wrong};
use crate::pipeline::rules::actions::remember::SubnetAction;
use crate::pipeline::subnet::SubnetTuning;
use ipnet::IpNet;
use mlua::Lua;
use std::net::IpAddr;

pub(super) fn register(lua: &Lua) -> mlua::Result<()> {
    define(lua, "setECSOverride", |lua, Flag(flag): Flag| {
        tuning(lua, |subnets| subnets.override_existing = flag)
    })?;
    define(lua, "setECSSourcePrefixV4", |lua, bits: u8| {
        check(bits, 32)?;
        tuning(lua, |subnets| subnets.v4_prefix = bits)
    })?;
    define(lua, "setECSSourcePrefixV6", |lua, bits: u8| {
        check(bits, 128)?;
        tuning(lua, |subnets| subnets.v6_prefix = bits)
    })?;
    define(
        lua,
        "SetECSAction",
        |_, (v4, v6): (String, Option<String>)| {
            let v4 = network(&v4)?;
            let v6 = v6.map(|text| network(&text)).transpose()?;
            made(SubnetAction::Networks(v4, v6.unwrap_or(v4)))
        },
    )?;
    // The second names are those before 1.6.
    for name in ["SetDisableECSAction", "DisableECSAction"] {
        define(lua, name, |_, ()| made(SubnetAction::Disable))?;
    }
    for name in ["SetECSOverrideAction", "ECSOverrideAction"] {
        define(lua, name, |_, Flag(flag): Flag| {
            made(SubnetAction::Override(flag))
        })?;
    }
    for name in ["SetECSPrefixLengthAction", "ECSPrefixLengthAction"] {
        define(lua, name, |_, (v4, v6): (u8, u8)| {
            check(v4, 32)?;
            check(v6, 128)?;
            made(SubnetAction::Prefixes(v4, v6))
        })?;
    }
    Ok(())
}

fn tuning(lua: &Lua, set: impl FnOnce(&mut SubnetTuning)) -> mlua::Result<()> {
    set(&mut spec(lua)?.tuning.subnets);
    Ok(())
}

fn check(bits: u8, maximum: u8) -> mlua::Result<()> {
    if bits > maximum {
        return Err(wrong(format!("{bits} bits: at most {maximum} expected")));
    }
    Ok(())
}

/// A network, without the bits of a host, or an address, which is one of its own.
fn network(text: &str) -> mlua::Result<IpNet> {
    let network = text
        .parse()
        .or_else(|_| text.parse::<IpAddr>().map(IpNet::from));
    network.map(|network| network.trunc()).map_err(|_| {
        wrong(format!(
            "'{text}' is no network: 192.0.2.0/24 or 2001:db8::/56 expected"
        ))
    })
}
