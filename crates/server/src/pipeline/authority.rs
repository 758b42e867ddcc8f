//! The stage that answers from zones of our own what no rule has decided.
//!
//! | module | what of an answer |
//! | --- | --- |
//! | [`edns`] | its OPT record and the options that were asked for |
//! | [`cookies`] | whether its client is who it says |
//! | [`chaos`] | who and what we are |
//! | [`limit`] | whether it is one too many |
//! | [`pools`] | which pools a zone serves |
//! | [`statistics`] | Knot's counters |

mod chaos;
pub mod cookies;
mod edns;
pub mod limit;
pub mod pools;
pub mod statistics;

use super::drop::DropReason;
use super::query::{Protocol, Query};
use super::{Env, HandOver, HandOverReason, Verdict, respond, zone_traffic};
use crate::config::Config;
use crate::config::pools::PoolId;
use crate::counters::Counter;
use cookies::Cookies;
use edns::Wishes;
pub use edns::answer_without_question;
use limit::{Fate, ResponseRateLimit};
use pools::ZonePools;
use statistics::{OptionSet, Statistics};
use std::sync::Arc;
use wire::answer::EdnsPolicy;
use wire::codes::{extended_error, opcode, qtype, rcode};
use wire::message::{Header, QueryParts};
use zone::answer::ahead;
pub use zone::answer::ahead::Foreseen;
use zone::answer::{Outcome, answer_among};

/// What a configuration says of answers from zones. The default one says as little as it can.
#[derive(Clone, Default)]
pub struct Authority {
    /// setServerID, or the host's name: said to whoever asks by NSID or for `id.server`; empty: to nobody.
    pub identity: Box<str>,
    /// millrace.setVersion: the answer to `version.server`; empty: none.
    pub version: Box<str>,
    /// `None`: clients' cookies are not answered.
    pub cookies: Option<Arc<Cookies>>,
    pub limit: Option<Arc<ResponseRateLimit>>,
    pub pools: ZonePools,
    pub statistics: Statistics,
}

/// An answer in the query's buffer, its OPT record still missing, and what else is known of it.
#[derive(Debug)]
struct Reply {
    /// Octets.
    length: usize,
    /// All twelve bits.
    rcode: u16,
    /// The number of the zone that it is from.
    zone: Option<usize>,
    /// See [`zone::answer::Answered::origin`].
    origin: u32,
    /// See [`zone::answer::Answered::given`].
    given: u16,
    no_data: bool,
    truncated: bool,
    /// An OPT record will be there.
    has_opt: bool,
    /// See [`wire::codes::extended_error`].
    error: Option<u16>,
}

impl Reply {
    /// Turns the query in its buffer into an answer without records.
    fn without_records(query: &mut Query<'_>, rcode: u16, error: Option<u16>) -> Reply {
        // The upper bits of the code go into the OPT record, which comes later.
        let (message, parts) = (&mut *query.message, &query.parts);
        let length = wire::answer::with_rcode(message, parts, rcode & 15, EdnsPolicy::Omit);
        // Nobody here recurses.
        respond::edit_header(message, |header| header.set_ra(false));
        Reply {
            length,
            rcode,
            zone: None,
            origin: 0,
            given: 0,
            no_data: false,
            truncated: false,
            has_opt: false,
            error,
        }
    }
}

/// What becomes of a query here.
enum Found {
    /// It is not for us.
    Elsewhere,
    Reply(Reply),
    /// The client takes an answer that the buffer has no room for.
    Roomless,
}

/// Finds out what can be asked of memory for the query's name, where a zone serves it that is large; whether one does. Else
/// `foreseen` stays as it was.
#[inline]
pub fn foresee(query: &Query<'_>, config: &Config, foreseen: &mut Option<Foreseen>) -> bool {
    if !config.local.zones().has_large() || !config.authority.pools.has(query.pool) {
        return false;
    }
    *foreseen = foresee_served(query, config);
    foreseen.is_some()
}

#[inline(never)]
fn foresee_served(query: &Query<'_>, config: &Config) -> Option<Foreseen> {
    let serves = |zone| config.authority.pools.serves(zone, query.pool);
    ahead::foresee((config.local.zones(), &serves), query.message, &query.parts)
}

/// Asks memory for what comes next for this query's name; whether there will be more to ask for.
#[inline]
pub fn ask(foreseen: &mut Foreseen, asked: (&[u8], &QueryParts), config: &Config) -> bool {
    foreseen.ask(config.local.zones(), asked, xsk::prefetch_line)
}

/// Answers what lies in a zone that serves the query's pool: the default one, unless a rule has chosen another. `foreseen`: what
/// is known of its name by now.
///
/// Cost where no zone is served: one comparison. What a rule has sent to a pool that no zone serves goes on to its servers.
#[inline]
pub fn answer<'c>(
    query: &mut Query<'_>,
    foreseen: Option<&Foreseen>,
    env: &mut Env<'c>,
) -> Option<Verdict<'c>> {
    match serves(env.config, query.pool) {
        true => answer_served(query, foreseen, env),
        false => None,
    }
}

/// Whether any zone serves queries for this pool.
#[inline]
pub fn serves(config: &Config, pool: PoolId) -> bool {
    !config.local.is_empty() && config.authority.pools.has(pool)
}

/// Apart, so that whoever serves no zone does not carry it along.
#[inline(never)]
fn answer_served<'c>(
    query: &mut Query<'_>,
    foreseen: Option<&Foreseen>,
    env: &mut Env<'c>,
) -> Option<Verdict<'c>> {
    let is_ours = |query: &Query<'_>, config: &Config| {
        home(query, config).is_some() || chaos::is_asked(query) && query.parts.is_signed
    };
    if zone_traffic::concerns(query) && is_ours(query, env.config) {
        let reason = HandOverReason::Zone;
        return Some(HandOver::of(query, reason, None));
    }
    let mut wishes = Wishes::of(query, env);
    match find(query, foreseen, env.config, &wishes) {
        Found::Elsewhere => None,
        Found::Reply(reply) => Some(send(query, reply, &mut wishes, env)),
        Found::Roomless => {
            let reason = HandOverReason::Oversized;
            Some(HandOver::of(query, reason, None))
        }
    }
}

/// The number of the zone that the query's name is in, of those that serve its pool.
fn home(query: &Query<'_>, config: &Config) -> Option<usize> {
    let serves = |zone| config.authority.pools.serves(zone, query.pool);
    let zones = config.local.zones();
    zones.enclosing(query.name(), query.parts.labels, &serves)
}

/// Whether the query is about a zone and not about a name: a transfer, or a NOTIFY.
fn is_of_whole_zone(query: &Query<'_>) -> bool {
    match query.header().opcode() {
        opcode::QUERY => matches!(query.parts.qtype, qtype::AXFR | qtype::IXFR),
        other => other == opcode::NOTIFY,
    }
}

/// Refuses what lies in no zone, where nobody else could be asked.
pub fn refuse<'c>(query: &mut Query<'_>, env: &mut Env<'c>) -> Verdict<'c> {
    // A refusal of what is signed is signed, too (RFC 8945 §5.3), or says what is wrong with the signature (§5.2).
    if query.parts.is_signed {
        let reason = HandOverReason::Zone;
        return HandOver::of(query, reason, None);
    }
    let mut wishes = Wishes::of(query, env);
    let error = Some(extended_error::NOT_AUTHORITATIVE);
    let (code, error) = exception(query, &wishes)
        // RFC 5936 §2.2.1: "If a server is not authoritative for the queried zone, the server SHOULD set the value to
        // NotAuth(9)."
        .or_else(|| is_of_whole_zone(query).then_some((rcode::NOTAUTH, error)))
        .or_else(|| not_implemented(query))
        .unwrap_or((rcode::REFUSED, error));
    let reply = Reply::without_records(query, code, error);
    send(query, reply, &mut wishes, env)
}

fn find(
    query: &mut Query<'_>,
    foreseen: Option<&Foreseen>,
    config: &Config,
    wishes: &Wishes,
) -> Found {
    let is_chaos = chaos::is_asked(query);
    let exceptional = exception(query, wishes)
        .or_else(|| not_implemented(query))
        .or_else(|| never_asked_for(query));
    if let Some((code, error)) = exceptional {
        let zone = home(query, config);
        if zone.is_none() && !is_chaos {
            return Found::Elsewhere;
        }
        let reply = Reply::without_records(query, code, error);
        return Found::Reply(Reply { zone, ..reply });
    }
    if is_chaos {
        return Found::Reply(chaos::answer(query, &config.authority));
    }
    from_zones(query, foreseen, config, wishes)
}

/// A response code with its extended error.
type Code = (u16, Option<u16>);

/// What is said to queries whose EDNS nothing can be made of.
fn exception(query: &Query<'_>, wishes: &Wishes) -> Option<Code> {
    // RFC 6891 §6.1.3: "If a responder does not implement the VERSION level of the request, then it MUST respond with
    // RCODE=BADVERS."
    if query.parts.edns.is_some_and(|edns| edns.version > 0) {
        return Some((rcode::BADVERS, None));
    }
    if wishes.has_bad_cookie {
        return Some((rcode::FORMERR, None));
    }
    None
}

/// What is said to other opcodes than those that came this far.
fn not_implemented(query: &Query<'_>) -> Option<Code> {
    let is_query = query.header().opcode() == opcode::QUERY;
    (!is_query).then_some((rcode::NOTIMP, Some(extended_error::NOT_SUPPORTED)))
}

/// What is said to queries for a type that is in bitmaps of NSEC records only. RFC 9824 §3.5: "the DNS server MUST return a
/// Format Error".
fn never_asked_for(query: &Query<'_>) -> Option<Code> {
    let is_so = query.parts.qtype == qtype::NXNAME;
    is_so.then_some((rcode::FORMERR, Some(extended_error::INVALID_QUERY_TYPE)))
}

fn from_zones(
    query: &mut Query<'_>,
    foreseen: Option<&Foreseen>,
    config: &Config,
    wishes: &Wishes,
) -> Found {
    let limit = match query.protocol {
        Protocol::Udp => query
            .limit
            .min(config.tuning.payload_size_self_generated.into()),
        Protocol::Tcp => query.limit,
    };
    let reserved = match query.knows_edns() {
        true => wishes.reserved(&config.authority),
        false => 0,
    };
    let room = query.message.len();
    let asked = Header::read(query.message).expect("a parsed query has a header");
    let zones = config.local.zones();
    let aside = match limit > room {
        true => put_aside(query),
        false => 0,
    };
    // A signature of a long key's may leave less than the options take.
    let limit_of_records = limit.min(room - aside).saturating_sub(reserved);
    let (pools, pool) = (&config.authority.pools, query.pool);
    let serves = |zone: usize| pools.serves(zone, pool);
    let (message, parts) = (&mut *query.message, &query.parts);
    let among = (zones, &serves as &dyn Fn(usize) -> bool);
    let answered = match answer_among(among, foreseen, message, parts, limit_of_records) {
        Outcome::NotServed => {
            take_back(query, aside);
            return Found::Elsewhere;
        }
        Outcome::NotLoaded { zone } => {
            // RFC 8914 §4.25: "The authoritative server cannot answer with data for a zone it is otherwise configured to
            // support."
            let error = Some(extended_error::INVALID_DATA);
            let reply = Reply::without_records(query, rcode::SERVFAIL, error);
            return Found::Reply(Reply {
                zone: Some(zone),
                ..reply
            });
        }
        Outcome::Answered(answered) => answered,
    };
    if limit > room && (answered.truncated || answered.left_out) {
        // Whoever has more room asks again: he needs all of the query, whose options are read once more.
        asked.write(query.message).expect("it was read from there");
        take_back(query, aside);
        return Found::Roomless;
    }
    Found::Reply(Reply {
        length: answered.length,
        rcode: answered.rcode.into(),
        zone: Some(answered.zone),
        origin: answered.origin,
        given: answered.given,
        no_data: answered.no_data,
        truncated: answered.truncated,
        has_opt: false,
        error: None,
    })
}

/// Copies what is behind the question to the end of the buffer, where no record gets: who makes the answer elsewhere, for it
/// has no room here, makes it of the query as it was. So many octets.
#[cold]
fn put_aside(query: &mut Query<'_>) -> usize {
    let behind = usize::from(query.parts.question_end)..query.length;
    let (octets, room) = (behind.len(), query.message.len());
    query.message.copy_within(behind, room - octets);
    octets
}

/// Puts so many octets back behind the question.
#[inline]
fn take_back(query: &mut Query<'_>, octets: usize) {
    if octets > 0 {
        let question_end = usize::from(query.parts.question_end);
        let start = query.message.len() - octets;
        query.message.copy_within(start.., question_end);
    }
}

/// Gives the client a reply, or a shorter one, or none, as the rate limit says.
fn send<'c>(
    query: &mut Query<'_>,
    mut reply: Reply,
    wishes: &mut Wishes,
    env: &mut Env<'c>,
) -> Verdict<'c> {
    let config: &'c Config = env.config;
    let authority = &config.authority;
    wishes.count_cookie(env);
    if let Some(limit) = &authority.limit {
        match limit.judge(query, &reply, wishes.is_known, env) {
            Fate::Sent => {}
            Fate::Dropped => {
                authority.statistics.count(query, &reply, None, env.shard);
                if !wishes.asked.is_empty() {
                    let options = (wishes.asked, OptionSet::default());
                    let statistics = &authority.statistics;
                    statistics.count_options(reply.zone, options, env.shard);
                }
                return Verdict::Drop(DropReason::ResponseRate);
            }
            Fate::Slipped => {
                reply = slip(query, reply, wishes);
                wishes.shorten();
            }
        }
    }
    respond::restore_rd(query);
    let length = edns::append(query, &mut reply, wishes, (config, env.shard));
    authority
        .statistics
        .count(query, &reply, Some(length), env.shard);
    env.shard.count(Counter::SelfAnswered);
    respond::give(&config.chains.self_answered, query, length, env)
}

/// What a client gets in place of an answer above the limit: it shows by its next query that it is no forger's victim.
///
/// The code stays: to who does not come by TCP (nobody does for an UPDATE) NOERROR would say that all went well. What has no
/// records anyway is cut nowhere and has no TC, which is no flag of UPDATE (RFC 2136 §2.2) and NOTIFY (RFC 1996 §3.4).
fn slip(query: &mut Query<'_>, reply: Reply, wishes: &Wishes) -> Reply {
    // RFC 7873 §5.2.3: a server may "respond with the BADCOOKIE error" to a query with a client cookie alone.
    let (code, truncated) = match wishes.has_cookie() {
        true => (rcode::BADCOOKIE, false),
        false => (reply.rcode, reply.truncated || has_records(query.message)),
    };
    let short = Reply::without_records(query, code, None);
    respond::edit_header(query.message, |header| header.set_tc(truncated));
    Reply {
        zone: reply.zone,
        truncated,
        ..short
    }
}

/// Whether an answer has records besides its OPT record.
fn has_records(answer: &[u8]) -> bool {
    let counts = |header: Header| header.answer_count() > 0 || header.authority_count() > 0;
    Header::read(answer).is_some_and(counts)
}

#[cfg(test)]
mod tests;
