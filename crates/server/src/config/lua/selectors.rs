//! Selectors, by the functions that make them.

use super::define;
use crate::pipeline::rules::Selector;
use crate::pipeline::rules::selectors::logic;
use mlua::{Lua, MetaMethod, UserData, UserDataMethods};
use std::sync::Arc;

pub(super) fn register(lua: &Lua) -> mlua::Result<()> {
    define(lua, "AllRule", |_, ()| {
        Ok(SelectorObject::new(logic::AllRule))
    })
}

/// What the functions of this file return.
#[derive(Clone)]
pub(super) struct SelectorObject(pub(super) Arc<dyn Selector>);

impl SelectorObject {
    fn new(selector: impl Selector + 'static) -> SelectorObject {
        SelectorObject(Arc::new(selector))
    }
}

impl UserData for SelectorObject {
    fn add_methods<M: UserDataMethods<Self>>(methods: &mut M) {
        methods.add_method("toString", |_, selector, ()| Ok(selector.0.describe()));
        methods.add_meta_method(MetaMethod::ToString, |_, selector, ()| {
            Ok(selector.0.describe())
        });
    }
}
