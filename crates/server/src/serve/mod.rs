//! The life of the daemon: start, serve, reload, stop. All of it runs on the control thread, which owns everything that
//! workers only borrow: the Lua state, the kernel programs, the workers' reins.
//!
//! Start, in this order:
//! 1. the configuration is read and derived: nothing is touched before it is good;
//! 2. sockets of listeners and backend ports are bound, programs attached, rings bound;
//! 3. capabilities go, before the first thread starts;
//! 4. the asynchronous runtime starts: first health checks, then TCP, web server, control socket;
//! 5. workers start, and last of all their queues enter the programs' maps.
//!
//! Stop is the same backwards: queues leave the maps (the kernel's sockets serve), rings and sockets are drained, queries
//! in flight get their answers, everything is closed.

mod overview;
mod reload;
mod services;
mod start;
mod workers;

use crate::clock::Now;
use crate::commands::{ServeArguments, say_why};
use crate::config::lua::state::LuaState;
use crate::instance::Instance;
use crate::log;
use crate::network;
use crate::network::follow::{Follower, Notice};
use crate::network::steering::Steering;
use crate::worker::Order;
use overview::Overview;
use services::Services;
use start::StartError;
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
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
    /// Links, addresses or routes have changed.
    Network(Notice),
}

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
    lua: LuaState,
    instance: Arc<Instance>,
    devices: network::Devices,
    plan: network::Plan,
    steering: Arc<Mutex<Steering>>,
    workers: Vec<RunningWorker>,
    overview: Arc<Overview>,
    services: Services,
    /// `None` without AF_XDP.
    follower: Option<Follower>,
    events: Receiver<Event>,
}

impl Daemon {
    /// Serves until it is told to stop.
    pub fn run(mut self) {
        loop {
            let event = match self.events.recv_timeout(LOOK_AFTER) {
                Ok(event) => event,
                Err(RecvTimeoutError::Timeout) => {
                    self.look_after_programs();
                    continue;
                }
                Err(RecvTimeoutError::Disconnected) => break,
            };
            match event {
                Event::Stop => break,
                Event::Network(Notice::Replan) => self.replan(),
                Event::Network(Notice::LinkGone(interface)) => self.lose(interface),
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

    /// Whoever takes our program off an interface tells nobody: netlink does not speak of links of this kind.
    fn look_after_programs(&mut self) {
        let taken_off = self
            .steering
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .taken_off();
        for interface in taken_off {
            self.lose(interface);
        }
    }

    /// Addresses, links or routes have changed: what is ours may be another thing now.
    fn replan(&mut self) {
        let config = self.instance.config.load_full();
        let plan = start::planned(&config, &mut self.devices);
        if plan != self.plan {
            let lines = self.steer(&config, plan);
            lines.iter().for_each(|line| log::notice!("{line}"));
        }
    }

    /// An interface was deleted, or our program was taken off it: its sockets get nothing any more, and their frames are ours again.
    fn lose(&mut self, interface: u32) {
        let mut steering = self.steering.lock().unwrap_or_else(PoisonError::into_inner);
        let lost = steering
            .devices()
            .find(|steered| steered.device.interface == interface);
        let Some(device) = lost.map(|steered| steered.device.clone()) else {
            return;
        };
        steering.detach(device.number);
        drop(steering);
        self.overview.forget(device.number);
        self.order(|| Order::Close(device.number));
        log::warn!(
            "{}: the interface is gone, or our program was taken off it: kernel sockets serve",
            device.name
        );
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
    }
}
