//! Answers with records that are made here: records are put behind the question in the query's own buffer.

use super::query::{Protocol, Query};
use super::{Env, respond};
use wire::answer::{EdnsPolicy, OPT_LENGTH, OptFields, append_opt, truncate_response, with_rcode};
use wire::edit::{NewRecord, append_record};

/// An answer that grows in the buffer of its query.
pub struct Composition {
    length: usize,
    /// Of which the OPT record gets its part.
    limit: usize,
    is_cut: bool,
}

impl Composition {
    /// Turns the query into an answer without records.
    pub fn begin(query: &mut Query<'_>, env: &Env<'_>, rcode: u16) -> Composition {
        let limit = match query.protocol {
            Protocol::Udp => query
                .limit
                .min(env.config.tuning.payload_size_self_generated.into()),
            Protocol::Tcp => query.limit,
        };
        Composition {
            length: with_rcode(query.message, &query.parts, rcode, EdnsPolicy::Omit),
            limit: limit.saturating_sub(if has_opt(query, env) { OPT_LENGTH } else { 0 }),
            is_cut: false,
        }
    }

    /// Puts a record behind what there is; sections in their order. One that has no room makes the answer a truncated one.
    pub fn add(&mut self, query: &mut Query<'_>, record: &NewRecord<'_>) {
        let limit = self.limit.min(query.message.len());
        let mut longer = append_record(&mut query.message[..limit], self.length, record);
        if longer.is_none() && limit < self.limit && query.grow(self.limit) {
            longer = append_record(&mut query.message[..self.limit], self.length, record);
        }
        match longer {
            Some(length) => self.length = length,
            None => self.is_cut = true,
        }
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

/// Whether the answer gets an OPT record.
fn has_opt(query: &Query<'_>, env: &Env<'_>) -> bool {
    env.config.tuning.edns_in_self_generated && query.knows_edns()
}

/// Replaces the answer by `packet`, as far as a message can be long; the ID is the query's. The answer's length in bytes.
pub fn replace(query: &mut Query<'_>, packet: &[u8]) -> usize {
    let id = query.header().id();
    query.grow(packet.len());
    let length = packet.len().min(query.message.len());
    query.message[..length].copy_from_slice(&packet[..length]);
    respond::edit_header(query.message, |header| header.set_id(id));
    length
}

#[cfg(test)]
mod tests {
    use crate::pipeline::rules::Action;
    use crate::pipeline::rules::actions::spoof::{SpoofOptions, SpoofPacketAction, SpoofRawAction};
    use crate::pipeline::rules::selectors::logic::AllRule;
    use crate::pipeline::scene::{Reply, Scene, answer_to, query, query_with_edns};
    use wire::codes::qtype;

    /// The answer of a door whose buffer has so many bytes, while its kernel socket could send 4,096.
    fn answered(frame: usize, action: impl Action + 'static, message: &[u8]) -> Vec<u8> {
        let mut scene = Scene::with_rule(AllRule, action);
        (scene.frame, scene.room) = (frame, 4_096);
        scene.change(|config| config.tuning.payload_size_self_generated = 4_096);
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
        assert_eq!(answered(1_700, texts(), &message), whole);
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
}
