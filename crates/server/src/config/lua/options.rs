//! Tables of options, `{reusePort=true, …}`: each option is read by its name, and what is left over is a slip of the pen.

use super::{place, spec, wrong};
use crate::config::spec::{Remark, RemarkKind};
use mlua::{AnyUserData, FromLua, Lua, Table, Value};
use std::time::Duration;

/// The options of one call.
pub(super) struct Options<'l> {
    lua: &'l Lua,
    /// The function that was called, for messages.
    function: &'static str,
    table: Option<Table>,
    read: Vec<&'static str>,
}

impl<'l> Options<'l> {
    pub(super) fn new(lua: &'l Lua, function: &'static str, table: Option<Table>) -> Options<'l> {
        Options {
            lua,
            function,
            table,
            read: Vec::new(),
        }
    }

    /// The option, if it is there.
    pub(super) fn get<T: FromLua>(&mut self, name: &'static str) -> mlua::Result<Option<T>> {
        let value = self.value(name)?;
        if value.is_nil() {
            return Ok(None);
        }
        T::from_lua(value, self.lua)
            .map(Some)
            .map_err(|error| wrong(format!("{name}: {}", place::text_of(&error))))
    }

    /// A number of the range that `T` has; dnsdist takes `"5"` for 5.
    pub(super) fn number<T: TryFrom<i64>>(
        &mut self,
        name: &'static str,
        range: &str,
    ) -> mlua::Result<Option<T>> {
        let value = self.value(name)?;
        if value.is_nil() {
            return Ok(None);
        }
        let number = self
            .lua
            .coerce_number(value.clone())?
            .filter(|number| number.fract() == 0.0);
        match number.and_then(|number| T::try_from(number as i64).ok()) {
            Some(number) => Ok(Some(number)),
            None => Err(wrong(format!(
                "{name}: {range} expected, got {}",
                shown(&value)
            ))),
        }
    }

    /// A time in whole seconds.
    pub(super) fn seconds(&mut self, name: &'static str) -> mlua::Result<Option<Duration>> {
        let seconds: Option<u32> = self.number(name, "seconds")?;
        Ok(seconds.map(|seconds| Duration::from_secs(seconds.into())))
    }

    /// An option that somebody else has read.
    pub(super) fn skip(&mut self, name: &'static str) {
        self.read.push(name);
    }

    /// An option that is true or false.
    pub(super) fn flag(&mut self, name: &'static str) -> mlua::Result<Option<bool>> {
        let flag = self.get::<Flag>(name)?;
        Ok(flag.map(|Flag(flag)| flag))
    }

    /// Options of the dialect that only observe or tune, and do nothing here yet.
    pub(super) fn no_effect_yet(&mut self, names: &[&'static str]) -> mlua::Result<()> {
        for name in names {
            if !self.value(name)?.is_nil() {
                self.remark(RemarkKind::NoEffectYet, name)?;
            }
        }
        Ok(())
    }

    /// Options of the dialect that would change an answer or who gets one, and are not there yet. `false` asks for what
    /// is done anyway.
    pub(super) fn not_yet(&mut self, names: &[&'static str]) -> mlua::Result<()> {
        for name in names {
            if !says_nothing(&self.value(name)?) {
                return Err(wrong(format!(
                    "{name} is not in millrace yet: it would change an answer or who gets one; take it out to go without"
                )));
            }
        }
        Ok(())
    }

    /// Options that ask for what cannot be had here, and why. `false` asks for nothing.
    pub(super) fn refuse(&mut self, names: &[&'static str], why: &str) -> mlua::Result<()> {
        for name in names {
            if !says_nothing(&self.value(name)?) {
                return Err(wrong(format!("{name}: {why}")));
            }
        }
        Ok(())
    }

    /// Remarks on all options that nobody has read.
    pub(super) fn finish(self) -> mlua::Result<()> {
        let Some(table) = &self.table else {
            return Ok(());
        };
        for pair in table.pairs::<Value, Value>() {
            let name = shown(&pair?.0);
            if !self.read.contains(&name.as_str()) {
                self.remark(RemarkKind::UnknownOption, &name)?;
            }
        }
        Ok(())
    }

    fn value(&mut self, name: &'static str) -> mlua::Result<Value> {
        self.read.push(name);
        self.table
            .as_ref()
            .map_or(Ok(Value::Nil), |table| table.raw_get(name))
    }

    fn remark(&self, kind: RemarkKind, option: &str) -> mlua::Result<()> {
        let subject = format!("{}: {option}", self.function);
        spec(self.lua)?.remark(Remark {
            place: place::caller(self.lua),
            kind,
            subject,
        });
        Ok(())
    }
}

/// True or false, and nothing that Lua would take for one of them: neither nil nor 1.
#[derive(Clone, Copy)]
pub(super) struct Flag(pub(super) bool);

impl Flag {
    /// `default` where it was left out.
    pub(super) fn or(flag: Option<Flag>, default: bool) -> bool {
        flag.map_or(default, |Flag(flag)| flag)
    }
}

impl FromLua for Flag {
    fn from_lua(value: Value, _: &Lua) -> mlua::Result<Flag> {
        match value {
            Value::Boolean(flag) => Ok(Flag(flag)),
            other => Err(wrong(format!(
                "true or false expected, got {}",
                shown(&other)
            ))),
        }
    }
}

/// What asks for nothing.
fn says_nothing(value: &Value) -> bool {
    matches!(value, Value::Nil | Value::Boolean(false))
        || matches!(value, Value::String(text) if text.as_bytes().is_empty())
}

/// A value as an error message shows it.
pub(super) fn shown(value: &Value) -> String {
    match value {
        Value::String(_)
        | Value::Integer(_)
        | Value::Number(_)
        | Value::Boolean(_)
        | Value::Nil => value.to_string().unwrap_or_default(),
        Value::UserData(object) => class_of(object),
        other => format!("a {}", other.type_name()),
    }
}

/// What an object is, in the manual's words; an error that says "a userdata" helps nobody.
fn class_of(object: &AnyUserData) -> String {
    let name = object.type_name().map(|name| name.to_string_lossy());
    let name = name.unwrap_or_default();
    // lua::RuleObject<dyn rules::Action>
    let name = name.split('<').next().unwrap_or_default();
    let name = name.rsplit("::").next().unwrap_or_default();
    let known = CLASSES.iter().find(|(ours, _)| *ours == name);
    known.map_or_else(|| format!("a {name}"), |(_, shown)| (*shown).to_owned())
}

/// Types of ours whose names are not those of the manual.
const CLASSES: [(&str, &str); 27] = [
    ("ServerObject", "a Server"),
    ("PoolObject", "a ServerPool"),
    ("CacheObject", "a PacketCache"),
    ("PolicyObject", "a policy"),
    ("NetmaskObject", "a Netmask"),
    ("DnsName", "a DNSName"),
    ("DnsNameSet", "a DNSNameSet"),
    ("SelectorObject", "a selector"),
    ("CountedSelector", "a selector"),
    ("ActionObject", "an action"),
    ("ResponseActionObject", "an action on responses"),
    ("RuleAction", "what newRuleAction returns"),
    ("TimedSet", "a TimedIPSetRule: its slice() is the selector"),
    ("QpsLimiter", "a QPSLimiter"),
    ("PacketOverlay", "a DNSPacketOverlay"),
    ("DnsRecord", "a DNSRecord"),
    ("Question", "a DNSQuestion"),
    ("DnsResponse", "a DNSResponse"),
    ("DnsHeader", "a DNSHeader"),
    ("OwnHeader", "a DNSHeader"),
    ("EdnsOptionView", "an EDNSOptionView"),
    ("XskSocket", "an XskSocket"),
    ("SvcParameters", "what newSVCRecordParameters returns"),
    ("RingEntry", "a LuaRingEntry"),
    ("Bind", "a ClientState"),
    ("RuleObject", "a rule"),
    ("Inert", "a logger"),
];
