//! What the configuration says of the console: controlSocket, setKey and their relatives.

use super::defaults;
use crate::control::console::wire::Key;
use crate::pipeline::acl::{Netmask, Netmasks};
use std::net::SocketAddr;

/// As it is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConsoleSpec {
    /// controlSocket; `None`: there is no console.
    pub address: Option<SocketAddr>,
    /// setKey; without one nobody gets in.
    pub key: Option<Key>,
    /// setConsoleACL, addConsoleACL.
    pub acl: Vec<Netmask>,
    /// setConsoleMaximumConcurrentConnections; 0 is no limit.
    pub maximum_connections: usize,
    /// setConsoleOutputMaxMsgSize: of one message, in bytes, in either direction.
    pub maximum_message_size: u32,
    /// setConsoleConnectionsLogging.
    pub log_connections: bool,
}

/// As the console reads it.
#[derive(Clone, Default)]
pub struct Console {
    pub address: Option<SocketAddr>,
    pub key: Option<Key>,
    pub acl: Netmasks,
    pub maximum_connections: usize,
    pub maximum_message_size: u32,
    pub log_connections: bool,
}

/// The port of a controlSocket that names none.
pub const DEFAULT_PORT: u16 = 5199;

impl Default for ConsoleSpec {
    /// dnsdist's defaults.
    fn default() -> ConsoleSpec {
        ConsoleSpec {
            address: None,
            key: None,
            acl: defaults::console_acl(),
            maximum_connections: 100,
            maximum_message_size: 10_000_000,
            log_connections: true,
        }
    }
}

impl ConsoleSpec {
    pub fn derive(&self) -> Console {
        Console {
            address: self.address,
            key: self.key.clone(),
            acl: self.acl.iter().copied().collect(),
            maximum_connections: self.maximum_connections,
            maximum_message_size: self.maximum_message_size,
            log_connections: self.log_connections,
        }
    }
}
