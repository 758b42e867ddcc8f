//! Queries over TCP (RFC 1035 section 4.2.2, RFC 7766).
//!
//! ```text
//!  accept ─▶ place (limits) ─▶ connection ┬ reading: length, message ─▶ pipeline ─┬─ answer ──────────┐
//!                                         │                                       └─ a task asks the  │ channel
//!                                         │                                          backend ─────────┤
//!                                         └ writing: length, message ◀── in the order they are ready ─┘
//! ```
//!
//! Everything a client can make us keep is bounded: connections ([`Admission`]), queries in flight per connection
//! ([`connection::IN_FLIGHT`]), bytes ([`crate::runtime::memory`]), and time (the limits of [`crate::config::TcpTuning`]).

mod admission;
mod connection;
pub mod counters;

pub use admission::Admission;
pub use counters::{Counters, Figures};

use crate::clock::Now;
use crate::heap;
use crate::pipeline::drop::DropReason;
use crate::pipeline::proxy;
use crate::pipeline::query::NO_LISTENER;
use crate::runtime::Shared;
use crate::stop::Stop;
use connection::{Connection, IN_FLIGHT};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::sleep;

/// How long accepting rests when the process is out of descriptors or memory: connections end meanwhile.
const REST: Duration = Duration::from_millis(100);

/// What the TCP listeners share.
pub struct Frontend {
    pub shared: Arc<Shared>,
    pub admission: Arc<Admission>,
}

impl Frontend {
    pub fn new(shared: Arc<Shared>) -> Frontend {
        Frontend {
            shared,
            admission: Arc::default(),
        }
    }
}

/// Accepts and serves connections of `listener` until the stop is asked for. Connections then finish what they have read,
/// on tasks of their own that keep a [`Stop`] as long as they take.
///
/// # Errors
/// When the runtime does not take the listener.
pub async fn serve(
    listener: std::net::TcpListener,
    frontend: Arc<Frontend>,
    counters: Arc<Counters>,
    mut stop: Stop,
) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let listener = TcpListener::from_std(listener)?;
    loop {
        let accepted = tokio::select! {
            () = stop.requested() => return Ok(()),
            accepted = listener.accept() => accepted,
        };
        match accepted {
            // Its task takes no refusal.
            Ok(_) if heap::is_short() => {
                frontend.shared.shard.count_drop(DropReason::OutOfMemory);
                Counters::count(&counters.refused);
            }
            Ok((stream, client)) => begin(stream, client, &frontend, &counters, &stop),
            Err(error) if is_of_one_connection(&error) => {}
            Err(_) => sleep(REST).await,
        }
    }
}

/// accept(2): the connection is gone already, which is no reason to rest.
fn is_of_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted};
    matches!(
        error.kind(),
        ConnectionAborted | ConnectionReset | Interrupted
    )
}

/// Serves one connection on a task of its own, if there is a place for it.
fn begin(
    stream: TcpStream,
    client: SocketAddr,
    frontend: &Frontend,
    counters: &Arc<Counters>,
    stop: &Stop,
) {
    // A stream whose client is gone already has no local address.
    let Ok(destination) = stream.local_addr() else {
        return;
    };
    let config = frontend.shared.config();
    let mut tuning = config.tuning.tcp.clone();
    let number = config.listener_of(destination);
    let listener = number.map(|number| &config.listeners[usize::from(number)]);
    let limit = listener.map_or(0, |listener| listener.maximum_tcp_connections);
    if limit > 0 && counters.figures().connections >= limit as u64 {
        Counters::count(&counters.refused);
        return;
    }
    let Some(place) = Admission::admit(&frontend.admission, client.ip(), &tuning, Now::read())
    else {
        Counters::count(&counters.refused);
        return;
    };
    if place.is_crowded() {
        tuning.maximum_queries_per_connection = 1;
    }
    counters.opened();
    let connection = Connection {
        shared: Arc::clone(&frontend.shared),
        counters: Arc::clone(counters),
        tuning,
        in_flight: match listener.map_or(0, |listener| listener.tcp_in_flight) {
            0 => IN_FLIGHT,
            wanted => wanted,
        },
        client,
        destination,
        proxy_header_maximum: proxy::expected(&config, client, number.unwrap_or(NO_LISTENER)),
        stop: stop.clone(),
    };
    tokio::spawn(async move {
        connection.serve(stream).await;
        drop(place);
    });
}

#[cfg(test)]
mod tests;
