//! Copies RRsets behind the question of a message and moves their pointers.

use crate::zone::parts::{POINTER_MAX, RECORD_HEADER_LENGTH, Rrset, wire_u16};
use wire::message::HEADER_LENGTH;

/// In the header's second word: this is a response.
pub(super) const QR: u16 = 0x8000;
pub(super) const AA: u16 = 0x0400;
pub(super) const TC: u16 = 0x0200;
/// What an answer has of the query's: opcode and RD. RFC 4035 §3.1.6: "A security-aware name server SHOULD clear the CD bit
/// when composing an authoritative response", and sets AD only where all was checked.
const KEPT_FLAGS: u16 = 0x7900;

/// The sections of an answer, as places in the counts.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Section {
    Answer,
    Authority,
    Additional,
}

/// A name that is in the message.
#[derive(Clone, Copy, Default)]
pub(super) struct Placed {
    /// Where it begins; it may be compressed.
    pub(super) at: usize,
    /// Octets of it, uncompressed.
    pub(super) length: usize,
}

/// An RRset did not fit.
#[derive(Debug)]
pub(super) struct Full;

pub(super) struct Writer<'m> {
    pub(super) message: &'m mut [u8],
    question_end: usize,
    /// Where the next record goes.
    pub(super) at: usize,
    /// Where the message must end.
    end: usize,
    counts: [u16; 3],
}

impl<'m> Writer<'m> {
    /// Behind the question of `message`, up to `limit` octets.
    pub(super) fn new(message: &'m mut [u8], question_end: usize, limit: usize) -> Writer<'m> {
        let end = limit.min(message.len());
        Writer {
            message,
            question_end,
            at: question_end,
            end,
            counts: [0; 3],
        }
    }

    /// Takes back all records.
    pub(super) fn clear(&mut self) {
        self.at = self.question_end;
        self.counts = [0; 3];
    }

    /// Makes the query's header that of an answer with these flags and response code, and with the counts of what was
    /// written; the message's length.
    #[inline]
    pub(super) fn finish(&mut self, flags: u16) -> usize {
        let header: &mut [u8; HEADER_LENGTH] = self
            .message
            .first_chunk_mut()
            .expect("a query has a header");
        let asked = u16::from_be_bytes([header[2], header[3]]);
        let [answer, authority, additional] = self.counts.map(u64::from);
        let counts = 1 << 48 | answer << 32 | authority << 16 | additional;
        header[2..4].copy_from_slice(&(asked & KEPT_FLAGS | flags).to_be_bytes());
        header[4..].copy_from_slice(&counts.to_be_bytes());
        self.at
    }

    pub(super) fn count(&self, section: Section) -> u16 {
        self.counts[section as usize]
    }

    /// Appends an RRset of the name at `owner`, with its signatures if those are wanted; tells where its body is. Nothing is
    /// written where it does not fit whole.
    #[inline]
    pub(super) fn put(
        &mut self,
        section: Section,
        rrset: &Rrset<'_>,
        owner: Placed,
        signed: bool,
    ) -> Result<usize, Full> {
        let body = rrset.body(signed);
        let at = self.reserve(body.len())?;
        self.message[at..at + body.len()].copy_from_slice(body);
        if owner.at != HEADER_LENGTH {
            self.set_owners(at, body.len(), owner.at)?;
        }
        let direct = owner.at == HEADER_LENGTH && owner.length == rrset.owner_length;
        if !(direct && at == rrset.body_base()) {
            self.move_pointers(rrset, at, owner)?;
        }
        self.at = at + body.len();
        self.counts[section as usize] += rrset.count(signed);
        Ok(at)
    }

    /// Puts an RRset of the question's own name right behind the question: as it is stored. `None`: it does not fit whole.
    #[inline]
    pub(super) fn put_direct(&mut self, rrset: &Rrset<'_>, signed: bool) -> Option<()> {
        debug_assert_eq!(self.at, rrset.body_base());
        let body = rrset.body(signed);
        let end = self.at + body.len();
        if end > self.end {
            return None;
        }
        self.message[self.at..end].copy_from_slice(body);
        self.at = end;
        self.counts[Section::Answer as usize] += rrset.count(signed);
        Some(())
    }

    /// Appends the signatures of an RRset without it.
    pub(super) fn put_signatures(&mut self, rrset: &Rrset<'_>, owner: Placed) -> Result<(), Full> {
        let body = rrset.signatures_body();
        let at = self.reserve(body.len())?;
        self.message[at..at + body.len()].copy_from_slice(body);
        self.set_owners(at, body.len(), owner.at)?;
        self.at = at + body.len();
        self.counts[Section::Answer as usize] += rrset.signatures;
        Ok(())
    }

    /// Appends an RRset whose owner's name is not in the message but ends with one that is, at `rest_at`.
    pub(super) fn put_named(
        &mut self,
        section: Section,
        rrset: &Rrset<'_>,
        (labels, rest_at): (&[u8], usize),
        signed: bool,
    ) -> Result<(), Full> {
        let body = rrset.body(signed);
        let at = self.reserve(labels.len() + body.len())?;
        if at > POINTER_MAX {
            return self.put_each_named(section, body, (labels, rest_at), rrset.count(signed));
        }
        let body_at = at + labels.len();
        self.message[at..body_at].copy_from_slice(labels);
        self.message[body_at..body_at + body.len()].copy_from_slice(body);
        self.set_owners(body_at, body.len(), at)?;
        self.set_pointer(body_at, rest_at)?;
        self.at = body_at + body.len();
        self.counts[section as usize] += rrset.count(signed);
        Ok(())
    }

    /// The same 16 KiB into an answer, where no pointer leads to the owner: so many records, each with it written out. Their data
    /// have no pointers.
    #[cold]
    fn put_each_named(
        &mut self,
        section: Section,
        body: &[u8],
        (labels, rest_at): (&[u8], usize),
        count: u16,
    ) -> Result<(), Full> {
        let (mut at, mut rest) = (self.at, body);
        while !rest.is_empty() {
            let length = wire_u16(rest, RECORD_HEADER_LENGTH - 2);
            let (record, behind) = rest.split_at(RECORD_HEADER_LENGTH + usize::from(length));
            let record_at = at + labels.len();
            let end = record_at + record.len();
            if end > self.end {
                return Err(Full);
            }
            self.message[at..record_at].copy_from_slice(labels);
            self.message[record_at..end].copy_from_slice(record);
            self.set_pointer(record_at, rest_at)?;
            (at, rest) = (end, behind);
        }
        self.at = at;
        self.counts[section as usize] += count;
        Ok(())
    }

    /// Appends a record with these fields and data.
    pub(super) fn put_record(
        &mut self,
        section: Section,
        owner: Placed,
        fields: &[u8; RECORD_HEADER_LENGTH - 4],
        data: (&[u8], usize),
    ) -> Result<usize, Full> {
        let (labels, rest_at) = data;
        let length = labels.len() + 2;
        let at = self.reserve(RECORD_HEADER_LENGTH + length)?;
        self.set_pointer(at, owner.at)?;
        self.message[at + 2..at + 10].copy_from_slice(fields);
        self.message[at + 10..at + 12].copy_from_slice(&(length as u16).to_be_bytes());
        let data_at = at + RECORD_HEADER_LENGTH;
        self.message[data_at..data_at + labels.len()].copy_from_slice(labels);
        self.set_pointer(data_at + labels.len(), rest_at)?;
        self.at = data_at + length;
        self.counts[section as usize] += 1;
        Ok(data_at)
    }

    #[inline]
    fn reserve(&self, length: usize) -> Result<usize, Full> {
        if self.at + length > self.end {
            return Err(Full);
        }
        Ok(self.at)
    }

    /// Makes the owner of each record in `length` octets at `at` a pointer to `owner_at`.
    fn set_owners(&mut self, at: usize, length: usize, owner_at: usize) -> Result<(), Full> {
        let end = at + length;
        let mut at = at;
        while at < end {
            self.set_pointer(at, owner_at)?;
            let length = wire_u16(self.message, at + RECORD_HEADER_LENGTH - 2);
            at += RECORD_HEADER_LENGTH + usize::from(length);
        }
        Ok(())
    }

    /// Where a pointer cannot reach, the record cannot be said: 16 KiB into an answer over TCP, and only behind RRsets of
    /// such a length.
    #[inline]
    fn set_pointer(&mut self, at: usize, target: usize) -> Result<(), Full> {
        if target > POINTER_MAX {
            return Err(Full);
        }
        let pointer = 0xc000 | target as u16;
        self.message[at..at + 2].copy_from_slice(&pointer.to_be_bytes());
        Ok(())
    }

    /// Moves the pointers within the data of an RRset whose body is at `at` and whose owner's name is at `owner`.
    fn move_pointers(&mut self, rrset: &Rrset<'_>, at: usize, owner: Placed) -> Result<(), Full> {
        let base = rrset.body_base();
        for place in rrset.pointers() {
            let stored = usize::from(wire_u16(self.message, at + place)) & POINTER_MAX;
            let target = if stored >= base {
                at + stored - base
            } else {
                // What a wildcard stands for has more octets in front of the same rest.
                let rest = rrset.owner_length - (stored - HEADER_LENGTH);
                self.rest_of(owner, rest).at
            };
            self.set_pointer(at + place, target)?;
        }
        Ok(())
    }

    /// The last `rest` octets of the name at `name`, which begin with a label.
    #[inline]
    pub(super) fn rest_of(&self, name: Placed, rest: usize) -> Placed {
        let mut skip = name.length - rest;
        let mut at = name.at;
        if at < self.question_end {
            // The question's name is not compressed.
            return Placed {
                at: at + skip,
                length: rest,
            };
        }
        loop {
            let length = usize::from(self.message[at]);
            if length >= 0xc0 {
                at = usize::from(wire_u16(self.message, at)) & POINTER_MAX;
            } else if skip == 0 {
                return Placed { at, length: rest };
            } else {
                at += 1 + length;
                skip -= 1 + length;
            }
        }
    }
}
