//! Selectors, by the functions that make them.

use super::objects::name::AnyName;
use super::objects::name_set::AnyNameSet;
use super::objects::netmask::AnyNetmask;
use super::objects::netmask_group::AnyNetmasks;
use super::objects::suffixes::AnySuffixes;
use super::objects::{list_of, object, pool};
use super::options::Flag;
use super::{define, spec, wrong};
use crate::config::spec::{ChainSpecs, RuleSpec};
use crate::counters::Sharded;
use crate::pipeline::acl::Netmasks;
use crate::pipeline::rules::Selector;
use crate::pipeline::rules::names::SuffixSet;
use crate::pipeline::rules::selectors::client::{
    DSTPortRule, HttpsRule, INCOMING_PROTOCOLS, IncomingProtocolRule, NetmaskGroupRule, SNIRule,
    Side, TCPRule,
};
use crate::pipeline::rules::selectors::logic::{AllRule, AndRule, NotRule, OrRule};
use crate::pipeline::rules::selectors::message::{
    Comparison, CountedSection, DNSSECRule, EDNSOptionRule, EDNSVersionRule, ERCodeRule,
    OpcodeRule, PayloadSizeRule, QClassRule, QTypeRule, RCodeRule, RDRule, RecordsCountRule,
    RecordsTypeCountRule, TrailingDataRule,
};
use crate::pipeline::rules::selectors::name::{
    QNameLabelsCountRule, QNameRule, QNameSetRule, QNameSuffixRule, QNameWireLengthRule, RegexRule,
};
use crate::pipeline::rules::selectors::pool::{PoolAvailableRule, PoolOutstandingRule};
use crate::pipeline::rules::selectors::random::ProbaRule;
use crate::pipeline::rules::selectors::rate::{MaxQPSIPRule, MaxQPSRule};
use mlua::{FromLua, Lua, MetaMethod, Table, UserData, UserDataMethods, Value};
use std::fmt::Display;
use std::net::IpAddr;
use std::sync::Arc;
use wire::codes;
use wire::name::NameBuf;

pub(super) fn register(lua: &Lua) -> mlua::Result<()> {
    logic(lua)?;
    names(lua)?;
    clients(lua)?;
    https(lua)?;
    messages(lua)?;
    sections(lua)?;
    rates(lua)?;
    pools(lua)
}

fn logic(lua: &Lua) -> mlua::Result<()> {
    define(lua, "AllRule", |_, ()| made(AllRule))?;
    define(lua, "AndRule", |_, parts: Table| {
        made(AndRule(selectors(&parts)?))
    })?;
    define(lua, "OrRule", |_, parts: Table| {
        made(OrRule(selectors(&parts)?))
    })?;
    define(lua, "NotRule", |_, part: SelectorObject| {
        made(NotRule(part.0))
    })?;
    define(lua, "ProbaRule", |_, probability: f64| {
        made(ProbaRule::new(probability))
    })
}

fn names(lua: &Lua) -> mlua::Result<()> {
    define(lua, "QNameRule", |_, name: AnyName| made(QNameRule(name.0)))?;
    define(lua, "QNameSetRule", |_, set: AnyNameSet| {
        made(QNameSetRule(set.0))
    })?;
    for name in ["QNameSuffixRule", "SuffixMatchNodeRule"] {
        define(
            lua,
            name,
            |_, (suffixes, quiet): (AnySuffixes, Option<Flag>)| {
                made(QNameSuffixRule {
                    suffixes: suffixes.0,
                    quiet: Flag::or(quiet, false),
                })
            },
        )?;
    }
    define(lua, "QNameLabelsCountRule", |_, (minimum, maximum)| {
        made(QNameLabelsCountRule { minimum, maximum })
    })?;
    define(lua, "QNameWireLengthRule", |_, (minimum, maximum)| {
        made(QNameWireLengthRule { minimum, maximum })
    })?;
    // Our RegexRule is linear in its input as RE2 is, with the same syntax.
    define(lua, "RegexRule", |_, expression: String| {
        made(checked(&expression)?)
    })?;
    define(lua, "RE2Rule", |_, expression: String| {
        let rule = RegexRule::whole(&expression);
        made(rule.map_err(|error| bad_expression(&expression, &error))?)
    })
}

fn clients(lua: &Lua) -> mlua::Result<()> {
    define(
        lua,
        "NetmaskGroupRule",
        |_, (netmasks, source, quiet): (AnyNetmasks, Option<Flag>, Option<Flag>)| {
            let side = if Flag::or(source, true) {
                Side::Source
            } else {
                Side::Destination
            };
            netmasks.0.prepare();
            made(NetmaskGroupRule {
                netmasks: netmasks.0,
                side,
                quiet: Flag::or(quiet, false),
            })
        },
    )?;
    define(lua, "IncomingProtocolRule", |_, name: String| {
        if !INCOMING_PROTOCOLS.contains(&name.as_str()) {
            return Err(wrong(format!(
                "'{name}' is no protocol: {} expected",
                INCOMING_PROTOCOLS.join(", ")
            )));
        }
        made(IncomingProtocolRule(name))
    })?;
    define(lua, "SNIRule", |_, name| made(SNIRule(name)))?;
    define(lua, "DSTPortRule", |_, port| made(DSTPortRule(port)))?;
    define(lua, "TCPRule", |_, Flag(tcp): Flag| made(TCPRule(tcp)))
}

/// What would match queries over HTTPS.
fn https(lua: &Lua) -> mlua::Result<()> {
    define(lua, "HTTPPathRule", |_, path: String| {
        made(HttpsRule(format!("url path == {path}")))
    })?;
    define(lua, "HTTPPathRegexRule", |_, expression: String| {
        checked(&expression)?;
        made(HttpsRule(format!("http path ~ {expression}")))
    })?;
    define(
        lua,
        "HTTPHeaderRule",
        |_, (header, expression): (String, String)| {
            checked(&expression)?;
            made(HttpsRule(format!("http[{header}] ~ {expression}")))
        },
    )
}

/// An expression of the syntax that RegexRule has.
fn checked(expression: &str) -> mlua::Result<RegexRule> {
    RegexRule::new(expression).map_err(|error| bad_expression(expression, &error))
}

/// The crate draws the place over several lines; the last one says what is wrong.
fn bad_expression(expression: &str, error: &impl Display) -> mlua::Error {
    let text = error.to_string();
    let reason = text.lines().last().unwrap_or_default();
    let reason = reason.trim_start_matches("error: ");
    wrong(format!("'{expression}' is no regular expression: {reason}"))
}

fn messages(lua: &Lua) -> mlua::Result<()> {
    define(lua, "QTypeRule", |_, qtype: Qtype| made(QTypeRule(qtype.0)))?;
    define(lua, "QClassRule", |_, class| made(QClassRule(class)))?;
    define(lua, "OpcodeRule", |_, opcode| made(OpcodeRule(opcode)))?;
    define(lua, "RDRule", |_, ()| made(RDRule))?;
    define(lua, "DNSSECRule", |_, ()| made(DNSSECRule))?;
    define(lua, "EDNSVersionRule", |_, version| {
        made(EDNSVersionRule(version))
    })?;
    define(lua, "EDNSOptionRule", |_, option| {
        made(EDNSOptionRule(option))
    })?;
    define(lua, "RCodeRule", |_, rcode| made(RCodeRule(rcode)))?;
    define(lua, "ERCodeRule", |_, rcode| made(ERCodeRule(rcode)))?;
    define(
        lua,
        "PayloadSizeRule",
        |_, (comparison, size): (String, u16)| {
            let known = Comparison::ALL.iter().find(|(name, _)| *name == comparison);
            let (_, comparison) = *known.ok_or_else(|| {
                let names = Comparison::ALL.map(|(name, _)| name).join(", ");
                wrong(format!("'{comparison}' is no comparison: {names} expected"))
            })?;
            made(PayloadSizeRule { comparison, size })
        },
    )?;
    define(lua, "TrailingDataRule", |_, ()| made(TrailingDataRule))
}

fn sections(lua: &Lua) -> mlua::Result<()> {
    define(lua, "RecordsCountRule", |_, (number, minimum, maximum)| {
        made(RecordsCountRule {
            section: section(number)?,
            minimum,
            maximum,
        })
    })?;
    define(
        lua,
        "RecordsTypeCountRule",
        |_, (number, qtype, minimum, maximum): (u8, Qtype, u16, u16)| {
            made(RecordsTypeCountRule {
                section: section(number)?,
                qtype: qtype.0,
                minimum,
                maximum,
            })
        },
    )
}

fn section(number: u8) -> mlua::Result<CountedSection> {
    CountedSection::from_number(number)
        .ok_or_else(|| wrong(format!("{number} is not a section: DNSSection.Question (0) to DNSSection.Additional (3) expected")))
}

fn rates(lua: &Lua) -> mlua::Result<()> {
    define(lua, "MaxQPSRule", |_, (qps, burst)| {
        made(MaxQPSRule::new(qps, burst))
    })?;
    // What follows the burst tunes a table that ours does not need.
    define(
        lua,
        "MaxQPSIPRule",
        |_, (qps, v4_mask, v6_mask, burst): (u32, Option<u8>, Option<u8>, Option<u32>)| {
            made(MaxQPSIPRule::new(
                qps,
                v4_mask.unwrap_or(32),
                v6_mask.unwrap_or(64),
                burst,
            ))
        },
    )
}

fn pools(lua: &Lua) -> mlua::Result<()> {
    define(lua, "PoolAvailableRule", |lua, name: String| {
        made(PoolAvailableRule {
            pool: pool::number(lua, &name)?,
            name,
        })
    })?;
    define(
        lua,
        "PoolOutstandingRule",
        |lua, (name, limit): (String, u64)| {
            made(PoolOutstandingRule {
                pool: pool::number(lua, &name)?,
                name,
                limit,
            })
        },
    )
}

/// A type as functions take it: its number, or its name.
pub(super) struct Qtype(pub(super) u16);

impl FromLua for Qtype {
    fn from_lua(value: Value, lua: &Lua) -> mlua::Result<Qtype> {
        let Value::String(text) = &value else {
            return u16::from_lua(value, lua).map(Qtype);
        };
        let text = text.to_string_lossy();
        let number = codes::parse_qtype(&text).or_else(|| text.parse().ok());
        number.map(Qtype).ok_or_else(|| {
            wrong(format!(
                "'{text}' is not a type: A, AAAA, TYPE65280 or a number expected"
            ))
        })
    }
}

/// What the functions of this file return.
#[derive(Clone)]
pub(super) struct SelectorObject(pub(super) Arc<dyn Selector>);

pub(super) fn made(selector: impl Selector + 'static) -> mlua::Result<SelectorObject> {
    Ok(SelectorObject(Arc::new(selector)))
}

fn selectors(parts: &Table) -> mlua::Result<Vec<Arc<dyn Selector>>> {
    let parts = list_of::<SelectorObject>(parts)?;
    Ok(parts.into_iter().map(|part| part.0).collect())
}

impl FromLua for SelectorObject {
    fn from_lua(value: Value, _: &Lua) -> mlua::Result<SelectorObject> {
        if let Value::UserData(rule) = &value
            && let Ok(counted) = rule.borrow::<CountedSelector>()
        {
            return Ok(SelectorObject(Arc::clone(&counted.selector)));
        }
        object(&value, "a selector")
    }
}

/// The selector of a rule that is there, with how often that matched: what getSelector returns. It is a selector as any other.
pub(super) struct CountedSelector {
    pub(super) selector: Arc<dyn Selector>,
    pub(super) matches: Arc<Sharded>,
}

impl UserData for CountedSelector {
    fn add_methods<M: UserDataMethods<Self>>(methods: &mut M) {
        methods.add_method("getMatches", |lua, rule, ()| {
            let of_all = matches_of(&spec(lua)?.chains, &rule.selector);
            // A rule that was removed is in no chain.
            Ok(of_all.max(rule.matches.sum()))
        });
        for text in ["toString", "tostring"] {
            methods.add_method(text, |_, rule, ()| Ok(rule.selector.describe()));
        }
        methods.add_meta_method(MetaMethod::ToString, |_, rule, ()| {
            Ok(rule.selector.describe())
        });
    }
}

impl UserData for SelectorObject {
    fn add_methods<M: UserDataMethods<Self>>(methods: &mut M) {
        methods.add_method("getMatches", |lua, selector, ()| {
            Ok(matches_of(&spec(lua)?.chains, &selector.0))
        });
        methods.add_method("toString", |_, selector, ()| Ok(selector.0.describe()));
        methods.add_meta_method(MetaMethod::ToString, |_, selector, ()| {
            Ok(selector.0.describe())
        });
    }
}

/// How often the rules with this selector matched. The manual on getMatches: "if the same selector is reused for different
/// DNSDistRuleAction objects, the counter will be common to all these objects".
fn matches_of(chains: &ChainSpecs, selector: &Arc<dyn Selector>) -> u64 {
    let on_queries = [&chains.query, &chains.cache_miss];
    let on_responses = [
        &chains.response,
        &chains.cache_hit,
        &chains.cache_inserted,
        &chains.self_answered,
        &chains.timeout,
        &chains.xfr,
    ];
    let queries = on_queries
        .into_iter()
        .map(|rules| matches_in(rules, selector));
    let responses = on_responses
        .into_iter()
        .map(|rules| matches_in(rules, selector));
    queries.chain(responses).sum()
}

fn matches_in<A: ?Sized>(rules: &[RuleSpec<A>], selector: &Arc<dyn Selector>) -> u64 {
    let rules = rules.iter().map(|entry| &entry.rule);
    rules
        .filter(|rule| Arc::ptr_eq(&rule.selector, selector))
        .map(|rule| rule.matches.sum())
        .sum()
}

/// A selector as addAction takes it: one, or names and netmasks (text, objects, or a table of these), which stand for
/// everything below the names and every client in the netmasks.
pub(super) struct AnySelector(pub(super) Arc<dyn Selector>);

impl FromLua for AnySelector {
    fn from_lua(value: Value, lua: &Lua) -> mlua::Result<AnySelector> {
        if let Ok(selector) = SelectorObject::from_lua(value.clone(), lua) {
            return Ok(AnySelector(selector.0));
        }
        let mut names = SuffixSet::default();
        let mut netmasks = Netmasks::default();
        for value in items(value)? {
            match AnyNetmask::from_lua(value.clone(), lua) {
                Ok(netmask) => netmasks.insert(netmask.0),
                Err(error) if is_meant_as_netmask(&value) => return Err(error),
                Err(_) => {
                    names.insert(&name(value, lua)?.as_name());
                }
            }
        }
        Ok(AnySelector(names_and_netmasks(names, netmasks)))
    }
}

/// Whether it is an address with a number of bits: as a name it would match nothing, and nobody would be told.
fn is_meant_as_netmask(value: &Value) -> bool {
    let Value::String(text) = value else {
        return false;
    };
    let text = text.to_string_lossy();
    let parts = text.trim_start_matches('!').split_once('/');
    parts.is_some_and(|(address, bits)| {
        address.parse::<IpAddr>().is_ok() && bits.bytes().all(|octet| octet.is_ascii_digit())
    })
}

fn name(value: Value, lua: &Lua) -> mlua::Result<NameBuf> {
    let shown = super::options::shown(&value);
    match AnyName::from_lua(value, lua) {
        Ok(name) => Ok(name.0),
        Err(_) => Err(wrong(format!(
            "a selector, a netmask or a name expected, got {shown}"
        ))),
    }
}

fn items(value: Value) -> mlua::Result<Vec<Value>> {
    match value {
        Value::Table(table) => list_of(&table),
        value => Ok(vec![value]),
    }
}

fn names_and_netmasks(names: SuffixSet, netmasks: Netmasks) -> Arc<dyn Selector> {
    netmasks.prepare();
    let no_netmasks = netmasks.is_empty();
    let no_names = names.names().is_empty();
    let clients = NetmaskGroupRule {
        netmasks: Arc::new(netmasks),
        side: Side::Source,
        quiet: false,
    };
    let suffixes = QNameSuffixRule {
        suffixes: Arc::new(names),
        quiet: false,
    };
    match (no_netmasks, no_names) {
        (true, _) => Arc::new(suffixes),
        (false, true) => Arc::new(clients),
        (false, false) => Arc::new(OrRule(vec![Arc::new(clients), Arc::new(suffixes)])),
    }
}
