//! dnsdist's documented statistics (its manual's page "Statistics"), with their source here.
//!
//! One list feeds `/metrics` and `millrace stats`. What is not built yet says 0: dashboards ask for every one of them.

use super::Look;
use super::text::{Kind, Value};
use crate::control::process::Process;
use crate::counters::Counter;
use crate::pipeline::HandOverReason;
use crate::pipeline::drop::DropReason;

/// A statistic by dnsdist's name; in `/metrics` it is `dnsdist_` and the name with `_` for `-`.
pub struct Statistic {
    pub name: &'static str,
    pub kind: Kind,
    pub help: &'static str,
    pub source: Source,
}

/// Where a statistic comes from.
pub enum Source {
    /// The sum over all shards.
    Counted(Counter),
    Process(fn(&Process) -> u64),
    /// The average latency of about so many answers, in microseconds.
    Latency(u32),
    /// The same of answers over TCP.
    LatencyTcp(u32),
    /// Nothing here can count it yet.
    NotBuilt,
}

impl Source {
    pub fn value(&self, look: &Look) -> Value {
        match self {
            Source::Counted(counter) => look.sum(*counter).into(),
            Source::Process(field) => field(&look.process).into(),
            Source::Latency(answers) => Value::Real(look.averages.all.over(*answers)),
            Source::LatencyTcp(answers) => Value::Real(look.averages.tcp.over(*answers)),
            Source::NotBuilt => Value::Whole(0),
        }
    }
}

/// A line each: kind, name, source, what it says.
macro_rules! statistics {
    ($($kind:ident $name:literal $source:ident $(($($of:tt)*))?: $help:literal,)+) => {
        /// All but the histogram of latencies (latency-bucket, latency-sum, latency-count), whose rows have labels.
        pub const STATISTICS: &[Statistic] = &[
            $(Statistic { kind: Kind::$kind, name: $name, source: Source::$source $(($($of)*))?, help: $help },)+
        ];
    };
}

/// Whether a statistic of dnsdist's has that name; those of the histogram have no entry in the list.
pub fn is_dialects(name: &str) -> bool {
    let names = STATISTICS.iter().map(|statistic| statistic.name);
    let mut all = names.chain(OF_HISTOGRAM).chain([BUCKETS]);
    all.any(|other| other == name)
}

/// Whether `/jsonstat` has that name, whatever the configuration declares. Knot's names have dots.
pub fn is_built_in(name: &str) -> bool {
    let mut drops = DropReason::ALL.iter().map(|reason| reason.name());
    let mut hand_overs = HandOverReason::ALL.iter().map(|reason| reason.name());
    let dropped = name.strip_prefix("drop-");
    let handed_over = name.strip_prefix("hand-over-");
    is_dialects(name)
        || NO_LONGER_COUNTED.contains(&name)
        || name == POLICY
        || dropped.is_some_and(|rest| drops.any(|reason| reason == rest))
        || handed_over.is_some_and(|rest| hand_overs.any(|reason| reason == rest))
}

/// What dnsdist counted once, and the manual's example of `/jsonstat` shows: 0.
pub const NO_LONGER_COUNTED: [&str; 4] = [
    "over-capacity-drops",
    "packetcache-hits",
    "packetcache-misses",
    "too-old-drops",
];

/// The one field of `/jsonstat` that is a text: the default pool's policy.
pub const POLICY: &str = "server-policy";

/// What only `/metrics` has of the histogram.
const BUCKETS: &str = "latency-bucket";

/// What the histogram of latencies says, as statistics.
pub const OF_HISTOGRAM: [&str; 2] = ["latency-sum", "latency-count"];

statistics! {
    Counter "acl-drops" Counted(Counter::AclDrops): "Messages of clients outside the ACL.",
    Counter "cache-hits" Counted(Counter::CacheHits): "Answers from a packet cache.",
    Counter "cache-misses" Counted(Counter::CacheMisses): "Queries not found in their pool's packet cache.",
    Counter "cpu-iowait" Process(|process| process.cpu_iowait): "Time the machine waited for input and output, in units of USER_HZ.",
    Counter "cpu-steal" Process(|process| process.cpu_steal): "Time that other guests took from this machine, in units of USER_HZ.",
    Counter "cpu-sys-msec" Process(|process| process.cpu_system): "CPU time of this process in the kernel, in milliseconds.",
    Counter "cpu-user-msec" Process(|process| process.cpu_user): "CPU time of this process outside the kernel, in milliseconds.",
    Counter "doh-query-pipe-full" NotBuilt: "DoH queries dropped because a queue was full.",
    Counter "doh-response-pipe-full" NotBuilt: "DoH answers dropped because a queue was full.",
    Counter "doh3-response-pipe-full" NotBuilt: "DoH3 answers dropped because a queue was full.",
    Counter "doq-response-pipe-full" NotBuilt: "DoQ answers dropped because a queue was full.",
    Counter "downstream-send-errors" Counted(Counter::DownstreamSendErrors): "Queries that could not be sent to a backend.",
    Counter "downstream-timeouts" Counted(Counter::DownstreamTimeouts): "Queries that a backend did not answer in time.",
    Gauge "dyn-block-nmg-size" NotBuilt: "Netmasks that are blocked dynamically.",
    Counter "dyn-blocked" NotBuilt: "Queries dropped because of a dynamic block.",
    Counter "empty-queries" Counted(Counter::EmptyQueries): "Queries without a question.",
    Gauge "fd-usage" Process(|process| process.file_descriptors): "File descriptors in use.",
    Counter "frontend-noerror" Counted(Counter::FrontendNoerror): "NOERROR answers sent to clients.",
    Counter "frontend-nxdomain" Counted(Counter::FrontendNxdomain): "NXDOMAIN answers sent to clients.",
    Counter "frontend-servfail" Counted(Counter::FrontendServfail): "SERVFAIL answers sent to clients.",
    Gauge "latency-avg100" Latency(100): "Average latency of about the last 100 answers, in microseconds.",
    Gauge "latency-avg1000" Latency(1_000): "Average latency of about the last 1,000 answers, in microseconds.",
    Gauge "latency-avg10000" Latency(10_000): "Average latency of about the last 10,000 answers, in microseconds.",
    Gauge "latency-avg1000000" Latency(1_000_000): "Average latency of about the last 1,000,000 answers, in microseconds.",
    Gauge "latency-doh-avg100" NotBuilt: "Average latency of about the last 100 answers over DoH, in microseconds.",
    Gauge "latency-doh-avg1000" NotBuilt: "Average latency of about the last 1,000 answers over DoH, in microseconds.",
    Gauge "latency-doh-avg10000" NotBuilt: "Average latency of about the last 10,000 answers over DoH, in microseconds.",
    Gauge "latency-doh-avg1000000" NotBuilt: "Average latency of about the last 1,000,000 answers over DoH, in microseconds.",
    Gauge "latency-doh3-avg100" NotBuilt: "Average latency of about the last 100 answers over DoH3, in microseconds.",
    Gauge "latency-doh3-avg1000" NotBuilt: "Average latency of about the last 1,000 answers over DoH3, in microseconds.",
    Gauge "latency-doh3-avg10000" NotBuilt: "Average latency of about the last 10,000 answers over DoH3, in microseconds.",
    Gauge "latency-doh3-avg1000000" NotBuilt: "Average latency of about the last 1,000,000 answers over DoH3, in microseconds.",
    Gauge "latency-doq-avg100" NotBuilt: "Average latency of about the last 100 answers over DoQ, in microseconds.",
    Gauge "latency-doq-avg1000" NotBuilt: "Average latency of about the last 1,000 answers over DoQ, in microseconds.",
    Gauge "latency-doq-avg10000" NotBuilt: "Average latency of about the last 10,000 answers over DoQ, in microseconds.",
    Gauge "latency-doq-avg1000000" NotBuilt: "Average latency of about the last 1,000,000 answers over DoQ, in microseconds.",
    Gauge "latency-dot-avg100" NotBuilt: "Average latency of about the last 100 answers over DoT, in microseconds.",
    Gauge "latency-dot-avg1000" NotBuilt: "Average latency of about the last 1,000 answers over DoT, in microseconds.",
    Gauge "latency-dot-avg10000" NotBuilt: "Average latency of about the last 10,000 answers over DoT, in microseconds.",
    Gauge "latency-dot-avg1000000" NotBuilt: "Average latency of about the last 1,000,000 answers over DoT, in microseconds.",
    Gauge "latency-tcp-avg100" LatencyTcp(100): "Average latency of about the last 100 answers over TCP, in microseconds.",
    Gauge "latency-tcp-avg1000" LatencyTcp(1_000): "Average latency of about the last 1,000 answers over TCP, in microseconds.",
    Gauge "latency-tcp-avg10000" LatencyTcp(10_000): "Average latency of about the last 10,000 answers over TCP, in microseconds.",
    Gauge "latency-tcp-avg1000000" LatencyTcp(1_000_000): "Average latency of about the last 1,000,000 answers over TCP, in microseconds.",
    Counter "latency-slow" Counted(Counter::LatencySlow): "Answers that took more than a second.",
    Counter "latency0-1" Counted(Counter::Latency0To1): "Answers that took less than 1 ms.",
    Counter "latency1-10" Counted(Counter::Latency1To10): "Answers that took 1 to 10 ms.",
    Counter "latency10-50" Counted(Counter::Latency10To50): "Answers that took 10 to 50 ms.",
    Counter "latency50-100" Counted(Counter::Latency50To100): "Answers that took 50 to 100 ms.",
    Counter "latency100-1000" Counted(Counter::Latency100To1000): "Answers that took 100 to 1,000 ms.",
    Counter "no-policy" Counted(Counter::NoPolicy): "Queries for which no server was available.",
    Counter "noncompliant-queries" Counted(Counter::NoncompliantQueries): "Queries that broke the protocol.",
    Counter "noncompliant-responses" Counted(Counter::NoncompliantResponses): "Responses of backends that broke the protocol.",
    Counter "outgoing-doh-query-pipe-full" NotBuilt: "DoH queries to backends dropped because a queue was full.",
    Counter "proxy-protocol-invalid" Counted(Counter::ProxyProtocolInvalid): "Queries dropped because of an invalid PROXY protocol header.",
    Counter "queries" Counted(Counter::Queries): "Queries received.",
    Counter "rdqueries" Counted(Counter::RdQueries): "Queries with the RD bit.",
    Gauge "real-memory-usage" Process(|process| process.real_memory): "Resident memory, in bytes.",
    Counter "responses" Counted(Counter::Responses): "Responses sent to clients: of backends, from a cache, made here.",
    Counter "rule-drop" Counted(Counter::RuleDrop): "Queries dropped by a rule.",
    Counter "rule-nxdomain" Counted(Counter::RuleNxdomain): "NXDOMAIN answers returned by a rule.",
    Counter "rule-refused" Counted(Counter::RuleRefused): "REFUSED answers returned by a rule.",
    Counter "rule-servfail" Counted(Counter::RuleServfail): "SERVFAIL answers returned by a rule.",
    Counter "rule-truncated" Counted(Counter::RuleTruncated): "Truncated answers returned by a rule.",
    Gauge "security-status" NotBuilt: "0: unknown, 1: good, 2: upgrade recommended, 3: upgrade required.",
    Counter "self-answered" Counted(Counter::SelfAnswered): "Answers made here.",
    Counter "servfail-responses" Counted(Counter::ServfailResponses): "SERVFAIL responses of backends.",
    Counter "tcp-cross-protocol-query-pipe-full" NotBuilt: "Queries for another transport dropped because a queue was full.",
    Counter "tcp-cross-protocol-response-pipe-full" NotBuilt: "Answers for another transport dropped because a queue was full.",
    Counter "tcp-listen-overflows" Process(|process| process.tcp_listen_overflows): "TCP connections that found no room in the queue of a listening socket: ListenOverflows of /proc/net/netstat.",
    Counter "tcp-query-pipe-full" NotBuilt: "TCP connections dropped because a queue was full.",
    Counter "trunc-failures" Counted(Counter::TruncFailures): "Answers that could not be truncated.",
    Counter "udp-in-csum-errors" Process(|process| process.udp.checksum): "UDP datagrams over IPv4 with a wrong checksum: InCsumErrors of /proc/net/snmp.",
    Counter "udp-in-errors" Process(|process| process.udp.incoming): "UDP datagrams over IPv4 that could not be delivered: InErrors of /proc/net/snmp.",
    Counter "udp-noport-errors" Process(|process| process.udp.no_port): "UDP datagrams over IPv4 to ports that nobody listens on: NoPorts of /proc/net/snmp.",
    Counter "udp-recvbuf-errors" Process(|process| process.udp.receive_buffer): "UDP datagrams over IPv4 that found no room in a receive buffer: RcvbufErrors of /proc/net/snmp.",
    Counter "udp-sndbuf-errors" Process(|process| process.udp.send_buffer): "UDP datagrams over IPv4 that found no room in a send buffer: SndbufErrors of /proc/net/snmp.",
    Counter "udp6-in-csum-errors" Process(|process| process.udp6.checksum): "UDP datagrams over IPv6 with a wrong checksum: Udp6InCsumErrors of /proc/net/snmp6.",
    Counter "udp6-in-errors" Process(|process| process.udp6.incoming): "UDP datagrams over IPv6 that could not be delivered: Udp6InErrors of /proc/net/snmp6.",
    Counter "udp6-noport-errors" Process(|process| process.udp6.no_port): "UDP datagrams over IPv6 to ports that nobody listens on: Udp6NoPorts of /proc/net/snmp6.",
    Counter "udp6-recvbuf-errors" Process(|process| process.udp6.receive_buffer): "UDP datagrams over IPv6 that found no room in a receive buffer: Udp6RcvbufErrors of /proc/net/snmp6.",
    Counter "udp6-sndbuf-errors" Process(|process| process.udp6.send_buffer): "UDP datagrams over IPv6 that found no room in a send buffer: Udp6SndbufErrors of /proc/net/snmp6.",
    Gauge "uptime" Process(|process| process.uptime): "Seconds since start.",
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_counter_is_a_statistic_under_its_own_name() {
        // The histogram has the first two, the averages come of all.
        let elsewhere = [
            Counter::LatencySumMicroseconds,
            Counter::LatencyCount,
            Counter::LatencyTcpSumMicroseconds,
            Counter::LatencyTcpCount,
        ];
        for (counter, name) in Counter::ALL {
            let found = STATISTICS.iter().find(|statistic| statistic.name == name);
            match found.map(|statistic| &statistic.source) {
                Some(Source::Counted(other)) => assert_eq!(*other, counter),
                _ => assert!(elsewhere.contains(&counter), "{name} is not shown"),
            }
        }
    }

    #[test]
    fn names_are_unique() {
        let names: HashSet<_> = STATISTICS.iter().map(|statistic| statistic.name).collect();
        assert_eq!(names.len(), STATISTICS.len());
    }
}
