//! An answer as a client received it.

use domain::base::Message;

use super::{HEADER_OCTETS, Record, flag_words, rcode_name, records_of};
use crate::{During, Failure, Outcome};

/// A response taken apart; every section was readable.
#[derive(Debug, Clone)]
pub struct Answer {
    /// The header's ID.
    pub id: u16,
    /// The header's second 16 bits without opcode and RCODE.
    pub flags: u16,
    /// Opcode by number.
    pub opcode: u8,
    /// RCODE, with the upper bits from OPT where there is one.
    pub rcode: u16,
    /// The question section's octets; empty if there is none.
    pub question: Vec<u8>,
    /// Answer, authority and additional records, OPT left out.
    pub sections: [Vec<Record>; 3],
    /// The OPT record.
    pub opt: Option<Opt>,
}

/// What an answer's OPT record says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Opt {
    /// The responder's UDP payload size, in octets.
    pub size_octets: u16,
    /// EDNS version.
    pub version: u8,
    /// The DNSSEC OK bit.
    pub dnssec_ok: bool,
    /// Options as they came.
    pub options: Vec<u8>,
}

const OPT: u16 = 41;

impl Answer {
    /// Reads a message; a section that cannot be read is a failure.
    pub fn read(octets: &[u8]) -> Outcome<Self> {
        let message =
            Message::from_slice(octets).during(format!("an answer of {} octets", octets.len()))?;
        let (_, answer, authority, additional) =
            message.sections().during("the answer's sections")?;
        let mut sections = [
            records_of(answer)?,
            records_of(authority)?,
            records_of(additional)?,
        ];
        let opt = take_opt(&mut sections[2])?;
        let word = u16::from_be_bytes([octets[2], octets[3]]);
        Ok(Self {
            id: u16::from_be_bytes([octets[0], octets[1]]),
            flags: word & 0x87f0,
            opcode: (word >> 11) as u8 & 15,
            rcode: (word & 15) | opt.as_ref().map_or(0, |(upper, _)| u16::from(*upper) << 4),
            question: question_of(octets)?.to_vec(),
            sections,
            opt: opt.map(|(_, opt)| opt),
        })
    }

    /// One line, for failures: `REFUSED qr rd, 0 + 0 + 0 records`.
    pub fn summary(&self) -> String {
        let [answer, authority, additional] = &self.sections;
        let opt = self.opt.as_ref().map_or(String::new(), |opt| {
            format!(", OPT of size {}", opt.size_octets)
        });
        format!(
            "{} {}, {} + {} + {} records{opt}",
            rcode_name(self.rcode),
            flag_words(self.flags),
            answer.len(),
            authority.len(),
            additional.len()
        )
    }
}

/// The octets of a message's question section, whatever its count says.
pub fn question_of(octets: &[u8]) -> Outcome<&[u8]> {
    if octets.len() < HEADER_OCTETS {
        return Err(Failure::new(format!(
            "a message of {} octets has no header",
            octets.len()
        )));
    }
    let message = Message::from_slice(octets).during("a message")?;
    let mut questions = message.question();
    for question in questions.by_ref() {
        question.during("the question section")?;
    }
    let behind = questions.answer().during("the question section")?;
    Ok(&octets[HEADER_OCTETS..behind.pos()])
}

/// Removes the OPT record from the additional ones; gives the upper RCODE bits beside it.
fn take_opt(additional: &mut Vec<Record>) -> Outcome<Option<(u8, Opt)>> {
    let Some(place) = additional.iter().position(|record| record.rtype == OPT) else {
        return Ok(None);
    };
    let record = additional.remove(place);
    if additional.iter().any(|record| record.rtype == OPT) {
        // RFC 6891 section 6.1.1: "the entire DNS message MUST contain only one OPT RR".
        return Err(Failure::new("two OPT records in an answer"));
    }
    let [upper, version, flags, _] = record.ttl_seconds.to_be_bytes();
    let dnssec_ok = flags & 0x80 != 0;
    Ok(Some((
        upper,
        Opt {
            size_octets: record.class,
            version,
            dnssec_ok,
            options: record.data,
        },
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dns::{Edns, Query};

    #[test]
    fn an_answer_shows_its_parts() {
        let mut query = Query::new("www.example.com.", "A").expect("good words");
        query.flags = 0x8105;
        query.edns = Some(Edns {
            size_octets: 512,
            ..Edns::default()
        });
        let octets = query.octets();
        let answer = Answer::read(&octets).expect("well-formed");
        assert_eq!(
            answer.summary(),
            "REFUSED qr rd, 0 + 0 + 0 records, OPT of size 512"
        );
        assert_eq!(answer.question, &octets[12..12 + 17 + 4]);
    }

    #[test]
    fn a_cut_answer_is_a_failure() {
        let octets = Query::new("www.example.com.", "A")
            .expect("good words")
            .octets();
        assert!(Answer::read(&octets[..20]).is_err());
        assert!(Answer::read(&octets[..11]).is_err());
    }
}
