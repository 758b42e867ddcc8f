//! What `dq` and `dr` have in common: attributes and methods on the message, its tags and who sent it.

use super::super::objects::address::ComboAddress;
use super::super::objects::name::{AnyName, DnsName};
use super::super::options::Flag;
use super::super::runtime::timespec;
use super::super::{spec, wrong};
use super::asynchronous;
use super::fixed;
use super::header::OwnHeader;
use super::names;
use super::options::{self, EdnsOptionView};
use super::subject::{Live, Subject, with};
use crate::clock::Now;
use crate::config::pools::PoolId;
use crate::pipeline::extras::{ExtendedError, Tags};
use crate::pipeline::query::{MESSAGE_MAX, Protocol};
use mlua::{
    FromLua, IntoLua, LuaString, MultiValue, Table, UserDataFields, UserDataMethods, Value,
};
use std::net::SocketAddr;
use std::time::{Duration, SystemTime};
use wire::name::NameBuf;

/// What `dq.size` says over UDP, in bytes: dnsdist's default buffer.
const DATAGRAM_ROOM: usize = 4_096;

pub(super) fn add_fields<T: Live + 'static, F: UserDataFields<T>>(fields: &mut F) {
    facts(fields);
    fixed::add_fields(fields);
    decisions(fields);
    senders(fields);
}

/// An attribute to be read.
pub(super) fn get<T, F, R>(
    fields: &mut F,
    name: &'static str,
    look: impl Fn(&mut Subject) -> R + Send + 'static,
) where
    T: Live + 'static,
    F: UserDataFields<T>,
    R: IntoLua,
{
    fields.add_field_method_get(name, move |lua, object| {
        with(lua, object, |subject| Ok(look(subject)))
    });
}

/// An attribute to be written.
pub(super) fn set<T, F, A>(
    fields: &mut F,
    name: &'static str,
    change: impl Fn(&mut Subject, A) + Send + 'static,
) where
    T: Live + 'static,
    F: UserDataFields<T>,
    A: FromLua,
{
    fields.add_field_method_set(name, move |lua, object, value: A| {
        with(lua, object, |subject| {
            change(subject, value);
            Ok(())
        })
    });
}

fn facts<T: Live + 'static, F: UserDataFields<T>>(fields: &mut F) {
    get(fields, "localaddr", |subject| {
        ComboAddress(subject.destination)
    });
    get(fields, "remoteaddr", |subject| ComboAddress(subject.client));
    get(fields, "qname", |subject| {
        DnsName(NameBuf::from(subject.name()))
    });
    get(fields, "qtype", |subject| subject.parts.qtype);
    get(fields, "qclass", |subject| subject.parts.qclass);
    get(fields, "opcode", |subject| subject.header().opcode());
    get(fields, "len", |subject| subject.message.len());
    // The same over all doors, whatever the buffer is.
    get(fields, "size", |subject| match subject.protocol {
        Protocol::Udp => subject.message.len().max(DATAGRAM_ROOM),
        Protocol::Tcp => MESSAGE_MAX,
    });
    get(fields, "tcp", |subject| subject.protocol == Protocol::Tcp);
    get(fields, "rcode", |subject| subject.header().rcode());
    set(fields, "rcode", |subject, rcode: u8| {
        subject.set_rcode(rcode);
    });
}

fn decisions<T: Live + 'static, F: UserDataFields<T>>(fields: &mut F) {
    get(fields, "skipCache", |subject| subject.skip_cache);
    set(fields, "skipCache", |subject, Flag(skip): Flag| {
        subject.skip_cache = skip;
    });
    fields.add_field_method_get("pool", |lua, object| {
        let pool = with(lua, object, |subject| Ok(subject.pool))?;
        Ok(spec(lua)?.pool_names.name(pool).to_owned())
    });
    fields.add_field_method_set("pool", |lua, object, name: String| {
        let pool: PoolId = super::super::objects::pool::number(lua, &name)?;
        with(lua, object, |subject| {
            subject.pool = pool;
            Ok(())
        })
    });
}

/// For protobuf messages, which are not there yet.
fn senders<T: Live + 'static, F: UserDataFields<T>>(fields: &mut F) {
    for name in ["deviceID", "deviceName", "requestorID"] {
        fields.add_field_method_get(name, move |lua, object| {
            with(lua, object, |subject| {
                let extras = subject.extras.as_ref();
                let value = extras.and_then(|extras| extras.identities.get(name));
                lua.create_string(value.map_or(&b""[..], |value| value.as_slice()))
            })
        });
        set(fields, name, move |subject, value: LuaString| {
            let octets = value.as_bytes().to_vec();
            subject.extras().identities.insert(name, octets);
        });
    }
}

pub(super) fn add_methods<T: Live + 'static, M: UserDataMethods<T>>(methods: &mut M) {
    header(methods);
    content(methods);
    edns(methods);
    tags(methods);
    times(methods);
    doors(methods);
    super::proxy::add_methods(methods);
}

/// A header that is the function's own, as `dh` is not.
fn header<T: Live + 'static, M: UserDataMethods<T>>(methods: &mut M) {
    methods.add_method("getHeader", |lua, object, ()| {
        with(lua, object, |subject| Ok(OwnHeader::new(subject.header())))
    });
    // What is counted in the message, and whose it is, the message itself says.
    methods.add_method("setHeader", |lua, object, header: OwnHeader| {
        with(lua, object, |subject| {
            subject.edit_header(|mine| mine.set_flags(header.get().flags()));
            Ok(true)
        })
    });
}

fn content<T: Live + 'static, M: UserDataMethods<T>>(methods: &mut M) {
    methods.add_method("getContent", |lua, object, ()| {
        with(lua, object, |subject| lua.create_string(&subject.message))
    });
    methods.add_method("setContent", |lua, object, content: LuaString| {
        with(lua, object, |subject| {
            set_content(subject, &content.as_bytes())
        })
    });
    methods.add_method("getTrailingData", |lua, object, ()| {
        with(lua, object, |subject| {
            let end = usize::from(subject.parts.end);
            lua.create_string(subject.message.get(end..).unwrap_or_default())
        })
    });
    methods.add_method("setTrailingData", |lua, object, tail: LuaString| {
        with(lua, object, |subject| {
            let mut message = subject.message[..subject.parts.end.into()].to_vec();
            message.extend_from_slice(&tail.as_bytes());
            Ok(subject.replace(message))
        })
    });
    methods.add_method("changeName", |lua, object, name: AnyName| {
        with(lua, object, |subject| {
            Ok(names::change(subject, name.0.as_name()))
        })
    });
}

fn set_content(subject: &mut Subject, content: &[u8]) -> mlua::Result<()> {
    let mut message = content.to_vec();
    if let (Some(id), Some(mine)) = (message.get_mut(..2), subject.message.get(..2)) {
        id.copy_from_slice(mine);
    }
    let (was_answer, asked) = (subject.header().qr(), question(subject));
    // Its name may be another than the cache and the client expect.
    subject.skip_cache = true;
    if !subject.replace(message) {
        let length = content.len();
        return Err(wrong(format!(
            "setContent: a DNS message with one question and at most {MESSAGE_MAX} bytes expected, got {length} bytes"
        )));
    }
    subject.composed = true;
    if was_answer && question(subject) != asked {
        // The client's question may be of another length: put in its place it would destroy records.
        subject.extras().renamed = true;
    }
    Ok(())
}

/// Name, type and class that are asked for.
fn question(subject: &Subject) -> (NameBuf, u16, u16) {
    let parts = subject.parts;
    (NameBuf::from(subject.name()), parts.qtype, parts.qclass)
}

fn edns<T: Live + 'static, M: UserDataMethods<T>>(methods: &mut M) {
    methods.add_method("getDO", |lua, object, ()| {
        with(lua, object, |subject| {
            Ok(subject.parts.edns.is_some_and(|edns| edns.dnssec_ok))
        })
    });
    methods.add_method("getEDNSOptions", |lua, object, ()| {
        let views = with(lua, object, |subject| Ok(EdnsOptionView::all(subject)))?;
        lua.create_table_from(views)
    });
    methods.add_method(
        "setEDNSOption",
        |lua, object, (code, value): (u16, LuaString)| {
            with(lua, object, |subject| {
                options::set(subject, code, &value.as_bytes())
            })
        },
    );
    methods.add_method("removeEDNSOption", |lua, object, code: u16| {
        with(lua, object, |subject| {
            options::remove(subject, code);
            Ok(())
        })
    });
    methods.add_method(
        "setExtendedDNSError",
        |lua, object, (code, text, clear): (u16, Option<LuaString>, Option<Flag>)| {
            with(lua, object, |subject| {
                let text = text
                    .map(|text| text.as_bytes().to_vec())
                    .unwrap_or_default();
                let error = ExtendedError {
                    code,
                    text: text.into(),
                };
                subject.extras().add_error(error, Flag::or(clear, true));
                Ok(())
            })
        },
    );
}

fn tags<T: Live + 'static, M: UserDataMethods<T>>(methods: &mut M) {
    methods.add_method("getTag", |lua, object, key: LuaString| {
        with(lua, object, |subject| {
            let tags = subject.extras.as_ref().map(|extras| &extras.tags);
            let value = tags.and_then(|tags| tags.get(&key.as_bytes()[..]));
            lua.create_string(value.map_or(&[][..], |value| value))
        })
    });
    methods.add_method("getTagArray", |lua, object, ()| {
        let tags: Tags = with(lua, object, |subject| {
            let extras = subject.extras.as_ref();
            Ok(extras.map(|extras| extras.tags.clone()).unwrap_or_default())
        })?;
        let table = lua.create_table()?;
        for (key, value) in &tags {
            table.raw_set(lua.create_string(key)?, lua.create_string(value)?)?;
        }
        Ok(table)
    });
    methods.add_method(
        "setTag",
        |lua, object, (key, value): (LuaString, LuaString)| {
            with(lua, object, |subject| {
                subject.extras().set_tag(&key.as_bytes(), &value.as_bytes());
                Ok(())
            })
        },
    );
    methods.add_method("setTagArray", |lua, object, tags: Table| {
        let tags = tags.pairs::<LuaString, LuaString>();
        let tags = tags.collect::<mlua::Result<Vec<_>>>()?;
        with(lua, object, |subject| {
            for (key, value) in &tags {
                subject.extras().set_tag(&key.as_bytes(), &value.as_bytes());
            }
            Ok(())
        })
    });
    methods.add_method("unsetTag", |lua, object, key: LuaString| {
        with(lua, object, |subject| {
            if let Some(extras) = subject.extras.as_mut() {
                extras.tags.remove(&key.as_bytes()[..]);
            }
            Ok(())
        })
    });
}

fn times<T: Live + 'static, M: UserDataMethods<T>>(methods: &mut M) {
    methods.add_method("getElapsedUs", |lua, object, ()| {
        let received = with(lua, object, |subject| Ok(subject.received))?;
        Ok(Now::read().since(received).as_secs_f64() * 1e6)
    });
    methods.add_method("getQueryTime", |lua, object, ()| -> mlua::Result<Table> {
        let received = with(lua, object, |subject| Ok(subject.received))?;
        timespec(lua, SystemTime::now() - Now::read().since(received))
    });
}

/// Doors that are not there yet, and what only they have.
fn doors<T: Live + 'static, M: UserDataMethods<T>>(methods: &mut M) {
    methods.add_method("getProtocol", |lua, object, ()| {
        with(lua, object, |subject| {
            Ok(match subject.protocol {
                Protocol::Udp => "Do53 UDP",
                Protocol::Tcp => "Do53 TCP",
            })
        })
    });
    // "only if the corresponding frontend has been bound to a specific network interface"
    methods.add_method("getIncomingInterface", |lua, object, ()| {
        let destination = with(lua, object, |subject| Ok(subject.destination))?;
        let spec = spec(lua)?;
        let listeners = spec.listeners.iter();
        let listeners = listeners.map(|one| (one.address, one.interface.as_deref()));
        Ok(interface_to(destination, listeners).to_owned())
    });
    // No query is traced. The manual's examples put what is not nil into an option of the query.
    for name in ["getTraceID", "getSpanID"] {
        methods.add_method(name, |lua, object, ()| {
            with(lua, object, |_| Ok(Value::Nil))
        });
    }
    // For SNMP and protobuf messages, which are not there yet.
    for name in ["sendTrap", "setMetaKey"] {
        methods.add_method(name, |lua, object, _: MultiValue| {
            with(lua, object, |_| Ok(()))
        });
    }
    methods.add_method(
        "suspend",
        |lua, object, (asynchronous_id, query_id, milliseconds): (u16, u16, u32)| {
            let holder = asynchronous::holder(lua)?;
            let timeout = Duration::from_millis(milliseconds.into());
            with(lua, object, |subject| {
                Ok(subject.suspend(&holder, (asynchronous_id, query_id), timeout))
            })
        },
    );
}

/// The interface of the listener that a query for `destination` came to: one with that address is nearer than one with a
/// wildcard. Of several on one address nothing tells which it was: then none is named.
fn interface_to<'l>(
    destination: SocketAddr,
    listeners: impl Iterator<Item = (SocketAddr, Option<&'l str>)>,
) -> &'l str {
    let (mut exact, mut wildcard) = (Vec::new(), Vec::new());
    for (address, interface) in listeners {
        if address == destination {
            exact.push(interface);
        } else if address.ip().is_unspecified()
            && address.is_ipv4() == destination.is_ipv4()
            && address.port() == destination.port()
        {
            wildcard.push(interface);
        }
    }
    let nearest = if exact.is_empty() { wildcard } else { exact };
    match nearest.split_first() {
        Some((first, others)) if others.iter().all(|other| other == first) => {
            first.unwrap_or_default()
        }
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listeners_interface_is_named_where_it_is_certain() {
        let listeners = |texts: &[(&str, Option<&'static str>)]| {
            let one = |(address, interface): &(&str, Option<&'static str>)| {
                (address.parse::<SocketAddr>().unwrap(), *interface)
            };
            texts.iter().map(one).collect::<Vec<_>>()
        };
        let destination = "192.0.2.1:53".parse().unwrap();
        let (a, b) = (Some("a"), Some("b"));
        for (texts, expected) in [
            (&[("0.0.0.0:53", a)][..], "a"),
            (&[("0.0.0.0:53", a), ("192.0.2.1:53", b)], "b"),
            (&[("0.0.0.0:53", a), ("192.0.2.1:53", None)], ""),
            (&[("0.0.0.0:53", a), ("0.0.0.0:53", b)], ""),
            (&[("0.0.0.0:53", a), ("0.0.0.0:53", a)], "a"),
            (&[("[::]:53", a), ("0.0.0.0:5353", b)], ""),
        ] {
            let found = interface_to(destination, listeners(texts).into_iter());
            assert_eq!(found, expected, "{texts:?}");
        }
    }
}
