//! The tasks of all zones: each zone that is served has one while it is, and what they share bounds what they do at once.

use super::Local;
use super::claims::Claims;
use super::live::Live;
use super::order::Order;
use super::places::{Doors, Places};
use super::task::Follower;
use crate::log;
use std::collections::HashMap;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::available_parallelism;
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, watch};
use tokio::task::AbortHandle;
use wire::name::NameBuf;

/// Exchanges of datagrams, or of one message each over TCP, with one server at a time: a server that is down makes those of a
/// thousand zones wait, not take a thousand descriptors, and no other server's.
const EXCHANGES: usize = 64;

/// Zones that are written to disk at a time when their tasks begin.
const KEPT_AT_ONCE: usize = 8;

/// The tasks of all zones.
pub struct Keeper {
    runtime: Handle,
    pub(super) shared: Arc<Shared>,
    tasks: Mutex<HashMap<NameBuf, (Arc<Live>, AbortHandle)>>,
}

pub(super) struct Shared {
    /// Asks for the zones that serve to be swapped.
    ask: Box<dyn Fn() + Send + Sync>,
    /// It was asked for, and has not begun.
    is_asked: AtomicBool,
    /// How often anybody has wanted it.
    wanted: AtomicU64,
    /// How many of these wants are met.
    pub(super) met: watch::Sender<u64>,
    pub(super) transfers: Places,
    /// What they will take of memory.
    pub(super) claims: Claims,
    /// Those at a time who ask a primary for its serial, and who tell a secondary of one: each has a socket.
    pub(super) asking: Doors,
    pub(super) telling: Arc<Doors>,
    /// One place a core for zones that are loaded after the start.
    pub(super) loading: Semaphore,
    /// Places for those that are kept then: all begin at once, and each takes a thread.
    pub(super) keeping: Semaphore,
}

impl Keeper {
    /// `publish` is called when another version of a zone is to serve, once for all that come until
    /// [`Keeper::publishing`].
    pub fn new(runtime: Handle, publish: impl Fn() + Send + Sync + 'static) -> Keeper {
        Keeper {
            runtime,
            shared: Arc::new(Shared {
                ask: Box::new(publish),
                is_asked: AtomicBool::new(false),
                wanted: AtomicU64::new(0),
                met: watch::Sender::new(0),
                transfers: Places::new(),
                claims: Claims::new(),
                asking: Doors::of(EXCHANGES),
                telling: Arc::new(Doors::of(EXCHANGES)),
                loading: Semaphore::new(available_parallelism().map_or(1, usize::from)),
                keeping: Semaphore::new(KEPT_AT_ONCE),
            }),
            tasks: Mutex::default(),
        }
    }

    /// To be called before zones are looked at that are to serve; what is returned is for [`Keeper::published`].
    pub fn publishing(&self) -> u64 {
        self.shared.is_asked.store(false, SeqCst);
        // Behind the line above: whoever comes too late to be counted here asks again.
        self.shared.wanted.load(SeqCst)
    }

    /// To be called when the zones that were looked at serve: secondaries may be told of them.
    pub fn published(&self, wanted: u64) {
        self.shared.met.send_replace(wanted);
    }

    /// To be called when these zones serve: new ones get their task, those that are gone lose it.
    pub fn follow(&self, local: &Local) {
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        tasks.retain(|apex, (live, task)| {
            let is_kept = local
                .find(apex.as_name())
                .is_some_and(|(other, _)| Arc::ptr_eq(other, live));
            if !is_kept {
                task.abort();
            }
            is_kept
        });
        for (live, settings) in local.iter() {
            let state = Arc::clone(local.state());
            let settings = Arc::clone(settings);
            if live.begin_to_follow() {
                let follower = Follower::new(live, (settings, state), &self.shared);
                let task = self.runtime.spawn(follower.follow());
                tasks.insert(live.apex.clone(), (Arc::clone(live), task.abort_handle()));
            } else {
                live.orders.insist(Order::Settings(settings, state));
            }
        }
        self.await_state(local);
    }

    /// Where another process has the state directory, as the one before this one does in a restart: zones are kept when it
    /// has left.
    fn await_state(&self, local: &Local) {
        let is_kept = local.iter().any(|(_, settings)| settings.is_kept());
        if !is_kept || !local.state().is_to_be_awaited() {
            return;
        }
        let state = Arc::clone(local.state());
        log::notice!(
            "{}: another process keeps its zones there; this one will when that one has left",
            state.path().display()
        );
        let lives: Vec<_> = local.iter().map(|(live, _)| Arc::clone(live)).collect();
        let wait = move || {
            if state.wait() {
                lives
                    .iter()
                    .for_each(|live| live.orders.insist(Order::MayWrite));
            }
        };
        self.runtime.spawn_blocking(wait);
    }

    /// Leaves the zones to the process that has taken over.
    pub fn leave(&self, local: &Local) {
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        tasks.drain().for_each(|(_, (_, task))| task.abort());
        let state = Arc::clone(local.state());
        // What is being written is waited for.
        self.runtime.spawn_blocking(move || state.give());
    }
}

impl Shared {
    /// Has the zones serve as they are now; they do when so many wants are met.
    pub(super) fn publish(&self) -> u64 {
        let wanted = self.wanted.fetch_add(1, SeqCst) + 1;
        if !self.is_asked.swap(true, SeqCst) {
            (self.ask)();
        }
        wanted
    }
}
