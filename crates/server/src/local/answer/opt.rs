//! The OPT record of answers about zones that are made beside the packet path (RFC 6891), with an extended error (RFC 8914)
//! where one is to be said, and with how long a zone may be gone on with (RFC 7314).

use super::Asked;
use crate::clock::Now;
use wire::answer::{OPT_LENGTH, OptFields, append_opt, opt_length};
use wire::codes::{edns_option, extended_error, rcode};
use wire::message::EdnsOption;

/// Octets of an EXPIRE option.
const EXPIRE_LENGTH: usize = 4 + 4;

/// What the OPT record says, whatever the answer is.
#[derive(Clone, Copy)]
pub(super) struct Opt {
    payload_size: u16,
    dnssec_ok: bool,
    /// Seconds for which whoever gets the zone now may go on with it.
    expire: Option<u32>,
}

impl Opt {
    /// RFC 6891 §6.1.1: "If an OPT record is present in a received request, compliant responders MUST include an OPT record
    /// in their respective responses." §7: "Lack of presence of an OPT record in a request MUST be taken as an indication
    /// that the requestor does not implement any part of this specification".
    pub(super) fn of(asked: &Asked) -> Option<Opt> {
        let tuning = &asked.config.tuning;
        let edns = asked.found.parts.edns?;
        tuning.edns_in_self_generated.then_some(Opt {
            payload_size: tuning.payload_size_self_generated,
            dnssec_ok: edns.dnssec_ok,
            expire: None,
        })
    }

    /// The same of an answer that has the zone's SOA record, to whoever has asked for the time (RFC 7314 §3).
    pub(super) fn with_expiry(self, asked: &Asked) -> Opt {
        let edns = asked.found.parts.edns;
        let option = edns.and_then(|edns| edns.option(&asked.message, edns_option::EXPIRE));
        let zone = asked.zone().filter(|_| option.is_some());
        let now = Now::read().seconds();
        Opt {
            expire: zone.and_then(|zone| asked.config.local.expires_in(zone, now)),
            ..self
        }
    }

    /// Octets of it in a message that says no error.
    pub(super) fn length(opt: Option<Opt>) -> usize {
        let expiry = |opt: Opt| opt.expire.map_or(0, |_| EXPIRE_LENGTH);
        opt.map_or(0, |opt| OPT_LENGTH + expiry(opt))
    }

    /// Puts it behind a message that answers with this code, and with this extended error.
    pub(super) fn append(self, message: &mut Vec<u8>, code: u16, error: Option<u16>) {
        let error = error.map(u16::to_be_bytes);
        let error = error.as_ref().map(|error| EdnsOption {
            code: edns_option::EXTENDEDERROR,
            value: error,
        });
        let expire = self.expire.map(u32::to_be_bytes);
        let expire = expire.as_ref().map(|expire| EdnsOption {
            code: edns_option::EXPIRE,
            value: expire,
        });
        let options: Vec<EdnsOption<'_>> = error.into_iter().chain(expire).collect();
        let fields = OptFields {
            payload_size: self.payload_size,
            extended_rcode: (code >> 4) as u8,
            dnssec_ok: self.dnssec_ok,
        };
        let length = message.len();
        message.resize(length + opt_length(&options), 0);
        append_opt(message, length, fields, &options);
    }
}

/// What is said of a refusal besides its code.
pub(super) fn error_of(code: u16) -> Option<u16> {
    match code {
        rcode::REFUSED => Some(extended_error::PROHIBITED),
        rcode::NOTAUTH => Some(extended_error::NOT_AUTHORITATIVE),
        rcode::NOTIMP => Some(extended_error::NOT_SUPPORTED),
        rcode::SERVFAIL => Some(extended_error::INVALID_DATA),
        _ => None,
    }
}
