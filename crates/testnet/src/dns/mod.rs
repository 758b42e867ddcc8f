//! DNS messages as the lab writes and reads them (RFC 1035 section 4, EDNS of RFC 6891).

mod answer;
mod query;
mod record;

pub use answer::{Answer, Opt, question_of};
pub use query::{Edns, Query};
pub use record::{Record, RecordPattern, Ttl, records_of};

use crate::{Failure, Outcome};

/// Octets of the fixed header (RFC 1035 section 4.1.1).
pub const HEADER_OCTETS: usize = 12;

/// Bits of the header's second 16 bits, with the words that scenarios use for them.
pub const FLAGS: [(&str, u16); 8] = [
    ("qr", 0x8000),
    ("aa", 0x0400),
    ("tc", 0x0200),
    ("rd", 0x0100),
    ("ra", 0x0080),
    ("z", 0x0040),
    ("ad", 0x0020),
    ("cd", 0x0010),
];

/// Response codes by number (IANA's registry, those that fit the header).
const RCODES: [&str; 11] = [
    "NOERROR", "FORMERR", "SERVFAIL", "NXDOMAIN", "NOTIMP", "REFUSED", "YXDOMAIN", "YXRRSET",
    "NXRRSET", "NOTAUTH", "NOTZONE",
];

/// The number of a response code's name, or of `RCODE12`.
pub fn rcode_number(name: &str) -> Option<u16> {
    let known = RCODES
        .iter()
        .position(|known| *known == name)
        .map(|number| number as u16);
    known
        .or_else(|| name.strip_prefix("RCODE")?.parse().ok())
        .or((name == "BADVERS").then_some(16))
}

/// The name of a response code.
pub fn rcode_name(number: u16) -> String {
    match (RCODES.get(usize::from(number)), number) {
        (Some(name), _) => (*name).to_owned(),
        (None, 16) => "BADVERS".to_owned(),
        (None, _) => format!("RCODE{number}"),
    }
}

/// The set flags as words, in the order of `FLAGS`.
pub fn flag_words(bits: u16) -> String {
    let set = FLAGS.iter().filter(|(_, bit)| bits & bit != 0);
    set.map(|(word, _)| *word).collect::<Vec<_>>().join(" ")
}

/// Octets written as hexadecimal digits; blanks and underscores between them mean nothing.
pub fn octets_of_hex(text: &str) -> Outcome<Vec<u8>> {
    let digits: Vec<u8> = text
        .bytes()
        .filter(|octet| !octet.is_ascii_whitespace() && *octet != b'_')
        .collect();
    let pair = |pair: &[u8]| {
        let text = std::str::from_utf8(pair).ok()?;
        (pair.len() == 2)
            .then(|| u8::from_str_radix(text, 16).ok())
            .flatten()
    };
    let octets: Option<Vec<u8>> = digits.chunks(2).map(pair).collect();
    octets.ok_or_else(|| {
        Failure::new(format!(
            "`{text}` is not a whole number of hexadecimal octets"
        ))
    })
}

/// Octets as hexadecimal digits.
pub fn hex_of_octets(octets: &[u8]) -> String {
    octets.iter().map(|octet| format!("{octet:02x}")).collect()
}
