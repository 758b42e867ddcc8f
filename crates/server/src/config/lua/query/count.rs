//! setQueryCountFilter: a function that says whether a query is counted, and as what: `counted, name = f(dq)`.

use super::super::callback::{Callback, Limit};
use super::object;
use super::subject::Subject;
use crate::pipeline::Env;
use crate::pipeline::query::Query;
use crate::pipeline::rules::actions::count::CountFilter;
use mlua::{Function, Lua};
use std::sync::Arc;

pub(in super::super) fn count_filter(lua: &Lua, function: Function) -> Arc<dyn CountFilter> {
    Arc::new(LuaFilter(Callback::new(
        lua,
        "setQueryCountFilter",
        function,
    )))
}

struct LuaFilter(Callback);

impl CountFilter for LuaFilter {
    /// A function that fails counts nothing, and is told of: the query goes on.
    fn name(&self, query: &Query<'_>, env: &Env<'_>) -> Option<String> {
        let state = env.config.lua.as_ref()?;
        let counted = self.0.call(state, env.now, Limit::QUERY, |lua, function| {
            let object = object(lua, |objects| &objects.query)?;
            Subject::show(&object.subject, query, env, || {
                function.call::<(bool, Option<String>)>(&object.value)
            })
        });
        let (is_counted, name) = counted?;
        name.filter(|_| is_counted)
    }
}
