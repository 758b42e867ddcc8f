//! The octets of a backend's answer, right or wrong as its script says.

use super::model::Reply;
use crate::dns::{Answer, Edns, HEADER_OCTETS, Record, question_of};

const QR: u16 = 0x8000;
const COPIED: u16 = 0x7910; // opcode, RD, CD

impl Reply {
    /// The message that answers `query` (a whole message, ID first).
    pub fn octets(&self, query: &[u8]) -> Vec<u8> {
        let question = self.question_section(query);
        let opt = self.opt_for(query);
        let query_id = u16::from_be_bytes([query[0], query[1]]);
        let query_word = u16::from_be_bytes([query[2], query[3]]);
        let id = self.id.unwrap_or(query_id.wrapping_add(self.id_offset));
        let qr = if self.as_query { 0 } else { QR };
        let word = qr | query_word & COPIED | self.flags | self.rcode;
        let [answers, authorities, additionals] =
            self.sections.each_ref().map(|records| records.len() as u16);
        let filler = u16::from(self.size_octets.is_some());
        let mut octets = Vec::with_capacity(512);
        for field in [
            id,
            word,
            u16::from(!question.is_empty()),
            answers + filler,
            authorities,
            additionals + u16::from(opt.is_some()),
        ] {
            octets.extend(field.to_be_bytes());
        }
        octets.extend(&question);
        let mut behind = Vec::new();
        self.sections[1]
            .iter()
            .chain(&self.sections[2])
            .for_each(|record| append(&mut behind, record, &question));
        if let Some(opt) = &opt {
            opt.append_to(&mut behind);
        }
        self.sections[0]
            .iter()
            .for_each(|record| append(&mut octets, record, &question));
        if let Some(size) = self.size_octets {
            append_filler(&mut octets, size.saturating_sub(behind.len()));
        }
        octets.extend(behind);
        octets.truncate(self.cut_octets.unwrap_or(usize::MAX));
        octets.extend(&self.trailing);
        octets
    }

    fn question_section(&self, query: &[u8]) -> Vec<u8> {
        let mut question = question_of(query).unwrap_or_default().to_vec();
        if self.without_question || question.len() < 4 {
            return Vec::new();
        }
        let fixed = question.len() - 4;
        if let Some((name, rtype)) = &self.question {
            let class = question.split_off(fixed + 2);
            question = [name.as_slice(), &rtype.to_be_bytes(), &class].concat();
        }
        if let Some(class) = self.class {
            question.truncate(question.len() - 2);
            question.extend(class.to_be_bytes());
        }
        question
    }

    /// RFC 6891 section 6.1.1: "If an OPT record is present in a received request, compliant
    /// responders MUST include an OPT record in their respective responses."
    fn opt_for(&self, query: &[u8]) -> Option<Edns> {
        if self.without_opt || self.opt.is_some() {
            return self.opt.clone();
        }
        let opt = Answer::read(query).ok()?.opt?;
        Some(Edns {
            dnssec_ok: opt.dnssec_ok,
            ..Edns::default()
        })
    }
}

/// Appends a record, its owner as a pointer to the question where it is the same name.
fn append(octets: &mut Vec<u8>, record: &Record, question: &[u8]) {
    let asked = &question[..question.len().saturating_sub(4)];
    let start = octets.len();
    record.append_to(octets);
    if record.owner.eq_ignore_ascii_case(asked) {
        octets.splice(start..start + asked.len(), pointer_to_question());
    }
}

/// RFC 1035 section 4.1.4: two ones, then the offset.
fn pointer_to_question() -> [u8; 2] {
    (0xc000 | HEADER_OCTETS as u16).to_be_bytes()
}

/// One TXT record that brings the message to `size` octets.
fn append_filler(octets: &mut Vec<u8>, size: usize) {
    const FIXED: usize = 12; // pointer, type, class, TTL, length
    let data = size.saturating_sub(octets.len() + FIXED).max(1);
    octets.extend(pointer_to_question());
    octets.extend([0, 16, 0, 1, 0, 0, 0, 60]);
    octets.extend((data as u16).to_be_bytes());
    let mut left = data;
    while left > 0 {
        let text = left.min(256) - 1;
        octets.push(text as u8);
        octets.resize(octets.len() + text, b'x');
        left -= text + 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dns::Query;

    fn query() -> Vec<u8> {
        let mut query = Query::new("www.example.com.", "A").expect("good words");
        (query.id, query.edns) = (
            0x1234,
            Some(Edns {
                dnssec_ok: true,
                ..Edns::default()
            }),
        );
        query.octets()
    }

    #[test]
    fn an_ordinary_reply_is_what_a_server_would_say() {
        let record = Record::from_text("www.example.com. 60 A 192.0.2.77").expect("good text");
        let reply = Reply {
            sections: [vec![record], vec![], vec![]],
            ..Reply::default()
        };
        let octets = reply.octets(&query());
        let answer = Answer::read(&octets).expect("well-formed");
        assert_eq!(
            (answer.id, answer.flags, answer.sections[0].len()),
            (0x1234, 0x8100, 1)
        );
        assert!(answer.opt.expect("the query had one").dnssec_ok);
        assert_eq!(octets[12 + 21..12 + 23], [0xc0, 12]);
    }

    #[test]
    fn every_size_can_be_had() {
        for size in [100, 512, 513, 1232, 4096, 65535] {
            let octets = Reply {
                size_octets: Some(size),
                ..Reply::default()
            }
            .octets(&query());
            assert_eq!(octets.len(), size);
            Answer::read(&octets).expect("well-formed");
        }
    }

    #[test]
    fn a_reply_is_as_wrong_as_its_script_says() {
        let evil = Query::new("evil.example.", "TXT").expect("good words");
        let wrong = Reply {
            id_offset: 1,
            question: Some((evil.name, evil.rtype)),
            class: Some(3),
            ..Reply::default()
        };
        let answer = Answer::read(&wrong.octets(&query())).expect("well-formed");
        assert_eq!((answer.id, answer.question.len()), (0x1235, 14 + 4));
        assert!(answer.question.ends_with(&[0, 16, 0, 3]));
        assert_eq!(
            Reply {
                cut_octets: Some(13),
                ..Reply::default()
            }
            .octets(&query())
            .len(),
            13
        );
    }
}
