//! changeName: another name asked for, and the first one put back into the response.

use super::subject::Subject;
use wire::edit;
use wire::name::Name;

/// Gives the message another name in its question, and in a response to the owners that were that name. False, and nothing
/// has changed: a record is malformed, or there is no room.
pub(super) fn change(subject: &mut Subject, name: Name<'_>) -> bool {
    let question_end = subject.parts.question_end;
    let Some(mut message) = edit::rename(&subject.message, question_end, name) else {
        return false;
    };
    message.extend_from_slice(&subject.message[subject.parts.end.into()..]);
    if !subject.replace(message) {
        return false;
    }
    // An answer from the cache would be one to the other name.
    subject.skip_cache = true;
    subject.extras().renamed = true;
    true
}
