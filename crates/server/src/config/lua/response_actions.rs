//! Actions on responses, by the functions that make them.

use super::define;
use super::objects::list_of;
use super::selectors::Qtype;
use crate::pipeline::rules::actions::response::{
    AllowResponseAction, DropResponseAction, LimitTTLResponseAction,
    SetMaxReturnedTTLResponseAction, SetReducedTTLResponseAction, SetSkipCacheResponseAction,
    TCResponseAction,
};
use crate::pipeline::rules::response::ResponseAction;
use mlua::{Lua, MetaMethod, Table, UserData, UserDataMethods};
use std::sync::Arc;

pub(super) fn register(lua: &Lua) -> mlua::Result<()> {
    define(lua, "AllowResponseAction", |_, ()| {
        response_made(AllowResponseAction)
    })?;
    define(lua, "DropResponseAction", |_, ()| {
        response_made(DropResponseAction)
    })?;
    define(lua, "TCResponseAction", |_, ()| {
        response_made(TCResponseAction)
    })?;
    define(lua, "SetSkipCacheResponseAction", |_, ()| {
        response_made(SetSkipCacheResponseAction)
    })?;
    ttls(lua)
}

fn ttls(lua: &Lua) -> mlua::Result<()> {
    define(lua, "SetMinTTLResponseAction", |_, minimum| {
        limit(minimum, u32::MAX, None)
    })?;
    define(lua, "SetMaxTTLResponseAction", |_, maximum| {
        limit(0, maximum, None)
    })?;
    define(
        lua,
        "LimitTTLResponseAction",
        |_, (minimum, maximum, types): (u32, Option<u32>, Option<Table>)| {
            let types = types.map(|types| list_of(&types)).transpose()?;
            limit(minimum, maximum.unwrap_or(u32::MAX), types)
        },
    )?;
    define(lua, "SetReducedTTLResponseAction", |_, percentage: u8| {
        if percentage > 100 {
            return Err(super::wrong(format!(
                "{percentage}: a percentage from 0 to 100 expected"
            )));
        }
        response_made(SetReducedTTLResponseAction { percentage })
    })?;
    define(lua, "SetMaxReturnedTTLResponseAction", |_, maximum| {
        response_made(SetMaxReturnedTTLResponseAction { maximum })
    })
}

fn limit(
    minimum: u32,
    maximum: u32,
    types: Option<Vec<Qtype>>,
) -> mlua::Result<ResponseActionObject> {
    // RFC 2181 §8: what is above means 0.
    if minimum > i32::MAX as u32 {
        return Err(super::wrong(format!(
            "{minimum}: a TTL of at most {} seconds expected (RFC 2181 §8)",
            i32::MAX
        )));
    }
    let types = types
        .unwrap_or_default()
        .into_iter()
        .map(|qtype| qtype.0)
        .collect();
    response_made(LimitTTLResponseAction {
        minimum,
        maximum,
        types,
    })
}

/// What the functions of this file return.
#[derive(Clone)]
pub(super) struct ResponseActionObject {
    pub(super) action: Arc<dyn ResponseAction>,
}

pub(super) fn response_made(
    action: impl ResponseAction + 'static,
) -> mlua::Result<ResponseActionObject> {
    Ok(ResponseActionObject {
        action: Arc::new(action),
    })
}

impl UserData for ResponseActionObject {
    fn add_methods<M: UserDataMethods<Self>>(methods: &mut M) {
        methods.add_method("toString", |_, action, ()| Ok(action.action.describe()));
        methods.add_method("reload", |_, action, ()| {
            action.action.reload();
            Ok(())
        });
        methods.add_meta_method(MetaMethod::ToString, |_, action, ()| {
            Ok(action.action.describe())
        });
    }
}
