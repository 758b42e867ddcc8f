//! The chain of rules: addAction.

use super::actions::ActionObject;
use super::options::Options;
use super::selectors::SelectorObject;
use super::{define, spec, wrong};
use crate::config::spec::RuleSpec;
use crate::config::uuid;
use crate::pipeline::rules::{Rule, Selector};
use mlua::{Lua, Table, UserDataRef, Value};
use std::sync::Arc;

pub(super) fn register(lua: &Lua) -> mlua::Result<()> {
    define(
        lua,
        "addAction",
        |lua, (selector, action, options): (Value, UserDataRef<ActionObject>, Option<Table>)| {
            let selector = selector_of(&selector)?;
            let rule = rule(lua, "addAction", selector, &action, options)?;
            spec(lua)?.rules.push(rule);
            Ok(())
        },
    )
}

/// `{uuid=, name=}`.
fn rule(
    lua: &Lua,
    function: &'static str,
    selector: Arc<dyn Selector>,
    action: &ActionObject,
    table: Option<Table>,
) -> mlua::Result<RuleSpec> {
    let mut options = Options::new(lua, function, table);
    let uuid: Option<String> = options.get("uuid")?;
    let name: Option<String> = options.get("name")?;
    options.finish()?;
    let rule = Rule {
        selector,
        action: Arc::clone(&action.0),
        name: name.unwrap_or_default(),
        uuid: uuid.clone().unwrap_or_else(uuid::random),
        matches: Arc::default(),
    };
    Ok(RuleSpec {
        rule,
        uuid_given: uuid.is_some(),
    })
}

/// A selector as addAction takes it.
fn selector_of(value: &Value) -> mlua::Result<Arc<dyn Selector>> {
    if let Value::UserData(object) = value
        && let Ok(selector) = object.borrow::<SelectorObject>()
    {
        return Ok(Arc::clone(&selector.0));
    }
    Err(wrong(format!(
        "a selector expected, got {}",
        super::options::shown(value)
    )))
}
