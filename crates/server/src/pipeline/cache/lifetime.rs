//! How long a response is kept.

use crate::config::cache::CacheOptions;
use wire::codes::rcode;
use wire::message::ResponseParts;
use wire::ttl::Ttls;

/// How long a response may be given out again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lifetime {
    /// Seconds, at least one.
    Keep(u32),
    /// Below minTTL: dnsdist counts these.
    TooShort,
    /// Not for a cache.
    No,
}

/// dnsdist's rules, read in its manual and seen with 1.7.3; where RFC 2308 is stricter, RFC 2308.
pub(super) fn lifetime(
    options: &CacheOptions,
    response: &ResponseParts,
    ttls: &Ttls,
    failure_ttl: Option<u32>,
) -> Lifetime {
    let code = response.rcode;
    if response.truncated {
        return keep(options.truncated_ttl);
    }
    match code {
        rcode::SERVFAIL | rcode::REFUSED => {
            return keep(failure_ttl.unwrap_or(options.temporary_failure_ttl));
        }
        rcode::NOTIMP => return Lifetime::No,
        _ => {}
    }
    let Some(mut seconds) = ttls.minimum else {
        return Lifetime::No;
    };
    let nothing = code == rcode::NOERROR && response.answer_count == 0;
    // RFC 2308 §5: "this TTL is set from the minimum of the MINIMUM field of the SOA record and the TTL of the SOA".
    if let Some(negative) = ttls.negative.filter(|_| nothing || code == rcode::NXDOMAIN) {
        seconds = seconds.min(negative).min(options.maximum_negative_ttl);
    }
    if code == rcode::NXDOMAIN {
        seconds = seconds.min(options.maximum_negative_ttl);
    }
    if seconds < options.minimum_ttl {
        return Lifetime::TooShort;
    }
    keep(seconds.min(options.maximum_ttl))
}

fn keep(seconds: u32) -> Lifetime {
    match seconds {
        0 => Lifetime::No,
        seconds => Lifetime::Keep(seconds),
    }
}
