//! A wrong value of each kind is planted, and found; facts are read from a folder with the files of a machine.

use super::checks::{Finding, all};
use super::facts::{Facts, Interface, Interrupts, Pages, Root};
use std::fs;
use std::path::{Path, PathBuf};
use tempfile::TempDir;
use xsk::Found;
use xsk::nic::Tuning;

/// A machine on which nothing is wrong.
fn sound() -> Facts {
    Facts {
        kernel: "6.18.0-1-amd64".to_owned(),
        has_btf: true,
        has_bpffs: true,
        jit: Some(1),
        memlock: Some(u64::MAX),
        processors: 4,
        governors: vec!["performance".to_owned(); 4],
        transparent_huge_pages: Some("madvise".to_owned()),
        huge_pages: Pages { all: 0, free: 0 },
        has_frames_in_huge_pages: false,
        nodes: vec!["0-3".to_owned(), "4-7".to_owned()],
        has_anycast: true,
        arp_ignore: Some(1),
        arp_announce: Some(2),
        busy_poll: Some(0),
        busy_read: Some(0),
        interfaces: vec![interface("ens3f0"), interface("ens3f1")],
    }
}

fn interface(name: &str) -> Interface {
    Interface {
        name: name.to_owned(),
        driver: "ice".to_owned(),
        queues: 4,
        max_queues: 8,
        tuning: Tuning {
            rx_ring: Some((2_048, 8_160)),
            udp4_hash: Some(0xf0),
            udp6_hash: Some(0xf0),
            lro: Some(false),
            tx_checksum: Some(true),
            rx_vlan: Some(true),
        },
        rp_filter: Some(2),
        interrupts: Interrupts {
            names: format!("{name}-"),
            affinities: ["0", "1", "2", "3"].map(str::to_owned).to_vec(),
        },
        defer_hard_irqs: Some(0),
        gro_flush_timeout: Some(0),
        is_polled: false,
        foreign_program: None,
        node: Some(0),
        is_served: true,
        vlans: Vec::new(),
    }
}

/// What is wrong: the names of the checks.
fn wrong(facts: &Facts) -> Vec<&'static str> {
    let findings = all(facts).into_iter().filter(Finding::is_wrong);
    findings.map(|finding| finding.what).collect()
}

#[test]
fn nothing_is_wrong_with_a_sound_machine() {
    assert_eq!(wrong(&sound()), Vec::<&str>::new());
    // A machine that says nothing is not called wrong for what it does not say.
    let silent = Facts {
        kernel: "6.18".to_owned(),
        has_btf: true,
        has_bpffs: true,
        ..Facts::default()
    };
    assert_eq!(wrong(&silent), Vec::<&str>::new());
}

/// A check, and what makes it find something.
type Planted<T> = (&'static str, fn(&mut T));

#[test]
fn a_wrong_value_of_the_machine_is_found() {
    let planted: [Planted<Facts>; 12] = [
        ("kernel", |facts| {
            facts.kernel = "5.4.0-42-generic".to_owned()
        }),
        ("BTF", |facts| facts.has_btf = false),
        ("bpffs", |facts| facts.has_bpffs = false),
        ("BPF compiler", |facts| facts.jit = Some(0)),
        ("memlock", |facts| facts.memlock = Some(8 << 20)),
        // Enough for the four queues of one interface, and there are two.
        ("memlock", |facts| facts.memlock = Some(128 << 20)),
        ("CPU governor", |facts| {
            facts.governors[3] = "powersave".to_owned()
        }),
        ("transparent huge pages", |facts| {
            facts.transparent_huge_pages = Some("never".to_owned());
        }),
        ("huge pages", |facts| {
            facts.huge_pages = Pages {
                all: 200,
                free: 103,
            }
        }),
        ("ARP", |facts| facts.arp_announce = Some(0)),
        ("busy polling of all sockets", |facts| {
            facts.busy_poll = Some(50)
        }),
        ("busy polling of all sockets", |facts| {
            facts.busy_read = Some(50)
        }),
    ];
    for (what, plant) in planted {
        let mut facts = sound();
        plant(&mut facts);
        assert_eq!(wrong(&facts), [what]);
    }
}

#[test]
fn a_wrong_value_of_an_interface_is_found() {
    let planted: [Planted<Interface>; 15] = [
        ("queues", |interface| interface.queues = 2),
        ("queues", |interface| interface.queues = 8),
        ("receive ring", |interface| {
            interface.tuning.rx_ring = Some((512, 8_160))
        }),
        ("RSS of UDP over IPv4", |interface| {
            interface.tuning.udp4_hash = Some(0x30)
        }),
        ("RSS of UDP over IPv6", |interface| {
            interface.tuning.udp6_hash = Some(0x30)
        }),
        ("LRO", |interface| interface.tuning.lro = Some(true)),
        ("checksums by the card", |interface| {
            interface.tuning.tx_checksum = Some(false)
        }),
        ("VLAN tags taken off by the card", |interface| {
            interface.vlans = vec!["ens3f1.7".to_owned()]
        }),
        ("interrupts", |interface| {
            interface.interrupts.affinities[3] = "2".to_owned()
        }),
        ("interrupts held back", |interface| {
            interface.defer_hard_irqs = Some(2)
        }),
        ("NUMA node", |interface| interface.node = Some(1)),
        ("interrupts held back", |interface| {
            interface.is_polled = true
        }),
        ("interrupts held back", |interface| {
            interface.gro_flush_timeout = Some(200_000)
        }),
        ("rp_filter", |interface| interface.rp_filter = Some(1)),
        ("other XDP programs", |interface| {
            interface.foreign_program = Some(program("filter", &[]))
        }),
    ];
    for (what, plant) in planted {
        let mut facts = sound();
        plant(&mut facts.interfaces[1]);
        assert_eq!(wrong(&facts), [what]);
        let finding = all(&facts).into_iter().find(Finding::is_wrong).unwrap();
        let text = finding.to_string();
        assert!(
            text.starts_with(&format!("WRONG  ens3f1: {what}: ")),
            "{text}"
        );
        assert!(text.contains("\n       right would be: "), "{text}");
        assert_eq!(text.lines().count(), 3, "{text}");
    }
}

#[test]
fn what_the_running_instance_has_is_not_wrong() {
    let mut facts = sound();
    facts.huge_pages = Pages { all: 64, free: 0 };
    facts.has_frames_in_huge_pages = true;
    for interface in &mut facts.interfaces {
        interface.is_polled = true;
        (interface.defer_hard_irqs, interface.gro_flush_timeout) = (Some(2), Some(200_000));
    }
    assert_eq!(wrong(&facts), Vec::<&str>::new());
    // Of one node nothing is far.
    facts.nodes.truncate(1);
    facts.interfaces[0].interrupts.affinities = vec!["9".to_owned(); 4];
    assert!(!wrong(&facts).contains(&"NUMA node"));
}

/// The command is the one for the interface that is served, not for the VLAN's.
#[test]
fn tags_that_the_card_takes_off_are_wrong_where_vlans_are_served_through_it() {
    let mut facts = sound();
    facts.interfaces.truncate(1);
    facts.interfaces[0].vlans = ["bond0.7", "ens3f0.8"].map(str::to_owned).to_vec();
    let finding = all(&facts).into_iter().find(Finding::is_wrong).unwrap();
    let text = finding.to_string();
    assert!(
        text.contains("card: on, with bond0.7, ens3f0.8 above it\n"),
        "{text}"
    );
    assert!(text.ends_with(" ethtool -K ens3f0 rxvlan off\n"), "{text}");
    let right: [fn(&mut Interface); 4] = [
        |interface| interface.tuning.rx_vlan = Some(false),
        |interface| interface.tuning.rx_vlan = None,
        |interface| interface.is_served = false,
        |interface| {
            interface.driver = "veth".to_owned();
            interface.tuning.tx_checksum = Some(false);
        },
    ];
    for make_right in right {
        let mut facts = facts.clone();
        make_right(&mut facts.interfaces[0]);
        assert_eq!(wrong(&facts), Vec::<&str>::new());
    }
}

fn write(root: &Path, path: &str, text: &str) {
    let file = root.join(path);
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(file, text).unwrap();
}

/// Of a machine, by path.
const FILES: &[(&str, &str)] = &[
    ("proc/sys/kernel/osrelease", "6.1.0-18-amd64\n"),
    ("sys/kernel/btf/vmlinux", ""),
    (
        "proc/mounts",
        "proc /proc proc rw 0 0\nbpf /sys/fs/bpf bpf rw 0 0\n",
    ),
    ("proc/sys/net/core/bpf_jit_enable", "1\n"),
    (
        "proc/self/limits",
        "Limit  Soft  Hard  Units\nMax locked memory         65536  65536  bytes\n",
    ),
    ("proc/4242/comm", "millrace\n"),
    (
        "proc/4242/limits",
        "Max locked memory         unlimited  unlimited  bytes\n",
    ),
    (
        "proc/cpuinfo",
        "processor\t: 0\nmodel\t: x\n\nprocessor\t: 1\n",
    ),
    (
        "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor",
        "powersave\n",
    ),
    (
        "sys/kernel/mm/transparent_hugepage/enabled",
        "always [madvise] never\n",
    ),
    (
        "proc/meminfo",
        "MemTotal: 1 kB\nHugePages_Total:      64\nHugePages_Free:       60\n",
    ),
    ("sys/devices/system/node/node0/cpulist", "0-1\n"),
    ("sys/devices/system/node/node1/cpulist", "2-3\n"),
    ("proc/sys/net/ipv4/conf/all/arp_ignore", "1\n"),
    ("proc/sys/net/ipv4/conf/all/rp_filter", "0\n"),
    ("proc/sys/net/ipv4/conf/ens3f0/rp_filter", "1\n"),
    (
        "proc/interrupts",
        " 24:  1 2  PCI-MSI ens3f0-TxRx-0\n 25:  1 2  PCI-MSI ens3f0-TxRx-1\n 26: 1 2 PCI-MSI ens3f01-TxRx-0\n \
         27:  1 2  PCI-MSI i40e-ens4-TxRx-0\n 28:  1 2  PCI-MSI i40e-ens4-TxRx-1\n 29:  1 2  PCI-MSI i40e-ens41-TxRx-0\n",
    ),
    ("proc/irq/27/effective_affinity_list", "0\n"),
    ("proc/irq/28/effective_affinity_list", "3\n"),
    ("proc/irq/29/effective_affinity_list", "2\n"),
    ("proc/irq/24/smp_affinity_list", "0-1\n"),
    ("proc/irq/24/effective_affinity_list", "1\n"),
    ("proc/irq/25/smp_affinity_list", "0-1\n"),
    ("sys/class/net/ens3f0/device/numa_node", "1\n"),
    ("sys/class/net/ens3f0/napi_defer_hard_irqs", "2\n"),
    ("sys/class/net/ens3f0/gro_flush_timeout", "200000\n"),
    ("proc/sys/net/core/busy_poll", "50\n"),
    // A VLAN on the interface, one on the bond that it is a member of, and what is none.
    ("sys/class/net/ens3f0/upper_ens3f0.7", ""),
    ("sys/class/net/ens3f0/upper_bond0", ""),
    ("sys/class/net/ens3f0/upper_macvlan0", ""),
    ("sys/class/net/ens3f0/lower_ens3f0.9", ""),
    (
        "sys/class/net/ens3f0.7/uevent",
        "DEVTYPE=vlan\nINTERFACE=ens3f0.7\nIFINDEX=9\n",
    ),
    (
        "sys/class/net/ens3f0.9/uevent",
        "DEVTYPE=vlan\nINTERFACE=ens3f0.9\nIFINDEX=8\n",
    ),
    (
        "sys/class/net/macvlan0/uevent",
        "DEVTYPE=macvlan\nINTERFACE=macvlan0\n",
    ),
    (
        "sys/class/net/bond0/uevent",
        "DEVTYPE=bond\nINTERFACE=bond0\n",
    ),
    ("sys/class/net/bond0/upper_bond0.8", ""),
    (
        "sys/class/net/bond0.8/uevent",
        "DEVTYPE=vlan\nINTERFACE=bond0.8\n",
    ),
];

#[test]
fn facts_are_read_from_files() {
    let folder = TempDir::new().unwrap();
    let root = folder.path();
    for (path, text) in FILES {
        write(root, path, text);
    }
    let facts = Facts::of_machine(&Root(root));
    let expected = Facts {
        kernel: "6.1.0-18-amd64".to_owned(),
        has_btf: true,
        has_bpffs: true,
        jit: Some(1),
        memlock: Some(u64::MAX),
        processors: 2,
        governors: vec!["powersave".to_owned()],
        transparent_huge_pages: Some("madvise".to_owned()),
        huge_pages: Pages { all: 64, free: 60 },
        nodes: vec!["0-1".to_owned(), "2-3".to_owned()],
        arp_ignore: Some(1),
        busy_poll: Some(50),
        ..Facts::default()
    };
    assert_eq!(facts, expected);
    let interface = Root(root).interface("ens3f0", &[]);
    assert_eq!(interface.rp_filter, Some(1), "the stricter one");
    assert_eq!(interface.interrupts.affinities, ["1", "0-1"]);
    assert_eq!(interface.interrupts.names, "ens3f0-");
    let of_its_driver = Root(root).interface("ens4", &[]);
    assert_eq!(of_its_driver.interrupts.affinities, ["0", "3"]);
    assert_eq!(interface.node, Some(1));
    assert_eq!(interface.defer_hard_irqs, Some(2));
    assert_eq!(interface.gro_flush_timeout, Some(200_000));
    assert_eq!(interface.vlans, ["bond0.8", "ens3f0.7"]);
    assert!(interface.is_served, "no instance says otherwise");
    let bond = Root(root).interface("bond0", &[]);
    assert!(bond.vlans.is_empty(), "its members receive: {bond:?}");
    fs::remove_file(root.join("proc/4242/comm")).unwrap();
    assert_eq!(Facts::of_machine(&Root(root)).memlock, Some(65_536));
}

/// Interrupts that are not called after the interface: as virtio_net, mlx5 and gve call theirs.
const OF_DEVICES: &str = " 37: 0 0 PCI-MSIX-0000:00:03.0 0-edge virtio2-config\n \
    38: 0 0 PCI-MSIX-0000:00:03.0 1-edge virtio2-input.0\n 39: 0 0 PCI-MSIX-0000:00:03.0 2-edge virtio2-output.0\n \
    40: 0 0 PCI-MSIX-0000:00:03.0 3-edge virtio2-input.1\n 41: 0 0 PCI-MSIX-0000:00:04.0 1-edge virtio22-input.0\n \
    50: 0 0 PCI-MSIX-0000:03:00.0 0-edge mlx5_async0@pci:0000:03:00.0\n \
    51: 0 0 PCI-MSIX-0000:03:00.0 1-edge mlx5_comp0@pci:0000:03:00.0\n \
    52: 0 0 PCI-MSIX-0000:03:00.0 2-edge mlx5_comp1@pci:0000:03:00.0\n \
    60: 0 0 PCI-MSIX-0000:00:05.0 0-edge gve-ntfy-blk0@pci:0000:00:05.0\n \
    61: 0 0 PCI-MSIX-0000:00:05.0 1-edge gve-mgmnt@pci:0000:00:05.0\n";

#[test]
fn interrupts_are_found_by_the_device_too() {
    let folder = TempDir::new().unwrap();
    let root = folder.path();
    write(root, "proc/interrupts", OF_DEVICES);
    for number in [37, 38, 39, 40, 41, 50, 51, 52, 60, 61] {
        let file = format!("proc/irq/{number}/effective_affinity_list");
        write(root, &file, &format!("{number}\n"));
    }
    for (name, device, names, expected) in [
        ("eth0", "virtio2", "virtio2-input.", &["38", "40"][..]),
        ("ens3", "0000:03:00.0", "@pci:0000:03:00.0", &["51", "52"]),
        ("ens5", "0000:00:05.0", "@pci:0000:00:05.0", &["60"]),
    ] {
        let interface = root.join("sys/class/net").join(name);
        fs::create_dir_all(&interface).unwrap();
        let link = Path::new("../../../devices").join(device);
        std::os::unix::fs::symlink(link, interface.join("device")).unwrap();
        let found = Root(root).interface(name, &[]).interrupts;
        assert_eq!(found.affinities, expected, "{name}");
        assert_eq!(found.names, names);
    }
    let none = Root(root).interface("veth0", &[]).interrupts;
    assert_eq!(none, Interrupts::default());
}

#[test]
fn bpffs_counts_only_where_pins_are_looked_for() {
    for (mounts, expected) in [
        (
            "sysfs /sys sysfs rw 0 0\nbpf /sys/fs/bpf bpf rw 0 0\n/dev/vda1 / ext4 rw 0 0\n",
            true,
        ),
        ("bpf /run/elsewhere bpf rw 0 0\n", false),
        // As `ip netns exec NAME` leaves it.
        (
            "bpf /sys/fs/bpf bpf rw 0 0\nNAME /sys sysfs rw 0 0\n",
            false,
        ),
    ] {
        let folder = TempDir::new().unwrap();
        write(folder.path(), "proc/mounts", mounts);
        let facts = Facts::of_machine(&Root(folder.path()));
        assert_eq!(facts.has_bpffs, expected, "{mounts}");
    }
}

/// On whatever machine this runs.
#[test]
fn this_machine_can_be_looked_at() {
    let facts = Facts::gather(
        Path::new("/"),
        &["lo".to_owned()],
        Path::new("/nonexistent"),
    );
    assert!(
        facts.processors >= 1 && !facts.kernel.is_empty(),
        "{facts:?}"
    );
    assert_eq!(all(&facts).len(), 22);
}

fn program(name: &str, pins: &[&str]) -> Found {
    Found {
        id: 7,
        native: true,
        name: Some(name.to_owned()),
        tag: Some("00f1e2d3c4b5a697".to_owned()),
        maps: Vec::new(),
        pins: pins.iter().map(PathBuf::from).collect(),
    }
}

/// What is printed of an interface that has this program.
fn said_of(program: Found) -> String {
    let interface = Interface {
        foreign_program: Some(program),
        ..interface("ens3f0")
    };
    let facts = Facts {
        interfaces: vec![interface],
        ..sound()
    };
    let mut findings = all(&facts).into_iter();
    let finding = findings.find(|finding| finding.what == "other XDP programs");
    finding.expect("it is looked for").to_string()
}

/// Whoever does what is advised must not end somebody's firewall without having been told of it.
#[test]
fn a_program_is_said_to_be_whose_it_is_and_nobody_is_told_to_take_off_a_strangers() {
    let strangers = said_of(program("filter", &["/sys/fs/bpf/firewall"]));
    let expected = "WRONG  ens3f0: other XDP programs: filter, id 7, in native mode, tag 00f1e2d3c4b5a697, pinned at \
        /sys/fs/bpf/firewall: somebody else's, perhaps a firewall\n";
    assert!(strangers.starts_with(expected), "{strangers}");
    let advice = strangers.lines().nth(2).unwrap_or_default().trim();
    assert!(advice.starts_with("bpftool prog show id 7;"), "{advice}");
    assert!(
        advice.ends_with("once nobody needs it: ip link set dev ens3f0 xdp off"),
        "{advice}"
    );
    let kept = said_of(program("steer", &["/sys/fs/bpf/millrace/ens3f0/link"]));
    assert!(
        kept.starts_with("ok ") && kept.contains("kept for the next start"),
        "{kept}"
    );
    let dnsdists = said_of(Found {
        maps: vec!["xsk_map".to_owned(), "xskDestinations".to_owned()],
        ..program("xdp_dns_filter", &[])
    });
    assert!(
        dnsdists.contains("not pinned: dnsdist's") && dnsdists.contains("newXsk"),
        "{dnsdists}"
    );
    let dispatcher = said_of(program("xdp_dispatcher", &[]));
    assert!(dispatcher.contains("xdp-loader status ens3f0") && !dispatcher.contains("xdp off"));
    let another = said_of(program("steer", &[]));
    assert!(another.contains("another running millrace's") && !another.contains("xdp off"));
}
