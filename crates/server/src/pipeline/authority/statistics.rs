//! What is asked of zones and answered, counted as Knot DNS's module `stats` counts, under its names.
//!
//! Per protocol and address family, by operation, type, response code and size; for all zones together, and apart for each
//! that asks for it (`statistics=true`). A query is counted once: in the block of its zone, or in that of all others; the
//! total is the sum, and that of zones which are gone. Only what zones answer is counted, so that whoever serves none pays nothing.
//!
//! ```text
//!  block: zone          Statistics::blocks[0] is that of the zones without their own
//!   └ cells: shard      written by its worker alone, without the bus lock
//! ```

use super::Reply;
use crate::counters::{Shard, Writers};
use crate::pipeline::query::{Protocol, Query, Way};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use wire::codes::{QtypeText, opcode, qtype, rcode};
use wire::message::HEADER_LENGTH;
use wire::name::NameBuf;
use zone::answer::Zones;

/// A group of counters: Knot's name of it, and where its cells begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Group {
    pub name: &'static str,
    pub help: &'static str,
    /// What its label is called in `/metrics`.
    pub label: &'static str,
    first: usize,
    count: usize,
    names: Names,
    /// Cells of zero are shown in `/metrics` too.
    pub is_whole: bool,
}

/// What the cells of a group are called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Names {
    List(&'static [&'static str]),
    /// By [`Types`].
    Types,
    /// Sixteen octets each, the last one all that are larger.
    Sizes,
}

const PROTOCOLS: &[&str] = &["udp4", "tcp4", "udp6", "tcp6", "udp4-xdp", "udp6-xdp"];
const OPERATIONS: &[&str] = &["query", "update", "notify", "axfr", "ixfr", "invalid"];
const REQUESTS: &[&str] = &["query", "update", "other"];
const RESPONSES: &[&str] = &["reply", "transfer", "other"];
const EDNS: &[&str] = &["request", "response"];
const FLAGS: &[&str] = &["DO", "TC"];
/// By number; those above 14 are in the last one, as Knot has it.
const OPTIONS: &[&str] = &[
    "CODE0",
    "LLQ",
    "UL",
    "NSID",
    "CODE4",
    "DAU",
    "DHU",
    "N3U",
    "EDNS-CLIENT-SUBNET",
    "EDNS-EXPIRE",
    "COOKIE",
    "EDNS-TCP-KEEPALIVE",
    "PADDING",
    "CHAIN",
    "EDNS-KEY-TAG",
    "other",
];
const NO_DATA: &[&str] = &["A", "AAAA", "other"];
/// By number; those between 10 and 16 are in the last one.
const RCODES: &[&str] = &[
    "NOERROR",
    "FORMERR",
    "SERVFAIL",
    "NXDOMAIN",
    "NOTIMPL",
    "REFUSED",
    "YXDOMAIN",
    "YXRRSET",
    "NXRRSET",
    "NOTAUTH",
    "NOTZONE",
    "BADSIG",
    "BADVERS",
    "BADKEY",
    "BADTIME",
    "BADMODE",
    "BADNAME",
    "BADALG",
    "BADTRUNC",
    "BADCOOKIE",
    "other",
];
/// The place of BADSIG.
const BADSIG: usize = 11;
/// Types above this share a cell.
const TYPE_MAX: usize = qtype::AMTRELAY as usize;
/// Knot's: 0-15 … 272-287, 288-65535.
const QUERY_SIZES: usize = 19;
/// Knot's: 0-15 … 4080-4095, 4096-65535.
const REPLY_SIZES: usize = 257;

macro_rules! groups {
    ($($constant:ident $name:literal $label:literal $count:expr, $names:expr, $is_whole:literal, $help:literal;)+) => {
        /// All groups, in Knot's order.
        pub const GROUPS: &[Group] = &[$(Group {
            name: $name,
            help: $help,
            label: $label,
            first: $constant,
            count: $count,
            names: $names,
            is_whole: $is_whole,
        },)+];
        groups!(@place 0; $($constant $count,)+);
    };
    (@place $at:expr; $constant:ident $count:expr, $($rest:tt)*) => {
        const $constant: usize = $at;
        groups!(@place $constant + $count; $($rest)*);
    };
    (@place $at:expr;) => {
        const CELLS: usize = $at;
    };
}

groups! {
    PROTOCOL "request-protocol" "protocol" 6, Names::List(PROTOCOLS), true, "Queries for zones by protocol and address family.";
    OPERATION "server-operation" "operation" 6, Names::List(OPERATIONS), true, "Queries for zones by what they are.";
    REQUEST_BYTES "request-bytes" "request" 3, Names::List(REQUESTS), true, "Octets of messages to zones.";
    RESPONSE_BYTES "response-bytes" "response" 3, Names::List(RESPONSES), true, "Octets of messages from zones.";
    EDNS_PRESENCE "edns-presence" "message" 2, Names::List(EDNS), true, "Messages to and from zones that have an OPT record.";
    FLAG_PRESENCE "flag-presence" "flag" 2, Names::List(FLAGS), true, "Queries for zones with DO, answers with TC.";
    RESPONSE_CODE "response-code" "rcode" 21, Names::List(RCODES), true, "Answers from zones by response code.";
    REQUEST_OPTION "request-edns-option" "option" 16, Names::List(OPTIONS), false, "Queries for zones by EDNS option.";
    RESPONSE_OPTION "response-edns-option" "option" 16, Names::List(OPTIONS), false, "Answers from zones by EDNS option.";
    REPLY_NODATA "reply-nodata" "type" 3, Names::List(NO_DATA), true, "Answers from zones that a name has nothing of a type.";
    QUERY_TYPE "query-type" "type" TYPE_MAX + 2, Names::Types, false, "Queries for zones by type.";
    QUERY_SIZE "query-size" "octets" QUERY_SIZES, Names::Sizes, false, "Queries for zones by size.";
    REPLY_SIZE "reply-size" "octets" REPLY_SIZES, Names::Sizes, false, "Answers from zones by size.";
}

impl Group {
    /// The names of its cells.
    pub fn cells(&self) -> impl Iterator<Item = (usize, String)> {
        let (first, count, names) = (self.first, self.count, self.names);
        (0..count).map(move |number| {
            let name = match names {
                Names::List(names) => names[number].to_owned(),
                Names::Types if number > TYPE_MAX => "other".to_owned(),
                Names::Types => QtypeText(number as u16).to_string(),
                Names::Sizes if number + 1 == count => format!("{}-65535", number * 16),
                Names::Sizes => format!("{}-{}", number * 16, number * 16 + 15),
            };
            (first + number, name)
        })
    }
}

/// Which EDNS options a message has: a bit for each place of [`OPTIONS`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct OptionSet(u16);

impl OptionSet {
    /// Puts an option in, by its code.
    pub(super) fn insert(&mut self, code: u16) {
        self.0 |= 1 << usize::from(code).min(OPTIONS.len() - 1);
    }

    pub(super) fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The places in [`OPTIONS`].
    fn places(self) -> impl Iterator<Item = usize> {
        let mut left = self.0;
        std::iter::from_fn(move || {
            let place = left.trailing_zeros() as usize;
            left &= left.wrapping_sub(1);
            (place < OPTIONS.len()).then_some(place)
        })
    }
}

/// The counters of one configuration's zones.
#[derive(Clone, Default)]
pub struct Statistics {
    /// The first one is that of the zones without their own; empty until somebody counts.
    blocks: Vec<Block>,
    /// By a zone's number: its block. Empty where none has its own.
    of_zone: Vec<u16>,
    /// By cell, what blocks have counted that are no more; empty: none is. A total that falls looks like a restart.
    gone: Arc<[u64]>,
}

/// The counters of one zone, or of several.
#[derive(Clone)]
pub struct Block {
    /// `None`: those without a block of their own.
    pub zone: Option<NameBuf>,
    /// By shard.
    cells: Arc<[Box<[AtomicU64; CELLS]>]>,
}

impl Block {
    fn new(zone: Option<NameBuf>, shards: usize) -> Block {
        let cells = |_| {
            let cells = (0..CELLS).map(|_| AtomicU64::new(0));
            let cells: Box<[AtomicU64]> = cells.collect();
            cells.try_into().expect("as many as asked for")
        };
        Block {
            zone,
            cells: (0..shards).map(cells).collect(),
        }
    }

    /// What all shards have counted in a cell; see [`Group::cells`].
    pub fn sum(&self, cell: usize) -> u64 {
        self.cells
            .iter()
            .map(|cells| cells[cell].load(Relaxed))
            .sum()
    }
}

impl Statistics {
    /// For so many shards: a block for each of `own`, names of `zones`, and one for the rest; those that `previous` has are
    /// kept.
    pub fn new(
        own: &[NameBuf],
        zones: &Zones,
        shards: usize,
        previous: Option<&Statistics>,
    ) -> Statistics {
        let known = previous.map_or(&[][..], |previous| &previous.blocks);
        let known = known.iter().map(|block| (block.zone.as_ref(), block));
        let mut known: HashMap<Option<&NameBuf>, &Block> = known.collect();
        let rest = known.remove(&None::<&NameBuf>).cloned();
        let mut statistics = Statistics {
            blocks: vec![rest.unwrap_or_else(|| Block::new(None, shards))],
            of_zone: Vec::new(),
            gone: Arc::default(),
        };
        // 65,535 are more than anybody looks at.
        for zone in own.iter().take(usize::from(u16::MAX)) {
            let Some(number) = zones.number_of(zone.as_name()) else {
                continue;
            };
            statistics.of_zone.resize(zones.count(), 0);
            statistics.of_zone[number] = statistics.blocks.len() as u16;
            let kept = known.remove(&Some(zone)).cloned();
            let block = kept.unwrap_or_else(|| Block::new(Some(zone.clone()), shards));
            statistics.blocks.push(block);
        }
        let gone: Vec<&Block> = known.into_values().collect();
        statistics.gone = gone_with(previous, &gone);
        statistics
    }

    /// All blocks; the first one is that of the zones without their own.
    pub fn blocks(&self) -> &[Block] {
        &self.blocks
    }

    /// What all zones have counted together in a cell.
    pub fn total(&self, cell: usize) -> u64 {
        let counted = self.blocks.iter().map(|block| block.sum(cell));
        counted.sum::<u64>() + self.gone.get(cell).copied().unwrap_or(0)
    }

    /// Counts a query and the answer that it gets, `length` octets of its buffer; `None`: it gets none.
    #[inline]
    pub(super) fn count(
        &self,
        query: &Query<'_>,
        reply: &Reply,
        length: Option<usize>,
        shard: &Shard,
    ) {
        let Some(cells) = self.cells(reply.zone, shard) else {
            return;
        };
        // Each way has its own copy of what follows, so that it is not looked for each counter who else writes it.
        match shard.writers() {
            Writers::One => tally(cells, query, reply, length, Writers::One),
            Writers::Many => tally(cells, query, reply, length, Writers::Many),
        }
    }
}

/// What was gone before, and what these blocks have counted.
fn gone_with(previous: Option<&Statistics>, blocks: &[&Block]) -> Arc<[u64]> {
    let before = previous.map_or_else(Arc::default, |previous| Arc::clone(&previous.gone));
    if blocks.is_empty() {
        return before;
    }
    let sum = |cell: usize| {
        let counted = blocks.iter().map(|block| block.sum(cell));
        counted.sum::<u64>() + before.get(cell).copied().unwrap_or(0)
    };
    (0..CELLS).map(sum).collect()
}

#[inline(always)]
fn tally(
    cells: &[AtomicU64; CELLS],
    query: &Query<'_>,
    reply: &Reply,
    length: Option<usize>,
    writers: Writers,
) {
    let count = |cell: usize, number: usize| {
        writers.bump(&cells[cell], number as u64);
    };
    let kind = query.parts.qtype;
    let operation = operation(query.message[2], kind);
    let way = (query.protocol, query.way);
    count(PROTOCOL + protocol(way, query.client()), 1);
    count(OPERATION + operation, 1);
    count(REQUEST_BYTES + operation.min(2), query.length);
    if operation == 0 {
        count(QUERY_TYPE + usize::from(kind).min(TYPE_MAX + 1), 1);
        count(QUERY_SIZE + (query.length / 16).min(QUERY_SIZES - 1), 1);
    }
    if let Some(edns) = query.parts.edns {
        count(EDNS_PRESENCE, 1);
        if edns.dnssec_ok {
            count(FLAG_PRESENCE, 1);
        }
    }
    let Some(length) = length else {
        return;
    };
    count(RESPONSE_BYTES + usize::from(operation != 0) * 2, length);
    count(RESPONSE_CODE + response_code(reply.rcode), 1);
    if operation == 0 {
        count(REPLY_SIZE + (length / 16).min(REPLY_SIZES - 1), 1);
    }
    count(EDNS_PRESENCE + 1, reply.has_opt.into());
    if reply.truncated {
        count(FLAG_PRESENCE + 1, 1);
    }
    if reply.no_data {
        count(REPLY_NODATA + no_data(kind), 1);
    }
}

impl Statistics {
    /// The cells that this zone is counted in, or what is in none (`None`).
    #[inline]
    fn cells(&self, zone: Option<usize>, shard: &Shard) -> Option<&[AtomicU64; CELLS]> {
        let number = zone.and_then(|zone| self.of_zone.get(zone));
        let block = self.blocks.get(usize::from(number.copied().unwrap_or(0)))?;
        block.cells.get(shard.index).map(|cells| &**cells)
    }

    /// Counts the options of a query and of the answer that it gets: each once a message, however often it is there. Most
    /// have none, so this is beside [`Statistics::count`].
    pub(super) fn count_options(
        &self,
        zone: Option<usize>,
        (asked, answered): (OptionSet, OptionSet),
        shard: &Shard,
    ) {
        let Some(cells) = self.cells(zone, shard) else {
            return;
        };
        let asked = asked.places().map(|place| REQUEST_OPTION + place);
        let answered = answered.places().map(|place| RESPONSE_OPTION + place);
        asked
            .chain(answered)
            .for_each(|cell| shard.bump(&cells[cell], 1));
    }

    /// Counts what was answered beside the packet path: once, however many messages answer it, and as Knot does without
    /// its type and sizes.
    pub fn count_beside(&self, zone: Option<usize>, beside: &Beside, shard: &Shard) {
        let Some(cells) = self.cells(zone, shard) else {
            return;
        };
        let operation = tally_beside(cells, beside, shard);
        let count = |cell: usize, number: u64| shard.bump(&cells[cell], number);
        let response = match operation {
            0 => 0,
            3 | 4 => 1,
            _ => 2,
        };
        count(RESPONSE_BYTES + response, beside.response_octets);
        let code = match beside.signature_error {
            // It has the number of BADVERS.
            Some(rcode::BADVERS) => BADSIG,
            Some(code) => response_code(code),
            None => response_code(beside.rcode),
        };
        count(RESPONSE_CODE + code, 1);
        count(EDNS_PRESENCE + 1, beside.has_edns.into());
    }

    /// Counts what would have been answered beside the packet path, and gets no answer.
    pub fn count_unanswered(&self, zone: Option<usize>, beside: &Beside, shard: &Shard) {
        if let Some(cells) = self.cells(zone, shard) {
            tally_beside(cells, beside, shard);
        }
    }
}

/// Counts what was asked; its operation.
fn tally_beside(cells: &[AtomicU64; CELLS], beside: &Beside, shard: &Shard) -> usize {
    let count = |cell: usize, number: u64| shard.bump(&cells[cell], number);
    let Operation(operation) = beside.operation;
    count(
        PROTOCOL + protocol((beside.way.0, &beside.way.1), &beside.client),
        1,
    );
    count(OPERATION + operation, 1);
    count(REQUEST_BYTES + operation.min(2), beside.request_octets);
    count(EDNS_PRESENCE, beside.has_edns.into());
    count(FLAG_PRESENCE, beside.dnssec_ok.into());
    operation
}

/// What a message is: the place in [`OPERATIONS`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Operation(usize);

impl Operation {
    /// No query that anything could be made of.
    pub const INVALID: Operation = Operation(5);

    /// By the third octet of its header, and the type that is asked for.
    pub fn of(third_octet: u8, kind: u16) -> Operation {
        Operation(operation(third_octet, kind))
    }
}

/// A message that was answered beside the packet path (a transfer, NOTIFY, what was signed and is refused), or before it was a
/// query.
#[derive(Debug, Clone, Copy)]
pub struct Beside {
    pub way: (Protocol, Way),
    pub client: SocketAddr,
    pub operation: Operation,
    pub has_edns: bool,
    pub dnssec_ok: bool,
    pub request_octets: u64,
    /// Of all messages that answer it.
    pub response_octets: u64,
    pub rcode: u16,
    /// What is said of its signature (RFC 8945 §3), where that is an error.
    pub signature_error: Option<u16>,
}

/// The place in [`PROTOCOLS`].
#[inline]
fn protocol(way: (Protocol, &Way), client: &SocketAddr) -> usize {
    let is_v6 = usize::from(client.is_ipv6());
    match way {
        (Protocol::Udp, Way::Xsk { .. }) => 4 + is_v6,
        (Protocol::Udp, _) => 2 * is_v6,
        (Protocol::Tcp, _) => 1 + 2 * is_v6,
    }
}

/// The place in [`OPERATIONS`]; of [`REQUESTS`] the first two are the same.
#[inline]
fn operation(third_octet: u8, kind: u16) -> usize {
    match (third_octet >> 3 & 15, kind) {
        (opcode::QUERY, qtype::AXFR) => 3,
        (opcode::QUERY, qtype::IXFR) => 4,
        (opcode::QUERY, _) => 0,
        (opcode::UPDATE, _) => 1,
        (opcode::NOTIFY, _) => 2,
        _ => 5,
    }
}

/// The place in [`RCODES`].
#[inline]
fn response_code(code: u16) -> usize {
    match code {
        0..=10 => code.into(),
        16..=23 => usize::from(code) - 4,
        _ => RCODES.len() - 1,
    }
}

fn no_data(kind: u16) -> usize {
    match kind {
        qtype::A => 0,
        qtype::AAAA => 1,
        _ => 2,
    }
}

const _: () = assert!(HEADER_LENGTH == 12, "the opcode is in the third octet");

#[cfg(test)]
mod tests {
    use super::*;
    use wire::codes::edns_option;

    #[test]
    fn every_cell_has_a_name_of_its_own() {
        let mut next = 0;
        for group in GROUPS {
            let names: std::collections::HashSet<_> = group
                .cells()
                .map(|(cell, name)| {
                    assert_eq!(cell, next);
                    next += 1;
                    name
                })
                .collect();
            assert_eq!(names.len(), group.count, "{}", group.name);
        }
        assert_eq!(next, CELLS);
        let place = |name| {
            GROUPS
                .iter()
                .find(|group| group.name == name)
                .unwrap()
                .first
        };
        assert_eq!(place("request-protocol"), PROTOCOL);
        assert_eq!(place("response-code"), RESPONSE_CODE);
        assert_eq!(place("reply-size"), REPLY_SIZE);
    }

    #[test]
    fn options_have_places_by_their_codes() {
        let mut set = OptionSet::default();
        assert!(set.is_empty());
        for code in [0, 3, 14, 15, 19, 65_535, 3] {
            set.insert(code);
        }
        let names: Vec<&str> = set.places().map(|place| OPTIONS[place]).collect();
        assert_eq!(names, ["CODE0", "NSID", "EDNS-KEY-TAG", "other"]);
        for (code, name) in [
            (edns_option::EXPIRE, "EDNS-EXPIRE"),
            (edns_option::COOKIE, "COOKIE"),
            (edns_option::ZONEVERSION, "other"),
        ] {
            let mut set = OptionSet::default();
            set.insert(code);
            assert!(set.places().all(|place| OPTIONS[place] == name), "{name}");
        }
    }

    #[test]
    fn codes_and_sizes_are_called_as_knot_calls_them() {
        assert_eq!(RCODES[response_code(rcode::BADVERS)], "BADVERS");
        assert_eq!(RCODES[response_code(rcode::BADCOOKIE)], "BADCOOKIE");
        assert_eq!(RCODES[response_code(rcode::BADKEY)], "BADKEY");
        assert_eq!(RCODES[BADSIG], "BADSIG");
        assert_eq!(RCODES[response_code(11)], "other");
        let sizes = |name| {
            let group = GROUPS.iter().find(|group| group.name == name).unwrap();
            let mut names = group.cells().map(|(_, name)| name);
            (names.next().unwrap(), names.last().unwrap())
        };
        assert_eq!(
            sizes("query-size"),
            ("0-15".to_owned(), "288-65535".to_owned())
        );
        assert_eq!(
            sizes("reply-size"),
            ("0-15".to_owned(), "4096-65535".to_owned())
        );
    }

    #[test]
    fn a_reload_keeps_the_counts_of_zones_that_stay() {
        let name = |text: &str| text.parse::<NameBuf>().unwrap();
        let (own, other) = (name("example.com."), name("example.org."));
        let zones = Zones::new([(other.clone(), None), (own.clone(), None)]);
        let first = Statistics::new(std::slice::from_ref(&own), &zones, 2, None);
        assert_eq!(first.of_zone, [0, 1]);
        first.blocks[1].cells[1][PROTOCOL].store(7, Relaxed);
        first.blocks[0].cells[0][PROTOCOL].store(1, Relaxed);
        assert_eq!(first.total(PROTOCOL), 8);
        let both = [other, own];
        let second = Statistics::new(&both, &zones, 2, Some(&first));
        assert_eq!(second.of_zone, [1, 2]);
        assert_eq!(
            (second.blocks[2].sum(PROTOCOL), second.total(PROTOCOL)),
            (7, 8)
        );
        let third = Statistics::new(&[], &zones, 2, Some(&second));
        assert_eq!(third.total(PROTOCOL), 8, "no total falls");
        let fourth = Statistics::new(&both, &zones, 2, Some(&third));
        assert_eq!(
            (fourth.blocks[2].sum(PROTOCOL), fourth.total(PROTOCOL)),
            (0, 8)
        );
    }
}
