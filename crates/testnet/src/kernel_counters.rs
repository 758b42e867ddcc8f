//! The kernel's own complaints about what it received: /proc/net/snmp and snmp6 of a namespace.

use std::collections::BTreeMap;
use std::fs;

use crate::namespace::Namespace;
use crate::{During, Failure, Outcome};

/// Rows that stay what they are while all frames are sound.
const ERRORS: [&str; 8] = [
    "IpInHdrErrors",
    "IpInTruncatedPkts",
    "UdpInCsumErrors",
    "IcmpInCsumErrors",
    "TcpInCsumErrors",
    "Ip6InHdrErrors",
    "Ip6InTruncatedPkts",
    "Udp6InCsumErrors",
];

/// The rows of `ERRORS` with their values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelCounters {
    rows: BTreeMap<String, u64>,
}

impl KernelCounters {
    /// Reads them inside a namespace.
    pub fn of(namespace: &Namespace) -> Outcome<Self> {
        // /proc/net belongs to the process's first thread; the thread that entered has its own.
        let read = |name: &str| fs::read_to_string(format!("/proc/thread-self/net/{name}"));
        let (v4, v6) = namespace.run(|| (read("snmp"), read("snmp6")))?;
        let mut rows = rows_of_snmp(&v4.during("reading /proc/net/snmp")?);
        rows.extend(rows_of_snmp6(&v6.during("reading /proc/net/snmp6")?));
        rows.retain(|name, _| ERRORS.contains(&name.as_str()));
        Ok(Self { rows })
    }

    /// Fails, naming the rows, if any has grown since `before`.
    pub fn check_unchanged_since(&self, before: &Self) -> Outcome<()> {
        let grown = |(name, value): (&String, &u64)| {
            let old = before.rows.get(name).copied().unwrap_or(0);
            (*value > old).then(|| format!("{name} +{}", value - old))
        };
        let grown: Vec<String> = self.rows.iter().filter_map(grown).collect();
        if grown.is_empty() {
            return Ok(());
        }
        Err(Failure::new(format!(
            "the client's kernel received unsound packets: {}",
            grown.join(", ")
        )))
    }
}

/// Datagrams that a namespace's kernel had no room or no socket for, and frames that its interfaces dropped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelDrops(BTreeMap<String, u64>);

/// Rows that count such datagrams.
const DROPS: [&str; 4] = [
    "UdpNoPorts",
    "UdpRcvbufErrors",
    "UdpMemErrors",
    "UdpSndbufErrors",
];

impl KernelDrops {
    /// Reads them inside a namespace.
    pub fn of(namespace: &Namespace) -> Outcome<Self> {
        let read = |name: &str| fs::read_to_string(format!("/proc/thread-self/net/{name}"));
        let (snmp, dev) = namespace.run(|| (read("snmp"), read("dev")))?;
        let mut rows = rows_of_snmp(&snmp.during("reading /proc/net/snmp")?);
        rows.retain(|name, _| DROPS.contains(&name.as_str()));
        rows.extend(drops_of_dev(&dev.during("reading /proc/net/dev")?));
        Ok(Self(rows))
    }

    /// What has grown since `before`, in words.
    #[must_use]
    pub fn since(&self, before: &Self) -> String {
        let grown = |(name, value): (&String, &u64)| {
            let old = before.0.get(name).copied().unwrap_or(0);
            (*value > old).then(|| format!("{name} +{}", value - old))
        };
        let grown: Vec<String> = self.0.iter().filter_map(grown).collect();
        match grown.is_empty() {
            true => "nothing".to_owned(),
            false => grown.join(", "),
        }
    }
}

/// `dev` has `NAME: bytes packets errs drop … bytes packets errs drop …`: eight columns received, eight sent.
fn drops_of_dev(text: &str) -> BTreeMap<String, u64> {
    let of = |line: &str| {
        let (name, numbers) = line.split_once(':')?;
        let numbers: Vec<u64> = numbers
            .split_whitespace()
            .filter_map(|number| number.parse().ok())
            .collect();
        let (received, sent) = (*numbers.get(3)?, *numbers.get(11)?);
        let name = name.trim();
        Some([
            (format!("{name} received and dropped"), received),
            (format!("{name} dropped unsent"), sent),
        ])
    };
    text.lines().filter_map(of).flatten().collect()
}

/// `snmp` has pairs of lines: `Udp: names…`, `Udp: values…`.
fn rows_of_snmp(text: &str) -> BTreeMap<String, u64> {
    let lines: Vec<&str> = text.lines().collect();
    let pairs = lines.chunks_exact(2).flat_map(|pair| {
        let (prefix, names) = pair[0].split_once(": ").unwrap_or_default();
        let values = pair[1].split_once(": ").unwrap_or_default().1;
        names
            .split(' ')
            .zip(values.split(' '))
            .map(move |(name, value)| (format!("{prefix}{name}"), value))
    });
    pairs
        .filter_map(|(name, value)| Some((name, value.parse().ok()?)))
        .collect()
}

/// `snmp6` has one `name value` a line.
fn rows_of_snmp6(text: &str) -> BTreeMap<String, u64> {
    let row = |line: &str| {
        let mut words = line.split_whitespace();
        Some((words.next()?.to_owned(), words.next()?.parse().ok()?))
    };
    text.lines().filter_map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_files_are_read() {
        let v4 = rows_of_snmp(
            "Ip: Forwarding InHdrErrors\nIp: 1 7\nUdp: InDatagrams InCsumErrors\nUdp: 5 2\n",
        );
        assert_eq!((v4["IpInHdrErrors"], v4["UdpInCsumErrors"]), (7, 2));
        assert_eq!(
            rows_of_snmp6("Udp6InCsumErrors      \t3\n")["Udp6InCsumErrors"],
            3
        );
    }

    #[test]
    fn a_row_that_grew_is_named() {
        let with = |value| KernelCounters {
            rows: BTreeMap::from([("UdpInCsumErrors".to_owned(), value)]),
        };
        assert!(with(3).check_unchanged_since(&with(3)).is_ok());
        let failure = with(5)
            .check_unchanged_since(&with(3))
            .expect_err("it grew")
            .to_string();
        assert!(failure.contains("UdpInCsumErrors +2"), "{failure}");
    }

    #[test]
    fn drops_of_interfaces_are_told_by_direction() {
        let line = "  eth0: 100 10 0 3 0 0 0 0 200 20 0 5 0 0 0 0";
        let now = KernelDrops(drops_of_dev(&format!("Inter-| Receive\n{line}\n")));
        let before = KernelDrops(BTreeMap::from([(
            "eth0 received and dropped".to_owned(),
            3,
        )]));
        assert_eq!(now.since(&before), "eth0 dropped unsent +5");
        assert_eq!(now.since(&now), "nothing");
    }
}
