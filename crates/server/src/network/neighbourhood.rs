//! The Ethernet addresses of clients on our links, for rules that want them: the kernel's table of neighbours, of which workers
//! see a snapshot. Nobody asks the kernel for a query's sake, and both doors know the same (invariant I10).
//!
//! ```text
//!  netlink ─▶ thread ─▶ snapshot ─▶ workers: one look-up for a query that such a rule matches
//! ```

use super::events::NetworkEvent;
use super::neighbours::{self, Neighbour};
use crate::log;
use arc_swap::ArcSwap;
use futures_util::StreamExt;
use futures_util::stream::Stream;
use rtnetlink::MulticastGroup;
use rtnetlink::packet_core::NetlinkMessage;
use rtnetlink::packet_route::RouteNetlinkMessage;
use rtnetlink::sys::SocketAddr;
use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, sleep_until};
use wire::frame::Mac;

/// Making snapshots may take this fraction of the thread's time, however many changes there are.
const REST: u32 = 10;

/// How soon netlink is tried again when it fails.
const AGAIN: Duration = Duration::from_secs(1);

/// How long the first snapshot is waited for.
const FIRST_WITHIN: Duration = Duration::from_secs(1);

type Known = HashMap<IpAddr, Mac>;

/// Who is near, as the kernel knows it now.
pub struct Neighbourhood {
    known: Arc<ArcSwap<Known>>,
    /// The thread ends when this is gone.
    _end: Option<oneshot::Sender<()>>,
}

/// The one of this process, while somebody has it.
static SHARED: Mutex<Weak<Neighbourhood>> = Mutex::new(Weak::new());

impl Neighbourhood {
    /// The one of this process; its thread starts when there is none. Waits for a moment until the table is read.
    ///
    /// # Errors
    /// The kernel gives no thread.
    pub fn shared() -> io::Result<Arc<Neighbourhood>> {
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(neighbourhood) = shared.upgrade() {
            return Ok(neighbourhood);
        }
        let neighbourhood = Arc::new(Neighbourhood::start()?);
        *shared = Arc::downgrade(&neighbourhood);
        Ok(neighbourhood)
    }

    /// Follows the network namespace of the caller.
    fn start() -> io::Result<Neighbourhood> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let known = Arc::new(ArcSwap::<Known>::default());
        let (end, ended) = oneshot::channel::<()>();
        let (told, is_told) = channel();
        let published = Published {
            known: Arc::clone(&known),
            told,
        };
        let follow = move || {
            runtime.block_on(async {
                tokio::select! {
                    _ = ended => {}
                    () = published.follow() => {}
                }
            });
        };
        std::thread::Builder::new()
            .name("neighbours".to_owned())
            .spawn(follow)?;
        // Without it nobody is known yet.
        let _ = is_told.recv_timeout(FIRST_WITHIN);
        Ok(Neighbourhood {
            known,
            _end: Some(end),
        })
    }

    /// One that knows these, and nothing new.
    #[cfg(test)]
    pub(crate) fn of(known: impl IntoIterator<Item = (IpAddr, Mac)>) -> Neighbourhood {
        Neighbourhood {
            known: Arc::new(ArcSwap::from_pointee(known.into_iter().collect())),
            _end: None,
        }
    }

    /// The Ethernet address of who has this address; `None`: not on a link of ours, or not known.
    pub fn mac(&self, address: IpAddr) -> Option<Mac> {
        self.known.load().get(&address).copied()
    }
}

/// The thread's end.
struct Published {
    known: Arc<ArcSwap<Known>>,
    /// Who waits for a snapshot.
    told: Sender<()>,
}

impl Published {
    /// For ever.
    async fn follow(self) {
        let mut told = String::new();
        while let Err(error) = self.listen().await {
            let reason = error.to_string();
            if reason != told {
                log::warn!("Neighbours not followed for now, netlink fails"; error = reason);
                told = reason;
            }
            sleep(AGAIN).await;
        }
    }

    async fn listen(&self) -> io::Result<()> {
        let (connection, mut handle, messages) =
            rtnetlink::new_multicast_connection(&[MulticastGroup::Neigh])?;
        let connection = tokio::spawn(connection);
        let ended = self.mirror(&mut handle, messages).await;
        connection.abort();
        ended
    }

    async fn mirror(
        &self,
        handle: &mut rtnetlink::Handle,
        mut messages: impl Stream<Item = (NetlinkMessage<RouteNetlinkMessage>, SocketAddr)> + Unpin,
    ) -> io::Result<()> {
        let mut table = Table::of(neighbours::read(handle).await?);
        let mut next = Instant::now();
        let mut is_new = true;
        loop {
            tokio::select! {
                message = messages.next() => {
                    let Some((message, _)) = message else {
                        return Err(io::Error::other("the connection was closed"));
                    };
                    match NetworkEvent::parse(&message) {
                        Some(NetworkEvent::Lost) => {
                            table = Table::of(neighbours::read(handle).await?);
                            is_new = true;
                        }
                        Some(event) => is_new |= table.hear(&event),
                        None => {}
                    }
                }
                () = sleep_until(next), if is_new => {
                    let began = Instant::now();
                    self.known.store(Arc::new(table.snapshot()));
                    // Nobody may wait any more.
                    let _ = self.told.send(());
                    is_new = false;
                    next = Instant::now() + began.elapsed() * REST;
                }
            }
        }
    }
}

/// By address and interface.
#[derive(Default)]
struct Table(HashMap<(IpAddr, u32), Mac>);

impl Table {
    fn of(neighbours: Vec<Neighbour>) -> Table {
        let mut table = Table::default();
        for neighbour in neighbours {
            table.set(&neighbour, neighbour.mac);
        }
        table
    }

    /// Whether something has changed.
    fn hear(&mut self, event: &NetworkEvent) -> bool {
        match event {
            NetworkEvent::NeighbourChanged(neighbour) => self.set(neighbour, neighbour.mac),
            NetworkEvent::NeighbourGone(neighbour) => self.set(neighbour, None),
            _ => false,
        }
    }

    fn set(&mut self, neighbour: &Neighbour, mac: Option<Mac>) -> bool {
        let key = (neighbour.address, neighbour.interface);
        let old = match mac {
            Some(mac) => self.0.insert(key, mac),
            None => self.0.remove(&key),
        };
        old != mac
    }

    /// Who it is that several links know by one address (fe80::1) cannot be told: they are left out.
    fn snapshot(&self) -> Known {
        let mut all: HashMap<IpAddr, Option<Mac>> = HashMap::with_capacity(self.0.len());
        for (&(address, _), &mac) in &self.0 {
            let known = all.entry(address).or_insert(Some(mac));
            *known = known.filter(|known| *known == mac);
        }
        let certain = all.into_iter();
        certain
            .filter_map(|(address, mac)| Some((address, mac?)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use testnet::namespace::Namespace;

    /// How long the kernel and we may take to notice.
    const PATIENCE: Duration = Duration::from_secs(60);

    const FIRST: Mac = [2, 0, 0, 0, 0, 1];
    const SECOND: Mac = [2, 0, 0, 0, 0, 2];

    fn neighbour(address: &str, interface: u32, mac: Mac) -> Neighbour {
        Neighbour {
            interface,
            address: address.parse().unwrap(),
            mac: Some(mac),
            stale: false,
        }
    }

    #[test]
    fn who_several_links_know_by_one_address_is_not_known() {
        let first = neighbour("fe80::1", 1, FIRST);
        let other = neighbour("fe80::1", 2, SECOND);
        let mut table = Table::of(vec![first, neighbour("192.0.2.7", 1, FIRST)]);
        let found = |table: &Table, address: &str| {
            let known = table.snapshot();
            known.get(&address.parse::<IpAddr>().unwrap()).copied()
        };
        assert_eq!(found(&table, "fe80::1"), Some(FIRST));
        assert!(table.hear(&NetworkEvent::NeighbourChanged(other)));
        assert!(!table.hear(&NetworkEvent::NeighbourChanged(other)));
        assert_eq!(found(&table, "fe80::1"), None);
        assert_eq!(found(&table, "192.0.2.7"), Some(FIRST));
        assert!(table.hear(&NetworkEvent::NeighbourGone(first)));
        assert_eq!(found(&table, "fe80::1"), Some(SECOND));
    }

    /// A snapshot changes by itself: there is nothing to wait for but its content.
    #[track_caller]
    fn expect(neighbourhood: &Neighbourhood, wanted: Option<Mac>) {
        let address = IpAddr::from([192, 0, 2, 7]);
        let until = std::time::Instant::now() + PATIENCE;
        while neighbourhood.mac(address) != wanted && std::time::Instant::now() < until {
            std::thread::yield_now();
        }
        assert_eq!(neighbourhood.mac(address), wanted);
    }

    #[test]
    fn the_kernels_table_is_followed() {
        if !nix::unistd::geteuid().is_root() {
            eprintln!("SKIP: network namespaces need root");
            return;
        }
        let namespace = Namespace::named(format!("neighbourhood-{}", std::process::id()));
        namespace.create().expect("a namespace");
        let ip = |lines: &str| namespace.ip(lines).expect("ip");
        ip("link add d1 type veth peer name d2
            addr add 192.0.2.1/24 dev d1
            link set d2 up
            link set d1 up
            neigh add 192.0.2.7 lladdr 02:00:00:00:00:01 dev d1");
        let started = namespace.run(Neighbourhood::start).expect("inside");
        let neighbourhood = started.expect("a thread");
        expect(&neighbourhood, Some(FIRST));
        ip("neigh replace 192.0.2.7 lladdr 02:00:00:00:00:02 dev d1");
        expect(&neighbourhood, Some(SECOND));
        ip("neigh del 192.0.2.7 dev d1");
        expect(&neighbourhood, None);
        drop(neighbourhood);
        namespace.remove().expect("it goes");
    }
}
