//! What a worker sleeps on: its rings by poll(2), everything else by one epoll, which is one more descriptor of that poll.
//!
//! To be woken by a ring through the epoll costs 0.3 to 0.4 µs an answer more at 100,000 queries a second
//! (bench/results/2026-11-23-poll): the kernel keeps a list of what is ready, under a lock, and wakes twice.

use arrayvec::ArrayVec;
use nix::poll::PollTimeout;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

/// Rings that are polled, at most: each costs a look at every wait. Where a worker has more, all of them are in the epoll.
const POLLED: usize = 4;

/// What a descriptor in the epoll stands for, packed into the 64 bits that it keeps: kind above, number below.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Token {
    Wake,
    Ring,
    /// A socket of a listener: the listener's number and the socket's place in its group.
    Listener(u16, u16),
    Ports,
}

impl Token {
    fn pack(self) -> u64 {
        match self {
            Token::Wake => 0,
            Token::Ring => 1 << 32,
            Token::Listener(number, socket) => {
                2 << 32 | u64::from(number) << 16 | u64::from(socket)
            }
            Token::Ports => 3 << 32,
        }
    }

    fn unpack(packed: u64) -> Token {
        match packed >> 32 {
            0 => Token::Wake,
            1 => Token::Ring,
            2 => Token::Listener((packed >> 16) as u16, packed as u16),
            _ => Token::Ports,
        }
    }
}

/// What was ready after one wait, rings aside.
/// After most waits that is nothing, and nothing is then written: this is most of a worker's stack.
pub struct Ready(ArrayVec<EpollEvent, EVENTS>);

/// So many are told of at a time.
const EVENTS: usize = 64;

impl Ready {
    pub fn tokens(&self) -> impl Iterator<Item = Token> {
        self.0.iter().map(|event| Token::unpack(event.data()))
    }
}

pub struct Watch {
    epoll: Epoll,
}

impl Watch {
    /// # Errors
    /// When the kernel gives no descriptor.
    pub fn new() -> io::Result<Watch> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        Ok(Watch { epoll })
    }

    /// # Errors
    /// Those of epoll_ctl: no memory, or more watches than `fs.epoll.max_user_watches`.
    pub fn add(&self, descriptor: impl AsFd, token: Token) -> io::Result<()> {
        let event = EpollEvent::new(EpollFlags::EPOLLIN, token.pack());
        Ok(self.epoll.add(descriptor, event)?)
    }

    pub fn remove(&self, descriptor: impl AsFd) {
        // It was added; closing it would do the same.
        let _ = self.epoll.delete(descriptor);
    }

    /// The rings are others now: all that there are, after each change.
    ///
    /// # Errors
    /// Those of [`Watch::add`].
    pub fn set_rings<'r>(
        &self,
        rings: impl Iterator<Item = BorrowedFd<'r>> + Clone,
    ) -> io::Result<()> {
        let too_many = rings.clone().nth(POLLED).is_some();
        for ring in rings {
            // It may never have been added.
            let _ = self.epoll.delete(ring);
            if too_many {
                // No wait begins before the rings were seen empty, so an edge is enough; without it the kernel looks at
                // every ring again at the beginning of the next wait.
                let flags = EpollFlags::EPOLLIN | EpollFlags::EPOLLET;
                let event = EpollEvent::new(flags, Token::Ring.pack());
                self.epoll.add(ring, event)?;
            }
        }
        Ok(())
    }

    /// Waits until something is ready, a ring of `rings` or what was added, but no longer than `timeout`.
    pub fn wait<'r>(
        &self,
        rings: impl Iterator<Item = BorrowedFd<'r>>,
        timeout: PollTimeout,
    ) -> Ready {
        let mut polled = ArrayVec::<PollFd<'_>, { POLLED + 1 }>::new();
        if timeout != PollTimeout::ZERO {
            let rings = rings.take(POLLED + 1);
            polled.extend(rings.map(|ring| PollFd::from_borrowed_fd(ring, PollFlags::IN)));
        }
        if polled.is_empty() || polled.is_full() {
            return self.look(timeout);
        }
        let epoll = self.epoll.0.as_fd();
        polled.push(PollFd::from_borrowed_fd(epoll, PollFlags::IN));
        // Not the C library's, see xsk::wake. EINTR is as good as nothing.
        let _ = poll(&mut polled, timespec(timeout).as_ref());
        let others = polled.last().map(PollFd::revents);
        if others.is_some_and(|events| !events.is_empty()) {
            return self.look(PollTimeout::ZERO);
        }
        Ready(ArrayVec::new())
    }

    fn look(&self, timeout: PollTimeout) -> Ready {
        let mut events = [EpollEvent::empty(); EVENTS];
        // EINTR is as good as nothing.
        let count = self.epoll.wait(&mut events, timeout).unwrap_or(0);
        Ready(events.into_iter().take(count).collect())
    }
}

/// `None`: for ever.
fn timespec(timeout: PollTimeout) -> Option<Timespec> {
    let milliseconds = u64::try_from(i32::from(timeout)).ok()?;
    Timespec::try_from(Duration::from_millis(milliseconds)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixDatagram;
    use std::time::Instant;

    /// What no test waits for.
    const LONG: Duration = Duration::from_secs(60);

    /// Stand-ins for rings (what can be read was received), and their senders.
    fn rings(count: usize) -> Vec<(UnixDatagram, UnixDatagram)> {
        (0..count).map(|_| UnixDatagram::pair().unwrap()).collect()
    }

    /// What a wait for these rings tells, which ends at once where something is there.
    fn wait(watch: &Watch, rings: &[(UnixDatagram, UnixDatagram)], time: Duration) -> Vec<Token> {
        let rings = rings.iter().map(|(ring, _)| ring.as_fd());
        let begin = Instant::now();
        let ready = watch.wait(rings, PollTimeout::try_from(time).unwrap());
        assert!(begin.elapsed() < LONG, "nothing ended the wait");
        ready.tokens().collect()
    }

    fn set(watch: &Watch, rings: &[(UnixDatagram, UnixDatagram)]) {
        let rings = rings.iter().map(|(ring, _)| ring.as_fd());
        watch.set_rings(rings).unwrap();
    }

    #[test]
    fn a_ring_ends_the_wait_however_many_there_are() {
        for count in [1, POLLED, POLLED + 1, 3 * POLLED] {
            let (watch, rings) = (Watch::new().unwrap(), rings(count));
            set(&watch, &rings);
            assert_eq!(wait(&watch, &rings, Duration::from_millis(1)), []);
            rings[count - 1].1.send(b"frame").unwrap();
            let told = wait(&watch, &rings, LONG);
            let expected: &[Token] = if count > POLLED { &[Token::Ring] } else { &[] };
            assert_eq!(told, expected);
        }
    }

    #[test]
    fn the_rest_ends_the_wait_with_rings_and_without() {
        let (socket, sender) = UnixDatagram::pair().unwrap();
        sender.send(b"query").unwrap();
        for count in [0, 1, POLLED + 1] {
            let (watch, rings) = (Watch::new().unwrap(), rings(count));
            set(&watch, &rings);
            watch.add(&socket, Token::Listener(3, 1)).unwrap();
            assert_eq!(wait(&watch, &rings, LONG), [Token::Listener(3, 1)]);
            let look = wait(&watch, &rings, Duration::ZERO);
            assert_eq!(look, [Token::Listener(3, 1)]);
            watch.remove(&socket);
            assert_eq!(wait(&watch, &rings, Duration::from_millis(1)), []);
        }
    }

    #[test]
    fn rings_that_come_and_go_are_waited_for() {
        let (watch, mut rings) = (Watch::new().unwrap(), rings(POLLED));
        set(&watch, &rings);
        rings.insert(0, UnixDatagram::pair().unwrap());
        set(&watch, &rings);
        rings[POLLED].1.send(b"frame").unwrap();
        assert_eq!(wait(&watch, &rings, LONG), [Token::Ring]);
        rings.remove(0);
        set(&watch, &rings);
        // Polled again: the frame is still there, whatever edges have passed.
        assert_eq!(wait(&watch, &rings, LONG), []);
        assert_eq!(rings[POLLED - 1].0.recv(&mut [0; 8]).unwrap(), 5);
    }

    #[test]
    fn tokens_survive_packing() {
        for token in [
            Token::Wake,
            Token::Ring,
            Token::Listener(65_535, 7),
            Token::Ports,
        ] {
            assert_eq!(Token::unpack(token.pack()), token);
        }
    }
}
