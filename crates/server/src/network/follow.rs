//! Follows the network while serving: one thread listens to the kernel and keeps each server's way over AF_XDP right. What is
//! to be done, and when, [`Due`] decides; here are the socket, the thread and the clock.

use super::devices::Open;
pub use super::due::Notice;
use super::due::{Decision, Due, Heard, Task};
use super::events::{GROUPS, NetworkEvent};
use super::links::{Link, MacText};
use super::neighbours::Neighbour;
use super::paths::{Change, Watched};
use super::plan::{Plan, destination};
use super::routes::{Destination, Route};
use super::{links, neighbours, routes};
use crate::backend::server::{Server, ServerId};
use crate::clock::Now;
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
use tokio::time::sleep;

/// How soon netlink is tried again when it fails.
const AGAIN: Duration = Duration::from_millis(500);

/// Room for messages that wait to be read, in bytes: a table of routes may change at once.
const BUFFER: usize = 1 << 20;

/// The thread that follows. It ends when this is dropped.
pub struct Follower {
    orders: Option<UnboundedSender<Order>>,
    thread: Option<JoinHandle<()>>,
}

struct Order {
    servers: HashMap<ServerId, Arc<Server>>,
    watched: Vec<Watched>,
    open: Open,
}

impl Follower {
    /// Starts the thread in the network namespace of the caller. `notify` is called on it and must not wait.
    pub fn start(notify: impl Fn(Notice) + Send + 'static) -> io::Result<Follower> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let (sender, orders) = unbounded_channel();
        let following = Following {
            due: Due::default(),
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
    pub fn watch(&self, servers: &[Arc<Server>], plan: &Plan, open: Open) {
        let order = Order {
            servers: wanted(servers)
                .map(|server| (server.number, Arc::clone(server)))
                .collect(),
            watched: watched(servers, plan),
            open,
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

/// The servers that want AF_XDP.
fn wanted(servers: &[Arc<Server>]) -> impl Iterator<Item = &Arc<Server>> {
    let servers = servers.iter();
    servers.filter(|server| server.options.xdp != Xdp::Off)
}

/// What there is to follow of these servers, as planned.
pub(crate) fn watched(servers: &[Arc<Server>], plan: &Plan) -> Vec<Watched> {
    let paths = plan.paths.iter();
    let routes: HashMap<ServerId, Route> = paths.map(|path| (path.server, path.route)).collect();
    wanted(servers)
        .map(|server| watched_one(server, routes.get(&server.number)))
        .collect()
}

/// The same of one server, for which this route was planned.
fn watched_one(server: &Server, planned: Option<&Route>) -> Watched {
    let wish = destination(server);
    Watched {
        server: server.number,
        // The backend ports are bound to the source that was planned.
        destination: Destination {
            source: planned.map(|route| route.source).or(wish.source),
            ..wish
        },
        wish,
        mac: server.options.mac,
        planned: planned.is_some(),
    }
}

/// All links and neighbours that there are.
async fn read_all(handle: &mut rtnetlink::Handle) -> io::Result<(Vec<Link>, Vec<Neighbour>)> {
    let links = links::read(handle).await?;
    Ok((links, neighbours::read(handle).await?))
}

/// The next task, when its time has come.
async fn wait_for(next: Option<(Now, Task)>) -> Task {
    let Some((at, task)) = next else {
        return std::future::pending().await;
    };
    sleep(at.since(Now::read())).await;
    task
}

struct Following<N> {
    due: Due,
    servers: HashMap<ServerId, Arc<Server>>,
    notify: N,
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
        let (links, neighbours) = read_all(handle).await?;
        let decisions = self.due.start(links, neighbours, Now::read());
        self.carry_out(decisions);
        loop {
            tokio::select! {
                order = orders.recv() => match order {
                    Some(order) => self.obey(order),
                    None => return Ok(()),
                },
                message = messages.next() => match message {
                    Some((message, _)) => self.hear(&message, handle).await?,
                    None => return Err(io::Error::other("the connection was closed")),
                },
                task = wait_for(self.due.next_task()) => match task {
                    Task::Ask => self.ask_ways(handle).await,
                    Task::Remind => {
                        let decisions = self.due.remind(Now::read());
                        self.carry_out(decisions);
                    }
                },
            }
        }
    }

    fn obey(&mut self, order: Order) {
        self.servers = order.servers;
        let decisions = self.due.watch(order.watched, order.open, Now::read());
        self.carry_out(decisions);
    }

    async fn hear(
        &mut self,
        message: &NetlinkMessage<RouteNetlinkMessage>,
        handle: &mut rtnetlink::Handle,
    ) -> io::Result<()> {
        let Some(event) = NetworkEvent::parse(message) else {
            return Ok(());
        };
        let decisions = match self.due.hear(event, Now::read()) {
            Heard::Decisions(decisions) => decisions,
            Heard::TooMuch => {
                let (links, neighbours) = read_all(handle).await?;
                self.due.read(links, neighbours, Now::read())
            }
        };
        self.carry_out(decisions);
        Ok(())
    }

    async fn ask_ways(&mut self, handle: &mut rtnetlink::Handle) {
        let asking = self.due.begin_asking(Now::read());
        for destination in &asking.destinations {
            let route = routes::ask(handle, destination)
                .await
                .map_err(|error| error.to_string());
            let decisions = self.due.routed(destination, &route);
            self.carry_out(decisions);
        }
        let decisions = self.due.end_asking(asking, Now::read());
        self.carry_out(decisions);
    }

    fn carry_out(&self, decisions: Vec<Decision>) {
        for decision in decisions {
            match decision {
                Decision::Change(change) => self.apply(change),
                Decision::Tell(notice) => (self.notify)(notice),
            }
        }
    }

    fn apply(&self, change: Change) {
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

    fn set(&self, number: ServerId, device: u8, mac: wire::frame::Mac) {
        let Some(server) = self.servers.get(&number) else {
            return;
        };
        server.reach_over_xsk(device, mac);
        let name = self.due.device_name(device);
        log::notice!("Server reached over AF_XDP"; server = server.name_with_address(), interface = name, next_hop = MacText(mac));
        (self.notify)(Notice::PathChanged);
    }

    fn clear(&self, number: ServerId, reason: &str) {
        let Some(server) = self.servers.get(&number) else {
            return;
        };
        server.xsk.clear();
        log::warn!("Server reached by kernel sockets"; server = server.name_with_address(), reason = reason);
        (self.notify)(Notice::PathChanged);
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
        follower.watch(servers, &plan, Vec::from_iter(devices).into());
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

    /// So many are told.
    fn expect_new_paths(notices: &Receiver<Notice>, count: usize) {
        (0..count).for_each(|_| expect_notice(notices, &Notice::PathChanged));
    }

    #[test]
    fn servers_without_af_xdp_are_not_followed() {
        let servers = [
            fixtures::shared(fixtures::server(1, "192.0.2.2:53", Xdp::Off)),
            fixtures::shared(fixtures::server(2, "192.0.2.3:53", Xdp::Auto)),
        ];
        let followed = watched(&servers, &Plan::default());
        let numbers: Vec<ServerId> = followed.iter().map(|one| one.server).collect();
        assert_eq!(numbers, [ServerId(2)]);
    }

    #[tokio::test]
    async fn what_is_overdue_is_done_at_once() {
        let overdue = Some((Now(0), Task::Remind));
        assert_eq!(wait_for(overdue).await, Task::Remind);
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
        expect_new_paths(&notices, servers.len());

        // The neighbour's address changes, and the kernel forgets the old one.
        cables.peer("link set p1 address 02:00:00:00:01:77");
        cables.forget("192.0.2.2 dev s1");
        cables.forget("fe80::2 dev s1");
        expect_path(&servers[0], Some((first, [2, 0, 0, 0, 1, 0x77])));
        expect_path(&servers[1], Some((first, [2, 0, 0, 0, 1, 0x77])));
        expect_new_paths(&notices, servers.len());

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

        // So is another source that the kernel prefers, on the same way.
        cables.server("addr add 198.51.100.7/24 dev s2");
        expect_notice(&notices, &Notice::Replan);
        while notices.try_recv().is_ok() {}
        cables.server("route replace 203.0.113.9/32 via 198.51.100.2 dev s2 src 198.51.100.7");
        expect_notice(&notices, &Notice::Replan);
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
