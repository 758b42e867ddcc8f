//! Encodes an RRset once, as answers will carry it: [`super::parts`] draws the result.

use super::names;
use super::parts::{
    HASH_LENGTH, LABEL_LENGTH, OWNER_ITSELF, POINTER_MAX, RECORD_HEADER_LENGTH,
    RRSET_HEADER_LENGTH, body_base,
};
use super::rdata;
use wire::codes::{class, qtype};
use wire::message::HEADER_LENGTH;

/// Names of one RRset that a later name may point into: more would make long RRsets slow to encode.
const KNOWN_MAX: usize = 64;

/// One record of the owner that is being encoded, in the order in which they are wanted: by the type they are or sign.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Sorted<'r> {
    pub(super) kind: u16,
    pub(super) is_signature: bool,
    pub(super) data: &'r [u8],
    pub(super) ttl: u32,
}

/// The records of one owner and type as they are read.
pub(super) struct Source<'s> {
    /// In lower case.
    pub(super) owner: &'s [u8],
    pub(super) kind: u16,
    /// Seconds, of records and signatures.
    pub(super) ttl: u32,
    /// In canonical order, without duplicates.
    pub(super) records: &'s [Sorted<'s>],
    pub(super) signatures: &'s [Sorted<'s>],
}

/// Why records cannot be encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// A name is not where the type has one, or is malformed.
    Data,
    /// Records, or signatures, are so many octets together: no message holds them.
    Length(usize),
}

/// Places in the arena where nodes of names belong that may not be there yet.
#[derive(Default)]
pub(super) struct Wanted {
    /// Names in lower case, one behind the other.
    names: Vec<u8>,
    places: Vec<u32>,
}

impl Wanted {
    /// Each place and its name, in the order of places.
    pub(super) fn each(&self) -> impl Iterator<Item = (usize, &[u8])> {
        let mut rest = &self.names[..];
        self.places.iter().map(move |place| {
            let (name, behind) = rest.split_at(name_length(rest).expect("it was measured"));
            rest = behind;
            (*place as usize, name)
        })
    }
}

/// Encodes one RRset at the end of `arena`, whose first octet's place is `origin`, and its header at `header_at`. Names within `apex` whose addresses are useful
/// are added to `wanted`.
pub(super) fn encode(
    arena: &mut Vec<u8>,
    (origin, header_at): (usize, usize),
    source: &Source<'_>,
    apex: &[u8],
    wanted: &mut Wanted,
) -> Result<(), Fault> {
    let at = arena.len();
    let mut body = Body {
        start: at,
        arena,
        source,
        known: Vec::new(),
        pointers: Vec::new(),
        targets: Vec::new(),
    };
    for record in source.records {
        body.record(record.data, apex)?;
    }
    let (pointers, targets) = (body.pointers, body.targets);
    let length = length_of(arena, at)?;
    let signatures_at = arena.len();
    for signature in source.signatures {
        // RFC 4034 §3: "The TTL value of an RRSIG RR MUST match the TTL value of the RRset it covers."
        push_header(arena, qtype::RRSIG, source.ttl, signature.data.len());
        arena.extend(signature.data);
    }
    let signatures_length = length_of(arena, signatures_at)?;
    for place in &pointers {
        arena.extend(place.to_le_bytes());
    }
    for (place, name) in &targets {
        arena.extend(place.to_le_bytes());
        wanted.places.push(arena.len() as u32);
        wanted.names.extend(name);
        arena.extend(super::parts::NONE.to_le_bytes());
    }
    let header = &mut arena[header_at..header_at + RRSET_HEADER_LENGTH];
    header[..4].copy_from_slice(&((origin + at) as u32).to_le_bytes());
    let fields = [
        source.kind,
        source.records.len() as u16,
        length,
        source.signatures.len() as u16,
        signatures_length,
        pointers.len() as u16,
        targets.len() as u16,
    ];
    for (field, place) in fields.iter().zip(header[4..].chunks_exact_mut(2)) {
        place.copy_from_slice(&field.to_le_bytes());
    }
    Ok(())
}

fn length_of(arena: &[u8], start: usize) -> Result<u16, Fault> {
    let length = arena.len() - start;
    u16::try_from(length).map_err(|_| Fault::Length(length))
}

/// A record's fields before its data; its owner is the question's name.
fn push_header(arena: &mut Vec<u8>, kind: u16, ttl: u32, length: usize) {
    let [high, low] = (0xc000 | HEADER_LENGTH as u16).to_be_bytes();
    arena.extend([high, low]);
    arena.extend(kind.to_be_bytes());
    arena.extend(class::IN.to_be_bytes());
    arena.extend(ttl.to_be_bytes());
    arena.extend((length as u16).to_be_bytes());
}

struct Body<'b, 's> {
    arena: &'b mut Vec<u8>,
    start: usize,
    source: &'b Source<'s>,
    /// Rests of names that are written out in the body, and where.
    known: Vec<(&'s [u8], usize)>,
    pointers: Vec<u16>,
    targets: Vec<(u16, Vec<u8>)>,
}

impl<'s> Body<'_, 's> {
    fn record(&mut self, data: &'s [u8], apex: &[u8]) -> Result<(), Fault> {
        let header_at = self.arena.len();
        push_header(self.arena, self.source.kind, self.source.ttl, data.len());
        let data_at = self.arena.len();
        let (before, count) = rdata::compressible(self.source.kind).unwrap_or((data.len(), 0));
        let mut rest = data.get(before..).ok_or(Fault::Data)?;
        self.arena.extend(&data[..before]);
        for _ in 0..count {
            let length = name_length(rest).ok_or(Fault::Data)?;
            self.name(&rest[..length])?;
            rest = &rest[length..];
        }
        self.arena.extend(rest);
        let length = self.arena.len() - data_at;
        let length_at = header_at + RECORD_HEADER_LENGTH - 2;
        let length = u16::try_from(length).map_err(|_| Fault::Length(length))?;
        self.arena[length_at..length_at + 2].copy_from_slice(&length.to_be_bytes());
        self.target(data, data_at, apex)
    }

    /// Writes a name as short as it can be said.
    fn name(&mut self, name: &'s [u8]) -> Result<(), Fault> {
        let place = self.arena.len() - self.start;
        let mut at = 0;
        let pointer = loop {
            let suffix = &name[at..];
            if suffix[0] == 0 {
                break None;
            }
            if let Some(pointer) = self.pointer_to(suffix) {
                break Some(pointer);
            }
            if self.known.len() < KNOWN_MAX {
                self.known.push((suffix, place + at));
            }
            at += 1 + usize::from(suffix[0]);
        };
        self.arena.extend(&name[..at]);
        let Some(pointer) = pointer else {
            self.arena.push(0);
            return Ok(());
        };
        let place = self.arena.len() - self.start;
        self.pointers
            .push(u16::try_from(place).map_err(|_| Fault::Length(place))?);
        self.arena.extend((0xc000 | pointer as u16).to_be_bytes());
        Ok(())
    }

    /// Where `suffix` is written before this place, were the owner the question.
    fn pointer_to(&self, suffix: &[u8]) -> Option<usize> {
        let owner = self.source.owner;
        if let Some(place) = suffix_place(owner, suffix) {
            return Some(HEADER_LENGTH + place);
        }
        let known = self.known.iter();
        let same = |(known, _): &&(&[u8], usize)| known.eq_ignore_ascii_case(suffix);
        let (_, place) = known.into_iter().find(same)?;
        let pointer = body_base(owner.len()) + place;
        (pointer <= POINTER_MAX).then_some(pointer)
    }

    /// Remembers the name in `data` whose addresses are useful, once.
    fn target(&mut self, data: &[u8], data_at: usize, apex: &[u8]) -> Result<(), Fault> {
        let Some(before) = rdata::target(self.source.kind) else {
            return Ok(());
        };
        let name = data.get(before..).ok_or(Fault::Data)?;
        let name = &name[..name_length(name).ok_or(Fault::Data)?];
        let mut place = (data_at + before - self.start) as u16;
        let mut name = name.to_ascii_lowercase();
        let service = matches!(self.source.kind, qtype::SVCB | qtype::HTTPS);
        // RFC 9460 §2.5.2: "For ServiceMode SVCB RRs, if TargetName has the value ".", then the owner name of this record
        // MUST be used as the effective TargetName".
        if service && name == [0] && data[..2] != [0, 0] {
            place = OWNER_ITSELF;
            name = self.source.owner.to_vec();
        }
        // Of a wildcard they are two: its own name, and the one that it stands for.
        let stands_for =
            |place: u16| place == OWNER_ITSELF && self.source.owner.starts_with(b"\x01*");
        let is_same = |(other, known): &(u16, Vec<u8>)| {
            *known == name && stands_for(*other) == stands_for(place)
        };
        let is_new = !self.targets.iter().any(is_same);
        if is_new && self.targets.len() < KNOWN_MAX && names::is_within(&name, apex) {
            self.targets.push((place, name));
        }
        Ok(())
    }
}

/// Where in `owner` the name `suffix` begins, if it ends it. What an answer to a wildcard has in place of the asterisk is
/// not the owner's name, but what follows is.
fn suffix_place(owner: &[u8], suffix: &[u8]) -> Option<usize> {
    let place = owner.len().checked_sub(suffix.len())?;
    let mut at = 0;
    while at < place {
        at += 1 + usize::from(owner[at]);
    }
    let whole = place == 0 && owner.starts_with(b"\x01*");
    (at == place && !whole && owner[place..].eq_ignore_ascii_case(suffix)).then_some(place)
}

/// Octets of the name that `bytes` begin with.
fn name_length(bytes: &[u8]) -> Option<usize> {
    wire::name::Name::parse(bytes).ok().map(|name| name.len())
}

/// The octets that a base32hex label of an NSEC3 owner stands for (RFC 5155 §3.3).
pub(super) fn decode_hash(label: &[u8]) -> Option<[u8; HASH_LENGTH]> {
    let label: &[u8; 32] = label.try_into().ok()?;
    let mut hash = [0; HASH_LENGTH];
    for (octets, digits) in hash.chunks_exact_mut(5).zip(label.chunks_exact(8)) {
        let mut bits = 0_u64;
        for digit in digits {
            let value = match digit.to_ascii_lowercase() {
                digit @ b'0'..=b'9' => digit - b'0',
                digit @ b'a'..=b'v' => digit - b'a' + 10,
                _ => return None,
            };
            bits = bits << 5 | u64::from(value);
        }
        octets.copy_from_slice(&bits.to_be_bytes()[3..]);
    }
    Some(hash)
}

/// The label of an NSEC3 owner, its length octet first.
pub(super) fn encode_hash(hash: &[u8; HASH_LENGTH]) -> [u8; LABEL_LENGTH] {
    let mut label = [LABEL_LENGTH as u8 - 1; LABEL_LENGTH];
    let groups = hash.as_chunks::<5>().0.iter();
    for (octets, digits) in groups.zip(label[1..].as_chunks_mut::<8>().0) {
        let [a, b, c, d, e] = *octets;
        *digits = encode_five(u64::from_be_bytes([0, 0, 0, a, b, c, d, e]));
    }
    label
}

/// Forty bits as eight digits of base32hex (RFC 4648 §7), in lower case: all digits at once, each in its octet of a word.
#[inline]
fn encode_five(bits: u64) -> [u8; 8] {
    const ONES: u64 = 0x0101_0101_0101_0101;
    let halves = bits & 0xf_ffff | (bits >> 20) << 32;
    let quarters = halves & 0x3ff_0000_03ff | (halves & 0xf_fc00_000f_fc00) << 6;
    let digits = quarters & 0x1f_001f_001f_001f | (quarters & 0x3e0_03e0_03e0_03e0) << 3;
    // The upper bit of an octet is set by adding 118 where the digit is above 9: a letter.
    let letters = (digits + 118 * ONES) >> 7 & ONES;
    (digits + u64::from(b'0') * ONES + letters * u64::from(b'a' - 10 - b'0')).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_is_written_in_base32hex_and_read_back() {
        let hash: [u8; 20] = std::array::from_fn(|place| (place * 37) as u8);
        let label = encode_hash(&hash);
        assert_eq!(label[0], 32);
        assert_eq!(decode_hash(&label[1..]), Some(hash));
        assert_eq!(decode_hash(&label[1..].to_ascii_uppercase()), Some(hash));
        assert_eq!(decode_hash(&label[2..]), None);
        assert_eq!(decode_hash(&[b'w'; 32]), None);
    }

    #[test]
    fn a_suffix_begins_at_a_label() {
        let owner = b"\x03www\x07example\x00";
        assert_eq!(suffix_place(owner, b"\x07EXAMPLE\x00"), Some(4));
        assert_eq!(suffix_place(owner, owner), Some(0));
        assert_eq!(suffix_place(b"\x01*\x00", b"\x01*\x00"), None);
        assert_eq!(suffix_place(b"\x04\x02\x01aa\x00", b"\x02\x01a\x00"), None);
    }
}
