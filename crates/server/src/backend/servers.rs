//! Servers by number: for whoever holds an exchange and not the configuration that opened it.

use super::server::{Server, ServerId};
use arc_swap::ArcSwap;
use std::net::SocketAddr;
use std::sync::Arc;

/// All servers that may have queries in flight. Readers take no lock (4 ns).
///
/// A configuration will not do: an answer can come to a worker that has not seen the newest one, or to a query that an
/// older one opened, and the counts of queries in flight must be exact all the same.
#[derive(Default)]
pub struct Servers {
    table: ArcSwap<Table>,
}

#[derive(Default)]
struct Table {
    /// By [`ServerId`].
    by_number: Vec<Option<Arc<Server>>>,
    /// Those of the newest configuration.
    newest: Vec<Arc<Server>>,
}

impl Servers {
    /// To be called before a configuration with these servers is swapped in, and again when nobody reads the one before it any
    /// more. Servers that are gone stay known while they have queries in flight; and until the second call whether or
    /// not: first checks of new servers lie between this and the swap, and whoever has not seen it sends them more.
    pub fn publish(&self, servers: &[Arc<Server>]) {
        let old = self.table.load();
        let known = old.by_number.iter().flatten();
        let busy = known.filter(|server| server.outstanding.get() > 0);
        let mut by_number = Vec::new();
        for server in busy.chain(&old.newest).chain(servers) {
            let index = server.number.0 as usize;
            if by_number.len() <= index {
                by_number.resize(index + 1, None);
            }
            by_number[index] = Some(Arc::clone(server));
        }
        let newest = servers.to_vec();
        self.table.store(Arc::new(Table { by_number, newest }));
    }

    /// What `look` makes of the server; `None` when it is gone.
    pub fn with<T>(&self, number: ServerId, look: impl FnOnce(&Arc<Server>) -> T) -> Option<T> {
        let table = self.table.load();
        let server = table.by_number.get(number.0 as usize)?.as_ref();
        server.map(look)
    }

    /// Shows all servers that have this address; this looks at every server.
    #[cold]
    pub fn each_at(&self, address: SocketAddr, look: impl Fn(&Server)) {
        let table = self.table.load();
        let known = table.by_number.iter().flatten();
        let there = known.filter(|server| server.options.address == address);
        there.for_each(|server| look(server));
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

    /// A worker has the old configuration in hand when the new one is swapped in, and opens an exchange.
    #[test]
    fn a_server_that_goes_is_known_to_whoever_still_asks_it() {
        let servers = Servers::default();
        let [first, second] = [0, 1].map(|number| Arc::new(server(number, "192.0.2.7:53")));
        let knows_first = || servers.with(ServerId(0), |_| ()).is_some();
        servers.publish(std::slice::from_ref(&first));
        servers.publish(std::slice::from_ref(&second));
        assert!(knows_first());
        assert!(first.outstanding.enter(1));
        servers.publish(std::slice::from_ref(&second));
        assert!(knows_first(), "it has a query in flight");
        first.outstanding.leave();
        servers.publish(std::slice::from_ref(&second));
        assert!(!knows_first());
    }
}
