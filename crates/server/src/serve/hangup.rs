//! SIGHUP asks for a reload, from the first moment of a start on: its default action would end a daemon that still reads its
//! zones. What comes before the control thread serves is one reload after the start. SIGTERM and SIGINT are heard from the moment
//! on at which clients can connect: from then on the end has the status 0.

use nix::sys::signal::{SigSet, Signal as Number};
use std::io;
use tokio::runtime::Builder;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Does `work`, during which a SIGHUP waits, and has each heard from then on: what the work came to, and where they are heard.
/// Meant for the fork of the helper, which has no part in it and blocks SIGHUP for itself, and for what must be taken over before
/// anything is opened. Starts no thread.
///
/// # Errors
/// No descriptors left.
pub(super) fn heard_after<T>(work: impl FnOnce() -> T) -> io::Result<(T, Signal)> {
    let hangup = SigSet::from(Number::SIGHUP);
    hangup.thread_block()?;
    let done = work();
    // The handler is the process's, and stays when this runtime has gone; the next one reads what has come by then.
    let runtime = Builder::new_current_thread().enable_io().build()?;
    let _inside = runtime.enter();
    let hangups = signal(SignalKind::hangup())?;
    // Threads and programs that begin later have nothing blocked, whoever started this process.
    hangup.thread_unblock()?;
    Ok((done, hangups))
}

/// The names of what [`ends`] hears, in its order.
pub(super) const ENDS: [&str; 2] = ["SIGTERM", "SIGINT"];

/// Has each SIGTERM and SIGINT heard from now on. Starts no thread.
///
/// # Errors
/// No descriptors left.
pub(super) fn ends() -> io::Result<[Signal; 2]> {
    // As above: the handlers stay.
    let runtime = Builder::new_current_thread().enable_io().build()?;
    let _inside = runtime.enter();
    Ok([
        signal(SignalKind::terminate())?,
        signal(SignalKind::interrupt())?,
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::signal::raise;
    use std::time::Duration;
    use tokio::time::timeout;

    /// Unheard, the first of them would end the process of the tests.
    #[test]
    fn what_comes_before_anybody_hears_is_heard_once() {
        let come_early = || (0..2).for_each(|_| raise(Number::SIGHUP).expect("to signal"));
        let ((), mut hangups) = heard_after(come_early).expect("a handler");
        let blocked = SigSet::thread_get_mask().expect("the mask");
        assert!(!blocked.contains(Number::SIGHUP));
        let runtime = Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(async {
            assert!(hangups.recv().await.is_some());
            let second = timeout(Duration::ZERO, hangups.recv()).await;
            assert!(second.is_err(), "two that wait are one");
        });
    }
}
