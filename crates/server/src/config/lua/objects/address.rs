//! ComboAddress.

use super::super::{define, wrong};
use super::{ipcipher, object};
use crate::config::addresses;
use ipnet::IpNet;
use mlua::{FromLua, Lua, LuaString, MetaMethod, UserData, UserDataMethods, Value};
use std::net::{IpAddr, SocketAddr};
use xsk::nic::Nic;

pub(super) fn register(lua: &Lua) -> mlua::Result<()> {
    define(lua, "newCA", |_, address: AnyAddress| {
        Ok(ComboAddress(address.0))
    })?;
    define(lua, "makeIPCipherKey", |lua, password: LuaString| {
        lua.create_string(ipcipher::key_of(&password.as_bytes()))
    })?;
    define(
        lua,
        "newCAFromRaw",
        |_, (octets, port): (LuaString, Option<u16>)| {
            let address = from_octets(&octets.as_bytes()).ok_or_else(|| {
                wrong(format!(
                    "4 or 16 octets expected, got {}",
                    octets.as_bytes().len()
                ))
            })?;
            Ok(ComboAddress(SocketAddr::new(address, port.unwrap_or(0))))
        },
    )
}

fn from_octets(octets: &[u8]) -> Option<IpAddr> {
    match octets.len() {
        4 => <[u8; 4]>::try_from(octets).ok().map(IpAddr::from),
        16 => <[u8; 16]>::try_from(octets).ok().map(IpAddr::from),
        _ => None,
    }
}

/// What newCA returns: an address and a port, 0 where none was given.
#[derive(Clone, Copy)]
pub(in super::super) struct ComboAddress(pub(in super::super) SocketAddr);

/// An address as functions take it: text, or a ComboAddress.
pub(in super::super) struct AnyAddress(pub(in super::super) SocketAddr);

impl FromLua for AnyAddress {
    fn from_lua(value: Value, _: &Lua) -> mlua::Result<AnyAddress> {
        match &value {
            Value::String(text) => addresses::with_port(&text.to_string_lossy(), 0)
                .map(AnyAddress)
                .map_err(wrong),
            _ => Ok(AnyAddress(object::<ComboAddress>(&value, "an address")?.0)),
        }
    }
}

impl ComboAddress {
    /// What `change` makes of the address, with the key that a function was given.
    fn with_key(
        self,
        key: &LuaString,
        change: fn(IpAddr, &ipcipher::Key) -> IpAddr,
    ) -> mlua::Result<ComboAddress> {
        let octets = key.as_bytes();
        let key = ipcipher::Key::try_from(&octets[..]).map_err(|_| {
            wrong(format!(
                "a key of 16 octets expected, as makeIPCipherKey makes it, got {}",
                octets.len()
            ))
        })?;
        let address = change(self.0.ip(), &key);
        Ok(ComboAddress(SocketAddr::new(address, self.0.port())))
    }

    /// Without the port; of an address on a link, with the name of the interface: `fe80::1%eth0`.
    fn text(self) -> String {
        let address = self.0.ip();
        match self.0 {
            SocketAddr::V6(socket) if socket.scope_id() != 0 => {
                let interface = Nic::name_of(socket.scope_id());
                let interface = interface.unwrap_or_else(|_| socket.scope_id().to_string());
                format!("{address}%{interface}")
            }
            _ => address.to_string(),
        }
    }

    fn text_with_port(self) -> String {
        match self.0 {
            SocketAddr::V4(address) => address.to_string(),
            SocketAddr::V6(address) => format!("[{}]:{}", self.text(), address.port()),
        }
    }

    fn truncated(self, bits: u8) -> ComboAddress {
        let ip = self.0.ip();
        let longest = if ip.is_ipv4() { 32 } else { 128 };
        let network = IpNet::new_assert(ip, bits.min(longest)).network();
        ComboAddress(SocketAddr::new(network, self.0.port()))
    }
}

impl UserData for ComboAddress {
    fn add_methods<M: UserDataMethods<Self>>(methods: &mut M) {
        methods.add_method("getPort", |_, address, ()| Ok(address.0.port()));
        methods.add_method("getRaw", |lua, address, ()| match address.0.ip() {
            IpAddr::V4(address) => lua.create_string(address.octets()),
            IpAddr::V6(address) => lua.create_string(address.octets()),
        });
        methods.add_method("isIPv4", |_, address, ()| Ok(address.0.is_ipv4()));
        methods.add_method("isIPv6", |_, address, ()| Ok(address.0.is_ipv6()));
        methods.add_method("isMappedIPv4", |_, address, ()| {
            Ok(matches!(address.0.ip(), IpAddr::V6(address) if address.to_ipv4_mapped().is_some()))
        });
        methods.add_method("mapToIPv4", |_, address, ()| {
            Ok(ComboAddress(SocketAddr::new(
                address.0.ip().to_canonical(),
                address.0.port(),
            )))
        });
        methods.add_method("ipencrypt", |_, address, key: LuaString| {
            address.with_key(&key, ipcipher::encrypted)
        });
        methods.add_method("ipdecrypt", |_, address, key: LuaString| {
            address.with_key(&key, ipcipher::decrypted)
        });
        methods.add_method_mut("truncate", |_, address, bits: u8| {
            *address = address.truncated(bits);
            Ok(())
        });
        for text in ["toString", "tostring"] {
            methods.add_method(text, |_, address, ()| Ok(address.text()));
        }
        for text in ["toStringWithPort", "tostringWithPort"] {
            methods.add_method(text, |_, address, ()| Ok(address.text_with_port()));
        }
        methods.add_meta_method(MetaMethod::ToString, |_, address, ()| Ok(address.text()));
        methods.add_meta_method(MetaMethod::Eq, |_, address, other: AnyAddress| {
            Ok(address.0 == other.0)
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interface_of_an_address_on_a_link_is_shown_by_its_name() {
        for (address, text, with_port) in [
            ("[fe80::1%1]:53", "fe80::1%lo", "[fe80::1%lo]:53"),
            // There is none of this index.
            (
                "[fe80::1%2147483647]:0",
                "fe80::1%2147483647",
                "[fe80::1%2147483647]:0",
            ),
            ("[2001:db8::1]:53", "2001:db8::1", "[2001:db8::1]:53"),
            ("192.0.2.1:53", "192.0.2.1", "192.0.2.1:53"),
        ] {
            let address = ComboAddress(address.parse().unwrap());
            assert_eq!(address.text(), text);
            assert_eq!(address.text_with_port(), with_port);
        }
    }
}
