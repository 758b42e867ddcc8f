//! The chains of rules, looked at: show, get and top of each.

use super::super::actions::ActionObject;
use super::super::options::Options;
use super::super::response_actions::ResponseActionObject;
use super::super::rules::position;
use super::super::selectors::CountedSelector;
use super::super::{define, spec};
use super::say_row;
use crate::config::spec::{RuleSpec, Spec};
use crate::pipeline::rules::response::ResponseAction;
use crate::pipeline::rules::{Action, RuleOf};
use mlua::{IntoLua, Lua, MetaMethod, Table, UserData, UserDataMethods, Value};
use std::sync::Arc;

pub(super) fn register(lua: &Lua) -> mlua::Result<()> {
    query(lua)?;
    cache_miss(lua)?;
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
    Ok(())
}

/// The functions that look at a chain, whose actions are `A`.
struct Looked<A: ?Sized> {
    show: &'static str,
    get: Option<&'static str>,
    top: Option<&'static str>,
    get_top: Option<&'static str>,
    rules: fn(&Spec) -> &Vec<RuleSpec<A>>,
}

fn query(lua: &Lua) -> mlua::Result<()> {
    let chain = Looked::<dyn Action> {
        show: "showRules",
        get: Some("getRule"),
        top: Some("topRules"),
        get_top: Some("getTopRules"),
        rules: |spec| &spec.chains.query,
    };
    chain.get_action(lua, "getAction")?;
    chain.register(lua)
}

fn cache_miss(lua: &Lua) -> mlua::Result<()> {
    let chain = Looked::<dyn Action> {
        show: "showCacheMissRules",
        get: Some("getCacheMissRule"),
        top: None,
        get_top: None,
        rules: |spec| &spec.chains.cache_miss,
    };
    chain.get_action(lua, "getCacheMissAction")?;
    chain.register(lua)
}

const RESPONSE: Looked<dyn ResponseAction> = Looked {
    show: "showResponseRules",
    get: Some("getResponseRule"),
    top: Some("topResponseRules"),
    get_top: Some("getTopResponseRules"),
    rules: |spec| &spec.chains.response,
};

const CACHE_HIT: Looked<dyn ResponseAction> = Looked {
    show: "showCacheHitResponseRules",
    get: Some("getCacheHitResponseRule"),
    top: Some("topCacheHitResponseRules"),
    get_top: Some("getTopCacheHitResponseRules"),
    rules: |spec| &spec.chains.cache_hit,
};

const CACHE_INSERTED: Looked<dyn ResponseAction> = Looked {
    show: "showCacheInsertedResponseRules",
    get: Some("getCacheInsertedResponseRule"),
    top: Some("topCacheInsertedResponseRules"),
    get_top: Some("getTopCacheInsertedResponseRules"),
    rules: |spec| &spec.chains.cache_inserted,
};

const SELF_ANSWERED: Looked<dyn ResponseAction> = Looked {
    show: "showSelfAnsweredResponseRules",
    get: Some("getSelfAnsweredResponseRule"),
    top: Some("topSelfAnsweredResponseRules"),
    get_top: Some("getTopSelfAnsweredRules"),
    rules: |spec| &spec.chains.self_answered,
};

const TIMEOUT: Looked<dyn ResponseAction> = Looked {
    show: "showTimeoutResponseRules",
    get: Some("getTimeoutResponseRule"),
    top: Some("topTimeoutResponseRules"),
    get_top: Some("getTopTimeoutResponseRule"),
    rules: |spec| &spec.chains.timeout,
};

const XFR: Looked<dyn ResponseAction> = Looked {
    show: "showXFRResponseRules",
    get: None,
    top: None,
    get_top: None,
    rules: |spec| &spec.chains.xfr,
};

/// How many rules top functions tell of, when nobody says.
const TOP: usize = 10;

impl<A: Shown + ?Sized> Looked<A> {
    fn register(self, lua: &Lua) -> mlua::Result<()> {
        let (show, rules) = (self.show, self.rules);
        define(lua, show, move |lua, options: Option<Table>| {
            let look = Look::read(lua, show, options)?;
            let rules: Vec<_> = numbered(rules(&*spec(lua)?)).collect();
            look.show(lua, &rules)
        })?;
        if let Some(get) = self.get {
            define(lua, get, move |lua, which: Value| {
                let spec = spec(lua)?;
                let rules = rules(&spec);
                let found = position(rules, &which).ok();
                Ok(found.map(|at| RuleObject(rules[at].rule.clone())))
            })?;
        }
        if let Some(top) = self.top {
            define(
                lua,
                top,
                move |lua, (most, options): (Option<usize>, Option<Table>)| {
                    let look = Look::read(lua, top, options)?;
                    look.show(lua, &most_matched(rules(&*spec(lua)?), most))
                },
            )?;
        }
        if let Some(get_top) = self.get_top {
            define(lua, get_top, move |lua, most: Option<usize>| {
                let spec = spec(lua)?;
                let rules = most_matched(rules(&spec), most).into_iter();
                Ok(rules.map(|line| RuleObject(line.rule)).collect::<Vec<_>>())
            })?;
        }
        Ok(())
    }

    fn get_action(&self, lua: &Lua, name: &'static str) -> mlua::Result<()> {
        let rules = self.rules;
        define(lua, name, move |lua, which: Value| {
            let spec = spec(lua)?;
            let rules = rules(&spec);
            let found = position(rules, &which).ok();
            let action = found.map(|at| Arc::clone(&rules[at].rule.action));
            drop(spec);
            action.map(|action| A::object(action, lua)).transpose()
        })
    }
}

/// A rule as a line of a list.
struct Line<A: ?Sized> {
    number: usize,
    rule: RuleOf<A>,
}

fn numbered<A: ?Sized>(rules: &[RuleSpec<A>]) -> impl Iterator<Item = Line<A>> {
    rules.iter().enumerate().map(|(number, spec)| Line {
        number,
        rule: spec.rule.clone(),
    })
}

/// The rules that matched most often, numbered by that; of equals the first stays first.
fn most_matched<A: ?Sized>(rules: &[RuleSpec<A>], most: Option<usize>) -> Vec<Line<A>> {
    let mut lines: Vec<_> = numbered(rules).collect();
    lines.sort_by_key(|line| std::cmp::Reverse(line.rule.matches.sum()));
    lines.truncate(most.unwrap_or(TOP));
    for (number, line) in lines.iter_mut().enumerate() {
        line.number = number;
    }
    lines
}

/// `{showUUIDs=, truncateRuleWidth=}`.
struct Look {
    with_uuids: bool,
    /// Longer texts of selectors are cut.
    rule_width: Option<usize>,
}

impl Look {
    fn read(lua: &Lua, function: &'static str, table: Option<Table>) -> mlua::Result<Look> {
        let mut options = Options::new(lua, function, table);
        let with_uuids = options.flag("showUUIDs")?.unwrap_or(false);
        let width: Option<i64> = options.number("truncateRuleWidth", "a number of characters")?;
        options.finish()?;
        Ok(Look {
            with_uuids,
            // The manual's -1: as long as it is.
            rule_width: width.and_then(|width| usize::try_from(width).ok()),
        })
    }

    /// dnsdist's columns.
    fn show<A: Shown + ?Sized>(&self, lua: &Lua, lines: &[Line<A>]) -> mlua::Result<()> {
        let (number, name, matches, rule) = ("#", "Name", "Matches", "Rule");
        let uuid = self.uuid_columns("UUID", "Cr. Order");
        say_row(
            lua,
            format!("{number:<3} {name:<30} {uuid}{matches:>9} {rule:<56} Action"),
        );
        for line in lines {
            let selector = self.cut(line.rule.selector.describe());
            let uuid = self.uuid_columns(&line.rule.uuid, &line.rule.created.to_string());
            let (number, name) = (line.number, &line.rule.name);
            let (matches, action) = (line.rule.matches.sum(), A::text(&line.rule.action));
            say_row(
                lua,
                format!("{number:<3} {name:<30} {uuid}{matches:>9} {selector:<56} {action}"),
            );
        }
        Ok(())
    }

    fn uuid_columns(&self, uuid: &str, created: &str) -> String {
        match self.with_uuids {
            true => format!("{uuid:<38} {created:>9} "),
            false => String::new(),
        }
    }

    fn cut(&self, text: String) -> String {
        match self.rule_width {
            Some(width) => text.chars().take(width).collect(),
            None => text,
        }
    }
}

/// What stands in a chain, as it is shown and handed out.
trait Shown: Send + Sync + 'static {
    fn text(&self) -> String;
    fn object(action: Arc<Self>, lua: &Lua) -> mlua::Result<Value>;
}

impl Shown for dyn Action {
    fn text(&self) -> String {
        self.describe()
    }

    fn object(action: Arc<dyn Action>, lua: &Lua) -> mlua::Result<Value> {
        ActionObject(action).into_lua(lua)
    }
}

impl Shown for dyn ResponseAction {
    fn text(&self) -> String {
        self.describe()
    }

    fn object(action: Arc<dyn ResponseAction>, lua: &Lua) -> mlua::Result<Value> {
        ResponseActionObject { action }.into_lua(lua)
    }
}

/// DNSDistRuleAction and DNSDistResponseRuleAction.
struct RuleObject<A: ?Sized>(RuleOf<A>);

impl<A: Shown + ?Sized> UserData for RuleObject<A> {
    fn add_methods<M: UserDataMethods<Self>>(methods: &mut M) {
        methods.add_method("getAction", |lua, rule, ()| {
            A::object(Arc::clone(&rule.0.action), lua)
        });
        methods.add_method("getSelector", |_, rule, ()| {
            Ok(CountedSelector {
                selector: Arc::clone(&rule.0.selector),
                matches: rule.0.matches.clone(),
            })
        });
        methods.add_meta_method(MetaMethod::ToString, |_, rule, ()| {
            let action = A::text(&rule.0.action);
            Ok(format!("{} => {action}", rule.0.selector.describe()))
        });
    }
}
