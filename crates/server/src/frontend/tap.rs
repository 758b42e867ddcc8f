//! A tap: copies of the packets that AF_XDP receives and sends, for `millrace mirror`. Firewalls and tcpdump see none of
//! them.
//!
//! A worker without a tap pays one look at an empty list per batch received and per batch sent. With one, what passes the
//! filter is copied as long as the rate allows and the reader keeps up; what does not fit is counted, and nobody waits.
//!
//! Received packets are marked with what became of them, which is told by the counters that moved meanwhile.

pub mod filter;

use crate::clock::Now;
use crate::counters::{Counter, Shard};
use crate::heap;
use crate::pipeline::HandOverReason;
use crate::pipeline::drop::DropReason;
use crate::pipeline::rules::limiter::{Bucket, Rate};
use filter::Filter;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use tokio::sync::mpsc;

/// Packets that wait for a slow reader: 8 MiB of full frames.
pub const QUEUE: usize = 4_096;

/// A packet, and what is known of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packet {
    pub time: Now,
    pub queue: u32,
    pub mark: Mark,
    /// The frame, from its Ethernet header.
    pub bytes: Box<[u8]>,
}

/// What a packet was to us.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mark {
    /// A query that was answered at once.
    Answered,
    /// A query that went on to a backend.
    Forwarded,
    /// A query or an answer that the asynchronous runtime took over.
    HandedOver(HandOverReason),
    /// A backend's response that went on to its client.
    Accepted,
    Dropped(DropReason),
    /// Sent by us.
    Sent,
}

impl Mark {
    /// What became of the packet, in words.
    pub fn text(self) -> String {
        match self {
            Mark::Answered => "answered".to_owned(),
            Mark::Forwarded => "forwarded".to_owned(),
            Mark::HandedOver(reason) => format!("handed over: {}", reason.name()),
            Mark::Accepted => "accepted".to_owned(),
            Mark::Dropped(reason) => format!("dropped: {}", reason.name()),
            Mark::Sent => "sent".to_owned(),
        }
    }
}

/// The end of a mirror that workers hold.
#[derive(Debug, Clone)]
pub struct Tap {
    filter: Arc<Filter>,
    /// Packets a second, over all workers.
    rate: Rate,
    allowance: Arc<Bucket>,
    packets: mpsc::Sender<Packet>,
    lost: Arc<AtomicU64>,
}

impl Tap {
    /// A tap that lets through `rate` packets a second, and its other end: packets, and how many were not copied for want
    /// of rate or room.
    pub fn new(filter: Filter, rate: u32) -> (Tap, mpsc::Receiver<Packet>, Arc<AtomicU64>) {
        let (packets, receiver) = mpsc::channel(QUEUE);
        let lost = Arc::new(AtomicU64::new(0));
        let tap = Tap {
            filter: Arc::new(filter),
            rate: Rate::new(rate, rate),
            allowance: Arc::default(),
            packets,
            lost: Arc::clone(&lost),
        };
        (tap, receiver, lost)
    }

    /// Nobody listens any more.
    pub fn is_closed(&self) -> bool {
        self.packets.is_closed()
    }

    /// Whether a frame passes the filter.
    pub fn wants(&self, frame: &[u8], received: bool) -> bool {
        self.filter.matches(frame, received)
    }

    /// Copies a frame, if it may and there is memory.
    pub fn copy(&self, frame: &[u8], queue: u32, mark: Mark, now: Now) {
        if !self.allowance.take(self.rate, now) || heap::is_short() {
            self.lost.fetch_add(1, Relaxed);
            return;
        }
        let packet = Packet {
            time: now,
            queue,
            mark,
            bytes: frame.into(),
        };
        if self.packets.try_send(packet).is_err() {
            self.lost.fetch_add(1, Relaxed);
        }
    }
}

/// A worker's counters before a packet was served.
pub struct Before {
    queries: u64,
    responses: u64,
    drops: [u64; DropReason::ALL.len()],
    hand_overs: [u64; HandOverReason::ALL.len()],
}

impl Before {
    pub fn of(shard: &Shard) -> Before {
        Before {
            queries: shard.get(Counter::Queries),
            responses: shard.get(Counter::Responses),
            drops: DropReason::ALL.map(|reason| shard.drops(reason)),
            hand_overs: HandOverReason::ALL.map(|reason| shard.hand_overs(reason)),
        }
    }

    /// What became of the packet that was served since.
    pub fn mark(&self, shard: &Shard) -> Mark {
        let after = Before::of(shard);
        let dropped = DropReason::ALL
            .into_iter()
            .zip(self.drops.iter().zip(&after.drops));
        let mut dropped = dropped.filter(|(_, (before, after))| before != after);
        if let Some((reason, _)) = dropped.next() {
            return Mark::Dropped(reason);
        }
        let counts = self.hand_overs.iter().zip(&after.hand_overs);
        let handed = HandOverReason::ALL.into_iter().zip(counts);
        let mut handed = handed.filter(|(_, (before, after))| before != after);
        if let Some((reason, _)) = handed.next() {
            return Mark::HandedOver(reason);
        }
        match (
            self.queries != after.queries,
            self.responses != after.responses,
        ) {
            (true, true) => Mark::Answered,
            (true, false) => Mark::Forwarded,
            (false, _) => Mark::Accepted,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counters::Writers;
    use crate::pipeline::rings::Rings;

    #[test]
    fn what_moved_tells_what_became_of_a_packet() {
        let shard = Shard::new(0, Writers::One, Rings::default());
        let marked = |count: &dyn Fn()| {
            let before = Before::of(&shard);
            count();
            before.mark(&shard)
        };
        let query = || shard.count(Counter::Queries);
        assert_eq!(marked(&query), Mark::Forwarded);
        let answered = || {
            query();
            shard.count(Counter::Responses);
        };
        assert_eq!(marked(&answered), Mark::Answered);
        assert_eq!(marked(&|| shard.count(Counter::Responses)), Mark::Accepted);
        let dropped = || {
            query();
            shard.count_drop(DropReason::Rule);
        };
        assert_eq!(marked(&dropped), Mark::Dropped(DropReason::Rule));
        let handed = || shard.count_hand_over(HandOverReason::Oversized);
        let expected = Mark::HandedOver(HandOverReason::Oversized);
        assert_eq!(marked(&handed), expected);
        assert_eq!(expected.text(), "handed over: oversized");
    }

    #[test]
    fn what_exceeds_rate_or_room_is_counted_and_nobody_waits() {
        let (tap, mut packets, lost) = Tap::new(Filter::default(), 3);
        for _ in 0..5 {
            tap.copy(b"frame", 1, Mark::Sent, Now(7_000_000_000));
        }
        assert_eq!(lost.load(Relaxed), 2);
        assert_eq!(packets.try_recv().map(|packet| packet.queue), Ok(1));
        let (tap, packets, lost) = Tap::new(Filter::default(), 1_000_000);
        for _ in 0..QUEUE + 5 {
            tap.copy(b"frame", 1, Mark::Sent, Now(7_000_000_000));
        }
        assert_eq!(lost.load(Relaxed), 5);
        drop(packets);
        assert!(tap.is_closed());
    }
}
