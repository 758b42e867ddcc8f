//! One worker: run to completion. It owns its frames, its queue of every device, its sockets of every listener and its
//! share of the backend ports; a batch goes through the pipeline and out again before the next one is looked at.

use crate::backend::Forwarder;
use crate::backend::exchange::{Share, Waiting};
use crate::backend::ports::{Departures, PortReader};
use crate::clock::Now;
use crate::config::Config;
use crate::counters::Shard;
use crate::frontend::devices::{Facts, Opened, Opening};
use crate::frontend::listeners::Sockets;
use crate::frontend::outlets::Outlets;
use crate::frontend::sys::{BATCH, Inbox};
use crate::frontend::tap::Tap;
use crate::frontend::watch::{Token, Watch};
use crate::frontend::{udp, xsk};
use crate::instance::Instance;
use crate::log;
use crate::pipeline::drop::DropReason;
use crate::pipeline::suspended::Suspended;
use crate::pipeline::{Env, respond};
use crate::random::Random;
use ::xsk::Heartbeat;
use arc_swap::{ArcSwap, Cache};
use nix::poll::PollTimeout;
use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::unistd::Pid;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

/// Batches from rings between two looks at the sockets, while the rings are never empty: a look costs about 0.5 µs.
const BATCHES_PER_POLL: u32 = 16;

/// Batches that are read from a socket that will be closed: 4,096 datagrams, more than its buffer holds by default.
const BATCHES_LEFT: usize = 64;

/// How often time-outs are looked for while queries are in flight.
const HOUSEKEEPING: Duration = Duration::from_millis(50);

/// How long to wait before the TX ring is tried again when the kernel takes no more frames.
const RETRY: Duration = Duration::from_millis(1);

/// What the control thread asks of a worker.
pub enum Order {
    /// Serve this listener too.
    Listen(Arc<Sockets>),
    /// Serve the listener with this number no more; answers may still leave by its sockets.
    Unlisten(u16),
    /// No answers leave by them any more either.
    Forget(u16),
    /// Bind a queue of one more device; the outcome is told.
    Open(Box<Opening>, Outcome),
    /// The interface of the device with this number has changed.
    Change(u8, Facts),
    /// The device with this number is gone, or a queue of it, or needed no more: serve what is in its ring, then close it;
    /// without a number all queues of the device.
    Close(u8, Option<u32>),
    /// Say that all orders before this one are carried out.
    Report(Sender<usize>),
    /// Tell how many frames each owner has, and how many there are.
    Census(Sender<(usize, ::xsk::Census, u32)>),
    /// Copy packets of the device with this number.
    Tap(u8, Tap),
    /// Taps were closed.
    Untap,
    /// Run on these processors from now on.
    Pin(CpuSet),
    /// Look at the configuration again, so that the old one can be freed.
    Wake,
    /// Take on what was suspended.
    GoOn(Box<Suspended>),
    /// Read no more queries, wait for the answers of those in flight until the moment given, then end.
    Stop(Now),
}

/// Called with what became of [`Order::Open`]; it must not wait.
pub type Outcome = Box<dyn FnOnce(::xsk::Result<Opened>) + Send>;

/// The control thread's end of a worker.
#[derive(Clone)]
pub struct Reins {
    orders: Sender<Order>,
    wake: Arc<EventFd>,
}

impl Reins {
    /// A worker that has ended takes no orders: that is not an error.
    pub fn order(&self, order: Order) {
        if self.orders.send(order).is_ok() {
            // A full counter wakes just as well.
            let _ = self.wake.write(1);
        }
    }
}

pub struct Worker {
    outlets: Outlets,
    inlets: Inlets,
    instance: Arc<Instance>,
    config: Cache<Arc<ArcSwap<Config>>, Arc<Config>>,
    shard: Arc<Shard>,
    /// A sign of life for whoever chooses among the sockets of a listener.
    pulse: Option<Heartbeat>,
    share: Share,
    random: Random,
    watch: Watch,
    orders: Receiver<Order>,
    wake: Arc<EventFd>,
    /// When the last batch was looked at.
    now: Now,
    last_housekeeping: Now,
    /// When frames came last.
    last_frame: Now,
    /// The TX ring holds frames that the kernel did not take.
    unsent: bool,
    stop: Option<Now>,
}

/// What a worker receives with.
struct Inlets {
    listeners: Vec<Arc<Sockets>>,
    /// Those that are served no more, and that answers may leave by: what was gathered to be sent needs their sockets open.
    leaving: Vec<Arc<Sockets>>,
    /// This worker's share of the backend ports.
    ports: PortReader,
    queries: Inbox,
    responses: Inbox,
    frames: Box<xsk::Intake>,
    waiting: Box<Waiting>,
}

impl Inlets {
    /// Whether more frames have come while queries that had paused went on. The ring is looked at after that and not before: each
    /// look takes its line from the processor that writes it, and what comes meanwhile is a batch.
    fn has_more(&mut self, outlets: &mut Outlets, env: &mut Env<'_>) -> bool {
        xsk::go_on(&mut self.frames, outlets, env);
        outlets.devices.has_waiting()
    }

    /// One batch of every device, of which queries may have paused; how many frames.
    fn serve_batches(&mut self, outlets: &mut Outlets, env: &mut Env<'_>) -> usize {
        let Inlets {
            frames, waiting, ..
        } = self;
        let mut count = 0;
        for device in 0..outlets.devices.count() {
            count += xsk::serve(device, frames, waiting, outlets, env);
        }
        for place in 0..outlets.devices.count_of_further() {
            count += xsk::serve_further(place, frames, waiting, outlets, env);
        }
        count
    }
}

impl Worker {
    /// Takes over the rings in `outlets` and every listener's socket of this worker's number.
    ///
    /// # Errors
    /// When the kernel gives no descriptors or no random numbers.
    pub fn new(outlets: Outlets) -> io::Result<(Worker, Reins)> {
        let instance = Arc::clone(&outlets.instance);
        let number = outlets.worker;
        let (sender, orders) = channel();
        let wake = Arc::new(EventFd::from_flags(
            EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC,
        )?);
        let inlets = Inlets {
            listeners: Vec::new(),
            leaving: Vec::new(),
            ports: instance.ports.reader(number),
            queries: Inbox::new(udp::QUERY_ROOM),
            responses: Inbox::new(udp::RESPONSE_ROOM),
            frames: Box::new(xsk::Intake::new(&instance)),
            waiting: Box::default(),
        };
        let mut worker = Worker {
            config: Cache::new(Arc::clone(&instance.config)),
            shard: Arc::clone(&instance.shards[number]),
            pulse: pulse(&instance, number),
            share: instance.exchanges.share(number),
            random: Random::from_kernel()?,
            watch: Watch::new()?,
            wake: Arc::clone(&wake),
            orders,
            now: Now::default(),
            last_housekeeping: Now::default(),
            last_frame: Now::default(),
            unsent: false,
            stop: None,
            inlets,
            instance: Arc::clone(&instance),
            outlets,
        };
        worker.watch.add(&wake, Token::Wake)?;
        worker.watch.add(&worker.inlets.ports, Token::Ports)?;
        for sockets in instance.listeners.all().iter().flatten() {
            worker.listen(Arc::clone(sockets));
        }
        let reins = Reins {
            orders: sender,
            wake,
        };
        Ok((worker, reins))
    }

    /// Serves until told to stop.
    ///
    /// While a batch was served and sent more have come: only when the rings are empty the worker looks at everything and sleeps.
    /// A look at the rings is a few loads, a wait a system call (at 100,000 queries a second every second one was in vain).
    pub fn run(mut self) {
        let mut since_poll = 0;
        self.now = Now::read();
        while !self.is_done() {
            let count = self.serve_rings(self.now);
            let more = count > 0 && self.outlets.devices.has_waiting() || self.goes_on_polling();
            since_poll += 1;
            if !more || since_poll >= BATCHES_PER_POLL {
                since_poll = 0;
                // It reads the clock.
                if self.serve_sockets(more) > 0 {
                    self.unsent = self.outlets.flush(&self.shard);
                }
            } else {
                self.now = Now::read();
            }
            self.do_chores();
        }
        self.outlets.flush(&self.shard);
    }

    /// One batch of every device, and what came of it sent; how many frames.
    fn serve_rings(&mut self, now: Now) -> usize {
        self.now = now;
        if self.outlets.devices.polling().is_some() {
            self.outlets.devices.poll();
        }
        let count = self.serve_devices();
        if count > 0 {
            self.last_frame = now;
        }
        self.unsent = self.outlets.flush(&self.shard);
        count
    }

    /// Whether queues are to be polled again though nothing came: something did a moment ago (millrace.setBusyPoll).
    #[inline]
    fn goes_on_polling(&self) -> bool {
        let polling = self.outlets.devices.polling();
        polling.is_some_and(|time| self.now.since(self.last_frame) < time)
    }

    /// What is due.
    fn do_chores(&mut self) {
        self.hedge();
        self.keep_house();
    }

    /// Runs `work` with what the pipeline may use, the time being now.
    fn with_env<R>(
        &mut self,
        work: impl FnOnce(&mut Inlets, &mut Outlets, &mut Env<'_>) -> R,
    ) -> R {
        let mut departures = Departures::default();
        let mut env = Env {
            config: self.config.load(),
            now: self.now,
            random: &mut self.random,
            shard: &self.shard,
            forwarder: Some(Forwarder {
                exchanges: &self.instance.exchanges,
                share: &mut self.share,
                ports: &self.instance.ports,
                departures: &mut departures,
                forwarded: None,
            }),
        };
        let result = work(&mut self.inlets, &mut self.outlets, &mut env);
        // Before the departures are given up: they keep the sockets open that the outbox sends by.
        self.outlets.flush_sockets(self.now, &self.shard);
        result
    }

    /// A batch of every device, and what comes meanwhile, up to about another one; how many frames.
    fn serve_devices(&mut self) -> usize {
        if self.outlets.devices.count() == 0 {
            return 0;
        }
        self.with_env(|inlets, outlets, env| {
            let mut count = inlets.serve_batches(outlets, env);
            // It shares the system call to send: bursts come a frame at a time, and the first one wakes.
            while (1..BATCH).contains(&count) && inlets.has_more(outlets, env) {
                count += inlets.serve_batches(outlets, env);
            }
            xsk::go_on(&mut inlets.frames, outlets, env);
            count
        })
    }

    /// Waits for something to do, unless there is `more` already, and serves the sockets that have something.
    fn serve_sockets(&mut self, more: bool) -> usize {
        let timeout = if more {
            PollTimeout::ZERO
        } else {
            self.patience()
        };
        self.outlets.devices.beat();
        self.outlets.devices.attend(&self.watch);
        let polled = self.outlets.devices.polled_descriptors();
        let ready = self.watch.wait(polled, timeout);
        self.outlets.devices.foresee();
        self.now = Now::read();
        let mut count = 0;
        for token in ready.tokens() {
            match token {
                Token::Wake => self.obey(),
                // Its frames are received in the next turn.
                Token::Ring => {}
                Token::Listener(number, socket) => count += self.serve_listener(number, socket),
                Token::Ports => count += self.serve_ports(),
            }
        }
        count
    }

    /// How long nothing may happen before time-outs or the TX ring must be looked at. Idle workers wait for ever.
    fn patience(&self) -> PollTimeout {
        let hedge = self.instance.exchanges.next_hedge(&self.share);
        let wait = if self.unsent {
            RETRY
        } else if self.stop.is_some() || self.instance.exchanges.next_expiry(&self.share).is_some()
        {
            HOUSEKEEPING
        } else {
            return PollTimeout::NONE;
        };
        let wait = hedge.map_or(wait, |due| wait.min(due.since(self.now)).max(RETRY));
        PollTimeout::try_from(wait).unwrap_or(PollTimeout::ZERO)
    }

    fn serve_listener(&mut self, number: u16, socket: u16) -> usize {
        let count = self.with_env(|inlets, outlets, env| {
            let mut listeners = inlets.listeners.iter();
            let sockets = listeners.find(|sockets| sockets.number == number);
            sockets.map_or(0, |sockets| {
                let socket = usize::from(socket);
                udp::queries(sockets, socket, &mut inlets.queries, outlets, env)
            })
        });
        if count > 0
            && let Some(pulse) = &self.pulse
        {
            pulse.beat();
        }
        count
    }

    fn serve_ports(&mut self) -> usize {
        self.with_env(|inlets, outlets, env| {
            let Inlets {
                ports,
                responses,
                waiting,
                ..
            } = inlets;
            let mut count = 0;
            let read = ports.for_each_ready(|port| {
                count += udp::responses(port, responses, waiting, outlets, env);
            });
            if let Err(error) = read {
                log::error!("responses by kernel sockets cannot be read: {error}");
            }
            count
        })
    }

    /// Asks second servers about queries that are late.
    #[inline]
    fn hedge(&mut self) {
        let due = self.instance.exchanges.next_hedge(&self.share);
        if due.is_some_and(|due| due <= self.now) {
            self.hedge_all();
        }
    }

    #[cold]
    fn hedge_all(&mut self) {
        self.with_env(|inlets, outlets, env| {
            while respond::hedge(&mut inlets.waiting, env) {
                let Waiting {
                    query,
                    query_length,
                    ..
                } = &*inlets.waiting;
                outlets.send_legs(&query[..*query_length], env);
                outlets.answer_with_error(&mut inlets.waiting, env);
            }
        });
        self.unsent = self.outlets.flush(&self.shard);
    }

    /// Time-outs of queries in flight, the rates of the queues, and the kernel's counters, every [`HOUSEKEEPING`].
    fn keep_house(&mut self) {
        let now = self.now;
        let elapsed = now.since(self.last_housekeeping);
        if elapsed < HOUSEKEEPING {
            return;
        }
        self.last_housekeeping = now;
        let (exchanges, waiting) = (&self.instance.exchanges, &mut self.inlets.waiting);
        // Of races: no server had more than an error to say. Without races and timeout rules nothing is allocated.
        let mut over = Vec::new();
        let has_rules = !self.config.load().chains.timeout.is_empty();
        let shard = &self.shard;
        exchanges.expire(&mut self.share, now, shard, waiting, |waiting| {
            respond::timed_out(waiting, now, shard);
            if waiting.held_rcode != 0 || has_rules {
                over.push(waiting.clone());
            }
        });
        for mut waiting in over {
            self.with_env(|_, outlets, env| outlets.time_out(&mut waiting, env));
        }
        self.outlets.devices.suit_rates(elapsed);
        self.outlets.devices.publish_kernel();
    }

    fn obey(&mut self) {
        // Reading resets the counter; that it was already zero is no matter.
        let _ = self.wake.read();
        while let Ok(order) = self.orders.try_recv() {
            match order {
                Order::Listen(sockets) => self.listen(sockets),
                Order::Unlisten(number) => self.unlisten(number),
                Order::Forget(number) => self.forget(number),
                Order::Open(opening, outcome) => outcome(self.open(*opening)),
                Order::Change(device, facts) => self.outlets.devices.change(device, facts),
                Order::Close(device, queue) => self.close(device, queue),
                Order::Report(reply) => {
                    // Whoever asked may have given up.
                    let _ = reply.send(self.outlets.worker);
                }
                Order::Census(reply) => {
                    let (census, frames) = self.outlets.devices.census();
                    // Whoever asked may have given up.
                    let _ = reply.send((self.outlets.worker, census, frames));
                }
                Order::Tap(device, tap) => self.outlets.devices.tap(device, tap),
                Order::Pin(processors) => self.pin(&processors),
                Order::Untap => self.outlets.devices.untap(),
                Order::Wake => {
                    self.config.load();
                }
                Order::GoOn(suspended) => self.go_on(*suspended),
                Order::Stop(until) => self.begin_to_stop(until),
            }
        }
    }

    fn go_on(&mut self, suspended: Suspended) {
        self.with_env(|_, outlets, env| outlets.go_on(suspended, env));
        self.unsent = self.outlets.flush(&self.shard);
    }

    fn pin(&self, processors: &CpuSet) {
        if let Err(error) = sched_setaffinity(Pid::from_raw(0), processors) {
            log::warn!(
                "worker {} runs on any processor: those of cpus= are not to be had: {error}",
                self.outlets.worker
            );
        }
    }

    fn open(&mut self, opening: Opening) -> ::xsk::Result<Opened> {
        let (device, queue) = (opening.device, opening.queue);
        self.close(device, Some(queue));
        let opened = self.outlets.devices.open(opening)?;
        if let Err(error) = self.outlets.devices.watch(device, queue, &self.watch) {
            self.close(device, Some(queue));
            return Err(::xsk::Error::system("polling an AF_XDP socket", error));
        }
        Ok(opened)
    }

    fn close(&mut self, device: u8, queue: Option<u32>) {
        let mut open = self.outlets.devices.numbers(device);
        open.retain(|number| queue.is_none_or(|queue| *number == queue));
        if open.is_empty() {
            return;
        }
        let batches = (0..BATCHES_LEFT).take_while(|_| self.serve_devices() > 0);
        batches.for_each(drop);
        self.outlets.flush(&self.shard);
        for number in open {
            for _ in 0..self.outlets.devices.finish(device, number) {
                self.shard.count_drop(DropReason::SendFailed);
            }
            if let Some(queue) = self.outlets.devices.remove(device, number) {
                // Others have duplicates of it: closing ours would not do.
                self.watch.remove(&queue.socket);
            }
        }
    }

    fn listen(&mut self, sockets: Arc<Sockets>) {
        for socket in self.own(&sockets) {
            let token = Token::Listener(sockets.number, socket as u16);
            if let Err(error) = self.watch.add(&sockets.udp[socket], token) {
                let (address, worker) = (sockets.address, self.outlets.worker);
                log::error!("{address} is not served by worker {worker}: epoll: {error}");
            }
        }
        self.inlets.listeners.push(sockets);
    }

    /// The places of the sockets of a group that this worker reads.
    fn own(&self, sockets: &Sockets) -> impl Iterator<Item = usize> + use<> {
        let workers = self.instance.shards.len() - 1;
        (self.outlets.worker..sockets.udp.len()).step_by(workers)
    }

    /// What is in the sockets' buffers now was accepted: it is served first.
    fn unlisten(&mut self, number: u16) {
        let mut listeners = self.inlets.listeners.iter();
        let Some(place) = listeners.position(|sockets| sockets.number == number) else {
            return;
        };
        let sockets = Arc::clone(&self.inlets.listeners[place]);
        for socket in self.own(&sockets) {
            // A flood would never end: what the buffer can have held by now is a few batches.
            let batches = (0..BATCHES_LEFT)
                .take_while(|_| self.serve_listener(number, socket as u16) == BATCH);
            batches.for_each(drop);
            self.watch.remove(&sockets.udp[socket]);
        }
        self.inlets
            .leaving
            .push(self.inlets.listeners.remove(place));
    }

    fn forget(&mut self, number: u16) {
        self.unsent = self.outlets.flush(&self.shard);
        self.inlets
            .leaving
            .retain(|sockets| sockets.number != number);
    }

    /// What comes from now on meets a closed port. Frames come no more: the queues have left the programs' maps.
    fn begin_to_stop(&mut self, until: Now) {
        self.stop = Some(until);
        let batches = (0..BATCHES_LEFT).take_while(|_| self.serve_devices() > 0);
        batches.for_each(drop);
        let numbers: Vec<u16> = self
            .inlets
            .listeners
            .iter()
            .map(|sockets| sockets.number)
            .collect();
        numbers.into_iter().for_each(|number| self.unlisten(number));
    }

    fn is_done(&self) -> bool {
        let Some(until) = self.stop else { return false };
        let idle = self.instance.in_flight() == 0 && !self.unsent;
        idle || Now::read() >= until
    }
}

/// For simulations, and for counting.
impl Worker {
    /// With random numbers that repeat.
    pub fn seeded(mut self, seed: u64) -> Worker {
        self.random = Random::from_seed(seed);
        self
    }

    /// A turn at a moment that the caller chooses, without sockets and without waiting.
    pub fn turn(&mut self, now: Now) {
        self.serve_rings(now);
        self.do_chores();
    }
}

#[cfg(test)]
impl Worker {
    /// Carries out what was ordered until now.
    pub(crate) fn obey_at(&mut self, now: Now) {
        self.now = now;
        self.obey();
    }

    pub(crate) fn devices(&self) -> &crate::frontend::devices::Devices {
        &self.outlets.devices
    }

    pub(crate) fn devices_mut(&mut self) -> &mut crate::frontend::devices::Devices {
        &mut self.outlets.devices
    }
}

fn pulse(instance: &Instance, worker: usize) -> Option<Heartbeat> {
    instance.pulses.as_ref()?.heartbeat(worker as u32).ok()
}
