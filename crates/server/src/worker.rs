//! One worker: run to completion. It owns its frames, its queue of every device, its sockets of every listener and its
//! share of the backend ports; a batch goes through the pipeline and out again before the next one is looked at.

use crate::backend::exchange::Waiting;
use crate::clock::Now;
use crate::config::Config;
use crate::counters::Shard;
use crate::frontend::listeners::{Sockets, outlet};
use crate::frontend::outlets::Outlets;
use crate::frontend::sys::{BATCH, Inbox};
use crate::frontend::{udp, xsk};
use crate::instance::Instance;
use crate::log;
use crate::pipeline::Env;
use crate::random::Random;
use arc_swap::{ArcSwap, Cache};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::eventfd::{EfdFlags, EventFd};
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

/// Batches from rings between two looks at the sockets, while the rings are never empty: a look costs about 0.5 µs.
const BATCHES_PER_POLL: u32 = 16;

/// How often time-outs are looked for while queries are in flight.
const HOUSEKEEPING: Duration = Duration::from_millis(50);

/// How long to wait before the TX ring is tried again when the kernel takes no more frames.
const RETRY: Duration = Duration::from_millis(1);

/// What the control thread asks of a worker.
pub enum Order {
    /// Serve this listener too.
    Listen(Arc<Sockets>),
    /// Serve the listener with this number no more.
    Unlisten(u16),
    /// Look at the configuration again, so that the old one can be freed.
    Wake,
    /// Read no more queries, wait for the answers of those in flight until the moment given, then end.
    Stop(Now),
}

/// The control thread's end of a worker.
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

/// What a descriptor in the poll set stands for, packed into the 64 bits that epoll keeps: kind above, number below.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Token {
    Wake,
    Device,
    Listener(u16),
    Port(u16),
}

impl Token {
    fn pack(self) -> u64 {
        match self {
            Token::Wake => 0,
            Token::Device => 1 << 32,
            Token::Listener(number) => 2 << 32 | u64::from(number),
            Token::Port(number) => 3 << 32 | u64::from(number),
        }
    }

    fn unpack(packed: u64) -> Token {
        let number = packed as u16;
        match packed >> 32 {
            0 => Token::Wake,
            1 => Token::Device,
            2 => Token::Listener(number),
            _ => Token::Port(number),
        }
    }
}

pub struct Worker {
    outlets: Outlets,
    instance: Arc<Instance>,
    config: Cache<Arc<ArcSwap<Config>>, Arc<Config>>,
    shard: Arc<Shard>,
    random: Random,
    listeners: Vec<Arc<Sockets>>,
    queries: Inbox,
    responses: Inbox,
    batch: Box<::xsk::Batch>,
    waiting: Box<Waiting>,
    epoll: Epoll,
    wake: Arc<EventFd>,
    orders: Receiver<Order>,
    last_housekeeping: Now,
    /// The TX ring holds frames that the kernel did not take.
    unsent: bool,
    stop: Option<Now>,
}

impl Worker {
    /// Takes over the rings in `outlets` and every listener's socket of this worker's number.
    pub fn new(outlets: Outlets) -> io::Result<(Worker, Reins)> {
        let instance = Arc::clone(&outlets.instance);
        let workers = instance.shards.len() - 1;
        let (sender, orders) = channel();
        let wake = Arc::new(EventFd::from_flags(
            EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC,
        )?);
        let mut worker = Worker {
            config: Cache::new(Arc::clone(&instance.config)),
            shard: Arc::clone(&instance.shards[outlets.worker]),
            random: Random::from_kernel()?,
            listeners: Vec::new(),
            queries: Inbox::new(udp::QUERY_ROOM),
            responses: Inbox::new(udp::RESPONSE_ROOM),
            batch: Box::new(::xsk::Batch::new()),
            waiting: Box::default(),
            epoll: Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?,
            wake: Arc::clone(&wake),
            orders,
            last_housekeeping: Now::default(),
            unsent: false,
            stop: None,
            instance: Arc::clone(&instance),
            outlets,
        };
        worker.watch(&wake, Token::Wake)?;
        worker.watch_devices()?;
        worker.watch_ports(workers)?;
        for sockets in instance.listeners.all().iter().flatten() {
            worker.listen(Arc::clone(sockets));
        }
        Ok((
            worker,
            Reins {
                orders: sender,
                wake,
            },
        ))
    }

    /// Serves until told to stop.
    pub fn run(mut self) {
        let mut since_poll = 0;
        while !self.is_done() {
            let mut work = self.serve_devices();
            since_poll += 1;
            if work == 0 || since_poll >= BATCHES_PER_POLL {
                since_poll = 0;
                work += self.serve_sockets(work > 0);
            }
            self.unsent = self.outlets.flush(&self.shard);
            self.keep_house();
        }
        self.outlets.flush(&self.shard);
    }

    /// One batch of every device; how many frames.
    fn serve_devices(&mut self) -> usize {
        let Worker {
            outlets,
            config,
            shard,
            random,
            batch,
            waiting,
            instance,
            ..
        } = self;
        let mut env = Env {
            config: config.load(),
            now: Now::read(),
            random,
            shard,
            exchanges: &instance.exchanges,
        };
        let mut count = 0;
        for device in 0..outlets.devices.count() {
            count += xsk::serve(device, batch, waiting, outlets, &mut env);
        }
        count
    }

    /// Waits for something to do, unless there is `more` already, and serves the sockets that have something.
    fn serve_sockets(&mut self, more: bool) -> usize {
        let timeout = if more {
            EpollTimeout::ZERO
        } else {
            self.patience()
        };
        let mut events = [EpollEvent::empty(); 64];
        // EINTR is as good as nothing.
        let ready = self.epoll.wait(&mut events, timeout).unwrap_or(0);
        let mut count = 0;
        for event in &events[..ready] {
            match Token::unpack(event.data()) {
                Token::Wake => self.obey(),
                // Its frames are received in the next turn.
                Token::Device => {}
                Token::Listener(number) => count += self.serve_listener(number),
                Token::Port(number) => count += self.serve_port(number),
            }
        }
        count
    }

    /// How long nothing may happen before time-outs or the TX ring must be looked at. Idle workers wait for ever.
    fn patience(&self) -> EpollTimeout {
        let wait = if self.unsent {
            RETRY
        } else if self.stop.is_some() || self.instance.exchanges.in_flight(self.outlets.worker) > 0
        {
            HOUSEKEEPING
        } else {
            return EpollTimeout::NONE;
        };
        EpollTimeout::try_from(wait).unwrap_or(EpollTimeout::ZERO)
    }

    fn serve_listener(&mut self, number: u16) -> usize {
        let Worker {
            outlets,
            config,
            shard,
            random,
            queries,
            listeners,
            instance,
            ..
        } = self;
        let Some(sockets) = listeners.iter().find(|sockets| sockets.number == number) else {
            return 0;
        };
        let mut env = Env {
            config: config.load(),
            now: Now::read(),
            random,
            shard,
            exchanges: &instance.exchanges,
        };
        udp::queries(sockets, queries, outlets, &mut env)
    }

    fn serve_port(&mut self, number: u16) -> usize {
        let Worker {
            outlets,
            config,
            shard,
            random,
            responses,
            waiting,
            instance,
            ..
        } = self;
        let mut env = Env {
            config: config.load(),
            now: Now::read(),
            random,
            shard,
            exchanges: &instance.exchanges,
        };
        instance.ports.with_bound(number, |socket, local| {
            udp::responses(socket, local, responses, waiting, outlets, &mut env)
        })
    }

    /// Time-outs of queries in flight, and the kernel's counters, every [`HOUSEKEEPING`].
    fn keep_house(&mut self) {
        let now = Now::read();
        if now.since(self.last_housekeeping) < HOUSEKEEPING {
            return;
        }
        self.last_housekeeping = now;
        let config = self.config.load();
        self.instance
            .exchanges
            .expire(self.outlets.worker, now, config, &self.shard);
        self.outlets.devices.publish_kernel();
    }

    fn obey(&mut self) {
        // Reading resets the counter; that it was already zero is no matter.
        let _ = self.wake.read();
        while let Ok(order) = self.orders.try_recv() {
            match order {
                Order::Listen(sockets) => self.listen(sockets),
                Order::Unlisten(number) => self.unlisten(number),
                Order::Wake => {
                    self.config.load();
                }
                Order::Stop(until) => self.begin_to_stop(until),
            }
        }
    }

    fn listen(&mut self, sockets: Arc<Sockets>) {
        let socket = outlet(&sockets, self.outlets.worker);
        match self.watch(&socket, Token::Listener(sockets.number)) {
            Ok(()) => self.listeners.push(sockets),
            Err(error) => log::error!(
                "{} is not served by worker {}: epoll: {error}",
                sockets.address,
                self.outlets.worker
            ),
        }
    }

    fn unlisten(&mut self, number: u16) {
        while self.serve_listener(number) == BATCH {}
        self.outlets.outbox.flush();
        self.listeners.retain(|sockets| {
            if sockets.number == number {
                let _ = self.epoll.delete(outlet(sockets, self.outlets.worker));
            }
            sockets.number != number
        });
    }

    /// What is in the sockets' buffers now was accepted: it is served; what comes later meets a closed port.
    fn begin_to_stop(&mut self, until: Now) {
        self.stop = Some(until);
        let numbers: Vec<u16> = self
            .listeners
            .iter()
            .map(|sockets| sockets.number)
            .collect();
        numbers.into_iter().for_each(|number| self.unlisten(number));
    }

    fn is_done(&self) -> bool {
        let Some(until) = self.stop else { return false };
        let idle = self.instance.exchanges.total_in_flight() == 0 && !self.unsent;
        idle || Now::read() >= until
    }

    fn watch(&self, descriptor: &impl AsFd, token: Token) -> io::Result<()> {
        let event = EpollEvent::new(EpollFlags::EPOLLIN, token.pack());
        Ok(self.epoll.add(descriptor, event)?)
    }

    fn watch_devices(&self) -> io::Result<()> {
        for device in 0..self.outlets.devices.count() {
            if let Some(queue) = self.outlets.devices.queue(device) {
                self.watch(&queue.socket, Token::Device)?;
            }
        }
        Ok(())
    }

    /// Each backend port is read by one worker.
    fn watch_ports(&self, workers: usize) -> io::Result<()> {
        self.instance
            .ports
            .each_of(self.outlets.worker, workers, |number, socket| {
                self.watch(&socket, Token::Port(number))
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_survive_packing() {
        for token in [
            Token::Wake,
            Token::Device,
            Token::Listener(65_535),
            Token::Port(7),
        ] {
            assert_eq!(Token::unpack(token.pack()), token);
        }
    }
}
