//! getRingEntries: what is in the rings, as LuaRingEntry objects.

use super::super::define;
use super::super::objects::address::ComboAddress;
use super::super::objects::name::DnsName;
use super::super::query::OwnHeader;
use super::super::runtime::timespec;
use super::{rings, serving};
use crate::clock::Now;
use crate::config::lua::objects::unknown_is_nil;
use crate::pipeline::query::Protocol;
use crate::pipeline::rings::Entry;
use mlua::{Lua, UserData, UserDataFields};
use std::net::SocketAddr;
use std::time::SystemTime;
use wire::message::Header;

pub(super) fn register(lua: &Lua) -> mlua::Result<()> {
    define(lua, "getRingEntries", |lua, ()| {
        let queries = rings::queries(lua).into_iter();
        let entries = queries.chain(rings::responses(lua)).map(|entry| {
            let backend = backend_of(lua, &entry);
            RingEntry { entry, backend }
        });
        Ok(entries.collect::<Vec<_>>())
    })
}

fn backend_of(lua: &Lua, entry: &Entry) -> Option<SocketAddr> {
    let server = entry.answered?.server;
    let config = serving(lua)?.config();
    let found = config.servers.iter().find(|known| known.number == server);
    found.map(|found| found.options.address)
}

/// dnsdist's LuaRingEntry.
struct RingEntry {
    entry: Entry,
    /// Of responses, while the server is there.
    backend: Option<SocketAddr>,
}

impl UserData for RingEntry {
    fn add_fields<F: UserDataFields<Self>>(fields: &mut F) {
        unknown_is_nil(fields);
        fields.add_field_method_get("backend", |_, this| Ok(this.backend.map(ComboAddress)));
        fields.add_field_method_get("dnsheader", |_, this| {
            // Of the counts the rings keep this one; whatever is in them had a question.
            let mut header = Header::default();
            header.set_id(this.entry.id);
            header.set_flags(this.entry.flags);
            header.set_question_count(1);
            header.set_answer_count(this.entry.answers);
            Ok(OwnHeader::new(header))
        });
        fields.add_field_method_get("isResponse", |_, this| Ok(this.entry.answered.is_some()));
        // Nobody looked at it.
        fields.add_field_method_get("macAddress", |_, _| Ok(""));
        fields.add_field_method_get("protocol", |_, this| {
            Ok(match this.entry.protocol {
                Protocol::Udp => "Do53 UDP",
                Protocol::Tcp => "Do53 TCP",
            })
        });
        fields.add_field_method_get("qname", |_, this| Ok(DnsName(this.entry.name.clone())));
        fields.add_field_method_get("qtype", |_, this| Ok(this.entry.qtype));
        fields.add_field_method_get("requestor", |_, this| Ok(ComboAddress(this.entry.client)));
        fields.add_field_method_get("size", |_, this| Ok(this.entry.size));
        fields.add_field_method_get("usec", |_, this| {
            let answered = this.entry.answered;
            Ok(answered.map_or(0, |answered| answered.latency_microseconds))
        });
        fields.add_field_method_get("when", |lua, this| {
            let ago = Now::read().since(this.entry.time);
            timespec(lua, SystemTime::now() - ago)
        });
    }
}
