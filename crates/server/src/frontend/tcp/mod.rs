//! Queries over TCP (RFC 1035 section 4.2.2, RFC 7766), and in the same form over UNIX stream sockets ([`stream`]).
//!
//! ```text
//!  accept ─▶ place (limits) ─▶ connection ┬ reading: length, message ─▶ pipeline ─┬─ answer ──────────┐
//!                                         │                                       └─ a task asks the  │ channel
//!                                         │                                          backend ─────────┤
//!                                         └ writing: length, message ◀── in the order they are ready ─┘
//! ```
//!
//! One query of a connection is worked on at a time, or as many as `maxInFlight` of addLocal says: then answers overtake each
//! other.
//!
//! Everything a client can make us keep is bounded: connections ([`Admission`]), queries in flight per connection and answers that
//! are not written yet ([`order`]), bytes ([`crate::runtime::memory`]), and time (the limits of [`crate::config::TcpTuning`]).

mod admission;
mod asking;
mod connection;
pub mod counters;
mod order;
mod stream;

pub use admission::Admission;
pub use counters::{Counters, Figures};

use crate::clock::Now;
use crate::heap;
use crate::pipeline::drop::DropReason;
use crate::pipeline::query::NO_LISTENER;
use crate::pipeline::{Env, acl, proxy};
use crate::runtime::Shared;
use crate::stop::Stop;
use connection::Connection;
use std::io;
use std::os::unix;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use stream::{AtPath, Ends, Listener, Stream};
use tokio::net::{TcpListener, UnixListener};
use tokio::time::sleep;

/// How long accepting rests when the process is out of descriptors or memory: connections end meanwhile.
const REST: Duration = Duration::from_millis(100);

/// What the listeners share.
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
    stop: Stop,
) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let listener = TcpListener::from_std(listener)?;
    accept(listener, &frontend, &counters, stop).await;
    Ok(())
}

/// The same at a path.
///
/// # Errors
/// When the runtime does not take the listener.
pub async fn serve_at(
    (path, listener): (Arc<Path>, unix::net::UnixListener),
    frontend: Arc<Frontend>,
    counters: Arc<Counters>,
    stop: Stop,
) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let listener = UnixListener::from_std(listener)?;
    accept(AtPath { listener, path }, &frontend, &counters, stop).await;
    Ok(())
}

async fn accept(
    listener: impl Listener,
    frontend: &Frontend,
    counters: &Arc<Counters>,
    mut stop: Stop,
) {
    loop {
        let accepted = tokio::select! {
            () = stop.requested() => return,
            accepted = listener.next() => accepted,
        };
        match accepted {
            // Its task takes no refusal.
            Ok(_) if heap::is_short() => {
                frontend.shared.shard.count_drop(DropReason::OutOfMemory);
                Counters::count(&counters.refused);
            }
            Ok((stream, ends)) => begin(stream, ends, frontend, counters, &stop),
            Err(error) if is_of_one_connection(&error) => {}
            Err(_) => sleep(REST).await,
        }
    }
}

/// Whether the connection is gone already, which is no reason to rest. accept(2): "Linux accept() passes already-pending
/// network errors on the new socket as an error code from accept()"; those that it lists are to be treated "like EAGAIN by
/// retrying".
fn is_of_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted};
    let is_gone = matches!(
        error.kind(),
        ConnectionAborted | ConnectionReset | Interrupted
    );
    let is_listed = |number: i32| OF_THE_NETWORK.contains(&number);
    is_gone || error.raw_os_error().is_some_and(is_listed)
}

/// The list of accept(2).
const OF_THE_NETWORK: [i32; 8] = [
    libc::ENETDOWN,
    libc::EPROTO,
    libc::ENOPROTOOPT,
    libc::EHOSTDOWN,
    libc::ENONET,
    libc::EHOSTUNREACH,
    libc::EOPNOTSUPP,
    libc::ENETUNREACH,
];

/// A time-out of zero is none.
fn or_never(limit: Duration) -> Duration {
    if limit.is_zero() {
        Duration::MAX
    } else {
        limit
    }
}

/// Serves one connection on a task of its own, if there is a place for it.
fn begin(
    stream: impl Stream,
    ends: Ends,
    frontend: &Frontend,
    counters: &Arc<Counters>,
    stop: &Stop,
) {
    let config = frontend.shared.config();
    // Nobody who may not ask takes the place of somebody who may. Each query is looked at too: the ACL may change.
    let is_admitted = |env: &mut Env<'_>| acl::admits(ends.client, env);
    if !frontend.shared.with_env(&config, is_admitted) {
        return;
    }
    let mut tuning = config.tuning.tcp.clone();
    for limit in [&mut tuning.receive_timeout, &mut tuning.send_timeout] {
        *limit = or_never(*limit);
    }
    let listener = config.place_of(&ends.address).unwrap_or(NO_LISTENER);
    let streams = config.streams_at(listener);
    let limit = streams.map_or(0, |streams| streams.maximum_connections);
    let present = counters.figures().connections as usize;
    if limit > 0 && present >= limit {
        Counters::count(&counters.refused);
        return;
    }
    tuning.maximum_connections = tuning.maximum_connections.max(limit);
    let (client, now) = (ends.client, Now::read());
    let Some(place) = Admission::admit(&frontend.admission, client, &tuning, now) else {
        Counters::count(&counters.refused);
        return;
    };
    if place.is_crowded() || tuning.is_overload(present + 1, limit) {
        tuning.hurry();
    }
    counters.opened();
    let connection = Connection {
        shared: Arc::clone(&frontend.shared),
        counters: Arc::clone(counters),
        tuning,
        in_flight: streams.map_or(0, |streams| streams.in_flight).max(1),
        proxy_header_maximum: proxy::expected(&config, ends.client, listener),
        ends,
        place,
        stop: stop.clone(),
    };
    tokio::spawn(connection.serve(stream));
}

#[cfg(test)]
mod tests;
