//! Queries and time-outs of each server per second, over about the last second: dnsdist's `qps` and `dropRate`.

use crate::backend::server::{Server, ServerId};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long it takes at least until rates are found out anew.
const SPAN: Duration = Duration::from_millis(900);

/// The totals at the last look, and what they had grown by.
#[derive(Debug, Default)]
pub struct Rates {
    looked: Option<Instant>,
    servers: HashMap<ServerId, Seen>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Seen {
    queries: u64,
    timeouts: u64,
    rate: Rate,
}

/// Of one server, per second.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Rate {
    pub queries: f64,
    pub timeouts: f64,
}

impl Rates {
    /// Takes in the totals as they are now; sooner than [`SPAN`] after the last time it does nothing.
    pub fn take(&mut self, servers: &[Arc<Server>], now: Instant) {
        let span = self.looked.map(|looked| now.duration_since(looked));
        if span.is_some_and(|span| span < SPAN) {
            return;
        }
        let per_second = |grown: u64| span.map_or(0.0, |span| grown as f64 / span.as_secs_f64());
        let seen = |server: &Arc<Server>| {
            let (queries, timeouts) = (server.queries.sum(), server.timeouts.sum());
            let old = self.servers.get(&server.number).copied();
            let rate = old.map_or_else(Rate::default, |old| Rate {
                queries: per_second(queries.saturating_sub(old.queries)),
                timeouts: per_second(timeouts.saturating_sub(old.timeouts)),
            });
            let seen = Seen {
                queries,
                timeouts,
                rate,
            };
            (server.number, seen)
        };
        self.servers = servers.iter().map(seen).collect();
        self.looked = Some(now);
    }

    pub fn of(&self, server: ServerId) -> Rate {
        let seen = self.servers.get(&server);
        seen.map_or_else(Rate::default, |seen| seen.rate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::fixture::{options, server};
    use crate::counters::Lane;

    #[test]
    fn what_has_come_since_is_divided_by_the_time_since() {
        let server = Arc::new(server(0, options("192.0.2.2:53")));
        let servers = [Arc::clone(&server)];
        let mut rates = Rates::default();
        let start = Instant::now();
        rates.take(&servers, start);
        (0..50).for_each(|_| server.queries.count(Lane::SHARED));
        server.timeouts.count(Lane::SHARED);
        rates.take(&servers, start + Duration::from_millis(10));
        assert_eq!(rates.of(server.number), Rate::default(), "too soon");
        rates.take(&servers, start + Duration::from_secs(2));
        let expected = Rate {
            queries: 25.0,
            timeouts: 0.5,
        };
        assert_eq!(rates.of(server.number), expected);
        rates.take(&[], start + Duration::from_secs(4));
        assert_eq!(rates.of(server.number), Rate::default());
    }
}
