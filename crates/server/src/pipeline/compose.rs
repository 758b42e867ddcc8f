//! Answers with records that are made here: records are put behind the question in the query's own buffer.

use super::query::{MESSAGE_MAX, Query};
use super::{Env, respond};
use wire::answer::{EdnsPolicy, OPT_LENGTH, OptFields, append_opt, truncate_response, with_rcode};
use wire::codes::{class, rcode};
use wire::edit::{NewRecord, append_record};
use wire::message::{QueryParts, parse_response};

/// An answer that grows in the buffer of its query.
pub struct Composition {
    length: usize,
    /// What client and door take, in bytes. setPayloadSizeOnSelfGeneratedAnswers is no limit: the manual calls it "the UDP payload
    /// size advertised via EDNS on self-generated responses".
    limit: usize,
    /// The OPT record's part of it, in bytes.
    reserved: usize,
    is_cut: bool,
}

impl Composition {
    /// Turns the query into an answer without records.
    pub fn begin(query: &mut Query<'_>, env: &Env<'_>, rcode: u16) -> Composition {
        respond::restore_flags(query);
        Composition {
            length: with_rcode(query.message, &query.parts, rcode, EdnsPolicy::Omit),
            limit: query.limit,
            reserved: if has_opt(query, env) { OPT_LENGTH } else { 0 },
            is_cut: false,
        }
    }

    /// Puts a record behind what there is; sections in their order. One that has no room makes the answer a truncated one.
    pub fn add(&mut self, query: &mut Query<'_>, record: &NewRecord<'_>) {
        let mut longer = self.append(query, record);
        if longer.is_none() && query.message.len() < self.limit && query.grow(self.limit) {
            longer = self.append(query, record);
        }
        match longer {
            Some(length) => self.length = length,
            None => self.is_cut = true,
        }
    }

    /// The answer's new length in bytes; `None`: the buffer, or whoever gets it, has no room for the record.
    fn append(&self, query: &mut Query<'_>, record: &NewRecord<'_>) -> Option<usize> {
        let limit = self.limit.min(query.message.len());
        let room = limit.saturating_sub(self.reserved);
        append_record(&mut query.message[..room], self.length, record)
    }

    /// Puts the OPT record behind the others, where there is to be one; the answer's length in bytes.
    pub fn finish(mut self, query: &mut Query<'_>, env: &Env<'_>) -> usize {
        if self.is_cut {
            self.length = truncate_response(query.message, self.length);
        }
        match query.parts.edns.filter(|_| has_opt(query, env)) {
            Some(edns) => {
                let payload_size = env.config.tuning.payload_size_self_generated;
                let fields = OptFields {
                    payload_size,
                    extended_rcode: 0,
                    dnssec_ok: edns.dnssec_ok,
                };
                append_opt(query.message, self.length, fields, &[])
            }
            None => self.length,
        }
    }
}

/// The class of records that answer a question of class `asked`: that one, where records can have it. ANY and NONE are
/// classes of questions and updates alone (RFC 1035 §3.2.5, RFC 2136 §2.4).
pub fn record_class(asked: u16) -> u16 {
    match asked {
        class::ANY | class::NONE => class::IN,
        asked => asked,
    }
}

/// Whether the answer gets an OPT record.
fn has_opt(query: &Query<'_>, env: &Env<'_>) -> bool {
    env.config.tuning.edns_in_self_generated && query.knows_edns()
}

/// Replaces the answer by `packet`, as far as a message can be long; the ID is the query's, and QR is set. The answer's length
/// in bytes: SERVFAIL where there is no memory for a longer one.
pub fn replace(query: &mut Query<'_>, packet: &[u8]) -> usize {
    let id = query.header().id();
    if !query.grow(packet.len().min(MESSAGE_MAX)) {
        respond::restore_flags(query);
        return with_rcode(
            query.message,
            &query.parts,
            rcode::SERVFAIL,
            EdnsPolicy::Omit,
        );
    }
    let length = packet.len().min(query.message.len());
    query.message[..length].copy_from_slice(&packet[..length]);
    respond::edit_header(query.message, |header| {
        header.set_id(id);
        header.set_qr(true);
    });
    find_question(query, length);
    length
}

/// Looks where the question is of the packet that lies in the query's buffer: it need not be the client's, and rules on the
/// answer look at it.
fn find_question(query: &mut Query<'_>, length: usize) {
    let parts = parse_response(&query.message[..length]).ok();
    if let Some(question) = parts.and_then(|parts| parts.question) {
        query.parts = QueryParts {
            qname_length: question.qname_length,
            labels: question.labels,
            qtype: question.qtype,
            qclass: question.qclass,
            question_end: question.end,
            ..query.parts
        };
    }
}

#[cfg(test)]
mod tests {
    use crate::pipeline::rules::Action;
    use crate::pipeline::rules::actions::pass::SetNoRecurseAction;
    use crate::pipeline::rules::actions::remember::SetEDNSOptionAction;
    use crate::pipeline::rules::actions::spoof::{SpoofOptions, SpoofPacketAction, SpoofRawAction};
    use crate::pipeline::rules::selectors::logic::AllRule;
    use crate::pipeline::scene::{Reply, Scene, answer_to, query, query_with_edns};
    use wire::codes::qtype;
    use wire::message::parse_response;

    /// The answer of a door whose buffer has so many bytes, while its kernel socket could send 4,096.
    fn answered(frame: usize, action: impl Action + 'static, message: &[u8]) -> Vec<u8> {
        let mut scene = Scene::with_rule(AllRule, action);
        (scene.frame, scene.room) = (frame, 4_096);
        match scene.ask(message) {
            Reply::Answer(answer) => answer,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn i10_an_answer_that_outgrows_its_frame_is_the_same() {
        let texts = || SpoofRawAction {
            data: vec![Box::from([1; 251]); 8],
            type_for_any: None,
            options: SpoofOptions::default(),
        };
        let message = query_with_edns("a.", qtype::TXT, Some(4_096));
        let whole = answered(4_096, texts(), &message);
        assert_eq!(whole.len(), 19 + 8 * 263 + 11);
        // In the longer frame only the OPT record has no room.
        for frame in [1_700, 2_128] {
            assert_eq!(answered(frame, texts(), &message), whole);
        }
        let payload_size = parse_response(&whole).unwrap().edns.unwrap().payload_size;
        assert_eq!(payload_size, 1_232, "ours is no limit");
        let packet = || SpoofPacketAction::new(&answer_to(&message, 0, &[60; 120])).unwrap();
        let whole = answered(4_096, packet(), &message);
        assert_eq!(whole.len(), 19 + 120 * 16);
        assert_eq!(answered(1_700, packet(), &message), whole);
        // More than the client takes: truncated, on both.
        let short = query("a.", qtype::TXT);
        let cut = answered(4_096, packet(), &short);
        assert_eq!((cut[2] & 2, cut.len()), (2, 19));
        assert_eq!(answered(1_700, packet(), &short), cut);
    }

    #[test]
    fn what_rules_did_to_the_query_is_not_answered() {
        let mut scene = Scene::with_rule(AllRule, SetNoRecurseAction);
        let option = SetEDNSOptionAction {
            code: 65_001,
            value: Box::from(*b"abc"),
        };
        scene.add_rule(AllRule, option);
        let text = SpoofRawAction {
            data: vec![Box::from(*b"\x01a")],
            type_for_any: None,
            options: SpoofOptions::default(),
        };
        scene.add_rule(AllRule, text);
        let message = query("a.", qtype::TXT);
        let Reply::Answer(answer) = scene.ask(&message) else {
            panic!("no answer")
        };
        // QR, RD and RA; one record and no OPT.
        assert_eq!(answer[2..4], [0x81, 0x80]);
        assert_eq!(answer[6..12], [0, 1, 0, 0, 0, 0]);
        assert_eq!(answer.len(), message.len() + 14);
    }
}
