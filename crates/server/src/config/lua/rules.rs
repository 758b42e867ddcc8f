//! The chains of rules: addAction and its sisters, and what changes the chains.

use super::actions::ActionObject;
use super::objects::{list_of, object};
use super::options::{Options, shown};
use super::response_actions::ResponseActionObject;
use super::selectors::{AnySelector, SelectorObject};
use super::{define, spec, wrong};
use crate::config::spec::{RuleSpec, Spec};
use crate::config::uuid;
use crate::pipeline::rules::response::ResponseAction;
use crate::pipeline::rules::{Action, RuleOf};
use mlua::{FromLua, Lua, Table, UserData, UserDataMethods, Value};
use std::sync::Arc;

pub(super) fn register(lua: &Lua) -> mlua::Result<()> {
    QUERY.register(lua)?;
    CACHE_MISS.register(lua)?;
    for chain in [
        RESPONSE,
        CACHE_HIT,
        CACHE_INSERTED,
        SELF_ANSWERED,
        TIMEOUT,
        XFR,
    ] {
        chain.register(lua)?;
    }
    whole_chain(lua)
}

/// The functions on one chain, whose actions are `A`.
struct Chain<A: ?Sized> {
    add: &'static str,
    remove: &'static str,
    clear: Option<&'static str>,
    shift: &'static str,
    shift_to_top: &'static str,
    /// What that was called before 1.6, where there was such a time.
    shift_to_top_before: Option<&'static str>,
    rules: fn(&mut Spec) -> &mut Vec<RuleSpec<A>>,
}

const QUERY: Chain<dyn Action> = Chain {
    add: "addAction",
    remove: "rmRule",
    clear: Some("clearRules"),
    shift: "mvRule",
    shift_to_top: "mvRuleToTop",
    shift_to_top_before: Some("topRule"),
    rules: |spec| &mut spec.chains.query,
};

const CACHE_MISS: Chain<dyn Action> = Chain {
    add: "addCacheMissAction",
    remove: "rmCacheMissRule",
    clear: Some("clearCacheMissRules"),
    shift: "mvCacheMissRule",
    shift_to_top: "mvCacheMissRuleToTop",
    shift_to_top_before: None,
    rules: |spec| &mut spec.chains.cache_miss,
};

const RESPONSE: Chain<dyn ResponseAction> = Chain {
    add: "addResponseAction",
    remove: "rmResponseRule",
    clear: Some("clearResponseRules"),
    shift: "mvResponseRule",
    shift_to_top: "mvResponseRuleToTop",
    shift_to_top_before: Some("topResponseRule"),
    rules: |spec| &mut spec.chains.response,
};

const CACHE_HIT: Chain<dyn ResponseAction> = Chain {
    add: "addCacheHitResponseAction",
    remove: "rmCacheHitResponseRule",
    clear: Some("clearCacheHitResponseRules"),
    shift: "mvCacheHitResponseRule",
    shift_to_top: "mvCacheHitResponseRuleToTop",
    shift_to_top_before: Some("topCacheHitResponseRule"),
    rules: |spec| &mut spec.chains.cache_hit,
};

const CACHE_INSERTED: Chain<dyn ResponseAction> = Chain {
    add: "addCacheInsertedResponseAction",
    remove: "rmCacheInsertedResponseRule",
    clear: Some("clearCacheInsertedResponseRules"),
    shift: "mvCacheInsertedResponseRule",
    shift_to_top: "mvCacheInsertedResponseRuleToTop",
    shift_to_top_before: None,
    rules: |spec| &mut spec.chains.cache_inserted,
};

const SELF_ANSWERED: Chain<dyn ResponseAction> = Chain {
    add: "addSelfAnsweredResponseAction",
    remove: "rmSelfAnsweredResponseRule",
    clear: Some("clearSelfAnsweredResponseRules"),
    shift: "mvSelfAnsweredResponseRule",
    shift_to_top: "mvSelfAnsweredResponseRuleToTop",
    shift_to_top_before: Some("topSelfAnsweredResponseRule"),
    rules: |spec| &mut spec.chains.self_answered,
};

const TIMEOUT: Chain<dyn ResponseAction> = Chain {
    add: "addTimeoutResponseAction",
    remove: "rmTimeoutResponseRule",
    clear: Some("clearTimeoutResponseRules"),
    shift: "mvTimeoutResponseRule",
    shift_to_top: "mvTimeoutResponseRuleToTop",
    shift_to_top_before: None,
    rules: |spec| &mut spec.chains.timeout,
};

const XFR: Chain<dyn ResponseAction> = Chain {
    add: "addXFRResponseAction",
    remove: "rmXFRResponseRule",
    clear: None,
    shift: "mvXFRResponseRule",
    shift_to_top: "mvXFRResponseRuleToTop",
    shift_to_top_before: None,
    rules: |spec| &mut spec.chains.xfr,
};

impl<A: InChain + ?Sized> Chain<A> {
    fn register(self, lua: &Lua) -> mlua::Result<()> {
        let Chain {
            add,
            remove,
            clear,
            shift,
            shift_to_top,
            shift_to_top_before,
            rules,
        } = self;
        define(
            lua,
            add,
            move |lua, (selector, action, options): (AnySelector, Value, Option<Table>)| {
                let (rule, is_new) = rule(lua, add, selector, A::from_value(&action)?, options)?;
                let mut spec = spec(lua)?;
                let rules = rules(&mut spec);
                // Tens of thousands of rules are not compared with each other.
                if !is_new {
                    check_uuid(rules, &rule)?;
                }
                rules.push(rule);
                Ok(())
            },
        )?;
        define(lua, remove, move |lua, which: Value| {
            remove_rules(rules(&mut *spec(lua)?), &which)
        })?;
        if let Some(clear) = clear {
            define(lua, clear, move |lua, ()| {
                rules(&mut *spec(lua)?).clear();
                Ok(())
            })?;
        }
        define(lua, shift, move |lua, (from, to)| {
            move_rule(rules(&mut *spec(lua)?), from, to)
        })?;
        for name in [Some(shift_to_top), shift_to_top_before]
            .into_iter()
            .flatten()
        {
            define(lua, name, move |lua, ()| {
                let mut spec = spec(lua)?;
                let rules = rules(&mut spec);
                // The last one, as the manual says.
                if let Some(last) = rules.pop() {
                    rules.insert(0, last);
                }
                Ok(())
            })?;
        }
        Ok(())
    }
}

/// What stands in a chain.
trait InChain: Send + Sync + 'static {
    /// The action in an object of Lua's.
    fn from_value(value: &Value) -> mlua::Result<Arc<Self>>;
}

impl InChain for dyn Action {
    fn from_value(value: &Value) -> mlua::Result<Arc<dyn Action>> {
        if object::<ResponseActionObject>(value, "").is_ok() {
            let text = "an action expected, got one on responses, which addResponseAction and its sisters take";
            return Err(wrong(text));
        }
        Ok(object::<ActionObject>(value, "an action")?.0)
    }
}

impl InChain for dyn ResponseAction {
    fn from_value(value: &Value) -> mlua::Result<Arc<dyn ResponseAction>> {
        if object::<ActionObject>(value, "").is_ok() {
            let text = "an action on responses expected, got one on queries, which addAction takes";
            return Err(wrong(text));
        }
        Ok(object::<ResponseActionObject>(value, "an action on responses")?.action)
    }
}

/// "Move rule from to a position where it is in front of to": what stands behind the rule moves up by one.
fn move_rule<A: ?Sized>(rules: &mut Vec<RuleSpec<A>>, from: usize, to: usize) -> mlua::Result<()> {
    if from >= rules.len() || to > rules.len() {
        return Err(wrong(format!(
            "from {from} to {to}: there are {} rules, counted from 0",
            rules.len()
        )));
    }
    let rule = rules.remove(from);
    rules.insert(if to > from { to - 1 } else { to }, rule);
    Ok(())
}

/// Removes the rule of a number or a UUID, or all rules of a name: several may have it.
fn remove_rules<A: ?Sized>(rules: &mut Vec<RuleSpec<A>>, which: &Value) -> mlua::Result<()> {
    let first = position(rules, which)?;
    if let Value::String(text) = which {
        let text = text.to_string_lossy();
        rules.retain(|spec| !is_meant(spec, &text));
    } else {
        rules.remove(first);
    }
    Ok(())
}

/// Whether a rule has this UUID, however it is written, or this name.
fn is_meant<A: ?Sized>(spec: &RuleSpec<A>, text: &str) -> bool {
    uuid::canonical(text).is_some_and(|uuid| spec.rule.uuid == uuid) || spec.rule.name == text
}

/// A rule by its number, its UUID or its name. Nothing is no name: a rule without one is not meant by it.
pub(super) fn position<A: ?Sized>(rules: &[RuleSpec<A>], which: &Value) -> mlua::Result<usize> {
    let found = match which {
        Value::Integer(number) => usize::try_from(*number).ok(),
        Value::String(text) if !text.as_bytes().is_empty() => {
            let text = text.to_string_lossy();
            rules.iter().position(|spec| is_meant(spec, &text))
        }
        _ => None,
    };
    found.filter(|at| *at < rules.len()).ok_or_else(|| {
        wrong(format!(
            "no rule {}: a number below {}, a UUID or a name expected",
            shown(which),
            rules.len()
        ))
    })
}

/// A rule with `{uuid=, name=}`, and whether its UUID is one that no rule was made with before.
fn rule<A: ?Sized>(
    lua: &Lua,
    function: &'static str,
    selector: AnySelector,
    action: Arc<A>,
    table: Option<Table>,
) -> mlua::Result<(RuleSpec<A>, bool)> {
    let mut options = Options::new(lua, function, table);
    let uuid: Option<String> = options.get("uuid")?;
    let uuid = uuid.filter(|uuid| !uuid.is_empty());
    let uuid = uuid.map(|text| checked_uuid(&text)).transpose()?;
    let name: Option<String> = options.get("name")?;
    options.finish()?;
    let uuid_given = uuid.is_some();
    let uuid = uuid.unwrap_or_else(uuid::random);
    let mut spec = spec(lua)?;
    // At run time it may be the random one of a rule that is shown.
    let is_new = !uuid_given || (spec.note_uuid(&uuid) && !spec.is_derived);
    let rule = RuleOf {
        selector: selector.0,
        action,
        name: name.unwrap_or_default(),
        uuid,
        created: spec.count_rule(),
        matches: Arc::default(),
    };
    Ok((RuleSpec { rule, uuid_given }, is_new))
}

fn checked_uuid(text: &str) -> mlua::Result<String> {
    uuid::canonical(text).ok_or_else(|| {
        wrong(format!(
            "uuid: 32 hexadecimal digits expected, as in \"{}\", got \"{text}\"",
            uuid::random()
        ))
    })
}

/// Fails if a rule has the UUID that another one in the chain has: by it only the first could be found.
fn check_uuid<A: ?Sized>(rules: &[RuleSpec<A>], new: &RuleSpec<A>) -> mlua::Result<()> {
    let uuid = &new.rule.uuid;
    let same = |old: &RuleSpec<A>| old.rule.uuid.eq_ignore_ascii_case(uuid);
    match rules.iter().position(same) {
        None => Ok(()),
        Some(number) => Err(wrong(format!(
            "uuid \"{uuid}\" is that of rule {number} already: each rule of a chain has one of its own"
        ))),
    }
}

fn whole_chain(lua: &Lua) -> mlua::Result<()> {
    define(
        lua,
        "newRuleAction",
        |lua, (selector, action, options): (_, ActionObject, _)| {
            let (rule, _) = rule(lua, "newRuleAction", selector, action.0, options)?;
            Ok(RuleAction(rule))
        },
    )?;
    define(lua, "setRules", |lua, rules: Table| {
        let rules = specs(&rules)?;
        spec(lua)?.chains.query = rules;
        Ok(())
    })?;
    define(lua, "setCacheMissRules", |lua, rules: Table| {
        let rules = specs(&rules)?;
        spec(lua)?.chains.cache_miss = rules;
        Ok(())
    })?;
    define(lua, "makeRule", |_, selector: AnySelector| {
        Ok(SelectorObject(selector.0))
    })
}

/// What newRuleAction returns.
#[derive(Clone)]
struct RuleAction(RuleSpec<dyn Action>);

fn specs(rules: &Table) -> mlua::Result<Vec<RuleSpec<dyn Action>>> {
    let mut specs = Vec::new();
    for RuleAction(spec) in list_of::<RuleAction>(rules)? {
        check_uuid(&specs, &spec)?;
        specs.push(spec);
    }
    Ok(specs)
}

/// The methods of a DNSDistRuleAction, "a rule composed of a DNSRule selector … and a DNSAction action".
impl UserData for RuleAction {
    fn add_methods<M: UserDataMethods<Self>>(methods: &mut M) {
        methods.add_method("getAction", |_, pair, ()| {
            Ok(ActionObject(Arc::clone(&pair.0.rule.action)))
        });
        methods.add_method("getSelector", |_, pair, ()| {
            Ok(SelectorObject(Arc::clone(&pair.0.rule.selector)))
        });
    }
}

impl FromLua for RuleAction {
    fn from_lua(value: Value, _: &Lua) -> mlua::Result<RuleAction> {
        object(&value, "what newRuleAction returns")
    }
}
