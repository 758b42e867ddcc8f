//! Changes of the configuration while it serves: the API edits the Spec, a command of the console or a callback has written
//! to it; here it is derived anew and swapped in, the live objects kept.

use super::overview::{Overview, STOPPING};
use super::{Daemon, Edit, Event};
use crate::config::Config;
use crate::control::{console, web};
use crate::log;
use std::sync::Arc;
use std::sync::mpsc::channel;

impl Daemon {
    /// Serves by the configuration as `edit` leaves it; zones stay as they are.
    ///
    /// # Errors
    /// Why the old configuration serves on.
    pub(super) fn edit(&mut self, edit: Edit) -> Result<(), String> {
        if self.is_reloading() {
            return Err("a reload is under way: try again when it has ended".to_owned());
        }
        let old = self.instance.config.load_full();
        self.lua.edit(edit);
        let derived = self.lua.derive(Some(&old));
        let mut config = derived.map_err(|error| error.lines().join("\n"))?;
        let opened = self.open_for(&config).inspect_err(|_| {
            // An address that cannot be had, and what came with it, would keep each later edit from serving.
            self.lua.edit(|spec| {
                spec.web.address = web::address(&old);
                if let Some(former) = &old.webserver {
                    spec.web.options = former.options.clone();
                }
                spec.console.address = old.console.address;
            });
        })?;
        config.local = Arc::clone(&old.local);
        config.count_traffic(self.instance.shards.len(), Some(&old));
        let (logging, edits) = self.lua.edit(|spec| (spec.log_settings(), spec.edits));
        log::set(self.arguments.log_settings(logging));
        self.applied = edits;
        self.swap(config, opened);
        self.retired.push(old);
        Ok(())
    }

    /// Serves by what callbacks have written, if they have.
    pub(super) fn apply_edits_of_callbacks(&mut self) {
        if self.is_reloading() || self.lua.edit(|spec| spec.edits) == self.applied {
            return;
        }
        if let Err(reason) = self.edit(Box::new(|_| {})) {
            log::error!("what a callback has changed does not serve: {reason}");
        }
    }
}

impl Overview {
    /// Has the control thread edit the configuration, and waits until the outcome serves.
    ///
    /// # Errors
    /// Why it does not.
    pub(super) fn edit(&self, edit: Edit) -> Result<(), String> {
        let (reply, outcome) = channel();
        let asked = self.events.send(Event::Edit(edit, reply));
        let outcome = asked.ok().and_then(|()| outcome.recv().ok());
        outcome.unwrap_or_else(|| Err(STOPPING.to_owned()))
    }
}

impl console::Commands for Overview {
    fn config(&self) -> Arc<Config> {
        self.instance.config.load_full()
    }

    fn run(&self, command: &str) -> String {
        // One at a time: what a command changed serves before the next one runs.
        let _turn = super::lock(&self.turn);
        let Some(lua) = self.instance.config.load().lua.clone() else {
            return "Error: the configuration has no Lua state\n".to_owned();
        };
        let answer = lua.command(command);
        if !answer.edited {
            return answer.text;
        }
        // The command has edited already.
        match self.edit(Box::new(|_| {})) {
            Ok(()) => answer.text,
            Err(reason) => format!("{}Error: {reason}\n", answer.text),
        }
    }
}
