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
        |_, (mask, bits): (AnyNetmask, Option<u8>)| {
            let network = mask.0.network;
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
        for network in ["getNetwork", "getMaskedNetwork"] {
            methods.add_method(network, |_, mask, ()| {
                Ok(ComboAddress(SocketAddr::new(mask.0.network(), 0)))
            });
        }
        methods.add_method("isIpv4", |_, mask, ()| Ok(mask.0.addr().is_ipv4()));
        methods.add_method("isIpv6", |_, mask, ()| Ok(mask.0.addr().is_ipv6()));
        methods.add_method("match", |_, mask, address: AnyAddress| {
            Ok(mask.0.contains(&address.0.ip()))
        });
        methods.add_method("toString", |_, mask, ()| Ok(mask.0.to_string()));
        methods.add_meta_method(MetaMethod::ToString, |_, mask, ()| Ok(mask.0.to_string()));
    }
}
