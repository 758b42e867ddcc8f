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
        match append_record(&mut query.message[..limit], self.length, record) {
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

/// Replaces the answer by `packet`, as far as there is room; the ID is the query's. The answer's length in bytes.
pub fn replace(query: &mut Query<'_>, packet: &[u8]) -> usize {
    let id = query.header().id();
    let length = packet.len().min(query.message.len());
    query.message[..length].copy_from_slice(&packet[..length]);
    respond::edit_header(query.message, |header| header.set_id(id));
    length
}
