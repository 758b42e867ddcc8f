//! What a worker sends through and receives from: UDP or TCP, many clients each.

use crate::failure::Outcome;
use std::time::Duration;

/// The clients of one thread. A client is a socket.
pub(super) trait Transport: Send {
    /// Sends messages, each under its ID, as one client; returns how many were taken. None may be a socket that is full
    /// or not connected yet: try again after [`receive`](Transport::receive).
    ///
    /// # Errors
    /// What no waiting would mend.
    fn send(&mut self, client: usize, messages: &[(u16, &[u8])]) -> Outcome<usize>;

    /// Hands every message that has come to `take`. Waits for at most `limit` for something to do.
    ///
    /// # Errors
    /// What no waiting would mend.
    fn receive(&mut self, limit: Duration, take: &mut dyn FnMut(&[u8])) -> Outcome<()>;
}
