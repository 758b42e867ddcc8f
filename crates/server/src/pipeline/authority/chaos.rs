//! The names in class CHAOS by which a server says who it is (RFC 4892): `id.server` and `version.server`, and what BIND
//! called them first, `hostname.bind` and `version.bind`.
//!
//! They are answered where zones are served, unless a rule has decided: a balancer without zones passes them to its
//! backends, as dnsdist does.

use super::{Authority, Reply};
use crate::pipeline::query::Query;
use crate::pipeline::respond;
use wire::codes::{class, qtype, rcode};
use wire::name::Name;

/// What one of these names asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Subject {
    Identity,
    Version,
}

const NAMES: [(&[u8], Subject); 4] = [
    (b"\x02id\x06server\x00", Subject::Identity),
    (b"\x08hostname\x04bind\x00", Subject::Identity),
    (b"\x07version\x06server\x00", Subject::Version),
    (b"\x07version\x04bind\x00", Subject::Version),
];

/// Whether the query asks for one of them, whatever its type.
pub(super) fn is_asked(query: &Query<'_>) -> bool {
    query.parts.qclass == class::CHAOS && subject(query.name()).is_some()
}

/// The answer: a text, or REFUSED where there is none to give, and for other types (as Knot does).
pub(super) fn answer(query: &mut Query<'_>, authority: &Authority) -> Reply {
    let text = match subject(query.name()) {
        Some(Subject::Identity) => &authority.identity,
        Some(Subject::Version) => &authority.version,
        None => "",
    };
    let is_text = query.parts.qtype == qtype::TXT;
    let at = usize::from(query.parts.question_end);
    let end = at + RECORD_LENGTH + text.len();
    if text.is_empty() || !is_text || end > query.message.len() {
        return Reply::without_records(query, rcode::REFUSED, None);
    }
    let mut reply = Reply::without_records(query, rcode::NOERROR, None);
    let length = text.len() as u8;
    let record = &mut query.message[at..end];
    record[..RECORD_LENGTH].copy_from_slice(&[
        0xc0,
        12,
        0,
        16,
        0,
        3,
        0,
        0,
        0,
        0,
        0,
        length + 1,
        length,
    ]);
    record[RECORD_LENGTH..].copy_from_slice(text.as_bytes());
    respond::edit_header(query.message, |header| header.set_answer_count(1));
    reply.length = end;
    reply
}

/// Owner as a pointer, type TXT, class CHAOS, TTL 0, length, length of the text.
const RECORD_LENGTH: usize = 13;

fn subject(name: Name<'_>) -> Option<Subject> {
    let is = |known: &[u8]| name.as_bytes().eq_ignore_ascii_case(known);
    let found = NAMES.iter().find(|(known, _)| is(known));
    found.map(|(_, subject)| *subject)
}
