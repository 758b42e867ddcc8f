//! What a worker sleeps on: rings that something comes from by poll(2), everything else by one epoll, which is one more descriptor
//! of that poll.
//!
//! To be woken by a ring through the epoll costs 0.3 to 0.4 µs an answer more at 100,000 queries a second
//! (bench/results/2026-11-23-poll): the kernel keeps a list of what is ready, under a lock, and wakes twice. A ring that is polled
//! and that nothing comes from costs each wait as much: the kernel looks at it before and after, and at its TX ring too.

use arrayvec::ArrayVec;
use nix::poll::PollTimeout;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

/// Rings that are polled, at most.
pub const POLLED: usize = 4;

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

    /// Puts a ring into the epoll.
    ///
    /// # Errors
    /// Those of [`Watch::add`].
    pub fn add_ring(&self, ring: BorrowedFd<'_>) -> io::Result<()> {
        // No wait begins before the rings were seen empty, so an edge is enough; without it the kernel looks at every ring that
        // something has come from again at the beginning of the next wait.
        let flags = EpollFlags::EPOLLIN | EpollFlags::EPOLLET;
        let event = EpollEvent::new(flags, Token::Ring.pack());
        Ok(self.epoll.add(ring, event)?)
    }

    /// Waits until something is ready, a ring of `polled`, of which there are [`POLLED`] at most, or what was added, but no
    /// longer than `timeout`.
    pub fn wait<'r>(
        &self,
        polled: impl Iterator<Item = BorrowedFd<'r>>,
        timeout: PollTimeout,
    ) -> Ready {
        let mut descriptors = ArrayVec::<PollFd<'_>, { POLLED + 1 }>::new();
        if timeout != PollTimeout::ZERO {
            let polled = polled.take(POLLED);
            descriptors.extend(polled.map(|ring| PollFd::from_borrowed_fd(ring, PollFlags::IN)));
        }
        if descriptors.is_empty() {
            return self.look(timeout);
        }
        let epoll = self.epoll.0.as_fd();
        descriptors.push(PollFd::from_borrowed_fd(epoll, PollFlags::IN));
        // Not the C library's, see xsk::wake. EINTR is as good as nothing.
        let _ = poll(&mut descriptors, timespec(timeout).as_ref());
        let others = descriptors.last().map(PollFd::revents);
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
    fn wait(watch: &Watch, polled: &[(UnixDatagram, UnixDatagram)], time: Duration) -> Vec<Token> {
        let polled = polled.iter().map(|(ring, _)| ring.as_fd());
        let begin = Instant::now();
        let ready = watch.wait(polled, PollTimeout::try_from(time).unwrap());
        assert!(begin.elapsed() < LONG, "nothing ended the wait");
        ready.tokens().collect()
    }

    #[test]
    fn a_ring_ends_the_wait_polled_or_not() {
        for polled in 0..=POLLED {
            for sender in [0, POLLED] {
                let (watch, rings) = (Watch::new().unwrap(), rings(POLLED + 1));
                for (ring, _) in &rings[polled..] {
                    watch.add_ring(ring.as_fd()).unwrap();
                }
                let first = &rings[..polled];
                assert_eq!(wait(&watch, first, Duration::from_millis(1)), []);
                rings[sender].1.send(b"frame").unwrap();
                let expected: &[Token] = if sender < polled { &[] } else { &[Token::Ring] };
                assert_eq!(wait(&watch, first, LONG), expected, "{polled}, {sender}");
            }
        }
    }

    #[test]
    fn the_rest_ends_the_wait_with_rings_and_without() {
        let (socket, sender) = UnixDatagram::pair().unwrap();
        sender.send(b"query").unwrap();
        for count in [0, 1, POLLED] {
            let (watch, rings) = (Watch::new().unwrap(), rings(count));
            watch.add(&socket, Token::Listener(3, 1)).unwrap();
            assert_eq!(wait(&watch, &rings, LONG), [Token::Listener(3, 1)]);
            let look = wait(&watch, &rings, Duration::ZERO);
            assert_eq!(look, [Token::Listener(3, 1)]);
            watch.remove(&socket);
            assert_eq!(wait(&watch, &rings, Duration::from_millis(1)), []);
        }
    }

    #[test]
    fn what_came_before_a_ring_was_added_ends_the_wait() {
        let (watch, rings) = (Watch::new().unwrap(), rings(1));
        rings[0].1.send(b"frame").unwrap();
        watch.add_ring(rings[0].0.as_fd()).unwrap();
        assert_eq!(wait(&watch, &[], LONG), [Token::Ring]);
        // Polled again: the frame is still there, whatever edges have passed.
        watch.remove(&rings[0].0);
        assert_eq!(wait(&watch, &rings, LONG), []);
        assert_eq!(rings[0].0.recv(&mut [0; 8]).unwrap(), 5);
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
