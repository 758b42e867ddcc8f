//! Rules on the messages of zone transfers that backends send (addXFRResponseAction).

use super::Env;
use super::carried::Carried;
use super::drop::DropReason;
use super::extras::{Marks, take_out_marked};
use super::query::octets;
use super::respond::{as_query, edit_header, finish_rules};
use super::rules::response::{self, Response};
use crate::backend::exchange::Waiting;
use crate::heap;
use wire::message::{EdnsParts, HEADER_LENGTH, QueryParts, parse_response};

/// Takes one message of a transfer through the rules; its length in bytes then, see [`Waiting::answer`].
///
/// RFC 5936 section 2.2.1: only the first message must have a question. Of one without the rules see a copy with it; what
/// they make of that is lost. What only the query to the backend had is in none.
///
/// # Errors
/// A rule dropped it, it is malformed, or there is no memory to look at it.
pub fn judge(
    waiting: &mut Waiting,
    message: &mut [u8],
    env: &mut Env<'_>,
) -> Result<usize, DropReason> {
    let length = without_marked(waiting, message).ok_or(DropReason::ResponseMalformed)?;
    let message = &mut message[..length];
    let parts = parse_response(message).map_err(|_| DropReason::ResponseMalformed)?;
    if parts.question.is_some() {
        return apply(waiting, message, (parts.end, parts.edns), env);
    }
    let mut copy = with_question(waiting, message).ok_or(DropReason::OutOfMemory)?;
    let end = octets(copy.len());
    apply(waiting, &mut copy, (end, None), env)?;
    waiting.outgrown.clear();
    Ok(message.len())
}

/// Takes out of the message what only the query to the backend had; the octets that are left. `None`: it is malformed.
fn without_marked(waiting: &Waiting, message: &mut [u8]) -> Option<usize> {
    if waiting.marks == Marks::default() {
        return Some(message.len());
    }
    let found = parse_response(message).ok()?;
    let parts = QueryParts {
        end: found.end,
        edns: found.edns,
        ..waiting.parts
    };
    let ends = ((&waiting.client, &waiting.destination), &waiting.way);
    let mut view = as_query(waiting, ends, message, parts);
    take_out_marked(&mut view);
    Some(view.length)
}

fn with_question(waiting: &Waiting, message: &[u8]) -> Option<Vec<u8>> {
    let question = waiting.parts.question(&waiting.query);
    let (header, records) = message.split_at(HEADER_LENGTH);
    let mut copy = heap::joined(&[header, question, records])?;
    edit_header(&mut copy, |header| header.set_question_count(1));
    Some(copy)
}

fn apply(
    waiting: &mut Waiting,
    message: &mut [u8],
    (end, edns): (u16, Option<EdnsParts>),
    env: &mut Env<'_>,
) -> Result<usize, DropReason> {
    let config = env.config;
    let parts = QueryParts {
        end,
        edns,
        ..waiting.parts
    };
    let mut outgrown = std::mem::take(&mut waiting.outgrown);
    outgrown.clear();
    let ends = ((&waiting.client, &waiting.destination), &waiting.way);
    let mut view = as_query(waiting, ends, message, parts);
    view.spare = Some(&mut outgrown);
    view.carry(without_wishes(waiting.extras.take()));
    let mut response = Response {
        view,
        server: Some(waiting.server),
        asked: waiting.sent,
        may_wait: false,
        client_edns: waiting.parts.edns.is_some() && !waiting.marks.edns_added,
        maximum_returned_ttl: None,
    };
    response::apply(&config.chains.xfr, &mut response, env)?;
    finish_rules(&mut response, env);
    let length = response.view.length;
    waiting.outgrown = outgrown;
    Ok(length)
}

/// What rules on the query want of its answer is not for zone data, of which no message without a question would have it: only
/// rules on transfers change them.
fn without_wishes(mut carried: Carried) -> Carried {
    if let Some(extras) = carried.as_mut() {
        extras.maximum_returned_ttl = None;
        extras.errors.clear();
        extras.clear_errors = false;
    }
    carried
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipeline::extras::ExtendedError;
    use crate::pipeline::rules::actions::response::{
        SetExtendedDNSErrorResponseAction, SetMaxReturnedTTLResponseAction,
    };
    use crate::pipeline::rules::response::ResponseRule;
    use crate::pipeline::rules::selectors::logic::AllRule;
    use crate::pipeline::scene::{Scene, answer_to, query, query_with_edns};
    use wire::codes::{edns_option, qtype};
    use wire::message::{Header, Records};

    /// What waits for a transfer that `asked` asks for.
    fn waiting_for(scene: &mut Scene, asked: &[u8]) -> Waiting {
        let mut waiting = Waiting::new();
        waiting.parts = scene.parse(asked, |query| query.parts);
        waiting.query[..asked.len()].copy_from_slice(asked);
        waiting.query_length = asked.len();
        waiting
    }

    #[test]
    fn what_rules_leave_to_the_end_is_done() {
        let error = ExtendedError {
            code: 15,
            text: Box::from(*b"no"),
        };
        let error = SetExtendedDNSErrorResponseAction { error, clear: true };
        let mut scene = Scene::default();
        let rules = vec![
            ResponseRule::new(AllRule, SetMaxReturnedTTLResponseAction { maximum: 30 }),
            ResponseRule::new(AllRule, error),
        ];
        scene.change(|config| config.chains.xfr = rules);
        let asked = query_with_edns("a.", qtype::AXFR, Some(1_232));
        let mut waiting = waiting_for(&mut scene, &asked);
        // Of a rule on the query: that is for answers.
        waiting.extras.get_or_insert_default().maximum_returned_ttl = Some(7);
        let mut received = answer_to(&query("a.", qtype::AXFR), 0, &[300, 20]);
        let judged = scene.with_env(|env| judge(&mut waiting, &mut received, env));
        let message = &waiting.outgrown[..judged.unwrap()];
        let parts = parse_response(message).unwrap();
        let header = Header::read(message).unwrap();
        let records = Records::new(message, parts.question_end, &header).flatten();
        let ttls: Vec<u32> = records.map(|record| record.ttl).take(2).collect();
        assert_eq!(ttls, [30, 20]);
        let option = parts.edns.unwrap();
        let option = option.option(message, edns_option::EXTENDEDERROR);
        assert_eq!(option, Some(&b"\0\x0fno"[..]));
    }

    /// RFC 6891 §7: who asks without an OPT record gets none, in no message of a transfer.
    #[test]
    fn an_opt_record_of_ours_is_not_answered() {
        let mut scene = Scene::default();
        let asked = query("a.", qtype::AXFR);
        let mut waiting = waiting_for(&mut scene, &asked);
        waiting.marks.edns_added = true;
        let first = answer_to(&asked, 0, &[300]);
        let mut second = vec![0x12, 0x34, 0x80, 0, 0, 0, 0, 1, 0, 0, 0, 0];
        second.extend([1, b'a', 0, 0, 1, 0, 1, 0, 0, 1, 44, 0, 4, 192, 0, 2, 1]);
        for message in [first, second] {
            let mut received = message.clone();
            received[11] = 1;
            received.extend([0, 0, 41, 2, 0, 0, 0, 0, 0, 0, 0]);
            let judged = scene.with_env(|env| judge(&mut waiting, &mut received, env));
            assert_eq!(judged, Ok(message.len()));
            assert_eq!(received[..message.len()], message);
        }
    }
}
