//! A response, as untrusted as a query: checked to its last record.

use super::edns::{EdnsParts, EdnsSearch};
use super::header::{HEADER_LENGTH, Header};
use super::records::Records;
use crate::name::{self, Name, NameError};
use std::fmt;

/// The question of a message; its name starts behind the header, at 12.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuestionParts {
    /// Octets of the name, the root's included: 1 to 255.
    pub qname_length: u16,
    /// Its labels without the root's: 0 to 127.
    pub labels: u8,
    /// See [`crate::codes::qtype`].
    pub qtype: u16,
    /// See [`crate::codes::class`].
    pub qclass: u16,
    /// Where the question ends.
    pub end: u16,
}

impl QuestionParts {
    /// The question behind the header. A pointer cannot be right there: nothing precedes it.
    #[inline]
    pub(crate) fn parse(message: &[u8]) -> Result<QuestionParts, NameError> {
        let (length, labels) = name::measure(&message[HEADER_LENGTH..])?;
        let fields = HEADER_LENGTH + length;
        let [type_high, type_low, class_high, class_low] = *message[fields..]
            .first_chunk()
            .ok_or(NameError::Truncated)?;
        Ok(QuestionParts {
            qname_length: length as u16,
            labels,
            qtype: u16::from_be_bytes([type_high, type_low]),
            qclass: u16::from_be_bytes([class_high, class_low]),
            end: (fields + 4) as u16,
        })
    }

    /// The name, in `message` from which these parts come.
    ///
    /// # Panics
    /// Where `message` is shorter than that one.
    #[must_use]
    pub fn qname<'m>(&self, message: &'m [u8]) -> Name<'m> {
        Name::measured(&message[HEADER_LENGTH..HEADER_LENGTH + usize::from(self.qname_length)])
    }
}

/// Where the parts of a response are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponseParts {
    /// `None` where the header counts none, which some servers do in error responses.
    pub question: Option<QuestionParts>,
    /// Where the records start.
    pub question_end: u16,
    /// All twelve bits of response code: see [`crate::codes::rcode`].
    pub rcode: u16,
    /// TC is set.
    pub truncated: bool,
    /// Records in the answer section; they are there.
    pub answer_count: u16,
    /// In the authority section.
    pub authority_count: u16,
    /// In the additional section, the OPT record counted.
    pub additional_count: u16,
    /// Where the last record ends. What the message has behind this is trailing and means nothing.
    pub end: u16,
    /// The OPT record, if there is one.
    pub edns: Option<EdnsParts>,
}

/// Why a message is not a response that can be believed or passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ResponseError {
    /// Fewer than 12 octets.
    TooShort,
    /// QR is not set.
    Query,
    /// More than one question.
    ManyQuestions,
    /// The name of the question is malformed or compressed.
    BadName,
    /// The question runs past the end.
    TruncatedQuestion,
    /// The records are not those that the header counts, or are malformed.
    BadRecords,
    /// An OPT record too many, in a wrong place, or malformed.
    BadEdns,
}

impl ResponseError {
    /// Every reason, in the order of their numbers (`error as usize`): for arrays of counters.
    pub const ALL: [ResponseError; 7] = [
        ResponseError::TooShort,
        ResponseError::Query,
        ResponseError::ManyQuestions,
        ResponseError::BadName,
        ResponseError::TruncatedQuestion,
        ResponseError::BadRecords,
        ResponseError::BadEdns,
    ];

    /// The counter's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            ResponseError::TooShort => "response-too-short",
            ResponseError::Query => "response-is-query",
            ResponseError::ManyQuestions => "response-many-questions",
            ResponseError::BadName => "response-bad-name",
            ResponseError::TruncatedQuestion => "response-truncated-question",
            ResponseError::BadRecords => "response-bad-records",
            ResponseError::BadEdns => "response-bad-edns",
        }
    }
}

impl fmt::Display for ResponseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ResponseError::TooShort => "message shorter than a header: 12 octets are needed",
            ResponseError::Query => "QR is not set: a query where a response belongs",
            ResponseError::ManyQuestions => {
                "question count above 1: one question is allowed (RFC 9619)"
            }
            ResponseError::BadName => {
                "name of the question malformed: labels of 1 to 63 octets, 255 in all, no pointers"
            }
            ResponseError::TruncatedQuestion => {
                "question runs past the end: name, type and class must be there"
            }
            ResponseError::BadRecords => {
                "records differ from the header's counts, or are malformed"
            }
            ResponseError::BadEdns => {
                "OPT record malformed, or not the only one, at the root, in the additional section"
            }
        })
    }
}

impl std::error::Error for ResponseError {}

/// Checks a message as a response: its question, and that every record it counts is there.
///
/// # Errors
/// The first thing that is wrong.
pub fn parse_response(message: &[u8]) -> Result<ResponseParts, ResponseError> {
    let message = super::bounded(message);
    let header = Header::read(message).ok_or(ResponseError::TooShort)?;
    if !header.qr() {
        return Err(ResponseError::Query);
    }
    let question = match header.question_count() {
        0 => None,
        1 => Some(QuestionParts::parse(message).map_err(|error| match error {
            NameError::Truncated => ResponseError::TruncatedQuestion,
            _ => ResponseError::BadName,
        })?),
        _ => return Err(ResponseError::ManyQuestions),
    };
    let question_end = question.map_or(HEADER_LENGTH as u16, |question| question.end);
    let mut records = Records::new(message, question_end, &header);
    let mut edns = EdnsSearch::default();
    for record in &mut records {
        let record = record.map_err(|_| ResponseError::BadRecords)?;
        edns.see(message, &record)
            .map_err(|_| ResponseError::BadEdns)?;
    }
    let end = records.position();
    let edns = edns.found();
    Ok(ResponseParts {
        question,
        question_end,
        rcode: edns.map_or(0, |edns| u16::from(edns.extended_rcode) << 4)
            | u16::from(header.rcode()),
        truncated: header.tc(),
        answer_count: header.answer_count(),
        authority_count: header.authority_count(),
        additional_count: header.additional_count(),
        end,
        edns,
    })
}

/// Whether `response` has exactly the question `query_question` (name, type and class, as they lay in the query): the
/// name compared without regard to case, type and class as numbers.
#[inline]
#[must_use]
pub fn question_matches(response: &[u8], query_question: &[u8]) -> bool {
    let counted = Header::read(response).is_some_and(|header| header.question_count() == 1);
    let Some(question) = response.get(HEADER_LENGTH..HEADER_LENGTH + query_question.len()) else {
        return false;
    };
    let (Some((name, fields)), Some((query_name, query_fields))) = (
        question.split_last_chunk::<4>(),
        query_question.split_last_chunk::<4>(),
    ) else {
        return false;
    };
    counted && fields == query_fields && name.eq_ignore_ascii_case(query_name)
}
