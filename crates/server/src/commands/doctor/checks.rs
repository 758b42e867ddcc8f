//! What is right. Each check is one function of the facts.

use super::facts::{Facts, Interface};
use std::collections::BTreeSet;
use xsk::{CHUNK, Found, Owned, RingSizes};

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Finding {
    pub(super) what: &'static str,
    /// `None`: of the machine.
    pub(super) interface: Option<String>,
    pub(super) value: String,
    pub(super) judgement: Judgement,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Judgement {
    Good,
    /// The machine does not say.
    Unknown,
    Wrong {
        right: String,
        command: String,
    },
}

impl Finding {
    pub(super) fn is_wrong(&self) -> bool {
        matches!(self.judgement, Judgement::Wrong { .. })
    }
}

/// The oldest kernel on which the program loads.
const KERNEL_MIN: (u32, u32) = (5, 10);

/// Newer features, each with the kernel that has it.
const FEATURES: [((u32, u32), &str); 4] = [
    ((5, 18), "programs for frames of several buffers"),
    ((6, 6), "large frames over AF_XDP"),
    ((6, 8), "checksums by the card"),
    ((6, 17), "more than 32 frames a wake-up in copy mode"),
];

/// RXH_L4_B_0_1 and RXH_L4_B_2_3 of <linux/ethtool.h>: source and destination port are hashed.
const PORTS_HASHED: u64 = 1 << 6 | 1 << 7;

/// Slots of a receive ring that a burst of a millisecond at a million frames a second needs.
const RX_RING_MIN: u32 = 1_024;

/// All findings: of the machine, then of each interface.
pub(super) fn all(facts: &Facts) -> Vec<Finding> {
    const MACHINE: [fn(&Facts) -> Finding; 10] = [
        kernel,
        btf,
        bpffs,
        jit,
        memlock,
        governor,
        transparent_huge_pages,
        huge_pages,
        arp,
        socket_polling,
    ];
    let mut findings: Vec<Finding> = MACHINE.iter().map(|check| check(facts)).collect();
    for interface in &facts.interfaces {
        const OF_INTERFACE: [fn(&Interface, &Facts) -> Finding; 12] = [
            channels,
            rx_ring,
            rss_udp4,
            rss_udp6,
            lro,
            tx_checksum,
            vlan_tags,
            interrupts,
            node,
            deferred_interrupts,
            reverse_path,
            other_program,
        ];
        findings.extend(OF_INTERFACE.iter().map(|check| check(interface, facts)));
    }
    findings
}

fn finding(what: &'static str, value: impl Into<String>, judgement: Judgement) -> Finding {
    Finding {
        what,
        interface: None,
        value: value.into(),
        judgement,
    }
}

fn of(
    interface: &Interface,
    what: &'static str,
    value: impl Into<String>,
    judgement: Judgement,
) -> Finding {
    Finding {
        interface: Some(interface.name.clone()),
        ..finding(what, value, judgement)
    }
}

/// Good, or what would be right and the command for it.
fn good_or(is_good: bool, right: impl Into<String>, command: impl Into<String>) -> Judgement {
    match is_good {
        true => Judgement::Good,
        false => Judgement::Wrong {
            right: right.into(),
            command: command.into(),
        },
    }
}

// ---------------------------------------------------------------------------------------------------- the machine

fn kernel(facts: &Facts) -> Finding {
    let mut numbers = facts.kernel.split(['.', '-']);
    let mut next = || numbers.next().and_then(|number| number.parse::<u32>().ok());
    let (Some(major), Some(minor)) = (next(), next()) else {
        return finding("kernel", "its version is not told", Judgement::Unknown);
    };
    let missing = FEATURES.iter().filter(|(since, _)| (major, minor) < *since);
    let missing: Vec<&str> = missing.map(|(_, feature)| *feature).collect();
    let value = match missing.is_empty() {
        true => facts.kernel.clone(),
        false => format!("{}, which is without: {}", facts.kernel, missing.join("; ")),
    };
    let (least, last) = KERNEL_MIN;
    let is_good = (major, minor) >= KERNEL_MIN;
    finding(
        "kernel",
        value,
        good_or(
            is_good,
            format!("{least}.{last} or newer"),
            "apt install linux-image-amd64",
        ),
    )
}

fn btf(facts: &Facts) -> Finding {
    let value = if facts.has_btf { "there" } else { "not there" };
    let judgement = good_or(
        facts.has_btf,
        "/sys/kernel/btf/vmlinux: a kernel with CONFIG_DEBUG_INFO_BTF",
        "apt install linux-image-amd64",
    );
    finding("BTF", value, judgement)
}

fn bpffs(facts: &Facts) -> Finding {
    let value = if facts.has_bpffs {
        "mounted"
    } else {
        "not mounted"
    };
    let right = "mounted: programs that are kept over a restart are pinned there";
    finding(
        "bpffs",
        value,
        good_or(facts.has_bpffs, right, "mount -t bpf bpf /sys/fs/bpf"),
    )
}

fn jit(facts: &Facts) -> Finding {
    match facts.jit {
        None => finding("BPF compiler", "always on, or not told", Judgement::Unknown),
        Some(value) => finding(
            "BPF compiler",
            format!("net.core.bpf_jit_enable is {value}"),
            good_or(
                value > 0,
                "1: programs run interpreted without",
                "sysctl -w net.core.bpf_jit_enable=1",
            ),
        ),
    }
}

/// Frames of all queues are locked in memory.
fn memlock(facts: &Facts) -> Finding {
    let needed = all_queues(facts) * frames_of_a_queue();
    match facts.memlock {
        None => finding("memlock", "not told", Judgement::Unknown),
        Some(u64::MAX) => finding("memlock", "unlimited", Judgement::Good),
        Some(limit) => finding(
            "memlock",
            format!("{limit} bytes may be locked"),
            good_or(
                limit >= needed,
                format!("unlimited, or {needed} bytes and more for these queues"),
                "systemctl edit millrace   # [Service] LimitMEMLOCK=infinity",
            ),
        ),
    }
}

fn governor(facts: &Facts) -> Finding {
    if facts.governors.is_empty() {
        return finding(
            "CPU governor",
            "none: the hypervisor's or firmware's choice",
            Judgement::Unknown,
        );
    }
    let others = facts
        .governors
        .iter()
        .filter(|governor| *governor != "performance");
    let others: Vec<&str> = others.map(String::as_str).collect();
    let value = match others.first() {
        None => "performance".to_owned(),
        Some(other) => format!(
            "{other} on {} of {} processors",
            others.len(),
            facts.governors.len()
        ),
    };
    let judgement = good_or(
        others.is_empty(),
        "performance",
        "cpupower frequency-set -g performance",
    );
    finding("CPU governor", value, judgement)
}

fn transparent_huge_pages(facts: &Facts) -> Finding {
    const WHAT: &str = "transparent huge pages";
    match facts.transparent_huge_pages.as_deref() {
        None => finding(WHAT, "not told", Judgement::Unknown),
        Some(word) => finding(
            WHAT,
            word,
            good_or(
                word != "never",
                "madvise: frames lie in huge pages then",
                "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled",
            ),
        ),
    }
}

/// Reserved ones are taken where enough are free when a queue is opened; a few that are left over serve nobody.
fn huge_pages(facts: &Facts) -> Finding {
    let (all, free) = (facts.huge_pages.all, facts.huge_pages.free);
    let queues = all_queues(facts);
    let needed = queues * frames_of_a_queue().div_ceil(HUGE_PAGE);
    let (ours, is_good) = match facts.has_frames_in_huge_pages {
        true => ("; frames of the running instance lie in some", true),
        false => ("", all == 0 || free >= needed),
    };
    let right = format!(
        "{needed} free, which the frames of {queues} queues take, or none reserved: too few are of no use"
    );
    let command = format!(
        "sysctl -w vm.nr_hugepages={}   # or 0",
        all + needed.saturating_sub(free)
    );
    finding(
        "huge pages",
        format!("{free} of {all} free{ours}"),
        good_or(is_good, right, command),
    )
}

/// Of all interfaces together: each queue has frames of its own.
fn all_queues(facts: &Facts) -> u64 {
    let queues = facts.interfaces.iter().map(|interface| interface.queues);
    u64::from(queues.sum::<u32>().max(1))
}

/// In bytes.
fn frames_of_a_queue() -> u64 {
    u64::from(RingSizes::default().frames()) * CHUNK as u64
}

/// Octets of a reserved page that is used.
const HUGE_PAGE: u64 = 2 << 20;

/// An anycast address on `lo`: no other interface may answer ARP for it, or offer it as its own.
fn arp(facts: &Facts) -> Finding {
    if !facts.has_anycast {
        return finding("ARP", "no anycast address on lo", Judgement::Good);
    }
    let (Some(ignore), Some(announce)) = (facts.arp_ignore, facts.arp_announce) else {
        return finding("ARP", "not told", Judgement::Unknown);
    };
    let value = format!("anycast address on lo, arp_ignore {ignore}, arp_announce {announce}");
    let command = "sysctl -w net.ipv4.conf.all.arp_ignore=1 net.ipv4.conf.all.arp_announce=2";
    let right = "arp_ignore 1 and arp_announce 2: else this host claims the address on every link";
    finding(
        "ARP",
        value,
        good_or(ignore >= 1 && announce >= 2, right, command),
    )
}

/// net.core.busy_poll and busy_read have every program's poll() and read() spin, whatever it waits for.
fn socket_polling(facts: &Facts) -> Finding {
    const WHAT: &str = "busy polling of all sockets";
    let (Some(poll), Some(read)) = (facts.busy_poll, facts.busy_read) else {
        return finding(WHAT, "not told", Judgement::Unknown);
    };
    let value = format!("net.core.busy_poll {poll} µs, busy_read {read} µs");
    let right = "0: a worker that waits for queries would burn its processor";
    let command = "sysctl -w net.core.busy_poll=0 net.core.busy_read=0";
    finding(WHAT, value, good_or(poll == 0 && read == 0, right, command))
}

// ---------------------------------------------------------------------------------------------------- interfaces

/// One worker per queue: as many as there are processors, or as the card has.
fn channels(interface: &Interface, facts: &Facts) -> Finding {
    let Interface {
        name,
        queues,
        max_queues,
        ..
    } = interface;
    if *queues == 0 || facts.processors == 0 {
        return of(interface, "queues", "not told", Judgement::Unknown);
    }
    let right = (*max_queues).min(facts.processors as u32);
    let value = format!(
        "{queues} of {max_queues}, with {} processors",
        facts.processors
    );
    let command = match interface.driver.as_str() {
        "veth" => format!("ethtool -L {name} rx {right} tx {right}"),
        _ => format!("ethtool -L {name} combined {right}"),
    };
    let text = format!("{right}: one worker serves each queue index, and wants a processor");
    of(
        interface,
        "queues",
        value,
        good_or(*queues == right, text, command),
    )
}

fn rx_ring(interface: &Interface, _: &Facts) -> Finding {
    let Some((now, most)) = interface.tuning.rx_ring else {
        return of(interface, "receive ring", "not told", Judgement::Unknown);
    };
    let right = RX_RING_MIN.min(most);
    let command = format!("ethtool -G {} rx {right}", interface.name);
    let text = format!("{right} and more: a burst is lost where the ring is full");
    of(
        interface,
        "receive ring",
        format!("{now} slots of {most}"),
        good_or(now >= right, text, command),
    )
}

fn rss_udp4(interface: &Interface, _: &Facts) -> Finding {
    rss(
        interface,
        "RSS of UDP over IPv4",
        "udp4",
        interface.tuning.udp4_hash,
    )
}

fn rss_udp6(interface: &Interface, _: &Facts) -> Finding {
    rss(
        interface,
        "RSS of UDP over IPv6",
        "udp6",
        interface.tuning.udp6_hash,
    )
}

/// A few resolvers send most queries: by addresses alone they all come to a few queues.
fn rss(interface: &Interface, what: &'static str, flow: &str, hash: Option<u64>) -> Finding {
    let Some(hash) = hash.filter(|_| interface.queues > 1) else {
        let value = if interface.queues == 1 {
            "one queue"
        } else {
            "not told"
        };
        return of(interface, what, value, Judgement::Unknown);
    };
    let is_good = hash & PORTS_HASHED == PORTS_HASHED;
    let value = if is_good {
        "addresses and ports"
    } else {
        "without ports"
    };
    let command = format!("ethtool -N {} rx-flow-hash {flow} sdfn", interface.name);
    of(
        interface,
        what,
        value,
        good_or(is_good, "addresses and ports (sdfn)", command),
    )
}

fn lro(interface: &Interface, _: &Facts) -> Finding {
    let command = format!("ethtool -K {} lro off", interface.name);
    let right = "off: drivers attach no XDP program while it is on";
    switch(
        interface,
        "LRO",
        interface.tuning.lro,
        false,
        (right, &command),
    )
}

/// Without it our own host's answers by kernel sockets cost a sum each; where a veth has it, sums stay partial.
fn tx_checksum(interface: &Interface, _: &Facts) -> Finding {
    let wanted = interface.driver != "veth";
    let word = if wanted { "on" } else { "off" };
    let right = match wanted {
        true => "on: the processor computes the sums of TCP otherwise",
        false => "off: what leaves here reaches the other end with half a checksum otherwise",
    };
    let command = format!("ethtool -K {} tx {word}", interface.name);
    switch(
        interface,
        "checksums by the card",
        interface.tuning.tx_checksum,
        wanted,
        (right, &command),
    )
}

/// The program leaves frames with a tag to the kernel. Where the card takes the tag off first, queries to a VLAN look like
/// queries without one, and their answers leave without a tag.
fn vlan_tags(interface: &Interface, _: &Facts) -> Finding {
    const WHAT: &str = "VLAN tags taken off by the card";
    let Interface { name, vlans, .. } = interface;
    if vlans.is_empty() || !interface.is_served {
        let value = match vlans.is_empty() {
            true => "no VLAN interface above it",
            false => "not served over AF_XDP",
        };
        return of(interface, WHAT, value, Judgement::Good);
    }
    let above = vlans.join(", ");
    // There the tag lies beside the frame when it is sent, and what this end has set changes nothing.
    if interface.driver == "veth" {
        let value = format!(
            "{above} above it: its other end decides (there: ethtool -K INTERFACE txvlan off)"
        );
        return of(interface, WHAT, value, Judgement::Unknown);
    }
    let Some(is_on) = interface.tuning.rx_vlan else {
        let value = format!("{above} above it, and the driver does not tell");
        return of(interface, WHAT, value, Judgement::Unknown);
    };
    let word = if is_on { "on" } else { "off" };
    let right = "off: else the program takes queries of these VLANs for untagged ones, and their answers leave without a tag";
    let command = format!("ethtool -K {name} rxvlan off");
    let value = format!("{word}, with {above} above it");
    of(interface, WHAT, value, good_or(!is_on, right, command))
}

fn switch(
    interface: &Interface,
    what: &'static str,
    is_on: Option<bool>,
    wanted: bool,
    (right, command): (&str, &str),
) -> Finding {
    match is_on {
        None => of(interface, what, "not told", Judgement::Unknown),
        Some(on) => {
            let value = if on { "on" } else { "off" };
            of(
                interface,
                what,
                value,
                good_or(on == wanted, right, command),
            )
        }
    }
}

/// Two queues whose interrupts one processor handles share it.
fn interrupts(interface: &Interface, facts: &Facts) -> Finding {
    const WHAT: &str = "interrupts";
    let lists = &interface.interrupts.affinities;
    if lists.len() < 2 || facts.processors < 2 {
        return of(
            interface,
            WHAT,
            "fewer than two, or not told",
            Judgement::Unknown,
        );
    }
    let is_single = |list: &&String| list.parse::<u32>().is_ok();
    let mut single: Vec<&String> = lists.iter().filter(is_single).collect();
    let number = single.len();
    single.sort();
    single.dedup();
    let value = format!("{} on processors {}", lists.len(), lists.join(" "));
    // As many as there are processors cannot have one each.
    let wanted = number.min(facts.processors);
    let right = "one processor for each queue's interrupt";
    let command = format!(
        "systemctl stop irqbalance; grep {} /proc/interrupts   # then: echo PROCESSOR > /proc/irq/NUMBER/smp_affinity_list",
        interface.interrupts.names
    );
    of(
        interface,
        WHAT,
        value,
        good_or(single.len() >= wanted, right, command),
    )
}

/// What one processor handles of a card on another node goes over the link between the two, frame by frame.
fn node(interface: &Interface, facts: &Facts) -> Finding {
    const WHAT: &str = "NUMA node";
    let node = interface.node.and_then(|node| usize::try_from(node).ok());
    let Some((node, own)) = node.and_then(|node| Some((node, facts.nodes.get(node)?))) else {
        return of(interface, WHAT, "not told", Judgement::Unknown);
    };
    if facts.nodes.len() < 2 {
        return of(interface, WHAT, "there is but one", Judgement::Good);
    }
    let own_processors = processors(own);
    let lists = interface.interrupts.affinities.iter();
    let strangers = lists.filter(|list| !processors(list).is_subset(&own_processors));
    let strangers: Vec<&str> = strangers.map(String::as_str).collect();
    let value = match strangers.is_empty() {
        true => format!("card and interrupts on node {node}"),
        false => format!(
            "card on node {node}, interrupts on processors {} of another",
            strangers.join(" ")
        ),
    };
    let right = format!(
        "interrupts and workers on processors {own}, which the card is wired to: addLocal(…, {{xdp=true, cpus={{…}}}}) pins workers"
    );
    let command = format!(
        "grep {} /proc/interrupts   # then: echo PROCESSOR > /proc/irq/NUMBER/smp_affinity_list",
        interface.interrupts.names
    );
    of(
        interface,
        WHAT,
        value,
        good_or(strangers.is_empty(), right, command),
    )
}

/// `0-3,8`
fn processors(list: &str) -> BTreeSet<u32> {
    let ranges = list.split(',').filter_map(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        Some(first.trim().parse().ok()?..=last.trim().parse().ok()?)
    });
    ranges.flatten().collect()
}

/// With either of them interrupts are held back for somebody who polls: right while millrace does (millrace.setBusyPoll), and
/// else frames wait.
fn deferred_interrupts(interface: &Interface, _: &Facts) -> Finding {
    const WHAT: &str = "interrupts held back";
    let (Some(times), Some(nanoseconds)) = (interface.defer_hard_irqs, interface.gro_flush_timeout)
    else {
        return of(interface, WHAT, "not told", Judgement::Unknown);
    };
    let folder = format!("/sys/class/net/{}", interface.name);
    let set = |times, nanoseconds| {
        format!(
            "echo {times} > {folder}/napi_defer_hard_irqs; echo {nanoseconds} > {folder}/gro_flush_timeout"
        )
    };
    let value = format!("napi_defer_hard_irqs {times}, gro_flush_timeout {nanoseconds} ns");
    let judgement = match interface.is_polled {
        true => good_or(
            times > 0 && nanoseconds > 0,
            "both more than 0 while millrace polls its queues: else an interrupt comes with every frame",
            set(2, 200_000),
        ),
        false => good_or(
            times == 0 && nanoseconds == 0,
            "both 0: nobody polls its queues, and a query waits for the time-out instead",
            set(0, 0),
        ),
    };
    of(interface, WHAT, value, judgement)
}

/// Strict reverse-path filtering drops what the program passes when its way back leaves by another interface.
fn reverse_path(interface: &Interface, facts: &Facts) -> Finding {
    const WHAT: &str = "rp_filter";
    let Some(value) = interface.rp_filter else {
        return of(interface, WHAT, "not told", Judgement::Unknown);
    };
    let is_good = value != 1 || facts.interfaces.len() < 2;
    let right = "0 or 2: with several interfaces strict filtering drops queries whose route back is another";
    let command = format!(
        "sysctl -w net.ipv4.conf.all.rp_filter=2 net.ipv4.conf.{}.rp_filter=2",
        interface.name
    );
    of(
        interface,
        WHAT,
        value.to_string(),
        good_or(is_good, right, command),
    )
}

fn other_program(interface: &Interface, _: &Facts) -> Finding {
    const WHAT: &str = "other XDP programs";
    let Some(found) = &interface.foreign_program else {
        return of(interface, WHAT, "none", Judgement::Good);
    };
    let name = &interface.name;
    let owned = found.owned(name);
    let value = format!("{found}{}: {}", pinned(found), whose(owned));
    let judgement = match owned {
        Owned::Kept => Judgement::Good,
        _ => Judgement::Wrong {
            right: "none: an interface has one program, and millrace replaces nobody's; as it is kernel sockets serve here"
                .to_owned(),
            command: choices(owned, found.id, name),
        },
    };
    of(interface, WHAT, value, judgement)
}

fn pinned(found: &Found) -> String {
    let pins = found.pins.iter();
    let pins: Vec<String> = pins.map(|pin| pin.display().to_string()).collect();
    match pins.is_empty() {
        true => ", not pinned".to_owned(),
        false => format!(", pinned at {}", pins.join(" and ")),
    }
}

fn whose(owned: Owned) -> &'static str {
    match owned {
        Owned::Kept => "millrace's own, kept for the next start",
        Owned::Running => "another running millrace's",
        Owned::KeptForDnsdist => "what `millrace xdp load --dnsdist` has attached",
        Owned::Dnsdist => "dnsdist's, by its maps",
        Owned::Dispatcher => "libxdp's, which calls the programs of others",
        Owned::Other => "somebody else's, perhaps a firewall",
    }
}

/// What can be done about a program: that which ends it last, and under which condition.
fn choices(owned: Owned, id: u32, name: &str) -> String {
    let off = format!("ip link set dev {name} xdp off");
    match owned {
        Owned::Kept | Owned::KeptForDnsdist => {
            format!("millrace xdp unload --interface {name}   # once no dnsdist needs it")
        }
        Owned::Running => {
            "pgrep -a millrace   # one of these has it: ask it with --control, or stop it"
                .to_owned()
        }
        Owned::Dnsdist => format!(
            "newXsk with its xskMapPath in the file has millrace serve by its maps; or, once no dnsdist needs it: {off}"
        ),
        Owned::Dispatcher => format!(
            "xdp-loader status {name}   # the programs that it calls; each once nobody needs it: xdp-loader unload {name} --id ID"
        ),
        Owned::Other => format!(
            "bpftool prog show id {id}; bpftool link show   # whose it is, and what for; once nobody needs it: {off}"
        ),
    }
}
