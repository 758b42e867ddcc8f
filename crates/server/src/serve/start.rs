//! From a command line to a daemon that serves.

use super::workers::{self, Ready};
use super::{Daemon, Event};
use crate::backend::exchange::Exchanges;
use crate::backend::ports::{PORTS_PER_SOURCE, PortWatch, Ports};
use crate::backend::servers::Servers;
use crate::commands::{ServeArguments, say_remarks};
use crate::config::spec::Purpose;
use crate::config::{self, Config, ConfigError};
use crate::counters::{Shard, Writers};
use crate::frontend::listeners::{Listeners, Sockets};
use crate::instance::Instance;
use crate::log;
use crate::network::steering::Steering;
use crate::network::{self, NetworkView, Plan, plan};
use crate::pipeline::rings::Rings;
use crate::random::Random;
use arc_swap::ArcSwap;
use std::io;
use std::net::SocketAddr;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, PoisonError};

/// Why the daemon does not start.
pub enum StartError {
    Config(ConfigError),
    /// What was tried, and the kernel's reason.
    System(String),
}

impl From<ConfigError> for StartError {
    fn from(error: ConfigError) -> StartError {
        StartError::Config(error)
    }
}

fn system(what: impl Into<String>) -> impl FnOnce(io::Error) -> StartError {
    let what = what.into();
    move |error| StartError::System(format!("{what}: {error}"))
}

/// The kernel programs, told which backend ports are open.
struct Bitmaps(Arc<Mutex<Steering>>);

impl PortWatch for Bitmaps {
    fn opened(&self, local: SocketAddr) {
        let mut steering = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = steering.open_port(local.ip(), local.port()) {
            log::warn!("answers to {local} come by its kernel socket: {error}");
        }
    }

    fn closing(&self, local: SocketAddr) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).close_port(local.ip(), local.port());
    }
}
