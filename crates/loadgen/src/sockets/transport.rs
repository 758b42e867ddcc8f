//! What a worker sends through and receives from: UDP or TCP, many clients each.

use crate::failure::Outcome;
use std::time::Duration;

/// How long to wait for answers before looking whether to stop.
pub(super) const LONGEST_WAIT: Duration = Duration::from_millis(20);

/// Who takes what has come.
pub(super) trait Taker {
    /// A system call has brought something just now: the messages that follow.
    fn come(&mut self);

    /// A message that came to this client's socket.
    fn take(&mut self, client: usize, message: &[u8]);
}

/// The clients of one thread. A client is a socket.
pub(super) trait Transport: Send {
    /// Sends messages, each under its ID, as one client; returns how many were taken. None may be a socket that is full
    /// or not connected yet: try again after [`receive`](Transport::receive).
    ///
    /// # Errors
    /// What no waiting would mend.
    fn send(&mut self, client: usize, messages: &[(u16, &[u8])]) -> Outcome<usize>;

    /// Hands every message that has come to `taker`. Waits for at most `limit`, which is never above [`LONGEST_WAIT`], for
    /// something to do.
    ///
    /// # Errors
    /// What no waiting would mend.
    fn receive(&mut self, limit: Duration, taker: &mut dyn Taker) -> Outcome<()>;

    /// Answers that came to this machine and found no room in a socket.
    fn overflowed(&self) -> u64;
}

/// Keeps the messages, each with its client.
#[cfg(test)]
#[derive(Default)]
pub(super) struct Taken(pub(super) Vec<(usize, Vec<u8>)>);

#[cfg(test)]
impl Taker for Taken {
    fn come(&mut self) {}

    fn take(&mut self, client: usize, message: &[u8]) {
        self.0.push((client, message.to_vec()));
    }
}
