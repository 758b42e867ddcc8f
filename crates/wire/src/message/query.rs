//! A query, checked once and known as places from then on.

use super::edns::{DNSSEC_OK, EdnsParts, EdnsSearch};
use super::header::{HEADER_LENGTH, Header};
use super::records::{Record, Records, Section};
use super::response::QuestionParts;
use crate::codes::{qtype, rcode};
use crate::name::compressed::skip;
use crate::name::{Name, NameError};
use std::fmt;

/// Where the parts of a query are. Its name starts behind the header, at 12.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct QueryParts {
    /// Octets of the name, the root's included: 1 to 255.
    pub qname_length: u16,
    /// Its labels without the root's: 0 to 127.
    pub labels: u8,
    /// What is asked for: see [`crate::codes::qtype`].
    pub qtype: u16,
    /// See [`crate::codes::class`].
    pub qclass: u16,
    /// Where the question ends.
    pub question_end: u16,
    /// Where the last record ends. What the message has behind this is trailing and means nothing.
    pub end: u16,
    /// The OPT record, if there is one. Its version may be one that we do not know.
    pub edns: Option<EdnsParts>,
    /// Whether any record is a TSIG record, in whatever place. RFC 8945 §5.1: it "MUST be the last RR in the additional data
    /// section".
    pub is_signed: bool,
}

impl QueryParts {
    /// The name asked for, in `message` from which these parts come.
    ///
    /// # Panics
    /// Where `message` is shorter than that one.
    #[inline]
    #[must_use]
    pub fn qname<'m>(&self, message: &'m [u8]) -> Name<'m> {
        Name::measured(&message[HEADER_LENGTH..HEADER_LENGTH + usize::from(self.qname_length)])
    }

    /// The question as it lies in `message`: name, type, class.
    ///
    /// # Panics
    /// Where `message` is shorter than the one these parts come from.
    #[inline]
    #[must_use]
    pub fn question<'m>(&self, message: &'m [u8]) -> &'m [u8] {
        &message[HEADER_LENGTH..usize::from(self.question_end)]
    }

    /// The largest UDP payload the client takes, in octets.
    #[inline]
    #[must_use]
    pub fn payload_size(&self) -> u16 {
        // RFC 6891 §6.2.3: "Values lower than 512 MUST be treated as equal to 512"; RFC 1035 §4.2.1 without EDNS.
        self.edns.map_or(512, |edns| edns.payload_size.max(512))
    }
}

/// Why a message is not a query that can be worked on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum QueryError {
    /// Fewer than 12 octets.
    TooShort,
    /// QR is set.
    Response,
    /// No question.
    NoQuestion,
    /// More than one.
    ManyQuestions,
    /// The name is malformed or compressed.
    BadName,
    /// The question runs past the end.
    TruncatedQuestion,
    /// The records are not those that the header counts, or are malformed.
    BadRecords,
    /// An OPT record too many, in a wrong place, or malformed.
    BadEdns,
}

impl QueryError {
    /// Every reason, in the order of their numbers (`error as usize`): for arrays of counters.
    pub const ALL: [QueryError; 8] = [
        QueryError::TooShort,
        QueryError::Response,
        QueryError::NoQuestion,
        QueryError::ManyQuestions,
        QueryError::BadName,
        QueryError::TruncatedQuestion,
        QueryError::BadRecords,
        QueryError::BadEdns,
    ];

    /// The response code that its sender is owed; `None`: silence. See [`crate::answer::header_only`].
    #[inline]
    #[must_use]
    pub const fn answer(self) -> Option<u8> {
        match self {
            // There is no ID to answer to; and who answers a response starts a loop.
            QueryError::TooShort | QueryError::Response => None,
            // What dnsdist's manual says of empty queries (setDropEmptyQueries); and what a server says that does not
            // know DSO, whose messages have no question (RFC 8490 §5.1.1).
            QueryError::NoQuestion => Some(rcode::NOTIMP as u8),
            // RFC 9619 §4: more than one question "MUST be treated as an incorrectly formatted message", RCODE 1.
            QueryError::ManyQuestions
            | QueryError::BadName
            | QueryError::TruncatedQuestion
            | QueryError::BadRecords
            | QueryError::BadEdns => Some(rcode::FORMERR as u8),
        }
    }

    /// The counter's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            QueryError::TooShort => "query-too-short",
            QueryError::Response => "query-is-response",
            QueryError::NoQuestion => "no-question",
            QueryError::ManyQuestions => "many-questions",
            QueryError::BadName => "bad-name",
            QueryError::TruncatedQuestion => "truncated-question",
            QueryError::BadRecords => "bad-records",
            QueryError::BadEdns => "bad-edns",
        }
    }
}

impl fmt::Display for QueryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            QueryError::TooShort => "message shorter than a header: 12 octets are needed",
            QueryError::Response => "QR is set: a response where a query belongs",
            QueryError::NoQuestion => "question count is 0: one question is needed",
            QueryError::ManyQuestions => {
                "question count above 1: one question is allowed (RFC 9619)"
            }
            QueryError::BadName => {
                "name of the question malformed: labels of 1 to 63 octets, 255 in all, no pointers"
            }
            QueryError::TruncatedQuestion => {
                "question runs past the end: name, type and class must be there"
            }
            QueryError::BadRecords => "records differ from the header's counts, or are malformed",
            QueryError::BadEdns => {
                "OPT record malformed, or not the only one, at the root, in the additional section"
            }
        })
    }
}

impl std::error::Error for QueryError {}

/// Checks a message as a query, of any opcode.
///
/// # Errors
/// The first thing that is wrong; [`QueryError::answer`] says what its sender is owed.
// Every query passes here. Left to the compiler, whether this is one function with its caller depends on how many callers there
// are elsewhere: 60 instructions a query.
#[inline(always)]
pub fn parse_query(message: &[u8]) -> Result<QueryParts, QueryError> {
    let message = super::bounded(message);
    let header = Header::read(message).ok_or(QueryError::TooShort)?;
    if header.qr() {
        return Err(QueryError::Response);
    }
    match header.question_count() {
        0 => return Err(QueryError::NoQuestion),
        1 => {}
        _ => return Err(QueryError::ManyQuestions),
    }
    let question = QuestionParts::parse(message).map_err(|error| match error {
        NameError::Truncated => QueryError::TruncatedQuestion,
        _ => QueryError::BadName,
    })?;
    let found = match usual_records(message, question.end, &header) {
        Some(found) => found,
        None => walk_records(message, question.end, &header)?,
    };
    // Its fields are read here, for both: what two places write is copied through memory where they meet, and waited for there.
    let edns = match found.opt {
        (0, _) => None,
        (start, end) => EdnsParts::between(message, start, end),
    };
    Ok(QueryParts {
        qname_length: question.qname_length,
        labels: question.labels,
        qtype: question.qtype,
        qclass: question.qclass,
        question_end: question.end,
        end: found.end,
        is_signed: found.is_signed,
        edns,
    })
}

/// What the records of a query tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Found {
    /// See [`QueryParts::end`].
    end: u16,
    is_signed: bool,
    /// Where the OPT record starts and ends; 0, 0: there is none.
    opt: (u16, u16),
}

/// The same where they are what nearly all queries have: none, or one OPT record. `None`: they are others, or broken.
///
/// A walk takes 60 instructions more for it.
#[inline(always)]
fn usual_records(message: &[u8], start: u16, header: &Header) -> Option<Found> {
    if header.answer_count() | header.authority_count() != 0 || header.additional_count() > 1 {
        return None;
    }
    let (opt, end) = match header.additional_count() {
        0 => ((0, 0), start),
        _ => {
            let end = EdnsParts::end_at(message, start)?;
            ((start, end), end)
        }
    };
    Some(Found {
        end,
        is_signed: false,
        opt,
    })
}

/// The same whatever they are.
#[inline(never)]
fn walk_records(message: &[u8], start: u16, header: &Header) -> Result<Found, QueryError> {
    let mut records = Records::new(message, start, header);
    let mut edns = EdnsSearch::default();
    for record in &mut records {
        let record = record.map_err(|_| QueryError::BadRecords)?;
        edns.see(message, &record)
            .map_err(|_| QueryError::BadEdns)?;
    }
    let (end, is_signed) = (records.position(), edns.saw_signature());
    let opt = edns.found().map_or((0, 0), |edns| (edns.start, edns.end));
    Ok(Found {
        end,
        is_signed,
        opt,
    })
}

/// The OPT record of a query without a question, which is [`QueryError::NoQuestion`] to whoever does not look for one. `None`:
/// the message is no such query, or its records are malformed.
#[must_use]
pub fn edns_without_question(message: &[u8]) -> Option<EdnsParts> {
    let message = super::bounded(message);
    let header = Header::read(message)?;
    if header.qr() || header.question_count() > 0 {
        return None;
    }
    let mut edns = EdnsSearch::default();
    for record in Records::new(message, HEADER_LENGTH as u16, &header) {
        edns.see(message, &record.ok()?).ok()?;
    }
    edns.found()
}

/// The DO bit of the OPT record of a message that [`parse_query`] refuses: RFC 6891 §6.1.1 has whoever answers it "include an
/// OPT record", too. Of several records the first counts, whatever its version and its options. `None`: there is none at the
/// root, in the additional section, or the message cannot be read to its end; where there is one, the message has at least as
/// many octets as a header and [`super::OPT_LENGTH`].
#[cold]
#[must_use]
pub fn refused_dnssec_ok(message: &[u8]) -> Option<bool> {
    let message = super::bounded(message);
    let header = Header::read(message)?;
    let start = behind_questions(message, header.question_count())?;
    let is_opt = |record: &Record| {
        record.rtype == qtype::OPT
            && record.section == Section::Additional
            && message.get(usize::from(record.owner_start)) == Some(&0)
    };
    let mut dnssec_ok = None;
    for record in Records::new(message, start, &header) {
        let record = record.ok()?;
        if dnssec_ok.is_none() && is_opt(&record) {
            dnssec_ok = Some(record.ttl & u32::from(DNSSEC_OK) != 0);
        }
    }
    dnssec_ok
}

/// The place behind so many questions; `None`: they are not all there.
fn behind_questions(message: &[u8], count: u16) -> Option<u16> {
    let mut at = HEADER_LENGTH;
    for _ in 0..count {
        // Type and class.
        at = skip(message, at).ok()? + 4;
    }
    (at <= message.len()).then_some(at as u16)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A query for the root whose header counts `counts` records, and what lies behind its question.
    fn query(counts: [u8; 3], behind: &[u8]) -> Vec<u8> {
        let [answers, authorities, additionals] = counts;
        let header = [0, 0, 1, 0, 0, 1, 0, answers, 0, authorities, 0, additionals];
        [&header[..], &[0, 0, 1, 0, 1], behind].concat()
    }

    prop_compose! {
        /// Mostly an OPT record; its data have the length that it says, or nearly.
        fn any_record()(
            owner in prop_oneof![6 => Just(0_u8), 1 => any::<u8>()],
            rtype in prop_oneof![6 => Just(qtype::OPT), 1 => Just(qtype::TSIG), 1 => any::<u16>()],
            class in any::<u16>(),
            version in prop_oneof![3 => Just(0_u8), 1 => any::<u8>()],
            flags in any::<u16>(),
            options in prop::collection::vec((any::<u16>(), prop::collection::vec(any::<u8>(), 0..9)), 0..3),
            wrong in prop_oneof![6 => Just(0_i16), 1 => -3..4_i16],
        ) -> Vec<u8> {
            let mut rdata = Vec::new();
            for (code, value) in options {
                rdata.extend(code.to_be_bytes());
                rdata.extend((value.len() as u16).to_be_bytes());
                rdata.extend(value);
            }
            let length = (rdata.len() as u16).saturating_add_signed(wrong);
            let mut record = vec![owner];
            record.extend(rtype.to_be_bytes());
            record.extend(class.to_be_bytes());
            record.extend([0, version]);
            record.extend(flags.to_be_bytes());
            record.extend(length.to_be_bytes());
            record.extend(rdata);
            record
        }
    }

    proptest! {
        /// A walk is right, and what is not walked is the same.
        #[test]
        fn usual_records_are_what_a_walk_finds(
            counts in [0_u8..2, 0..2, 0..3],
            records in prop::collection::vec(any_record(), 0..3),
            cut in 0_usize..40,
        ) {
            for counts in [counts, [0, 0, 0], [0, 0, 1]] {
                let whole = query(counts, &records.concat());
                let message = &whole[..whole.len().saturating_sub(cut / 4).max(17)];
                let header = Header::read(message).expect("it is whole");
                let walked = walk_records(message, 17, &header);
                if let Some(found) = usual_records(message, 17, &header) {
                    prop_assert_eq!(Ok(found), walked);
                } else if counts == [0, 0, 1] {
                    let is_good = walked.is_ok_and(|found| found.opt != (0, 0));
                    prop_assert!(!is_good, "an OPT record that is good is usual");
                }
                let mut seen = EdnsSearch::default();
                for record in Records::new(message, 17, &header).map_while(Result::ok) {
                    let _ = seen.see(message, &record);
                }
                if let Ok(parts) = parse_query(message) {
                    prop_assert_eq!(parts.edns, seen.found());
                }
            }
        }
    }
}
