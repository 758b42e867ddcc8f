//! The connections to one server that are kept: setMaxCachedTCPConnectionsPerDownstream, setTCPDownstreamMaxIdleTime.

use super::connection::Connection;
use crate::backend::server::Server;
use crate::runtime::Shared;
use std::fmt;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// One lock per query over TCP, held for a walk over the connections.
#[derive(Default)]
pub struct Pool(Arc<Mutex<Kept>>);

#[derive(Default)]
struct Kept {
    connections: Vec<Arc<Connection>>,
    /// Idle ones beyond these are closed.
    idle_maximum: usize,
    /// Connections of transfers, which nobody else uses.
    transfers: usize,
}

/// A transfer's connection among those of its server, for as long as it lives.
pub(super) struct Transfer(Arc<Mutex<Kept>>);

/// A query's place on a connection, free again when dropped. Whoever drops it without an answer (it came too late, or the
/// client has gone) leaves a connection whose backend may be stuck: it gets no more queries.
pub(super) struct Place {
    connection: Arc<Connection>,
    kept: Arc<Mutex<Kept>>,
    is_answered: bool,
}

impl Pool {
    /// A place on a connection that began with `begin` and has fewer than `in_flight` queries; of those the one that was made last, so that what
    /// is not needed becomes idle.
    pub(super) fn find(&self, in_flight: usize, begin: &[u8]) -> Option<Place> {
        let mut kept = lock(&self.0);
        kept.connections.retain(|connection| connection.is_open());
        let mut newest_first = kept.connections.iter().rev();
        let found =
            newest_first.find(|one| one.load.load(Relaxed) < in_flight && *one.begin == *begin)?;
        Some(self.take(found))
    }

    /// How many connections take queries, or carry a transfer.
    pub(super) fn open(&self) -> usize {
        let kept = lock(&self.0);
        let open = kept.connections.iter().filter(|one| one.is_open());
        open.count() + kept.transfers
    }

    /// Counts a connection that a transfer is to have of its own.
    pub(super) fn transfer(&self) -> Transfer {
        lock(&self.0).transfers += 1;
        Transfer(Arc::clone(&self.0))
    }

    /// Keeps none that has no query: they began with what others are told, and leave no place for a new one.
    pub(super) fn clear_idle(&self) {
        let is_used = |one: &Arc<Connection>| one.load.load(Relaxed) > 0;
        lock(&self.0).connections.retain(is_used);
    }

    /// Keeps none of those that there are: each ends with its last query.
    pub(in crate::backend) fn clear(&self) {
        lock(&self.0).connections.clear();
    }

    /// A place on a new connection, which begins with `begin`.
    pub(super) fn connect(
        &self,
        shared: &Arc<Shared>,
        server: &Arc<Server>,
        begin: Arc<[u8]>,
    ) -> Place {
        let tuning = &shared.config().tuning.tcp;
        let in_flight = server.options.tcp_in_flight;
        // The first query comes a moment later.
        let idle = tuning.downstream_idle_timeout.max(IDLE_AT_LEAST);
        let connection = Connection::start(shared, server, begin, (in_flight, idle));
        let connection = Arc::new(connection);
        let place = self.take(&connection);
        let mut kept = lock(&self.0);
        kept.idle_maximum = tuning.maximum_cached_connections;
        kept.connections.push(connection);
        place
    }

    fn take(&self, connection: &Arc<Connection>) -> Place {
        connection.load.fetch_add(1, Relaxed);
        Place {
            connection: Arc::clone(connection),
            kept: Arc::clone(&self.0),
            is_answered: false,
        }
    }
}

impl Drop for Transfer {
    fn drop(&mut self) {
        lock(&self.0).transfers -= 1;
    }
}

/// A connection without a query stays for so long at least.
const IDLE_AT_LEAST: Duration = Duration::from_millis(100);

impl Place {
    pub(super) fn connection(&self) -> &Arc<Connection> {
        &self.connection
    }

    /// The answer has come.
    pub(super) fn answered(mut self) {
        self.is_answered = true;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let is_idle = self.connection.load.fetch_sub(1, Relaxed) == 1;
        if self.is_answered && !is_idle {
            return;
        }
        let mut kept = lock(&self.kept);
        let idle = |one: &&Arc<Connection>| one.load.load(Relaxed) == 0;
        let is_enough = kept.connections.iter().filter(idle).count() > kept.idle_maximum;
        if !self.is_answered {
            kept.connections
                .retain(|other| !Arc::ptr_eq(other, &self.connection));
        } else if is_enough {
            // The oldest, which nobody needs: it may have begun with what a client was told who has gone.
            let oldest = kept.connections.iter().position(|one| idle(&one));
            if let Some(oldest) = oldest {
                kept.connections.remove(oldest);
            }
        }
    }
}

fn lock(kept: &Mutex<Kept>) -> MutexGuard<'_, Kept> {
    kept.lock().unwrap_or_else(PoisonError::into_inner)
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} connections", lock(&self.0).connections.len())
    }
}
