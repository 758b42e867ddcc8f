//! EDNSOptionView, and options that functions set (RFC 6891 §6.1.2).

use super::super::wrong;
use super::subject::Subject;
use crate::pipeline::query::MESSAGE_MAX;
use mlua::{UserData, UserDataMethods};
use std::collections::BTreeMap;
use wire::edit;
use wire::message::EdnsOption;

/// The values of one option in a message.
pub(super) struct EdnsOptionView(Vec<Vec<u8>>);

impl EdnsOptionView {
    /// All options of the message, by code.
    pub(super) fn all(subject: &Subject) -> BTreeMap<u16, EdnsOptionView> {
        let mut views = BTreeMap::new();
        let edns = subject.parts.edns.iter();
        for option in edns.flat_map(|edns| edns.options(&subject.message)) {
            let view = views.entry(option.code);
            let EdnsOptionView(values) = view.or_insert_with(|| EdnsOptionView(Vec::new()));
            values.push(option.value.to_vec());
        }
        views
    }
}

impl UserData for EdnsOptionView {
    fn add_methods<M: UserDataMethods<Self>>(methods: &mut M) {
        methods.add_method("count", |_, view, ()| Ok(view.0.len()));
        methods.add_method("getValues", |lua, view, ()| {
            let values = view.0.iter().map(|value| lua.create_string(value));
            let values = values.collect::<mlua::Result<Vec<_>>>()?;
            lua.create_sequence_from(values)
        });
    }
}

/// The UDP payload size of an OPT record that a query is given: what the client takes without one.
const PAYLOAD_SIZE: u16 = 512;

/// Gives the message the option, in place of those with its code. A query without EDNS gets it; a response to a client
/// without it stays as it is.
pub(super) fn set(subject: &mut Subject, code: u16, value: &[u8]) -> mlua::Result<()> {
    let before = subject.parts.edns;
    if before.is_none() && subject.header().qr() {
        return Ok(());
    }
    let end = usize::from(subject.parts.end);
    let trailing = subject.message[end..].to_vec();
    let mut message = subject.message[..end].to_vec();
    let (mut length, mut edns) = (end, before);
    let question_end = subject.parts.question_end;
    if let Some(found) = edns {
        let (shorter, left) =
            edit::remove_options(&mut message, (question_end, length), found, code);
        (length, edns) = (shorter, Some(left));
    }
    message.resize(length + edit::option_room(value), 0);
    let option = EdnsOption { code, value };
    let places = (question_end, length);
    let done = edit::set_option(&mut message, places, edns, option, PAYLOAD_SIZE);
    let fits = done.is_some_and(|(length, _)| {
        message.truncate(length);
        message.extend_from_slice(&trailing);
        subject.replace(message)
    });
    if !fits {
        return Err(wrong(format!(
            "setEDNSOption: no room for an option of {} bytes in a message of at most {MESSAGE_MAX}",
            value.len(),
        )));
    }
    subject.marks.edns_added |= before.is_none();
    Ok(())
}

/// Takes the options with this code out of the message.
pub(super) fn remove(subject: &mut Subject, code: u16) {
    let Some(edns) = subject.parts.edns else {
        return;
    };
    let end = usize::from(subject.parts.end);
    let mut message = subject.message[..end].to_vec();
    let places = (subject.parts.question_end, end);
    let (length, _) = edit::remove_options(&mut message, places, edns, code);
    message.truncate(length);
    message.extend_from_slice(&subject.message[end..]);
    // It was one before, and is shorter now.
    subject.replace(message);
}
