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

/// dnsdist's rules, read in its manual and seen with 1.7.3.
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
    // RFC 2308 §2.2: NODATA may have CNAME records in the answer section, where nothing is at the name that they lead to.
    let no_data = code == rcode::NOERROR && ttls.has_soa;
    // The manual on maxNegativeTTL: "Cache a NXDOMAIN or NODATA answer from the backend for at most this amount of seconds, even
    // if the TTL of the SOA record is higher." That TTL counts as any record's does. The MINIMUM field does not: whoever answers
    // has seen to it (RFC 2308 §3: the TTL "is set from the minimum of the MINIMUM field of the SOA record and the TTL of the
    // SOA itself").
    if no_data || code == rcode::NXDOMAIN {
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
