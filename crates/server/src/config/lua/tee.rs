//! TeeAction.

use super::actions::made;
use super::define;
use super::objects::address::AnyAddress;
use super::options::Flag;
use crate::pipeline::rules::actions::tee::TeeAction;
use crate::tee::{Tee, TeeOptions};
use mlua::Lua;
use std::net::SocketAddr;

/// The port of a server whose address has none.
const PORT: u16 = 53;

type Arguments = (AnyAddress, Option<Flag>, Option<AnyAddress>, Option<Flag>);

pub(super) fn register(lua: &Lua) -> mlua::Result<()> {
    define(
        lua,
        "TeeAction",
        |_, (remote, add_subnet, local, add_proxy_protocol): Arguments| {
            let AnyAddress(remote) = remote;
            let port = if remote.port() == 0 {
                PORT
            } else {
                remote.port()
            };
            let local = local.map(|local| local.0.ip());
            made(TeeAction(Tee::new(TeeOptions {
                remote: SocketAddr::new(remote.ip(), port),
                add_subnet: Flag::or(add_subnet, false),
                local,
                add_proxy_protocol: Flag::or(add_proxy_protocol, false),
            })))
        },
    )
}
