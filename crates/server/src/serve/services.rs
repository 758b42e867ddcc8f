//! What runs beside the workers, in the asynchronous runtime: TCP, health checks, web server, control socket, signals.
//! Nothing here is on the packet path.

use super::overview::Overview;
use super::{Event, hangup};
use crate::backend::health::{Beats, Checks, OnChange};
use crate::backend::ports::Rotation;
use crate::clock::Now;
use crate::config::{Config, LocalAddress};
use crate::control::carbon;
use crate::control::console;
use crate::control::metrics::Metrics;
use crate::control::news::Herald;
use crate::control::socket::{self, ControlSocket};
use crate::control::web;
use crate::frontend::listeners::Sockets;
use crate::frontend::named::NamedSocket;
use crate::frontend::tcp::{self, Frontend};
use crate::handover::{Receiver, SendAnswer};
use crate::instance::Instance;
use crate::local::Keeper;
use crate::log;
use crate::network::privileges::capabilities_that_stay;
use crate::pipeline::suspended::Suspended;
use crate::random::Random;
use crate::runtime::{self, Shared};
use crate::stop::Stopper;
use crate::worker::Order;
use caps::Capability;
use std::collections::HashMap;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::signal::unix::Signal;
use tokio::sync::watch;
use tokio::task::AbortHandle;

/// How long tasks may take to finish what they have begun.
const FINISH_WITHIN: Duration = Duration::from_secs(1);

/// How long after SIGTERM the control thread may take to begin with the stop; dnsdist ends within 5 s.
const BEGINS_WITHIN: Duration = Duration::from_secs(5);

pub(super) struct Services {
    runtime: Runtime,
    /// One thread: where health checks that wake together were spread over several, each would wake the others.
    checking: Runtime,
    stopper: Stopper,
    /// A signal has asked for the end.
    is_told_to_end: watch::Receiver<bool>,
    /// The control thread has begun with the stop.
    is_stopping: Arc<AtomicBool>,
    herald: Herald,
    rotation: Rotation,
    frontend: Arc<Frontend>,
    checks: Arc<Checks>,
    /// The tasks that accept connections.
    accepting: Mutex<HashMap<LocalAddress, AbortHandle>>,
    /// addCapabilitiesToRetain, as it was at the start.
    capabilities: Vec<Capability>,
}

/// What the process is told by signals.
pub(super) struct Signals {
    /// SIGHUP.
    pub(super) hangups: Signal,
    /// SIGTERM and SIGINT.
    pub(super) ends: [Signal; 2],
}

/// Sockets that were bound while there were privileges for it.
pub(super) struct Doors {
    pub(super) web: Option<TcpListener>,
    pub(super) control: Option<ControlSocket>,
    pub(super) console: Option<TcpListener>,
}

impl Services {
    /// Starts the threads; they serve nobody yet. From now on each of `signals` is an event.
    pub(super) fn new(
        instance: &Instance,
        signals: Signals,
        events: &Sender<Event>,
    ) -> io::Result<Services> {
        let shard = instance.shards.last().map(Arc::clone);
        let shard = shard.ok_or_else(|| io::Error::other("the runtime has no counters"))?;
        let shared = Arc::new(Shared::new(Arc::clone(&instance.config), shard));
        let beats = Beats::default();
        let checking = runtime::build("health", 1)?;
        let on_change = tell_of_servers(events.clone());
        let checks = Checks::new(
            Arc::clone(&instance.ports),
            Random::from_kernel()?,
            beats,
            on_change,
        );
        let threads = instance.config.load().tuning.tcp.threads;
        let runtime = runtime::build("runtime", threads)?;
        runtime.spawn(forward_reload(signals.hangups, events.clone()));
        let (told, is_told_to_end) = watch::channel(false);
        let (told, is_stopping) = (Arc::new(told), Arc::<AtomicBool>::default());
        for signal in signals.ends.into_iter().zip(hangup::ENDS) {
            let begin = (Arc::clone(&told), Arc::clone(&is_stopping));
            runtime.spawn(forward_stop(signal, events.clone(), begin));
        }
        Ok(Services {
            runtime,
            checking,
            stopper: Stopper::default(),
            is_told_to_end,
            is_stopping,
            herald: Herald::default(),
            rotation: Rotation::new(Random::from_kernel()?),
            frontend: Arc::new(Frontend::new(shared)),
            checks: Arc::new(checks),
            accepting: Mutex::default(),
            capabilities: instance.config.load().capabilities.clone(),
        })
    }

    /// Probes servers that are new, once and all at the same time, and follows all of them from now on. Whoever waits
    /// here serves by what the first probes found, and is not kept from an end by servers that do not answer.
    pub(super) fn check(&self, config: &Config) {
        let functions = config.lua.as_ref().map_or_else(Weak::new, Arc::downgrade);
        self.checks.set_verbose(config.tuning.verbose_health_checks);
        let first_round = self.checks.first_round(&config.servers, &functions);
        let mut is_told = self.is_told_to_end.clone();
        self.runtime.block_on(async {
            tokio::select! {
                () = first_round => {}
                _ = is_told.wait_for(|told| *told) => {}
            }
        });
        let _inside = self.checking.enter();
        self.checks.follow(&config.servers, &functions);
    }

    /// What runs the tasks of zones.
    pub(super) fn keeper(&self, events: &Sender<Event>) -> Keeper {
        let events = events.clone();
        Keeper::new(self.runtime.handle().clone(), move || {
            // A control thread that has ended serves nothing.
            let _ = events.send(Event::Zones);
        })
    }

    /// Whether a signal has asked for the end.
    pub(super) fn is_told_to_end(&self) -> bool {
        *self.is_told_to_end.borrow()
    }

    /// From now on the doors are open.
    pub(super) fn open(
        &self,
        doors: Doors,
        overview: &Arc<Overview>,
        metrics: &Arc<Metrics>,
        handed: Receiver,
    ) {
        let _inside = self.runtime.enter();
        let instance = &overview.instance;
        let (shared, outlet) = (
            Arc::clone(&self.frontend.shared),
            Outlet(Arc::clone(overview)),
        );
        self.runtime
            .spawn(handed.serve(shared, Arc::new(outlet), self.stopper.watch()));
        instance
            .listeners
            .all()
            .iter()
            .flatten()
            .for_each(|sockets| self.accept(sockets));
        let named = instance.named.all();
        named.iter().for_each(|socket| self.accept_at_path(socket));
        let commands = Arc::clone(overview) as Arc<_>;
        let listening = &overview.listening;
        listening.give(web::SERVICE, doors.web);
        listening.give(console::SERVICE, doors.console);
        let web = web::serve(
            listening.clone(),
            Arc::clone(metrics),
            commands,
            (self.stopper.watch(), self.herald.watch()),
        );
        self.runtime.spawn(web);
        self.runtime.spawn(console::serve(
            listening.clone(),
            Arc::clone(overview),
            (self.stopper.watch(), self.herald.watch()),
        ));
        let told = (self.stopper.watch(), self.herald.watch());
        let exports = carbon::serve(Arc::clone(metrics), told);
        self.runtime.spawn(exports);
        if let Some(socket) = doors.control {
            self.serve_control(socket, overview, Arc::clone(metrics));
        }
    }

    /// To be called once a second by the control thread: now and then a new backend port takes the place of an old one.
    pub(super) fn exchange_a_port(&mut self, instance: &Instance) {
        let drain = || instance.longest_timeout();
        self.rotation.turn(&instance.ports, Now::read(), drain);
    }

    /// Another configuration serves: those who listen elsewhere by it, or export to others, are told.
    pub(super) fn tell(&self) {
        self.herald.tell();
    }

    /// What a reload by `config` does not change; for the operator.
    pub(super) fn what_stays(&self, config: &Config) -> Vec<String> {
        let threads = runtime::threads_that_stay(&self.runtime, config.tuning.tcp.threads);
        let capabilities = capabilities_that_stay(&self.capabilities, &config.capabilities);
        threads.into_iter().chain(capabilities).collect()
    }

    /// Accepts TCP connections to a listener.
    pub(super) fn accept(&self, sockets: &Arc<Sockets>) {
        let address = sockets.address;
        let listener = match sockets.tcp.try_clone() {
            Ok(listener) => listener,
            Err(error) => return log::error!("no TCP on {address}: {error}"),
        };
        let (frontend, stop) = (Arc::clone(&self.frontend), self.stopper.watch());
        let counters = Arc::clone(&sockets.connections);
        let task = self.runtime.spawn(async move {
            if let Err(error) = tcp::serve(listener, frontend, counters, stop).await {
                log::error!("no TCP on {address}: {error}");
            }
        });
        self.accepting().insert(address.into(), task.abort_handle());
    }

    /// The same at a path.
    pub(super) fn accept_at_path(&self, named: &NamedSocket) {
        let (address, socket) = (named.address(), &named.socket);
        let listener = match socket.listener.try_clone() {
            Ok(listener) => (Arc::clone(&socket.path), listener),
            Err(error) => return log::error!("nobody is served at {address}: {error}"),
        };
        let (frontend, stop) = (Arc::clone(&self.frontend), self.stopper.watch());
        let (counters, name) = (Arc::clone(&named.connections), address.clone());
        let task = self.runtime.spawn(async move {
            if let Err(error) = tcp::serve_at(listener, frontend, counters, stop).await {
                log::error!("nobody is served at {name}: {error}");
            }
        });
        self.accepting().insert(address, task.abort_handle());
    }

    /// Accepts no more; connections go on.
    pub(super) fn refuse(&self, address: &LocalAddress) {
        if let Some(task) = self.accepting().remove(address) {
            task.abort();
        }
    }

    fn accepting(&self) -> std::sync::MutexGuard<'_, HashMap<LocalAddress, AbortHandle>> {
        self.accepting
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn serve_control(
        &self,
        socket: ControlSocket,
        overview: &Arc<Overview>,
        metrics: Arc<Metrics>,
    ) {
        let (commands, stop) = (Arc::clone(overview) as Arc<_>, self.stopper.watch());
        self.runtime.spawn(async move {
            if let Err(error) = socket::serve(socket, commands, metrics, stop).await {
                log::error!("control socket: {error}");
            }
        });
    }

    /// The control thread begins with the stop.
    pub(super) fn begin_to_stop(&self) {
        self.is_stopping.store(true, Relaxed);
    }

    /// Begins nothing new, and waits a moment for what has begun.
    pub(super) fn close(self) {
        self.stopper.stop();
        let finished = self
            .runtime
            .block_on(async { tokio::time::timeout(FINISH_WITHIN, self.stopper.finished()).await });
        if finished.is_err() {
            log::warn!(
                "connections were cut that had not finished within {} s",
                FINISH_WITHIN.as_secs()
            );
        }
        self.checking.shutdown_background();
        self.runtime.shutdown_background();
    }
}

/// Answers of the runtime to clients that came over UDP.
struct Outlet(Arc<Overview>);

impl SendAnswer for Outlet {
    fn send(&self, destination: SocketAddr, client: SocketAddr, message: &[u8]) -> io::Result<()> {
        let listeners = &self.0.instance.listeners;
        let sent = listeners.answer_by(destination, |sockets| {
            sockets.send(destination, client, message)
        });
        sent.unwrap_or_else(|| {
            let reason = format!("{destination} is not served any more");
            Err(io::Error::other(reason))
        })
    }

    /// Any worker will do: those of one client's queries that have no ring to it have the listener's socket.
    fn go_on(&self, suspended: Box<Suspended>) {
        let all = self.0.reins.get().map_or(&[][..], Vec::as_slice);
        let place = usize::from(suspended.ends.0.port()) % all.len().max(1);
        if let Some(reins) = all.get(place) {
            reins.order(Order::GoOn(suspended));
        }
    }
}

/// Callbacks of the configuration are the control thread's to call.
fn tell_of_servers(events: Sender<Event>) -> OnChange {
    Box::new(move |server, up| {
        let name = server.name_with_address().to_owned();
        // A control thread that has ended needs no news.
        let _ = events.send(Event::Server { name, up });
    })
}

/// Tells the control thread of each signal that asks for the end. One that hangs (it reads a file that does not end) must not
/// keep the process from it.
async fn forward_stop(
    (mut signal, name): (Signal, &str),
    events: Sender<Event>,
    (told, has_begun): (Arc<watch::Sender<bool>>, Arc<AtomicBool>),
) {
    while signal.recv().await.is_some() {
        let is_first = !told.send_replace(true);
        if events.send(Event::Stop).is_err() {
            return;
        }
        if is_first {
            log::info!("{name}: millrace stops");
        }
        tokio::time::sleep(BEGINS_WITHIN).await;
        if !has_begun.load(Relaxed) {
            log::error!(
                "told to stop {} s ago, and the control thread hangs (a configuration that does not end?): what is in flight is lost",
                BEGINS_WITHIN.as_secs()
            );
            std::process::exit(1);
        }
    }
}

/// Tells the control thread of each SIGHUP.
async fn forward_reload(mut signal: Signal, events: Sender<Event>) {
    while signal.recv().await.is_some() {
        if events.send(Event::Reload(None)).is_err() {
            return;
        }
    }
}
