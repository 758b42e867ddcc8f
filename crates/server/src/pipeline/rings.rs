//! Rings of recent queries and responses, as dnsdist keeps them: what `topQueries`, `topClients` and `grepq` read.
//!
//! Each worker writes its own rings, one entry after the other, without a lock; whoever reads copies entries out and
//! takes only those that no writer touched meanwhile. On by default, so the cost counts.

use super::query::{Protocol, Query};
use crate::backend::server::ServerId;
use crate::clock::Now;
use crate::counters::Writers;
use crate::words::{self, LINE, Lines};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};
use wire::message::{HEADER_LENGTH, Header};
use wire::name::{NAME_LENGTH_MAX, Name, NameBuf};

/// What setRingBuffersSize and setRingBuffersOptions said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RingOptions {
    /// Entries of each ring, over all workers.
    pub entries: usize,
    /// recordQueries.
    pub records_queries: bool,
    /// recordResponses.
    pub records_responses: bool,
    /// samplingRate: one of so many is recorded; 0 and 1: all.
    pub sampling_rate: u32,
}

impl Default for RingOptions {
    /// dnsdist's defaults.
    fn default() -> RingOptions {
        RingOptions {
            entries: 10_000,
            records_queries: true,
            records_responses: true,
            sampling_rate: 0,
        }
    }
}

impl RingOptions {
    /// The rings of one of so many workers.
    pub fn rings(&self, workers: usize, writers: Writers) -> Rings {
        let share = self.entries / workers;
        let entries = |wanted| if wanted { share } else { 0 };
        let (queries, responses) = (self.records_queries, self.records_responses);
        let mut rings = Rings::new(entries(queries), entries(responses), writers);
        for ring in [&mut rings.queries, &mut rings.responses] {
            ring.one_of = self.sampling_rate.max(1);
            ring.is_plain &= ring.one_of == 1;
        }
        rings
    }
}

/// Recent queries and responses of one thread, or of several that share.
#[derive(Debug, Default)]
pub struct Rings {
    queries: Ring,
    responses: Ring,
}

/// What a query or a response left behind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub time: Now,
    pub client: SocketAddr,
    pub protocol: Protocol,
    /// As the client wrote it.
    pub name: NameBuf,
    pub qtype: u16,
    /// The message's ID, as the client knows it.
    pub id: u16,
    /// The second word of the header: flags, opcode, the lower four bits of response code.
    pub flags: u16,
    /// The message's length in bytes.
    pub size: u16,
    /// Records of the answer section, as the header counts them.
    pub answers: u16,
    /// Of responses only.
    pub answered: Option<Answered>,
}

/// What only responses have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answered {
    pub server: ServerId,
    pub latency_microseconds: u32,
}

impl Answered {
    /// In place of a latency: none came in time.
    const NEVER: u32 = u32::MAX;
}

impl Entry {
    /// Whether this is a query that no backend answered in time, and no response.
    pub fn is_timeout(&self) -> bool {
        let latency = self.answered.map(|answered| answered.latency_microseconds);
        latency == Some(Answered::NEVER)
    }
}

impl Rings {
    /// Room for so many queries and so many responses; 0: they are not recorded.
    pub fn new(queries: usize, responses: usize, writers: Writers) -> Rings {
        Rings {
            queries: Ring::new(queries, writers),
            responses: Ring::new(responses, writers),
        }
    }

    /// Remembers a query that was parsed.
    #[inline]
    pub fn record_query(&self, query: &Query<'_>, now: Now) {
        self.queries.record(query, now, 0);
    }

    /// Remembers a backend's response, seen as the query that it answers.
    pub fn record_response(&self, response: &Query<'_>, now: Now, answered: Answered) {
        let server = u64::from(answered.server.0) << 32;
        let latency = u64::from(answered.latency_microseconds);
        self.responses.record(response, now, server | latency);
    }

    /// Remembers that `server` did not answer `query` in time.
    #[cold]
    pub fn record_timeout(&self, query: &Query<'_>, now: Now, server: ServerId) {
        let latency_microseconds = Answered::NEVER;
        let answered = Answered {
            server,
            latency_microseconds,
        };
        self.record_response(query, now, answered);
    }

    /// Recent queries, the oldest first.
    pub fn queries(&self) -> Vec<Entry> {
        self.queries.entries(false)
    }

    /// Recent responses of backends, the oldest first.
    pub fn responses(&self) -> Vec<Entry> {
        let mut entries = self.responses.entries(true);
        entries.retain(|entry| !entry.is_timeout());
        entries
    }

    /// Queries that no backend answered in time, the oldest first. They share the room of the responses.
    pub fn timeouts(&self) -> Vec<Entry> {
        let mut entries = self.responses.entries(true);
        entries.retain(Entry::is_timeout);
        entries
    }
}

/// Words of an entry: eight of numbers, and the longest name.
///
/// ```text
///  0 sequence │ 1 time │ 2 3 client address as IPv6 │ 4 facts │ 5 server 32, latency 32 │ 6 shape │ 7 unused │ 8… name
///  facts: client's port 16 │ type 16 │ header's first two words 32: ID, flags
///  shape: answers 16 │ size 16 │ name's length 31 │ over TCP 1
/// ```
///
/// The sequence of the entry with number n is 2n+2 when it is whole and 2n+1 while it is written; 0: never written.
const ENTRY: usize = NAME + words::words_for(NAME_LENGTH_MAX);
const SEQUENCE: usize = 0;
const TIME: usize = 1;
const ADDRESS: usize = 2;
const FACTS: usize = 4;
const ANSWERED: usize = 5;
const SHAPE: usize = 6;
const NAME: usize = 8;

/// Cache lines of an entry. An entry with a name of up to 64 bytes touches the first two.
const ENTRY_LINES: usize = ENTRY / LINE;
const _: () = assert!(ENTRY.is_multiple_of(LINE));

#[derive(Debug, Default)]
struct Ring {
    lines: Lines,
    entries: usize,
    /// The number of lines of all entries.
    end: usize,
    /// How many entries were begun.
    begun: AtomicU64,
    /// The line where a single writer's next entry starts: it divides nothing.
    next: AtomicUsize,
    writers: Writers,
    /// There is room, one thread writes, and all is recorded: the short way.
    is_plain: bool,
    /// One of so many is recorded.
    one_of: u32,
    /// How many there were to record, where not all are.
    offered: AtomicU64,
}

impl Ring {
    fn new(entries: usize, writers: Writers) -> Ring {
        Ring {
            lines: Lines::zeroed(entries * ENTRY_LINES),
            entries,
            end: entries * ENTRY_LINES,
            begun: AtomicU64::new(0),
            next: AtomicUsize::new(0),
            writers,
            is_plain: entries > 0 && writers == Writers::One,
            one_of: 1,
            offered: AtomicU64::new(0),
        }
    }

    #[inline]
    fn record(&self, query: &Query<'_>, now: Now, answered: u64) {
        let Some((entry, sequence)) = self.begin() else {
            return;
        };
        // What follows is not seen before the odd sequence is.
        fence(Ordering::Release);
        entry[TIME].store(now.0, Ordering::Relaxed);
        let client = query.client();
        let [high, low] = address_words(client.ip());
        entry[ADDRESS].store(high, Ordering::Relaxed);
        entry[ADDRESS + 1].store(low, Ordering::Relaxed);
        let header = query.header();
        entry[FACTS].store(facts((query, client), &header), Ordering::Relaxed);
        entry[ANSWERED].store(answered, Ordering::Relaxed);
        entry[SHAPE].store(shape(query, &header), Ordering::Relaxed);
        let length = usize::from(query.parts.qname_length);
        words::store_over(&entry[NAME..], &query.message[HEADER_LENGTH..], length);
        entry[SEQUENCE].store(sequence + 1, Ordering::Release);
    }

    /// The entry to write next, marked as being written, with its odd sequence. `None`: the ring has no room at all, or
    /// another writer is a whole round behind and still at that entry.
    #[inline]
    fn begin(&self) -> Option<(&[AtomicU64; ENTRY], u64)> {
        if !self.is_plain {
            return self.begin_shared();
        }
        let first = self.next.load(Ordering::Relaxed);
        let entry = self.lines.array(first);
        let behind = first + ENTRY_LINES;
        let next = if behind == self.end { 0 } else { behind };
        self.next.store(next, Ordering::Relaxed);
        // The ring is larger than the caches: the next entry comes while this query is answered.
        self.lines.prefetch(next);
        self.lines.prefetch(next + 1);
        let begun = self.begun.load(Ordering::Relaxed);
        self.begun.store(begun + 1, Ordering::Relaxed);
        let sequence = 2 * begun + 1;
        entry[SEQUENCE].store(sequence, Ordering::Relaxed);
        Some((entry, sequence))
    }

    fn begin_shared(&self) -> Option<(&[AtomicU64; ENTRY], u64)> {
        if self.one_of > 1 {
            let before = self.writers.bump(&self.offered, 1);
            if !before.is_multiple_of(self.one_of.into()) {
                return None;
            }
        }
        let number = self.writers.bump(&self.begun, 1);
        let place = number.checked_rem(self.entries as u64)? as usize;
        let entry: &[AtomicU64; ENTRY] = self.lines.array(place * ENTRY_LINES);
        let sequence = 2 * number + 1;
        let place = &entry[SEQUENCE];
        let whole = place.load(Ordering::Relaxed) & !1;
        let won = place.compare_exchange(whole, sequence, Ordering::Acquire, Ordering::Relaxed);
        won.is_ok().then_some((entry, sequence))
    }

    /// What is whole, in the order in which it was begun.
    fn entries(&self, responses: bool) -> Vec<Entry> {
        let words = self.lines.get(0, self.end);
        let entries = words.chunks_exact(ENTRY);
        let mut found: Vec<(u64, Entry)> =
            entries.filter_map(|entry| read(entry, responses)).collect();
        found.sort_unstable_by_key(|(sequence, _)| *sequence);
        found.into_iter().map(|(_, entry)| entry).collect()
    }
}

#[inline]
fn facts((query, client): (&Query<'_>, &SocketAddr), header: &Header) -> u64 {
    let port = u64::from(client.port());
    // ID and flags lie side by side: one load for both.
    let [first, second, third, fourth, ..] = *header.as_bytes();
    let id_and_flags = u32::from_be_bytes([first, second, third, fourth]);
    port << 48 | u64::from(query.parts.qtype) << 32 | u64::from(id_and_flags)
}

#[inline]
fn shape(query: &Query<'_>, header: &Header) -> u64 {
    let answers = u64::from(header.answer_count());
    let size = query.length.min(usize::from(u16::MAX)) as u64;
    let length = u64::from(query.parts.qname_length);
    answers << 48 | size << 32 | length << 1 | u64::from(query.protocol == Protocol::Tcp)
}

#[inline]
fn address_words(address: IpAddr) -> [u64; 2] {
    match address {
        // RFC 4291 §2.5.5.2: as IPv6, an IPv4 address follows 80 zero bits and 16 ones.
        IpAddr::V4(address) => [0, 0xffff << 32 | u64::from(address.to_bits())],
        IpAddr::V6(address) => [(address.to_bits() >> 64) as u64, address.to_bits() as u64],
    }
}

/// A copy of an entry with its sequence; `None` while it is written or if it never was.
fn read(entry: &[AtomicU64], responses: bool) -> Option<(u64, Entry)> {
    let sequence = entry[SEQUENCE].load(Ordering::Acquire);
    if sequence == 0 || sequence % 2 == 1 {
        return None;
    }
    let mut copy = [0; ENTRY];
    for (copied, word) in copy.iter_mut().zip(entry) {
        *copied = word.load(Ordering::Relaxed);
    }
    // The copy was made before the sequence is looked at again.
    fence(Ordering::Acquire);
    if entry[SEQUENCE].load(Ordering::Relaxed) != sequence {
        return None;
    }
    Some((sequence, decode(&copy, responses)?))
}

fn decode(copy: &[u64; ENTRY], responses: bool) -> Option<Entry> {
    let address = u128::from(copy[ADDRESS]) << 64 | u128::from(copy[ADDRESS + 1]);
    let address = Ipv6Addr::from(address).to_canonical();
    let (facts, shape) = (copy[FACTS], copy[SHAPE]);
    let mut name = [0; words::words_for(NAME_LENGTH_MAX) * 8];
    for (bytes, word) in name.chunks_exact_mut(8).zip(&copy[NAME..]) {
        bytes.copy_from_slice(&word.to_le_bytes());
    }
    let length = (shape as u32 >> 1) as usize;
    let name = Name::parse(name.get(..length)?).ok()?;
    Some(Entry {
        time: Now(copy[TIME]),
        client: SocketAddr::new(address, (facts >> 48) as u16),
        protocol: match shape & 1 {
            0 => Protocol::Udp,
            _ => Protocol::Tcp,
        },
        name: name.to_owned(),
        qtype: (facts >> 32) as u16,
        id: (facts >> 16) as u16,
        flags: facts as u16,
        size: (shape >> 32) as u16,
        answers: (shape >> 48) as u16,
        answered: responses.then_some(Answered {
            server: ServerId((copy[ANSWERED] >> 32) as u32),
            latency_microseconds: copy[ANSWERED] as u32,
        }),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipeline::respond::edit_header;
    use crate::pipeline::scene::{Scene, query};
    use std::sync::atomic::AtomicBool;
    use wire::codes::qtype;

    fn names(entries: &[Entry]) -> Vec<String> {
        entries.iter().map(|entry| entry.name.to_string()).collect()
    }

    #[test]
    fn the_last_ones_are_kept_in_their_order() {
        let rings = Rings::new(3, 0, Writers::One);
        let mut scene = Scene::default();
        for (number, name) in ["a.", "B.example.", "c.", "d."].iter().enumerate() {
            let message = query(name, qtype::AAAA);
            let record = |query: &mut Query<'_>| rings.record_query(query, Now(number as u64));
            scene.parse(&message, record);
        }
        let entries = rings.queries();
        assert_eq!(names(&entries), ["B.example.", "c.", "d."]);
        let expected = Entry {
            time: Now(1),
            client: "192.0.2.9:4242".parse().unwrap(),
            protocol: Protocol::Udp,
            name: "B.example.".parse().unwrap(),
            qtype: qtype::AAAA,
            id: 0x1234,
            flags: 0x0100,
            size: 27,
            answers: 0,
            answered: None,
        };
        assert_eq!(entries[0], expected);
        assert_eq!(entries[0].name.as_name().as_bytes(), b"\x01B\x07example\0");
    }

    #[test]
    fn responses_have_server_and_latency() {
        let rings = Rings::new(0, 2, Writers::One);
        let mut scene = Scene::default();
        scene.client = "[2001:db8::7]:9".parse().unwrap();
        let answered = Answered {
            server: ServerId(7),
            latency_microseconds: 1_234,
        };
        scene.parse(&query("a.", qtype::A), |query| {
            rings.record_query(query, Now(1));
            edit_header(query.message, |header| {
                header.set_id(0xabcd);
                header.set_answer_count(2);
            });
            rings.record_response(query, Now(2), answered);
        });
        assert!(rings.queries().is_empty());
        let [entry] = &rings.responses()[..] else {
            panic!("one response")
        };
        assert_eq!(entry.answered, Some(answered));
        assert_eq!((entry.id, entry.answers), (0xabcd, 2));
        assert_eq!(entry.client, scene.client);
    }

    #[test]
    fn one_of_so_many_is_recorded_where_that_is_wanted() {
        let options = RingOptions {
            entries: 20,
            sampling_rate: 3,
            records_responses: false,
            ..RingOptions::default()
        };
        let rings = options.rings(2, Writers::One);
        Scene::default().parse(&query("a.", qtype::A), |query| {
            for moment in 0..10 {
                rings.record_query(query, Now(moment));
                rings.record_timeout(query, Now(moment), ServerId(1));
            }
        });
        let times: Vec<u64> = rings.queries().iter().map(|entry| entry.time.0).collect();
        assert_eq!(times, [0, 3, 6, 9]);
        assert!(rings.timeouts().is_empty());
    }

    #[test]
    fn a_query_that_was_not_answered_is_no_response() {
        let rings = Rings::new(0, 2, Writers::One);
        Scene::default().parse(&query("a.", qtype::A), |query| {
            rings.record_timeout(query, Now(1), ServerId(7));
        });
        assert!(rings.responses().is_empty());
        assert_eq!(names(&rings.timeouts()), ["a."]);
    }

    /// Two writers and a reader at once: what is read was written as it is.
    #[test]
    fn a_reader_never_sees_half_an_entry() {
        let rings = Rings::new(2, 0, Writers::Many);
        let done = AtomicBool::new(false);
        let write = |letter: &str| {
            let name = format!("{}.", letter.repeat(60));
            let message = query(&name, qtype::A);
            let time = Now(u64::from(letter.as_bytes()[0]));
            Scene::default().parse(&message, |query| {
                (0..20_000).for_each(|_| rings.record_query(query, time));
            });
            done.store(true, Ordering::Relaxed);
        };
        std::thread::scope(|scope| {
            scope.spawn(|| write("a"));
            scope.spawn(|| write("b"));
            while !done.load(Ordering::Relaxed) {
                for entry in rings.queries() {
                    let letter = entry.time.0 as u8;
                    assert_eq!(entry.name.as_name().as_bytes()[1..61], [letter; 60]);
                }
            }
        });
    }
}
