//! Attributes of `dq` and `dr` that say what came. dnsdist takes it when a function sets one, and nothing comes of it; files that do
//! so are served, and what they set is said once.

use super::super::place;
use super::subject::{Live, with};
use crate::config::place::Place;
use crate::log;
use mlua::{Lua, UserDataFields, Value};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

const FIXED: [&str; 8] = [
    "len",
    "localaddr",
    "opcode",
    "qclass",
    "qname",
    "qtype",
    "remoteaddr",
    "tcp",
];

/// What functions of this configuration have set in vain (`dq.qname`), and where first.
#[derive(Default)]
struct Told(BTreeMap<String, Place>);

pub(super) fn add_fields<T: Live + 'static, F: UserDataFields<T>>(fields: &mut F) {
    for name in FIXED {
        fields.add_field_method_set(name, move |lua, object, _: Value| {
            let object = with(lua, object, |subject| Ok(subject.name))?;
            tell(lua, format!("{object}.{name}"));
            Ok(())
        });
    }
}

fn tell(lua: &Lua, attribute: String) {
    let mut told: Told = lua.remove_app_data().unwrap_or_default();
    if let Entry::Vacant(new) = told.0.entry(attribute) {
        let place = place::caller(lua);
        log::warn!(
            "{place}: {} cannot be set: without effect, as in dnsdist",
            new.key()
        );
        new.insert(place);
    }
    lua.set_app_data(told);
}

#[cfg(test)]
pub(super) fn told(lua: &Lua) -> Vec<String> {
    let told = lua.app_data_ref::<Told>();
    let told = told.iter().flat_map(|told| &told.0);
    told.map(|(attribute, place)| format!("{place}: {attribute}"))
        .collect()
}
