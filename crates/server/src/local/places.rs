//! Places for transfers in: each may hold the old and the new version of a zone in memory. A place is taken by whoever has a
//! connection already, so that a primary that does not accept connections holds none, and holds up none but its own zones.
//!
//! ```text
//!  door of this primary ─▶ connection ─▶ place ─▶ transfer
//!                              ▲           │ only after a while, as others are being transferred:
//!                              └───────────┘ the connection was given up, and is made anew in the place
//! ```

use super::ask::{self, AskError, CONNECT_AGAIN, CONNECT_WITHIN};
use super::settings::Peer;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore, SemaphorePermit};
use tokio::time::timeout;

/// Zones that are transferred in at a time.
const TRANSFERS: usize = 16;

/// Connections that are made to one primary at a time, or wait for a place.
const AT_A_DOOR: usize = 32;

/// How long a connection is kept that waits for a place. RFC 7766 §6.2.3 recommends "an idle timeout of the order of a few
/// seconds" to servers.
const KEPT: Duration = Duration::from_secs(2);

/// The semaphore is never closed.
pub(super) type Place<'p> = Result<SemaphorePermit<'p>, AcquireError>;

pub(super) struct Places {
    transfers: Semaphore,
    doors: Doors,
}

/// Doors of servers, through each of which so many may go at a time.
pub(super) struct Doors {
    width: usize,
    /// By the server's address; those that nobody stands at are gone.
    known: Mutex<HashMap<SocketAddr, Weak<Semaphore>>>,
}

impl Places {
    pub(super) fn new() -> Places {
        Places {
            transfers: Semaphore::new(TRANSFERS),
            doors: Doors::of(AT_A_DOOR),
        }
    }

    /// A place, and a connection to a primary.
    ///
    /// # Errors
    /// Why there is no connection.
    pub(super) async fn connected(&self, peer: &Peer) -> Result<(Place<'_>, TcpStream), AskError> {
        let entered = self.doors.enter(peer.address).await;
        let stream = ask::connection(peer, CONNECT_WITHIN).await?;
        let mut taking = pin!(self.transfers.acquire());
        if let Ok(place) = timeout(KEPT, taking.as_mut()).await {
            return Ok((place, stream));
        }
        drop(stream);
        drop(entered);
        let place = taking.await;
        let stream = ask::connection(peer, CONNECT_AGAIN).await?;
        Ok((place, stream))
    }
}

impl Doors {
    /// For so many at a time at each.
    pub(super) fn of(width: usize) -> Doors {
        Doors {
            width,
            known: Mutex::default(),
        }
    }

    /// Waits for its turn at the door of this server, which lasts until what is returned is dropped.
    pub(super) async fn enter(
        &self,
        address: SocketAddr,
    ) -> Result<OwnedSemaphorePermit, AcquireError> {
        self.door(address).acquire_owned().await
    }

    fn door(&self, address: SocketAddr) -> Arc<Semaphore> {
        let mut doors = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(door) = doors.get(&address).and_then(Weak::upgrade) {
            return door;
        }
        doors.retain(|_, door| door.strong_count() > 0);
        let door = Arc::new(Semaphore::new(self.width));
        doors.insert(address, Arc::downgrade(&door));
        door
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncReadExt;
    use tokio::net::{TcpListener, TcpSocket};

    async fn primary() -> (TcpListener, Peer) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let peer = Peer::new(listener.local_addr().unwrap());
        (listener, peer)
    }

    /// One that accepts nothing, and whose queue is full: the kernel drops what else comes.
    async fn dead_primary() -> (TcpListener, Vec<TcpStream>, Peer) {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let listener = socket.listen(1).unwrap();
        let address = listener.local_addr().unwrap();
        let mut queued = Vec::new();
        // Longer than the machine may keep us from seeing that a connection is there.
        let wait = Duration::from_secs(1);
        while let Ok(stream) = timeout(wait, TcpStream::connect(address)).await {
            queued.push(stream.unwrap());
        }
        (listener, queued, Peer::new(address))
    }

    #[tokio::test]
    async fn whoever_stands_at_a_door_holds_up_nobody_at_another() {
        let doors = Doors::of(2);
        let [one, other] = ["192.0.2.1:53", "192.0.2.2:53"].map(|text| text.parse().unwrap());
        let first = doors.enter(one).await.unwrap();
        let _second = doors.enter(one).await.unwrap();
        let mut third = pin!(doors.enter(one));
        let waits = timeout(Duration::ZERO, third.as_mut()).await;
        assert!(waits.is_err());
        let at_the_other = doors.enter(other).await.unwrap();
        drop(first);
        let _third = third.await.unwrap();
        drop(at_the_other);
        let third_server = "192.0.2.3:53".parse().unwrap();
        let _at_the_third = doors.enter(third_server).await.unwrap();
        let known = doors.known.lock().unwrap().len();
        assert_eq!(known, 2, "a door that nobody stands at is gone");
    }

    #[tokio::test]
    async fn a_primary_that_does_not_connect_holds_no_place() {
        let places = Arc::new(Places::new());
        let (_dead, _queued, dead) = dead_primary().await;
        let waiting: Vec<_> = (0..4 * TRANSFERS)
            .map(|_| {
                let (places, dead) = (Arc::clone(&places), dead.clone());
                tokio::spawn(async move { places.connected(&dead).await.is_ok() })
            })
            .collect();
        tokio::task::yield_now().await;
        let (_listener, live) = primary().await;
        let mut held = Vec::new();
        for number in 0..TRANSFERS {
            // Those that wait for the dead one do so for longer.
            let connected = timeout(CONNECT_WITHIN / 2, places.connected(&live)).await;
            let connected = connected.unwrap_or_else(|_| panic!("{number} found no place"));
            held.push(connected.unwrap());
        }
        assert!(waiting.iter().all(|waiting| !waiting.is_finished()));
        assert_eq!(places.doors.known.lock().unwrap().len(), 2);
        waiting.iter().for_each(|waiting| waiting.abort());
    }

    #[tokio::test]
    async fn whoever_waits_for_a_place_has_no_connection_and_then_another_one() {
        let places = Arc::new(Places::new());
        let (listener, live) = primary().await;
        let mut held = Vec::new();
        for _ in 0..TRANSFERS {
            held.push(places.connected(&live).await.unwrap());
            listener.accept().await.unwrap();
        }
        let (shared, peer) = (Arc::clone(&places), live.clone());
        let waiting = tokio::spawn(async move { shared.connected(&peer).await.is_ok() });
        let (mut first, _) = listener.accept().await.unwrap();
        // It is closed when it was kept for long enough.
        assert_eq!(first.read(&mut [0]).await.unwrap(), 0);
        drop(held.pop());
        listener.accept().await.unwrap();
        assert!(waiting.await.unwrap());
    }
}
