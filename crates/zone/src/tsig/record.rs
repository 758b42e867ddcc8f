//! The TSIG record on the wire (RFC 8945 §4.2).

use super::Algorithm;
use std::ops::Range;
use wire::codes::{class, qtype};
use wire::message::{HEADER_LENGTH, Header, Records, Section};
use wire::name::{NAME_LENGTH_MAX, Name, NameBuf, compressed};

/// A message that is malformed, or whose TSIG record is, is not alone, or not the last: FORMERR (RFC 8945 §5.1, §5.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

/// A TSIG record that was found.
pub(super) struct Tsig<'m> {
    /// Octets of the message before it.
    pub(super) start: usize,
    pub(super) key_name: NameBuf,
    /// `None`: none of ours.
    pub(super) algorithm: Option<Algorithm>,
    /// As it was sent, in lower case.
    pub(super) algorithm_name: Vec<u8>,
    /// Seconds since 1970.
    pub(super) time: u64,
    pub(super) fudge: u16,
    pub(super) mac: &'m [u8],
    pub(super) original_id: u16,
    pub(super) error: u16,
    pub(super) other: &'m [u8],
}

/// The TSIG record of a message that was checked to its last record, if it has one.
pub(super) fn find(message: &[u8]) -> Result<Option<Tsig<'_>>, Malformed> {
    let header = Header::read(message).ok_or(Malformed)?;
    let mut at = HEADER_LENGTH;
    for _ in 0..header.question_count() {
        at = compressed::skip(message, at).map_err(|_| Malformed)? + 4;
    }
    let start = u16::try_from(at).map_err(|_| Malformed)?;
    let mut left = header.records_count();
    for record in Records::new(message, start, &header) {
        let record = record.map_err(|_| Malformed)?;
        left -= 1;
        if record.rtype != qtype::TSIG {
            continue;
        }
        // RFC 8945 §5.1: it "MUST be the last RR in the additional data section", and only one.
        let is_last = left == 0 && record.section == Section::Additional;
        if !is_last || record.class != class::ANY || record.ttl != 0 {
            return Err(Malformed);
        }
        let place = usize::from(record.rdata_start)..usize::from(record.rdata_end);
        return read(message, record.owner_start.into(), place)
            .ok_or(Malformed)
            .map(Some);
    }
    Ok(None)
}

fn read(message: &[u8], start: usize, place: Range<usize>) -> Option<Tsig<'_>> {
    let mut buffer = [0; NAME_LENGTH_MAX];
    let key_name = compressed::expand(message, start, &mut buffer)
        .ok()?
        .to_owned();
    let rdata = message.get(place)?;
    let algorithm = Name::parse(rdata).ok()?;
    let (fixed, rest) = rdata[algorithm.len()..].split_first_chunk::<10>()?;
    let [
        t0,
        t1,
        t2,
        t3,
        t4,
        t5,
        fudge_high,
        fudge_low,
        mac_high,
        mac_low,
    ] = *fixed;
    let length = |high, low| usize::from(u16::from_be_bytes([high, low]));
    let (mac, rest) = rest.split_at_checked(length(mac_high, mac_low))?;
    let ([id_high, id_low, error_high, error_low, high, low], other) = rest.split_first_chunk()?;
    let known = |known: &Algorithm| Name::parse(known.wire_name()) == Ok(algorithm);
    (other.len() == length(*high, *low)).then(|| Tsig {
        start,
        key_name,
        algorithm: Algorithm::ALL.into_iter().find(known),
        algorithm_name: algorithm.as_bytes().to_ascii_lowercase(),
        time: u64::from_be_bytes([0, 0, t0, t1, t2, t3, t4, t5]),
        fudge: u16::from_be_bytes([fudge_high, fudge_low]),
        mac,
        original_id: u16::from_be_bytes([*id_high, *id_low]),
        error: u16::from_be_bytes([*error_high, *error_low]),
        other,
    })
}

/// RFC 8945 §5.2.2.1: a MAC must not be shorter than "the larger of 10 (octets) and half the length of the hash
/// function".
pub(super) const fn mac_length_least(algorithm: Algorithm) -> usize {
    let half = algorithm.mac_length() / 2;
    if half > 10 { half } else { 10 }
}

/// What a TSIG record says besides its MAC.
pub(super) struct Fields<'f> {
    pub(super) key_name: &'f [u8],
    pub(super) algorithm_name: &'f [u8],
    pub(super) time: u64,
    pub(super) fudge: u16,
    pub(super) original_id: u16,
    pub(super) error: u16,
    pub(super) other: &'f [u8],
}

impl Fields<'_> {
    /// The six octets of time, and the fudge.
    fn timers(&self) -> [u8; 8] {
        let [_, _, t0, t1, t2, t3, t4, t5] = self.time.to_be_bytes();
        let [high, low] = self.fudge.to_be_bytes();
        [t0, t1, t2, t3, t4, t5, high, low]
    }

    /// What goes into the MAC behind the message: of the first message all, later the timers (RFC 8945 §4.3.3, §5.3.1).
    pub(super) fn variables(&self, timers_only: bool) -> Vec<u8> {
        let timers = self.timers();
        if timers_only {
            return timers.to_vec();
        }
        let mut octets = self.key_name.to_ascii_lowercase();
        octets.extend(class::ANY.to_be_bytes());
        octets.extend(0_u32.to_be_bytes());
        octets.extend(self.algorithm_name.to_ascii_lowercase());
        octets.extend(timers);
        octets.extend(self.error.to_be_bytes());
        octets.extend((self.other.len() as u16).to_be_bytes());
        octets.extend_from_slice(self.other);
        octets
    }

    /// Appends the record to a message, and counts it.
    pub(super) fn append(&self, message: &mut Vec<u8>, mac: &[u8]) {
        message.extend_from_slice(self.key_name);
        message.extend(qtype::TSIG.to_be_bytes());
        message.extend(class::ANY.to_be_bytes());
        message.extend(0_u32.to_be_bytes());
        let length = self.algorithm_name.len() + 16 + mac.len() + self.other.len();
        message.extend((length as u16).to_be_bytes());
        message.extend_from_slice(self.algorithm_name);
        message.extend(self.timers());
        message.extend((mac.len() as u16).to_be_bytes());
        message.extend_from_slice(mac);
        message.extend(self.original_id.to_be_bytes());
        message.extend(self.error.to_be_bytes());
        message.extend((self.other.len() as u16).to_be_bytes());
        message.extend_from_slice(self.other);
        count(message, 1);
    }
}

/// Adds to the additional section's count.
fn count(message: &mut [u8], more: u16) {
    if let Some(mut header) = Header::read(message) {
        header.set_additional_count(header.additional_count().wrapping_add(more));
        // It was read from there: there is room.
        let _ = header.write(message);
    }
}

/// The header of a message as it was before it was signed (RFC 8945 §4.3.2): without the record, with its first ID.
pub(super) fn unsigned_header(message: &[u8], tsig: &Tsig<'_>) -> Option<[u8; HEADER_LENGTH]> {
    let mut header = Header::read(message)?;
    header.set_additional_count(header.additional_count().checked_sub(1)?);
    header.set_id(tsig.original_id);
    Some(*header.as_bytes())
}
