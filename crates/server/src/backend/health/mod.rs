//! Health checks: probes by kernel sockets, never over AF_XDP, with dnsdist's options and defaults.
//!
//! Each server has a task that probes it every `checkInterval` (give or take a twentieth; `course` has the lazy mode), at the next
//! of the beats that all tasks share (`pace`), which makes checks cheap. A probe has a fresh socket and a random ID, and waits
//! through whatever does not answer it, up to `checkTimeout`: ICMP tells it nothing, and junk marks no server down (invariant I7).
//! RFC 5452, section 9.1. The socket is not kept for the next probe: its port could be found out in the meantime, and who forges
//! answers would have but the ID to guess. It is also what the kernel is asked with for the address that queries leave from.
//!
//! Before the first queries are served every server was probed once: [`Checks::first_round`].

mod course;
mod pace;
mod probe;
mod shape;

pub use pace::Beats;
pub use shape::{Asked, CheckFunction, Shape};

use super::ports::Ports;
use super::server::{HealthMode, Server, ServerId};
use super::trust::Judgement;
use crate::clock::Now;
use crate::config::LuaState;
use crate::log;
use crate::random::Random;
use course::Course;
use pace::Pace;
use std::collections::HashMap;
use std::io;
use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, sleep_until};

/// Servers that the first round probes at the same time: descriptors, and a burst of queries.
const FIRST_ROUND: usize = 500;

/// How long a source address is read from that no server is asked from any more: longer than any query waits.
const DRAIN: Duration = Duration::from_secs(30);

/// The state whose functions the servers name, as long as it lasts.
pub type Functions = Weak<LuaState>;

/// Servers with their tasks.
type Followed = HashMap<ServerId, (Arc<Server>, AbortHandle)>;

/// Told of a server that is up now, or down. It must not wait.
pub type OnChange = Box<dyn Fn(&Server, bool) + Send + Sync>;

/// The checks of all servers.
pub struct Checks {
    ports: Arc<Ports>,
    /// Called with every change that checks find.
    on_change: OnChange,
    random: Mutex<Random>,
    beats: Beats,
    /// The task of each server that is followed.
    tasks: Mutex<Followed>,
    /// setVerboseHealthChecks: checks that fail are logged as errors.
    is_verbose: AtomicBool,
}

impl Checks {
    /// None yet. Probes leave from the addresses that queries leave from, which `ports` finds out, and at `beats`.
    pub fn new(ports: Arc<Ports>, random: Random, beats: Beats, on_change: OnChange) -> Checks {
        Checks {
            ports,
            on_change,
            random: Mutex::new(random),
            beats,
            tasks: Mutex::default(),
            is_verbose: AtomicBool::new(false),
        }
    }

    /// Opens the ports towards servers that are not followed yet, and probes each once, all at the same time: one check
    /// decides here, whatever `rise` and `maxCheckFailures` say, but of those that were judged before. Takes the longest
    /// `checkTimeout` for 500 servers.
    pub async fn first_round(self: &Arc<Checks>, servers: &[Arc<Server>], functions: &Functions) {
        let known = |server: &&Arc<Server>| !self.lock_tasks().contains_key(&server.number);
        let places = Arc::new(Semaphore::new(FIRST_ROUND));
        let mut round = JoinSet::new();
        for server in servers.iter().filter(known).cloned() {
            let (checks, places) = (Arc::clone(self), Arc::clone(&places));
            let functions = Weak::clone(functions);
            round.spawn(async move {
                // The semaphore is never closed.
                let _place = places.acquire().await;
                let is_checked = server.state.mode() == HealthMode::Auto;
                if !is_checked || server.is_judged || server.sample.is_some() {
                    return checks.find_source(&server);
                }
                let up = checks.check(&server, &functions, Pace::soon()).await;
                server.state.set_checked(up);
                checks.tell(&server, up);
            });
        }
        round.join_all().await;
    }

    /// Checks these servers from now on, and no others.
    pub fn follow(self: &Arc<Checks>, servers: &[Arc<Server>], functions: &Functions) {
        let mut tasks = self.lock_tasks();
        let mut old = std::mem::take(&mut *tasks);
        for server in servers {
            let task = old.remove(&server.number).unwrap_or_else(|| {
                let watch = Arc::clone(self).watch(Arc::clone(server), Weak::clone(functions));
                let task = tokio::spawn(watch);
                (Arc::clone(server), task.abort_handle())
            });
            tasks.insert(server.number, task);
        }
        old.values().for_each(|(_, task)| task.abort());
        self.retire_ports(&tasks);
    }

    fn lock_tasks(&self) -> std::sync::MutexGuard<'_, Followed> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One server's checks, for ever.
    async fn watch(self: Arc<Checks>, server: Arc<Server>, functions: Functions) {
        let mut course = Course::default();
        let mut share = self.below(1_000);
        let mut checked = Instant::now();
        let mut spent = Duration::ZERO;
        loop {
            let pause = Course::pause(&server, share, spent);
            self.wait(&server, pause, &functions).await;
            share = 950 + self.below(100);
            spent = Duration::ZERO;
            let is_due = course.is_due(&server, checked.elapsed());
            if server.state.mode() != HealthMode::Auto || !is_due {
                self.find_source(&server);
                continue;
            }
            checked = Instant::now();
            let pace = self.beats.pace();
            let success = self.check(&server, &functions, pace).await;
            spent = checked.elapsed();
            if let Some(up) = course.judge(&server, success) {
                self.change(&server, up);
            }
        }
    }

    fn change(&self, server: &Server, up: bool) {
        if up && server.options.reconnect_on_up {
            server.tcp_pool.clear();
        }
        server.state.set_checked(up);
        self.tell(server, up);
    }

    /// setVerboseHealthChecks.
    pub fn set_verbose(&self, is_verbose: bool) {
        self.is_verbose.store(is_verbose, Relaxed);
    }

    fn tell(&self, server: &Server, up: bool) {
        log_state(server, up);
        (self.on_change)(server, up);
    }

    /// Sleeps until the beat that is next to the end of `time`, but looks after the server's AF_XDP path meanwhile.
    async fn wait(&self, server: &Server, time: Duration, functions: &Functions) {
        let mut now = Instant::now();
        let end = self.beats.near(now, time);
        while now < end {
            let left = end - now;
            let pause = match server.xsk.is_known() {
                true => server.trust.pause(left),
                false => left,
            };
            sleep_until(self.beats.look(now, pause).min(end)).await;
            if server.xsk.is_known() {
                self.judge_xsk(server, functions).await;
            }
            now = Instant::now();
        }
    }

    async fn judge_xsk(&self, server: &Server, functions: &Functions) {
        match server.trust.judge(Now::read()) {
            Judgement::Keep => {}
            Judgement::Resume => server.xsk.resume(),
            Judgement::Suspect => {
                if self.check(server, functions, Pace::soon()).await {
                    server.xsk.suspend();
                    let pause = server.trust.suspend(Now::read()).as_secs();
                    log::warn!(
                        "Backend {} answers health checks, but nothing that is sent over AF_XDP: for {pause} s its queries go by kernel sockets",
                        server.name_with_address()
                    );
                }
            }
        }
    }

    /// One check: whether the server is well.
    async fn check(&self, server: &Server, functions: &Functions, pace: Pace) -> bool {
        let id = self.random().next_u32() as u16;
        let result = match (probe::asked(server, id, functions), self.connect_to(server)) {
            (Ok(asked), Ok(socket)) => probe::ask(server, socket, &asked, pace).await,
            (Err(failure), _) => Err(failure),
            (_, Err(error)) => Err(probe::Failure::Socket(error)),
        };
        if let Err(failure) = &result {
            failure.count(&server.health);
            self.tell_failure(server, failure);
        }
        result.is_ok()
    }

    fn tell_failure(&self, server: &Server, failure: &probe::Failure) {
        let name = server.name_with_address();
        match self.is_verbose.load(Relaxed) {
            true => log::error!("Health check of {name} failed: {failure}"),
            false => log::verbose!("Health check of {name} failed: {failure}"),
        }
    }

    /// For a server that is not probed: queries need to know from where they leave all the same.
    fn find_source(&self, server: &Server) {
        if server.state.is_up()
            && let Err(error) = self.connect_to(server)
        {
            log::verbose!("No way to {}: {error}", server.name_with_address());
        }
    }

    /// A socket to the server, from where it is asked now, whatever that was before.
    fn connect_to(&self, server: &Server) -> io::Result<UdpSocket> {
        let before = server.ports.get();
        let connected = self.ports.prepare(server)?;
        if before.is_some() && before != server.ports.get() {
            self.retire_ports(&self.lock_tasks());
        }
        Ok(connected)
    }

    fn retire_ports(&self, followed: &Followed) {
        let servers = followed.values().map(|(server, _)| &**server);
        self.ports.retire_unused(servers, Now::read(), DRAIN);
    }

    fn random(&self) -> std::sync::MutexGuard<'_, Random> {
        self.random.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn below(&self, bound: u32) -> u32 {
        self.random().below(bound)
    }
}

/// dnsdist's words.
fn log_state(server: &Server, up: bool) {
    let name = server.name_with_address();
    if up {
        log::notice!("Marking downstream {name} as 'up'");
    } else {
        log::warn!("Marking downstream {name} as 'down'");
    }
}

#[cfg(test)]
mod tests;
