//! `dq:suspend`, `dr:suspend`, and what comes of it: getAsynchronousObject and the methods of AsynchronousObject.

use super::super::{define, wrong};
use super::question::Question;
use super::response::DnsResponse;
use super::subject::{Origin, Shared, Subject};
use crate::heap;
use crate::holder::{Holder, Reservation, Slot};
use crate::pipeline::Env;
use crate::pipeline::query::Query;
use crate::pipeline::suspended::{Rest, Suspended};
use mlua::{Lua, UserData, UserDataMethods};
use std::sync::Arc;

pub(super) fn register(lua: &Lua) -> mlua::Result<()> {
    define(
        lua,
        "getAsynchronousObject",
        |lua, (asynchronous_id, query_id): (u16, u16)| {
            let slot = holder(lua)?.find((asynchronous_id, query_id));
            Ok(slot.and_then(AsynchronousObject::of))
        },
    )
}

/// The holder of the state.
pub(super) fn holder(lua: &Lua) -> mlua::Result<Arc<Holder>> {
    let holder = lua.app_data_ref::<Arc<Holder>>();
    let holder = holder.ok_or_else(|| wrong("the state has lost its holder"))?;
    Ok(Arc::clone(&holder))
}

/// Whether a function has suspended it.
pub(super) fn is_suspended(query: &Query<'_>) -> bool {
    let extras = query.extras.as_ref();
    extras.is_some_and(|extras| extras.suspended.is_some())
}

/// Puts into its place what a function has suspended. To be called behind the lock of the state: whoever the function has told of
/// it will find it.
#[cold]
pub(super) fn hold(
    reservation: Reservation,
    query: &mut Query<'_>,
    origin: Origin,
    env: &Env<'_>,
) -> mlua::Result<()> {
    let message = heap::copy(query.bytes()).ok_or_else(|| wrong("no memory to suspend it"))?;
    let (client, destination) = query.ends;
    let (found, extras) = (query.found(), query.extras.take());
    let ticket = reservation.fill(|place| Suspended {
        config: Arc::clone(env.config),
        message,
        found,
        extras,
        ends: (*client, *destination),
        protocol: query.protocol,
        way: *query.way,
        asked: origin.asked,
        server: origin.server,
        rest: Rest::default(),
        place,
    });
    query.extras().suspended = Some(ticket);
    Ok(())
}

/// AsynchronousObject: "a representation of a DNS query or response that has been suspended".
struct AsynchronousObject {
    slot: Arc<Slot>,
    subject: Shared,
    is_response: bool,
}

impl AsynchronousObject {
    fn of(slot: Arc<Slot>) -> Option<AsynchronousObject> {
        let (subject, is_response) = slot.look(|suspended| {
            let is_response = suspended.view().header().qr();
            (Subject::of(suspended), is_response)
        })?;
        Some(AsynchronousObject {
            slot,
            subject,
            is_response,
        })
    }

    /// What it looks at, as long as that waits.
    fn subject(&self) -> mlua::Result<Shared> {
        match self.slot.look(|_| ()) {
            Some(()) => Ok(Arc::clone(&self.subject)),
            None => Err(wrong(
                "it was resumed or dropped already, or its time was over",
            )),
        }
    }
}

impl UserData for AsynchronousObject {
    fn add_methods<M: UserDataMethods<Self>>(methods: &mut M) {
        methods.add_method("getDQ", |_, object, ()| Ok(Question(object.subject()?)));
        methods.add_method("getDR", |_, object, ()| match object.is_response {
            true => Ok(DnsResponse(object.subject()?)),
            false => Err(wrong("a query was suspended: getDQ returns it")),
        });
        methods.add_method(
            "setRCode",
            |_, object, (code, clear): (u8, Option<bool>)| {
                let is_held = object.slot.look(|_| ()).is_some();
                if is_held {
                    Subject::change(&object.subject, &|subject| {
                        subject.answer_with(code, clear.unwrap_or_default());
                        Ok(())
                    })?;
                }
                Ok(is_held)
            },
        );
        methods.add_method("resume", |_, object, ()| {
            let put = |suspended: &mut Suspended| Subject::put_into(&object.subject, suspended);
            Ok(object.slot.release(put))
        });
        methods.add_method("drop", |_, object, ()| Ok(object.slot.discard()));
    }
}
