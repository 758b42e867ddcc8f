//! Whether a message is the right answer to a question (RFC 1035 §4.1, RFC 5452 §9.1).

use crate::expected::Expected;
use crate::questions::Question;
use wire::frame::FrameError;
use wire::message::{Header, ResponseError, parse_response, question_matches};

/// What is wrong with something that came to one of our ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Not a good UDP datagram: checksums, lengths.
    Frame(FrameError),
    /// Not a good response: header, question, records.
    Response(ResponseError),
    /// An ID and port under which nothing was asked.
    NeverAsked,
    /// From another address or port than the question went to.
    Source,
    /// To another of our addresses, or another of our sockets, than the question came from.
    Destination,
    /// Of another opcode than the query's, to which a response has that of the query (RFC 1035 §4.1.1: "copied into the response").
    OtherOpcode,
    /// No question in it.
    NoQuestion,
    /// Another question.
    OtherQuestion,
    /// Another response code or other records than expected.
    OtherContents,
}

impl Fault {
    /// Number of faults.
    pub const COUNT: usize = FrameError::ALL.len() + ResponseError::ALL.len() + 7;

    /// A number below [`COUNT`](Fault::COUNT), for arrays of counters.
    pub fn index(self) -> usize {
        let own = FrameError::ALL.len() + ResponseError::ALL.len();
        match self {
            Fault::Frame(error) => error as usize,
            Fault::Response(error) => FrameError::ALL.len() + error as usize,
            Fault::NeverAsked => own,
            Fault::Source => own + 1,
            Fault::Destination => own + 2,
            Fault::NoQuestion => own + 3,
            Fault::OtherQuestion => own + 4,
            Fault::OtherContents => own + 5,
            Fault::OtherOpcode => own + 6,
        }
    }

    /// Every fault, in the order of their numbers.
    pub fn all() -> impl Iterator<Item = Fault> {
        let frames = FrameError::ALL.into_iter().map(Fault::Frame);
        let responses = ResponseError::ALL.into_iter().map(Fault::Response);
        frames.chain(responses).chain([
            Fault::NeverAsked,
            Fault::Source,
            Fault::Destination,
            Fault::NoQuestion,
            Fault::OtherQuestion,
            Fault::OtherContents,
            Fault::OtherOpcode,
        ])
    }

    /// The counter's name.
    pub const fn name(self) -> &'static str {
        match self {
            Fault::Frame(error) => error.name(),
            Fault::Response(error) => error.name(),
            Fault::NeverAsked => "never-asked",
            Fault::Source => "other-source",
            Fault::Destination => "other-destination",
            Fault::NoQuestion => "no-question",
            Fault::OtherQuestion => "other-question",
            Fault::OtherContents => "other-contents",
            Fault::OtherOpcode => "other-opcode",
        }
    }
}

/// What a right answer says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// All twelve bits of the response code.
    pub rcode: u16,
    /// TC is set.
    pub truncated: bool,
    /// The name of the question came back in other upper and lower case, which is legal (RFC 4343) but worth a line.
    pub case_changed: bool,
    /// Octets of the message.
    pub length: u16,
}

/// Checks a message, whose ID has been matched, against the question that was asked. The question is empty where what was
/// asked is no query: then any well-formed response is right, unless something is expected of it.
///
/// # Errors
/// The first thing that is wrong.
#[inline]
pub fn check(message: &[u8], asked: Question<'_>) -> Result<Answer, Fault> {
    let question = asked.question;
    let parts = parse_response(message).map_err(Fault::Response)?;
    // What comes behind the last record that the header counts is no part of an answer: the counts are wrong, or it is.
    if usize::from(parts.end) < message.len() {
        return Err(Fault::Response(ResponseError::BadRecords));
    }
    let opcode = |message| Header::read(message).map(|header| header.opcode());
    if opcode(asked.message).is_some_and(|sent| opcode(message) != Some(sent)) {
        return Err(Fault::OtherOpcode);
    }
    let mut case_changed = false;
    if !question.is_empty() {
        let end = usize::from(parts.question_end);
        let repeated = &message[wire::message::HEADER_LENGTH..end];
        case_changed = repeated != question;
        if case_changed && parts.question.is_none() {
            return Err(Fault::NoQuestion);
        }
        if case_changed && !question_matches(message, question) {
            return Err(Fault::OtherQuestion);
        }
    }
    let met = |expected: &Expected| expected.is_met(message, &parts, question);
    if !asked.expected.is_none_or(met) {
        return Err(Fault::OtherContents);
    }
    Ok(Answer {
        rcode: parts.rcode,
        truncated: parts.truncated,
        case_changed,
        length: message.len() as u16,
    })
}

#[cfg(test)]
mod tests {
    use super::{Answer, Fault, Question};
    use crate::questions::{Style, text};
    use proptest::prelude::*;
    use wire::message::ResponseError;

    /// The query of a line, and its question, name, type and class.
    fn asked(line: &str) -> (Vec<u8>, Vec<u8>) {
        let questions = text::parse(line.as_bytes(), Style::default()).unwrap();
        let question = questions.get(0);
        (question.message.to_vec(), question.question.to_vec())
    }

    /// Checks an answer to a query with this question.
    fn check(message: &[u8], question: &[u8]) -> Result<Answer, Fault> {
        let asked = Question {
            message: &[],
            question,
            expected: None,
        };
        super::check(message, asked)
    }

    fn echoed(line: &str) -> Vec<u8> {
        let (mut message, _) = asked(line);
        message[2] |= 0x80;
        message
    }

    #[test]
    fn octets_behind_the_last_record_are_none_of_an_answers() {
        let (mut message, question) = asked("www.example A E");
        message[2] |= 0x80;
        assert!(check(&message, &question).is_ok());
        message.push(0);
        let records = Err(Fault::Response(ResponseError::BadRecords));
        assert_eq!(check(&message, &question), records);
        // The OPT record is there, and not counted.
        message.pop();
        message[11] = 0;
        assert_eq!(check(&message, &question), records);
    }

    #[test]
    fn an_echo_with_qr_set_is_right() {
        let (_, question) = asked("www.example AAAA");
        let answer = check(&echoed("www.example AAAA"), &question).unwrap();
        assert_eq!((answer.rcode, answer.truncated), (0, false));
        assert!(!answer.case_changed);
        assert_eq!(usize::from(answer.length), 12 + question.len());
    }

    /// RFC 1035 §4.1.1: the opcode "is set by the originator of a query and copied into the response".
    #[test]
    fn another_opcode_is_wrong() {
        let (query, question) = asked("www.example AAAA");
        let checked = |message: &[u8]| {
            let asked = Question {
                message: &query,
                question: &question,
                expected: None,
            };
            super::check(message, asked)
        };
        let mut message = echoed("www.example AAAA");
        checked(&message).unwrap();
        // NOTIFY.
        message[2] |= 4 << 3;
        assert_eq!(checked(&message), Err(Fault::OtherOpcode));
    }

    #[test]
    fn another_case_is_right_and_told() {
        let (_, question) = asked("www.example AAAA");
        assert!(
            check(&echoed("wWw.example AAAA"), &question)
                .unwrap()
                .case_changed
        );
    }

    #[test]
    fn another_question_is_wrong() {
        let (query, question) = asked("www.example AAAA");
        for other in ["www.examplf AAAA", "www.example A", "ww.example AAAA"] {
            assert_eq!(
                check(&echoed(other), &question),
                Err(Fault::OtherQuestion),
                "{other}"
            );
        }
        let mut none = query[..12].to_vec();
        none[2] |= 0x80;
        none[4..6].fill(0);
        assert_eq!(check(&none, &question), Err(Fault::NoQuestion));
        assert_eq!(
            check(&query, &question),
            Err(Fault::Response(ResponseError::Query))
        );
    }

    #[test]
    fn what_is_no_query_has_any_answer() {
        let answer = check(&echoed("a A"), &[]).unwrap();
        assert!(!answer.case_changed);
    }

    #[test]
    fn faults_are_numbered_in_order_with_names_of_their_own() {
        let names: std::collections::HashSet<_> = Fault::all().map(Fault::name).collect();
        assert_eq!(names.len(), Fault::COUNT);
        for (number, fault) in Fault::all().enumerate() {
            assert_eq!(fault.index(), number, "{fault:?}");
        }
    }

    proptest! {
        #[test]
        fn any_message_is_judged(message in prop::collection::vec(any::<u8>(), 0..300)) {
            let (_, question) = asked("www.example AAAA");
            let _ = check(&message, &question);
        }
    }
}
