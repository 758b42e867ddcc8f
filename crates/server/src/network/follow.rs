//! Follows the network while serving: one thread listens to the kernel and keeps each server's way over AF_XDP right.
//!
//! After links, addresses or routes have moved, the kernel is asked anew for every way that matters: it tells of a route
//! that came, but not of those that a link took with it when it went down, nor which of two routes is the better one now.

use super::devices::Device;
use super::events::{GROUPS, NetworkEvent};
use super::links::MacText;
use super::paths::{Change, Paths, Watched};
use super::plan::{Plan, destination};
use super::routes::{Destination, Route};
use super::{links, neighbours, routes};
use crate::backend::server::{Server, ServerId};
use crate::config::Xdp;
use crate::log;
use futures_util::StreamExt;
use futures_util::stream::Stream;
use rtnetlink::packet_core::NetlinkMessage;
use rtnetlink::packet_route::RouteNetlinkMessage;
use rtnetlink::sys::{AsyncSocket, SocketAddr};
use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::{Instant, sleep, sleep_until};

/// How long after a change the kernel is asked for ways, at least: changes come in flocks.
const FLOCK: Duration = Duration::from_millis(20);

/// Asking may take this fraction of the thread's time, however many changes there are.
const REST: u32 = 10;

/// How often an unresolved next hop is knocked at, so that one that comes back is known within a second (I9), and how soon netlink is tried again when it fails.
const AGAIN: Duration = Duration::from_millis(500);

/// Room for messages that wait to be read, in bytes: a table of routes may change at once.
const BUFFER: usize = 1 << 20;

/// What the rest of the daemon is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notice {
    /// Links, addresses or routes have changed: a new plan may differ from the last one.
    Replan,
    /// The interface with this index is gone, and with it every socket bound to it.
    LinkGone(u32),
}

/// The thread that follows. It ends when this is dropped.
pub struct Follower {
    orders: Option<UnboundedSender<Order>>,
    thread: Option<JoinHandle<()>>,
}

struct Order {
    servers: HashMap<ServerId, Arc<Server>>,
    watched: Vec<Watched>,
    devices: Vec<Device>,
}

impl Follower {
    /// Starts the thread in the network namespace of the caller. `notify` is called on it and must not wait.
    pub fn start(notify: impl Fn(Notice) + Send + 'static) -> io::Result<Follower> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let (sender, orders) = unbounded_channel();
        let following = Following {
            paths: Paths::default(),
            servers: HashMap::new(),
            notify,
        };
        let thread = std::thread::Builder::new()
            .name("network".to_owned())
            .spawn(move || runtime.block_on(following.run(orders)))?;
        Ok(Follower {
            orders: Some(sender),
            thread: Some(thread),
        })
    }

    /// From now on the ways to these servers are followed, as planned, over the devices that are open: those that are down,
    /// and so in no plan, too.
    pub fn watch(&self, servers: &[Arc<Server>], plan: &Plan, devices: Vec<Device>) {
        let routes: HashMap<ServerId, Route> = plan
            .paths
            .iter()
            .map(|path| (path.server, path.route))
            .collect();
        let wanted = servers
            .iter()
            .filter(|server| server.options.xdp != Xdp::Off);
        let order = Order {
            watched: wanted
                .clone()
                .map(|server| watched(server, routes.get(&server.number)))
                .collect(),
            servers: wanted
                .map(|server| (server.number, Arc::clone(server)))
                .collect(),
            devices,
        };
        if let Some(orders) = &self.orders {
            // The thread ends by a panic only, which has told its story.
            let _ = orders.send(order);
        }
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.orders = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// What there is to follow of a server, for which this route was planned.
pub(crate) fn watched(server: &Server, planned: Option<&Route>) -> Watched {
    let wish = destination(server);
    Watched {
        server: server.number,
        // The backend ports are bound to the source that was planned.
        destination: Destination {
            source: planned.map(|route| route.source).or(wish.source),
            ..wish
        },
        mac: server.options.mac,
        planned: planned.is_some(),
    }
}

struct Following<N> {
    paths: Paths,
    servers: HashMap<ServerId, Arc<Server>>,
    notify: N,
}

/// What changes since the kernel was last asked call for.
#[derive(Default)]
struct Due {
    /// When to ask for the ways.
    ask: Option<Instant>,
    /// Whether the plan may have changed too.
    replan: bool,
    /// How long the last asking took.
    took: Duration,
}

impl Due {
    fn after_change(&mut self) {
        let wait = FLOCK.max(self.took * REST);
        self.ask.get_or_insert_with(|| Instant::now() + wait);
    }
}

impl<N: Fn(Notice)> Following<N> {
    /// Until nobody gives orders any more.
    async fn run(mut self, mut orders: UnboundedReceiver<Order>) {
        let mut told = String::new();
        while let Err(error) = self.listen(&mut orders).await {
            let reason = error.to_string();
            if reason != told {
                log::warn!("Network not followed for now, netlink fails"; error = reason);
                told = reason;
            }
            sleep(AGAIN).await;
        }
    }

    async fn listen(&mut self, orders: &mut UnboundedReceiver<Order>) -> io::Result<()> {
        let (mut connection, mut handle, messages) = rtnetlink::new_multicast_connection(&GROUPS)?;
        // The limit is net.core.rmem_max: less room means asking anew more often.
        let _ = connection
            .socket_mut()
            .socket_mut()
            .set_rx_buf_sz(BUFFER as i32);
        let connection = tokio::spawn(connection);
        let ended = self.follow(orders, &mut handle, messages).await;
        connection.abort();
        ended
    }

    async fn follow(
        &mut self,
        orders: &mut UnboundedReceiver<Order>,
        handle: &mut rtnetlink::Handle,
        mut messages: impl Stream<Item = (NetlinkMessage<RouteNetlinkMessage>, SocketAddr)> + Unpin,
    ) -> io::Result<()> {
        let mut due = Due::default();
        self.read_all(handle, &mut due).await?;
        let mut remind = Instant::now() + AGAIN;
        loop {
            tokio::select! {
                order = orders.recv() => match order {
                    Some(order) => self.obey(order, &mut due),
                    None => return Ok(()),
                },
                message = messages.next() => match message {
                    Some((message, _)) => self.hear(&message, handle, &mut due).await?,
                    None => return Err(io::Error::other("the connection was closed")),
                },
                () = sleep_until(due.ask.unwrap_or(remind)), if due.ask.is_some() => {
                    // Who waits already is reminded when it was to be, whatever changes meanwhile.
                    let waited = self.paths.is_waiting();
                    self.ask_ways(handle, &mut due).await?;
                    if !waited {
                        remind = Instant::now() + AGAIN;
                    }
                }
                () = sleep_until(remind), if self.paths.is_waiting() => {
                    remind = Instant::now() + AGAIN;
                    let changes = self.paths.remind();
                    self.apply(changes);
                }
            }
        }
    }

    /// Everything anew: at start, and when messages were lost.
    async fn read_all(&mut self, handle: &mut rtnetlink::Handle, due: &mut Due) -> io::Result<()> {
        let (links, neighbours) = (links::read(handle).await?, neighbours::read(handle).await?);
        let changes = self.paths.reset(links, neighbours);
        self.apply(changes);
        due.after_change();
        Ok(())
    }

    fn obey(&mut self, order: Order, due: &mut Due) {
        self.servers = order.servers;
        let changes = self.paths.watch(order.watched, order.devices);
        self.apply(changes);
        // Nothing has changed that could go on changing.
        due.ask = Some(Instant::now());
    }

    async fn hear(
        &mut self,
        message: &NetlinkMessage<RouteNetlinkMessage>,
        handle: &mut rtnetlink::Handle,
        due: &mut Due,
    ) -> io::Result<()> {
        let Some(event) = NetworkEvent::parse(message) else {
            return Ok(());
        };
        match &event {
            // Counters and states that we do not look at change as well.
            NetworkEvent::LinkChanged(link) if self.paths.knows(link) => return Ok(()),
            NetworkEvent::LinkGone(index) => {
                (self.notify)(Notice::LinkGone(*index));
                due.replan = true;
                due.after_change();
            }
            NetworkEvent::LinkChanged(_) | NetworkEvent::AddressChanged(_) => {
                due.replan = true;
                due.after_change();
            }
            NetworkEvent::RouteChanged => due.after_change(),
            NetworkEvent::NeighbourChanged(_) | NetworkEvent::NeighbourGone(_) => {}
            NetworkEvent::Lost => {
                due.replan = true;
                return self.read_all(handle, due).await;
            }
        }
        let changes = self.paths.event(event);
        self.apply(changes);
        Ok(())
    }

    async fn ask_ways(&mut self, handle: &mut rtnetlink::Handle, due: &mut Due) -> io::Result<()> {
        let began = Instant::now();
        for destination in self.paths.destinations() {
            let route = routes::ask(handle, &destination)
                .await
                .map_err(|error| error.to_string());
            let changes = self.paths.routed(&destination, &route);
            self.apply(changes);
        }
        let replan = std::mem::take(&mut due.replan);
        *due = Due {
            took: began.elapsed(),
            ..Due::default()
        };
        if replan {
            (self.notify)(Notice::Replan);
        }
        Ok(())
    }

    fn apply(&self, changes: Vec<Change>) {
        for change in changes {
            match change {
                Change::Frames {
                    server,
                    device,
                    mac,
                } => self.set(server, device, mac),
                Change::KernelSockets { server, reason } => self.clear(server, &reason),
                Change::Knock {
                    next_hop,
                    interface,
                } => {
                    // It will be tried again, and what stands in its way (no route, link down) is told as such.
                    let _ = neighbours::knock(next_hop, interface);
                }
                Change::Replan => (self.notify)(Notice::Replan),
            }
        }
    }

    fn set(&self, number: ServerId, device: u8, mac: wire::frame::Mac) {
        let Some(server) = self.servers.get(&number) else {
            return;
        };
        server.xsk.set(device, mac);
        let name = self.paths.device_name(device);
        log::notice!("Server reached over AF_XDP"; server = server.options.address, interface = name, next_hop = MacText(mac));
    }

    fn clear(&self, number: ServerId, reason: &str) {
        let Some(server) = self.servers.get(&number) else {
            return;
        };
        server.xsk.clear();
        log::warn!("Server reached by kernel sockets"; server = server.options.address, reason = reason);
    }
}

#[cfg(test)]
mod tests {
    use super::super::devices::Devices;
    use super::super::fixtures;
    use super::super::plan::{destinations, plan};
    use super::super::view::NetworkView;
    use super::*;
    use std::sync::mpsc::{Receiver, channel};
    use testnet::namespace::Namespace;

    /// How long the kernel and we may take to notice.
    const PATIENCE: Duration = Duration::from_secs(60);

    /// Two namespaces, two cables between them; gone when this is dropped.
    ///
    /// ```text
    ///  net-server-PID                                   net-peer-PID
    ///   s1 192.0.2.1/24     2001:db8:1::1 ══════════ p1 192.0.2.2/24     fe80::2    02:00:00:00:01:02
    ///   s2 198.51.100.1/24                ══════════ p2 198.51.100.2/24             02:00:00:00:02:02
    ///                                                lo 203.0.113.9      2001:db8:9::9
    /// ```
    struct Cables {
        server: Namespace,
        peer: Namespace,
    }

    impl Cables {
        /// `None`: this needs root.
        fn lay() -> Option<Cables> {
            if !nix::unistd::geteuid().is_root() {
                eprintln!("SKIP: network namespaces need root");
                return None;
            }
            let name = |end| Namespace::named(format!("net-{end}-{}", std::process::id()));
            let cables = Cables {
                server: name("server"),
                peer: name("peer"),
            };
            let peer = cables.peer.name();
            cables.server.create().expect("a namespace");
            cables.peer.create().expect("a namespace");
            let server = format!(
                "link add s1 numrxqueues 2 numtxqueues 2 type veth peer name p1 netns {peer} address 02:00:00:00:01:02
                 link add s2 type veth peer name p2 netns {peer} address 02:00:00:00:02:02
                 addr add 192.0.2.1/24 dev s1
                 addr add 2001:db8:1::1/64 dev s1 nodad
                 addr add 198.51.100.1/24 dev s2
                 link set s1 up
                 link set s2 up"
            );
            let peer = "addr add 192.0.2.2/24 dev p1
                 addr add fe80::2/64 dev p1 nodad
                 addr add 198.51.100.2/24 dev p2
                 addr add 203.0.113.9/32 dev lo
                 addr add 2001:db8:9::9/128 dev lo nodad
                 link set p1 up
                 link set p2 up";
            cables.server.ip(&server).expect("cables");
            cables.peer.ip(peer).expect("addresses");
            cables.server("route add 203.0.113.9/32 via 192.0.2.2 dev s1");
            cables.server("route add 2001:db8:9::9/128 via fe80::2 dev s1 src 2001:db8:1::1");
            Some(cables)
        }

        fn server(&self, command: &str) {
            self.server
                .ip(command)
                .expect("ip in the server's namespace");
        }

        /// Has the kernel forget a neighbour. It may have done so by itself: then there is none to delete.
        fn forget(&self, neighbour: &str) {
            match self.server.ip(&format!("neigh del {neighbour}\n")) {
                Err(failure) if !failure.to_string().contains("No such file") => {
                    panic!("{failure}")
                }
                _ => {}
            }
        }

        fn peer(&self, command: &str) {
            self.peer.ip(command).expect("ip in the peer's namespace");
        }
    }

    impl Drop for Cables {
        fn drop(&mut self) {
            for namespace in [&self.server, &self.peer] {
                let _ = namespace.remove();
            }
        }
    }

    /// Plans for the servers and follows them, inside the server's namespace.
    fn follow(cables: &Cables, servers: &[Arc<Server>]) -> (Follower, Plan, Receiver<Notice>) {
        let (sender, notices) = channel();
        let inside = cables.server.run(|| {
            let view = NetworkView::read(&destinations(servers)).expect("netlink");
            let plan = plan(&[], servers, &view, &mut Devices::default());
            let follower = Follower::start(move |notice| drop(sender.send(notice)));
            (follower.expect("a thread"), plan)
        });
        let (follower, plan) = inside.expect("the server's namespace");
        let devices = plan.devices.iter().map(|planned| planned.device.clone());
        follower.watch(servers, &plan, devices.collect());
        (follower, plan, notices)
    }

    /// A path is an atomic word: there is nothing to wait for but its value.
    #[track_caller]
    fn expect_path(server: &Server, wanted: Option<(u8, wire::frame::Mac)>) {
        let until = std::time::Instant::now() + PATIENCE;
        while server.xsk.get() != wanted && std::time::Instant::now() < until {
            // tidy: nothing announces a change of an atomic word
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(server.xsk.get(), wanted);
    }

    fn expect_notice(notices: &Receiver<Notice>, wanted: &Notice) {
        while notices.recv_timeout(PATIENCE).expect("a notice") != *wanted {}
    }

    const P1: wire::frame::Mac = [2, 0, 0, 0, 1, 2];
    const P2: wire::frame::Mac = [2, 0, 0, 0, 2, 2];

    #[test]
    fn f22_f23_the_network_is_followed() {
        let Some(cables) = Cables::lay() else { return };
        let both = Xdp::Interfaces(vec!["s1".to_owned(), "s2".to_owned()]);
        let servers = [
            fixtures::shared(fixtures::server(1, "203.0.113.9:53", both.clone())),
            fixtures::shared(fixtures::server(2, "[2001:db8:9::9]:53", both)),
        ];
        let (_follower, plan, notices) = follow(&cables, &servers);
        assert_eq!(plan.warnings, [""; 0]);
        assert_eq!(plan.devices[0].queues.len(), 2, "{:?}", plan.devices);
        assert_eq!(plan.devices[1].queues.len(), 1, "{:?}", plan.devices);
        assert!(plan.devices[0].device.partial_checksums);
        let [first, second] = [plan.devices[0].device.number, plan.devices[1].device.number];

        // Nothing was sent yet: the next hops are resolved by knocking.
        expect_path(&servers[0], Some((first, P1)));
        expect_path(&servers[1], Some((first, P1)));

        // The neighbour's address changes, and the kernel forgets the old one.
        cables.peer("link set p1 address 02:00:00:00:01:77");
        cables.forget("192.0.2.2 dev s1");
        cables.forget("fe80::2 dev s1");
        expect_path(&servers[0], Some((first, [2, 0, 0, 0, 1, 0x77])));
        expect_path(&servers[1], Some((first, [2, 0, 0, 0, 1, 0x77])));

        // The route moves to another interface.
        cables.server("route replace 203.0.113.9/32 via 198.51.100.2 dev s2");
        expect_path(&servers[0], Some((second, P2)));

        // The other end of a cable is unplugged and plugged in again: the route stays.
        cables.peer("link set p2 down");
        expect_path(&servers[0], None);
        cables.peer("link set p2 up");
        expect_path(&servers[0], Some((second, P2)));

        // A link that goes down takes its routes along.
        cables.server("link set s2 down");
        expect_path(&servers[0], None);
        cables.server("link set s2 up\nroute add 203.0.113.9/32 via 198.51.100.2 dev s2");
        expect_path(&servers[0], Some((second, P2)));

        // Nobody answers any more, and then somebody does.
        cables.peer("link set p2 arp off");
        cables.server("ntable change name arp_cache dev s2 retrans 10");
        cables.forget("198.51.100.2 dev s2");
        expect_path(&servers[0], None);
        cables.peer("link set p2 arp on");
        expect_path(&servers[0], Some((second, P2)));

        // MTU and the interface's end are for the plan.
        while notices.try_recv().is_ok() {}
        cables.server("link set s1 mtu 1280");
        expect_notice(&notices, &Notice::Replan);
        cables.server("link del s1");
        expect_notice(
            &notices,
            &Notice::LinkGone(plan.devices[0].device.interface),
        );
        expect_path(&servers[1], None);
    }
}
