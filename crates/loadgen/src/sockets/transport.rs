//! What a worker sends through and receives from: UDP or TCP, many clients each.

use crate::failure::{During, Outcome};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::epoll::{Epoll, EpollEvent, EpollTimeout};
use nix::sys::time::TimeSpec;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

/// How long to wait for answers before looking whether to stop.
pub(super) const LONGEST_WAIT: Duration = Duration::from_millis(20);

/// Waits until a descriptor has something to read, for at most so long, to the nanosecond: poll(2) and epoll_wait(2) know whole
/// milliseconds, and a pace of more than a thousand queries a second would have them spin.
///
/// # Errors
/// The kernel refuses.
pub(super) fn wait_for(descriptor: BorrowedFd<'_>, limit: Duration) -> Outcome<bool> {
    let watched = &mut [PollFd::new(descriptor, PollFlags::POLLIN)];
    match ppoll(watched, Some(TimeSpec::from_duration(limit)), None) {
        Err(Errno::EINTR) => Ok(false),
        ready => Ok(ready.during("waiting for answers")? > 0),
    }
}

/// The same for those of an epoll; returns how many of `events` it filled in.
///
/// # Errors
/// The kernel refuses.
pub(super) fn wait_for_events(
    epoll: &Epoll,
    events: &mut [EpollEvent],
    limit: Duration,
) -> Outcome<usize> {
    // Waiting for answers alone takes one call.
    let whole = limit >= LONGEST_WAIT;
    if !whole && !wait_for(epoll.0.as_fd(), limit)? {
        return Ok(0);
    }
    let rest = if whole { LONGEST_WAIT } else { Duration::ZERO };
    let timeout = EpollTimeout::try_from(rest).unwrap_or(EpollTimeout::MAX);
    match epoll.wait(events, timeout) {
        Err(Errno::EINTR) => Ok(0),
        ready => ready.during("waiting for answers"),
    }
}

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
