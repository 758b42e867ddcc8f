//! Servers by number: for whoever holds an exchange and not the configuration that opened it.

use super::server::{Server, ServerId};
use arc_swap::ArcSwap;
use std::sync::Arc;

/// All servers that may have queries in flight. Readers take no lock (4 ns).
///
/// A configuration will not do: an answer can come to a worker that has not seen the newest one, or to a query that an
/// older one opened, and the counts of queries in flight must be exact all the same.
#[derive(Default)]
pub struct Servers {
    /// By [`ServerId`].
    table: ArcSwap<Vec<Option<Arc<Server>>>>,
}

impl Servers {
    /// To be called before a configuration with these servers is swapped in. Servers that are gone from it stay known
    /// while they have queries in flight.
    pub fn publish(&self, servers: &[Arc<Server>]) {
        let old = self.table.load();
        let busy = old
            .iter()
            .flatten()
            .filter(|server| server.outstanding.get() > 0);
        let mut table = Vec::new();
        for server in busy.chain(servers) {
            let index = server.number.0 as usize;
            if table.len() <= index {
                table.resize(index + 1, None);
            }
            table[index] = Some(Arc::clone(server));
        }
        self.table.store(Arc::new(table));
    }

    /// What `look` makes of the server; `None` when it is gone.
    pub fn with<T>(&self, number: ServerId, look: impl FnOnce(&Arc<Server>) -> T) -> Option<T> {
        self.table.load().get(number.0 as usize)?.as_ref().map(look)
    }
}

#[cfg(test)]
mod tests {
    use super::super::exchange::tests::server;
    use super::*;

    #[test]
    fn a_server_stays_known_while_it_has_queries_in_flight() {
        let servers = Servers::default();
        let [first, second] = [0, 1].map(|number| Arc::new(server(number, "192.0.2.7:53")));
        servers.publish(std::slice::from_ref(&first));
        assert!(first.outstanding.enter(1));
        servers.publish(std::slice::from_ref(&second));
        let knows = |number| servers.with(ServerId(number), |server| server.number.0);
        assert_eq!([knows(0), knows(1), knows(2)], [Some(0), Some(1), None]);
        first.outstanding.leave();
        servers.publish(std::slice::from_ref(&second));
        assert_eq!([knows(0), knows(1)], [None, Some(1)]);
    }
}
