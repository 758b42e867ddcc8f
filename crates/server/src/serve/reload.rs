//! Reload: the file runs in a new Lua state, everything is checked and opened, then all of it is swapped. A bad file, or
//! an address that cannot be bound, changes nothing.
//!
//! Order, so that no query is lost: what is new is opened before workers see the new configuration, what is gone is
//! closed after.

use super::Daemon;
use super::start::{bind_listener, prepare};
use crate::commands::say_remarks;
use crate::config::spec::Purpose;
use crate::config::{self, Config, Listener};
use crate::frontend::inherited::Inherited;
use crate::frontend::listeners::Sockets;
use crate::local::{self, Local};
use crate::log;
use crate::worker::Order;
use std::sync::Arc;

impl Daemon {
    /// Serves by the file as it is now; the lines for the operator.
    ///
    /// # Errors
    /// Why the old configuration serves on.
    pub(super) fn reload(&mut self) -> Result<Vec<String>, String> {
        let old = self.instance.config.load_full();
        let lines = |error: config::ConfigError| error.lines().join("\n");
        let lua = self.arguments.load(Purpose::Serve, Some(&old));
        let lua = Arc::new(lua.map_err(lines)?);
        let mut config = lua.derive(Some(&old)).map_err(lines)?;
        let logging = lua.edit(|spec| spec.logging);
        let listeners = self.listeners_for(&config)?;
        let (local, of_zones) = lua.edit(|spec| Local::load(&spec.zones, &old.local));
        config.local = Arc::new(local);
        config.count_traffic(self.instance.shards.len(), Some(&old));

        log::set(self.arguments.log_settings(logging));
        lua.edit(|spec| say_remarks(spec));
        let mut lines: Vec<String> = of_zones.iter().map(|line| line.text.clone()).collect();
        lines.extend(dropped(&self.lua.edits()));
        lua.serve(&self.metrics);
        self.lua = lua;
        self.applied = self.lua.edit(|spec| spec.edits);
        of_zones.iter().for_each(local::Line::log);
        lines.extend(self.swap(config, listeners));
        self.retired.push(old);
        Ok(lines)
    }

    /// The sockets for all listeners of `config`: those that serve already, and new ones.
    pub(super) fn listeners_for(
        &self,
        config: &Config,
    ) -> Result<Vec<Option<Arc<Sockets>>>, String> {
        let mut all = Vec::clone(&self.instance.listeners.all());
        let served = |address| {
            self.instance
                .listeners
                .all()
                .iter()
                .flatten()
                .any(|old| old.address == address)
        };
        for listener in config
            .listeners
            .iter()
            .filter(|listener| !served(listener.address))
        {
            let sockets = self.bind(all.len(), listener)?;
            all.push(Some(Arc::new(sockets)));
        }
        Ok(all)
    }

    fn bind(&self, number: usize, listener: &Listener) -> Result<Sockets, String> {
        let number = u16::try_from(number).map_err(|_| {
            "65,535 listeners have come and gone: a restart is needed to serve another address"
                .to_owned()
        })?;
        let pulses = self.instance.pulses.as_ref();
        let (place, none) = ((number, listener), &mut Inherited::default());
        bind_listener(place, self.workers.len(), pulses, &self.helper, none)
            .map_err(|error| format!("cannot serve {}: {error}", listener.address))
    }

    /// Everything is good: from here on nothing fails.
    pub(super) fn swap(
        &mut self,
        config: Config,
        mut listeners: Vec<Option<Arc<Sockets>>>,
    ) -> Vec<String> {
        let config = Arc::new(config);
        config
            .servers
            .iter()
            .for_each(|server| prepare(server, &self.instance.ports));
        self.instance.exchanges.servers().publish(&config.servers);
        self.services.check(&config.servers);

        let old = self.instance.listeners.all();
        self.instance.listeners.replace(listeners.clone());
        self.instance.config.store(Arc::clone(&config));
        config.take_effect();
        for sockets in listeners.iter().skip(old.len()).flatten() {
            self.order(|| Order::Listen(Arc::clone(sockets)));
            self.services.accept(sockets);
        }
        let mut lines = self.plan_anew(&config);
        lines.extend(self.detach_unplanned());
        // Servers may be other ones where the plan is the same.
        self.watch(&config);
        for (place, sockets) in listeners.clone().iter().enumerate() {
            let Some(sockets) = sockets else { continue };
            if !config
                .listeners
                .iter()
                .any(|listener| listener.address == sockets.address)
            {
                self.order(|| Order::Unlisten(sockets.number));
                self.services.refuse(sockets);
                listeners[place] = None;
            }
        }
        self.instance.listeners.replace(listeners);
        self.order(|| Order::Wake);
        lines.push(format!("configuration {} serves", config.generation));
        lines.iter().for_each(|line| log::notice!("{line}"));
        lines
    }

    pub(super) fn order(&self, order: impl Fn() -> Order) {
        self.workers
            .iter()
            .for_each(|worker| worker.reins.order(order()));
    }
}

/// What was changed at run time and is not in the file is gone: the operator should know.
fn dropped(edits: &[String]) -> Vec<String> {
    let lines = edits.iter().map(|command| format!("dropped: {command}"));
    lines.collect()
}
