//! From a command line to a daemon that serves.

use super::account::Account;
use super::failure::{StartError, system};
use super::listeners::{listeners, pulses};
use super::memory::Memory;
use super::needs::Needs;
use super::overview::Overview;
use super::paths;
use super::polling::{self, Polling};
use super::programs::{
    Bitmaps, attached, enter, open_devices, open_part, planned, rings, say_what_was_refused,
    take_traffic, uses_others_maps, wants_xdp,
};
use super::services::{Doors, Services, Signals};
use super::stalls::Stalls;
use super::succession::Legacy;
use super::workers::{self, BoundQueue, RunningWorker};
use super::{Daemon, Event, hangup, lock, occupied, watchdog};
use crate::backend::exchange::Exchanges;
use crate::backend::ports::{PORTS_PER_SOURCE, Ports};
use crate::backend::server::Server;
use crate::backend::servers::Servers;
use crate::commands::{ServeArguments, say_remarks};
use crate::config::spec::Purpose;
use crate::config::{Config, LuaState};
use crate::control::console;
use crate::control::listening::{Listening, Service};
use crate::control::metrics::Metrics;
use crate::control::protocol::DEFAULT_PATH;
use crate::control::socket::{self, ControlSocket, Estate};
use crate::control::web;
use crate::counters::{Shard, Writers};
use crate::frontend::devices::Devices;
use crate::frontend::named::NamedSockets;
use crate::handover;
use crate::instance::Instance;
use crate::local::{self, Local};
use crate::log;
use crate::network::follow::Follower;
use crate::network::helper::Helper;
use crate::network::keeping::Keeping;
use crate::network::privileges::{self, Wish};
use crate::network::steering::Steering;
use crate::network::{self, Open, Plan};
use crate::pipeline::acl::Netmasks;
use crate::random::Random;
use arc_swap::ArcSwap;
use caps::Capability;
use std::fmt::Display;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};
use tokio::signal::unix::Signal;

/// An ACL may have a million.
const NETMASKS_TOLD: usize = 50;

impl Daemon {
    /// Everything up to the first query.
    ///
    /// # Errors
    /// A configuration that is not good, or an address that cannot be served. That AF_XDP cannot be had is no error: a
    /// warning says why, and kernel sockets serve.
    pub(super) fn start(
        arguments: ServeArguments,
        (helper, hangups): (Helper, Signal),
        legacy: &mut Legacy,
    ) -> Result<Daemon, StartError> {
        let succeeds = legacy.predecessor.is_some();
        let (lua, config) = load(&arguments, succeeds)?;
        occupied::await_free(&config, &mut legacy.sockets, succeeds).map_err(StartError::System)?;
        let ends = hangup::ends().map_err(system("SIGTERM cannot be listened to"))?;
        let ground = ground(&arguments, config, legacy)?;
        if !uses_others_maps(&ground.instance.config.load()) {
            helper.forgo();
        }
        let signals = Signals { hangups, ends };
        let daemon = Daemon::on(ground, arguments, (Arc::new(helper), signals), lua, legacy)?;
        daemon.say_who_is_served();
        Ok(daemon)
    }

    /// Threads on what is prepared; from here on there are no privileges.
    fn on(
        ground: Ground,
        arguments: ServeArguments,
        (helper, signals): (Arc<Helper>, Signals),
        lua: Arc<LuaState>,
        legacy: &mut Legacy,
    ) -> Result<Daemon, StartError> {
        let Ground {
            devices,
            plan,
            steering,
            instance,
            ..
        } = ground;
        let (sender, events) = channel();
        let services = Services::new(&instance, signals, &sender)
            .map_err(system("starting the asynchronous runtime"))?;
        let open = open_by(&steering, &ground.queues);
        let follower = follow(&instance.config.load(), &plan, open, &sender);
        let shared = (&instance, &steering);
        let overview = overview(shared, ground.queues, (&helper, &ground.needs), &sender);
        let metrics = Arc::new(Metrics::new(Arc::clone(&overview) as Arc<_>));
        lua.serve(&metrics);
        services.check(&instance.config.load());
        let keeper = services.keeper(&sender);
        keeper.follow(&instance.config.load().local);
        let workers = start_all(ground.rings, &overview)?;
        enter(&overview);
        // Whoever gets an answer there may count on it that queries come over AF_XDP.
        services.open(ground.doors, &overview, &metrics, ground.handed);
        Ok(Daemon {
            needs: ground.needs,
            account: Account::default(),
            arguments,
            instance,
            keeping: Keeping::new(plan, devices),
            steering,
            workers,
            overview,
            metrics,
            services,
            follower,
            keeper,
            reloading: None,
            asked_again: Vec::new(),
            helper,
            polling: Polling::default(),
            stalls: Stalls::default(),
            retired: Vec::new(),
            applied: lua.edit(|spec| spec.edits),
            lua,
            next_look: Instant::now(),
            events,
            memory: ground.memory,
            cleaned: Instant::now(),
            estate: ground.estate,
            successor: None,
            lent: std::mem::take(&mut legacy.sockets),
            predecessor: legacy.predecessor.take(),
            has_left: false,
        })
    }

    /// Where queries may come, and from whom: what an operator looks for first. How queues are served has lines of its own.
    fn say_who_is_served(&self) {
        for sockets in self.instance.listeners.all().iter().flatten() {
            log::info!("Listening"; address = sockets.address, sockets = sockets.udp.len());
        }
        for named in self.instance.named.all().iter() {
            log::info!("Listening"; address = named.address());
        }
        let acl = &self.instance.config.load().acl;
        let first: Netmasks = acl.iter().take(NETMASKS_TOLD).collect();
        let more = if acl.len() > NETMASKS_TOLD {
            ", …"
        } else {
            ""
        };
        log::info!("ACL allowing queries"; netmasks = format!("{first}{more}"), count = acl.len());
        if let Some(fate) = fate_of_all(&self.instance.config.load()) {
            log::warn!("no servers, zones or rules: every query is {fate}");
        }
    }
}

/// What becomes of every query, where nothing is there that it could go to.
fn fate_of_all(config: &Config) -> Option<&'static str> {
    let is_empty = config.servers.is_empty()
        && config.zone_options.is_empty()
        && config.listed_rules().is_empty();
    is_empty.then_some(match config.tuning.servfail_when_no_server {
        true => "answered with SERVFAIL",
        false => "dropped",
    })
}

/// The configuration, its zones read: when no other process serves, the small ones.
fn load(arguments: &ServeArguments, succeeds: bool) -> Result<(Arc<LuaState>, Config), StartError> {
    arguments.check_owner()?;
    let lua = Arc::new(arguments.load(Purpose::Serve, None)?);
    lua.edit(|spec| {
        log::set(arguments.log_settings(spec.log_settings()));
        say_remarks(spec);
    });
    let mut config = lua.derive(None)?;
    // Where a process serves already, it does so until everything is there.
    let (local, lines) = lua.edit(|spec| match succeeds {
        true => Local::load(&spec.zones, &Local::default()),
        false => Local::load_early(&spec.zones),
    });
    lines.iter().for_each(local::Line::log);
    until_alone();
    config.local = Arc::new(local);
    Ok((lua, config))
}

/// What is made while there are privileges.
struct Ground {
    devices: network::Devices,
    plan: Plan,
    steering: Arc<Mutex<Steering>>,
    instance: Arc<Instance>,
    /// Of every worker.
    rings: Vec<Devices>,
    /// Those that are bound.
    queues: Vec<BoundQueue>,
    memory: Memory,
    /// What was refused: it is tried again, and the reason not said again.
    needs: Needs,
    doors: Doors,
    handed: handover::Receiver,
    estate: Option<Estate>,
}

fn ground(
    arguments: &ServeArguments,
    config: Config,
    legacy: &mut Legacy,
) -> Result<Ground, StartError> {
    privileges::raise_memlock();
    let mut devices = network::Devices::default();
    let plan = first_plan(&config, &mut devices);
    polling::let_leftovers(&plan, config.tuning.busy_poll.is_some());
    let mut needs = Needs::default();
    let steering = match &mut legacy.predecessor {
        None => attached(&plan, &config.tuning, &mut needs),
        Some(predecessor) => {
            predecessor.load_programs(&plan);
            Steering::default()
        }
    };
    let steering = Arc::new(Mutex::new(steering));
    let workers = workers::count(&plan, &config);
    let capabilities = config.capabilities.clone();
    let (hand_over, handed) = handover::queue();
    let instance = Arc::new(instance(config, workers, &steering, hand_over, legacy)?);
    legacy.fill_caches(&instance.config.load());
    let open = open_part(&plan, &lock(&steering));
    let memory = Memory::find();
    let wanted = match &legacy.predecessor {
        None => &open,
        // Frames for all queues; they are bound when the process before this one has left them.
        Some(_) => &plan,
    };
    let frames = memory.frames_at_start(workers::queues(wanted));
    let (rings, queues) = {
        let tuning = &instance.config.load().tuning;
        let wish = (*frames.as_ref().unwrap_or(&0), tuning);
        rings(workers, wanted, &steering, wish, &mut needs)?
    };
    say_what_was_refused(&plan, &needs);
    if let Err(too_little) = &frames {
        needs.lack_memory(&plan, too_little);
    }
    take_traffic(&open, &steering);
    instance
        .impossible_sources
        .store(Arc::new(plan.impossible_sources.clone()));
    let doors = doors(arguments, &instance.config.load(), legacy)?;
    let estate = doors.control.as_ref().map(ControlSocket::estate);
    paths::open(arguments.group.as_deref(), &instance, &mut legacy.sockets)?;
    legacy.close_unused(&instance.config.load().listeners);
    give_privileges_away(arguments, &capabilities, &instance.config.load())?;
    Ok(Ground {
        devices,
        plan,
        steering,
        instance,
        rings,
        queues,
        memory,
        needs,
        doors,
        handed,
        estate,
    })
}

/// The privileged helper process, if it can be had.
pub(super) fn helper() -> Helper {
    Helper::start().unwrap_or_else(|error| {
        log::warn!(
            "no privileged helper process: AF_XDP queues, interfaces and ports below 1,024 that are needed after the start take a restart: {error}"
        );
        Helper::none()
    })
}

/// Waits until the threads that loaded zones are gone: one that was joined may be in the kernel's list for a moment more, and
/// capabilities are given away by that list.
fn until_alone() {
    let begun = Instant::now();
    let threads = || std::fs::read_dir("/proc/self/task").map_or(1, Iterator::count);
    while threads() > 1 && begun.elapsed() < Duration::from_secs(1) {
        std::thread::yield_now();
    }
}

/// Without a word of the kernel's there is no AF_XDP.
fn first_plan(config: &Config, devices: &mut network::Devices) -> Plan {
    let plan = planned(config, devices).unwrap_or_else(|error| {
        log::warn!(
            "no AF_XDP, kernel sockets serve: the kernel does not say what interfaces there are: {error}"
        );
        Plan::default()
    });
    plan.say_what_is_new(&Plan::default());
    plan.warn_of_what_is_new(&Plan::default());
    plan
}

fn doors(
    arguments: &ServeArguments,
    config: &Config,
    legacy: &mut Legacy,
) -> Result<Doors, StartError> {
    let mut open = |service: Service, address: Option<SocketAddr>| {
        let listener = address.map(|address| match legacy.sockets.take_tcp(address) {
            Some(listener) => Ok(listener),
            None => (service.bind)(address),
        });
        let refuse = |error: io::Error| StartError::System(error.to_string());
        listener.transpose().map_err(refuse)
    };
    Ok(Doors {
        web: open(web::SERVICE, web::address(config))?,
        console: open(console::SERVICE, config.console.address)?,
        control: match legacy.control.take() {
            Some(socket) => Some(socket),
            None => control(arguments)?,
        },
    })
}

/// All workers, and who watches them.
fn start_all(rings: Vec<Devices>, overview: &Overview) -> Result<Vec<RunningWorker>, StartError> {
    overview.instance.config.load().open_actions();
    let rings = rings.into_iter().enumerate();
    let workers: Vec<RunningWorker> = rings
        .map(|(number, rings)| workers::start(number, rings, &overview.instance))
        .collect::<io::Result<_>>()
        .map_err(system("starting a worker"))?;
    let reins: Vec<_> = workers.iter().map(|worker| worker.reins.clone()).collect();
    watchdog::start(reins.clone()).map_err(system("starting the watchdog"))?;
    overview.reins.get_or_init(|| reins);
    Ok(workers)
}

/// The control socket. A path that the command line names must be ours; the usual one may belong to another instance, or
/// not be ours to write: then there is none.
fn control(arguments: &ServeArguments) -> Result<Option<ControlSocket>, StartError> {
    let refuse = |error: &dyn Display| StartError::System(error.to_string());
    let path = arguments.control.as_deref();
    let socket = match (socket::bind(path.unwrap_or(Path::new(DEFAULT_PATH))), path) {
        (Ok(socket), _) => socket,
        (Err(error), Some(_)) => return Err(refuse(&error)),
        (Err(error), None) => {
            log::warn!("no commands to this instance: {error}");
            return Ok(None);
        }
    };
    if let Some(name) = &arguments.group {
        let group = privileges::group_number(name).map_err(|error| refuse(&error))?;
        socket.give_to(group).map_err(|error| refuse(&error))?;
    }
    Ok(Some(socket))
}

/// Nothing that serves keeps a capability, but those that the configuration asks for.
fn give_privileges_away(
    arguments: &ServeArguments,
    retain: &[Capability],
    config: &Config,
) -> Result<(), StartError> {
    let wish = Wish {
        user: arguments.user.as_deref(),
        group: arguments.group.as_deref(),
        retain,
        xdp: wants_xdp(config),
    };
    let dropped = privileges::drop_privileges(&wish)
        .map_err(|error| StartError::System(format!("giving privileges away: {error}")))?;
    dropped
        .warnings
        .iter()
        .for_each(|line| log::warn!("{line}"));
    if !dropped.kept.is_empty() {
        log::info!("capabilities kept: {}", dropped.kept.join(", "));
    }
    Ok(())
}

fn overview(
    (instance, steering): (&Arc<Instance>, &Arc<Mutex<Steering>>),
    queues: Vec<BoundQueue>,
    (helper, needs): (&Helper, &Needs),
    events: &Sender<Event>,
) -> Arc<Overview> {
    Arc::new(Overview {
        instance: Arc::clone(instance),
        steering: Arc::clone(steering),
        queues: Mutex::new(queues),
        helper: Arc::clone(&helper.counts),
        events: events.clone(),
        changes: needs.changes(),
        reins: OnceLock::new(),
        listening: Listening::default(),
        turn: Mutex::default(),
    })
}

fn open_by(steering: &Mutex<Steering>, queues: &[BoundQueue]) -> Open {
    Open {
        devices: open_devices(&lock(steering)),
        served: queues.iter().map(|bound| bound.device).collect(),
    }
}

/// Keeps each server's way over AF_XDP right while routes and neighbours move, where anything is to be reached by it.
pub(super) fn follow(
    config: &Config,
    plan: &Plan,
    open: Open,
    events: &Sender<Event>,
) -> Option<Follower> {
    if !wants_xdp(config) {
        return None;
    }
    let events = events.clone();
    let notify = move |notice| {
        // A control thread that has ended needs no news.
        let _ = events.send(Event::Network(notice));
    };
    match Follower::start(notify) {
        Ok(follower) => {
            follower.watch(&config.servers, plan, open);
            Some(follower)
        }
        Err(error) => {
            log::warn!(
                "servers are asked by kernel sockets: the network cannot be followed: {error}"
            );
            None
        }
    }
}

/// Sockets of all listeners, ports towards all servers, counters for all workers.
fn instance(
    mut config: Config,
    workers: usize,
    steering: &Arc<Mutex<Steering>>,
    hand_over: handover::Sender,
    legacy: &mut Legacy,
) -> Result<Instance, StartError> {
    let shards = shards(&config, workers);
    config.count_traffic(shards.len(), None);
    let servers = Arc::new(Servers::default());
    servers.publish(&config.servers);
    let watch = Box::new(Bitmaps(Arc::clone(steering)));
    let ports =
        Ports::new(workers, PORTS_PER_SOURCE, watch).map_err(system("making backend ports"))?;
    let mut random =
        Random::from_kernel().map_err(system("asking the kernel for random numbers"))?;
    let outstanding = config.tuning.maximum_udp_outstanding;
    // Where no program could be had, the same is in the way of these.
    let is_first = legacy.predecessor.is_none();
    let is_hopeless = is_first && lock(steering).devices().next().is_none();
    let pulses = pulses(wants_xdp(&config) && !is_hopeless);
    let listeners = listeners(&config, workers, pulses.as_ref(), legacy)?;
    // What is left of the descriptors is theirs.
    ports.size_buffers(config.tuning.udp_buffers);
    for server in &config.servers {
        prepare(server, &ports);
    }
    Ok(Instance {
        listeners,
        named: NamedSockets::default(),
        pulses,
        exchanges: Exchanges::new(workers, outstanding, servers, &mut random),
        ports: Arc::new(ports),
        hand_over,
        impossible_sources: Arc::default(),
        shards,
        config: Arc::new(ArcSwap::from_pointee(config)),
    })
}

pub(super) fn prepare(server: &Server, ports: &Ports) {
    if let Err(error) = ports.prepare(server) {
        log::warn!(
            "no backend ports towards {}: {error}",
            server.options.address
        );
    }
}

/// One for each worker, and the asynchronous runtime's.
fn shards(config: &Config, workers: usize) -> Box<[Arc<Shard>]> {
    let rings = |writers| config.tuning.rings.rings(workers, writers);
    let own = (0..workers).map(|number| Shard::new(number, Writers::One, rings(Writers::One)));
    own.chain([Shard::new(workers, Writers::Many, rings(Writers::Many))])
        .map(Arc::new)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::spec::Spec;

    fn fate(text: &str) -> Option<&'static str> {
        let lua = LuaState::new(Spec::new(Purpose::Serve, Default::default())).unwrap();
        lua.run("test.conf", text.as_bytes()).unwrap();
        fate_of_all(&Arc::new(lua).derive(None).unwrap())
    }

    #[test]
    fn what_becomes_of_every_query_is_known_where_there_is_nothing_for_one() {
        for (text, expected) in [
            ("", Some("dropped")),
            ("getPool('p'):setCache(newPacketCache(10))", Some("dropped")),
            (
                "setServFailWhenNoServer(true)",
                Some("answered with SERVFAIL"),
            ),
            ("setQueryCount(true)", Some("dropped")),
            ("newServer('192.0.2.1')", None),
            ("addAction(AllRule(), RCodeAction(DNSRCode.REFUSED))", None),
            ("millrace.addZone{name='example.', file='z'}", None),
        ] {
            assert_eq!(fate(text), expected, "{text}");
        }
    }
}
