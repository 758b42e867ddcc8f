//! Rules on the messages of zone transfers that backends send (addXFRResponseAction).

use super::Env;
use super::drop::DropReason;
use super::respond::{as_query, edit_header};
use super::rules::response::{self, Response};
use crate::backend::exchange::Waiting;
use crate::heap;
use wire::message::{EdnsParts, HEADER_LENGTH, QueryParts, parse_response};

/// Takes one message of a transfer through the rules; its length in bytes then, see [`Waiting::answer`].
///
/// RFC 5936 section 2.2.1: only the first message must have a question. Of one without the rules see a copy with it; what
/// they make of that is lost.
///
/// # Errors
/// A rule dropped it, or there is no memory to look at it.
pub fn judge(
    waiting: &mut Waiting,
    message: &mut [u8],
    env: &mut Env<'_>,
) -> Result<usize, DropReason> {
    let parts = parse_response(message).map_err(|_| DropReason::ResponseMalformed)?;
    if parts.question.is_some() {
        return apply(waiting, message, (parts.end, parts.edns), env);
    }
    let mut copy = with_question(waiting, message).ok_or(DropReason::OutOfMemory)?;
    let end = copy.len().try_into().unwrap_or(u16::MAX);
    apply(waiting, &mut copy, (end, None), env)?;
    waiting.outgrown.clear();
    Ok(message.len())
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
    let mut view = as_query(waiting, message, parts);
    view.spare = Some(&mut outgrown);
    view.carry(waiting.extras.take());
    let mut response = Response {
        view,
        server: Some(waiting.server),
        asked: waiting.sent,
        client_edns: waiting.parts.edns.is_some(),
        maximum_returned_ttl: None,
    };
    response::apply(&config.chains.xfr, &mut response, env)?;
    let length = response.view.length;
    waiting.outgrown = outgrown;
    Ok(length)
}
