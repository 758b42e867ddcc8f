//! A message as sorted lists of records.

use wire::message::{Header, Records, Section, parse_response};
use wire::name::compressed::{expand, skip};

pub(crate) fn text(name: &[u8]) -> String {
    wire::name::Name::parse(name).map_or_else(|error| error.to_string(), |name| name.to_string())
}

pub(crate) fn readable(data: &[u8]) -> String {
    match wire::name::Name::parse(data) {
        Ok(name) if name.len() == data.len() => name.to_string(),
        _ => format!("{data:?}"),
    }
}

/// A record whose names are whole and in lower case.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Read {
    pub(crate) owner: Vec<u8>,
    pub(crate) kind: u16,
    pub(crate) ttl: u32,
    pub(crate) data: Vec<u8>,
}

impl std::fmt::Debug for Read {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (owner, data) = (text(&self.owner), readable(&self.data));
        write!(f, "{owner} {} {} {data}", self.ttl, self.kind)
    }
}

/// Sections sorted.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub(crate) struct Message {
    pub(crate) rcode: u8,
    pub(crate) authoritative: bool,
    pub(crate) truncated: bool,
    pub(crate) answer: Vec<Read>,
    pub(crate) authority: Vec<Read>,
    pub(crate) additional: Vec<Read>,
}

impl Message {
    pub(crate) fn sort(&mut self) {
        self.answer.sort();
        self.authority.sort();
        self.additional.sort();
    }
}

/// Where names are in data that may be compressed.
fn names(kind: u16) -> (usize, usize) {
    match kind {
        2 | 5 | 12 => (0, 1),
        6 => (0, 2),
        15 => (2, 1),
        _ => (0, 0),
    }
}

pub(crate) fn message(octets: &[u8]) -> Message {
    let parts = parse_response(octets).expect("an answer that can be parsed");
    assert_eq!(
        usize::from(parts.end),
        octets.len(),
        "nothing behind the last record"
    );
    let header = Header::read(octets).expect("a header");
    let mut message = Message {
        rcode: header.rcode(),
        authoritative: header.aa(),
        truncated: header.tc(),
        ..Message::default()
    };
    for record in Records::new(octets, parts.question_end, &header) {
        let record = record.expect("a whole record");
        let section = match record.section {
            Section::Answer => &mut message.answer,
            Section::Authority => &mut message.authority,
            Section::Additional => &mut message.additional,
        };
        section.push(Read {
            owner: name(octets, record.owner_start.into()),
            kind: record.rtype,
            ttl: record.ttl,
            data: data(octets, &record),
        });
    }
    message.sort();
    message
}

fn name(octets: &[u8], at: usize) -> Vec<u8> {
    let mut buffer = [0; 255];
    let name = expand(octets, at, &mut buffer).expect("a name that can be read");
    name.as_bytes().to_ascii_lowercase()
}

fn data(octets: &[u8], record: &wire::message::Record) -> Vec<u8> {
    let (before, count) = names(record.rtype);
    let start = usize::from(record.rdata_start);
    let mut whole = octets[start..start + before].to_vec();
    let mut at = start + before;
    for _ in 0..count {
        whole.extend(name(octets, at));
        at = skip(octets, at).expect("a name that can be read");
    }
    whole.extend(&octets[at..record.rdata_end.into()]);
    whole
}
