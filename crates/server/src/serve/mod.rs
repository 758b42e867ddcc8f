//! The life of the daemon: start, serve, reload, stop. All of it runs on the control thread, which owns everything that
//! workers only borrow: the Lua state, the kernel programs, the workers' reins.
//!
//! Start, in this order:
//! 1. the privileged helper process is forked, while there is nothing else in memory;
//! 2. the configuration is read and derived: nothing is touched before it is good;
//! 3. sockets of listeners and backend ports are bound, programs attached, rings bound;
//! 4. capabilities go, before the first thread starts;
//! 5. the asynchronous runtime starts: first health checks, then TCP, web server, control socket;
//! 6. workers start, and last of all their queues enter the programs' maps.
//!
//! Stop is the same backwards: queues leave the maps (the kernel's sockets serve), rings and sockets are drained, queries
//! in flight get their answers, everything is closed.

mod overview;
mod reload;
mod services;
mod start;
mod steer;
mod workers;

use crate::clock::Now;
use crate::commands::{ServeArguments, say_why};
use crate::config::spec::Spec;
use crate::config::{Config, LuaState};
use crate::instance::Instance;
use crate::log;
use crate::network;
use crate::network::Change;
use crate::network::follow::{Follower, Notice};
use crate::network::helper::Helper;
use crate::network::steering::Steering;
use crate::worker::Order;
use overview::Overview;
use services::Services;
use start::StartError;
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use steer::{Needs, OpenedQueue};
use workers::RunningWorker;

/// How long a stop waits for the answers of queries in flight; dnsdist ends within 5 s of SIGTERM.
const STOP_WITHIN: Duration = Duration::from_secs(3);

/// How often the control thread looks whether its programs are still there: what happens to them is noticed in a second.
const LOOK_AFTER: Duration = Duration::from_secs(1);

/// What the control thread is told, by signals, the control socket and the network.
pub enum Event {
    /// SIGTERM or SIGINT.
    Stop,
    /// SIGHUP, or `millrace reload`, which waits for the reply: the lines to print, or why nothing was changed.
    Reload(Option<Sender<Result<Vec<String>, String>>>),
    /// Something else than the file changes the configuration; the reply: why it was not changed.
    Edit(Edit, Sender<Result<(), String>>),
    /// Links, addresses or routes have changed.
    Network(Notice),
    /// The checks of a server found it up, or down.
    Server { name: String, up: bool },
    /// A worker has bound a queue, or could not.
    Opened(OpenedQueue),
}

/// A change of what people wrote, until the next reload.
pub type Edit = Box<dyn FnOnce(&mut Spec) + Send>;

/// Serves until it is told to stop; the exit status of the program.
pub fn serve(arguments: &ServeArguments) -> ExitCode {
    log::set(arguments.log_settings(log::Settings::DEFAULT));
    match Daemon::start(arguments.clone()) {
        Ok(daemon) => {
            daemon.run();
            ExitCode::SUCCESS
        }
        Err(StartError::Config(error)) => {
            say_why(&error);
            error.status().into()
        }
        Err(StartError::System(reason)) => {
            log::error!("{reason}");
            ExitCode::FAILURE
        }
    }
}

/// A running daemon, as its control thread sees it.
pub struct Daemon {
    arguments: ServeArguments,
    lua: Arc<LuaState>,
    instance: Arc<Instance>,
    devices: network::Devices,
    plan: network::Plan,
    steering: Arc<Mutex<Steering>>,
    workers: Vec<RunningWorker>,
    overview: Arc<Overview>,
    services: Services,
    /// `None` without AF_XDP.
    follower: Option<Follower>,
    helper: Arc<Helper>,
    needs: Needs,
    /// Configurations that queries in flight may still see: whoever lets go of the last one ends its Lua state, which
    /// takes time.
    retired: Vec<Arc<Config>>,
    /// When to look after programs and queues again.
    next_look: Instant,
    events: Receiver<Event>,
}

impl Daemon {
    /// Serves until it is told to stop.
    pub fn run(mut self) {
        loop {
            let wait = self.next_look.saturating_duration_since(Instant::now());
            let event = match self.events.recv_timeout(wait) {
                Ok(event) => event,
                Err(RecvTimeoutError::Timeout) => {
                    self.look_after();
                    self.lua.maintain();
                    self.retired.retain(|config| Arc::strong_count(config) > 1);
                    self.next_look = Instant::now() + LOOK_AFTER;
                    continue;
                }
                Err(RecvTimeoutError::Disconnected) => break,
            };
            match event {
                Event::Stop => break,
                Event::Network(Notice::Replan) => self.replan(),
                Event::Network(Notice::LinkGone(interface)) => {
                    self.lose(interface, Change::InterfaceGone)
                }
                Event::Opened(opened) => self.opened(opened),
                Event::Edit(edit, reply) => {
                    // Whoever asked may have gone.
                    let _ = reply.send(self.edit(edit));
                }
                Event::Server { name, up } => self.lua.server_changed(&name, up),
                Event::Reload(reply) => {
                    let outcome = self.reload();
                    if let Err(reason) = &outcome {
                        log::error!(
                            "the configuration was not reloaded, the old one serves on: {reason}"
                        );
                    }
                    if let Some(reply) = reply {
                        // Whoever asked may have gone.
                        let _ = reply.send(outcome);
                    }
                }
            }
        }
        self.stop();
    }

    fn stop(self) {
        self.steering
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .leave_all();
        let until = Now(Now::read().0 + STOP_WITHIN.as_nanos() as u64);
        for worker in &self.workers {
            worker.reins.order(Order::Stop(until));
        }
        for worker in self.workers {
            if worker.thread.join().is_err() {
                log::error!("a worker ended by a panic");
            }
        }
        self.services.close();
        self.lua.exit();
    }
}
