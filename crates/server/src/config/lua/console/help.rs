//! `help()`: what can be said.

use super::super::define;
use super::say;
use mlua::{Lua, Value};

/// One line a function: how it is called, and what it does.
const LINES: &str = include_str!("help.txt");

pub(super) fn register(lua: &Lua) -> mlua::Result<()> {
    define(lua, "help", |lua, prefix: Option<String>| {
        let prefix = prefix.unwrap_or_default();
        let lines = LINES.lines().filter(|line| line.starts_with(&prefix));
        let lines: Vec<&str> = lines.collect();
        lines.iter().for_each(|line| say(lua, line));
        if lines.is_empty() {
            say(lua, format!("Nothing found for {prefix}"));
        }
        Ok(())
    })
}

/// The names of all functions of a state, sorted: what the client completes.
pub(super) fn functions(lua: &Lua) -> Vec<String> {
    let globals = lua.globals();
    let named = globals.pairs::<String, Value>().flatten();
    let mut names: Vec<String> = named
        .filter(|(_, value)| value.is_function())
        .map(|(name, _)| name)
        .collect();
    names.sort_unstable();
    names
}

#[cfg(test)]
mod tests {
    use super::super::super::state::LuaState;
    use super::*;
    use crate::config::pools::PoolNames;
    use crate::config::spec::{Purpose, Spec};

    #[test]
    fn help_is_sorted_and_names_functions_that_are_there() {
        assert!(LINES.lines().is_sorted_by_key(str::to_ascii_lowercase));
        let spec = Spec::new(Purpose::Check, PoolNames::default());
        let names = LuaState::new(spec).unwrap().functions();
        for line in LINES.lines() {
            let (name, _) = line.split_once('(').expect(line);
            assert!(names.iter().any(|known| known == name), "{name}");
            assert!(line.contains("): "), "{line}");
        }
    }
}
