//! DNSResponse: `dr`.

use super::super::objects::server::ServerObject;
use super::super::{spec, wrong};
use super::subject::{Live, Shared, Subject, with};
use super::{messages, question};
use crate::config::lua::objects::unknown_is_nil;
use crate::pipeline::restart::RESTARTS_MAX;
use mlua::{Function, Lua, UserData, UserDataFields, UserDataMethods};
use wire::codes::qtype;
use wire::message::{Records, Section};

/// What functions on responses are given.
pub(super) struct DnsResponse(pub(super) Shared);

impl Live for DnsResponse {
    fn subject(&self) -> &Shared {
        &self.0
    }
}

impl UserData for DnsResponse {
    fn add_fields<F: UserDataFields<Self>>(fields: &mut F) {
        unknown_is_nil(fields);
        messages::add_fields(fields);
        fields.add_field_method_get("dh", |lua, object| {
            let own = super::object(lua, |objects| &objects.response)?;
            super::header_of(lua, &object.0, own)
        });
        question::add_wishes(fields);
    }

    fn add_methods<M: UserDataMethods<Self>>(methods: &mut M) {
        messages::add_methods(methods);
        question::add_answers(methods);
        // There is no query left to keep.
        methods.add_method("setRestartable", |lua, object, ()| {
            with(lua, object, |_| Ok(false))
        });
        methods.add_method("editTTLs", |lua, object, edit: Function| {
            edit_ttls(lua, object, &edit)
        });
        methods.add_method("getSelectedBackend", |lua, object, ()| {
            let server = with(lua, object, |subject| Ok(subject.server))?;
            let spec = spec(lua)?;
            let entry = spec.servers.iter().find(|entry| {
                let live = entry.live.as_ref();
                server.is_some() && live.map(|live| live.number) == server
            });
            Ok(entry.map(|entry| ServerObject(entry.key)))
        });
        methods.add_method("getStaleCacheHit", |lua, object, ()| {
            with(lua, object, |subject| {
                let extras = subject.extras.as_ref();
                Ok(extras.is_some_and(|extras| extras.stale))
            })
        });
        methods.add_method("getRestartCount", |lua, object, ()| {
            with(lua, object, |subject| Ok(restarts(subject)))
        });
        methods.add_method("restart", |lua, object, ()| {
            with(lua, object, |subject| Ok(restart(subject)))
        });
    }
}

/// "Discard the received response and restart the processing of the query." False: nobody made it restartable, it is no
/// response of a server, it was suspended, or it was asked again often enough.
fn restart(subject: &mut Subject) -> bool {
    let is_of_server = subject.server.is_some() && !subject.is_held;
    let restart = subject.extras.as_mut();
    let restart = restart.and_then(|extras| extras.restart.as_mut());
    match restart.filter(|restart| is_of_server && restart.times < RESTARTS_MAX) {
        Some(restart) => {
            restart.wanted = true;
            true
        }
        None => false,
    }
}

fn restarts(subject: &Subject) -> u16 {
    let restart = subject.extras.as_ref();
    let restart = restart.and_then(|extras| extras.restart.as_ref());
    restart.map_or(0, |restart| restart.times)
}

/// Where the TTL of a record is, and what the function is told of it.
#[derive(PartialEq)]
struct Ttl {
    place: usize,
    section: u8,
    class: u16,
    rtype: u16,
    /// Seconds.
    ttl: u32,
}

/// "Setting this TTL to 0 leaves it unchanged", and so does nil. The function may look at the response meanwhile, and not
/// change it.
fn edit_ttls(lua: &Lua, object: &DnsResponse, edit: &Function) -> mlua::Result<()> {
    let before = with(lua, object, |subject| Ok(ttls(subject)))?;
    let mut edited = Vec::with_capacity(before.len());
    for found in &before {
        let told = (found.section, found.class, found.rtype, found.ttl);
        let ttl: Option<u32> = edit.call(told)?;
        let ttl = ttl.unwrap_or(0);
        if ttl != 0 && ttl != found.ttl {
            edited.push((found.place, ttl));
        }
    }
    with(lua, object, |subject| {
        if ttls(subject) != before {
            return Err(wrong(
                "the function has changed the response: it may be changed before and after",
            ));
        }
        subject.write_ttls(&edited);
        Ok(())
    })
}

fn ttls(subject: &Subject) -> Vec<Ttl> {
    let records = Records::new(
        &subject.message,
        subject.parts.question_end,
        &subject.header(),
    );
    let records = records.filter_map(Result::ok);
    // The TTL of an OPT record is none (RFC 6891 §6.1.3).
    let records = records.filter(|record| record.rtype != qtype::OPT);
    records
        .map(|record| Ttl {
            place: record.ttl_start.into(),
            section: match record.section {
                Section::Answer => 1,
                Section::Authority => 2,
                Section::Additional => 3,
            },
            class: record.class,
            rtype: record.rtype,
            ttl: record.ttl,
        })
        .collect()
}
