//! Service bindings: newSVCRecordParameters and SpoofSVCAction.

use super::actions::{ActionObject, made};
use super::objects::address::AnyAddress;
use super::objects::name::AnyName;
use super::objects::{list_of, object};
use super::options::{Options, shown};
use super::spoof::spoof_options;
use super::{define, place, wrong};
use crate::config::lua::objects::unknown_is_nil;
use crate::pipeline::rules::actions::svc::{ServiceBinding, SpoofSVCAction};
use mlua::{FromLua, Lua, LuaString, MultiValue, Table, UserData, UserDataFields, Value};
use std::collections::BTreeMap;
use std::str::FromStr;
use wire::name::NameBuf;
use zone::rdata::service_parameter;

pub(super) fn register(lua: &Lua) -> mlua::Result<()> {
    define(lua, "newSVCRecordParameters", parameters)?;
    define(lua, "SpoofSVCAction", spoof)
}

/// What newSVCRecordParameters returns.
#[derive(Clone)]
struct SvcParameters(ServiceBinding);

impl UserData for SvcParameters {
    fn add_fields<F: UserDataFields<Self>>(fields: &mut F) {
        unknown_is_nil(fields);
    }
}

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

/// The manual's form, `(priority, target[, SVCParams])`; or the older one, by position.
fn parameters(lua: &Lua, arguments: MultiValue) -> mlua::Result<SvcParameters> {
    let mut values: Vec<Value> = arguments.into_iter().collect();
    // By position the fourth argument, a table, cannot be left out.
    if !values.iter().skip(3).all(Value::is_nil) {
        return by_position(lua, values);
    }
    values.resize(3, Value::Nil);
    let (priority, target, table): (u16, AnyName, Option<Table>) =
        lua.unpack_multi(values.into_iter().collect())?;
    let mut binding = without_parameters(priority, target.0);
    if let Some(table) = table {
        for pair in table.pairs::<Value, Value>() {
            let (key, value) = pair?;
            let key = shown(&key);
            set(lua, &mut binding, &key, value)
                .map_err(|error| wrong(format!("{key}: {}", place::text_of(&error))))?;
        }
    }
    Ok(SvcParameters(binding))
}

fn without_parameters(priority: u16, target: NameBuf) -> ServiceBinding {
    ServiceBinding {
        priority,
        target,
        mandatory: Vec::new(),
        alpns: Vec::new(),
        no_default_alpn: false,
        port: None,
        ech: Vec::new(),
        v4_hints: Vec::new(),
        v6_hints: Vec::new(),
        others: BTreeMap::new(),
    }
}

/// One parameter of the table `SVCParams`.
fn set(lua: &Lua, binding: &mut ServiceBinding, key: &str, value: Value) -> mlua::Result<()> {
    match key {
        "mandatory" => binding.mandatory = mandatory(Vec::from_lua(value, lua)?)?,
        "alpn" => binding.alpns = alpns(Vec::from_lua(value, lua)?)?,
        "noDefaultAlpn" => match value {
            Value::Boolean(flag) => binding.no_default_alpn = flag,
            other => {
                let got = shown(&other);
                return Err(wrong(format!("true or false expected, got {got}")));
            }
        },
        "port" => binding.port = Some(u16::from_lua(value, lua)?),
        "ipv4hint" => binding.v4_hints = hints(addresses(lua, value)?, "an IPv4 address")?,
        "ipv6hint" => binding.v6_hints = hints(addresses(lua, value)?, "an IPv6 address")?,
        "ech" => binding.ech = LuaString::from_lua(value, lua)?.as_bytes().to_vec(),
        other => {
            // "key7" is a parameter by its number; a name stands for a field above.
            let number = service_parameter(other).filter(|_| other.starts_with("key"));
            let number = number.ok_or_else(|| {
                wrong("no such parameter: mandatory, alpn, noDefaultAlpn, port, ipv4hint, ech, ipv6hint or key and a number expected")
            })?;
            let octets = LuaString::from_lua(value, lua)?;
            binding.others.insert(number, octets.as_bytes().to_vec());
        }
    }
    Ok(())
}

/// Keys by name or number.
fn mandatory(keys: Vec<Value>) -> mlua::Result<Vec<u16>> {
    let number = |key: &Value| {
        let text = shown(key);
        let number = service_parameter(&text).or_else(|| text.parse().ok());
        number.ok_or_else(|| {
            wrong(format!(
                "'{text}' is no key: alpn, no-default-alpn, port, ipv4hint, ech, ipv6hint, key and a number, or a number expected"
            ))
        })
    };
    keys.iter().map(number).collect()
}

/// Texts or ComboAddresses.
fn addresses(lua: &Lua, value: Value) -> mlua::Result<Option<Vec<String>>> {
    let addresses: Vec<AnyAddress> = Vec::from_lua(value, lua)?;
    let texts = addresses.iter().map(|address| address.0.ip().to_string());
    Ok(Some(texts.collect()))
}

fn alpns(texts: Vec<LuaString>) -> mlua::Result<Vec<Vec<u8>>> {
    let alpns: Vec<Vec<u8>> = texts.iter().map(|alpn| alpn.as_bytes().to_vec()).collect();
    if let Some(wrong_one) = alpns.iter().find(|alpn| !(1..=255).contains(&alpn.len())) {
        let length = wrong_one.len();
        return Err(wrong(format!(
            "an ALPN of {length} octets: 1 to 255 expected"
        )));
    }
    Ok(alpns)
}

/// `(priority, target, mandatory, alpns, noDefaultAlpn [, port [, ech [, ipv4hints [, ipv6hints [, additional]]]]])`.
fn by_position(lua: &Lua, mut values: Vec<Value>) -> mlua::Result<SvcParameters> {
    values.resize(10, Value::Nil);
    let optional = values.split_off(5);
    let (priority, target, mandatory, alpn_texts, no_default_alpn): Needed =
        lua.unpack_multi(values.into_iter().collect())?;
    let (port, ech, v4_hints, v6_hints, others): Optional =
        lua.unpack_multi(optional.into_iter().collect())?;
    Ok(SvcParameters(ServiceBinding {
        mandatory,
        alpns: alpns(alpn_texts)?,
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
        ..without_parameters(priority, target.0)
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
            let key = shown(&key);
            wrong(format!("{key}: the number of a parameter expected"))
        })?;
        others.insert(number, value.as_bytes().to_vec());
    }
    Ok(others)
}

fn spoof(lua: &Lua, (bindings, table): (Table, Option<Table>)) -> mlua::Result<ActionObject> {
    let bindings = list_of::<SvcParameters>(&bindings)?;
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
