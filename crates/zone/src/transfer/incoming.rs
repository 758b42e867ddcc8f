//! A zone on its way in (RFC 5936 §2.2, RFC 1995 §4): messages of a primary that may be cut, lie, or never end (F34).
//!
//! Records are handed on as they come, and nothing of them may be used before [`Progress::Done`]: until then the old zone
//! serves.

use super::query::question_end;
use super::serial;
use crate::rdata;
use crate::record::Record;
use std::fmt;
use wire::codes::{QtypeText, class, qtype, rcode};
use wire::message::{HEADER_LENGTH, Header, Records};
use wire::name::{NAME_LENGTH_MAX, Name, NameBuf, compressed};

/// How much a primary may send.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Records in all.
    pub records: u64,
    /// Octets of messages in all, and of what changes take in memory until they are whole.
    pub octets: u64,
}

impl Default for Bounds {
    /// A hundred million records, 16 GiB.
    fn default() -> Bounds {
        Bounds {
            records: 100_000_000,
            octets: 16 << 30,
        }
    }
}

/// What a record means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    /// A record of a whole zone. The SOA comes first, and once.
    Whole(Record),
    /// A change begins: the SOA record of the zone before.
    From(Record),
    /// The change takes this record out.
    Removed(Record),
    /// The SOA record of the zone after the change.
    To(Record),
    /// The change puts this record in.
    Added(Record),
}

/// How far a transfer came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// More messages are needed.
    More,
    /// It is whole.
    Done(Outcome),
}

/// What a transfer came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The primary has nothing newer than what is held; its serial.
    UpToDate(u32),
    /// All of the zone.
    Whole,
    /// Changes.
    Changes,
}

/// Why a transfer is broken off. The old zone stays.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TransferError {
    /// The message is cut, malformed, or no answer to the question.
    Malformed(&'static str),
    /// The primary answers with this response code.
    Refused(u16),
    /// A record that does not belong there, and why.
    Record(String),
    /// More than is allowed.
    TooMuch(&'static str, u64),
}

impl TransferError {
    /// Whether AXFR should be tried where IXFR went wrong. RFC 1995 leaves open how a server says that it does not know
    /// IXFR; and a lie in changes is no reason to do without the zone.
    #[must_use]
    pub const fn asks_for_axfr(&self) -> bool {
        match self {
            TransferError::Refused(code) => matches!(
                *code,
                rcode::FORMERR | rcode::NOTIMP | rcode::SERVFAIL | rcode::REFUSED
            ),
            // Changes may be more than the zone that they lead to.
            TransferError::Malformed(_) | TransferError::Record(_) | TransferError::TooMuch(..) => {
                true
            }
        }
    }
}

impl fmt::Display for TransferError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TransferError::Malformed(what) => f.write_str(what),
            TransferError::Refused(code) => {
                let name = rcode::name(*code).unwrap_or("an unknown error");
                let hint = match *code {
                    rcode::REFUSED | rcode::NOTAUTH => {
                        ": it must serve the zone, and allow this server to transfer it"
                    }
                    rcode::SERVFAIL => ": it has not loaded the zone, or it has expired there",
                    _ => "",
                };
                write!(f, "the primary answers {name}{hint}")
            }
            TransferError::Record(what) => f.write_str(what),
            TransferError::TooMuch(what, most) => {
                write!(f, "more than {most} {what}: this is all that is allowed")
            }
        }
    }
}

impl std::error::Error for TransferError {}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Start,
    /// The first SOA is there, what comes next says what it is.
    Second,
    Whole,
    /// Within a change, before its second SOA and behind it; the serial that the change leads from, and to.
    Removing(u32),
    Adding(u32),
    Done,
}

/// A transfer that is coming in.
pub struct Incoming {
    zone: NameBuf,
    id: u16,
    kind: u16,
    /// The serial that is held; IXFR only.
    held: Option<u32>,
    bounds: Bounds,
    records: u64,
    octets: u64,
    /// Octets of memory that the records of changes take.
    held_back: u64,
    /// See [`Incoming::left_out`].
    left_out: Option<(NameBuf, u64)>,
    is_first: bool,
    state: State,
    /// The SOA that came first, and ends all.
    soa: Option<Record>,
    serial: u32,
}

impl Incoming {
    /// Awaits the answer to an AXFR query.
    #[must_use]
    pub fn axfr(zone: Name<'_>, id: u16, bounds: Bounds) -> Incoming {
        Incoming {
            zone: zone.to_owned(),
            id,
            kind: qtype::AXFR,
            held: None,
            bounds,
            records: 0,
            octets: 0,
            held_back: 0,
            left_out: None,
            is_first: true,
            state: State::Start,
            soa: None,
            serial: 0,
        }
    }

    /// Awaits the answer to an IXFR query with this serial.
    #[must_use]
    pub fn ixfr(zone: Name<'_>, id: u16, held: u32, bounds: Bounds) -> Incoming {
        Incoming {
            kind: qtype::IXFR,
            held: Some(held),
            ..Incoming::axfr(zone, id, bounds)
        }
    }

    /// Takes the next message, its signature verified and cut off ([`crate::tsig::Session::verify`] says where), and hands
    /// its records on.
    ///
    /// # Errors
    /// Why the transfer is over.
    pub fn message(
        &mut self,
        message: &[u8],
        mut each: impl FnMut(Item),
    ) -> Result<Progress, TransferError> {
        self.octets += message.len() as u64;
        if self.octets > self.bounds.octets {
            return Err(TransferError::TooMuch("octets", self.bounds.octets));
        }
        let (mut header, start) = self.checked_header(message)?;
        // The zone is in the answer section alone (RFC 5936 §2.2); a signature that was cut off is still counted.
        header.set_authority_count(0);
        header.set_additional_count(0);
        for record in Records::new(message, start as u16, &header) {
            let record =
                record.map_err(|_| TransferError::Malformed("records are cut or malformed"))?;
            if let Some(record) = self.record(message, &record)? {
                self.take(record, &mut each)?;
            }
        }
        if header.answer_count() == 0 {
            return Err(TransferError::Malformed(
                "message without records: it would never end",
            ));
        }
        let lone_soa = self.state == State::Second && self.is_first;
        self.is_first = false;
        match self.state {
            State::Done if self.soa.is_some() => Ok(Progress::Done(self.outcome())),
            // RFC 1995 §4: nothing newer is "only one SOA record". One that is newer may be the start of more.
            State::Second
                if lone_soa
                    && self
                        .held
                        .is_some_and(|held| !serial::is_newer(self.serial, held)) =>
            {
                self.state = State::Done;
                Ok(Progress::Done(Outcome::UpToDate(self.serial)))
            }
            _ => Ok(Progress::More),
        }
    }

    /// The owner of the first record that is out of the zone, and how many are: none of them was handed on. A whole zone, or a
    /// change, is the same without them, and what a primary sends by mistake keeps no secondary without the zone.
    #[must_use]
    pub fn left_out(&self) -> Option<(Name<'_>, u64)> {
        let (owner, count) = self.left_out.as_ref()?;
        Some((owner.as_name(), *count))
    }

    /// Octets of memory that the records of changes take which were handed on.
    #[must_use]
    pub const fn held_back(&self) -> u64 {
        self.held_back
    }

    fn outcome(&self) -> Outcome {
        if self.held.is_some() && self.kind == qtype::IXFR {
            Outcome::Changes
        } else {
            Outcome::Whole
        }
    }

    /// RFC 5936 §2.2.1: what the header and the question of each message must be.
    fn checked_header(&self, message: &[u8]) -> Result<(Header, usize), TransferError> {
        let header =
            Header::read(message).ok_or(TransferError::Malformed("message without a header"))?;
        if !header.qr() || header.opcode() != 0 || header.id() != self.id {
            return Err(TransferError::Malformed(
                "no answer to this query: QR, opcode or ID differ",
            ));
        }
        if header.rcode() != 0 {
            return Err(TransferError::Refused(header.rcode().into()));
        }
        if header.tc() {
            return Err(TransferError::Malformed(
                "truncated message: transfers go over TCP",
            ));
        }
        let zone = self.zone.as_name();
        match header.question_count() {
            0 if !self.is_first || self.kind == qtype::IXFR => return Ok((header, HEADER_LENGTH)),
            1 => {}
            _ => {
                return Err(TransferError::Malformed(
                    "first message without the question, or one with many",
                ));
            }
        }
        let name = message
            .get(HEADER_LENGTH..)
            .and_then(|rest| Name::parse(rest).ok());
        let end = question_end(zone);
        let kind = message.get(end - 4..end - 2);
        if name != Some(zone) || kind != Some(&self.kind.to_be_bytes()) {
            return Err(TransferError::Malformed("answer to another question"));
        }
        Ok((header, end))
    }

    /// A record of the message, checked by itself. `None`: it is out of the zone.
    fn record(
        &mut self,
        message: &[u8],
        record: &wire::message::Record,
    ) -> Result<Option<Record>, TransferError> {
        self.records += 1;
        if self.records > self.bounds.records {
            return Err(TransferError::TooMuch("records", self.bounds.records));
        }
        let mut buffer = [0; NAME_LENGTH_MAX];
        let owner = compressed::expand(message, record.owner_start.into(), &mut buffer).map_err(
            |error| TransferError::Record(format!("owner of record {}: {error}", self.records)),
        )?;
        let wrong = |what: &dyn fmt::Display| {
            TransferError::Record(format!("{owner} {}: {what}", QtypeText(record.rtype)))
        };
        if record.class != class::IN {
            return Err(wrong(&format_args!(
                "class {}: the zone has class IN",
                record.class
            )));
        }
        if !owner.is_within(&self.zone.as_name()) {
            // What a transfer begins with, what is behind its end, and what may begin or end something belongs to the zone.
            if record.rtype == qtype::SOA || matches!(self.state, State::Start | State::Done) {
                return Err(wrong(&format_args!("not within zone {}", self.zone)));
            }
            let (_, count) = self.left_out.get_or_insert_with(|| (owner.to_owned(), 0));
            *count += 1;
            return Ok(None);
        }
        if rdata::table::is_meta(record.rtype) {
            return Err(wrong(&"no type of a zone's record"));
        }
        let mut expanded = Vec::with_capacity(record.rdata(message).len());
        let place = usize::from(record.rdata_start)..usize::from(record.rdata_end);
        rdata::expand(record.rtype, message, place, &mut expanded)
            .map_err(|error| wrong(&error))?;
        Ok(Some(Record {
            owner: owner.as_bytes().into(),
            kind: record.rtype,
            class: record.class,
            // RFC 2181 §8: "an implementation should treat TTL values received with the most significant bit set as if the
            // entire value received was zero".
            ttl: wire::ttl::effective(record.ttl),
            rdata: expanded.into(),
        }))
    }

    /// What the record means, where it stands.
    fn take(&mut self, record: Record, each: &mut impl FnMut(Item)) -> Result<(), TransferError> {
        let serial = self.serial_of(&record)?;
        match (self.state, serial) {
            (State::Start, Some(serial)) => {
                self.serial = serial;
                self.soa = Some(record);
                self.state = State::Second;
            }
            (State::Start, None) => {
                return Err(TransferError::Malformed(
                    "first record is not the zone's SOA",
                ));
            }
            (State::Second, _) => self.second(record, serial, each)?,
            (State::Whole, None) => each(Item::Whole(record)),
            // RFC 5936 §2.2: the SOA that began the zone ends it. Its case may differ where names were compressed.
            (State::Whole, Some(serial)) if serial == self.serial => self.state = State::Done,
            (State::Whole, Some(serial)) => {
                return Err(TransferError::Record(format!(
                    "SOA with serial {serial} within or behind a zone of serial {}",
                    self.serial
                )));
            }
            (State::Removing(_), None) => {
                self.hold_back(&record)?;
                each(Item::Removed(record));
            }
            (State::Removing(from), Some(serial)) => {
                // No journal could lead on from there.
                if !serial::is_newer(serial, from) {
                    return Err(TransferError::Record(format!(
                        "change from serial {from} to {serial}: each must lead to a greater one"
                    )));
                }
                each(Item::To(record));
                self.state = State::Adding(serial);
            }
            (State::Adding(_), None) => {
                self.hold_back(&record)?;
                each(Item::Added(record));
            }
            (State::Adding(reached), Some(serial)) => {
                self.between(reached, record, serial, each)?
            }
            (State::Done, _) => {
                return Err(TransferError::Malformed(
                    "records behind the end of the zone",
                ));
            }
        }
        Ok(())
    }

    /// Counts a record of a change. Each has an owner of its own, which compression makes two octets on the wire: twenty times
    /// what was sent may lie in memory. Those of a whole zone share their owners.
    fn hold_back(&mut self, record: &Record) -> Result<(), TransferError> {
        let octets = size_of::<Record>() + record.owner.len() + record.rdata.len();
        self.held_back += octets as u64;
        if self.held_back > self.bounds.octets {
            return Err(TransferError::TooMuch(
                "octets of changes in memory",
                self.bounds.octets,
            ));
        }
        Ok(())
    }

    /// The serial of a SOA record; others must not be one.
    fn serial_of(&self, record: &Record) -> Result<Option<u32>, TransferError> {
        if record.kind != qtype::SOA {
            return Ok(None);
        }
        let at_apex = Name::parse(&record.owner).is_ok_and(|owner| owner == self.zone.as_name());
        match serial::of_soa(&record.rdata) {
            Some(serial) if at_apex => Ok(Some(serial)),
            _ => Err(TransferError::Malformed("SOA record below the zone's name")),
        }
    }

    /// The record behind the first tells changes from a whole zone (RFC 1995 §4).
    fn second(
        &mut self,
        record: Record,
        serial: Option<u32>,
        each: &mut impl FnMut(Item),
    ) -> Result<(), TransferError> {
        match (self.held, serial) {
            (Some(held), Some(from)) if from != self.serial => {
                if from != held {
                    return Err(TransferError::Record(format!(
                        "changes from serial {from}: {held} is held"
                    )));
                }
                // Serials wrap: steps that each lead to a greater one may come to a lower one together.
                if !serial::is_newer(self.serial, held) {
                    return Err(TransferError::Record(format!(
                        "changes that lead to serial {}: {held} is held, and not lower",
                        self.serial
                    )));
                }
                each(Item::From(record));
                self.state = State::Removing(from);
                return Ok(());
            }
            _ => {}
        }
        // The whole zone, even where changes were asked for.
        self.held = None;
        self.state = State::Whole;
        if let Some(soa) = self.soa.clone() {
            each(Item::Whole(soa));
        }
        self.take(record, each)
    }

    /// Behind a change: the next one, or the end.
    fn between(
        &mut self,
        reached: u32,
        record: Record,
        serial: u32,
        each: &mut impl FnMut(Item),
    ) -> Result<(), TransferError> {
        if serial != reached {
            return Err(TransferError::Record(format!(
                "change from serial {serial} behind one that leads to {reached}: each must begin where the last ended"
            )));
        }
        if reached == self.serial {
            self.state = State::Done;
        } else {
            each(Item::From(record));
            self.state = State::Removing(serial);
        }
        Ok(())
    }
}
