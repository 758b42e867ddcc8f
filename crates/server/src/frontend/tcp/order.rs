//! In which order the queries of a connection are worked on, and what they take from those behind them.

use crate::runtime::memory::Hold;
use std::sync::Arc;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::{Instant, sleep_until};

/// Queries of a connection whose answers may wait to be written; no more is read until one is. Those that need nobody are
/// answered as fast as they come, and many answers leave by one write.
const UNWRITTEN: usize = 64;

/// How many answers of a connection may wait to be written that works on so many queries at a time.
pub(super) fn unwritten(in_flight: usize) -> usize {
    in_flight.max(UNWRITTEN)
}

/// An answer on its way to the writing half, with what it occupies until it is written.
pub(super) struct Answer {
    pub(super) message: Vec<u8>,
    pub(super) _hold: Hold,
    pub(super) _place: OwnedSemaphorePermit,
}

/// What a query takes from those behind it.
pub(super) struct Place {
    /// Until its answer is written.
    pub(super) unwritten: OwnedSemaphorePermit,
    /// Until its answer, or the last message of a transfer, is on its way to the writing half, which keeps the order: where one
    /// query has its turn at a time, answers leave in the order of their queries.
    pub(super) turn: OwnedSemaphorePermit,
}

/// The places of a connection.
pub(super) struct Places {
    pub(super) unwritten: Arc<Semaphore>,
    turns: Arc<Semaphore>,
}

impl Places {
    pub(super) fn new(in_flight: usize) -> Places {
        Places {
            unwritten: Arc::new(Semaphore::new(unwritten(in_flight))),
            turns: Arc::new(Semaphore::new(in_flight)),
        }
    }
}

/// Why no more queries are read. All but `Broken` let the answers under way be written.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The client has closed its half, between two messages.
    Closed,
    /// The connection is of no more use, or what came is not DNS over TCP.
    Broken,
    /// The client said nothing, or too slowly.
    ClientTimeout,
    /// As many queries as may be, as long as it may be, or we stop; or a backend could not be asked: dnsdist closes the
    /// connection then, so that the client does not wait in vain.
    Enough,
}

/// The way of answers to the writing half, and of bad news to the reading half.
#[derive(Clone)]
pub(super) struct Ready {
    pub(super) answers: mpsc::Sender<Answer>,
    pub(super) failed: Arc<Notify>,
    /// When the connection has lasted as long as it may; `None`: never.
    pub(super) last: Option<Instant>,
}

impl Ready {
    /// Sends an answer; the next query has its turn then. False: the client is gone.
    pub(super) async fn send(&self, message: Vec<u8>, hold: Hold, place: Place) -> bool {
        let answer = Answer {
            message,
            _hold: hold,
            _place: place.unwritten,
        };
        let sent = self.answers.send(answer).await;
        drop(place.turn);
        sent.is_ok()
    }
}

/// Waits until a query that has been read may be worked on. Not for ever: those before it may fail, and then it is not asked.
pub(super) async fn turn(
    unwritten: OwnedSemaphorePermit,
    places: &Places,
    ready: &Ready,
) -> Result<Place, End> {
    tokio::select! {
        biased;
        () = ready.failed.notified() => Err(End::Enough),
        () = moment(ready.last) => Err(End::Enough),
        turn = Arc::clone(&places.turns).acquire_owned() => {
            let turn = turn.map_err(|_| End::Broken)?;
            Ok(Place { unwritten, turn })
        }
    }
}

/// Waits for a moment that may never be.
pub(super) async fn moment(moment: Option<Instant>) {
    match moment {
        Some(moment) => sleep_until(moment).await,
        None => std::future::pending().await,
    }
}
