//! What the kernel says of this process and of the machine's UDP and TCP: the statistics that nobody here counts.

use crate::clock::Now;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use std::fs;

/// One look at /proc and getrusage(2). What cannot be read is 0.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Process {
    /// Seconds since the process first asked for the time.
    pub uptime: u64,
    /// Bytes.
    pub real_memory: u64,
    pub file_descriptors: u64,
    /// Milliseconds.
    pub cpu_user: u64,
    /// Milliseconds.
    pub cpu_system: u64,
    /// The whole machine's, in units of USER_HZ.
    pub cpu_iowait: u64,
    /// The whole machine's, in units of USER_HZ.
    pub cpu_steal: u64,
    pub udp: UdpErrors,
    pub udp6: UdpErrors,
    pub tcp_listen_overflows: u64,
}

/// The kernel's UDP errors in this network namespace, of one address family.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct UdpErrors {
    pub incoming: u64,
    pub no_port: u64,
    pub receive_buffer: u64,
    pub send_buffer: u64,
    pub checksum: u64,
}

impl Process {
    pub fn read() -> Process {
        let file = |path| fs::read_to_string(path).unwrap_or_default();
        let (cpu_iowait, cpu_steal) = machine_time(&file("/proc/stat"));
        let snmp = file("/proc/net/snmp");
        let snmp6 = file("/proc/net/snmp6");
        let usage = getrusage(UsageWho::RUSAGE_SELF).ok();
        Process {
            uptime: Now::read().seconds(),
            real_memory: resident(&file("/proc/self/status")),
            file_descriptors: fs::read_dir("/proc/self/fd").map_or(0, |list| list.count() as u64),
            cpu_user: usage.map_or(0, |usage| usage.user_time().num_milliseconds() as u64),
            cpu_system: usage.map_or(0, |usage| usage.system_time().num_milliseconds() as u64),
            cpu_iowait,
            cpu_steal,
            udp: UdpErrors::find(|name| in_two_lines(&snmp, "Udp:", name)),
            udp6: UdpErrors::find(|name| in_one_line(&snmp6, &format!("Udp6{name}"))),
            tcp_listen_overflows: in_two_lines(
                &file("/proc/net/netstat"),
                "TcpExt:",
                "ListenOverflows",
            ),
        }
    }
}

impl UdpErrors {
    fn find(field: impl Fn(&str) -> u64) -> UdpErrors {
        UdpErrors {
            incoming: field("InErrors"),
            no_port: field("NoPorts"),
            receive_buffer: field("RcvbufErrors"),
            send_buffer: field("SndbufErrors"),
            checksum: field("InCsumErrors"),
        }
    }
}

/// The fifth and eighth numbers behind `cpu` in /proc/stat: iowait and steal (proc(5)).
fn machine_time(stat: &str) -> (u64, u64) {
    let Some(total) = stat.lines().find(|line| line.starts_with("cpu ")) else {
        return (0, 0);
    };
    let field = |index| total.split_ascii_whitespace().nth(index).map_or(0, number);
    (field(5), field(8))
}

/// VmRSS of /proc/self/status, which has it in units of 1,024 bytes.
fn resident(status: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let field = line.and_then(|rest| rest.split_ascii_whitespace().next());
    field.map_or(0, number) * 1_024
}

/// /proc/net/snmp and netstat: a line of names, then a line of values, both with the same first word.
fn in_two_lines(table: &str, word: &str, name: &str) -> u64 {
    let mut lines = table.lines().filter(|line| line.starts_with(word));
    let (Some(names), Some(values)) = (lines.next(), lines.next()) else {
        return 0;
    };
    let place = names
        .split_ascii_whitespace()
        .position(|other| other == name);
    let field = place.and_then(|place| values.split_ascii_whitespace().nth(place));
    field.map_or(0, number)
}

/// /proc/net/snmp6: a name and a value a line.
fn in_one_line(table: &str, name: &str) -> u64 {
    let mut fields = table.lines().map(str::split_ascii_whitespace);
    let found = fields.find_map(|mut line| (line.next() == Some(name)).then(|| line.next()));
    found.flatten().map_or(0, number)
}

fn number(text: &str) -> u64 {
    text.parse().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_tables_are_read() {
        let snmp = "Ip: A\nIp: 1\nUdp: InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors SndbufErrors InCsumErrors\n\
                    Udp: 9 1 2 8 3 4 5\nUdpLite: InErrors\nUdpLite: 7\n";
        let expected = UdpErrors {
            incoming: 2,
            no_port: 1,
            receive_buffer: 3,
            send_buffer: 4,
            checksum: 5,
        };
        let found = UdpErrors::find(|name| in_two_lines(snmp, "Udp:", name));
        assert_eq!(found, expected);
        assert_eq!(
            in_one_line("Ip6InReceives\t3\nUdp6NoPorts   \t12\n", "Udp6NoPorts"),
            12
        );
        assert_eq!(
            machine_time("cpu  1 2 3 4 50 6 7 80 9 10\ncpu0 1\n"),
            (50, 80)
        );
        assert_eq!(resident("Name:\tx\nVmRSS:\t    1024 kB\n"), 1_048_576);
    }

    #[test]
    fn tables_that_are_not_there_are_zeros() {
        assert_eq!(in_two_lines("", "Udp:", "NoPorts"), 0);
        assert_eq!(in_one_line("Udp6NoPorts", "Udp6NoPorts"), 0);
        assert_eq!(machine_time("cpu "), (0, 0));
    }

    #[test]
    fn this_process_has_memory_and_open_files() {
        let process = Process::read();
        assert!(process.real_memory > 100_000, "{process:?}");
        assert!(process.file_descriptors >= 3, "{process:?}");
    }
}
