//! Service bindings: newSVCRecordParameters and SpoofSVCAction.

use super::actions::{ActionObject, made};
use super::objects::name::AnyName;
use super::objects::object;
use super::options::Options;
use super::spoof::spoof_options;
use super::{define, wrong};
use crate::pipeline::rules::actions::svc::{ServiceBinding, SpoofSVCAction};
use mlua::{FromLua, Lua, LuaString, MultiValue, Table, UserData, Value};
use std::collections::BTreeMap;
use std::str::FromStr;

pub(super) fn register(lua: &Lua) -> mlua::Result<()> {
    define(lua, "newSVCRecordParameters", parameters)?;
    define(lua, "SpoofSVCAction", spoof)
}

/// What newSVCRecordParameters returns.
#[derive(Clone)]
struct SvcParameters(ServiceBinding);

impl UserData for SvcParameters {}

impl FromLua for SvcParameters {
    fn from_lua(value: Value, _: &Lua) -> mlua::Result<SvcParameters> {
        object(&value, "what newSVCRecordParameters returns")
    }
}

type Needed = (u16, AnyName, Vec<u16>, Vec<LuaString>, Option<bool>);
type Optional = (
    Option<u16>,
    Option<LuaString>,
    Option<Vec<String>>,
    Option<Vec<String>>,
    Option<Table>,
);

/// `(priority, target, mandatory, alpns, noDefaultAlpn [, port [, ech [, ipv4hints [, ipv6hints [, additional]]]]])`.
fn parameters(lua: &Lua, arguments: MultiValue) -> mlua::Result<SvcParameters> {
    let mut values: Vec<Value> = arguments.into_iter().collect();
    values.resize(10, Value::Nil);
    let optional = values.split_off(5);
    let (priority, target, mandatory, alpns, no_default_alpn): Needed =
        lua.unpack_multi(values.into_iter().collect())?;
    let (port, ech, v4_hints, v6_hints, others): Optional =
        lua.unpack_multi(optional.into_iter().collect())?;
    let alpns: Vec<Vec<u8>> = alpns.iter().map(|alpn| alpn.as_bytes().to_vec()).collect();
    if let Some(wrong_one) = alpns.iter().find(|alpn| !(1..=255).contains(&alpn.len())) {
        let length = wrong_one.len();
        return Err(wrong(format!(
            "an ALPN of {length} octets: 1 to 255 expected"
        )));
    }
    Ok(SvcParameters(ServiceBinding {
        priority,
        target: target.0,
        mandatory,
        alpns,
        no_default_alpn: no_default_alpn.unwrap_or(false),
        // dnsdist's way to say none.
        port: port.filter(|port| *port != 0),
        ech: ech.map(|ech| ech.as_bytes().to_vec()).unwrap_or_default(),
        v4_hints: hints(v4_hints, "an IPv4 address")?,
        v6_hints: hints(v6_hints, "an IPv6 address")?,
        others: others
            .map(|table| others_of(&table))
            .transpose()?
            .unwrap_or_default(),
    }))
}

fn hints<T: FromStr>(texts: Option<Vec<String>>, wanted: &str) -> mlua::Result<Vec<T>> {
    let hint = |text: &String| {
        let parsed = text.parse::<T>();
        parsed.map_err(|_| wrong(format!("'{text}' is not {wanted}")))
    };
    texts.unwrap_or_default().iter().map(hint).collect()
}

/// The manual writes the keys as texts of digits.
fn others_of(table: &Table) -> mlua::Result<BTreeMap<u16, Vec<u8>>> {
    let mut others = BTreeMap::new();
    for pair in table.pairs::<Value, LuaString>() {
        let (key, value) = pair?;
        let number = match &key {
            Value::Integer(number) => u16::try_from(*number).ok(),
            Value::Number(number) => Some(*number as u16),
            Value::String(text) => text.to_string_lossy().parse().ok(),
            _ => None,
        };
        let number = number.ok_or_else(|| {
            let shown = super::options::shown(&key);
            wrong(format!("{shown}: the number of a parameter expected"))
        })?;
        others.insert(number, value.as_bytes().to_vec());
    }
    Ok(others)
}

fn spoof(
    lua: &Lua,
    (bindings, table): (Vec<SvcParameters>, Option<Table>),
) -> mlua::Result<ActionObject> {
    if bindings.is_empty() {
        return Err(wrong(
            "a table of what newSVCRecordParameters returns expected",
        ));
    }
    let mut options = Options::new(lua, "SpoofSVCAction", table);
    let chosen = spoof_options(&mut options)?;
    options.finish()?;
    let bindings = bindings.into_iter().map(|SvcParameters(one)| one);
    made(SpoofSVCAction::new(bindings.collect(), chosen))
}
