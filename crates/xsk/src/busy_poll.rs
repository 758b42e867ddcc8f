//! Busy polling: the thread that reads a queue has the kernel look at it, instead of waiting for an interrupt and a soft interrupt
//! on whatever processor that comes to (Documentation/networking/af_xdp.rst, "Busy poll"; Linux 5.11).

use std::os::fd::AsFd;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::socket::Socket;
use crate::sys::socket as system;
use crate::wake;

/// How a socket's queue is polled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BusyPoll {
    /// For so long after the last frame its worker polls before it sleeps (SO_BUSY_POLL).
    pub microseconds: u32,
    /// Frames that the driver takes a poll, at most (SO_BUSY_POLL_BUDGET).
    pub budget: u16,
}

impl BusyPoll {
    /// Sets it on a socket that may be unbound still. Takes CAP_NET_ADMIN.
    ///
    /// # Errors
    /// The kernel is older than 5.11 or does not allow it; the socket is then as it was, or polled with the kernel's budget.
    pub fn prefer(self, socket: &impl AsFd) -> Result<()> {
        let microseconds = i32::try_from(self.microseconds).unwrap_or(i32::MAX);
        let options = [
            ("SO_BUSY_POLL", libc::SO_BUSY_POLL, microseconds),
            (
                "SO_BUSY_POLL_BUDGET",
                libc::SO_BUSY_POLL_BUDGET,
                self.budget.into(),
            ),
            ("SO_PREFER_BUSY_POLL", libc::SO_PREFER_BUSY_POLL, 1),
        ];
        for (name, option, number) in options {
            let set = system::set_number(socket.as_fd(), option, number);
            set.map_err(|error| {
                let doing = format!("setting {name} to {number} (Linux 5.11, CAP_NET_ADMIN)");
                Error::system(doing, error)
            })?;
        }
        Ok(())
    }
}

impl Socket {
    /// For how long its queue is to be polled after the last frame; `None`: it is not polled.
    pub fn busy_poll(&self) -> Option<Duration> {
        let prefers = system::number(self.as_fd(), libc::SO_PREFER_BUSY_POLL);
        let microseconds = system::number(self.as_fd(), libc::SO_BUSY_POLL).ok()?;
        let microseconds = u64::try_from(microseconds).ok()?;
        (prefers.ok()? != 0).then(|| Duration::from_micros(microseconds))
    }

    /// Has the kernel look at the queue now; what came is in the RX ring then.
    pub fn poll_queue(&self) {
        wake::poll_queue(self.as_fd());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_takes_the_options_or_the_error_names_what_is_missing() {
        let Ok(socket) = Socket::open() else {
            println!("SKIP: an AF_XDP socket takes CAP_NET_RAW");
            return;
        };
        let wish = BusyPoll {
            microseconds: 20,
            budget: 64,
        };
        match wish.prefer(&socket) {
            Ok(()) => {
                // The kernel does not tell the budget.
                let number = |option| system::number(socket.as_fd(), option).unwrap();
                assert_eq!(number(libc::SO_PREFER_BUSY_POLL), 1);
                assert_eq!(number(libc::SO_BUSY_POLL), 20);
            }
            Err(error) => assert!(error.to_string().contains("CAP_NET_ADMIN"), "{error}"),
        }
    }
}
