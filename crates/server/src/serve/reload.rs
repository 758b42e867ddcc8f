//! Reload: the file runs in a new Lua state, everything is checked and opened, then all of it is swapped. A bad file, or
//! an address that cannot be bound, changes nothing.
//!
//! Order, so that no query is lost: what is new is opened before workers see the new configuration, what is gone is
//! closed after.

use super::listeners::{bind_listener, size_buffers};
use super::start::prepare;
use super::{Daemon, Event, ReloadOutcome, occupied, workers};
use crate::commands::say_remarks;
use crate::config::spec::Purpose;
use crate::config::zones::ZoneSpecs;
use crate::config::{self, Config, Listener, LuaState};
use crate::control::{console, web};
use crate::frontend::listeners::Sockets;
use crate::local::{Line, Local};
use crate::log;
use crate::network::keeping::Hands;
use crate::worker::Order;
use std::io;
use std::net::TcpListener;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::Sender;

/// A configuration that is good, and waits for its zones.
pub(super) struct Reloading {
    lua: Arc<LuaState>,
    config: Config,
    logging: log::Settings,
    opened: Opened,
    reply: Option<Sender<ReloadOutcome>>,
}

/// The sockets of a configuration that does not serve yet.
pub(super) struct Opened {
    /// For all listeners: those that serve already, and new ones.
    listeners: Vec<Option<Arc<Sockets>>>,
    /// Where they are to listen elsewhere than now.
    web: Option<TcpListener>,
    console: Option<TcpListener>,
}

impl Daemon {
    /// Begins to serve by the file as it is now; `reply` gets the lines for the operator, or why the old configuration
    /// serves on. Zones are loaded on other threads, and everything is swapped when they are there.
    pub(super) fn reload(&mut self, reply: Option<Sender<ReloadOutcome>>) {
        if self.reloading.is_some() {
            return ask_again(&mut self.asked_again, reply);
        }
        match self.prepare_reload() {
            Ok((mut reloading, specs)) => {
                reloading.reply = reply;
                self.reloading = Some(reloading);
                let previous = Arc::clone(&self.instance.config.load().local);
                let events = self.overview.events.clone();
                let load = move || {
                    let loaded = guarded(|| Local::load(&specs, &previous));
                    // A control thread that has ended needs no zones.
                    let _ = events.send(Event::Loaded(Box::new(loaded)));
                };
                let started = std::thread::Builder::new()
                    .name("zones".to_owned())
                    .spawn(load);
                if let Err(error) = started {
                    self.give_up(format!("no thread to load zones with: {error}"));
                }
            }
            Err(reason) => self.end_reload(reply, Err(reason)),
        }
    }

    /// Zones are being loaded for a configuration that will take this one's place.
    pub(super) fn is_reloading(&self) -> bool {
        self.reloading.is_some()
    }

    fn give_up(&mut self, reason: String) {
        if let Some(reloading) = self.reloading.take() {
            self.end_reload(reloading.reply, Err(reason));
        }
    }

    /// # Errors
    /// Why the old configuration serves on.
    fn prepare_reload(&mut self) -> Result<(Reloading, ZoneSpecs), String> {
        let old = self.instance.config.load_full();
        let lines = |error: config::ConfigError| error.lines().join("\n");
        let lua = self.arguments.load(Purpose::Serve, Some(&old));
        let lua = Arc::new(lua.map_err(lines)?);
        let config = lua.derive(Some(&old)).map_err(lines)?;
        let (logging, zones) = lua.edit(|spec| (spec.log_settings(), spec.zones.clone()));
        let opened = self.open_for(&config)?;
        let reloading = Reloading {
            lua,
            config,
            logging,
            opened,
            reply: None,
        };
        Ok((reloading, zones))
    }

    /// The zones are there, as far as they can be, or could not be loaded at all.
    pub(super) fn finish_reload(&mut self, loaded: Result<(Local, Vec<Line>), String>) {
        let Some(reloading) = self.reloading.take() else {
            return;
        };
        match loaded {
            Ok(loaded) => self.take_effect(reloading, loaded),
            Err(reason) => self.end_reload(reloading.reply, Err(reason)),
        }
        for reply in std::mem::take(&mut self.asked_again) {
            self.reload(reply);
        }
    }

    /// Serves by a configuration whose zones are there: from here on nothing fails.
    fn take_effect(&mut self, reloading: Reloading, (local, of_zones): (Local, Vec<Line>)) {
        let Reloading {
            lua,
            mut config,
            logging,
            opened,
            reply,
        } = reloading;
        // Some may have been transferred since.
        config.local = Arc::new(local.anew());
        let old = self.instance.config.load_full();
        config.count_traffic(self.instance.shards.len(), Some(&old));
        config.catch_up_with(&old);
        log::set(self.arguments.log_settings(logging));
        lua.edit(|spec| say_remarks(spec));
        let mut lines: Vec<String> = of_zones.iter().map(|line| line.text.clone()).collect();
        lines.extend(dropped(&self.lua.edits()));
        lua.serve(&self.metrics);
        self.lua = lua;
        self.applied = self.lua.edit(|spec| spec.edits);
        of_zones.iter().for_each(Line::log);
        let staying = self.services.what_stays(&config);
        staying.iter().for_each(|line| log::notice!("{line}"));
        lines.extend(staying);
        lines.extend(self.swap(config, opened));
        self.retired.push(old);
        self.end_reload(reply, Ok(lines));
    }

    /// Has the zones serve as they are now.
    pub(super) fn publish_zones(&mut self) {
        let wanted = self.keeper.publishing();
        let old = self.instance.config.load_full();
        let config = Config {
            local: Arc::new(old.local.anew()),
            ..Config::clone(&old)
        };
        self.instance.config.store(Arc::new(config));
        self.services.tell();
        self.keeper.published(wanted);
        self.retired.push(old);
        // Workers let go of what is no longer served.
        self.order(|| Order::Wake);
    }

    /// Opens what `config` listens by and the configuration of this moment does not.
    ///
    /// # Errors
    /// An address that cannot be had.
    pub(super) fn open_for(&self, config: &Config) -> Result<Opened, String> {
        let old = self.instance.config.load();
        let tell = |error: io::Error| error.to_string();
        let (old_web, web) = (web::address(&old), web::address(config));
        let (old_console, console) = (old.console.address, config.console.address);
        Ok(Opened {
            listeners: self.listeners_for(config)?,
            web: web::SERVICE.open(old_web, web).map_err(tell)?,
            console: console::SERVICE.open(old_console, console).map_err(tell)?,
        })
    }

    fn listeners_for(&self, config: &Config) -> Result<Vec<Option<Arc<Sockets>>>, String> {
        let mut all = Vec::clone(&self.instance.listeners.all());
        for old in all.iter().flatten() {
            let mut listeners = config.listeners.iter();
            let new = listeners.find(|listener| listener.address == old.address);
            if new.is_some_and(|new| new.interface != old.interface) {
                return Err(format!(
                    "{} was bound to another interface, or to none, when it began: to change that takes a restart",
                    old.address
                ));
            }
        }
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
            self.forget_at(listener.address);
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
        let (place, workers) = ((number, listener), self.workers.len());
        let lent = self.lent.copies_at(listener.address);
        let sockets = lent
            .and_then(|mut lent| bind_listener(place, workers, pulses, &self.helper, &mut lent));
        sockets.map_err(|error| occupied::cannot_serve(listener.address, &error))
    }

    pub(super) fn swap(&mut self, config: Config, opened: Opened) -> Vec<String> {
        let listeners = opened.listeners;
        let config = Arc::new(config);
        self.instance.ports.size_buffers(config.tuning.udp_buffers);
        config
            .servers
            .iter()
            .for_each(|server| prepare(server, &self.instance.ports));
        self.instance.exchanges.servers().publish(&config.servers);
        self.services.check(&config);
        config.open_actions();

        let old = self.instance.listeners.all();
        let before = self.instance.config.load_full();
        self.instance.listeners.replace(listeners.clone());
        let listening = &self.overview.listening;
        listening.give(web::SERVICE, opened.web);
        listening.give(console::SERVICE, opened.console);
        self.instance.config.store(Arc::clone(&config));
        self.services.tell();
        config.take_effect();
        size_buffers(&self.instance.listeners, config.tuning.udp_buffers);
        self.keeper.follow(&config.local);
        for sockets in listeners.iter().skip(old.len()).flatten() {
            self.order(|| Order::Listen(Arc::clone(sockets)));
            self.services.accept(sockets);
        }
        for (number, worker) in self.workers.iter().enumerate() {
            workers::pin(number, &worker.reins, &config, &before.listeners);
        }
        let refused = self.listen_at_paths(&config);
        refused.iter().for_each(|line| log::error!("{line}"));
        let mut lines = self.plan_anew();
        lines.extend(self.detach_unplanned());
        // Servers may be other ones where the plan is the same.
        let Ok(()) = self.watch();
        self.let_leave(listeners, &config, &before);
        self.order(|| Order::Wake);
        lines.extend(self.opened_as_before(&before, &config));
        lines.push(format!("configuration {} serves", config.generation));
        lines.iter().for_each(|line| log::notice!("{line}"));
        lines.extend(refused);
        lines
    }

    pub(super) fn order(&self, order: impl Fn() -> Order) {
        self.workers
            .iter()
            .for_each(|worker| worker.reins.order(order()));
    }
}

/// What `load` makes, or that it ended in a panic: a reload that waits for it ends either way.
fn guarded<T>(load: impl FnOnce() -> T) -> Result<T, String> {
    let loaded = catch_unwind(AssertUnwindSafe(load));
    loaded.map_err(|_| {
        "loading the zones ended in a panic, which is a fault of millrace: see stderr".into()
    })
}

/// Notes that another reload is wanted when this one has ended. One that waits already will read the file later than now:
/// whoever wants no reply needs no reload more, or signals that come faster than zones load would never be done with.
fn ask_again(
    waiting: &mut Vec<Option<Sender<ReloadOutcome>>>,
    reply: Option<Sender<ReloadOutcome>>,
) {
    if reply.is_some() || waiting.is_empty() {
        waiting.push(reply);
    }
}

/// What was changed at run time and is not in the file is gone: the operator should know.
fn dropped(edits: &[String]) -> Vec<String> {
    let lines = edits.iter().map(|command| format!("dropped: {command}"));
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn a_reload_whose_zones_panic_is_ended_with_a_reason() {
        assert_eq!(guarded(|| 5), Ok(5));
        let outcome: Result<(), String> = guarded(|| panic!("as this test wants it"));
        assert!(outcome.is_err_and(|reason| reason.contains("panic")));
    }

    #[test]
    fn signals_that_come_during_a_reload_lead_to_one_more() {
        let mut waiting = Vec::new();
        for _ in 0..3 {
            ask_again(&mut waiting, None);
        }
        assert_eq!(waiting.len(), 1);
        let (sender, _outcome) = channel();
        ask_again(&mut waiting, Some(sender));
        ask_again(&mut waiting, None);
        assert_eq!(waiting.len(), 2, "everybody who waits gets a reply");
    }
}
