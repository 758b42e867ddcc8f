//! The chain of rules on queries: addAction and what changes the chain.

use super::actions::ActionObject;
use super::objects::name::AnyName;
use super::objects::netmask::AnyNetmask;
use super::objects::object;
use super::options::Options;
use super::selectors::SelectorObject;
use super::{define, spec, wrong};
use crate::config::spec::RuleSpec;
use crate::config::uuid;
use crate::pipeline::acl::Netmasks;
use crate::pipeline::rules::Rule;
use crate::pipeline::rules::Selector;
use crate::pipeline::rules::names::SuffixSet;
use crate::pipeline::rules::selectors::client::{NetmaskGroupRule, Side};
use crate::pipeline::rules::selectors::logic::OrRule;
use crate::pipeline::rules::selectors::name::QNameSuffixRule;
use mlua::{FromLua, Lua, Table, UserData, Value};
use std::sync::Arc;
use wire::name::NameBuf;

pub(super) fn register(lua: &Lua) -> mlua::Result<()> {
    adding(lua)?;
    removing(lua)?;
    moving(lua)
}

fn adding(lua: &Lua) -> mlua::Result<()> {
    define(lua, "addAction", |lua, (selector, action, options)| {
        let rule = rule(lua, "addAction", selector, action, options)?;
        spec(lua)?.rules.push(rule);
        Ok(())
    })?;
    define(lua, "newRuleAction", |lua, (selector, action, options)| {
        Ok(RuleAction(rule(
            lua,
            "newRuleAction",
            selector,
            action,
            options,
        )?))
    })?;
    define(lua, "setRules", |lua, rules: Vec<RuleAction>| {
        spec(lua)?.rules = rules.into_iter().map(|rule| rule.0).collect();
        Ok(())
    })?;
    define(lua, "makeRule", |_, selector: AnySelector| {
        Ok(SelectorObject(selector.0))
    })
}

fn removing(lua: &Lua) -> mlua::Result<()> {
    define(lua, "rmRule", |lua, which: Value| {
        let mut spec = spec(lua)?;
        let at = position(&spec.rules, &which)?;
        spec.rules.remove(at);
        Ok(())
    })?;
    define(lua, "clearRules", |lua, ()| {
        spec(lua)?.rules.clear();
        Ok(())
    })
}

fn moving(lua: &Lua) -> mlua::Result<()> {
    define(lua, "mvRule", |lua, (from, to): (usize, usize)| {
        let mut spec = spec(lua)?;
        let rules = &mut spec.rules;
        if from >= rules.len() || to > rules.len() {
            return Err(wrong(format!(
                "from {from} to {to}: there are {} rules, counted from 0",
                rules.len()
            )));
        }
        let rule = rules.remove(from);
        // "in front of to": what stood behind the rule has moved up by one.
        rules.insert(if to > from { to - 1 } else { to }, rule);
        Ok(())
    })?;
    define(lua, "mvRuleToTop", |lua, ()| {
        let mut spec = spec(lua)?;
        if let Some(last) = spec.rules.pop() {
            spec.rules.insert(0, last);
        }
        Ok(())
    })
}

/// A rule by its number, its UUID or its name.
fn position(rules: &[RuleSpec], which: &Value) -> mlua::Result<usize> {
    let found = match which {
        Value::Integer(number) => usize::try_from(*number).ok(),
        Value::Number(number) => Some(*number as usize),
        Value::String(text) => {
            let text = text.to_string_lossy();
            let is_it = |spec: &RuleSpec| spec.rule.uuid == text || spec.rule.name == text;
            rules.iter().position(is_it)
        }
        _ => None,
    };
    found.filter(|at| *at < rules.len()).ok_or_else(|| {
        let shown = super::options::shown(which);
        wrong(format!(
            "no rule {shown}: a number below {}, a UUID or a name expected",
            rules.len()
        ))
    })
}

/// `{uuid=, name=}`.
fn rule(
    lua: &Lua,
    function: &'static str,
    selector: AnySelector,
    action: ActionObject,
    table: Option<Table>,
) -> mlua::Result<RuleSpec> {
    let mut options = Options::new(lua, function, table);
    let uuid: Option<String> = options.get("uuid")?;
    let name: Option<String> = options.get("name")?;
    options.finish()?;
    let uuid_given = uuid.is_some();
    let rule = Rule {
        selector: selector.0,
        action: action.0,
        name: name.unwrap_or_default(),
        uuid: uuid.unwrap_or_else(uuid::random),
        matches: Arc::default(),
    };
    Ok(RuleSpec { rule, uuid_given })
}

/// What newRuleAction returns.
#[derive(Clone)]
struct RuleAction(RuleSpec);

impl UserData for RuleAction {}

impl FromLua for RuleAction {
    fn from_lua(value: Value, _: &Lua) -> mlua::Result<RuleAction> {
        object(&value, "what newRuleAction returns")
    }
}

/// A selector as addAction takes it: one, or names and netmasks (text, objects, or a table of these), which stand for
/// everything below the names and every client in the netmasks.
pub(super) struct AnySelector(pub(super) Arc<dyn Selector>);

impl FromLua for AnySelector {
    fn from_lua(value: Value, lua: &Lua) -> mlua::Result<AnySelector> {
        if let Value::UserData(object) = &value
            && let Ok(selector) = object.borrow::<SelectorObject>()
        {
            return Ok(AnySelector(Arc::clone(&selector.0)));
        }
        let mut names = SuffixSet::default();
        let mut netmasks = Netmasks::default();
        for value in items(value)? {
            match AnyNetmask::from_lua(value.clone(), lua) {
                Ok(netmask) => netmasks.insert(netmask.0),
                Err(_) => {
                    names.insert(&name(value, lua)?.as_name());
                }
            }
        }
        Ok(AnySelector(names_and_netmasks(names, netmasks)))
    }
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
        Value::Table(table) => table.sequence_values().collect(),
        value => Ok(vec![value]),
    }
}

fn names_and_netmasks(names: SuffixSet, netmasks: Netmasks) -> Arc<dyn Selector> {
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
