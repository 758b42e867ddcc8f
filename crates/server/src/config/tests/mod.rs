//! Configurations from text to what workers read.

mod errors;
mod everyday;
mod examples;
mod functions;
mod limits;
mod messages;
mod named;
mod operators;
mod pinning;
mod polling;
mod reload;
mod zones;

use super::error::ConfigError;
use super::lua::state::LuaState;
use super::pools::{PoolId, PoolNames};
use super::spec::{Purpose, RemarkKind, Spec};
use super::{
    Config, FastOpen, Listener, Overrides, Pinning, Xdp, XskQueue, defaults, derive, load,
};
use crate::backend::policy::Policy;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

fn state(text: &str, previous: Option<&Config>) -> Result<Arc<LuaState>, ConfigError> {
    let names = previous.map_or_else(PoolNames::default, |previous| previous.pool_names.clone());
    let state = LuaState::new(Spec::new(Purpose::Serve, names))?;
    state.run("test.conf", text.as_bytes())?;
    Ok(Arc::new(state))
}

fn reload(text: &str, previous: Option<&Config>) -> Result<Config, ConfigError> {
    state(text, previous)?.derive(previous)
}

fn config(text: &str) -> Config {
    reload(text, None).unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// The one message of a configuration that does not load.
fn error(text: &str) -> String {
    match reload(text, None) {
        Ok(_) => panic!("this loads: {text}"),
        Err(error) => error.to_string(),
    }
}

/// What each command is answered after this file.
fn asked(file: &str, commands: &[(&str, &str)]) {
    let state = state(file, None).unwrap();
    for (command, expected) in commands {
        assert_eq!(state.command(command).text, *expected, "{command}");
    }
}

fn address(text: &str) -> SocketAddr {
    text.parse().expect("a test writes addresses with ports")
}

fn plain(address: SocketAddr) -> Listener {
    Listener {
        address,
        sockets: 1,
        reuse_port: false,
        xdp: Xdp::Off,
        tcp_listen_queue_size: defaults::TCP_LISTEN_QUEUE_SIZE,
        maximum_tcp_connections: 0,
        pinning: vec![Pinning::default()],
        tcp_in_flight: 0,
        interface: None,
        tcp_fast_open: FastOpen::default(),
        proxy_protocol: true,
    }
}

fn queue(queue: u32) -> XskQueue {
    XskQueue {
        interface: "enp1s0".to_owned(),
        queue,
        map_path: "/sys/fs/bpf/dnsdist/xskmap".to_owned(),
    }
}
