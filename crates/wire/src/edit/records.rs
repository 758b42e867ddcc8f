//! Records put behind an answer, and a response without those of some types.

use super::names::{may_be_compressed, names_in_rdata, starts};
use crate::message::{
    BrokenRecord, HEADER_LENGTH, Header, MESSAGE_LENGTH_MAX, Record, Records, ResponseParts,
    Section,
};
use crate::name::{NAME_LENGTH_MAX, Name, compressed};
use std::collections::HashMap;

/// One record to be put into a message.
#[derive(Clone, Copy, Debug)]
pub struct NewRecord<'r> {
    pub section: Section,
    /// Its owner; `None`: the question's name.
    pub owner: Option<Name<'r>>,
    pub rtype: u16,
    pub class: u16,
    /// Seconds.
    pub ttl: u32,
    pub rdata: &'r [u8],
}

/// Puts a record behind the `length` octets of an answer with a question, and counts it. Records must come in the order
/// of their sections. Returns the new length; `None`, and nothing has changed, where there is no room.
pub fn append_record(buffer: &mut [u8], length: usize, record: &NewRecord<'_>) -> Option<usize> {
    /// A pointer to the question's name, right behind the header.
    const QUESTION: [u8; 2] = [0xc0, HEADER_LENGTH as u8];
    let owner = record.owner.map_or(&QUESTION[..], |owner| owner.as_bytes());
    let data_length = u16::try_from(record.rdata.len()).ok()?;
    let end = length + owner.len() + 10 + record.rdata.len();
    let room = buffer.get_mut(length..end)?;
    let (name, fields) = room.split_at_mut(owner.len());
    name.copy_from_slice(owner);
    fields[..2].copy_from_slice(&record.rtype.to_be_bytes());
    fields[2..4].copy_from_slice(&record.class.to_be_bytes());
    fields[4..8].copy_from_slice(&record.ttl.to_be_bytes());
    fields[8..10].copy_from_slice(&data_length.to_be_bytes());
    fields[10..].copy_from_slice(record.rdata);
    let mut header = Header::read(buffer)?;
    count(&mut header, record.section);
    header.write(buffer)?;
    Some(end)
}

fn count(header: &mut Header, section: Section) {
    match section {
        Section::Answer => header.set_answer_count(header.answer_count() + 1),
        Section::Authority => header.set_authority_count(header.authority_count() + 1),
        Section::Additional => header.set_additional_count(header.additional_count() + 1),
    }
}

/// Writes the response that `parts` are of to `out`, without the records of these types. Names are compressed anew, where they
/// may be, for what is left out may be what others point at. Allocates.
///
/// # Errors
/// A name is malformed, or the message would be longer than there can be; `out` then holds nothing of use.
pub fn without_types(
    message: &[u8],
    parts: &ResponseParts,
    types: &[u16],
    out: &mut Vec<u8>,
) -> Result<(), BrokenRecord> {
    let before = Header::read(message).ok_or(BrokenRecord)?;
    let mut header = before;
    header.set_answer_count(0);
    header.set_authority_count(0);
    header.set_additional_count(0);
    out.clear();
    out.extend_from_slice(&message[..parts.question_end.into()]);
    let mut names = Compression::default();
    if let Some(question) = parts.question {
        names.learn(question.qname(message), HEADER_LENGTH);
    }
    for record in Records::new(message, parts.question_end, &before) {
        let record = record?;
        if !types.contains(&record.rtype) {
            copy(message, &record, &mut names, out)?;
            count(&mut header, record.section);
        }
    }
    header.write(out).ok_or(BrokenRecord)?;
    if out.len() > MESSAGE_LENGTH_MAX {
        return Err(BrokenRecord);
    }
    Ok(())
}

fn copy(
    message: &[u8],
    record: &Record,
    names: &mut Compression,
    out: &mut Vec<u8>,
) -> Result<(), BrokenRecord> {
    let mut starts = starts(message, record).into_iter();
    names.put(message, starts.next().ok_or(BrokenRecord)?, out)?;
    // Type, class and TTL: ten octets before the data, the last two of which are their length.
    let fixed = usize::from(record.rdata_start) - 10;
    out.extend_from_slice(&message[fixed..fixed + 8]);
    let length_at = out.len();
    out.extend_from_slice(&[0, 0]);
    match names_in_rdata(record.rtype, record.rdata(message)) {
        None => out.extend_from_slice(record.rdata(message)),
        Some((before, _)) => {
            let data = usize::from(record.rdata_start);
            let mut at = data + before;
            out.extend_from_slice(message.get(data..at).ok_or(BrokenRecord)?);
            for start in starts {
                match may_be_compressed(record.rtype) {
                    true => names.put(message, start, out)?,
                    false => write_out(message, start, out)?,
                }
                at = compressed::skip(message, start).map_err(|_| BrokenRecord)?;
            }
            out.extend_from_slice(
                message
                    .get(at..record.rdata_end.into())
                    .ok_or(BrokenRecord)?,
            );
        }
    }
    let length = u16::try_from(out.len() - length_at - 2).map_err(|_| BrokenRecord)?;
    out[length_at..length_at + 2].copy_from_slice(&length.to_be_bytes());
    Ok(())
}

fn write_out(message: &[u8], start: usize, out: &mut Vec<u8>) -> Result<(), BrokenRecord> {
    let mut buffer = [0; NAME_LENGTH_MAX];
    let name = compressed::expand(message, start, &mut buffer).map_err(|_| BrokenRecord)?;
    out.extend_from_slice(name.as_bytes());
    Ok(())
}

/// Where names have been written, each with all that are above it.
#[derive(Default)]
struct Compression {
    places: HashMap<Box<[u8]>, u16>,
}

impl Compression {
    /// Remembers a name that lies at `place`.
    fn learn(&mut self, name: Name<'_>, place: usize) {
        let octets = name.as_bytes();
        let mut at = 0;
        while octets[at] != 0 {
            if let Ok(place @ ..=0x3fff) = u16::try_from(place + at) {
                let suffix = octets[at..].to_ascii_lowercase().into_boxed_slice();
                self.places.entry(suffix).or_insert(place);
            }
            at += 1 + usize::from(octets[at]);
        }
    }

    /// Writes the name at `start` of `message`, as short as can be.
    fn put(&mut self, message: &[u8], start: usize, out: &mut Vec<u8>) -> Result<(), BrokenRecord> {
        let mut buffer = [0; NAME_LENGTH_MAX];
        let name = compressed::expand(message, start, &mut buffer).map_err(|_| BrokenRecord)?;
        let octets = name.as_bytes();
        let place = out.len();
        let mut at = 0;
        while octets[at] != 0 {
            let suffix = octets[at..].to_ascii_lowercase();
            if let Some(known) = self.places.get(suffix.as_slice()) {
                out.extend_from_slice(&octets[..at]);
                out.extend_from_slice(&(known | 0xc000).to_be_bytes());
                self.learn_front(octets, at, place);
                return Ok(());
            }
            at += 1 + usize::from(octets[at]);
        }
        out.extend_from_slice(octets);
        self.learn(name, place);
        Ok(())
    }

    /// Remembers the names that begin in the first `end` octets, which lie at `place`.
    fn learn_front(&mut self, octets: &[u8], end: usize, place: usize) {
        let mut at = 0;
        while at < end {
            if let Ok(place @ ..=0x3fff) = u16::try_from(place + at) {
                let suffix = octets[at..].to_ascii_lowercase().into_boxed_slice();
                self.places.entry(suffix).or_insert(place);
            }
            at += 1 + usize::from(octets[at]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answer::{EdnsPolicy, with_rcode};
    use crate::codes::{class, qtype};
    use crate::examples::{Composed, query};
    use crate::message::{parse_query, parse_response};

    #[test]
    fn records_follow_the_question() {
        let mut buffer = query("www.example.com", qtype::A, None);
        let asked = buffer.len();
        buffer.resize(asked + 60, 0);
        let parts = parse_query(&buffer[..asked]).unwrap();
        let mut length = with_rcode(&mut buffer, &parts, 0, EdnsPolicy::Omit);
        for address in [[192, 0, 2, 1], [192, 0, 2, 2]] {
            let record = NewRecord {
                section: Section::Answer,
                owner: None,
                rtype: qtype::A,
                class: class::IN,
                ttl: 60,
                rdata: &address,
            };
            length = append_record(&mut buffer, length, &record).unwrap();
        }
        let parts = parse_response(&buffer[..length]).unwrap();
        assert_eq!((parts.answer_count, usize::from(parts.end)), (2, length));
        assert_eq!(
            buffer[asked..asked + 16],
            *b"\xc0\x0c\0\x01\0\x01\0\0\0\x3c\0\x04\xc0\0\x02\x01"
        );
        let long = NewRecord {
            section: Section::Additional,
            owner: Some(Name::ROOT),
            rtype: qtype::TXT,
            class: class::IN,
            ttl: 0,
            rdata: &[0; 40],
        };
        assert_eq!(append_record(&mut buffer, length, &long), None);
    }

    #[test]
    fn what_pointed_at_a_record_that_is_left_out_keeps_its_name() {
        let message = Composed::response("example.com", qtype::MX);
        let target = 0xc000 | (message.octets.len() as u16 + 14);
        let message = message
            .record(
                Section::Answer,
                b"\xc0\x0c",
                qtype::MX,
                60,
                b"\x00\x05\x04mail\xc0\x0c",
            )
            .record(
                Section::Answer,
                b"\xc0\x0c",
                qtype::HTTPS,
                60,
                b"\x00\x01\x00",
            )
            .record(
                Section::Additional,
                &target.to_be_bytes(),
                qtype::A,
                60,
                &[192, 0, 2, 1],
            )
            .opt(0x8000, b"");
        let parts = parse_response(&message.octets).unwrap();
        let mut out = Vec::new();
        without_types(&message.octets, &parts, &[qtype::MX], &mut out).unwrap();
        let left = parse_response(&out).unwrap();
        assert_eq!((left.answer_count, left.additional_count), (1, 2));
        assert!(left.edns.is_some_and(|edns| edns.dnssec_ok));
        let header = Header::read(&out).unwrap();
        let record = Records::new(&out, left.question_end, &header)
            .nth(1)
            .unwrap()
            .unwrap();
        let mut buffer = [0; NAME_LENGTH_MAX];
        let owner = compressed::expand(&out, record.owner_start.into(), &mut buffer).unwrap();
        assert_eq!(owner.to_string(), "mail.example.com.");
        // Nothing left out: nothing longer.
        without_types(&message.octets, &parts, &[], &mut out).unwrap();
        assert_eq!(out.len(), message.octets.len());
    }

    /// RFC 3597 §4: old servers compressed these names; nobody may do so now.
    #[test]
    fn names_in_data_that_may_not_be_compressed_are_written_out() {
        let name = b"\x07example\x03com\x00";
        let response = |target: &[u8]| {
            let srv = [&[0; 6][..], target].concat();
            let naptr = [&[0; 7][..], target].concat();
            Composed::response("example.com", qtype::ANY)
                .record(Section::Answer, b"\xc0\x0c", qtype::SRV, 60, &srv)
                .record(Section::Answer, b"\xc0\x0c", qtype::NAPTR, 60, &naptr)
                .octets
        };
        let message = response(b"\xc0\x0c");
        let parts = parse_response(&message).unwrap();
        let mut out = Vec::new();
        without_types(&message, &parts, &[qtype::A], &mut out).unwrap();
        assert_eq!(out, response(name));
    }
}
