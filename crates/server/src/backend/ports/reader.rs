//! Reading answers that come to kernel sockets.

use super::{BoundPort, Ports};
use nix::sys::epoll::{EpollEvent, EpollTimeout};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

/// Sockets that one call looks at; the others are ready the next time.
const EVENTS: usize = 64;

/// The backend ports that one worker reads: one descriptor to poll for, whatever ports come and go.
pub struct PortReader {
    ports: Arc<Ports>,
    worker: usize,
    events: Box<[EpollEvent; EVENTS]>,
}

impl PortReader {
    pub(super) fn new(ports: Arc<Ports>, worker: usize) -> PortReader {
        PortReader {
            ports,
            worker,
            events: Box::new([EpollEvent::empty(); EVENTS]),
        }
    }

    /// Calls `read` with each port that has something to read, 64 at most; what it leaves is there the next time.
    ///
    /// # Errors
    /// Those of epoll_wait, other than being interrupted.
    pub fn for_each_ready(&mut self, mut read: impl FnMut(&BoundPort)) -> io::Result<()> {
        let epoll = &self.ports.epolls[self.worker];
        let count = match epoll.wait(&mut *self.events, EpollTimeout::ZERO) {
            Ok(count) => count,
            Err(nix::errno::Errno::EINTR) => 0,
            Err(error) => return Err(error.into()),
        };
        if count == 0 {
            return Ok(());
        }
        let pools = self.ports.pools.load();
        for event in &self.events[..count] {
            let (pool, number) = ((event.data() >> 16) as usize, event.data() as u16);
            if let Some(port) = pools.get(pool).and_then(|pool| pool.find(number)) {
                read(port);
            }
        }
        Ok(())
    }
}

/// Readable while a port has something to read.
impl AsFd for PortReader {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.ports.epolls[self.worker].0.as_fd()
    }
}
