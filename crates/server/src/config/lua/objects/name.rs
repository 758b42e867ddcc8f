//! DNSName.

use super::super::{define, wrong};
use super::object;
use mlua::{FromLua, Lua, LuaString, MetaMethod, UserData, UserDataMethods, Value};
use wire::name::{Name, NameBuf};

pub(super) fn register(lua: &Lua) -> mlua::Result<()> {
    define(lua, "newDNSName", |_, name: AnyName| Ok(DnsName(name.0)))?;
    define(lua, "newDNSNameFromRaw", |_, octets: LuaString| {
        let octets = octets.as_bytes();
        let name = Name::parse(&octets).map_err(|error| wrong(error.to_string()))?;
        Ok(DnsName(NameBuf::from(name)))
    })
}

/// What newDNSName returns.
#[derive(Clone)]
pub(in super::super) struct DnsName(pub(in super::super) NameBuf);

/// A name as functions take it: text, of which none is the root, or a DNSName.
pub(in super::super) struct AnyName(pub(in super::super) NameBuf);

impl FromLua for AnyName {
    fn from_lua(value: Value, _: &Lua) -> mlua::Result<AnyName> {
        let Value::String(text) = &value else {
            return Ok(AnyName(object::<DnsName>(&value, "a name")?.0));
        };
        let octets = text.as_bytes();
        let written = match octets.is_empty() {
            true => &b"."[..],
            false => &octets[..],
        };
        match NameBuf::from_text(written) {
            Ok(name) => Ok(AnyName(name)),
            Err(error) => {
                let text = text.to_string_lossy();
                Err(wrong(format!("'{text}' is not a name: {error}")))
            }
        }
    }
}

impl UserData for DnsName {
    fn add_methods<M: UserDataMethods<Self>>(methods: &mut M) {
        // Whether there was a label to take off. The manual names both.
        for chop in ["chop", "chopOff"] {
            methods.add_method_mut(chop, |_, name, ()| {
                let parent = name.0.as_name().parent().map(NameBuf::from);
                let chopped = parent.is_some();
                if let Some(parent) = parent {
                    name.0 = parent;
                }
                Ok(chopped)
            });
        }
        methods.add_method("countLabels", |_, name, ()| {
            Ok(name.0.as_name().labels_count())
        });
        methods.add_method("isPartOf", |_, name, other: AnyName| {
            Ok(name.0.as_name().is_within(&other.0.as_name()))
        });
        // "returns a new DNSName composed only of the labels that are below the supplied name … Otherwise an empty (unset)
        // DNSName is returned": the root has no labels either.
        methods.add_method("makeRelative", |_, name, ancestor: AnyName| {
            relative(name.0.as_name(), ancestor.0.as_name()).map(DnsName)
        });
        methods.add_method("toDNSString", |lua, name, ()| {
            lua.create_string(name.0.as_name().as_bytes())
        });
        methods.add_method("wirelength", |_, name, ()| {
            Ok(name.0.as_name().as_bytes().len())
        });
        for text in ["toString", "tostring"] {
            methods.add_method(text, |_, name, ()| Ok(name.0.to_string()));
        }
        methods.add_method("toStringNoDot", |_, name, ()| Ok(without_dot(&name.0)));
        methods.add_meta_method(MetaMethod::ToString, |_, name, ()| Ok(name.0.to_string()));
        methods.add_meta_method(MetaMethod::Eq, |_, name, other: AnyName| {
            Ok(name.0 == other.0)
        });
    }
}

/// The labels of `name` below `ancestor`: the root where they are the same, or `name` is not below it.
fn relative(name: Name<'_>, ancestor: Name<'_>) -> mlua::Result<NameBuf> {
    if !name.is_within(&ancestor) {
        return Ok(NameBuf::from(Name::ROOT));
    }
    let mut octets = name.as_bytes()[..name.len() - ancestor.len()].to_vec();
    octets.push(0);
    let relative = Name::parse(&octets).map_err(|error| wrong(error.to_string()))?;
    Ok(NameBuf::from(relative))
}

/// "without the trailing dot": nothing of the root.
pub(super) fn without_dot(name: &NameBuf) -> String {
    let mut text = name.to_string();
    text.pop();
    text
}
