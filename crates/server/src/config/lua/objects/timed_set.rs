//! TimedIPSetRule.

use super::super::define;
use super::super::selectors::{SelectorObject, made};
use super::address::AnyAddress;
use crate::clock::Now;
use crate::pipeline::rules::selectors::client::TimedIPSetRule;
use mlua::{Lua, UserData, UserDataMethods};

pub(super) fn register(lua: &Lua) -> mlua::Result<()> {
    define(lua, "TimedIPSetRule", |_, ()| {
        Ok(TimedSet(TimedIPSetRule::default()))
    })
}

/// What TimedIPSetRule returns: a set of addresses, of which `slice()` makes a selector.
struct TimedSet(TimedIPSetRule);

impl UserData for TimedSet {
    fn add_methods<M: UserDataMethods<Self>>(methods: &mut M) {
        methods.add_method("add", |_, set, (address, seconds): (AnyAddress, u64)| {
            let until = Now::read()
                .0
                .saturating_add(seconds.saturating_mul(1_000_000_000));
            set.0.add(address.0.ip(), Now(until));
            Ok(())
        });
        methods.add_method("cleanup", |_, set, ()| {
            set.0.clean_up(Now::read());
            Ok(())
        });
        methods.add_method("clear", |_, set, ()| {
            set.0.clear();
            Ok(())
        });
        methods.add_method("slice", |_, set, ()| -> mlua::Result<SelectorObject> {
            made(set.0.clone())
        });
    }
}
