//! DNSQuestion: `dq`.

use super::super::objects::address::ComboAddress;
use super::super::objects::list_of;
use super::super::objects::name::AnyName;
use super::super::options::Flag;
use super::super::wrong;
use super::answers::{self, Soa};
use super::messages::{self, get, set};
use super::subject::{Live, Shared, with};
use crate::config::lua::objects::unknown_is_nil;
use crate::pipeline::restart::Restart;
use mlua::{MultiValue, Table, UserData, UserDataFields, UserDataMethods, Value};

/// What functions on queries are given.
pub(super) struct Question(pub(super) Shared);

impl Live for Question {
    fn subject(&self) -> &Shared {
        &self.0
    }
}

impl UserData for Question {
    fn add_fields<F: UserDataFields<Self>>(fields: &mut F) {
        unknown_is_nil(fields);
        messages::add_fields(fields);
        fields.add_field_method_get("dh", |lua, object| {
            let own = super::object(lua, |objects| &objects.query)?;
            super::header_of(lua, &object.0, own)
        });
        add_wishes(fields);
    }

    fn add_methods<M: UserDataMethods<Self>>(methods: &mut M) {
        messages::add_methods(methods);
        add_answers(methods);
        methods.add_method("setRestartable", |lua, object, ()| {
            with(lua, object, |subject| {
                let restart = Restart {
                    query: subject.message.as_slice().into(),
                    parts: subject.parts,
                    marks: subject.marks,
                    times: 0,
                    wanted: false,
                };
                subject.extras().restart = Some(Box::new(restart));
                Ok(true)
            })
        });
    }
}

/// What is wanted for the query. A response has "all the functions and members of a DNSQuestion" (the manual) and so these too.
pub(super) fn add_wishes<T: Live + 'static, F: UserDataFields<T>>(fields: &mut F) {
    fields.add_field_method_get("tempFailureTTL", |lua, object| {
        with(lua, object, |subject| {
            let extras = subject.extras.as_ref();
            Ok(extras.and_then(|extras| extras.temporary_failure_ttl))
        })
    });
    fields.add_field_method_set("tempFailureTTL", |lua, object, ttl: Option<u32>| {
        with(lua, object, |subject| {
            subject.extras().temporary_failure_ttl = ttl;
            Ok(())
        })
    });
    client_subnet(fields);
}

/// Answers, and what answers over HTTPS need.
pub(super) fn add_answers<T: Live + 'static, M: UserDataMethods<T>>(methods: &mut M) {
    made_here(methods);
    over_https(methods);
}

/// What servers with `useClientSubnet` are told: as rules have it that ran before, else as `setECSOverride` and its relatives.
fn client_subnet<T: Live + 'static, F: UserDataFields<T>>(fields: &mut F) {
    get(fields, "useECS", |subject| {
        !subject.subnet_wishes().disabled
    });
    set(fields, "useECS", |subject, Flag(send): Flag| {
        subject.extras().subnet.disabled = !send;
    });
    get(fields, "ecsOverride", |subject| {
        let said = subject.subnet_wishes().override_existing;
        said.unwrap_or(subject.subnets.override_existing)
    });
    set(fields, "ecsOverride", |subject, Flag(flag): Flag| {
        subject.extras().subnet.override_existing = Some(flag);
    });
    get(fields, "ecsPrefixLength", |subject| {
        let tuning = subject.subnets;
        let said = subject.subnet_wishes().prefixes;
        let (v4, v6) = said.unwrap_or((tuning.v4_prefix, tuning.v6_prefix));
        if subject.client.is_ipv4() { v4 } else { v6 }
    });
    // It is of this client's family, the only one that matters; more bits than its addresses have are all of them.
    set(fields, "ecsPrefixLength", |subject, bits: u8| {
        subject.extras().subnet.prefixes = Some((bits, bits));
    });
}

fn made_here<T: Live + 'static, M: UserDataMethods<T>>(methods: &mut M) {
    methods.add_method(
        "spoof",
        |lua, object, (data, type_for_any): (Value, Option<u16>)| {
            with(lua, object, |subject| match spoofed(&data)? {
                Spoofed::Addresses(addresses) => answers::spoof_addresses(subject, &addresses),
                Spoofed::Raw(data) => answers::spoof_raw(subject, &data, type_for_any),
            })
        },
    );
    methods.add_method(
        "setNegativeAndAdditionalSOA",
        |lua, object, (nxd, zone, ttl, mname, rname, numbers): SoaArguments| {
            let [serial, refresh, retry, expire, minimum] = numbers_of(numbers)?;
            let soa = Soa {
                zone: zone.0,
                ttl,
                mname: mname.0,
                rname: rname.0,
                numbers: [serial, refresh, retry, expire, minimum],
            };
            with(lua, object, |subject| answers::negative(subject, nxd, &soa))
        },
    );
}

type SoaArguments = (bool, AnyName, u32, AnyName, AnyName, mlua::Variadic<u32>);

fn numbers_of(numbers: mlua::Variadic<u32>) -> mlua::Result<[u32; 5]> {
    <[u32; 5]>::try_from(&numbers[..])
        .map_err(|_| wrong("serial, refresh, retry, expire and minimum expected"))
}

enum Spoofed {
    Addresses(Vec<std::net::IpAddr>),
    Raw(Vec<Vec<u8>>),
}

/// An address or a text, or a table of either.
fn spoofed(data: &Value) -> mlua::Result<Spoofed> {
    let values: Vec<Value> = match data {
        Value::Table(table) => list_of(table)?,
        value => vec![value.clone()],
    };
    let raw = values.iter().map(|value| match value {
        Value::String(text) => Some(text.as_bytes().to_vec()),
        _ => None,
    });
    if let Some(raw) = raw.collect() {
        return Ok(Spoofed::Raw(raw));
    }
    let addresses = values.iter().map(|value| {
        let address: ComboAddress =
            super::super::objects::object(value, "a ComboAddress or a string of octets")?;
        Ok(address.0.ip())
    });
    Ok(Spoofed::Addresses(addresses.collect::<mlua::Result<_>>()?))
}

/// What only DNS over HTTPS and TLS have: empty for all others.
fn over_https<T: Live + 'static, M: UserDataMethods<T>>(methods: &mut M) {
    for name in [
        "getHTTPHost",
        "getHTTPPath",
        "getHTTPQueryString",
        "getHTTPScheme",
        "getServerNameIndication",
    ] {
        methods.add_method(name, |lua, object, ()| with(lua, object, |_| Ok("")));
    }
    methods.add_method("getHTTPHeaders", |lua, object, ()| -> mlua::Result<Table> {
        with(lua, object, |_| Ok(()))?;
        lua.create_table()
    });
    methods.add_method("setHTTPResponse", |lua, object, _: MultiValue| {
        with(lua, object, |_| Ok(()))
    });
}
