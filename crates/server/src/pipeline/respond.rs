//! Answers: those made here, and those that backends sent.

use super::cache::Asked;
use super::carried::Carried;
use super::drop::DropReason;
use super::extras::{self, Marks};
use super::query::{Ends, Protocol, Query, Way};
use super::rings::Answered;
use super::rules::actions::response::cap_ttls;
use super::rules::response::{self, Response, ResponseRule};
use super::{Env, HandOver, HandOverReason, Verdict, subnet, suspended};
use crate::backend::exchange::Waiting;
use crate::backend::several::Opening;
use crate::clock::Now;
use crate::config::{Config, Tuning};
use crate::counters::{Counter, Passage, Shard};
use std::net::SocketAddr;
use std::time::Duration;
use wire::answer::EdnsPolicy;
use wire::codes::rcode;
use wire::message::{EdnsParts, HEADER_LENGTH, Header, QueryParts, ResponseParts, parse_response};

/// Takes a message that came from `remote` to our backend port `local`: finds the query that waits for it, fills
/// `waiting` with it and makes the message the client's answer, in place; the answer's length in bytes.
///
/// # Errors
/// Why it is dropped. The wait goes on, unless a response rule dropped it.
pub fn accept(
    local: SocketAddr,
    remote: SocketAddr,
    message: &mut [u8],
    length: usize,
    waiting: &mut Waiting,
    env: &mut Env<'_>,
) -> Result<usize, DropReason> {
    let Some(forwarder) = &env.forwarder else {
        return Err(DropReason::ResponseUnexpected);
    };
    let exchanges = forwarder.exchanges;
    let (ends, tuning) = ((local, remote), &env.config.tuning);
    let allow_empty = tuning.allow_empty_responses;
    let mut take = |received: &[u8]| {
        exchanges.take_with(ends, received, allow_empty, env.now, env.shard, waiting)
    };
    let mut taken = take(&message[..length]);
    if taken == Err(DropReason::ResponseMalformed)
        && let Some(cut) = without_broken_records(&mut message[..length])
    {
        taken = take(&message[..cut]);
    }
    let parts = taken.inspect_err(|reason| count_noncompliant(*reason, env.shard))?;
    let length = match tuning.truncate_tc {
        true => cut_truncated(waiting, parts, message, env)?,
        false => finish(waiting, &parts, message, env)?,
    };
    count_sent(waiting.destination, env);
    Ok(length)
}

/// Makes the answer to a query of which servers had nothing but an error to say ([`Waiting::held_rcode`]), its records and
/// options being lost; its length in bytes.
///
/// # Errors
/// Why it is dropped.
pub fn held_error(
    waiting: &mut Waiting,
    message: &mut [u8],
    env: &mut Env<'_>,
) -> Result<usize, DropReason> {
    let length = usize::from(waiting.parts.question_end);
    message[..length].copy_from_slice(&waiting.query[..length]);
    // What else the client's header says, AD for example, is not for an answer.
    let code = waiting.held_rcode.into();
    let length = wire::answer::with_rcode(message, &waiting.parts, code, EdnsPolicy::Omit);
    edit_header(message, |header| header.set_ra(true));
    let length = response(waiting, message, length, env)?;
    count_sent(waiting.destination, env);
    Ok(length)
}

/// Asks a second server about the next query that is late (the policy hedge); false when none is. `waiting` then holds
/// it, and the worker's share what is to be sent.
pub fn hedge(waiting: &mut Waiting, env: &mut Env<'_>) -> bool {
    let Some(forwarder) = &mut env.forwarder else {
        return false;
    };
    let opening = Opening {
        tuning: &env.config.tuning,
        now: env.now,
        random: env.random,
    };
    forwarder.hedge_next(env.config, waiting, opening)
}

/// Counts an answer over UDP to a query that was sent to `destination`, for its listener.
pub fn count_sent(destination: SocketAddr, env: &Env<'_>) {
    let listener = env.config.listener_of(&destination);
    if let Some(traffic) = listener.and_then(|listener| env.traffic((listener, Protocol::Udp))) {
        traffic.count(Passage::Response, env.shard);
    }
}

/// Makes the response that a backend sent, `length` bytes of `message`, the client's answer, in place; the answer's
/// length in bytes. For responses that are known to belong to the query.
///
/// # Errors
/// Why it is dropped.
pub fn response(
    waiting: &mut Waiting,
    message: &mut [u8],
    length: usize,
    env: &mut Env<'_>,
) -> Result<usize, DropReason> {
    let Ok(parts) = parse_response(&message[..length]) else {
        count_noncompliant(DropReason::ResponseMalformed, env.shard);
        return Err(DropReason::ResponseMalformed);
    };
    match env.config.tuning.truncate_tc {
        true => cut_truncated(waiting, parts, message, env),
        false => finish(waiting, &parts, message, env),
    }
}

fn count_noncompliant(reason: DropReason, shard: &Shard) {
    if matches!(
        reason,
        DropReason::ResponseMalformed | DropReason::ResponseMismatch
    ) {
        shard.count(Counter::NoncompliantResponses);
    }
}

/// Leaves of a response with TC nothing but header and question, and says how long that is: servers cut such responses within a
/// record, or count records that they left out. `None`: it has no TC, or no whole question.
///
/// RFC 2181 §9: "When a DNS client receives a reply with TC set, it should ignore that response, and query again, using a
/// mechanism, such as a TCP connection, that will permit larger replies". So all that a client needs of it is TC.
#[cold]
fn without_broken_records(message: &mut [u8]) -> Option<usize> {
    Header::read(message).filter(|header| header.qr() && header.tc())?;
    let length = wire::answer::truncate_response(message, message.len());
    // An error without a question would be believed, whatever has become of its question.
    (length > HEADER_LENGTH).then_some(length)
}

/// truncateTC: "truncate TC=1 answers so they are actually empty". Then as [`finish`].
#[cold]
fn cut_truncated(
    waiting: &mut Waiting,
    parts: ResponseParts,
    message: &mut [u8],
    env: &mut Env<'_>,
) -> Result<usize, DropReason> {
    let is_cut = Header::read(message).is_some_and(|header| header.tc());
    let parts = match parts.question.filter(|_| is_cut) {
        Some(question) => {
            let end = usize::from(question.end);
            let opt = parts.edns.map(|edns| edns.start.into()..edns.end.into());
            edit_header(message, |header| {
                header.set_answer_count(0);
                header.set_authority_count(0);
                header.set_additional_count(opt.is_some().into());
            });
            // dnsdist keeps it, whatever its manual says of RFC 6891.
            let opt = opt.unwrap_or(end..end);
            let cut = end + opt.len();
            message.copy_within(opt, end);
            let cut = &message[..cut];
            parse_response(cut).map_err(|_| DropReason::ResponseMalformed)?
        }
        None => parts,
    };
    finish(waiting, &parts, message, env)
}

/// Rules, cache, then everything that makes the response this client's. What trails the last record is cut off.
fn finish<'c>(
    waiting: &mut Waiting,
    parts: &ResponseParts,
    message: &mut [u8],
    env: &mut Env<'c>,
) -> Result<usize, DropReason> {
    env.shard.count(Counter::Responses);
    if u16::from(parts.rcode as u8 & 15) == rcode::SERVFAIL {
        env.shard.count(Counter::ServfailResponses);
    }
    let config: &'c Config = env.config;
    let extras = waiting.extras.take();
    let mut outgrown = std::mem::take(&mut waiting.outgrown);
    outgrown.clear();
    let (client, destination, way) = (waiting.client, waiting.destination, waiting.way);
    let ends = ((&client, &destination), &way);
    let mut view = view(waiting, ends, parts, message)?;
    view.spare = Some(&mut outgrown);
    view.carry(extras);
    let mut response = Response {
        view,
        server: Some(waiting.server),
        asked: waiting.sent,
        may_wait: true,
        client_edns: waiting.parts.edns.is_some() && !waiting.marks.edns_added,
        maximum_returned_ttl: None,
    };
    response::apply(&config.chains.response, &mut response, env)?;
    let extras = response.view.extras.as_ref();
    if extras.is_some_and(|extras| extras.suspended.is_some() || extras.wants_restart()) {
        return Err(suspended::interrupted(waiting, &mut response));
    }
    let length = complete(waiting, parts, response, env)?;
    waiting.outgrown = outgrown;
    Ok(length)
}

/// What is done to a response of a server behind its rules; the answer's length in bytes.
#[inline(always)]
fn complete(
    waiting: &mut Waiting,
    parts: &ResponseParts,
    mut response: Response<'_>,
    env: &mut Env<'_>,
) -> Result<usize, DropReason> {
    let is_for_all = subnet::is_for_all(waiting.marks, &response.view);
    if waiting.marks != Marks::default() {
        extras::take_out_marked(&mut response.view);
    }
    keep(waiting, (parts, is_for_all), &mut response, env)?;
    finish_rules(&mut response, env);
    let answer = &mut response.view;
    waiting.extras = answer.extras.take();
    restore(waiting, answer);
    if answer.length > waiting.limit {
        answer.length = wire::answer::truncate_response(answer.message, answer.length);
    }
    count_forwarded(waiting, answer, env);
    Ok(answer.length)
}

/// The same for one that a function had suspended: what its rules have left of it.
#[cold]
pub(super) fn complete_suspended(
    waiting: &mut Waiting,
    response: Response<'_>,
    env: &mut Env<'_>,
) -> Result<usize, DropReason> {
    let parts = parse_response(response.view.bytes()).map_err(|_| DropReason::ResponseMalformed)?;
    (waiting.pool, waiting.skip_cache) = (response.view.pool, response.view.skip_cache);
    // What asks for a restart now comes too late.
    complete(waiting, &parts, response, env)
}

/// Puts the response into the pool's cache, if it has one and takes it.
fn keep<'c>(
    waiting: &mut Waiting,
    (parts, is_for_all): (&ResponseParts, bool),
    response: &mut Response<'_>,
    env: &mut Env<'c>,
) -> Result<(), DropReason> {
    let config: &'c Config = env.config;
    let cache = config
        .pool(waiting.pool)
        .and_then(|pool| pool.cache.as_ref());
    let Some(cache) = cache.filter(|_| !response.view.skip_cache) else {
        return Ok(());
    };
    // A rule may have cut the records off.
    let unchanged = config.chains.response.is_empty()
        && waiting.marks == Marks::default()
        && parts.question.is_some();
    let parts = match unchanged {
        true => *parts,
        false => {
            parse_response(response.view.bytes()).map_err(|_| DropReason::ResponseMalformed)?
        }
    };
    if is_for_all
        && cache.options().parse_subnet
        && let Some(parts) = subnet::take_out(waiting)
    {
        waiting.parts = parts;
    }
    let asked = Asked {
        query: waiting.message(),
        parts: &waiting.parts,
        protocol: response.view.protocol,
        edns_added: waiting.marks.edns_added && waiting.parts.edns.is_some(),
        failure_ttl: response
            .view
            .extras
            .as_ref()
            .and_then(|extras| extras.temporary_failure_ttl),
    };
    let bytes = response.view.bytes();
    if cache.insert(asked, bytes, &parts, env.now, env.shard.lane) {
        response.may_wait = false;
        response::apply(&config.chains.cache_inserted, response, env)?;
    }
    Ok(())
}

/// The response as selectors see it.
fn view<'m>(
    waiting: &Waiting,
    (ends, way): (Ends<'m>, &'m Way),
    parts: &ResponseParts,
    message: &'m mut [u8],
) -> Result<Query<'m>, DropReason> {
    // What rules see and log is the client's, not the number that the query had on its way to the server.
    message[..2].copy_from_slice(&waiting.query[..2]);
    let (end, edns) = match parts.question {
        Some(question) if question.end == waiting.parts.question_end => (parts.end, parts.edns),
        Some(_) => return Err(DropReason::ResponseMismatch),
        None => insert_question(waiting, parts, message).ok_or(DropReason::ResponseMalformed)?,
    };
    let parts = QueryParts {
        end,
        edns,
        ..waiting.parts
    };
    Ok(as_query(waiting, (ends, way), message, parts))
}

/// What lies in `message`, with what was decided about the query. `ends` and `way` are those of `waiting`, which may change while
/// this is looked at.
pub(super) fn as_query<'m>(
    waiting: &Waiting,
    (ends, way): (Ends<'m>, &'m Way),
    message: &'m mut [u8],
    parts: QueryParts,
) -> Query<'m> {
    Query {
        message,
        length: parts.end.into(),
        parts,
        ends,
        protocol: match way {
            Way::Stream => Protocol::Tcp,
            Way::Xsk { .. } | Way::Socket { .. } => Protocol::Udp,
        },
        way,
        limit: waiting.limit,
        pool: waiting.pool,
        skip_cache: waiting.skip_cache,
        client_flags: waiting.client_flags,
        marks: waiting.marks,
        extras: Carried::NOTHING,
        spare: None,
    }
}

/// No server has answered in time: topTimeouts tells of it.
#[cold]
pub fn timed_out(waiting: &Waiting, now: Now, shard: &Shard) {
    let mut message = waiting.query;
    let ends = ((&waiting.client, &waiting.destination), &waiting.way);
    let mut query = as_query(waiting, ends, &mut message, waiting.parts);
    query.carry(waiting.extras.clone());
    shard.rings.record_timeout(&query, now, waiting.server);
}

/// Gives the question to a response without one, which error responses may be: every answer repeats what was asked
/// (invariant I2). Where the message then ends, and its OPT record. `None`: there is no room, or there are records, whose
/// pointers would lead astray.
fn insert_question(
    waiting: &Waiting,
    parts: &ResponseParts,
    message: &mut [u8],
) -> Option<(u16, Option<EdnsParts>)> {
    let records = parts.answer_count + parts.authority_count + parts.additional_count;
    if records != u16::from(parts.edns.is_some()) {
        return None;
    }
    let question = waiting.parts.question(&waiting.query);
    let shift = question.len() as u16;
    let end = parts.end.checked_add(shift)?;
    message.get(..end.into())?;
    let behind = HEADER_LENGTH + question.len();
    message.copy_within(HEADER_LENGTH..parts.end.into(), behind);
    message[HEADER_LENGTH..behind].copy_from_slice(question);
    edit_header(message, |header| header.set_question_count(1));
    let edns = parts.edns.map(|edns| EdnsParts {
        start: edns.start + shift,
        end: edns.end + shift,
        ..edns
    });
    Some((end, edns))
}

/// ID, RD, CD and the name's case as the client sent them.
fn restore(waiting: &Waiting, answer: &mut Query<'_>) {
    let asked = waiting.parts.question(&waiting.query);
    // A name that the configuration changed is the configuration's to put back.
    if !waiting.extras.as_ref().is_some_and(|extras| extras.renamed) {
        answer.message[HEADER_LENGTH..][..asked.len()].copy_from_slice(asked);
    }
    let id = u16::from_be_bytes([waiting.query[0], waiting.query[1]]);
    make_theirs(answer.message, id, waiting.client_flags);
}

/// Two bits of the header's second word.
const RD: u16 = 0x0100;
const RD_AND_CD: u16 = RD | 0x0010;

/// The header's second word of an answer, with the RD and CD that the client sent.
#[inline]
pub(super) fn their_flags(flags: u16, client_flags: u16) -> u16 {
    flags & !RD_AND_CD | client_flags & RD_AND_CD
}

fn set_their_flags(header: &mut Header, client_flags: u16) {
    header.set_flags(their_flags(header.flags(), client_flags));
}

/// Gives a message back the RD and CD that the client sent: rules have changed them for servers. RFC 1035 §4.1.1 on RD: "this bit
/// may be set in a query and is copied into the response."
#[cold]
pub fn restore_flags_of(message: &mut [u8], client_flags: u16) {
    edit_header(message, |header| set_their_flags(header, client_flags));
}

/// [`restore_flags_of`] a query, before its header becomes that of an answer made here.
///
/// Cost where no rule did: one comparison.
#[inline]
pub(super) fn restore_flags(query: &mut Query<'_>) {
    if (query.header().flags() ^ query.client_flags) & RD_AND_CD != 0 {
        restore_flags_of(query.message, query.client_flags);
    }
}

/// The same for an answer from a zone: the RD that the client sent, and no CD. RFC 4035 §3.1.6: "A security-aware name server
/// SHOULD clear the CD bit when composing an authoritative response."
#[inline]
pub(super) fn restore_rd(query: &mut Query<'_>) {
    let theirs = query.client_flags & RD;
    if (query.header().flags() ^ theirs) & RD_AND_CD != 0 {
        restore_flags_of(query.message, theirs);
    }
}

/// Gives an answer the ID of the client's query, and the RD and CD that the client sent.
fn make_theirs(message: &mut [u8], id: u16, client_flags: u16) {
    edit_header(message, |header| {
        header.set_id(id);
        set_their_flags(header, client_flags);
    });
}

#[inline]
pub fn edit_header(message: &mut [u8], edit: impl FnOnce(&mut Header)) {
    if let Some(mut header) = Header::read(message) {
        edit(&mut header);
        header.write(message).expect("it was just read from there");
    }
}

fn count_forwarded(waiting: &Waiting, answer: &Query<'_>, env: &Env<'_>) {
    let latency = env.now.since(waiting.sent);
    count_rcode(answer.message, env.shard);
    count_latency(latency, env.shard);
    let answered = Answered {
        server: waiting.server,
        latency_microseconds: latency.as_micros().try_into().unwrap_or(u32::MAX),
    };
    env.shard.rings.record_response(answer, env.now, answered);
}

/// Counts a zone transfer that a server begins to send, by the response code of its first message. dnsdist's manual has one
/// response for each query ("queries - noncompliant-queries = responses - …"), however many messages that is.
pub fn count_transfer(code: u16, shard: &Shard) {
    shard.count(Counter::Responses);
    if code == rcode::SERVFAIL {
        shard.count(Counter::ServfailResponses);
    }
}

/// Counts that the first message of a transfer goes to its client, so long after the query came.
pub fn count_transfer_passed(message: &[u8], latency: Duration, shard: &Shard) {
    count_rcode(message, shard);
    count_latency(latency, shard);
}

/// The latency-* counters.
fn count_latency(latency: Duration, shard: &Shard) {
    shard.count(match latency.as_millis() {
        0 => Counter::Latency0To1,
        1..10 => Counter::Latency1To10,
        10..50 => Counter::Latency10To50,
        50..100 => Counter::Latency50To100,
        100..1_000 => Counter::Latency100To1000,
        _ => Counter::LatencySlow,
    });
    shard.count(Counter::LatencyCount);
    shard.add(Counter::LatencySumMicroseconds, latency.as_micros() as u64);
}

/// Turns the query in its buffer into an answer with `rcode` and no records; the answer's length in bytes.
pub fn with_rcode(query: &mut Query<'_>, env: &Env<'_>, rcode: u16) -> usize {
    restore_flags(query);
    let edns = edns(query, &env.config.tuning);
    wire::answer::with_rcode(query.message, &query.parts, rcode, edns)
}

/// An answer without records that says: ask again over TCP; its length in bytes.
pub fn truncated(query: &mut Query<'_>, env: &Env<'_>) -> usize {
    restore_flags(query);
    let edns = edns(query, &env.config.tuning);
    wire::answer::truncated(query.message, &query.parts, edns)
}

/// Gives the client an answer that was made or found here, `length` bytes of the query's buffer: through its chain of rules,
/// cut if it is too long, counted.
pub(super) fn give<'c>(
    chain: &[ResponseRule],
    query: &mut Query<'_>,
    length: usize,
    env: &mut Env<'c>,
) -> Verdict<'c> {
    query.length = length;
    // Extras are seen to by the same way, which a query without them does not take.
    if (!chain.is_empty() || query.extras.is_some())
        && let Err(reason) = take_through(chain, query, env)
    {
        return match reason {
            DropReason::ResponseSuspended => HandOver::of(query, HandOverReason::Suspended, None),
            reason => Verdict::Drop(reason),
        };
    }
    send(query, env)
}

/// The same for one that a function had suspended behind its rules.
#[cold]
pub(super) fn give_suspended<'c>(mut response: Response<'_>, env: &mut Env<'c>) -> Verdict<'c> {
    finish_rules(&mut response, env);
    send(&mut response.view, env)
}

/// Sends an answer that was made or found here.
#[inline(always)]
fn send<'c>(query: &mut Query<'_>, env: &mut Env<'c>) -> Verdict<'c> {
    if query.length > query.limit {
        query.length = wire::answer::truncate_response(query.message, query.length);
    }
    count_own(query.message, env.shard);
    if delay_of(query) > Duration::ZERO {
        let reason = HandOverReason::Delayed;
        return HandOver::of(query, reason, None);
    }
    Verdict::Answer(query.length)
}

/// How long the answer is to wait: dnsdist's manual on DelayAction: "UDP-only".
fn delay_of(query: &Query<'_>) -> Duration {
    match (query.extras.as_deref(), query.protocol) {
        (Some(extras), Protocol::Udp) => extras.delay,
        _ => Duration::ZERO,
    }
}

/// Rules on what lies as an answer in the query's buffer.
fn take_through(
    chain: &[ResponseRule],
    query: &mut Query<'_>,
    env: &mut Env<'_>,
) -> Result<(), DropReason> {
    let Ok(parts) = parse_response(query.bytes()) else {
        return Err(DropReason::ResponseMalformed);
    };
    let extras = query.extras.take();
    let client_edns = query.knows_edns();
    let view = Query {
        message: std::mem::take(&mut query.message),
        spare: query.spare.take(),
        parts: QueryParts {
            end: parts.end,
            edns: parts.edns,
            ..query.parts
        },
        extras,
        ..*query
    };
    let mut response = Response {
        view,
        server: None,
        asked: env.now,
        may_wait: true,
        client_edns,
        maximum_returned_ttl: None,
    };
    response::apply(chain, &mut response, env)?;
    let extras = response.view.extras.as_ref();
    let is_suspended = extras.is_some_and(|extras| extras.suspended.is_some());
    match is_suspended {
        true => suspended::keep_answer(&response.view.extras, response.wishes()),
        false => finish_rules(&mut response, env),
    }
    let view = response.view;
    (query.message, query.spare) = (view.message, view.spare);
    (query.length, query.extras) = (view.length, view.extras);
    match is_suspended {
        true => Err(DropReason::ResponseSuspended),
        false => Ok(()),
    }
}

/// What rules left to do until the cache had its turn.
pub(super) fn finish_rules(response: &mut Response<'_>, env: &Env<'_>) {
    let wanted = response
        .view
        .extras
        .as_ref()
        .and_then(|extras| extras.maximum_returned_ttl);
    if let Some(maximum) = wanted
        .into_iter()
        .chain(response.maximum_returned_ttl)
        .min()
    {
        cap_ttls(&mut response.view, maximum);
    }
    let carried = response.view.extras.take();
    if let Some(extras) = carried.as_deref() {
        // RFC 6891 §7: to a request without an OPT record "the responder MUST NOT include an OPT record in its response".
        if response.client_edns && !extras.errors.is_empty() {
            let payload_size = env.config.tuning.payload_size_self_generated;
            extras::add_errors(&mut response.view, extras, payload_size);
        }
        response.view.extras = carried;
    }
}

/// Counts an answer that was made or found here: since 1.8 dnsdist's `responses` holds these too, and they take part in
/// the latencies, with 0.
pub fn count_own(message: &[u8], shard: &Shard) {
    shard.count(Counter::Responses);
    count_rcode(message, shard);
    count_latency(Duration::ZERO, shard);
}

/// Counts what a zone of ours answers beside the packet path: one response for each query, a transfer by its first message.
pub fn count_from_zone(message: &[u8], shard: &Shard) {
    shard.count(Counter::SelfAnswered);
    count_own(message, shard);
}

/// The frontend-* counters, by the four bits of response code that are in the header.
fn count_rcode(message: &[u8], shard: &Shard) {
    match Header::read(message).map(|header| header.rcode().into()) {
        Some(rcode::NOERROR) => shard.count(Counter::FrontendNoerror),
        Some(rcode::NXDOMAIN) => shard.count(Counter::FrontendNxdomain),
        Some(rcode::SERVFAIL) => shard.count(Counter::FrontendServfail),
        _ => {}
    }
}

/// setAddEDNSToSelfGeneratedResponses and setPayloadSizeOnSelfGeneratedAnswers. An OPT record that a rule has put into the query
/// is not the client's (RFC 6891 §7).
#[inline]
fn edns(query: &Query<'_>, tuning: &Tuning) -> EdnsPolicy {
    if !tuning.edns_in_self_generated || query.marks.edns_added {
        return EdnsPolicy::Omit;
    }
    EdnsPolicy::Answer {
        payload_size: tuning.payload_size_self_generated,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::server::ServerId;
    use crate::clock::Now;
    use crate::pipeline::rules::actions::response::{
        DropResponseAction, LimitTTLResponseAction, SetEDNSOptionResponseAction,
        SetExtendedDNSErrorResponseAction, SetMaxReturnedTTLResponseAction, TCResponseAction,
    };
    use crate::pipeline::rules::response::{ResponseAction, ResponseOutcome, ResponseRule};
    use crate::pipeline::rules::selectors::logic::AllRule;
    use crate::pipeline::scene::{Scene, answer_to, query, query_with_edns};
    use wire::codes::qtype;

    /// What waits for the answer to `message`, asked 7 ms ago.
    fn waiting(scene: &mut Scene, message: &[u8]) -> Waiting {
        let now = scene.now;
        scene.parse(message, |query| {
            let mut waiting = Waiting::new();
            waiting.server = ServerId(3);
            waiting.client = *query.client();
            waiting.destination = *query.destination();
            waiting.way = *query.way;
            waiting.limit = query.limit;
            waiting.client_flags = query.client_flags;
            waiting.sent = Now(now.0 - 7_000_000);
            waiting.query[..message.len()].copy_from_slice(message);
            waiting.query_length = message.len();
            waiting.parts = query.parts;
            waiting
        })
    }

    fn respond(
        scene: &mut Scene,
        waiting: &mut Waiting,
        bytes: &[u8],
    ) -> Result<Vec<u8>, DropReason> {
        let mut message = bytes.to_vec();
        message.resize(4_096, 0);
        scene.with_env(|env| {
            let length = response(waiting, &mut message, bytes.len(), env)?;
            Ok(message[..length].to_vec())
        })
    }

    #[test]
    fn the_client_gets_its_id_its_case_and_its_flags() {
        let mut scene = Scene::default();
        let asked = query("wWw.Example.", qtype::A);
        let mut waiting = waiting(&mut scene, &asked);
        // A rule had set CD and taken RD off.
        waiting.query[2..4].copy_from_slice(&[0, 0x10]);
        let mut sent = query("www.example.", qtype::A);
        sent[..4].copy_from_slice(&[0xab, 0xcd, 0, 0x10]);
        let answer = respond(&mut scene, &mut waiting, &answer_to(&sent, 0, &[300, 20])).unwrap();
        assert_eq!(answer[..4], [0x12, 0x34, 0x81, 0x80]);
        assert_eq!(answer[12..asked.len()], asked[12..]);
        for (counter, count) in [
            (Counter::Responses, 1),
            (Counter::FrontendNoerror, 1),
            (Counter::Latency1To10, 1),
            (Counter::LatencySumMicroseconds, 7_000),
        ] {
            assert_eq!(scene.counted(counter), count, "{counter:?}");
        }
        let [entry] = &scene.shard.rings.responses()[..] else {
            panic!("one response")
        };
        let answered = Answered {
            server: ServerId(3),
            latency_microseconds: 7_000,
        };
        assert_eq!(entry.answered, Some(answered));
    }

    #[test]
    fn an_answer_too_long_for_the_client_is_cut_and_what_trails_is_left_out() {
        let mut scene = Scene::default();
        let asked = query("a.", qtype::A);
        let mut waiting = waiting(&mut scene, &asked);
        let long = answer_to(&asked, 0, &[300; 40]);
        assert!(long.len() > 512);
        let answer = respond(&mut scene, &mut waiting, &long).unwrap();
        assert_eq!((answer.len(), answer[2] & 2), (asked.len(), 2));
        let short = answer_to(&asked, 0, &[300]);
        let trailing = [&short[..], b"xyz"].concat();
        assert_eq!(respond(&mut scene, &mut waiting, &trailing).unwrap(), short);
    }

    #[test]
    fn an_error_without_a_question_gets_one() {
        let mut scene = Scene::default();
        let asked = query_with_edns("a.", qtype::A, Some(1_232));
        let mut waiting = waiting(&mut scene, &asked);
        let formerr = [0, 0, 0x81, 1, 0, 0, 0, 0, 0, 0, 0, 0];
        let answer = respond(&mut scene, &mut waiting, &formerr).unwrap();
        assert_eq!(answer[3] & 15, 1);
        assert_eq!(answer[4..12], [0, 1, 0, 0, 0, 0, 0, 0]);
        assert_eq!(answer[12..], asked[12..asked.len() - 11]);
        let opt = &asked[asked.len() - 11..];
        let with_opt = [&[0, 0, 0x81, 1, 0, 0, 0, 0, 0, 0, 0, 1], opt].concat();
        let answer = respond(&mut scene, &mut waiting, &with_opt).unwrap();
        assert_eq!(answer[12..], asked[12..]);
        let with_record = [&formerr[..7], &[1, 0, 0, 0, 0], &[0; 11]].concat();
        let refused = respond(&mut scene, &mut waiting, &with_record);
        assert_eq!(refused, Err(DropReason::ResponseMalformed));
    }

    /// An option that a rule has put into the query may be answered with a code that has no room in the header.
    #[test]
    fn an_extended_code_is_servfail_to_a_client_without_edns() {
        let mut scene = Scene::default();
        let asked = query("a.", qtype::A);
        let mut waiting = waiting(&mut scene, &asked);
        waiting.marks.edns_added = true;
        let mut badvers = answer_to(&asked, 0, &[]);
        badvers[11] = 1;
        badvers.extend([0, 0, 41, 2, 0, 1, 0, 0, 0, 0, 0]);
        let answer = respond(&mut scene, &mut waiting, &badvers).unwrap();
        assert_eq!((answer[3] & 15, answer.len()), (2, asked.len()));
    }

    /// RFC 8914 §3.
    #[test]
    fn f8_an_error_too_long_for_the_client_is_left_out_and_records_are_not() {
        let mut scene = Scene::default();
        let error = extras::ExtendedError {
            code: 15,
            text: Box::from([b'x'; 500]),
        };
        let action = SetExtendedDNSErrorResponseAction { error, clear: true };
        let rules = vec![ResponseRule::new(AllRule, action)];
        scene.change(|config| config.chains.response = rules);
        let asked = query_with_edns("a.", qtype::A, Some(512));
        let mut waiting = waiting(&mut scene, &asked);
        let answer = respond(&mut scene, &mut waiting, &answer_to(&asked, 0, &[300])).unwrap();
        assert_eq!((answer[2] & 2, ttls(&answer)), (2, vec![300]));
    }

    #[test]
    fn what_is_malformed_or_for_another_question_is_none() {
        let mut scene = Scene::default();
        let asked = query("a.", qtype::A);
        let mut waiting = waiting(&mut scene, &asked);
        let mut short = answer_to(&asked, 0, &[300]);
        short.pop();
        let malformed = respond(&mut scene, &mut waiting, &short);
        assert_eq!(malformed, Err(DropReason::ResponseMalformed));
        assert_eq!(scene.counted(Counter::NoncompliantResponses), 1);
        let other = answer_to(&query("other.", qtype::A), 0, &[300]);
        let mismatch = respond(&mut scene, &mut waiting, &other);
        assert_eq!(mismatch, Err(DropReason::ResponseMismatch));
    }

    #[test]
    fn rules_see_the_clients_id() {
        struct Look;
        impl ResponseAction for Look {
            fn act(&self, response: &mut Response<'_>, _: &mut Env<'_>) -> ResponseOutcome {
                assert_eq!(response.view.header().id(), 0x1234);
                ResponseOutcome::Continue
            }

            fn describe(&self) -> String {
                String::new()
            }
        }
        let mut scene = Scene::default();
        let rules = vec![ResponseRule::new(AllRule, Look)];
        scene.change(|config| config.chains.response = rules);
        let asked = query("a.", qtype::A);
        let mut waiting = waiting(&mut scene, &asked);
        let mut sent = answer_to(&asked, 0, &[300]);
        sent[..2].copy_from_slice(&[0xab, 0xcd]);
        assert!(respond(&mut scene, &mut waiting, &sent).is_ok());
        assert_eq!(scene.config.chains.response[0].matches.sum(), 1);
    }

    /// RFC 8945 §5.1: nothing is behind the TSIG record; §5.5: who has no key changes nothing.
    #[test]
    fn a_signed_response_gets_no_option() {
        let asked = query_with_edns("a.", qtype::A, Some(1_232));
        let mut signed = answer_to(&query("a.", qtype::A), 0, &[300]);
        signed[11] += 1;
        signed.extend([0, 0, qtype::TSIG as u8, 0, 255, 0, 0, 0, 0, 0, 0]);
        let option = SetEDNSOptionResponseAction {
            code: 65_001,
            value: Box::from(*b"abc"),
        };
        let error = SetExtendedDNSErrorResponseAction {
            error: extras::ExtendedError {
                code: 15,
                text: Box::from(*b"no"),
            },
            clear: false,
        };
        let mut scene = Scene::default();
        let rules = vec![
            ResponseRule::new(AllRule, option),
            ResponseRule::new(AllRule, error),
        ];
        scene.change(|config| config.chains.response = rules);
        let mut waiting = waiting(&mut scene, &asked);
        let answer = respond(&mut scene, &mut waiting, &signed).unwrap();
        assert_eq!(answer[4..], signed[4..]);
    }

    fn after_rule(action: impl ResponseAction + 'static) -> Result<Vec<u8>, DropReason> {
        after_rules(vec![ResponseRule::new(AllRule, action)])
    }

    fn after_rules(rules: Vec<ResponseRule>) -> Result<Vec<u8>, DropReason> {
        let mut scene = Scene::default();
        scene.change(|config| config.chains.response = rules);
        let asked = query("a.", qtype::A);
        let mut waiting = waiting(&mut scene, &asked);
        respond(&mut scene, &mut waiting, &answer_to(&asked, 0, &[300, 20]))
    }

    fn ttls(answer: &[u8]) -> Vec<u32> {
        let parts = parse_response(answer).unwrap();
        let mut places = [0; 8];
        let ttls = wire::ttl::collect(answer, &parts, &mut places).unwrap();
        let read = |&place: &u16| {
            answer[place.into()..][..4]
                .try_into()
                .map(u32::from_be_bytes)
        };
        places[..ttls.count]
            .iter()
            .map(|place| read(place).unwrap())
            .collect()
    }

    #[test]
    fn response_rules_change_and_drop() {
        assert_eq!(
            after_rule(DropResponseAction),
            Err(DropReason::ResponseRule)
        );
        let limit = LimitTTLResponseAction {
            minimum: 60,
            maximum: 100,
            types: Vec::new(),
        };
        assert_eq!(ttls(&after_rule(limit).unwrap()), [100, 60]);
        let of_others = LimitTTLResponseAction {
            minimum: 60,
            maximum: 100,
            types: vec![qtype::MX],
        };
        assert_eq!(ttls(&after_rule(of_others).unwrap()), [300, 20]);
        let returned = SetMaxReturnedTTLResponseAction { maximum: 30 };
        assert_eq!(ttls(&after_rule(returned).unwrap()), [30, 20]);
        let truncated = after_rule(TCResponseAction).unwrap();
        assert_eq!((truncated[2] & 2, ttls(&truncated).len()), (2, 0));
        let last = after_rules(vec![
            ResponseRule::new(AllRule, TCResponseAction),
            ResponseRule::new(AllRule, DropResponseAction),
        ]);
        assert_eq!(last, Ok(truncated), "no rule behind it is tried");
    }
}
