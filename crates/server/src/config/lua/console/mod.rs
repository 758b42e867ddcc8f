//! What people say to an instance that runs, and what it answers: the console's commands, and the functions of the dialect
//! that only make sense there. They may stand in a file too: what they print then goes nowhere, as dnsdist has it.

mod absent;
mod bench;
mod binds;
mod command;
mod counts;
mod entries;
mod help;
mod json;
mod queries;
mod rings;
mod rules;
mod servers;
mod settings;
mod statistics;
mod top;

use super::state::LuaState;
use crate::control::console::too_long;
use crate::control::metrics::Metrics;
use mlua::Lua;
use std::sync::{Arc, Weak};

pub(super) fn register(lua: &Lua) -> mlua::Result<()> {
    command::register(lua)?;
    settings::register(lua)?;
    rules::register(lua)?;
    servers::register(lua)?;
    bench::register(lua)?;
    binds::register(lua)?;
    counts::register(lua)?;
    statistics::register(lua)?;
    queries::register(lua)?;
    entries::register(lua)?;
    absent::register(lua)?;
    help::register(lua)
}

/// The instance that serves by the configuration of this state.
struct Serving(Weak<Metrics>);

/// The running instance; `None` as long as the configuration is read.
pub(super) fn serving(lua: &Lua) -> Option<Arc<Metrics>> {
    lua.app_data_ref::<Serving>()?.0.upgrade()
}

/// What a command has printed so far; there while one runs.
struct Output {
    text: String,
    /// In octets: what is longer cannot be sent, and is counted only.
    most: usize,
    length: usize,
}

impl Output {
    fn new(most: usize) -> Output {
        Output {
            text: String::new(),
            most,
            length: 0,
        }
    }

    fn push(&mut self, text: &str) {
        self.length = self.length.saturating_add(text.len());
        match self.length <= self.most {
            true => self.text.push_str(text),
            false => self.text = String::new(),
        }
    }

    /// Octets that have room still.
    fn room(&self) -> usize {
        self.most.saturating_sub(self.length)
    }

    fn text(self) -> String {
        let Output { text, most, length } = self;
        match length <= most {
            true => text,
            false => too_long(length, most),
        }
    }
}

/// Whether a command runs, which is told what is wrong with it, and not the file.
fn is_command(lua: &Lua) -> bool {
    lua.app_data_ref::<Output>().is_some()
}

/// Prints `line` and a line feed to whoever gave the command.
pub(super) fn say(lua: &Lua, line: impl std::fmt::Display) {
    if let Some(mut output) = lua.app_data_mut::<Output>() {
        output.push(&format!("{line}\n"));
    }
}

/// The same, without spaces at the end of the line that nobody sees.
fn say_row(lua: &Lua, row: impl std::fmt::Display) {
    say(lua, row.to_string().trim_end());
}

impl LuaState {
    /// From now on the functions of this state see the running instance.
    pub fn serve(&self, metrics: &Arc<Metrics>) {
        self.with(|lua| lua.set_app_data(Serving(Arc::downgrade(metrics))));
    }

    /// The names of all functions, sorted.
    pub fn functions(&self) -> Vec<String> {
        self.with(help::functions)
    }
}
