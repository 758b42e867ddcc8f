//! Query counters: setQueryCount and its relatives.

use super::super::options::Flag;
use super::super::query::count_filter;
use super::super::{define, spec};
use super::say;
use mlua::{Function, Lua};

/// Lines of getQueryCounters(), when nobody says.
const LINES: usize = 10;

pub(super) fn register(lua: &Lua) -> mlua::Result<()> {
    define(lua, "setQueryCount", |lua, Flag(on): Flag| {
        spec(lua)?.query_count.is_on = on;
        Ok(())
    })?;
    define(lua, "setQueryCountFilter", |lua, function: Function| {
        let filter = count_filter(lua, function);
        spec(lua)?.query_count.filter = Some(filter);
        Ok(())
    })?;
    define(lua, "getQueryCounters", |lua, most: Option<usize>| {
        let (is_on, counted) = {
            let count = &spec(lua)?.query_count;
            (count.is_on, count.counters.look(most.unwrap_or(LINES)))
        };
        let word = if is_on { "enabled" } else { "disabled" };
        let names = counted.names;
        say(
            lua,
            format!("query counting is currently: {word} ({names} records in buffer)"),
        );
        for (number, (name, count)) in counted.most.iter().enumerate() {
            let number = number + 1;
            say(lua, format!("{number:<3} {name}: {count} request(s)"));
        }
        if counted.uncounted > 0 {
            let more = counted.uncounted;
            say(
                lua,
                format!("{more} request(s) for further names are not counted"),
            );
        }
        Ok(())
    })?;
    define(lua, "clearQueryCounters", |lua, ()| {
        let cleared = spec(lua)?.query_count.counters.clear();
        say(
            lua,
            format!("{cleared} records cleared from query counter buffer"),
        );
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use crate::config::LuaState;
    use crate::config::pools::PoolNames;
    use crate::config::spec::{Purpose, Spec};
    use crate::pipeline::scene::{Scene, query};
    use std::sync::Arc;
    use wire::codes::qtype;

    fn asked(text: &str) -> String {
        let state = LuaState::new(Spec::new(Purpose::Serve, PoolNames::default())).unwrap();
        let text = format!("setACL('0.0.0.0/0') {text} addAction(AllRule(), DropAction())");
        state.run("test.conf", text.as_bytes()).unwrap();
        let state = Arc::new(state);
        let mut scene = Scene::default();
        scene.config = Arc::new(state.derive(None).unwrap());
        for name in ["b.example.", "A.example.", "b.example.", "."] {
            scene.ask(&query(name, qtype::A));
        }
        let [first, _, last] = [
            "getQueryCounters()",
            "clearQueryCounters()",
            "getQueryCounters()",
        ]
        .map(|command| state.command(command).text);
        assert!(last.ends_with("(0 records in buffer)\n"), "{last}");
        first
    }

    #[test]
    fn names_are_counted_before_the_rules_once_it_is_switched_on() {
        assert_eq!(
            asked("setQueryCount(true)"),
            "query counting is currently: enabled (3 records in buffer)\n\
             1   b.example: 2 request(s)\n2   .: 1 request(s)\n3   A.example: 1 request(s)\n"
        );
        assert_eq!(
            asked(""),
            "query counting is currently: disabled (0 records in buffer)\n"
        );
    }

    #[test]
    fn a_filter_says_what_is_counted_and_as_what() {
        let by = |body: &str| {
            asked(&format!(
                "setQueryCount(true) setQueryCountFilter(function(dq) {body} end)"
            ))
        };
        assert_eq!(
            by("return dq.qname:countLabels() > 0, 'x' .. dq.qname:toString()"),
            "query counting is currently: enabled (2 records in buffer)\n\
             1   xb.example.: 2 request(s)\n2   xA.example.: 1 request(s)\n"
        );
        let none = "query counting is currently: enabled (0 records in buffer)\n";
        assert_eq!(by("return false, 'x'"), none);
        assert_eq!(by("error('no')"), none);
    }

    #[test]
    fn rules_are_numbered_as_if_nobody_counted() {
        let state = LuaState::new(Spec::new(Purpose::Serve, PoolNames::default())).unwrap();
        let text = b"setQueryCount(true) addAction('a', DropAction())";
        state.run("test.conf", text).unwrap();
        let state = Arc::new(state);
        let config = state.derive(None).unwrap();
        assert_eq!(config.rules.len(), 2);
        assert_eq!(state.command("showRules()").text.lines().count(), 2);
    }
}
