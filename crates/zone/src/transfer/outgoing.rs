//! A zone on its way out (RFC 5936 §2.2, RFC 1995 §4): records packed into messages.
//!
//! ```text
//! AXFR: SOA │ everything else │ the same SOA
//! IXFR: new SOA │ per change: old SOA │ removed │ newer SOA │ added │ … │ new SOA
//! up to date: the SOA alone
//! ```

use super::query::{fixed, question_end, set_counts};
use super::{AsRecord, Change};
use crate::rdata;
use crate::record::{Record, RecordRef};
use std::fmt;
use wire::codes::QtypeText;
use wire::message::{HEADER_LENGTH, Header, MESSAGE_LENGTH_MAX};
use wire::name::{LABELS_MAX, Name};

/// What fits into a message by default: beyond it nothing can be pointed at (RFC 1035 §4.1.4), so larger ones gain
/// little.
pub const MESSAGE_LENGTH: usize = 16_384;
/// The first place that a pointer cannot lead to.
const POINTER_END: usize = 0x4000;

/// All records of a whole zone, in the order in which they go out.
pub fn axfr<'z, R: AsRecord + 'z>(
    soa: &'z Record,
    others: impl Iterator<Item = R> + 'z,
) -> impl Iterator<Item = Outgoing<'z, R>> + 'z {
    let soa = || std::iter::once(Outgoing::Soa(soa));
    soa().chain(others.map(Outgoing::Other)).chain(soa())
}

/// The records of these changes, which lead to the zone with this SOA; the SOA alone where there are none.
pub fn ixfr<'z>(current: &'z Record, changes: &'z [Change]) -> impl Iterator<Item = &'z Record> {
    let last = (!changes.is_empty()).then_some(current);
    let between = changes.iter().flat_map(Change::records);
    std::iter::once(current).chain(between).chain(last)
}

/// A record of a whole zone.
pub enum Outgoing<'z, R> {
    /// The SOA at either end.
    Soa(&'z Record),
    Other(R),
}

impl<R: AsRecord> AsRecord for Outgoing<'_, R> {
    fn as_record(&self) -> RecordRef<'_> {
        match self {
            Outgoing::Soa(soa) => soa.as_ref(),
            Outgoing::Other(record) => record.as_record(),
        }
    }
}

/// Packs records into messages.
pub struct Messages<I: Iterator> {
    records: I,
    /// What did not fit into the message before.
    held: Option<I::Item>,
    /// Header and question of the query.
    query: Box<[u8]>,
    length_max: usize,
    /// Octets kept free for a signature.
    reserved: usize,
    is_first: bool,
}

/// A record whose octets fill more than a message: it cannot be transferred, and the zone neither.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordTooLong(pub Record);

impl fmt::Display for RecordTooLong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RecordTooLong(record) = self;
        let mut owner = String::new();
        // A malformed owner is left empty.
        let _ = rdata::print::name(&record.owner, &mut owner);
        write!(
            f,
            "{owner} {}: {} octets of RDATA: no message of {MESSAGE_LENGTH_MAX} octets has room for it beside its owner",
            QtypeText(record.kind),
            record.rdata.len()
        )
    }
}

impl std::error::Error for RecordTooLong {}

impl<I: Iterator<Item: AsRecord>> Messages<I> {
    /// Answers the query of type AXFR or IXFR whose header and question, and nothing behind, are `query`. Messages have at
    /// most `length_max` octets, a signature of `reserved` octets counted, but where one record needs more.
    pub fn new(records: I, query: &[u8], length_max: usize, reserved: usize) -> Messages<I> {
        Messages {
            records,
            held: None,
            query: query.into(),
            length_max: length_max.min(MESSAGE_LENGTH_MAX).saturating_sub(reserved),
            reserved,
            is_first: true,
        }
    }

    /// Writes the next message to `message`; false: there is none.
    ///
    /// # Errors
    /// A record that no message has room for. The transfer must be broken off: what came of it is not the zone.
    pub fn next_message(&mut self, message: &mut Vec<u8>) -> Result<bool, RecordTooLong> {
        message.clear();
        self.start(message);
        let question = self.question();
        let zone = &question[..question.len().saturating_sub(4)];
        let mut compression = Compression::new(zone, self.is_first);
        let mut count = 0;
        while let Some(record) = self.held.take().or_else(|| self.records.next()) {
            let length_before = message.len();
            write(message, record.as_record(), &mut compression);
            if message.len() > self.length_max && count > 0 || count == u16::MAX {
                message.truncate(length_before);
                self.held = Some(record);
                break;
            }
            if message.len() > MESSAGE_LENGTH_MAX - self.reserved {
                return Err(RecordTooLong(record.as_record().to_owned()));
            }
            count += 1;
        }
        set_counts(message, |header| header.set_answer_count(count));
        self.is_first = false;
        Ok(count > 0)
    }

    /// Header and question. RFC 5936 §2.2.1: later messages need no question.
    fn start(&self, message: &mut Vec<u8>) {
        let asked = Header::read(&self.query).unwrap_or_default();
        let mut header = Header::default();
        header.set_id(asked.id());
        header.set_qr(true);
        header.set_aa(true);
        // RFC 1035 §4.1.1: RD "may be set in a query and is copied into the response".
        header.set_rd(asked.rd());
        header.set_question_count(self.is_first.into());
        message.extend_from_slice(header.as_bytes());
        if self.is_first {
            // RFC 5936 §2.2.2: "In the first response message, this section MUST be copied from the query."
            message.extend_from_slice(self.question());
        }
    }

    fn question(&self) -> &[u8] {
        self.query.get(HEADER_LENGTH..).unwrap_or_default()
    }
}

fn write(message: &mut Vec<u8>, record: RecordRef<'_>, compression: &mut Compression) {
    compression.write(message, record.owner);
    fixed(message, record);
    message.extend_from_slice(record.rdata);
}

/// Owners are compressed against the one before, whose labels are known by their places: neighbours in a zone share
/// most. Names in RDATA are left whole: hardly anything is gained.
struct Compression {
    previous: Vec<u8>,
    /// Place in the message of the suffix that begins at each octet of `previous`; 0 where there is none to point at.
    places: Vec<u16>,
}

impl Compression {
    /// Knows the question's name, if the message has one.
    fn new(zone: &[u8], has_question: bool) -> Compression {
        let mut compression = Compression {
            previous: Vec::with_capacity(256),
            places: Vec::with_capacity(256),
        };
        if has_question {
            compression.previous.extend_from_slice(zone);
            let header = question_end(Name::ROOT) - 5;
            compression
                .places
                .extend((header..).take(zone.len()).map(|place| place as u16));
        }
        compression
    }

    fn write(&mut self, message: &mut Vec<u8>, owner: &[u8]) {
        let start = message.len();
        let (whole, target) = self.common(owner);
        message.extend_from_slice(&owner[..whole]);
        let shared = self.previous.len().saturating_sub(owner.len() - whole);
        match target {
            Some(target) => message.extend((0xc000 | target).to_be_bytes()),
            None => message.extend_from_slice(&owner[whole..]),
        }
        let mut places: Vec<u16> = (start..)
            .take(if target.is_some() { whole } else { owner.len() })
            .map(|place| if place < POINTER_END { place as u16 } else { 0 })
            .collect();
        if target.is_some() {
            places.extend_from_slice(&self.places[shared..]);
        }
        self.places = places;
        self.previous.clear();
        self.previous.extend_from_slice(owner);
    }

    /// How much of `owner` must be written whole, and where the rest is.
    fn common(&self, owner: &[u8]) -> (usize, Option<u16>) {
        let mut at = 0;
        for _ in 0..=LABELS_MAX {
            let length = usize::from(owner.get(at).copied().unwrap_or_default());
            if length == 0 {
                break;
            }
            if let Some(target) = self.place_of(&owner[at..]) {
                return (at, Some(target));
            }
            at += 1 + length;
        }
        (owner.len(), None)
    }

    /// The same octets, case kept, at the end of the name before, and at a label's start there.
    fn place_of(&self, suffix: &[u8]) -> Option<u16> {
        let start = self.previous.len().checked_sub(suffix.len())?;
        let is_same = &self.previous[start..] == suffix;
        let place = *self.places.get(start)?;
        (is_same && place != 0 && self.starts_label(start)).then_some(place)
    }

    fn starts_label(&self, start: usize) -> bool {
        let mut at = 0;
        while at < start {
            at += 1 + usize::from(self.previous[at]);
        }
        at == start
    }
}
