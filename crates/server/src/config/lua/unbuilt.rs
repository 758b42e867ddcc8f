//! What functions name that is not in millrace yet ([`super::later`]): those that the file gives us to be called while serving. The
//! call would fail then, each time, where the file's writer counts on it: a file whose `maintenance()` adds dynamic blocks would
//! serve without them. So it is refused as the same call in the file itself is.
//!
//! A function is looked at as it was compiled: the globals that it reads, and those within it. From there on everything that it can
//! reach: functions and tables that it holds or that these globals are. What a file defines for dnsdist alone
//! (`if not millrace then function maintenance() … end end`) was never made, and is not met.
//!
//! Where the table of all globals is reached (`_G[name]`, `getfenv()`), each text on the way that is the name of a global counts as
//! that global: which one is taken from the table, nobody knows before it is. Elsewhere a text is a text, that of a log line for one.

use super::{console, later};
use mlua::{Function, Lua};

/// Finds the first such name. Lua is the language in which all of this can be asked for: LuaJIT's `jit.util` shows what a function
/// was compiled to.
const SEARCH: &str = r#"
    local unbuilt = ...
    local util = require("jit.util")
    local funcbc, funck, funcinfo = util.funcbc, util.funck, util.funcinfo
    local getinfo, getupvalue, getmetatable = debug.getinfo, debug.getupvalue, debug.getmetatable
    local next, type, rawget, band, rshift = next, type, rawget, bit.band, bit.rshift
    local globals, getfenv = _G, getfenv

    local function first(code)
        return band(funcbc(code, 1), 255)
    end
    -- The instructions that read a global, a text, a table whose items are known, and a field by its name.
    local GLOBAL, TEXT, TABLE = first(function() return print end), first(function() return "" end), first(function() return {1} end)
    local FIELD = first(function(object) return object.name end)

    return function(functions)
        local seen, waiting, last, found = {[globals] = true}, {}, 0, nil
        -- What texts name, and whether somebody can ask the table of all globals for it.
        local named, is_open = {}, false

        local function meet(value, source, line)
            if value == nil then
                return
            end
            if unbuilt[value] and not found then
                found = {unbuilt[value], source, line}
            end
            is_open = is_open or value == globals or value == getfenv
            local kind = type(value)
            if (kind == "function" or kind == "table") and not seen[value] then
                seen[value] = true
                last = last + 1
                waiting[last] = {value, source, line}
            elseif kind == "string" and not seen[value] and rawget(globals, value) ~= nil then
                seen[value] = true
                named[#named + 1] = {rawget(globals, value), source, line}
            end
        end

        local function meet_constant(code, place)
            local instruction, info = funcbc(code, place), funcinfo(code, place)
            local kind, number = band(instruction, 255), rshift(instruction, 16)
            if kind == GLOBAL then
                meet(rawget(globals, funck(code, -1 - number)), info.source, info.currentline)
            elseif kind == TEXT or kind == TABLE then
                meet(funck(code, -1 - number), info.source, info.currentline)
            elseif kind == FIELD then
                meet(funck(code, -1 - band(number, 255)), info.source, info.currentline)
            end
        end

        -- `code` is a function, or one that is compiled and not made yet.
        local function read(code)
            local info = funcinfo(code)
            for place = 1, info.bytecodes - 1 do
                meet_constant(code, place)
            end
            for number = 1, info.gcconsts do
                local constant = funck(code, -number)
                if type(constant) == "proto" then
                    read(constant)
                else
                    -- Those of other instructions, with the line where the function begins.
                    meet(constant, info.source, info.linedefined)
                end
            end
        end

        local function read_function(code)
            local info = getinfo(code, "S")
            if info.what == "C" then
                return
            end
            read(code)
            for number = 1, 255 do
                local name, value = getupvalue(code, number)
                if not name then
                    return
                end
                meet(value, info.source, info.linedefined)
            end
        end

        local function read_all()
            while last > 0 and not found do
                local value, source, line = waiting[last][1], waiting[last][2], waiting[last][3]
                waiting[last] = nil
                last = last - 1
                if type(value) == "function" then
                    read_function(value)
                else
                    meet(getmetatable(value), source, line)
                    for key, item in next, value do
                        meet(key, source, line)
                        meet(item, source, line)
                    end
                end
            end
        end

        for _, code in next, functions do
            meet(code)
        end
        read_all()
        while is_open and #named > 0 and not found do
            local known = named
            named = {}
            for _, one in next, known do
                meet(one[1], one[2], one[3])
            end
            read_all()
        end
        if found then
            return found[1], found[2], found[3]
        end
    end
"#;

/// What runs [`SEARCH`].
struct Search(Function);

/// Functions that the file gave us since the last look.
#[derive(Default)]
struct Given(Vec<Function>);

/// Behind what registers the functions that are not there yet.
pub(super) fn register(lua: &Lua) -> mlua::Result<()> {
    let unbuilt = lua.create_table()?;
    for name in later::changing() {
        unbuilt.raw_set(lua.globals().raw_get::<Function>(name)?, name)?;
    }
    let search = lua.load(SEARCH).set_name("=[millrace]").call(unbuilt)?;
    lua.set_app_data(Search(search));
    lua.set_app_data(Given::default());
    Ok(())
}

/// Notes a function that is to be called while serving. One that comes by the console is not looked at: it fails before the eyes of
/// whoever wrote it.
pub(super) fn note(lua: &Lua, function: &Function) {
    if console::serving(lua).is_none()
        && let Some(mut given) = lua.app_data_mut::<Given>()
    {
        given.0.push(function.clone());
    }
}

/// To be called when a file has run to its end.
///
/// # Errors
/// A function that it gave us names what is not there yet: the name, with the line that has it.
pub(super) fn refuse(lua: &Lua) -> mlua::Result<()> {
    let given = lua.app_data_mut::<Given>();
    let given = given.map_or_else(Vec::new, |mut given| std::mem::take(&mut given.0));
    let Some(search) = lua.app_data_ref::<Search>().map(|search| search.0.clone()) else {
        return Ok(());
    };
    if given.is_empty() {
        return Ok(());
    }
    let (name, source, line): (Option<String>, Option<String>, Option<usize>) =
        search.call(lua.create_sequence_from(given)?)?;
    match name {
        None => Ok(()),
        Some(name) => Err(later::unbuilt(&name, source.as_deref(), line)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::state::LuaState;
    use crate::config::pools::PoolNames;
    use crate::config::spec::{Purpose, Spec};

    fn run(text: &str) -> Result<(), String> {
        let state = LuaState::new(Spec::new(Purpose::Check, PoolNames::default())).unwrap();
        let ran = state.run("test.conf", text.as_bytes());
        ran.map_err(|error| error.to_string())
    }

    #[test]
    fn dynamic_blocks_are_refused_wherever_a_function_adds_them() {
        for (line, text) in [
            (
                1,
                "function maintenance() addDynBlocks(exceedQRate(20, 10), 'x', 60) end",
            ),
            (
                2,
                "addMaintenanceCallback(function()\n  addDynBlocks({}, 'x', 60) end)",
            ),
            (
                2,
                "function maintenance()\n  local again = function() addDynBlocks() end again() end",
            ),
            (
                1,
                "local function add() addDynBlocks() end\nfunction maintenance() add() end",
            ),
            (
                1,
                "function add() addDynBlocks() end\nfunction maintenance() add() end",
            ),
            (
                2,
                "local add = addDynBlocks\nfunction maintenance() add() end",
            ),
            (
                2,
                "local names = {add = addDynBlocks}\nfunction maintenance() names.add() end",
            ),
            (
                1,
                "local class = {add = function() addDynBlocks() end}\n\
                 local object = setmetatable({}, {__index = class})\n\
                 function maintenance() object.add() end",
            ),
            (
                1,
                "addAction(AllRule(), LuaAction(function(dq) addDynBlocks() return 0 end))",
            ),
        ] {
            let error = run(text).expect_err(text);
            let begin = format!("test.conf:{line}: addDynBlocks is not in millrace yet");
            assert!(error.starts_with(&begin), "{text}: {error}");
        }
        let error = run("function maintenance() dynBlockRulesGroup():apply() end").unwrap_err();
        assert!(
            error.starts_with("test.conf:1: dynBlockRulesGroup is not"),
            "{error}"
        );
    }

    #[test]
    fn what_names_nothing_of_the_kind_loads() {
        for text in [
            "-- addDynBlocks\nfunction maintenance() --[[ addDynBlocks() ]] end",
            "function maintenance() infolog('addDynBlocks is of dnsdist') end",
            "if not millrace then function maintenance() addDynBlocks() end end",
            // Nobody calls it.
            "function unused() addDynBlocks() end",
            // The file's own.
            "function addDynBlocks() end function maintenance() addDynBlocks() end",
            "function maintenance() clearDynBlocks() end",
            "function maintenance() infolog('addDynBlocks') end",
            "function maintenance() _G.clearDynBlocks() infolog('no addDynBlocks') end",
            "function addDynBlocks() end function maintenance() _G.addDynBlocks() end",
            "local t = {} t.t = t setmetatable(t, t) function maintenance() return t, _G, string end",
        ] {
            assert_eq!(run(text), Ok(()), "{text}");
        }
    }

    #[test]
    fn a_name_is_found_that_the_table_of_globals_is_asked_for() {
        for (line, text) in [
            (1, "function maintenance() _G.addDynBlocks({}) end"),
            (2, "function maintenance()\n_G['addDynBlocks']({}) end"),
            (
                2,
                "local n = 'addDynBlocks'\nfunction maintenance() _G[n]({}) end",
            ),
            (
                3,
                "n = 'addDynBlocks'\nfunction maintenance()\nlocal own = n\n_G[own]() end",
            ),
            (
                2,
                "function maintenance()\nfor _, n in ipairs{'addDynBlocks'} do _G[n](20, 10) end end",
            ),
            (
                2,
                "function maintenance()\nif _G.addDynBlocks then infolog('') end end",
            ),
            (1, "function maintenance() getfenv(0).addDynBlocks({}) end"),
            (
                2,
                "local all = _G\nfunction maintenance() rawget(all, 'addDynBlocks')() end",
            ),
            (
                1,
                "local function name() return 'addDynBlocks' end\nfunction maintenance() _G[name()]() end",
            ),
            (
                1,
                "function add() addDynBlocks() end\nfunction maintenance() _G.add() end",
            ),
        ] {
            let error = run(text).expect_err(text);
            let begin = format!("test.conf:{line}: addDynBlocks is not in millrace yet");
            assert!(error.starts_with(&begin), "{text}: {error}");
        }
    }

    #[test]
    fn what_the_file_has_hidden_does_not_blind_the_search() {
        let text = "debug, jit, bit, rawget, next = nil\nfunction maintenance() addDynBlocks() end";
        let error = run(text).unwrap_err();
        assert!(
            error.starts_with("test.conf:2: addDynBlocks is not"),
            "{error}"
        );
    }
}
