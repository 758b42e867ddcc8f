//! One command: compiled first as `return …`, then as a statement; run on the main state; its output and results as text.

use super::super::{place, spec, state::LuaState};
use super::{Output, json};
use crate::config::spec::Purpose;
use mlua::chunk::ChunkMode;
use mlua::{Function, Lua, LuaString, MultiValue, Value, Variadic};
use std::io::{self, Write};
use std::time::{Duration, SystemTime};

/// How long a command may run: Lua rules wait meanwhile.
const LIMIT: Duration = Duration::from_secs(10);

/// How errors name the text of a command; `=` tells Lua that it is no file.
const NAME: &str = "=console";

/// So many commands are remembered for `delta()`.
const HISTORY_MAX: usize = 10_000;

/// What a command was answered.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Answer {
    /// To be shown as it is.
    pub text: String,
    /// Whether the configuration was written to: it has to be derived anew.
    pub edited: bool,
}

/// Commands that have changed the configuration of this state, the oldest first.
#[derive(Default)]
struct History(Vec<(SystemTime, String)>);

impl LuaState {
    /// Runs a command of the console.
    pub fn command(&self, text: &str) -> Answer {
        let mut answer = Answer::default();
        // What was stopped has an answer too, which says so.
        let _ = self.with_limit(LIMIT, |lua| {
            answer = run(lua, text);
            // It may have defined `maintenance`, or asked for addresses.
            self.look(lua)
        });
        answer
    }

    /// The commands that have changed the configuration since its file was read.
    pub fn edits(&self) -> Vec<String> {
        self.with(|lua| {
            let history = lua.app_data_ref::<History>();
            let commands = history.iter().flat_map(|history| &history.0);
            commands.map(|(_, command)| command.clone()).collect()
        })
    }
}

pub(super) fn register(lua: &Lua) -> mlua::Result<()> {
    lua.globals()
        .raw_set("print", lua.create_function(print)?)?;
    super::super::define(lua, "show", |lua, value: Value| {
        let line = as_text(lua, &value)?;
        super::say(lua, line);
        Ok(())
    })?;
    super::super::define(lua, "delta", |lua, ()| {
        let lines = delta(lua);
        lines.iter().for_each(|line| super::say(lua, line));
        Ok(())
    })?;
    super::super::define(lua, "clearConsoleHistory", |lua, ()| {
        lua.remove_app_data::<History>();
        Ok(())
    })
}

/// Lua's `print`: to whoever gave the command, or to standard output as long as a file is read. A file that is read to find a
/// console prints to standard error: standard output has what the console answers, and scripts read it.
fn print(lua: &Lua, values: Variadic<Value>) -> mlua::Result<()> {
    let texts = values.iter().map(|value| as_text(lua, value));
    let line = texts.collect::<mlua::Result<Vec<_>>>()?.join("\t");
    match lua.app_data_ref::<Output>() {
        // Functions print while they serve, too: a terminal that is gone must not end the thread that runs them.
        None if spec(lua).is_ok_and(|spec| spec.purpose == Purpose::Client) => {
            let _ = writeln!(io::stderr().lock(), "{line}");
        }
        None => {
            let _ = writeln!(io::stdout().lock(), "{line}");
        }
        Some(output) => {
            drop(output);
            super::say(lua, line);
        }
    }
    Ok(())
}

/// As Lua's own `tostring` has it: numbers have 14 digits, and octets that are no UTF-8 are no error.
fn as_text(lua: &Lua, value: &Value) -> mlua::Result<String> {
    let tostring: Function = lua.globals().get("tostring")?;
    let text: LuaString = tostring.call(value)?;
    Ok(text.to_string_lossy())
}

fn run(lua: &Lua, text: &str) -> Answer {
    let most = spec(lua).map_or(0, |spec| spec.console.maximum_message_size as usize);
    lua.set_app_data(Output::new(most));
    let before = edits(lua);
    let results = compile(lua, text).and_then(|command| command.call::<MultiValue>(()));
    let edited = edits(lua) != before;
    if edited && results.is_ok() {
        remember(lua, text);
    }
    let output = lua.remove_app_data::<Output>();
    let mut output = output.unwrap_or_else(|| Output::new(most));
    let room = output.room();
    let shown = results.and_then(|results| shown(lua, results.into_iter().next(), room));
    output.push(&shown.unwrap_or_else(|error| failed(&error)));
    Answer {
        text: output.text(),
        edited,
    }
}

/// How often the configuration was written to.
fn edits(lua: &Lua) -> u64 {
    spec(lua).map_or(0, |spec| spec.edits)
}

fn compile(lua: &Lua, text: &str) -> mlua::Result<Function> {
    let load = |text: String| {
        let chunk = lua.load(text).set_name(NAME).set_mode(ChunkMode::Text);
        chunk.into_function()
    };
    load(format!("return {text}")).or_else(|_| load(text.to_owned()))
}

/// The first result, as dnsdist shows it: text and numbers bare, tables as JSON that has `room`, nothing for nil.
fn shown(lua: &Lua, result: Option<Value>, room: usize) -> mlua::Result<String> {
    let text = match result {
        None | Some(Value::Nil) => return Ok(String::new()),
        Some(Value::String(text)) => text.to_string_lossy(),
        Some(Value::Table(table)) => json::text(&table, room)?,
        Some(Value::Integer(number)) => number.to_string(),
        Some(value) => as_text(lua, &value)?,
    };
    Ok(text + "\n")
}

/// A function that a `return` calls last has no line: there is nothing to say of its place.
fn failed(error: &mlua::Error) -> String {
    let text = place::readable(error, "console");
    let text = text.strip_prefix("console: ").unwrap_or(&text);
    let text = text.strip_prefix("configuration: ").unwrap_or(text);
    format!("Error: {text}\n")
}

fn remember(lua: &Lua, command: &str) {
    let mut history: History = lua.remove_app_data().unwrap_or_default();
    if history.0.len() < HISTORY_MAX {
        let now = SystemTime::now();
        history.0.push((now, command.to_owned()));
    }
    lua.set_app_data(history);
}

/// What the console shows: a comment with the time, then the command, so that the whole can stand in a file.
fn delta(lua: &Lua) -> Vec<String> {
    let history = lua.app_data_ref::<History>();
    let commands = history.iter().flat_map(|history| &history.0);
    let lines = commands.flat_map(|(time, command)| {
        let time = crate::log::utc_in_words(*time);
        [format!("-- {time}"), command.clone()]
    });
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::pools::PoolNames;
    use crate::config::spec::Spec;

    /// What each command is answered, one after the other, after a file was read.
    fn ask(file: &str, commands: &[&str]) -> Vec<String> {
        let state = state(file);
        let answers = commands.iter().map(|command| state.command(command).text);
        answers.collect()
    }

    fn state(file: &str) -> LuaState {
        let state = LuaState::new(Spec::new(Purpose::Serve, PoolNames::default())).unwrap();
        state.run("test.conf", file.as_bytes()).unwrap();
        state
    }

    #[test]
    fn of_a_race_it_is_shown_how_many_servers_it_asks() {
        let file = "setServerPolicy(race(2)) setPoolServerPolicy(race, 'all')";
        let commands = [
            "showServerPolicy()",
            "showPoolServerPolicy('all')",
            "race(3).name",
        ];
        assert_eq!(ask(file, &commands), ["race(2)\n", "race\n", "race(3)\n"]);
    }

    #[test]
    fn results_are_shown_as_dnsdist_shows_them() {
        let file = "g = 'global' list = {1, 2, 'three', {a=1, b='x'}}";
        for (command, expected) in [
            ("g", "global\n"),
            ("1 + 1", "2\n"),
            ("1.5", "1.5\n"),
            ("0.1 + 0.2", "0.3\n"),
            ("12345678901234", "12345678901234\n"),
            (
                "print(0.1 + 0.2, 2^60, nil)",
                "0.3\t1.1529215046068e+18\tnil\n",
            ),
            ("print('a\\255b')", "a\u{fffd}b\n"),
            ("return 5", "5\n"),
            ("1, 2", "1\n"),
            ("nil", ""),
            ("", ""),
            ("x = 5", ""),
            ("true", "true\n"),
            ("''", "\n"),
            ("{}", "{}\n"),
            ("{a=1, [1]=2}", "{\"1\": 2, \"a\": 1}\n"),
            (
                "{['\\255']='a\\255\"\\1'}",
                "{\"\u{fffd}\": \"a\u{fffd}\\\"\\u0001\"}\n",
            ),
            (
                "list",
                "{\"1\": 1, \"2\": 2, \"3\": \"three\", \"4\": {\"a\": 1, \"b\": \"x\"}}\n",
            ),
            ("print('a', 1) print('b') return 'c'", "a\t1\nb\nc\n"),
            (
                "showACL()",
                "127.0.0.0/8\n10.0.0.0/8\n100.64.0.0/10\n169.254.0.0/16\n192.168.0.0/16\n172.16.0.0/12\n::1/128\nfc00::/7\nfe80::/10\n",
            ),
            (
                "setACL('192.0.2.0/24') showACL() print('that was all')",
                "192.0.2.0/24\nthat was all\n",
            ),
            ("newPacketCache(5):expunge(0)", "0\n"),
            ("newServer{address='192.0.2.1', name='one'}", "one\n"),
        ] {
            assert_eq!(ask(file, &[command]), [expected], "{command}");
        }
    }

    #[test]
    fn errors_say_what_and_end_nothing() {
        for (command, expected) in [
            (
                "nonsense(",
                "Error: console:1: unexpected symbol near '<eof>'\n",
            ),
            ("error('boo', 0)", "Error: boo\n"),
            (
                "rmRule(7)",
                "Error: rmRule: no rule 7: a number below 0, a UUID or a name expected\n",
            ),
            (
                "setKey('AAAA')",
                "Error: setKey: a key is 32 bytes in base64, as makeKey() or `openssl rand -base64 32` print; this one is 3 bytes long\n",
            ),
            (
                "shutdown()",
                "Error: shutdown: there is no running instance to end\n",
            ),
        ] {
            assert_eq!(ask("", &[command, "1"]), [expected, "1\n"], "{command}");
        }
        let unknown = &ask("", &["showServes()"])[0];
        assert!(unknown.starts_with("Error: console:1: attempt to call global 'showServes'"));
    }

    #[test]
    fn what_contains_itself_is_cut() {
        let text = &ask("t = {} t.t = t", &["t"])[0];
        assert!(text.ends_with("}}}\n") && text.contains('…'), "{text}");
    }

    /// What cannot be sent takes neither memory nor time: functions of the configuration wait for the end of a command.
    #[test]
    fn answers_without_end_are_cut() {
        let answers = ask(
            "setConsoleOutputMaxMsgSize(1000)
             t = {} for n = 1, 16 do local u = {} for k = 1, 9 do u[k] = t end t = u end",
            &["for n = 1, 1000 do print(n) end", "t", "1 + 1"],
        );
        let expected = [
            "Error: the answer takes 3893 bytes, more than the 1000 of setConsoleOutputMaxMsgSize\n",
            "Error: the table takes more than 1000 bytes: see setConsoleOutputMaxMsgSize\n",
            "2\n",
        ];
        assert_eq!(answers, expected);
    }

    #[test]
    fn only_what_writes_to_the_configuration_edits_it() {
        let state = state("newServer('192.0.2.1') getPool('p')");
        for (command, edited) in [
            ("showServers()", false),
            ("showRules({showUUIDs=true})", false),
            ("showPools()", false),
            ("getServer(0):isUp()", false),
            ("getServer(0):getName()", false),
            ("topQueries()", false),
            ("getPool('p'):getCache()", false),
            ("dumpStats()", false),
            ("addACL('192.0.2.0/24')", true),
            ("getServer(0):setDown()", true),
            ("addAction(AllRule(), DropAction())", true),
            ("mvRuleToTop()", true),
            ("getPool('p'):setCache(newPacketCache(10))", true),
        ] {
            assert_eq!(state.command(command).edited, edited, "{command}");
        }
        assert_eq!(state.edits().len(), 5);
        let delta = state.command("delta()").text;
        assert!(delta.contains(" UTC\naddACL('192.0.2.0/24')\n"), "{delta}");
        state.command("clearConsoleHistory()");
        assert_eq!(state.command("delta()").text, "");
    }

    #[test]
    fn a_command_that_failed_half_way_is_derived_but_not_told_of() {
        let state = state("");
        let answer = state.command("addACL('192.0.2.0/24') error('no', 0)");
        assert_eq!((answer.text.as_str(), answer.edited), ("Error: no\n", true));
        assert_eq!(state.edits(), Vec::<String>::new());
    }
}
