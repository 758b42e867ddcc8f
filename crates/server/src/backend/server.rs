//! One backend: what the configuration says of it, and its live state, shared by all workers.

use super::health::CheckFunction;
use super::lazy::{LazyOptions, Sample};
use super::quantile::Percentile95;
use super::source::Source;
use super::trust::XskTrust;
use crate::clock::Now;
use crate::config::Xdp;
use crate::counters::{Lane, Sharded};
use crate::pipeline::drop::DropReason;
use crate::pipeline::rules::limiter::{Bucket, Limit, Rate};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// A server's number: never used again for another server while the process lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ServerId(pub u32);

/// What `newServer` was given, with dnsdist's defaults.
#[derive(Debug, Clone, PartialEq)]
pub struct ServerOptions {
    pub address: SocketAddr,
    pub name: String,
    /// The `id` option, or a random UUID.
    pub id: String,
    pub pools: Vec<String>,
    pub order: i32,
    pub weight: u32,
    /// Queries per second that firstAvailable allows; 0 is no limit.
    pub qps: u32,
    pub udp_timeout: Option<Duration>,
    pub tcp_connect_timeout: Duration,
    pub tcp_send_timeout: Duration,
    pub tcp_receive_timeout: Duration,
    pub tcp_only: bool,
    /// useClientSubnet: queries say from what network they come.
    pub use_client_subnet: bool,
    /// useProxyProtocol: queries say by the PROXY protocol who asks.
    pub proxy_protocol: bool,
    /// disableZeroScope: no answer of its is kept for all networks.
    pub disable_zero_scope: bool,
    /// reconnectOnUp: when it is up again, nothing goes by connections of before.
    pub reconnect_on_up: bool,
    /// maxInFlight: queries on one TCP connection at a time, at least 1.
    pub tcp_in_flight: usize,
    /// maxConcurrentTCPConnections: connections to it at a time; 0 is no limit.
    pub tcp_maximum_connections: usize,
    /// retries: connections that are tried for one query. `None`: a new one where one that was kept has ended, no more.
    pub tcp_attempts: Option<u32>,
    pub source: Source,
    pub health: HealthOptions,
    pub xdp: Xdp,
    /// MACAddr: the next hop's address by hand; used unasked.
    pub mac: Option<[u8; 6]>,
}

/// How a server is probed; dnsdist's names without `check`.
#[derive(Debug, Clone, PartialEq)]
pub struct HealthOptions {
    pub mode: HealthMode,
    /// checkName, in presentation format.
    pub name: String,
    pub qtype: u16,
    pub qclass: u16,
    pub interval: Duration,
    pub timeout: Duration,
    /// maxCheckFailures: so many in a row take the server down.
    pub maximum_failures: u32,
    /// rise: so many in a row bring it up again.
    pub rise: u32,
    pub must_resolve: bool,
    pub set_cd: bool,
    pub over_tcp: bool,
    /// checkFunction: has the last word on what a check asks.
    pub function: Option<CheckFunction>,
    /// healthCheckMode lazy, or setLazyAuto: checks begin when queries fail.
    pub is_lazy: bool,
    /// How then.
    pub lazy: LazyOptions,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HealthMode {
    Auto,
    Up,
    Down,
}

/// Health checks that failed, and why: dnsdist's numbers per server.
#[derive(Debug, Default)]
pub struct HealthCounters {
    pub failures: AtomicU64,
    /// Answers that are no DNS.
    pub parsing: AtomicU64,
    pub timeout: AtomicU64,
    /// The query could not be sent, or the stream broke.
    pub network: AtomicU64,
    /// Answers to something else. They end no wait, so a check that succeeds in the end may have had some.
    pub mismatch: AtomicU64,
    /// Answers that say no.
    pub invalid: AtomicU64,
}

/// A backend. Options are fixed for its life: a changed option makes a new server, which counts on.
#[derive(Debug)]
pub struct Server {
    pub number: ServerId,
    pub options: ServerOptions,
    /// It goes on as a server that checks have judged already: the next of them is one of many.
    pub is_judged: bool,
    /// Made once: policies look for it among the tags of queries.
    name_with_address: Box<str>,
    pub state: State,
    /// The next hop over AF_XDP; see [`XskPath`].
    pub xsk: XskPath,
    /// Whether that path brings answers.
    pub trust: XskTrust,
    /// The pool of backend ports that queries to it leave from; see [`super::ports`].
    pub ports: SourcePool,
    /// Queries in flight, over all workers and transports.
    pub outstanding: Outstanding,
    pub queries: Sharded,
    pub responses: Sharded,
    pub timeouts: Sharded,
    pub send_errors: Sharded,
    pub nonmatching: Sharded,
    /// Messages of its that are no DNS.
    pub noncompliant: Sharded,
    pub health: Arc<HealthCounters>,
    /// What became of the last queries; `None` but for lazy checks.
    pub sample: Option<Box<Sample>>,
    /// firstAvailable's, and how much of it is used.
    limit: Option<Limit<Bucket>>,
    /// What its TCP connections did.
    pub tcp: Arc<super::tcp::Counters>,
    /// Those that are kept.
    pub tcp_pool: super::tcp::Pool,
    /// Moving average of the latency as dnsdist keeps it: 127 parts old, 1 part new; microseconds × 128.
    latency: AtomicU64,
    /// The same over TCP.
    latency_tcp: AtomicU64,
    /// Queries that another server was asked too: those beyond the first of a race.
    pub extra_queries: Sharded,
    /// Of queries in pools with race or hedge, over UDP.
    pub slowest: Percentile95,
    /// The same over TCP.
    pub slowest_tcp: Percentile95,
}

impl HealthOptions {
    /// Whether checks ask and judge answers as those of `other` do, whenever that is.
    fn asks_as(&self, other: &HealthOptions) -> bool {
        let other = HealthOptions {
            mode: self.mode,
            interval: self.interval,
            timeout: self.timeout,
            maximum_failures: self.maximum_failures,
            rise: self.rise,
            is_lazy: self.is_lazy,
            lazy: self.lazy.clone(),
            ..other.clone()
        };
        *self == other
    }
}

impl ServerOptions {
    /// dnsdist's `getName()`: `ns1`, or the address where no name was given.
    pub fn name_or_address(&self) -> String {
        match self.name.as_str() {
            "" => self.address.to_string(),
            name => name.to_owned(),
        }
    }

    /// dnsdist's `getNameWithAddr()`: `ns1 (192.0.2.2:53)`, or the address alone.
    pub fn name_with_address(&self) -> String {
        match self.name.as_str() {
            "" => self.address.to_string(),
            name => format!("{name} ({})", self.address),
        }
    }
}

impl Server {
    pub fn new(number: ServerId, options: ServerOptions) -> Server {
        let rate = Rate::new(options.qps, options.qps);
        let limit = (options.qps > 0).then(|| Limit::new(rate, Bucket::default()));
        Server {
            number,
            state: State::new(&options.health),
            sample: (options.health.is_lazy)
                .then(|| Box::new(Sample::new(options.health.lazy.clone()))),
            name_with_address: options.name_with_address().into(),
            options,
            is_judged: false,
            xsk: XskPath::default(),
            trust: XskTrust::default(),
            ports: SourcePool::default(),
            outstanding: Outstanding::default(),
            queries: Sharded::default(),
            responses: Sharded::default(),
            timeouts: Sharded::default(),
            send_errors: Sharded::default(),
            nonmatching: Sharded::default(),
            noncompliant: Sharded::default(),
            health: Arc::default(),
            limit,
            tcp: Arc::default(),
            tcp_pool: super::tcp::Pool::default(),
            latency: AtomicU64::new(0),
            latency_tcp: AtomicU64::new(0),
            extra_queries: Sharded::default(),
            slowest: Percentile95::default(),
            slowest_tcp: Percentile95::default(),
        }
    }

    /// Frames for the server go to `next_hop` from now on. Another path than the last one is judged by what is sent on it alone.
    pub fn reach_over_xsk(&self, device: u8, next_hop: [u8; 6]) {
        if self.xsk.set(device, next_hop) {
            self.retry_xsk();
        }
    }

    /// Something on the way to the server is not as it was: what became of earlier queries does not matter any more. In this
    /// order: a health check that gives AF_XDP up at the same time sets the pause last, and none leaves it given up without one.
    pub fn retry_xsk(&self) {
        self.trust.begin_anew();
        self.xsk.resume();
    }

    /// The same server with other options: it counts on where `old` does, which may still have queries in flight. Where
    /// its address is the same, it is as well as `old` is, and as fast; where it is checked in the same way, too, no first
    /// check decides anew.
    pub fn succeeding(old: &Server, number: ServerId, options: ServerOptions) -> Server {
        let new = Server::new(number, options);
        let new = Server {
            is_judged: old.speaks_for(&new.options),
            queries: old.queries.clone(),
            extra_queries: old.extra_queries.clone(),
            responses: old.responses.clone(),
            timeouts: old.timeouts.clone(),
            send_errors: old.send_errors.clone(),
            nonmatching: old.nonmatching.clone(),
            noncompliant: old.noncompliant.clone(),
            health: Arc::clone(&old.health),
            tcp: Arc::clone(&old.tcp),
            ..new
        };
        if let (Some(limit), Some(former)) = (&new.limit, &old.limit) {
            limit.go_on_from(former);
        }
        new.catch_up_with(old);
        new
    }

    /// Is as well and as fast as `old` is by now, if it succeeds that one at its address: what was found of `old` since this
    /// one was made counts, too.
    pub fn catch_up_with(&self, old: &Server) {
        if Arc::ptr_eq(&self.health, &old.health) && self.options.address == old.options.address {
            self.state.set_checked(old.state.is_checked_up());
            self.latency.store(old.latency.load(Relaxed), Relaxed);
            self.latency_tcp
                .store(old.latency_tcp.load(Relaxed), Relaxed);
        }
    }

    /// Whether checks go on, and would have found the same of a server with these options.
    fn speaks_for(&self, options: &ServerOptions) -> bool {
        let own = &self.options;
        self.state.mode() == HealthMode::Auto
            && own.address == options.address
            && own.source == options.source
            && own.proxy_protocol == options.proxy_protocol
            && own.health.asks_as(&options.health)
    }

    /// See [`ServerOptions::name_with_address`].
    pub fn name_with_address(&self) -> &str {
        &self.name_with_address
    }

    /// Counts a message of its that nobody gets.
    pub fn count_junk(&self, reason: DropReason, lane: Lane) {
        match reason {
            DropReason::ResponseMalformed => self.noncompliant.count(lane),
            // It answers something, if late.
            DropReason::ResponseLate => {}
            _ => self.nonmatching.count(lane),
        }
    }

    /// An answer of its has come: something for lazy checks.
    #[inline]
    pub fn note_answer(&self, code: u16) {
        if let Some(sample) = &self.sample {
            sample.answered(code);
        }
    }

    /// A query that it did not answer, or did not get.
    #[inline]
    pub fn note_failure(&self) {
        if let Some(sample) = &self.sample {
            sample.failed();
        }
    }

    /// Whether one more query is within `qps`; it is counted then.
    pub fn is_within_rate(&self, now: Now) -> bool {
        self.limit.as_ref().is_none_or(|limit| limit.take(now))
    }

    /// The same, not counted.
    pub fn would_be_within_rate(&self, now: Now) -> bool {
        self.limit.as_ref().is_none_or(|limit| limit.has(now))
    }

    /// One query less is counted.
    pub fn give_back_rate(&self) {
        if let Some(limit) = &self.limit {
            limit.give_back();
        }
    }

    pub fn record_latency(&self, microseconds: u64) {
        average(&self.latency, microseconds);
    }

    pub fn record_latency_tcp(&self, microseconds: u64) {
        average(&self.latency_tcp, microseconds);
    }

    /// Microseconds.
    pub fn latency(&self) -> u64 {
        self.latency.load(Relaxed) / 128
    }

    /// Microseconds.
    pub fn latency_tcp(&self) -> u64 {
        self.latency_tcp.load(Relaxed) / 128
    }
}

/// A lost update between two workers costs one sample of a moving average: no lock is worth that.
fn average(cell: &AtomicU64, microseconds: u64) {
    let old = cell.load(Relaxed);
    cell.store(old - old / 128 + microseconds, Relaxed);
}

/// The index of a server's pool of backend ports: one atomic word, because routes change.
///
/// ```text
///  31      16  15       0
///  former pool │ pool
/// ```
#[derive(Debug)]
pub struct SourcePool(AtomicU32);

const NO_POOL: u16 = u16::MAX;

impl Default for SourcePool {
    fn default() -> SourcePool {
        SourcePool(AtomicU32::new(u32::MAX))
    }
}

impl SourcePool {
    /// Only one thread at a time may do this.
    pub fn set(&self, pool: u16) {
        let now = self.0.load(Relaxed);
        if now as u16 != pool {
            self.0.store(now << 16 | u32::from(pool), Relaxed);
        }
    }

    /// `None` as long as it is not known from where the server is asked.
    pub fn get(&self) -> Option<u16> {
        let pool = self.0.load(Relaxed) as u16;
        (pool != NO_POOL).then_some(pool)
    }

    /// The pool before this one, for whoever does not know this one yet.
    pub fn former(&self) -> Option<u16> {
        let pool = (self.0.load(Relaxed) >> 16) as u16;
        (pool != NO_POOL).then_some(pool)
    }
}

/// How many queries a server has in flight: exact, over all workers and transports. Two atomic additions per query on a
/// cache line of its own, because `leastOutstanding` means the server's count, not a worker's.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct Outstanding(AtomicI64);

impl Outstanding {
    pub fn get(&self) -> i64 {
        self.0.load(Relaxed)
    }

    /// One more, unless `maximum` are in flight; tells whether.
    pub fn enter(&self, maximum: u32) -> bool {
        let free = self.0.fetch_add(1, Relaxed) < i64::from(maximum);
        if !free {
            self.leave();
        }
        free
    }

    /// One less.
    pub fn leave(&self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

/// Whether queries are sent to the server: what the operator forced, and what the checks found.
#[derive(Debug)]
pub struct State {
    mode: AtomicU8,
    up: AtomicU8,
}

impl State {
    /// Nothing is known yet; lazy checks take that for up.
    fn new(health: &HealthOptions) -> State {
        State {
            mode: AtomicU8::new(health.mode as u8),
            up: AtomicU8::new(u8::from(health.is_lazy)),
        }
    }

    pub fn mode(&self) -> HealthMode {
        match self.mode.load(Relaxed) {
            0 => HealthMode::Auto,
            1 => HealthMode::Up,
            _ => HealthMode::Down,
        }
    }

    /// setUp, setDown, setAuto.
    pub fn set_mode(&self, mode: HealthMode) {
        self.mode.store(mode as u8, Relaxed);
    }

    /// What the checks found; tells whether that is news.
    pub fn set_checked(&self, up: bool) -> bool {
        self.up.swap(u8::from(up), Relaxed) != u8::from(up)
    }

    /// What the checks found, whatever the operator forced.
    pub fn is_checked_up(&self) -> bool {
        self.up.load(Relaxed) == 1
    }

    pub fn is_up(&self) -> bool {
        match self.mode() {
            HealthMode::Auto => self.is_checked_up(),
            HealthMode::Up => true,
            HealthMode::Down => false,
        }
    }

    /// dnsdist's word: `up`/`down` found by checks, `UP`/`DOWN` forced.
    pub fn word(&self) -> &'static str {
        match self.mode() {
            HealthMode::Up => "UP",
            HealthMode::Down => "DOWN",
            HealthMode::Auto if self.is_up() => "up",
            HealthMode::Auto => "down",
        }
    }
}

/// Where frames for a server go: one atomic word, written by the network thread when routes or neighbours change and by
/// the health checks when AF_XDP does not get through, read by workers.
///
/// ```text
///  bit 63      62          61..56   55..48         47..0
///  known       suspended   0        device index   next hop's MAC, first octet highest
/// ```
#[derive(Debug, Default)]
pub struct XskPath(AtomicU64);

const KNOWN: u64 = 1 << 63;
const SUSPENDED: u64 = 1 << 62;

impl XskPath {
    /// A path other than the last one is tried whatever became of that. Whether it is another one.
    fn set(&self, device: u8, next_hop: [u8; 6]) -> bool {
        let mut mac = [0; 8];
        mac[2..].copy_from_slice(&next_hop);
        let path = KNOWN | u64::from(device) << 48 | u64::from_be_bytes(mac);
        let changed = |old: u64| (old & !SUSPENDED != path).then_some(path);
        // An error means that it is the same path.
        self.0.fetch_update(Relaxed, Relaxed, changed).is_ok()
    }

    /// From now on kernel sockets carry the server's queries.
    pub fn clear(&self) {
        self.0.store(0, Relaxed);
    }

    /// Kernel sockets carry the server's queries until [`XskPath::resume`], or until the path changes.
    pub fn suspend(&self) {
        // Not a path that was cleared meanwhile.
        let suspended = |old: u64| (old & KNOWN != 0).then_some(old | SUSPENDED);
        let _ = self.0.fetch_update(Relaxed, Relaxed, suspended);
    }

    pub fn resume(&self) {
        self.0.fetch_and(!SUSPENDED, Relaxed);
    }

    /// Whether there is a path, suspended or not.
    pub fn is_known(&self) -> bool {
        self.0.load(Relaxed) & KNOWN != 0
    }

    /// The device to send from and the next hop's MAC; `None`: by kernel socket.
    pub fn get(&self) -> Option<(u8, [u8; 6])> {
        let word = self.0.load(Relaxed);
        if word & (KNOWN | SUSPENDED) != KNOWN {
            return None;
        }
        let bytes = word.to_be_bytes();
        Some((
            bytes[1],
            [bytes[2], bytes[3], bytes[4], bytes[5], bytes[6], bytes[7]],
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture;
    use super::super::trust::Judgement;
    use super::*;
    use crate::clock::Now;
    use crate::counters::Lane;

    #[test]
    fn what_was_lost_on_one_path_is_not_held_against_the_next() {
        let server = fixture::server(0, fixture::options("192.0.2.2:53"));
        let judge = |second: u64| server.trust.judge(Now(second * 1_000_000_000));
        let lose = || (0..64).for_each(|_| server.trust.count_sent(Lane::SHARED));
        server.reach_over_xsk(1, [2, 0, 0, 0, 0, 8]);
        assert_eq!(judge(1), Judgement::Keep);
        lose();
        assert_eq!(judge(2), Judgement::Keep, "they have just left");
        server.reach_over_xsk(1, [2, 0, 0, 0, 0, 8]);
        assert_eq!(judge(3), Judgement::Suspect, "the same path");
        server.reach_over_xsk(1, [2, 0, 0, 0, 0, 9]);
        assert_eq!(judge(4), Judgement::Keep, "nothing was sent on this one");
        lose();
        assert_eq!((judge(5), judge(6)), (Judgement::Keep, Judgement::Suspect));
        server.retry_xsk();
        assert_eq!(judge(7), Judgement::Keep, "from another address");
    }

    #[test]
    fn a_pool_is_known_with_the_one_before() {
        let pools = SourcePool::default();
        let known = |pool| {
            pools.set(pool);
            (pools.get(), pools.former())
        };
        assert_eq!((pools.get(), pools.former()), (None, None));
        assert_eq!(known(3), (Some(3), None));
        assert_eq!(known(4), (Some(4), Some(3)));
        assert_eq!(known(4), (Some(4), Some(3)));
        assert_eq!(known(3), (Some(3), Some(4)));
    }

    #[test]
    fn a_path_gives_back_what_was_set() {
        let path = XskPath::default();
        assert_eq!(path.get(), None);
        path.set(3, [2, 0, 0, 0, 0, 9]);
        assert_eq!(path.get(), Some((3, [2, 0, 0, 0, 0, 9])));
        path.clear();
        assert_eq!(path.get(), None);
    }

    #[test]
    fn a_suspended_path_comes_back_when_it_is_resumed_or_another_one() {
        let path = XskPath::default();
        path.suspend();
        assert!(!path.is_known());
        path.set(3, [2, 0, 0, 0, 0, 9]);
        path.suspend();
        path.set(3, [2, 0, 0, 0, 0, 9]);
        assert_eq!((path.get(), path.is_known()), (None, true));
        path.resume();
        assert_eq!(path.get(), Some((3, [2, 0, 0, 0, 0, 9])));
        path.suspend();
        path.set(3, [2, 0, 0, 0, 0, 8]);
        assert_eq!(path.get(), Some((3, [2, 0, 0, 0, 0, 8])));
    }
}
