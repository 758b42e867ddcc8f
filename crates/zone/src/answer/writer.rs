//! Copies RRsets behind the question of a message and moves their pointers.

use crate::zone::parts::{LABEL_LENGTH, POINTER_MAX, RECORD_HEADER_LENGTH, Rrset, wire_u16};
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
        if self.lead_names(rrset, (at, body), owner).is_err() {
            return self.put_written_out(section, rrset, owner, signed);
        }
        self.at = at + body.len();
        self.counts[section as usize] += rrset.count(signed);
        Ok(at)
    }

    /// Has the pointers of an RRset lead where they should, of whose body there is a copy at a place.
    #[inline]
    fn lead_names(
        &mut self,
        rrset: &Rrset<'_>,
        (at, body): (usize, &[u8]),
        owner: Placed,
    ) -> Result<(), Full> {
        if owner.at != HEADER_LENGTH {
            self.set_owners((at, body), owner.at)?;
        }
        let direct = owner.at == HEADER_LENGTH && owner.length == rrset.owner_length;
        if !(direct && at == rrset.body_base()) {
            self.move_pointers(rrset, (at, body), owner)?;
        }
        Ok(())
    }

    /// The same where a pointer would have to lead further than 16 KiB into the answer: that name is written out. Where that is
    /// so, the places of names in the body are others from there on.
    #[cold]
    fn put_written_out(
        &mut self,
        section: Section,
        rrset: &Rrset<'_>,
        owner: Placed,
        signed: bool,
    ) -> Result<usize, Full> {
        // Addresses are of use, but not owed; nor is it known where their owner's name has come to lie.
        if owner.at > POINTER_MAX {
            return Err(Full);
        }
        let start = self.at;
        let written = self.write_out(rrset, owner, signed);
        if written.is_err() {
            self.at = start;
            return Err(Full);
        }
        self.counts[section as usize] += rrset.count(signed);
        Ok(start)
    }

    /// Writes the records of an RRset out, one by one.
    fn write_out(&mut self, rrset: &Rrset<'_>, owner: Placed, signed: bool) -> Result<(), Full> {
        let (body, start) = (rrset.body(signed), self.at);
        let mut pointers = rrset.pointers().peekable();
        let mut read = 0;
        while read < body.len() {
            let at = self.at;
            let data = read + RECORD_HEADER_LENGTH;
            let end = data + usize::from(wire_u16(body, data - 2));
            self.push(&body[read..data])?;
            self.set_pointer(at, owner.at)?;
            read = data;
            while let Some(place) = pointers.next_if(|place| *place < end) {
                self.push(&body[read..place])?;
                self.push_rest(rrset, (start, place), owner)?;
                read = place + 2;
            }
            self.push(&body[read..end])?;
            let length = (self.at - at - RECORD_HEADER_LENGTH) as u16;
            let length_at = at + RECORD_HEADER_LENGTH - 2;
            self.message[length_at..length_at + 2].copy_from_slice(&length.to_be_bytes());
            read = end;
        }
        Ok(())
    }

    /// Writes the rest of a name that is a pointer at `place` of an RRset's body: as a pointer as soon as that reaches. What of
    /// a body that begins at `start` a pointer reaches lies before the first name that none does, so where it would lie anyway.
    fn push_rest(
        &mut self,
        rrset: &Rrset<'_>,
        (start, place): (usize, usize),
        owner: Placed,
    ) -> Result<(), Full> {
        let (body, base) = (rrset.body(false), rrset.body_base());
        let mut stored = usize::from(wire_u16(body, place)) & POINTER_MAX;
        loop {
            let Some(within) = stored.checked_sub(base) else {
                let rest = rrset.owner_length - (stored - HEADER_LENGTH);
                return self.push_pointer(self.rest_of(owner, rest).at);
            };
            if start + within <= POINTER_MAX {
                return self.push_pointer(start + within);
            }
            let mut end = within;
            while !matches!(body[end], 0 | 0xc0..=0xff) {
                end += 1 + usize::from(body[end]);
            }
            self.push(&body[within..end])?;
            if body[end] == 0 {
                return self.push(&[0]);
            }
            stored = usize::from(wire_u16(body, end)) & POINTER_MAX;
        }
    }

    fn push_pointer(&mut self, target: usize) -> Result<(), Full> {
        let at = self.at;
        self.push(&[0; 2])?;
        self.set_pointer(at, target)
    }

    fn push(&mut self, octets: &[u8]) -> Result<(), Full> {
        let at = self.reserve(octets.len())?;
        self.at = at + octets.len();
        self.message[at..self.at].copy_from_slice(octets);
        Ok(())
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
        self.set_owners((at, body), owner.at)?;
        self.at = at + body.len();
        self.counts[Section::Answer as usize] += rrset.signatures;
        Ok(())
    }

    /// Appends an NSEC3 record with its signatures as [`whole_proof_at`](crate::zone::parts::whole_proof_at) has it, of a zone whose
    /// apex is at `apex_at`.
    #[inline]
    pub(super) fn put_proof(
        &mut self,
        (octets, count): (&[u8], u16),
        apex_at: usize,
    ) -> Result<(), Full> {
        let at = self.reserve(octets.len())?;
        if at > POINTER_MAX {
            let (label, body) = octets.split_at(LABEL_LENGTH);
            return self.put_each_named(Section::Authority, body, (label, apex_at), count);
        }
        let body_at = at + LABEL_LENGTH;
        self.message[at..at + octets.len()].copy_from_slice(octets);
        self.at = at + octets.len();
        let mut owner_at = apex_at;
        for record in records_of(&octets[LABEL_LENGTH..]) {
            self.set_pointer(body_at + record, owner_at)?;
            owner_at = at;
        }
        self.counts[Section::Authority as usize] += count;
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
        self.set_owners((body_at, body), at)?;
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

    /// Makes the owner of each record of a body a pointer to `owner_at`, in the copy at `at`.
    fn set_owners(&mut self, (at, body): (usize, &[u8]), owner_at: usize) -> Result<(), Full> {
        for record in records_of(body) {
            self.set_pointer(at + record, owner_at)?;
        }
        Ok(())
    }

    #[inline]
    fn set_pointer(&mut self, at: usize, target: usize) -> Result<(), Full> {
        let pointer = pointer_to(target)?;
        self.message[at..at + 2].copy_from_slice(&pointer.to_be_bytes());
        Ok(())
    }

    /// Moves the pointers within the data of an RRset, of whose body there is a copy at `at` and whose owner's name is at `owner`.
    fn move_pointers(
        &mut self,
        rrset: &Rrset<'_>,
        (at, body): (usize, &[u8]),
        owner: Placed,
    ) -> Result<(), Full> {
        let base = rrset.body_base();
        for place in rrset.pointers() {
            let stored = usize::from(wire_u16(body, place)) & POINTER_MAX;
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

/// Where the records of an RRset's body begin in it. Lengths are those of the zone's, not of the copy in the message: whoever
/// reads of that waits for the whole cache line, which was somebody else's, to come (some 0.1 µs for an NXDOMAIN).
#[inline]
fn records_of(body: &[u8]) -> impl Iterator<Item = usize> {
    let mut next = 0;
    std::iter::from_fn(move || {
        let at = next;
        let header = body.get(at..at + RECORD_HEADER_LENGTH)?;
        let length = wire_u16(header, RECORD_HEADER_LENGTH - 2);
        next = at + RECORD_HEADER_LENGTH + usize::from(length);
        Some(at)
    })
}

/// A pointer to a place of the message. None reaches it 16 KiB into an answer over TCP, and only behind RRsets of such a length.
#[inline]
fn pointer_to(target: usize) -> Result<u16, Full> {
    match target > POINTER_MAX {
        true => Err(Full),
        false => Ok(0xc000 | target as u16),
    }
}

#[cfg(test)]
mod tests {
    use crate::answer::{Outcome, Zones, answer};
    use crate::file::{Opener, Reader, Settings};
    use crate::rdata;
    use crate::zone::Zone;
    use std::io::ErrorKind;
    use std::sync::Arc;
    use wire::codes::{class, qtype};
    use wire::message::{Header, QueryFlags, Records, parse_query, write_query};
    use wire::name::NameBuf;

    /// A zone with so many short MX records of one name, and then some whose names lead to each other.
    fn zones(short: usize) -> Zones {
        let short = (0..short).map(|number| format!("many 60 MX {number} x\n"));
        let others = (0..9).map(|number| {
            format!("many 60 MX 6000{number} h{number}.far.example.net.\n")
                + &format!("many 60 MX 6001{number} y.h{number}.far.example.net.\n")
        });
        let text = format!(
            "@ 60 SOA ns host 1 2 3 4 5\n@ 60 NS ns\nns 60 A 192.0.2.1\nx 60 A 192.0.2.2\n\
             alias 60 CNAME many\n{}",
            short.chain(others).collect::<String>()
        );
        let apex: NameBuf = "example.".parse().unwrap();
        let open: Opener<'_> = Box::new(|_| Err(ErrorKind::NotFound.into()));
        let reader = Reader::new("zone", text.as_bytes(), open, Settings::new(apex.as_name()));
        let records = reader.map(|record| record.unwrap());
        let (zone, _) = Zone::build(apex.as_name(), records).unwrap();
        Zones::new([(apex, Some(Arc::new(zone)))])
    }

    /// The data of the MX records that a query over TCP is answered with, uncompressed, and the octets of the answer.
    fn asked(zones: &Zones, name: &str) -> (Vec<Vec<u8>>, usize) {
        let name: NameBuf = name.parse().unwrap();
        let mut message = vec![0; 65_535];
        let question = (name.as_name(), qtype::MX, class::IN);
        let length = write_query(&mut message, 1, question, QueryFlags::default()).unwrap();
        let parts = parse_query(&message[..length]).unwrap();
        let Outcome::Answered(answered) = answer(zones, &mut message, &parts, 65_535) else {
            panic!("no answer")
        };
        assert!(!answered.truncated);
        let message = &message[..answered.length];
        let header = Header::read(message).unwrap();
        let records = Records::new(message, parts.question_end, &header).map(Result::unwrap);
        let records = records.filter(|record| record.rtype == qtype::MX);
        let data = records.map(|record| {
            let place = usize::from(record.rdata_start)..usize::from(record.rdata_end);
            let mut data = Vec::new();
            rdata::expand(qtype::MX, message, place, &mut data).unwrap();
            data
        });
        (data.collect(), answered.length)
    }

    /// RFC 1035 §4.1.4: a pointer reaches 16 KiB, and nobody needs one; RFC 2181 §9: TC is for what does not fit.
    #[test]
    fn names_that_no_pointer_reaches_behind_an_alias_are_written_out() {
        let mut grown = Vec::new();
        for short in 1_000..1_030 {
            let zones = zones(short);
            let (whole, length) = asked(&zones, "many.example.");
            assert_eq!(whole.len(), short + 18);
            let (behind, longer) = asked(&zones, "alias.example.");
            assert!(behind == whole, "{short}");
            grown.push(longer - length);
        }
        // The alias alone, and with names.
        let (least, most) = (grown.iter().min(), grown.iter().max());
        assert!(least == Some(&20) && most > least, "{grown:?}");
    }
}
