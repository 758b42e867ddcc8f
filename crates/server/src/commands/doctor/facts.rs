//! What is found: files under /proc and /sys, and what drivers answer. The folder that stands for `/` is an argument, so that
//! tests can plant files.

use crate::control::client;
use crate::control::protocol::Request;
use crate::network::status::{DeviceStatus, ProgramStatus, Status};
use std::fs;
use std::path::{Path, PathBuf};
use xsk::Found;
use xsk::nic::{NODE_FILES, Nic, Tuning};

/// Everything that [`super::checks`] judges. `None`: the machine does not say.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Facts {
    /// `6.1.0-18-amd64`.
    pub(super) kernel: String,
    pub(super) has_btf: bool,
    pub(super) has_bpffs: bool,
    /// net.core.bpf_jit_enable.
    pub(super) jit: Option<u64>,
    /// Octets that may be locked; `u64::MAX`: no limit. Of the running instance, or of this process.
    pub(super) memlock: Option<u64>,
    pub(super) processors: usize,
    /// Of each processor that has one.
    pub(super) governors: Vec<String>,
    /// `always`, `madvise`, `never`.
    pub(super) transparent_huge_pages: Option<String>,
    pub(super) huge_pages: Pages,
    /// Frames of the running instance lie in some of them.
    pub(super) has_frames_in_huge_pages: bool,
    /// The processors of each of the machine's nodes, as the kernel writes them: `0-7,16-23`.
    pub(super) nodes: Vec<String>,
    /// An address on `lo` that the world may ask.
    pub(super) has_anycast: bool,
    pub(super) arp_ignore: Option<u64>,
    pub(super) arp_announce: Option<u64>,
    /// net.core.busy_poll and busy_read, in microseconds.
    pub(super) busy_poll: Option<u64>,
    pub(super) busy_read: Option<u64>,
    pub(super) interfaces: Vec<Interface>,
}

/// HugePages_Total and HugePages_Free of /proc/meminfo.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Pages {
    pub(super) all: u64,
    pub(super) free: u64,
}

/// One network interface.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Interface {
    pub(super) name: String,
    pub(super) driver: String,
    pub(super) queues: u32,
    pub(super) max_queues: u32,
    pub(super) tuning: Tuning,
    /// The stricter of `all` and the interface's own.
    pub(super) rp_filter: Option<u64>,
    pub(super) interrupts: Interrupts,
    /// How often an interrupt is left out, and after how many nanoseconds frames are looked for all the same.
    pub(super) defer_hard_irqs: Option<u64>,
    pub(super) gro_flush_timeout: Option<u64>,
    /// The running instance polls its queues.
    pub(super) is_polled: bool,
    /// A program that is not the running instance's.
    pub(super) foreign_program: Option<Found>,
    /// The file system's word: the machine's node that the card sits on; -1: there is but one.
    pub(super) node: Option<i64>,
    /// The running instance has it; without one every interface may be served.
    pub(super) is_served: bool,
    /// The VLAN interfaces whose frames come in by it, over a bond too.
    pub(super) vlans: Vec<String>,
}

/// The interrupts of an interface's queues.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Interrupts {
    /// What their names in /proc/interrupts hold.
    pub(super) names: String,
    /// The processors that handle each, as the kernel writes them: `2`, `0-3`.
    pub(super) affinities: Vec<String>,
}

/// Links on top of each other at most: MAX_NEST_DEV of <linux/netdevice.h>.
const UPPERS_MAX: u32 = 8;

/// Reads files below a folder that stands for `/`.
pub(super) struct Root<'r>(pub(super) &'r Path);

impl Root<'_> {
    fn text(&self, path: &str) -> Option<String> {
        let text = fs::read_to_string(self.0.join(path)).ok()?;
        Some(text.trim().to_owned())
    }

    fn number(&self, path: &str) -> Option<u64> {
        self.text(path)?.parse().ok()
    }

    fn names(&self, path: &str) -> Vec<String> {
        let entries = fs::read_dir(self.0.join(path)).into_iter().flatten();
        let names = entries.flatten().map(|entry| entry.file_name());
        let mut names: Vec<_> = names
            .map(|name| name.to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }

    fn exists(&self, path: &str) -> bool {
        self.0.join(path).exists()
    }
}

impl Facts {
    /// All facts; of the interfaces named, or of all Ethernet interfaces that are up.
    pub(super) fn gather(root: &Path, interfaces: &[String], control: &Path) -> Facts {
        let root = Root(root);
        let mut facts = Facts::of_machine(&root);
        let names = match interfaces {
            [] => root.ethernet(),
            names => names.to_vec(),
        };
        let own = devices_of_instance(control);
        let interfaces = names.iter().map(|name| root.interface(name, &own));
        facts.interfaces = interfaces.collect();
        let mut queues = own.iter().flat_map(|device| &device.queues);
        facts.has_frames_in_huge_pages = queues.any(|queue| queue.frames.contains("reserved"));
        facts.has_anycast = has_anycast();
        facts
    }

    /// What files say of the machine.
    pub(super) fn of_machine(root: &Root<'_>) -> Facts {
        let mounts = root.text("proc/mounts").unwrap_or_default();
        let meminfo = root.text("proc/meminfo").unwrap_or_default();
        Facts {
            kernel: root.text("proc/sys/kernel/osrelease").unwrap_or_default(),
            has_btf: root.exists("sys/kernel/btf/vmlinux"),
            has_bpffs: has_bpffs(&mounts),
            jit: root.number("proc/sys/net/core/bpf_jit_enable"),
            memlock: root.memlock(),
            processors: root.processors(),
            governors: root.governors(),
            transparent_huge_pages: root.transparent_huge_pages(),
            huge_pages: Pages {
                all: field(&meminfo, "HugePages_Total:"),
                free: field(&meminfo, "HugePages_Free:"),
            },
            has_frames_in_huge_pages: false,
            nodes: root.nodes(),
            has_anycast: false,
            arp_ignore: root.number("proc/sys/net/ipv4/conf/all/arp_ignore"),
            arp_announce: root.number("proc/sys/net/ipv4/conf/all/arp_announce"),
            busy_poll: root.number("proc/sys/net/core/busy_poll"),
            busy_read: root.number("proc/sys/net/core/busy_read"),
            interfaces: Vec::new(),
        }
    }
}

/// Whether bpffs is at /sys/fs/bpf, by /proc/mounts: what was mounted last on the way there hides the rest, as the /sys
/// of `ip netns exec` does.
fn has_bpffs(mounts: &str) -> bool {
    let mut mounts = mounts.lines().rev().filter_map(|line| {
        let mut fields = line.split(' ').skip(1);
        Some((fields.next()?, fields.next()?))
    });
    let last = mounts.find(|(place, _)| matches!(*place, "/sys" | "/sys/fs" | "/sys/fs/bpf"));
    last.is_some_and(|(_, kind)| kind == "bpf")
}

/// The number behind a name in /proc/meminfo; 0 without.
fn field(table: &str, name: &str) -> u64 {
    let line = table.lines().find_map(|line| line.strip_prefix(name));
    let word = line.and_then(|line| line.split_whitespace().next());
    word.and_then(|word| word.parse().ok()).unwrap_or(0)
}

impl Root<'_> {
    /// Of the running instance, else of this process.
    fn memlock(&self) -> Option<u64> {
        let own = std::process::id().to_string();
        let mut running = self.names("proc").into_iter().filter(|name| *name != own);
        let running = running.find(|name| {
            name.bytes().all(|octet| octet.is_ascii_digit())
                && self.text(&format!("proc/{name}/comm")).as_deref() == Some("millrace")
        });
        let process = running.unwrap_or_else(|| "self".to_owned());
        let limits = self.text(&format!("proc/{process}/limits"))?;
        // "Max locked memory         8388608              8388608              bytes": the soft limit comes first.
        let line = limits
            .lines()
            .find_map(|line| line.strip_prefix("Max locked memory"))?;
        match line.split_whitespace().next()? {
            "unlimited" => Some(u64::MAX),
            number => number.parse().ok(),
        }
    }

    fn processors(&self) -> usize {
        let text = self.text("proc/cpuinfo").unwrap_or_default();
        text.lines()
            .filter(|line| line.starts_with("processor"))
            .count()
    }

    /// By number.
    fn nodes(&self) -> Vec<String> {
        let list = |node| self.text(&format!("sys/devices/system/node/node{node}/cpulist"));
        (0..).map_while(list).collect()
    }

    fn governors(&self) -> Vec<String> {
        let names = self.names("sys/devices/system/cpu").into_iter();
        let paths =
            names.map(|cpu| format!("sys/devices/system/cpu/{cpu}/cpufreq/scaling_governor"));
        paths.filter_map(|path| self.text(&path)).collect()
    }

    /// The word in brackets: `always [madvise] never`.
    fn transparent_huge_pages(&self) -> Option<String> {
        let text = self.text("sys/kernel/mm/transparent_hugepage/enabled")?;
        let (_, rest) = text.split_once('[')?;
        Some(rest.split_once(']')?.0.to_owned())
    }

    /// Ethernet interfaces (ARPHRD_ETHER) that are up and belong to no bond or bridge's inside.
    fn ethernet(&self) -> Vec<String> {
        let names = self.names("sys/class/net").into_iter();
        let read = |name: &str, file| self.text(&format!("sys/class/net/{name}/{file}"));
        let up = |name: &String| read(name, "operstate").as_deref() == Some("up");
        names
            .filter(|name| read(name, "type").as_deref() == Some("1") && up(name))
            .collect()
    }

    /// What files and the driver say of an interface.
    pub(super) fn interface(&self, name: &str, instance: &[DeviceStatus]) -> Interface {
        let nic = Nic::by_name(name).ok();
        let rp_filter = |who| self.number(&format!("proc/sys/net/ipv4/conf/{who}/rp_filter"));
        let own = instance.iter().find(|device| device.interface == name);
        let has_program = own.is_some_and(|own| own.program != ProgramStatus::Detached);
        let program = nic.as_ref().and_then(|nic| Found::on(nic).ok().flatten());
        Interface {
            name: name.to_owned(),
            driver: nic
                .as_ref()
                .map(|nic| nic.driver.clone())
                .unwrap_or_default(),
            queues: nic.as_ref().map_or(0, |nic| nic.queues),
            max_queues: nic.as_ref().map_or(0, |nic| nic.max_queues),
            tuning: Tuning::read(name).unwrap_or_default(),
            rp_filter: rp_filter("all").max(rp_filter(name)),
            interrupts: self.interrupts(name),
            defer_hard_irqs: self.number(&format!("sys/class/net/{name}/napi_defer_hard_irqs")),
            gro_flush_timeout: self.number(&format!("sys/class/net/{name}/gro_flush_timeout")),
            is_polled: own.is_some_and(|own| own.queues.iter().any(|queue| queue.is_polled)),
            foreign_program: program.filter(|_| !has_program),
            node: NODE_FILES
                .iter()
                .find_map(|file| self.text(&format!("sys/class/net/{name}/{file}")))
                .and_then(|node| node.parse().ok()),
            is_served: own.is_some() || instance.is_empty(),
            vlans: self.vlans(name, UPPERS_MAX),
        }
    }

    /// The VLAN interfaces above one, whatever is between, so many links high. A bond receives by its members: the tags that
    /// matter are theirs.
    fn vlans(&self, name: &str, height: u32) -> Vec<String> {
        if height == 0 || (height == UPPERS_MAX && self.is_of_type(name, "bond")) {
            return Vec::new();
        }
        let links = self.names(&format!("sys/class/net/{name}")).into_iter();
        let uppers = links.filter_map(|link| Some(link.strip_prefix("upper_")?.to_owned()));
        let found = uppers.flat_map(|upper| match self.is_of_type(&upper, "vlan") {
            true => vec![upper],
            false => self.vlans(&upper, height - 1),
        });
        found.collect()
    }

    /// Whether the kernel calls a link's type so.
    fn is_of_type(&self, name: &str, device_type: &str) -> bool {
        let event = self.text(&format!("sys/class/net/{name}/uevent"));
        let wanted = format!("DEVTYPE={device_type}");
        event.is_some_and(|event| event.lines().any(|line| line == wanted))
    }

    /// The queues' interrupts: by the interface's name (`ens3f0-TxRx-0`, or with the driver before it `i40e-ens3f0-TxRx-0`), by that
    /// of a virtual machine's device (`virtio2-input.0`), or by the card's place (`mlx5_comp0@pci:0000:03:00.0`).
    fn interrupts(&self, name: &str) -> Interrupts {
        let table = self.text("proc/interrupts").unwrap_or_default();
        let mut ways = vec![(format!("-{name}-"), "")];
        let device = fs::read_link(self.0.join(format!("sys/class/net/{name}/device"))).ok();
        if let Some(device) = device.as_deref().and_then(Path::file_name) {
            let device = device.to_string_lossy();
            ways.push((format!("-{device}-input."), ""));
            ways.extend(["comp", "ntfy"].map(|kind| (format!("@pci:{device}"), kind)));
        }
        let found = ways.into_iter().map(|(part, kind)| Interrupts {
            affinities: self.affinities(&table, &part, kind),
            names: part.trim_start_matches('-').to_owned(),
        });
        let mut some = found.filter(|interrupts| !interrupts.affinities.is_empty());
        some.next().unwrap_or_default()
    }

    /// Of the interrupts in whose names, with a hyphen before them, both of these are.
    fn affinities(&self, table: &str, part: &str, kind: &str) -> Vec<String> {
        let are_meant = table.lines().filter(|line| {
            let name = line.split_whitespace().last().unwrap_or_default();
            format!("-{name}").contains(part) && name.contains(kind)
        });
        let numbers = are_meant.filter_map(|line| line.trim_start().split_once(':'));
        let affinity = |number: &str| {
            let folder = PathBuf::from(format!("proc/irq/{number}"));
            let effective = folder.join("effective_affinity_list");
            let asked = folder.join("smp_affinity_list");
            self.text(&effective.to_string_lossy())
                .or_else(|| self.text(&asked.to_string_lossy()))
        };
        numbers.filter_map(|(number, _)| affinity(number)).collect()
    }
}

/// What the running instance has of AF_XDP.
fn devices_of_instance(control: &Path) -> Vec<DeviceStatus> {
    let Ok(status) = client::request(control, &Request::XdpStatus) else {
        return Vec::new();
    };
    let status = serde_json::from_value::<Status>(status);
    status.map(|status| status.devices).unwrap_or_default()
}

/// Whether `lo` has an address beyond the machine's own.
fn has_anycast() -> bool {
    let addresses = nix::ifaddrs::getifaddrs().into_iter().flatten();
    addresses
        .filter(|address| address.interface_name == "lo")
        .filter_map(|address| Some(address.address?.as_sockaddr_in()?.ip()))
        .any(|address| !address.is_loopback())
}
