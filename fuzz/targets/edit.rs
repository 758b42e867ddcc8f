//! Responses that are made and then edited: options and OPT records come and go, types are left out, the question has another
//! name. What an edit is not about reads as before, pointers and all. Any other octets are edited without a panic.

#![no_main]

use fuzz::input::Input;
use libfuzzer_sys::fuzz_target;
use wire::codes::qtype;
use wire::edit;
use wire::message::{
    EdnsOption, EdnsParts, HEADER_LENGTH, Header, Records, ResponseParts, Section, parse_response,
};
use wire::name::compressed::expand;
use wire::name::{NAME_LENGTH_MAX, Name, NameBuf};
use zone::rdata;

/// A name that no record has.
const OTHER: &[u8] = b"\x03new\x04name\x00";
/// So few that no name grows past 255 octets, and no pointer past its fourteen bits.
const RECORDS_MAX: usize = 30;
/// The option that comes and goes.
const CODE: u16 = 8;

/// Section, owner, type, class, TTL and data of a record, names written out.
type Shown = (Section, Vec<u8>, u16, u16, u32, Vec<u8>);

fuzz_target!(|octets: &[u8]| {
    if let Ok(parts) = parse_response(octets) {
        survive(&octets[..parts.end.into()], &parts);
    }
    let (value, octets) = octets.split_at(octets.len().min(5));
    let message = Made::from(octets).octets;
    let parts = parse_response(&message).expect("a response that was made");
    assert_eq!(usize::from(parts.end), message.len(), "nothing trails");
    left_out(&message, &parts);
    renamed(&message, &parts);
    shuffled(&message, &parts);
    with_option(&message, &parts, value);
    if let Some(edns) = parts.edns {
        without_options(&message, &parts, edns);
        let mut buffer = message.clone();
        let length = edit::remove_opt(&mut buffer, (parts.question_end, message.len()), edns);
        assert_eq!(shown(&buffer[..length]), shown(&message));
        assert_eq!(options(&buffer[..length]), None);
    }
});

/// Whatever it is, no edit panics, and what it says of its length holds.
fn survive(message: &[u8], parts: &ResponseParts) {
    let places = (parts.question_end, message.len());
    let mut out = Vec::new();
    let _ = edit::without_types(message, parts, &[qtype::A], &mut out);
    let _ = edit::rename(message, parts.question_end, name());
    let mut buffer = message.to_vec();
    edit::shuffle_addresses(&mut buffer, parts.question_end, |below| below / 2);
    buffer.resize(message.len() + edit::option_room(b"value"), 0);
    let option = EdnsOption {
        code: CODE,
        value: b"value",
    };
    let _ = edit::set_option(&mut buffer, places, parts.edns, option, 512);
    if let Some(edns) = parts.edns {
        let mut buffer = message.to_vec();
        let (length, left) = edit::remove_options(&mut buffer, places, edns, CODE);
        assert!(length <= message.len() && left.end <= edns.end);
        assert!(left.options(&buffer).all(|option| option.code != CODE));
        assert_eq!(whole(&buffer[..length]).edns, Some(left));
        let mut buffer = message.to_vec();
        let length = edit::remove_opt(&mut buffer, places, edns);
        // Records behind it go as well where their names lead into it.
        assert!(length <= message.len() - usize::from(edns.end - edns.start));
        assert_eq!(whole(&buffer[..length]).edns, None);
    }
}

/// A response to its last octet.
fn whole(message: &[u8]) -> ResponseParts {
    let parts = parse_response(message).expect("a response");
    assert_eq!(usize::from(parts.end), message.len(), "nothing trails");
    parts
}

// -------------------------------------------------------------------------------------------- what was made

/// A response that grows record by record.
struct Made {
    octets: Vec<u8>,
    /// Where names begin that pointers may lead to.
    names: Vec<u16>,
    section: Section,
}

impl Made {
    fn from(octets: &[u8]) -> Made {
        let mut made = Made {
            octets: vec![0; HEADER_LENGTH],
            names: vec![12, 16, 24],
            section: Section::Answer,
        };
        made.octets
            .extend_from_slice(b"\x03www\x07example\x03com\x00\x00\x01\x00\x01");
        made.change_header(|header| {
            header.set_qr(true);
            header.set_question_count(1);
        });
        let mut input = Input::new(octets);
        let mut has_opt = false;
        for _ in 0..RECORDS_MAX {
            let Some(step) = input.octet() else { break };
            if step & 0x80 != 0 {
                made.section = Section::Additional;
            }
            match step % 8 {
                0..=6 => made.record(step % 8, &mut input),
                _ if has_opt || made.section != Section::Additional => {}
                _ => {
                    has_opt = true;
                    made.opt(&mut input);
                }
            }
        }
        made
    }

    fn record(&mut self, kind: u8, input: &mut Input<'_>) {
        self.name(input);
        let rtype = match kind {
            0 => qtype::A,
            1 => qtype::NAPTR,
            2 => qtype::NS,
            3 => qtype::MX,
            4 => qtype::SOA,
            5 => qtype::AAAA,
            _ => qtype::TXT,
        };
        self.octets.extend(rtype.to_be_bytes());
        self.octets.extend([0, 1, 0, 0, 0, kind, 0, 0]);
        let start = self.octets.len();
        match rtype {
            qtype::NS => self.name(input),
            qtype::MX => {
                self.octets.extend([0, 10]);
                self.name(input);
            }
            qtype::NAPTR => {
                self.octets.extend(b"\x00\x01\x00\x02\x01u\x00\x01!");
                self.name(input);
            }
            qtype::SOA => {
                self.name(input);
                self.name(input);
                self.octets.extend([7; 20]);
            }
            qtype::TXT => {
                let text = octets_of(input);
                self.octets.push(text.len() as u8);
                self.octets.extend_from_slice(text);
            }
            _ => {
                let length = if rtype == qtype::A { 4 } else { 16 };
                let last = input.octet().unwrap_or_default();
                self.octets.extend(vec![last; length]);
            }
        }
        self.end_record(start);
    }

    fn opt(&mut self, input: &mut Input<'_>) {
        self.octets
            .extend_from_slice(b"\x00\x00\x29\x04\xd0\x00\x00\x80\x00\x00\x00");
        let start = self.octets.len();
        for _ in 0..4 {
            let code = if input.octet().unwrap_or_default() & 1 == 0 {
                CODE
            } else {
                10
            };
            let value = octets_of(input);
            self.octets.extend(code.to_be_bytes());
            self.octets.extend((value.len() as u16).to_be_bytes());
            self.octets.extend_from_slice(value);
        }
        self.end_record(start);
    }

    /// One label or none, and then a pointer or the root.
    fn name(&mut self, input: &mut Input<'_>) {
        let choice = input.octet().unwrap_or_default();
        let known = self.names[usize::from(choice >> 2) % self.names.len()];
        if choice & 1 == 1 {
            self.names.push(self.octets.len() as u16);
            self.octets.extend([1, b'a' + (choice >> 2) % 26]);
        }
        match choice & 2 {
            0 => self.octets.extend((known | 0xc000).to_be_bytes()),
            _ => self.octets.push(0),
        }
    }

    fn end_record(&mut self, start: usize) {
        let length = (self.octets.len() - start) as u16;
        self.octets[start - 2..start].copy_from_slice(&length.to_be_bytes());
        let section = self.section;
        self.change_header(|header| match section {
            Section::Answer => header.set_answer_count(header.answer_count() + 1),
            _ => header.set_additional_count(header.additional_count() + 1),
        });
    }

    fn change_header(&mut self, change: impl FnOnce(&mut Header)) {
        let mut header = Header::read(&self.octets).expect("twelve octets");
        change(&mut header);
        header.write(&mut self.octets).expect("twelve octets");
    }
}

/// Octets with their count in front, one octet of it.
fn octets_of<'i>(input: &mut Input<'i>) -> &'i [u8] {
    let count = input.octet().unwrap_or_default();
    input.octets(count.into())
}

// ---------------------------------------------------------------------------------------------- what is left

/// All records but the OPT record.
fn shown(message: &[u8]) -> Vec<Shown> {
    let parts = parse_response(message).expect("a response");
    assert_eq!(usize::from(parts.end), message.len(), "nothing trails");
    let header = Header::read(message).expect("a response");
    Records::new(message, parts.question_end, &header)
        .map(|record| record.expect("a whole record"))
        .filter(|record| record.rtype != qtype::OPT)
        .map(|record| {
            let mut buffer = [0; NAME_LENGTH_MAX];
            let owner = expand(message, record.owner_start.into(), &mut buffer);
            let owner = owner.expect("a name").as_bytes().to_vec();
            let place = record.rdata_start.into()..record.rdata_end.into();
            let mut data = Vec::new();
            rdata::expand(record.rtype, message, place, &mut data).expect("data of the type");
            let (rtype, class, ttl) = (record.rtype, record.class, record.ttl);
            (record.section, owner, rtype, class, ttl, data)
        })
        .collect()
}

/// Codes and values; `None`: there is no OPT record.
fn options(message: &[u8]) -> Option<Vec<(u16, Vec<u8>)>> {
    let parts = parse_response(message).expect("a response");
    let options = parts.edns?.options(message);
    let options = options.map(|option| (option.code, option.value.to_vec()));
    Some(options.collect())
}

fn without_options(message: &[u8], parts: &ResponseParts, edns: EdnsParts) {
    let mut buffer = message.to_vec();
    let places = (parts.question_end, message.len());
    let (length, left) = edit::remove_options(&mut buffer, places, edns, CODE);
    let after = &buffer[..length];
    assert_eq!(parse_response(after).expect("a response").edns, Some(left));
    assert_eq!(shown(after), shown(message));
    let mut expected = options(message).expect("there was an OPT record");
    expected.retain(|(code, _)| *code != CODE);
    assert_eq!(options(after), Some(expected));
}

fn with_option(message: &[u8], parts: &ResponseParts, value: &[u8]) {
    let mut buffer = message.to_vec();
    buffer.resize(message.len() + edit::option_room(value), 0);
    let places = (parts.question_end, message.len());
    let option = EdnsOption { code: CODE, value };
    let (length, edns) =
        edit::set_option(&mut buffer, places, parts.edns, option, 512).expect("room");
    let after = &buffer[..length];
    assert_eq!(parse_response(after).expect("a response").edns, Some(edns));
    assert_eq!(shown(after), shown(message));
    let mut expected = options(message).unwrap_or_default();
    expected.push((CODE, value.to_vec()));
    assert_eq!(options(after), Some(expected));
}

fn left_out(message: &[u8], parts: &ResponseParts) {
    const TYPES: [u16; 2] = [qtype::NS, qtype::TXT];
    let mut out = Vec::new();
    edit::without_types(message, parts, &TYPES, &mut out).expect("whole records");
    let mut expected = shown(message);
    expected.retain(|(_, _, rtype, _, _, _)| !TYPES.contains(rtype));
    assert_eq!(shown(&out), expected);
    assert_eq!(options(&out), options(message));
}

fn renamed(message: &[u8], parts: &ResponseParts) {
    let before = parts.question.expect("a question").qname(message);
    let after = edit::rename(message, parts.question_end, name()).expect("whole records");
    let mut expected = shown(message);
    for (_, owner, ..) in &mut expected {
        if *owner == before.as_bytes() {
            *owner = OTHER.to_vec();
        }
    }
    assert_eq!(shown(&after), expected);
    assert_eq!(options(&after), options(message));
    let question = parse_response(&after).expect("a response").question;
    assert_eq!(question.expect("a question").qname(&after), name());
    // And back again.
    let end = parse_response(&after).expect("a response").question_end;
    let before: NameBuf = before.to_owned();
    let back = edit::rename(&after, end, before.as_name()).expect("whole records");
    assert_eq!(shown(&back), shown(message));
}

fn shuffled(message: &[u8], parts: &ResponseParts) {
    let mut buffer = message.to_vec();
    edit::shuffle_addresses(&mut buffer, parts.question_end, |below| below / 2);
    let (mut before, mut after) = (shown(message), shown(&buffer));
    before.sort();
    after.sort();
    assert_eq!(before, after);
}

fn name() -> Name<'static> {
    Name::parse(OTHER).expect("a name")
}
