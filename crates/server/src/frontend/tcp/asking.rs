//! Tasks beside a connection: they ask backends and zones, wait for what functions have suspended, and hand the answers to the
//! writing half.

use super::counters::Counters;
use super::order::{Answer, Place, Ready};
use crate::backend::tcp::transfer::{self, Sink};
use crate::backend::tcp::{self as backend, Failure};
use crate::config::LocalAddress;
use crate::heap;
use crate::local::answer::{self, Reply};
use crate::pipeline::drop::DropReason;
use crate::runtime::memory::Hold;
use crate::runtime::{Asked, Decision, Shared};
use std::sync::Arc;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use wire::message::MESSAGE_LENGTH_MAX;

/// What one such task has.
pub(super) struct Asker {
    pub(super) shared: Arc<Shared>,
    pub(super) counters: Arc<Counters>,
    /// Where the client is heard.
    pub(super) address: LocalAddress,
    pub(super) ready: Ready,
}

impl Asker {
    /// Follows a query from what was decided of it to its answer.
    pub(super) async fn follow(self, mut decision: Decision, hold: Hold, place: Place) {
        loop {
            decision = match decision {
                Decision::Suspended(ticket) => {
                    match self.shared.outcome(ticket, Some(&self.address)).await {
                        Ok((query, Decision::Answer(length, _))) => {
                            return self.give(query.bytes(length), hold, place).await;
                        }
                        Ok((_, next)) => next,
                        Err(reason) => Decision::Drop(reason),
                    }
                }
                Decision::Ask(asked) if transfer::is_transfer(&asked) => {
                    return self.pass(asked, hold, place).await;
                }
                Decision::Ask(asked) => return self.ask(asked, hold, place).await,
                Decision::Zone(asked) => return self.ask_zone(asked, place).await,
                // An answer lies in a buffer: see above.
                Decision::Answer(..) | Decision::Drop(_) => return self.ready.failed.notify_one(),
            };
        }
    }

    /// Hands an answer that was made or found here to the writing half.
    async fn give(self, message: &[u8], mut hold: Hold, place: Place) {
        let held = hold
            .set(message.len())
            .map_err(|_| DropReason::TcpMemoryFull);
        let copied = held.and_then(|()| heap::copy(message).ok_or(DropReason::OutOfMemory));
        match copied {
            Ok(message) => self.write(message, hold, place).await,
            Err(reason) => {
                self.shared.shard.count_drop(reason);
                self.ready.failed.notify_one();
            }
        }
    }

    async fn write(&self, message: Vec<u8>, hold: Hold, place: Place) {
        // Without a writing half the client is gone.
        let _ = self.ready.send(message, hold, place).await;
    }

    /// Asks a backend and hands the answer to the writing half.
    pub(super) async fn ask(self, asked: Box<Asked>, mut hold: Hold, place: Place) {
        match backend::ask(&self.shared, &asked, &mut hold).await {
            // The manual on DelayAction: "UDP-only".
            Ok(answer) => self.write(answer.message, hold, place).await,
            Err(failure) => fail(failure, &self.counters, &self.ready),
        }
    }

    /// Passes a zone transfer from a backend to the writing half.
    async fn pass(self, asked: Box<Asked>, hold: Hold, place: Place) {
        let mut messages = Messages::new(self.ready);
        let passed = transfer::pass(&self.shared, &asked, &mut messages).await;
        if let Err(failure) = passed {
            fail(failure, &self.counters, &messages.ready);
            // Where a rule has ended it, too: the client has a part, and waits for the rest.
            messages.ready.failed.notify_one();
        }
        drop(place.turn);
        messages.written().await;
        drop((hold, place.unwritten));
    }

    /// Hands the messages of a transfer of our own, or one answer, to the writing half.
    async fn ask_zone(self, asked: Box<answer::Asked>, place: Place) {
        let Asker { shared, ready, .. } = self;
        // A transfer waits for its turn with all others. The semaphore is never closed.
        let turn = shared.transfers.acquire().await;
        if heap::is_short() {
            shared.shard.count_drop(DropReason::OutOfMemory);
            return ready.failed.notify_one();
        }
        let replying = Arc::clone(&shared);
        let mut outgoing = match spawn_blocking(move || asked.reply(&replying)).await {
            Ok(Some(Reply::Message(message))) => answer::alone(message),
            Ok(Some(Reply::Transfer(transfer))) => answer::transfer(transfer),
            Ok(None) | Err(_) => return ready.failed.notify_one(),
        };
        let mut messages = Messages::new(ready);
        while let Some(message) = outgoing.recv().await {
            let mut hold = shared.memory.hold();
            let Ok(message) = message else {
                return messages.ready.failed.notify_one();
            };
            if hold.set(MESSAGE_LENGTH_MAX).is_err() {
                shared.shard.count_drop(DropReason::TcpMemoryFull);
                return messages.ready.failed.notify_one();
            }
            if !messages.take(message, hold).await {
                return;
            }
        }
        drop((turn, place.turn));
        messages.written().await;
        drop(place.unwritten);
    }
}

/// Messages of a transfer that wait for a slow client: then the backend waits, too.
const MESSAGES_AHEAD: usize = 4;

/// The way of a transfer's messages to the writing half.
struct Messages {
    places: Arc<Semaphore>,
    ready: Ready,
}

impl Messages {
    fn new(ready: Ready) -> Messages {
        Messages {
            places: Arc::new(Semaphore::new(MESSAGES_AHEAD)),
            ready,
        }
    }

    /// Waits until none is left to be written: until then the transfer is under way, and its client may be silent.
    async fn written(&self) {
        // The semaphore is never closed.
        let _ = self.places.acquire_many(MESSAGES_AHEAD as u32).await;
    }
}

impl transfer::Sink for Messages {
    async fn take(&mut self, message: Vec<u8>, hold: Hold) -> bool {
        let Ok(place) = Arc::clone(&self.places).acquire_owned().await else {
            return false;
        };
        let answer = Answer {
            message,
            _hold: hold,
            _place: place,
        };
        self.ready.answers.send(answer).await.is_ok()
    }
}

/// Tells the reading half that a query will not be answered. Responses that rules or functions drop are silence.
fn fail(failure: Failure, counters: &Counters, ready: &Ready) {
    match failure {
        Failure::Connection => Counters::count(&counters.gave_up),
        Failure::Timeout => Counters::count(&counters.backend_timeouts),
        Failure::Dropped(DropReason::ResponseRule | DropReason::SuspendedDropped) => return,
        Failure::Dropped(_) => {}
    }
    ready.failed.notify_one();
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tokio::sync::mpsc;
    use tokio::time::timeout;

    #[tokio::test]
    async fn only_who_drops_a_response_leaves_a_client_in_silence() {
        for (reason, is_told) in [
            (DropReason::ResponseRule, false),
            (DropReason::SuspendedDropped, false),
            (DropReason::ResponseMalformed, true),
            (DropReason::NoServer, true),
            (DropReason::TcpMemoryFull, true),
        ] {
            let (answers, _outgoing) = mpsc::channel(1);
            let ready = Ready {
                answers,
                failed: Arc::default(),
                last: None,
            };
            fail(Failure::Dropped(reason), &Counters::default(), &ready);
            let told = timeout(Duration::ZERO, ready.failed.notified()).await;
            assert_eq!(told.is_ok(), is_told, "{reason:?}");
        }
    }
}
