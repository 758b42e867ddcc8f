//! What `pcall`, `xpcall` and `coroutine.resume` catch. An error of ours is an object of mlua's there, which can be neither
//! concatenated nor searched. dnsdist's errors are text, and configurations write `errlog("…" .. why)`.

use super::place::{self, AROUND_CALLS};
use mlua::{Lua, Value};

/// The three functions around Lua's own. They are Lua too, so that a coroutine can yield across them.
const WRAPPERS: &str = r#"
    local text = ...
    local pcall, xpcall, resume, type = pcall, xpcall, coroutine.resume, type

    local function caught(done, ...)
        if not done and type((...)) == "userdata" then
            return done, text((...))
        end
        return done, ...
    end

    _G.pcall = function(...)
        return caught(pcall(...))
    end

    _G.xpcall = function(act, handler, ...)
        if type(handler) ~= "function" then
            return xpcall(act, handler, ...)
        end
        local function handle(why)
            if type(why) == "userdata" then
                why = text(why)
            end
            return handler(why)
        end
        return xpcall(act, handle, ...)
    end

    coroutine.resume = function(...)
        return caught(resume(...))
    end
"#;

pub(super) fn register(lua: &Lua) -> mlua::Result<()> {
    let text = lua.create_function(|lua, caught: Value| match caught {
        Value::Error(error) => lua.create_string(place::text_of(&error)).map(Value::String),
        // Whatever a file gave to `error`.
        other => Ok(other),
    })?;
    lua.load(WRAPPERS)
        .set_name(format!("={AROUND_CALLS}"))
        .call(text)
}

#[cfg(test)]
mod tests {
    use super::super::state::LuaState;
    use crate::config::pools::PoolNames;
    use crate::config::spec::{Purpose, Spec};
    use std::time::Duration;

    fn state() -> LuaState {
        LuaState::new(Spec::new(Purpose::Check, PoolNames::default())).unwrap()
    }

    fn run(text: &str) {
        let ran = state().run("test", text.as_bytes());
        ran.unwrap_or_else(|error| panic!("{text}: {error}"));
    }

    #[test]
    fn an_error_of_ours_is_text_with_its_line() {
        let name = r#"why:find("^test:1: newDNSName: argument 1: '%.%.' is not a name: [^\n]*$")"#;
        for caught in [
            "pcall(newDNSName, '..')",
            "pcall(function() newDNSName('..') end)",
            "xpcall(function() newDNSName('..') end, function(why) return why .. '' end)",
            "coroutine.resume(coroutine.create(function() newDNSName('..') end))",
        ] {
            run(&format!(
                "local ok, why = {caught} assert(not ok and type(why) == 'string' and {name}, why)"
            ));
        }
        for caught in [
            "pcall(function() newDNSName('a'):isPartOf(5) end)",
            "pcall(newDNSName('a').isPartOf, newDNSName('a'), 5)",
        ] {
            run(&format!(
                "local ok, why = {caught} assert(not ok and why:find('^test:1: .*isPartOf: argument 1: '), why)"
            ));
        }
    }

    #[test]
    fn all_else_is_as_lua_has_it() {
        for text in [
            "assert(select('#', pcall(function() end)) == 1)",
            "assert(select('#', pcall(function() return nil, nil end)) == 3)",
            "local ok, why = pcall(error, {code=5}) assert(not ok and why.code == 5)",
            "local ok, why = pcall(error) assert(not ok and why == nil)",
            "local name = newDNSName('a') local ok, why = pcall(error, name) assert(not ok and why == name)",
            "local ok, sum = xpcall(function(a, b) return a + b end, print, 1, 2) assert(ok and sum == 3)",
            "assert(not pcall(xpcall, print) and not pcall(pcall))",
            "local c = coroutine.wrap(function() return pcall(coroutine.yield, 7) end)
             assert(c() == 7) local ok, got = c(8) assert(ok and got == 8)",
        ] {
            run(text);
        }
    }

    #[test]
    fn a_loop_within_is_stopped() {
        for text in [
            "while true do pcall(function() while true do end end) end",
            "xpcall(function() while true do end end, function() end)",
            "while true do coroutine.resume(coroutine.create(function() while true do end end)) end",
        ] {
            let ran = state().run_within(Duration::from_millis(20), "test", text.as_bytes());
            let error = ran.unwrap_err().to_string();
            assert!(error.starts_with("test: stopped after"), "{text}: {error}");
        }
    }
}
