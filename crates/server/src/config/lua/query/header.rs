//! DNSHeader: `dq.dh`.

use super::super::objects::object;
use super::super::options::Flag;
use super::subject::{Live, Shared, with};
use mlua::{FromLua, Lua, UserData, UserDataMethods, Value};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use wire::message::Header;

/// The header of what `dq` or `dr` looks at.
pub(super) struct DnsHeader(pub(super) Shared);

impl Live for DnsHeader {
    fn subject(&self) -> &Shared {
        &self.0
    }
}

type Get = fn(&Header) -> bool;
type Set = fn(&mut Header, bool);

const GETTERS: [(&str, Get); 7] = [
    ("getAA", |header| header.aa()),
    ("getAD", |header| header.ad()),
    ("getCD", |header| header.cd()),
    ("getQR", |header| header.qr()),
    ("getRA", |header| header.ra()),
    ("getRD", |header| header.rd()),
    ("getTC", |header| header.tc()),
];

const SETTERS: [(&str, Set); 7] = [
    ("setAA", |header, on| header.set_aa(on)),
    ("setAD", |header, on| header.set_ad(on)),
    ("setCD", |header, on| header.set_cd(on)),
    ("setQR", |header, on| header.set_qr(on)),
    ("setRA", |header, on| header.set_ra(on)),
    ("setRD", |header, on| header.set_rd(on)),
    ("setTC", set_tc),
];

/// With TC, RA becomes RD, as dnsdist 1.7.3 was seen to do.
fn set_tc(header: &mut Header, on: bool) {
    header.set_tc(on);
    if on {
        header.set_ra(header.rd());
    }
}

impl UserData for DnsHeader {
    fn add_methods<M: UserDataMethods<Self>>(methods: &mut M) {
        for (name, get) in GETTERS {
            methods.add_method(name, move |lua, header, ()| {
                with(lua, header, |subject| Ok(get(&subject.header())))
            });
        }
        for (name, set) in SETTERS {
            methods.add_method(name, move |lua, header, Flag(on): Flag| {
                with(lua, header, |subject| {
                    subject.edit_header(|header| set(header, on));
                    Ok(())
                })
            });
        }
        methods.add_method("getID", |lua, header, ()| {
            with(lua, header, |subject| Ok(subject.header().id()))
        });
    }
}

/// A header of its own, which belongs to no message: a copy, that of a DNSPacketOverlay, of a check, of an entry of the rings.
#[derive(Clone)]
pub(in super::super) struct OwnHeader(Arc<Mutex<Header>>);

impl OwnHeader {
    pub(in super::super) fn new(header: Header) -> OwnHeader {
        OwnHeader(Arc::new(Mutex::new(header)))
    }

    pub(super) fn get(&self) -> Header {
        *self.lock()
    }

    fn lock(&self) -> MutexGuard<'_, Header> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl FromLua for OwnHeader {
    fn from_lua(value: Value, _: &Lua) -> mlua::Result<OwnHeader> {
        object(&value, "what getHeader returns")
    }
}

impl UserData for OwnHeader {
    fn add_methods<M: UserDataMethods<Self>>(methods: &mut M) {
        for (name, get) in GETTERS {
            methods.add_method(name, move |_, header, ()| Ok(get(&header.get())));
        }
        for (name, set) in SETTERS {
            methods.add_method(name, move |_, header, Flag(on): Flag| {
                set(&mut header.lock(), on);
                Ok(())
            });
        }
        methods.add_method("getID", |_, header, ()| Ok(header.get().id()));
    }
}
