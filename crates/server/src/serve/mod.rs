//! The life of the daemon: start, serve, reload, stop. All of it runs on the control thread, which owns everything that
//! workers only borrow: the Lua state, the kernel programs, the workers' reins.
//!
//! Start, in this order:
//! 1. the privileged helper process is forked, while there is nothing else in memory; from then on SIGHUP is heard;
//! 2. the configuration is read and derived: nothing is touched before it is good;
//! 3. sockets of listeners and backend ports are bound, programs attached, rings bound;
//! 4. capabilities go, before the first thread starts;
//! 5. the asynchronous runtime starts: first health checks, then TCP, web server, control socket;
//! 6. workers start, and last of all their queues enter the programs' maps.
//!
//! A start that succeeds a running process leaves 3 for later, as far as programs and rings go ([`succession`]).
//!
//! Stop is the same backwards: queues leave the maps (the kernel's sockets serve), rings and sockets are drained, queries
//! in flight get their answers, everything is closed.

mod account;
mod edit;
mod failure;
mod hands;
mod hangup;
mod leaving;
mod listeners;
mod memory;
mod needs;
mod occupied;
mod overview;
mod paths;
mod polling;
mod programs;
mod reload;
mod services;
mod stalls;
mod start;
mod steer;
mod succession;
mod watchdog;
mod workers;

use crate::clock::Now;
use crate::commands::ServeArguments;
use crate::config::spec::Spec;
use crate::config::{Config, LuaState};
use crate::control::metrics::Metrics;
use crate::control::socket::Estate;
use crate::frontend::inherited::Inherited;
use crate::instance::Instance;
use crate::local::{Keeper, Line, Local};
use crate::log;
use crate::network::Change;
use crate::network::follow::{Follower, Notice};
use crate::network::helper::Helper;
use crate::network::keeping::Keeping;
use crate::network::steering::Steering;
use crate::notify;
use crate::pipeline::cache::cleaning;
use crate::worker::Order;
use account::Account;
use memory::Memory;
use needs::{Needs, OpenedQueue};
use overview::Overview;
use polling::Polling;
use reload::Reloading;
use services::Services;
use stalls::Stalls;
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use succession::{Legacy, Predecessor, Successor, Word};
use workers::RunningWorker;

/// How long a stop waits for the answers of queries in flight; dnsdist ends within 5 s of SIGTERM.
const STOP_WITHIN: Duration = Duration::from_secs(3);

/// How long after that a worker may take to end; one that hangs ends with the process.
const WORKERS_END_WITHIN: Duration = Duration::from_millis(500);

/// How often the control thread looks whether its programs are still there: what happens to them is noticed in a second.
const LOOK_AFTER: Duration = Duration::from_secs(1);

/// What the control thread is told, by signals, the control socket and the network.
pub enum Event {
    /// SIGTERM or SIGINT.
    Stop,
    /// SIGHUP, or `millrace reload`, which waits for the reply: the lines to print, or why nothing was changed.
    Reload(Option<Sender<ReloadOutcome>>),
    /// Something else than the file changes the configuration; the reply: why it was not changed.
    Edit(Edit, Sender<Result<(), String>>),
    /// `millrace restart`, which waits for the reply.
    Restart(Sender<Result<Vec<String>, String>>),
    /// What the process of this number says, which is to succeed this one; nothing: it is gone.
    Successor(i32, Option<Word>),
    /// The process that this one has succeeded is gone, and has said before that this one is the service's main process.
    PredecessorGone,
    /// Links, addresses or routes have changed.
    Network(Notice),
    /// The checks of a server found it up, or down.
    Server { name: String, up: bool },
    /// A worker has bound a queue, or could not.
    Opened(OpenedQueue),
    /// The zones of the reload that is under way are loaded, or why they are not.
    Loaded(Box<Result<(Local, Vec<Line>), String>>),
    /// Another version of a zone is to serve.
    Zones,
}

/// A change of what people wrote, until the next reload.
pub type Edit = Box<dyn FnOnce(&mut Spec) + Send>;

/// The lines to print, or why nothing was changed.
pub(super) type ReloadOutcome = Result<Vec<String>, String>;

/// Serves until it is told to stop; the exit status of the program.
pub fn serve(arguments: &ServeArguments) -> ExitCode {
    log::set(arguments.log_settings(log::Settings::DEFAULT));
    // What is inherited comes after the helper, which is to have none of it.
    let begun = hangup::heard_after(|| (start::helper(), Legacy::receive(arguments.succeed)));
    let ((helper, legacy), hangups) = match begun {
        Ok(begun) => begun,
        Err(error) => {
            log::error!("SIGHUP cannot be listened to: {error}");
            return ExitCode::FAILURE;
        }
    };
    let mut legacy = match legacy {
        Ok(legacy) => legacy,
        Err(error) => {
            log::error!(
                "standard input is not what --succeed needs (`millrace restart` starts it): {error}"
            );
            return ExitCode::FAILURE;
        }
    };
    if legacy.predecessor.is_some() {
        notify::await_turn();
    }
    match Daemon::start(arguments.clone(), (helper, hangups), &mut legacy) {
        Ok(daemon) => daemon.run(),
        Err(error) => {
            if let Some(predecessor) = &legacy.predecessor {
                predecessor.fail(&error.reason());
            }
            error.say()
        }
    }
}

/// A running daemon, as its control thread sees it.
pub struct Daemon {
    arguments: ServeArguments,
    lua: Arc<LuaState>,
    instance: Arc<Instance>,
    /// The plan that serves.
    keeping: Keeping,
    steering: Arc<Mutex<Steering>>,
    workers: Vec<RunningWorker>,
    overview: Arc<Overview>,
    metrics: Arc<Metrics>,
    services: Services,
    /// `None` without AF_XDP.
    follower: Option<Follower>,
    keeper: Keeper,
    /// The reload whose zones are being loaded.
    reloading: Option<Reloading>,
    /// Who asked for another one meanwhile.
    asked_again: Vec<Option<Sender<ReloadOutcome>>>,
    helper: Arc<Helper>,
    needs: Needs,
    /// For the operator, of the steps that are being done.
    account: Account,
    polling: Polling,
    stalls: Stalls,
    /// Configurations that queries in flight may still see: whoever lets go of the last one ends its Lua state, which
    /// takes time.
    retired: Vec<Arc<Config>>,
    /// As much of the Spec's `edits` as serves.
    applied: u64,
    /// When to look after programs and queues again.
    next_look: Instant,
    events: Receiver<Event>,
    memory: Memory,
    /// When caches were looked through last.
    cleaned: Instant,
    /// The socket of our own commands, for the next process.
    estate: Option<Estate>,
    /// Of socket units, for listeners that are not there now.
    lent: Inherited,
    /// The process that is to take over, while it starts.
    successor: Option<Successor>,
    /// The process that this one takes over from, until it may go.
    predecessor: Option<Predecessor>,
    /// Another process serves: this one finishes.
    has_left: bool,
}

impl Daemon {
    /// Serves until it is told to stop, or another process has taken over; the exit status of the program.
    fn run(mut self) -> ExitCode {
        let succeeds = self.predecessor.is_some();
        if let Err(error) = self.take_over() {
            log::error!("the process before this one does not make room, and serves on: {error}");
            self.stop();
            return ExitCode::FAILURE;
        }
        // Who succeeds another process is not listened to before that one has said who the main process is now
        // (NotifyAccess=main): what it says then is said when that one has gone.
        if !succeeds {
            self.say_ready();
        }
        loop {
            let due = self.account.due().into_iter();
            let look = due.fold(self.next_look, Instant::min);
            match next_event(&self.events, look) {
                Ok(event) => {
                    if self.is_last(event) {
                        break;
                    }
                }
                Err(RecvTimeoutError::Timeout) => self.do_what_is_due(),
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        self.stop();
        ExitCode::SUCCESS
    }

    fn do_what_is_due(&mut self) {
        let now = Instant::now();
        if self.account.due().is_some_and(|due| due <= now) {
            self.tell();
        }
        if self.next_look <= now {
            self.do_chores();
        }
    }

    /// Once a second, however many events wait.
    fn do_chores(&mut self) {
        self.look_after();
        self.give_memory_back();
        self.clean_caches();
        // These two have no timers of their own: nothing wakes this process that can wait for this turn.
        self.services.exchange_a_port(&self.instance);
        self.metrics.sample();
        self.lua.maintain();
        self.apply_edits_of_callbacks();
        self.let_go();
        self.forget_leaving();
        notify::again();
        self.next_look = Instant::now() + LOOK_AFTER;
    }

    /// Lets go of configurations that nobody reads any more, and with the last of them of servers that only they had.
    fn let_go(&mut self) {
        let had_some = !self.retired.is_empty();
        self.retired.retain(|config| Arc::strong_count(config) > 1);
        if had_some && self.retired.is_empty() {
            let config = self.instance.config.load();
            self.instance.exchanges.servers().publish(&config.servers);
        }
    }

    /// Caches give way where others take what the limit leaves.
    fn give_memory_back(&self) {
        let too_much = self.memory.look();
        if too_much == 0 {
            return;
        }
        let given = cleaning::give_back(&self.instance.config.load(), too_much);
        if given > 0 {
            log::notice!("memory: packet caches have given {given} bytes back");
        }
    }

    fn clean_caches(&mut self) {
        let config = self.instance.config.load();
        let delay = config.tuning.cleaning.delay;
        if !delay.is_zero() && self.cleaned.elapsed() >= delay {
            self.cleaned = Instant::now();
            cleaning::clean(&config, Now::read());
        }
    }

    /// Does what an event asks for; whether it ends this process.
    fn is_last(&mut self, event: Event) -> bool {
        match event {
            Event::Stop => return true,
            Event::Network(Notice::Replan) => self.replan(),
            Event::Network(Notice::LinkGone(interface)) => self.lose(interface),
            Event::Network(Notice::PathChanged) => {
                self.overview.changes.count(Change::PathChanged);
            }
            Event::Opened(opened) => {
                self.opened(opened);
                return !self.say_when_serving();
            }
            Event::Edit(edit, reply) => {
                // Whoever asked may have gone.
                let _ = reply.send(self.edit(edit));
            }
            Event::Server { name, up } => self.lua.server_changed(&name, up),
            Event::Reload(reply) => self.reload_announced(reply),
            Event::Loaded(loaded) => self.finish_reload(*loaded),
            Event::Zones => self.publish_zones(),
            Event::Restart(asker) => self.restart(asker),
            Event::Successor(process, word) => return self.hear_successor(process, word),
            // A reload says it when it has ended.
            Event::PredecessorGone if self.is_reloading() => {}
            Event::PredecessorGone => self.say_ready(),
        }
        false
    }

    /// Reloads, and tells whoever watches over this service.
    fn reload_announced(&mut self, reply: Option<Sender<ReloadOutcome>>) {
        notify::reloading();
        if self.successor.is_some() {
            let reason = "a restart is under way, which reads the configuration".to_owned();
            return self.end_reload(reply, Err(reason));
        }
        self.reload(reply);
    }

    /// A reload has ended: the log, whoever watches over this service and whoever asked are told.
    fn end_reload(&mut self, reply: Option<Sender<ReloadOutcome>>, outcome: ReloadOutcome) {
        if let Err(reason) = &outcome {
            log::error!("the configuration was not reloaded, the old one serves on: {reason}");
        }
        self.say_ready();
        if let Some(reply) = reply {
            // Whoever asked may have gone.
            let _ = reply.send(outcome);
        }
    }

    /// Tells whoever watches over this service that all is as it should be, and what that is.
    fn say_ready(&self) {
        notify::ready(&self.status());
        self.keep_sockets();
    }

    /// What serves, in one line. Queues come and go with the network.
    fn status(&self) -> String {
        let config = self.instance.config.load();
        let queues = lock(&self.overview.queues).len();
        format!(
            "configuration {}: {} addresses, {queues} queues over AF_XDP, {} servers",
            config.generation,
            config.local_addresses().count(),
            config.servers.len()
        )
    }

    /// Leaves the listening sockets in the descriptor store, for the start after a stop.
    fn keep_sockets(&self) {
        notify::forget();
        for sockets in self.instance.listeners.all().iter().flatten() {
            if let Err(error) = sockets.duplicates().and_then(notify::keep) {
                log::warn!(
                    "{}: not kept over a restart by systemd: {error}",
                    sockets.address
                );
            }
        }
    }

    fn stop(mut self) {
        self.tell();
        self.services.begin_to_stop();
        self.dismiss_successor();
        // For whoever watches over this service it goes on, if another process has it.
        if !self.has_left {
            notify::stopping();
        }
        self.steering
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .leave_all();
        xsk::settle();
        self.take_no_more();
        let until = Now(Now::read().0 + STOP_WITHIN.as_nanos() as u64);
        for worker in &self.workers {
            worker.reins.order(Order::Stop(until));
        }
        let until = Instant::now() + STOP_WITHIN + WORKERS_END_WITHIN;
        let mut have_ended = true;
        for worker in self.workers {
            have_ended &= worker.await_end(until);
        }
        self.instance.named.close();
        self.services.close();
        // One that hangs may have the lock of the Lua state for ever.
        if have_ended {
            self.lua.exit();
        }
        notify::again();
    }
}

/// The next event; a time-out when `look` has come, even if events wait: whoever sends them without end (zones, the console)
/// must not keep everything else from being looked after.
fn next_event<T>(events: &Receiver<T>, look: Instant) -> Result<T, RecvTimeoutError> {
    let wait = look.saturating_duration_since(Instant::now());
    if wait.is_zero() {
        return Err(RecvTimeoutError::Timeout);
    }
    events.recv_timeout(wait)
}

/// What a mutex holds, also after a thread that had it has panicked: no step of ours leaves half of a change behind.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn events_without_end_keep_nothing_from_being_looked_after() {
        let (sender, events) = channel();
        (0..2).for_each(|number| sender.send(number).expect("a receiver"));
        let now = Instant::now();
        let far = now + Duration::from_secs(60);
        assert_eq!(next_event(&events, now), Err(RecvTimeoutError::Timeout));
        assert_eq!(next_event(&events, far), Ok(0));
        assert_eq!(next_event(&events, now), Err(RecvTimeoutError::Timeout));
        assert_eq!(next_event(&events, far), Ok(1));
        drop(sender);
        let gone = next_event(&events, far);
        assert_eq!(gone, Err(RecvTimeoutError::Disconnected));
    }
}
