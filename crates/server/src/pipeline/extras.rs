//! What a few queries carry along to their answers, because rules said so: most carry nothing, and pay a comparison for it.

use super::proxy::Proxied;
use super::proxy::values::Values;
use super::query::{Protocol, Query};
use super::respond;
use super::restart::Restart;
use super::subnet::SubnetWishes;
use super::zone_traffic::has_signature;
use crate::holder::Ticket;
use std::collections::BTreeMap;
use std::time::Duration;
use wire::codes::{edns_option, rcode};
use wire::edit;
use wire::message::{EdnsOption, OPT_LENGTH, parse_response};

/// What was put into a query that its client must not see in the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Marks {
    /// The OPT record: RFC 6891 §7: "Lack of presence of an OPT record in a request MUST be taken as an indication that the
    /// requestor does not implement any part of this specification and that the responder MUST NOT include an OPT record in
    /// its response."
    pub edns_added: bool,
    /// The client subnet option.
    pub subnet_added: bool,
    /// The cache may keep the answer for all networks, if it says that it is for all.
    pub zero_scope: bool,
}

/// The marks that rules and functions of the configuration put on a query, for later rules.
pub type Tags = BTreeMap<Box<[u8]>, Box<[u8]>>;

/// What rules want of the answer to one query.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Extras {
    /// SetMaxReturnedTTLAction: TTLs above this many seconds are lowered to it, after the cache has kept them as they were.
    pub maximum_returned_ttl: Option<u32>,
    /// SetTempFailureCacheTTLAction, in seconds.
    pub temporary_failure_ttl: Option<u32>,
    /// SetExtendedDNSErrorAction, in their order.
    pub errors: Vec<ExtendedError>,
    /// Errors that the answer has already are taken out.
    pub clear_errors: bool,
    pub subnet: SubnetWishes,
    /// DelayAction: the answer waits so long, over UDP.
    pub delay: Duration,
    /// SetTagAction, `dq:setTag`.
    pub tags: Tags,
    /// `dq.deviceID` and its like, by name.
    pub identities: BTreeMap<&'static str, Vec<u8>>,
    /// `dq:changeName`, `dr:setContent`: the question is the configuration's to put back.
    pub renamed: bool,
    /// The query came through a proxy.
    pub proxied: Option<Proxied>,
    /// What that said of it, and what backends are told (SetProxyProtocolValuesAction and its relatives).
    pub proxy_values: Values,
    /// `dq:setRestartable`.
    pub restart: Option<Box<Restart>>,
    /// What a rule answered to a query that is signed.
    pub answer: Option<Box<[u8]>>,
    /// The cache's entry for it is past its time (`dr:getStaleCacheHit`).
    pub stale: bool,
    /// `dq:suspend`, `dr:suspend`: the rest of these went with what was suspended.
    pub suspended: Option<Ticket>,
}

/// An extended DNS error (RFC 8914 §2).
///
/// ```text
/// info code 2 │ extra text …
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExtendedError {
    pub code: u16,
    /// UTF-8, by the standard.
    pub text: Box<[u8]>,
}

/// The option's code (RFC 8914 §5.1).
const EXTENDED_ERROR: u16 = edns_option::EXTENDEDERROR;

impl Extras {
    /// Sets a tag, whatever it was before.
    pub fn set_tag(&mut self, key: &[u8], value: &[u8]) {
        self.tags.insert(key.into(), value.into());
    }

    /// As new, but for the memory of a proxy's values.
    pub(super) fn clear(&mut self) {
        let mut proxy_values = std::mem::take(&mut self.proxy_values);
        proxy_values.clear();
        *self = Extras {
            proxy_values,
            ..Extras::default()
        };
    }

    /// Whether `dr:restart` was called.
    pub fn wants_restart(&self) -> bool {
        self.restart.as_ref().is_some_and(|restart| restart.wanted)
    }

    /// Adds an error; `clear`: in place of all others.
    pub fn add_error(&mut self, error: ExtendedError, clear: bool) {
        if clear {
            self.errors.clear();
            self.clear_errors = true;
        }
        self.errors.push(error);
    }
}

/// Puts the errors into the answer in its buffer, of a client that knows EDNS. What has no room is left out, in the buffer or
/// in what the client takes. RFC 8914 §3: "servers SHOULD truncate messages by dropping EDE options before dropping other data
/// from packets. Implementations SHOULD set the truncation (TC) bit when dropping EDE options." An answer that a server has
/// signed stays as it is (RFC 8945 §5.5).
pub(super) fn add_errors(answer: &mut Query<'_>, extras: &Extras, payload_size: u16) {
    if has_signature(answer) {
        return;
    }
    let Ok(parts) = parse_response(answer.bytes()) else {
        return;
    };
    let (question_end, mut length) = (parts.question_end, usize::from(parts.end));
    let mut edns = parts.edns;
    let mut is_cut = false;
    if extras.clear_errors
        && let Some(found) = edns
    {
        let (shorter, left) = edit::remove_options(
            answer.message,
            (question_end, length),
            found,
            EXTENDED_ERROR,
        );
        (length, edns) = (shorter, Some(left));
    }
    for error in &extras.errors {
        let value = [&error.code.to_be_bytes()[..], &error.text].concat();
        let option = EdnsOption {
            code: EXTENDED_ERROR,
            value: &value,
        };
        let room = match edns {
            Some(_) => edit::option_room(&value) - OPT_LENGTH,
            None => edit::option_room(&value),
        };
        if length <= answer.limit && length + room > answer.limit {
            is_cut = true;
            continue;
        }
        answer.grow(length + room);
        let changed = edit::set_option(
            answer.message,
            (question_end, length),
            edns,
            option,
            payload_size,
        );
        if let Some((longer, found)) = changed {
            (length, edns) = (longer, Some(found));
        }
    }
    answer.length = length;
    if is_cut && answer.protocol == Protocol::Udp {
        respond::edit_header(answer.message, |header| header.set_tc(true));
    }
}

/// Takes out of the answer in its buffer what only the query to the backend had.
pub(super) fn take_out_marked(answer: &mut Query<'_>) {
    let Ok(parts) = parse_response(answer.bytes()) else {
        return;
    };
    let Some(edns) = parts.edns else {
        return;
    };
    let places = (parts.question_end, usize::from(parts.end));
    if answer.marks.edns_added {
        if edns.extended_rcode > 0 {
            // Its lower bits alone would mean something else: those of BADVERS, all well.
            respond::edit_header(answer.message, |header| {
                header.set_rcode(rcode::SERVFAIL as u8)
            });
        }
        answer.length = edit::remove_opt(answer.message, places, edns);
        answer.parts.edns = None;
    } else if answer.marks.subnet_added {
        let (length, edns) = edit::remove_options(answer.message, places, edns, edns_option::ECS);
        answer.length = length;
        answer.parts.edns = Some(edns);
    }
    answer.parts.end = answer.length as u16;
}
