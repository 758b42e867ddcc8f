//! changeName: another name asked for, and the first one put back into the response.

use super::subject::Subject;
use wire::codes::rcode;
use wire::edit;
use wire::name::Name;

/// Gives the message another name in its question, and in a response to the owners that were that name. False: a record is
/// malformed, or there is no room. A query is then as it was; a response says SERVFAIL under the name, without records: under
/// the name that it had, no client would take it.
pub(super) fn change(subject: &mut Subject, name: Name<'_>) -> bool {
    let question_end = subject.parts.question_end;
    let renamed = edit::rename(&subject.message, question_end, name);
    let is_done = renamed.is_some_and(|mut message| {
        message.extend_from_slice(&subject.message[subject.parts.end.into()..]);
        subject.replace(message)
    });
    if is_done || subject.header().qr() && fail(subject, name) {
        // An answer from the cache would be one to the other name.
        subject.skip_cache = true;
        subject.extras().renamed = true;
    }
    is_done
}

/// Makes a response one that says SERVFAIL under this name, and no more. False: it has no question (SpoofPacketAction sends
/// what it was given).
fn fail(subject: &mut Subject, name: Name<'_>) -> bool {
    let end = usize::from(subject.parts.question_end);
    let Some(type_and_class) = subject.message.get(end - 4..end) else {
        return false;
    };
    let mut header = subject.header();
    header.set_rcode(rcode::SERVFAIL as u8);
    header.set_answer_count(0);
    header.set_authority_count(0);
    header.set_additional_count(0);
    let mut message = header.as_bytes().to_vec();
    message.extend_from_slice(name.as_bytes());
    message.extend_from_slice(type_and_class);
    subject.replace(message)
}
