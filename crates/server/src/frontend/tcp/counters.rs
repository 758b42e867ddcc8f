//! What a TCP listener counts about its connections: dnsdist's numbers per frontend. What concerns queries is counted by
//! the pipeline.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// The counters of one listener, shared by its connections.
#[derive(Debug, Default)]
pub struct Counters {
    /// Messages read, but not those of clients that a proxy names and the ACL keeps out.
    pub queries: AtomicU64,
    /// Messages written.
    pub responses: AtomicU64,
    pub died_reading_query: AtomicU64,
    pub died_sending_response: AtomicU64,
    pub gave_up: AtomicU64,
    pub client_timeouts: AtomicU64,
    pub backend_timeouts: AtomicU64,
    /// Connections there was no place for.
    pub refused: AtomicU64,
    connections: AtomicU64,
    connections_maximum: AtomicU64,
    connections_ended: AtomicU64,
    /// Of the ended ones.
    queries_ended: AtomicU64,
    microseconds_ended: AtomicU64,
}

/// The counters at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Figures {
    /// The client went away within a message.
    pub died_reading_query: u64,
    /// The client went away, or did not read, before its response was sent.
    pub died_sending_response: u64,
    /// Connections closed because the backend could not be asked.
    pub gave_up: u64,
    pub client_timeouts: u64,
    pub backend_timeouts: u64,
    /// Connections there was no place for.
    pub refused: u64,
    /// Now.
    pub connections: u64,
    /// The most at a time.
    pub connections_maximum: u64,
    /// On average, of connections that have ended.
    pub queries_per_connection: f64,
    /// On average, of connections that have ended, in milliseconds.
    pub duration: f64,
}

impl Counters {
    pub fn count(counter: &AtomicU64) {
        counter.fetch_add(1, Relaxed);
    }

    pub fn opened(&self) {
        let now = self.connections.fetch_add(1, Relaxed) + 1;
        self.connections_maximum.fetch_max(now, Relaxed);
    }

    /// A connection has ended, after so many queries and so long.
    pub fn closed(&self, queries: u64, duration: Duration) {
        self.connections.fetch_sub(1, Relaxed);
        self.connections_ended.fetch_add(1, Relaxed);
        self.queries_ended.fetch_add(queries, Relaxed);
        let microseconds = duration.as_micros() as u64;
        self.microseconds_ended.fetch_add(microseconds, Relaxed);
    }

    pub fn figures(&self) -> Figures {
        let ended = self.connections_ended.load(Relaxed).max(1) as f64;
        Figures {
            died_reading_query: self.died_reading_query.load(Relaxed),
            died_sending_response: self.died_sending_response.load(Relaxed),
            gave_up: self.gave_up.load(Relaxed),
            client_timeouts: self.client_timeouts.load(Relaxed),
            backend_timeouts: self.backend_timeouts.load(Relaxed),
            refused: self.refused.load(Relaxed),
            connections: self.connections.load(Relaxed),
            connections_maximum: self.connections_maximum.load(Relaxed),
            queries_per_connection: self.queries_ended.load(Relaxed) as f64 / ended,
            duration: self.microseconds_ended.load(Relaxed) as f64 / 1_000.0 / ended,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn averages_are_those_of_connections_that_ended() {
        let counters = Counters::default();
        assert_eq!(counters.figures(), Figures::default());
        counters.opened();
        counters.opened();
        counters.closed(5, Duration::from_millis(20));
        counters.opened();
        counters.closed(3, Duration::from_millis(40));
        let figures = counters.figures();
        assert_eq!((figures.connections, figures.connections_maximum), (1, 2));
        assert_eq!(
            (figures.queries_per_connection, figures.duration),
            (4.0, 30.0)
        );
    }
}
