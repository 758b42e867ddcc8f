//! The lab itself: three namespaces, two veth pairs, their addresses; up and down.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};

use nix::mount::{MntFlags, MsFlags, mount, umount2};

use crate::ledger::{self, Ledger};
use crate::namespace::{Namespace, run};
use crate::sys::PacketSocket;
use crate::{During, Failure, Outcome};

/// Where a lab's clients send to, and where they are.
pub const SERVER_V4: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
/// The same on IPv6.
pub const SERVER_V6: IpAddr = IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1));
/// The source of clients that do not choose another.
pub const CLIENT_V4: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 100));
/// The same on IPv6.
pub const CLIENT_V6: IpAddr = IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0x100));

/// The server's interface towards clients; examples/ name it too.
pub const SERVER_CLIENTS: &str = "enp1s0";
/// The server's interface towards backends.
pub const SERVER_BACKENDS: &str = "enp2s0";
/// The only interface of clients, and of backends.
pub const TO_SERVER: &str = "to-server";

/// Hardware addresses are given, so that raw frames can be written down.
pub const SERVER_MAC: [u8; 6] = [2, 0, 0, 0, 1, 1];
/// The clients' one.
pub const CLIENT_MAC: [u8; 6] = [2, 0, 0, 0, 1, 0x64];

const CLIENT_ADDRESSES: &str = "192.0.2.100/24 192.0.2.101/24 192.0.2.66/24 \
     2001:db8::100/64 2001:db8::101/64 2001:db8::66/64";
const BACKEND_ADDRESSES: &str = "198.51.100.2/24 198.51.100.3/24 198.51.100.4/24 198.51.100.66/24 \
     2001:db8:1::2/64 2001:db8:1::3/64 2001:db8:1::66/64";
/// The examples' backend is on the clients' network by its number; a host route leads to it.
const EXAMPLE_BACKEND: &str = "192.0.2.2";

const ROLES: [&str; 3] = ["client", "server", "backend"];

/// How client, server and backend are joined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Topology {
    /// Clients and backends each behind an interface of their own.
    TwoInterfaces,
    /// Clients and backends behind the same interface, and even the same MAC address.
    OneInterface,
    /// Two interfaces with four queues instead of two.
    FourQueues,
    /// Two interfaces whose driver takes no XDP program: veth wants as many queues to receive as its peer has to send.
    Generic,
}

impl Topology {
    fn has_backend_interface(self) -> bool {
        self != Self::OneInterface
    }

    fn queues(self) -> u8 {
        if self == Self::FourQueues { 4 } else { 2 }
    }

    fn server_queues(self) -> u8 {
        if self == Self::Generic {
            1
        } else {
            self.queues()
        }
    }
}

/// One end of a veth pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The clients' own.
    Clients,
    /// The backends' own.
    Backends,
    /// The server's towards clients.
    ServerClients,
    /// The server's towards backends.
    ServerBackends,
}

impl End {
    /// The end of this word: `clients`, `backends`, or the server's interfaces by name.
    pub fn of_word(word: &str) -> Option<Self> {
        match word {
            "clients" => Some(Self::Clients),
            "backends" => Some(Self::Backends),
            SERVER_CLIENTS => Some(Self::ServerClients),
            SERVER_BACKENDS => Some(Self::ServerBackends),
            _ => None,
        }
    }
}

/// What to build.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Start of the namespaces' names: `millrace` gives `millrace-client` and so on.
    pub prefix: String,
    /// How they are joined.
    pub topology: Topology,
}

/// A lab that is up. `down` removes it; a dropped one is removed as well, unless it was kept.
pub struct Lab {
    plan: Plan,
    ledger: Option<Ledger>,
    kept: bool,
}

impl Lab {
    /// Removes what a killed run left under this prefix, then builds.
    pub fn up(plan: Plan) -> Outcome<Self> {
        let ledger = Ledger::open(&plan.prefix)?;
        Self::up_with(plan, ledger)
    }

    /// The same under the first of `BASE-0`, `BASE-1`, … that no living process has, so that test
    /// runs do not meet.
    pub fn up_beside_others(base: &str, topology: Topology) -> Outcome<Self> {
        for number in 0..100 {
            let prefix = format!("{base}-{number}");
            if let Some(ledger) = Ledger::try_open(&prefix)? {
                return Self::up_with(Plan { prefix, topology }, ledger);
            }
        }
        Err(Failure::new(format!(
            "a hundred labs called {base}-… are in use"
        )))
    }

    fn up_with(plan: Plan, ledger: Ledger) -> Outcome<Self> {
        if ledger.kept_mark().exists() {
            return Err(Failure::new(format!(
                "the lab {} is up because somebody asked for it: `./dev lab down` removes it",
                plan.prefix
            )));
        }
        let lab = Self {
            plan,
            ledger: Some(ledger),
            kept: false,
        };
        for leftover in lab.clear() {
            eprintln!(
                "lab {}: removed what an earlier run left: {leftover}",
                lab.plan.prefix
            );
        }
        lab.ledger().empty()?;
        lab.build()?;
        Ok(lab)
    }

    /// Removes a lab by its prefix, whoever left it there; says what there was.
    pub fn down(prefix: &str) -> Outcome<Vec<String>> {
        let plan = Plan {
            prefix: prefix.to_owned(),
            topology: Topology::TwoInterfaces,
        };
        let mut lab = Self {
            ledger: Some(Ledger::open(prefix)?),
            plan,
            kept: true,
        };
        let gone = lab.clear();
        lab.ledger.take().expect("just opened").remove();
        Ok(gone)
    }

    /// Removes what a killed run left of labs that it had several of, `PREFIX-1`, `PREFIX-2` and so on; says what there was.
    /// Those that somebody has, or wants kept, stay.
    pub fn down_numbered(prefix: &str) -> Outcome<Vec<String>> {
        let mut gone = Vec::new();
        for number in ledger::numbers_of(prefix) {
            let prefix = ledger::numbered(prefix, number);
            let Some(ledger) = Ledger::try_open(&prefix)? else {
                continue;
            };
            if ledger.kept_mark().exists() {
                continue;
            }
            // Dropped, it is removed.
            let lab = Self {
                plan: Plan {
                    prefix,
                    topology: Topology::TwoInterfaces,
                },
                ledger: Some(ledger),
                kept: false,
            };
            gone.extend(lab.clear());
        }
        Ok(gone)
    }

    /// Leaves it up when this process ends; `Lab::down` removes it.
    pub fn keep(mut self) -> Outcome<()> {
        let mark = self.ledger().kept_mark();
        std::fs::write(&mark, "").during(format!("writing {}", mark.display()))?;
        self.kept = true;
        Ok(())
    }

    /// Start of its namespaces' names.
    pub fn prefix(&self) -> &str {
        &self.plan.prefix
    }

    /// The clients' namespace.
    pub fn client(&self) -> Namespace {
        namespace(&self.plan.prefix, "client")
    }

    /// The namespace of the server under test.
    pub fn server(&self) -> Namespace {
        namespace(&self.plan.prefix, "server")
    }

    /// Where the backends' addresses are: with one interface that is the clients' namespace.
    pub fn backend(&self) -> Namespace {
        match self.plan.topology {
            Topology::TwoInterfaces | Topology::FourQueues | Topology::Generic => {
                namespace(&self.plan.prefix, "backend")
            }
            Topology::OneInterface => self.client(),
        }
    }

    /// The lab's own /sys/fs/bpf, which outlives the processes in it.
    pub fn bpffs(&self) -> PathBuf {
        bpffs(self.ledger().folder())
    }

    /// Who is running here.
    pub fn ledger(&self) -> &Ledger {
        self.ledger
            .as_ref()
            .expect("only `down` takes it, at the end")
    }

    /// Switches checksum offload of the clients' interface: on means that their UDP checksums are
    /// left partial, as those of containers and guests are (F41).
    pub fn set_client_offload(&self, on: bool) -> Outcome<()> {
        set_offload(&self.client(), TO_SERVER, on)
    }

    /// Takes an end of a veth pair down or up.
    pub fn set_link(&self, end: End, up: bool) -> Outcome<()> {
        let (namespace, interface) = self.end(end);
        let word = if up { "up" } else { "down" };
        namespace.ip(&format!("link set {interface} {word}\n"))
    }

    /// Changes the MTU of one end, in octets.
    pub fn set_mtu(&self, end: End, octets: u16) -> Outcome<()> {
        let (namespace, interface) = self.end(end);
        namespace.ip(&format!("link set {interface} mtu {octets}\n"))
    }

    /// Sends a whole frame out of one end, Ethernet header first.
    pub fn inject(&self, end: End, frame: &[u8]) -> Outcome<()> {
        let (namespace, interface) = self.end(end);
        let sent = namespace.run(|| PacketSocket::open(interface)?.send(frame))?;
        sent.during(format!("sending a frame from {}", namespace.name()))
    }

    fn end(&self, end: End) -> (Namespace, &'static str) {
        match end {
            End::Clients => (self.client(), TO_SERVER),
            End::Backends => (self.backend(), TO_SERVER),
            End::ServerClients => (self.server(), SERVER_CLIENTS),
            End::ServerBackends => (self.server(), self.towards_backends()),
        }
    }

    fn build(&self) -> Outcome<()> {
        let server = self.server();
        let mut ends = vec![(self.client(), TO_SERVER), (server.clone(), SERVER_CLIENTS)];
        if self.plan.topology.has_backend_interface() {
            ends.extend([
                (self.backend(), TO_SERVER),
                (server.clone(), SERVER_BACKENDS),
            ]);
        }
        for name in self.names() {
            name.create()?;
            settle_addresses(&name)?;
        }
        server.ip(&self.links())?;
        for (namespace, interface) in ends {
            set_offload(&namespace, interface, false)?;
            namespace.ip(&format!("link set {interface} up\n"))?;
        }
        self.client()
            .ip(&add_addresses(CLIENT_ADDRESSES, TO_SERVER))?;
        self.backend()
            .ip(&add_addresses(BACKEND_ADDRESSES, TO_SERVER))?;
        self.backend().ip(&format!(
            "address add {EXAMPLE_BACKEND}/32 dev {TO_SERVER}\n"
        ))?;
        server.ip(&self.server_addresses())?;
        self.routes()?;
        self.mount_bpffs()
    }

    fn links(&self) -> String {
        let (queues, own) = (
            self.plan.topology.queues(),
            self.plan.topology.server_queues(),
        );
        let pair = |interface: &str, mac: &str, peer: &Namespace, peer_mac: &str| {
            format!(
                "link add {interface} address {mac} numtxqueues {own} numrxqueues {own} type veth \
                 peer name {TO_SERVER} netns {} address {peer_mac} numtxqueues {queues} numrxqueues {queues}\n",
                peer.name()
            )
        };
        let mut lines = pair(
            SERVER_CLIENTS,
            "02:00:00:00:01:01",
            &self.client(),
            "02:00:00:00:01:64",
        );
        if self.plan.topology.has_backend_interface() {
            lines += &pair(
                SERVER_BACKENDS,
                "02:00:00:00:02:01",
                &self.backend(),
                "02:00:00:00:02:02",
            );
        }
        lines
    }

    fn server_addresses(&self) -> String {
        add_addresses("192.0.2.1/24 2001:db8::1/64", SERVER_CLIENTS)
            + &add_addresses("198.51.100.1/24 2001:db8:1::1/64", self.towards_backends())
    }

    fn routes(&self) -> Outcome<()> {
        if !self.plan.topology.has_backend_interface() {
            return Ok(());
        }
        let back = format!(
            "route add 192.0.2.0/24 via 198.51.100.1 dev {TO_SERVER}\n\
             route add 2001:db8::/64 via 2001:db8:1::1 dev {TO_SERVER}\n"
        );
        self.backend().ip(&back)?;
        let there =
            format!("route add {EXAMPLE_BACKEND}/32 dev {SERVER_BACKENDS} src 198.51.100.1\n");
        self.server().ip(&there)
    }

    fn towards_backends(&self) -> &'static str {
        match self.plan.topology {
            Topology::TwoInterfaces | Topology::FourQueues | Topology::Generic => SERVER_BACKENDS,
            Topology::OneInterface => SERVER_CLIENTS,
        }
    }

    fn mount_bpffs(&self) -> Outcome<()> {
        const NONE: Option<&str> = None;
        let place = self.bpffs();
        std::fs::create_dir_all(&place).during(format!("making {}", place.display()))?;
        mount(Some("bpffs"), &place, Some("bpf"), MsFlags::empty(), NONE)
            .during(format!("mounting bpffs at {}", place.display()))
    }

    /// Ends and removes everything of this prefix; returns what there was.
    fn clear(&self) -> Vec<String> {
        let mut gone = self.ledger().end_processes();
        for name in self.names_of_both_topologies() {
            if name.exists() && name.remove().is_ok() {
                gone.push(format!("namespace {}", name.name()));
            }
        }
        if umount2(&self.bpffs(), MntFlags::MNT_DETACH).is_ok() {
            gone.push(format!("mount {}", self.bpffs().display()));
        }
        gone
    }

    fn names(&self) -> Vec<Namespace> {
        let mut names = vec![self.client(), self.server()];
        if self.plan.topology.has_backend_interface() {
            names.push(self.backend());
        }
        names
    }

    fn names_of_both_topologies(&self) -> Vec<Namespace> {
        ROLES.map(|role| namespace(&self.plan.prefix, role)).into()
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        if self.kept {
            return;
        }
        self.clear();
        if let Some(ledger) = self.ledger.take() {
            ledger.remove();
        }
    }
}

/// One of the namespaces of a lab that somebody has up, with its /sys/fs/bpf: to look around in.
pub fn visit(prefix: &str, role: &str) -> Outcome<(Namespace, PathBuf)> {
    if !ROLES.contains(&role) {
        return Err(Failure::new(format!(
            "no namespace {role}: {}",
            ROLES.join(", ")
        )));
    }
    let namespace = namespace(prefix, role);
    if !namespace.exists() {
        let text = format!(
            "there is no {}: `./dev lab up` or `./dev run` make one",
            namespace.name()
        );
        return Err(Failure::new(text));
    }
    Ok((namespace, bpffs(&ledger::folder(prefix))))
}

fn bpffs(folder: &Path) -> PathBuf {
    folder.join("bpf")
}

fn namespace(prefix: &str, role: &str) -> Namespace {
    Namespace::named(format!("{prefix}-{role}"))
}

fn add_addresses(addresses: &str, interface: &str) -> String {
    let line = |address| match str::contains(address, ':') {
        true => format!("address add {address} dev {interface} nodad\n"),
        false => format!("address add {address} dev {interface}\n"),
    };
    addresses.split_whitespace().map(line).collect()
}

/// IPv6 addresses are usable at once, link-local ones too, and stay while a link is down.
fn settle_addresses(namespace: &Namespace) -> Outcome<()> {
    let write = |(name, value): (&str, &str)| {
        let path = format!("/proc/sys/net/ipv6/conf/{name}");
        std::fs::write(&path, value).during(format!("writing {path}"))
    };
    let settings = [
        ("default/accept_dad", "0"),
        ("all/keep_addr_on_down", "1"),
        ("default/keep_addr_on_down", "1"),
    ];
    namespace.run(|| settings.into_iter().try_for_each(write))?
}

fn set_offload(namespace: &Namespace, interface: &str, on: bool) -> Outcome<()> {
    let word = if on { "on" } else { "off" };
    namespace.run(|| run("ethtool", &["-K", interface, "tx", word]))?
}
