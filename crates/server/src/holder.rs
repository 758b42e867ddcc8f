//! Queries and responses that functions of the configuration have suspended (`dq:suspend`, `dr:suspend`): what dnsdist's manual
//! calls the Asynchronous Holder.
//!
//! ```text
//!  LuaAction ── suspend ─▶ Slot ◀── by its key ── getAsynchronousObject ── resume, drop
//!      │                    ▲
//!    Ticket ─▶ runtime ─────┘ waits for that or for the time-out; then the query goes on (pipeline::suspended)
//! ```
//!
//! All threads and all Lua states of a process share one holder: it is off the packet path, behind a lock.

use crate::pipeline::suspended::{Rest, Suspended};
use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;

/// Queries and responses that may be suspended at a time. Whoever asks outside for each of them, and waits 100 ms for the answer,
/// can have 40,000 a second.
pub const HELD_MAX: usize = 4_096;

/// The bytes of their messages together: 4,096 for each.
pub const BYTES_MAX: usize = HELD_MAX * 4_096;

/// asyncID and queryID: the manual has both "from 0 to 65535, both included".
pub type Key = (u16, u16);

/// Holds what is suspended, and finds it again.
#[derive(Default)]
pub struct Holder {
    shelf: Mutex<Shelf>,
    /// Times that suspend returned false because there was no room, or the key was taken.
    pub refused: AtomicU64,
    /// Time-outs: nobody resumed or dropped it.
    pub timeouts: AtomicU64,
}

#[derive(Default)]
struct Shelf {
    slots: HashMap<Key, Arc<Slot>>,
    /// Of all that is suspended, or resumed and not under way yet.
    count: usize,
    bytes: usize,
}

impl Holder {
    /// A place under `key` for a message of so many bytes. "A given (asyncID, queryID) tuple should be unique at a given time": a
    /// key that is taken is refused, as where there is no room or no memory.
    pub fn reserve(
        self: &Arc<Holder>,
        key: Key,
        timeout: Duration,
        bytes: usize,
    ) -> Option<Reservation> {
        let mut shelf = self.lock();
        let is_refused = shelf.slots.contains_key(&key)
            || shelf.count >= HELD_MAX
            || shelf.bytes + bytes > BYTES_MAX
            || shelf.slots.try_reserve(1).is_err();
        if is_refused {
            self.refused.fetch_add(1, Relaxed);
            return None;
        }
        let slot = Arc::new(Slot {
            holder: Arc::clone(self),
            key,
            timeout,
            inner: Mutex::default(),
            changed: Notify::new(),
        });
        shelf.slots.insert(key, Arc::clone(&slot));
        shelf.count += 1;
        shelf.bytes += bytes;
        Some(Reservation {
            ticket: Ticket(Arc::new(End(slot))),
            place: Place {
                holder: Arc::clone(self),
                bytes,
            },
        })
    }

    /// What is suspended under this key, if it is.
    pub fn find(&self, key: Key) -> Option<Arc<Slot>> {
        self.lock().slots.get(&key).map(Arc::clone)
    }

    /// How many are suspended, or resumed and not under way yet.
    pub fn count(&self) -> usize {
        self.lock().count
    }

    /// The key is free for others.
    fn forget(&self, slot: &Slot) {
        let mut shelf = self.lock();
        let is_its_own = |held: &Arc<Slot>| std::ptr::eq(Arc::as_ptr(held), slot);
        if shelf.slots.get(&slot.key).is_some_and(is_its_own) {
            shelf.slots.remove(&slot.key);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Shelf> {
        self.shelf.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The room that something suspended takes, until it is under way again or gone.
pub struct Place {
    holder: Arc<Holder>,
    bytes: usize,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut shelf = self.holder.lock();
        shelf.count -= 1;
        shelf.bytes -= self.bytes;
    }
}

/// A key and a place for what is about to be suspended; given back when this is dropped.
pub struct Reservation {
    ticket: Ticket,
    place: Place,
}

impl Reservation {
    /// From now on it is found under its key. Whoever gets the ticket waits for what becomes of it.
    pub fn fill(self, suspended: impl FnOnce(Place) -> Suspended) -> Ticket {
        let Reservation { ticket, place } = self;
        ticket.0.0.lock().state = State::Held(Box::new(suspended(place)));
        ticket
    }
}

/// Where something suspended lies.
pub struct Slot {
    holder: Arc<Holder>,
    key: Key,
    timeout: Duration,
    inner: Mutex<Inner>,
    /// It was resumed, or dropped.
    changed: Notify,
}

#[derive(Default)]
struct Inner {
    state: State,
    rest: Rest,
}

#[derive(Default)]
enum State {
    #[default]
    Empty,
    Held(Box<Suspended>),
    Released(Box<Suspended>),
}

impl Slot {
    /// Looks at what is suspended here. `None`: it has gone on, or was dropped.
    pub fn look<R>(&self, look: impl FnOnce(&mut Suspended) -> R) -> Option<R> {
        match &mut self.lock().state {
            State::Held(suspended) => Some(look(suspended)),
            State::Empty | State::Released(_) => None,
        }
    }

    /// Has it go on, after `change`. False: it has already, or was dropped.
    pub fn release(&self, change: impl FnOnce(&mut Suspended)) -> bool {
        let mut inner = self.lock();
        match std::mem::take(&mut inner.state) {
            State::Held(mut suspended) => {
                change(&mut suspended);
                inner.state = State::Released(suspended);
            }
            other => {
                inner.state = other;
                return false;
            }
        }
        drop(inner);
        self.end();
        true
    }

    /// Drops it. False: it has gone on, or was dropped.
    pub fn discard(&self) -> bool {
        let mut inner = self.lock();
        let dropped = match std::mem::take(&mut inner.state) {
            State::Held(suspended) => suspended,
            other => {
                inner.state = other;
                return false;
            }
        };
        drop(inner);
        drop(dropped);
        self.end();
        true
    }

    fn end(&self) {
        self.holder.forget(self);
        self.changed.notify_one();
    }

    /// Takes out what is here, however far it has come; and whether nobody had resumed it.
    fn take(&self) -> Option<(Box<Suspended>, bool)> {
        let (state, rest) = {
            let mut inner = self.lock();
            (
                std::mem::take(&mut inner.state),
                std::mem::take(&mut inner.rest),
            )
        };
        self.holder.forget(self);
        let (mut suspended, is_late) = match state {
            State::Empty => return None,
            State::Held(suspended) => (suspended, true),
            State::Released(suspended) => (suspended, false),
        };
        suspended.rest = rest;
        Some((suspended, is_late))
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// For whoever waits for what becomes of something suspended. When the last copy is dropped, so is what nobody waits for.
#[derive(Clone)]
pub struct Ticket(Arc<End>);

struct End(Arc<Slot>);

impl Drop for End {
    fn drop(&mut self) {
        self.0.take();
    }
}

impl Ticket {
    /// Says how it will go on. To be called before anybody waits.
    pub fn set_rest(&self, rest: Rest) {
        self.0.0.lock().rest = rest;
    }

    /// Waits until it is resumed or its time is over: "When the timeout expires, the suspended object is automatically retrieved
    /// and resumes its processing where it was left." `None`: it was dropped.
    pub async fn outcome(&self) -> Option<Box<Suspended>> {
        let slot = &self.0.0;
        let _ = tokio::time::timeout(slot.timeout, slot.changed.notified()).await;
        self.take()
    }

    /// The same without waiting.
    pub fn take(&self) -> Option<Box<Suspended>> {
        let slot = &self.0.0;
        let (suspended, is_late) = slot.take()?;
        if is_late {
            slot.holder.timeouts.fetch_add(1, Relaxed);
        }
        Some(suspended)
    }
}

impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Ticket({:?})", self.0.0.key)
    }
}

impl PartialEq for Ticket {
    fn eq(&self, other: &Ticket) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Ticket {}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::pipeline::carried::Carried;
    use crate::pipeline::query::{Found, Protocol, Way};
    use std::net::{Ipv4Addr, SocketAddr};

    pub(crate) const TIMEOUT: Duration = Duration::from_millis(500);

    /// A message of zeros.
    pub(crate) fn suspend(holder: &Arc<Holder>, key: Key) -> Option<Ticket> {
        let reservation = holder.reserve(key, TIMEOUT, 100)?;
        let nowhere = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0);
        Some(reservation.fill(|place| Suspended {
            config: Arc::default(),
            message: vec![0; 100],
            found: Found::default(),
            extras: Carried::NOTHING,
            ends: (nowhere, nowhere),
            protocol: Protocol::Udp,
            way: Way::Stream,
            asked: Default::default(),
            server: None,
            rest: Rest::default(),
            place,
        }))
    }

    #[tokio::test(start_paused = true)]
    async fn it_waits_to_be_resumed_or_dropped_or_for_its_time() {
        let holder = Arc::<Holder>::default();
        let [resumed, dropped, late] = [1, 2, 3].map(|id| suspend(&holder, (0, id)).unwrap());
        assert!(holder.find((0, 1)).unwrap().release(|it| it.message[0] = 7));
        assert!(holder.find((0, 1)).is_none());
        assert!(holder.find((0, 2)).unwrap().discard());
        assert_eq!(resumed.outcome().await.unwrap().message[0], 7);
        assert!(dropped.outcome().await.is_none());
        let slot = holder.find((0, 3)).unwrap();
        let began = tokio::time::Instant::now();
        let suspended = late.outcome().await;
        assert_eq!(began.elapsed(), TIMEOUT);
        assert!(suspended.is_some() && holder.find((0, 3)).is_none());
        assert!(!slot.release(|_| ()) && !slot.discard() && slot.look(|_| ()).is_none());
        assert_eq!((holder.timeouts.load(Relaxed), holder.count()), (1, 1));
        drop(suspended);
        assert_eq!(holder.count(), 0);
    }

    #[test]
    fn no_more_and_nothing_longer_than_may_be() {
        let holder = Arc::<Holder>::default();
        let all: Vec<_> = (0..HELD_MAX as u16)
            .map(|id| suspend(&holder, (1, id)).unwrap())
            .collect();
        assert!(suspend(&holder, (2, 0)).is_none());
        drop(all);
        assert_eq!((holder.count(), holder.lock().bytes), (0, 0));
        let first = suspend(&holder, (1, 1)).unwrap();
        assert!(suspend(&holder, (1, 1)).is_none(), "the key is taken");
        assert!(holder.reserve((1, 2), TIMEOUT, BYTES_MAX).is_none());
        assert_eq!(holder.refused.load(Relaxed), 3);
        // One that has gone on keeps its place, and gives its key back.
        assert!(holder.find((1, 1)).unwrap().release(|_| ()));
        let second = suspend(&holder, (1, 1)).unwrap();
        assert_eq!(holder.count(), 2);
        drop(first);
        assert!(holder.find((1, 1)).is_some());
        drop(second);
        // A function that fails has suspended nothing.
        drop(holder.reserve((1, 1), TIMEOUT, 1));
        assert!(holder.find((1, 1)).is_none() && holder.count() == 0);
    }
}
