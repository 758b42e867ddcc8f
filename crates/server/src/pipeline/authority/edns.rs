//! What EDNS asks of a server of zones, and what it is told (RFC 5001: NSID; 6891; 7314: EXPIRE; 7873: cookies; 8914:
//! extended errors; 9660: ZONEVERSION).
//!
//! These options are for answers from zones, and for the refusal of those who ask a server of zones for another's. Answers
//! of rules have none of them: dnsdist gives none there, and says nothing about who answers where it stands before others.

use super::statistics::OptionSet;
use super::{Authority, Reply};
use crate::config::Config;
use crate::config::pools::PoolId;
use crate::counters::Shard;
use crate::local::Local;
use crate::pipeline::query::{Arrival, Query};
use crate::pipeline::{Env, respond};
use std::net::IpAddr;
use wire::answer::{OPT_LENGTH, OptFields, append_opt, header_only};
use wire::codes::{edns_option, opcode, qtype, rcode};
use wire::cookie::{CLIENT_COOKIE_LENGTH, Cookie, SERVER_COOKIE_LENGTH};
use wire::message::{EdnsOption, EdnsParts, Header, edns_without_question};
use zone::answer::Zones;

/// Octets of a whole cookie.
const COOKIE_LENGTH: usize = CLIENT_COOKIE_LENGTH + SERVER_COOKIE_LENGTH;
/// Octets before an option's value.
const OPTION_HEADER_LENGTH: usize = 4;
/// The most options that an answer has.
const OPTIONS_MAX: usize = 5;

/// The value of a ZONEVERSION option (RFC 9660 §2.1): labels of the zone's name 1, type 1, serial 4.
type ZoneVersion = [u8; 6];
/// RFC 9660 §4: the version is the serial of the zone's SOA record.
const SOA_SERIAL: u8 = 0;

/// What the options of a query ask for.
#[derive(Default)]
pub(super) struct Wishes {
    /// The options that there are: one look where there are none.
    pub(super) asked: OptionSet,
    nsid: bool,
    /// When it was asked: seconds of the clock that the pipeline sees.
    expire: Option<u64>,
    version: bool,
    /// The cookie of the answer.
    cookie: Option<[u8; COOKIE_LENGTH]>,
    /// The client has shown that it gets what is sent to its address.
    pub(super) is_known: bool,
    /// RFC 7873 §5.2.2: the COOKIE option is of an impossible length.
    pub(super) has_bad_cookie: bool,
}

impl Wishes {
    /// Reads the options of a query: to be done before its answer takes their place. One comparison where there are none.
    #[inline]
    pub(super) fn of(query: &Query<'_>, env: &Env<'_>) -> Wishes {
        match query.parts.edns {
            // What options mean in another version is not known.
            Some(edns)
                if usize::from(edns.end - edns.start) > OPT_LENGTH
                    && edns.version == 0
                    && env.config.tuning.edns_in_self_generated =>
            {
                Wishes::read(query, edns, env)
            }
            _ => Wishes::default(),
        }
    }

    #[inline(never)]
    fn read(query: &Query<'_>, edns: EdnsParts, env: &Env<'_>) -> Wishes {
        let mut wishes = Wishes::default();
        let authority = &env.config.authority;
        for option in edns.options(query.message) {
            wishes.asked.insert(option.code);
            match option.code {
                edns_option::NSID => wishes.nsid = !authority.identity.is_empty(),
                // RFC 7314 §3: it is for queries whose answer has the SOA record that starts the time.
                edns_option::EXPIRE => {
                    wishes.expire = (query.parts.qtype == qtype::SOA).then(|| env.now.seconds());
                }
                // RFC 9660 §3: what is in the option of a query is ignored.
                edns_option::ZONEVERSION => wishes.version = true,
                // RFC 7873 §5.2: "In the event of multiple COOKIE options, only the first is considered".
                edns_option::COOKIE if wishes.cookie.is_none() && !wishes.has_bad_cookie => {
                    wishes.read_cookie(option.value, query, env);
                }
                _ => {}
            }
        }
        wishes
    }

    fn read_cookie(&mut self, option: &[u8], query: &Query<'_>, env: &Env<'_>) {
        let Some(cookies) = &env.config.authority.cookies else {
            return;
        };
        let Some(cookie) = Cookie::parse(option) else {
            self.has_bad_cookie = true;
            return;
        };
        let (server, is_known) = cookies.answer(&cookie, query.client().ip(), env.now);
        self.cookie = Some(whole(&cookie, &server));
        self.is_known = is_known;
    }

    /// Counts the query's cookie, good or not: when it is answered, which may be elsewhere than where it was first read.
    #[inline]
    pub(super) fn count_cookie(&self, env: &Env<'_>) {
        if !self.asked.is_empty()
            && (self.has_cookie() || self.has_bad_cookie)
            && let Some(cookies) = &env.config.authority.cookies
        {
            cookies.seen.count(env.shard.lane);
        }
    }

    /// Whether the client has cookies, though it may have no good one.
    pub(super) fn has_cookie(&self) -> bool {
        self.cookie.is_some()
    }

    /// Leaves the cookie alone: what is sent in place of an answer above the limit is short, for somebody else may have asked
    /// for it.
    pub(super) fn shorten(&mut self) {
        (self.nsid, self.version, self.expire) = (false, false, None);
    }

    /// What an EXPIRE option is answered with: how long a secondary that has just heard from this zone may go on with it,
    /// in seconds.
    fn expire(&self, local: &Local, zone: usize) -> Option<u32> {
        local.expires_in(zone, self.expire?)
    }

    /// What a ZONEVERSION option is answered with: RFC 9660 §3.2 has it of the zone that encloses the name asked for, with
    /// referrals, NXDOMAIN and NODATA, too.
    fn version(&self, zones: &Zones, zone: usize) -> Option<ZoneVersion> {
        if !self.version {
            return None;
        }
        let zone = zones.zone(zone)?;
        let [a, b, c, d] = zone.soa().serial.to_be_bytes();
        Some([zone.apex_labels(), SOA_SERIAL, a, b, c, d])
    }

    /// Octets to keep back for the OPT record of an answer with records.
    #[inline]
    pub(super) fn reserved(&self, authority: &Authority) -> usize {
        match self.asked.is_empty() {
            true => OPT_LENGTH,
            false => self.reserved_for_options(authority),
        }
    }

    #[cold]
    fn reserved_for_options(&self, authority: &Authority) -> usize {
        let length = |is_there: bool, value: usize| match is_there {
            true => OPTION_HEADER_LENGTH + value,
            false => 0,
        };
        OPT_LENGTH
            + length(self.nsid, authority.identity.len())
            + length(self.cookie.is_some(), COOKIE_LENGTH)
            + length(self.expire.is_some(), 4)
            + length(self.version, size_of::<ZoneVersion>())
    }
}

/// The client's cookie and the server's.
fn whole(cookie: &Cookie, server: &[u8; SERVER_COOKIE_LENGTH]) -> [u8; COOKIE_LENGTH] {
    let mut whole = [0; COOKIE_LENGTH];
    whole[..CLIENT_COOKIE_LENGTH].copy_from_slice(&cookie.client);
    whole[CLIENT_COOKIE_LENGTH..].copy_from_slice(server);
    whole
}

/// Answers a query without a question that asks for a cookie alone (RFC 7873 §5.4); the answer's length. `None`: it asks for
/// nothing, or no zone is served here.
#[cold]
pub fn answer_without_question(
    arrival: &mut Arrival<'_>,
    client: IpAddr,
    env: &Env<'_>,
) -> Option<usize> {
    let (authority, tuning) = (&env.config.authority, &env.config.tuning);
    let cookies = authority.cookies.as_ref()?;
    let message = &mut arrival.message[..];
    let asked = &message[..arrival.length];
    let is_served = !env.config.local.is_empty() && authority.pools.has(PoolId::DEFAULT);
    let is_query = Header::read(asked)?.opcode() == opcode::QUERY;
    if !is_served || !is_query || !tuning.edns_in_self_generated {
        return None;
    }
    let edns = edns_without_question(asked).filter(|edns| edns.version == 0)?;
    let option = edns.option(asked, edns_option::COOKIE)?;
    cookies.seen.count(env.shard.lane);
    let fields = |code: u16| OptFields {
        payload_size: tuning.payload_size_self_generated,
        extended_rcode: (code >> 4) as u8,
        dnssec_ok: edns.dnssec_ok,
    };
    let Some(cookie) = Cookie::parse(option) else {
        let length = header_only(message, rcode::FORMERR as u8);
        // RFC 6891 §6.1.1: "If an OPT record is present in a received request, compliant responders MUST include an OPT
        // record in their respective responses."
        return Some(append_opt(message, length, fields(rcode::FORMERR), &[]));
    };
    let has_server_cookie = option.len() > CLIENT_COOKIE_LENGTH;
    let (server, is_known) = cookies.answer(&cookie, client, env.now);
    // A client cookie alone is answered with NOERROR, a server cookie that is no good with BADCOOKIE.
    let code = match has_server_cookie && !is_known {
        true => rcode::BADCOOKIE,
        false => rcode::NOERROR,
    };
    let option = EdnsOption {
        code: edns_option::COOKIE,
        value: &whole(&cookie, &server),
    };
    let length = header_only(message, (code & 15) as u8);
    Some(append_opt(message, length, fields(code), &[option]))
}

/// Puts the OPT record behind an answer, and counts options; its new length. A query without EDNS gets none (RFC 6891 §7).
#[inline]
pub(super) fn append(
    query: &mut Query<'_>,
    reply: &mut Reply,
    wishes: &Wishes,
    (config, shard): (&Config, &Shard),
) -> usize {
    let tuning = &config.tuning;
    let has_opt = tuning.edns_in_self_generated && query.knows_edns();
    let Some(edns) = query.parts.edns.filter(|_| has_opt) else {
        if reply.rcode > 15 {
            // Its lower bits alone would mean something else. RFC 6891 §7: who chooses "not to implement the protocol
            // extensions" answers with FORMERR, and is asked again without them.
            reply.rcode = match reply.rcode {
                rcode::BADVERS => rcode::FORMERR,
                _ => rcode::SERVFAIL,
            };
            let code = reply.rcode as u8;
            respond::edit_header(query.message, |header| header.set_rcode(code));
        }
        return reply.length;
    };
    reply.has_opt = true;
    let fields = OptFields {
        payload_size: tuning.payload_size_self_generated,
        extended_rcode: (reply.rcode >> 4) as u8,
        dnssec_ok: edns.dnssec_ok,
    };
    if wishes.asked.is_empty() && reply.error.is_none() {
        return append_opt(query.message, reply.length, fields, &[]);
    }
    append_with_options(query, reply, wishes, (config, shard, fields))
}

#[inline(never)]
fn append_with_options(
    query: &mut Query<'_>,
    reply: &Reply,
    wishes: &Wishes,
    (config, shard, fields): (&Config, &Shard, OptFields),
) -> usize {
    // Of a query that nothing was looked up for there is nothing to say.
    let is_from_zone = matches!(
        reply.rcode,
        rcode::NOERROR | rcode::NXDOMAIN | rcode::YXDOMAIN
    );
    let of_zone = reply.zone.filter(|_| is_from_zone).map(|zone| {
        let version = wishes.version(config.local.zones(), zone);
        (wishes.expire(&config.local, zone), version)
    });
    let (expire, version) = of_zone.unwrap_or_default();
    let expire = expire.map(u32::to_be_bytes);
    let error = reply.error.unwrap_or_default().to_be_bytes();
    let options = [
        (
            wishes.cookie.is_some(),
            edns_option::COOKIE,
            wishes.cookie.as_ref().map_or(&[][..], |cookie| cookie),
        ),
        (
            reply.error.is_some(),
            edns_option::EXTENDEDERROR,
            &error[..],
        ),
        (
            expire.is_some(),
            edns_option::EXPIRE,
            expire.as_ref().map_or(&[][..], |expire| expire),
        ),
        (
            version.is_some(),
            edns_option::ZONEVERSION,
            version.as_ref().map_or(&[][..], |version| version),
        ),
        (
            wishes.nsid,
            edns_option::NSID,
            config.authority.identity.as_bytes(),
        ),
    ];
    let mut list = [EdnsOption {
        code: 0,
        value: &[],
    }; OPTIONS_MAX];
    let mut count = 0;
    let mut answered = OptionSet::default();
    for (_, code, value) in options.into_iter().filter(|(is_said, _, _)| *is_said) {
        list[count] = EdnsOption { code, value };
        count += 1;
        answered.insert(code);
    }
    let statistics = &config.authority.statistics;
    statistics.count_options(reply.zone, (wishes.asked, answered), shard);
    append_opt(query.message, reply.length, fields, &list[..count])
}
