//! Actions on queries, by the functions that make them.

use super::define;
use super::options::Options;
use crate::pipeline::rules::Action;
use crate::pipeline::rules::actions::answer::{AnswerFlags, RCodeAction};
use mlua::{Lua, MetaMethod, Table, UserData, UserDataMethods};
use std::sync::Arc;

pub(super) fn register(lua: &Lua) -> mlua::Result<()> {
    define(
        lua,
        "RCodeAction",
        |lua, (rcode, options): (u8, Option<Table>)| {
            let flags = answer_flags(lua, "RCodeAction", options)?;
            Ok(ActionObject::new(RCodeAction::with_flags(rcode, flags)))
        },
    )
}

/// `{aa=, ad=, ra=}` of the actions that answer.
fn answer_flags(
    lua: &Lua,
    function: &'static str,
    table: Option<Table>,
) -> mlua::Result<AnswerFlags> {
    let mut options = Options::new(lua, function, table);
    let flags = AnswerFlags {
        aa: options.flag("aa")?,
        ad: options.flag("ad")?,
        ra: options.flag("ra")?,
    };
    options.finish()?;
    Ok(flags)
}

/// What the functions of this file return.
#[derive(Clone)]
pub(super) struct ActionObject(pub(super) Arc<dyn Action>);

impl ActionObject {
    fn new(action: impl Action + 'static) -> ActionObject {
        ActionObject(Arc::new(action))
    }
}

impl UserData for ActionObject {
    fn add_methods<M: UserDataMethods<Self>>(methods: &mut M) {
        methods.add_method("toString", |_, action, ()| Ok(action.0.describe()));
        methods.add_meta_method(MetaMethod::ToString, |_, action, ()| {
            Ok(action.0.describe())
        });
    }
}
