//! What the system's interfaces have, for files that make listeners of it.

use super::objects::address::AnyAddress;
use super::{define, wrong};
use crate::network::neighbours;
use ipnet::IpNet;
use mlua::Lua;
use nix::ifaddrs::{InterfaceAddress, getifaddrs};
use nix::sys::socket::SockaddrStorage;
use std::net::IpAddr;

pub(super) fn register(lua: &Lua) -> mlua::Result<()> {
    // "as a raw binary string. An empty string is returned if no matching entry has been found."
    define(lua, "getMACAddress", |lua, address: AnyAddress| {
        let known = neighbours::ethernet_address(address.0.ip());
        let known = known.map_err(|error| wrong(format!("the kernel does not tell: {error}")))?;
        let octets = known.map(|address| address.to_vec());
        lua.create_string(octets.unwrap_or_default())
    })?;
    define(lua, "getListOfNetworkInterfaces", |_, ()| {
        let mut names: Vec<String> = entries()?.map(|entry| entry.interface_name).collect();
        names.sort_unstable();
        names.dedup();
        Ok(names)
    })?;
    define(
        lua,
        "getListOfAddressesOfNetworkInterface",
        |_, name: String| {
            Ok(addresses(&name)?
                .map(|(address, _)| address.to_string())
                .collect::<Vec<_>>())
        },
    )?;
    define(
        lua,
        "getListOfRangesOfNetworkInterface",
        |_, name: String| {
            let ranges = addresses(&name)?
                .filter_map(|(address, mask)| IpNet::with_netmask(address, mask?).ok());
            Ok(ranges
                .map(|range| range.trunc().to_string())
                .collect::<Vec<_>>())
        },
    )
}

fn entries() -> mlua::Result<impl Iterator<Item = InterfaceAddress>> {
    getifaddrs().map_err(|error| wrong(format!("the system does not tell its interfaces: {error}")))
}

/// The addresses of an interface, each with its netmask.
fn addresses(name: &str) -> mlua::Result<impl Iterator<Item = (IpAddr, Option<IpAddr>)>> {
    let of_interface = entries()?.filter(move |entry| entry.interface_name == name);
    Ok(of_interface.filter_map(|entry| {
        Some((
            ip(entry.address.as_ref()?)?,
            entry.netmask.as_ref().and_then(ip),
        ))
    }))
}

fn ip(address: &SockaddrStorage) -> Option<IpAddr> {
    let v4 = address
        .as_sockaddr_in()
        .map(|address| IpAddr::V4(address.ip()));
    v4.or_else(|| {
        address
            .as_sockaddr_in6()
            .map(|address| IpAddr::V6(address.ip()))
    })
}
