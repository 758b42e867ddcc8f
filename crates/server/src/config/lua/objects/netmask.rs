//! Netmask.

use super::super::{define, wrong};
use super::address::{AnyAddress, ComboAddress};
use crate::pipeline::acl::{Netmask, NetmaskError};
use ipnet::IpNet;
use mlua::{FromLua, Lua, MetaMethod, UserData, UserDataMethods, Value};
use std::net::SocketAddr;

pub(super) fn register(lua: &Lua) -> mlua::Result<()> {
    define(
        lua,
        "newNetmask",
        |lua, (mask, bits): (Value, Option<u8>)| {
            let network = as_given(lua, mask)?;
            let network = match bits {
                Some(bits) => {
                    IpNet::new(network.addr(), bits).map_err(|error| wrong(error.to_string()))?
                }
                None => network,
            };
            Ok(NetmaskObject(network))
        },
    )
}

/// With the bits behind the mask, which a [`Netmask`] of text does not keep.
fn as_given(lua: &Lua, value: Value) -> mlua::Result<IpNet> {
    if let Value::String(text) = &value
        && let Ok(network) = text.to_string_lossy().parse::<IpNet>()
    {
        return Ok(network);
    }
    let mask = AnyNetmask::from_lua(value, lua)?.0;
    match mask.negated {
        false => Ok(mask.network),
        true => Err(wrong(format!(
            "'{mask}': a netmask of its own excludes nothing: addMask of a NetmaskGroup takes this text"
        ))),
    }
}

/// What newNetmask returns.
#[derive(Clone)]
pub(in super::super) struct NetmaskObject(IpNet);

/// A netmask as functions take it: text, with `!` before what is excluded, a Netmask, or a ComboAddress.
pub(in super::super) struct AnyNetmask(pub(in super::super) Netmask);

impl FromLua for AnyNetmask {
    fn from_lua(value: Value, lua: &Lua) -> mlua::Result<AnyNetmask> {
        if let Value::UserData(object) = &value
            && let Ok(mask) = object.borrow::<NetmaskObject>()
        {
            return Ok(AnyNetmask(mask.0.into()));
        }
        let Value::String(text) = &value else {
            return Ok(AnyNetmask(
                IpNet::from(AnyAddress::from_lua(value, lua)?.0.ip()).into(),
            ));
        };
        let mask = text
            .to_string_lossy()
            .parse()
            .map_err(|error: NetmaskError| wrong(error.to_string()))?;
        Ok(AnyNetmask(mask))
    }
}

impl UserData for NetmaskObject {
    fn add_methods<M: UserDataMethods<Self>>(methods: &mut M) {
        methods.add_method("empty", |_, _, ()| Ok(false));
        methods.add_method("getBits", |_, mask, ()| Ok(mask.0.prefix_len()));
        methods.add_method("getNetwork", |_, mask, ()| {
            Ok(ComboAddress(SocketAddr::new(mask.0.addr(), 0)))
        });
        // "after masking any additional bits if necessary".
        methods.add_method("getMaskedNetwork", |_, mask, ()| {
            Ok(ComboAddress(SocketAddr::new(mask.0.network(), 0)))
        });
        // The manual's spelling, and the one before.
        for name in ["isIPv4", "isIpv4"] {
            methods.add_method(name, |_, mask, ()| Ok(mask.0.addr().is_ipv4()));
        }
        for name in ["isIPv6", "isIpv6"] {
            methods.add_method(name, |_, mask, ()| Ok(mask.0.addr().is_ipv6()));
        }
        methods.add_method("match", |_, mask, address: AnyAddress| {
            Ok(mask.0.contains(&address.0.ip()))
        });
        methods.add_method("toString", |_, mask, ()| Ok(mask.0.to_string()));
        methods.add_meta_method(MetaMethod::ToString, |_, mask, ()| Ok(mask.0.to_string()));
    }
}
