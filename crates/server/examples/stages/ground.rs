//! A worker's surroundings without a worker: configuration, exchanges, ports on loopback, one frame. What the counting
//! harness (`main.rs` beside this file, tests/allocations.rs) takes queries through.

use ipnet::{IpNet, Ipv4Net};
use millrace::backend::exchange::{Exchanges, Share, Waiting};
use millrace::backend::ports::{Departures, Ports};
use millrace::backend::servers::Servers;
use millrace::backend::{Forwarded, Forwarder};
use millrace::clock::Now;
use millrace::config::Config;
use millrace::config::load::{Overrides, load};
use millrace::config::spec::Purpose;
use millrace::counters::{Shard, Writers};
use millrace::local::Local;
use millrace::pipeline::acl::{Netmask, Netmasks};
use millrace::pipeline::proxy::InFront;
use millrace::pipeline::query::{Arrival, Protocol, Way};
use millrace::pipeline::rings::Rings;
use millrace::pipeline::rules::Rule;
use millrace::pipeline::rules::actions::limit::DropAction;
use millrace::pipeline::rules::names::SuffixSet;
use millrace::pipeline::rules::selectors::client::{NetmaskGroupRule, Side};
use millrace::pipeline::rules::selectors::name::QNameSuffixRule;
use millrace::pipeline::{Env, Paused, Verdict, begin, go_on, respond};
use millrace::random::Random;
use std::fmt::Write;
use std::net::SocketAddr;
use std::sync::Arc;
use wire::codes::{class, qtype};
use wire::message::{QueryFlags, write_query};
use wire::name::Name;

/// Where the backend would be; nobody is there.
const BACKEND: &str = "127.0.0.1:5301";

/// Configurations a and d of examples/, the backend up.
const REFUSE: &str = r#"addLocal("192.0.2.1:53")
setACL({"192.0.2.0/24"})
addAction(AllRule(), RCodeAction(DNSRCode.REFUSED))
"#;
const BALANCE: &str = r#"addLocal("192.0.2.1:53")
newServer({address="BACKEND", healthCheckMode="up", pool="auth"})
getPool("auth"):setCache(newPacketCache(100000, {maxTTL=86400, staleTTL=60, temporaryFailureTTL=60}))
setACL({"192.0.2.0/24", "2001:db8::/32", "127.0.0.0/8"})
addAction({"example.com.", "example.net."}, PoolAction("auth"))
addAction(QNameSuffixRule("blocked.example."), RCodeAction(DNSRCode.NXDOMAIN))
addAction(AndRule({QTypeRule(DNSQType.ANY), NotRule(TCPRule(true))}), TCAction())
addAction(NetmaskGroupRule("192.0.2.66/32"), DropAction())
"#;

const SERVE: &str = r#"addLocal("192.0.2.1:53")
setACL({"192.0.2.0/24"})
millrace.addZone{name="example.com.", file="zone"}
"#;

/// Every query is copied to where nobody listens, and refused.
const COPY: &str = r#"addLocal("192.0.2.1:53")
setACL({"192.0.2.0/24"})
addAction(AllRule(), TeeAction("127.0.0.1:5302"))
addAction(AllRule(), RCodeAction(DNSRCode.REFUSED))
"#;

/// A function looks at every query before it is refused.
const CALL: &str = r#"addLocal("192.0.2.1:53")
setACL({"192.0.2.0/24"})
addAction(AllRule(), LuaAction(function(dq) return DNSAction.None, "" end))
addAction(AllRule(), RCodeAction(DNSRCode.REFUSED))
"#;

/// A rate for each client that none here reaches, though the clock stands still: so many at once.
const LIMIT: &str = r#"addLocal("192.0.2.1:53")
setACL({"192.0.2.0/24"})
addAction(MaxQPSIPRule(1000000), DropAction())
addAction(AllRule(), RCodeAction(DNSRCode.REFUSED))
"#;

/// For scenes whose client is a proxy, beside the configuration.
const TRUST: &str = r#"setProxyProtocolACL({"192.0.2.9/32"})
"#;

/// What the proxy puts in front of each query: 203.0.113.9:4242 asks 203.0.113.53:53, by a datagram; one value.
const HEADER: [u8; 35] = *b"\r\n\r\n\0\r\nQUIT\n\x21\x12\0\x13\
    \xcb\x00\x71\x09\xcb\x00\x71\x35\x10\x92\x00\x35\xe0\x00\x04edge";

/// What is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scene {
    /// Configuration a: a rule refuses all.
    Refused,
    /// Configuration d: the second rule's suffix.
    Blocked,
    /// The same below a name as deep as names get: 127 labels, 255 octets. F10: none may take 5 µs.
    Deep,
    /// Configuration d: the cache has the answer. 1,000 names in turn.
    Hit,
    /// Configuration d: the cache has no answer, the query goes to the backend, its answer comes, is kept and goes to the
    /// client. A new name each time.
    Forward,
    /// A zone of 1,000 names has the answer: one address.
    Authority,
    /// As `Authority`, in a zone of 20,000 names: memory is asked for before it is needed.
    Large,
    /// The small zone signed with ECDSA P-256, asked with DO: the address and its signature.
    Signed,
    /// Names that are not there, asked with DO: SOA and three NSEC3 records with their signatures.
    Absent,
    /// As `Hit`, behind a rule of a million suffixes, none of which matches.
    Suffixes,
    /// As `Hit`, behind a rule of a million prefixes, none of which matches.
    Prefixes,
    /// A rule copies the query, and the next one refuses it.
    Copied,
    /// A function of the configuration looks at the query, and a rule refuses it.
    Lua,
    /// The client is below its rate, and a rule refuses the query.
    Qps,
    /// As `Hit`, by a proxy that says who asks.
    Proxied,
    /// As `Forward`, by such a proxy.
    ProxiedForward,
}

impl Scene {
    pub(crate) const ALL: [(&str, Scene); 16] = [
        ("refused", Scene::Refused),
        ("blocked", Scene::Blocked),
        ("deep", Scene::Deep),
        ("hit", Scene::Hit),
        ("forward", Scene::Forward),
        ("authority", Scene::Authority),
        ("large", Scene::Large),
        ("signed", Scene::Signed),
        ("absent", Scene::Absent),
        ("suffixes", Scene::Suffixes),
        ("prefixes", Scene::Prefixes),
        ("copied", Scene::Copied),
        ("lua", Scene::Lua),
        ("qps", Scene::Qps),
        ("proxied", Scene::Proxied),
        ("proxied-forward", Scene::ProxiedForward),
    ];

    fn configuration(self) -> String {
        let text = match self {
            Scene::Refused => REFUSE,
            Scene::Copied => COPY,
            Scene::Lua => CALL,
            Scene::Qps => LIMIT,
            Scene::Authority | Scene::Large | Scene::Signed | Scene::Absent => SERVE,
            _ => BALANCE,
        };
        let more = if self.is_proxied() { TRUST } else { "" };
        format!("{text}{more}")
    }

    /// Whether a proxy asks.
    fn is_proxied(self) -> bool {
        matches!(self, Scene::Proxied | Scene::ProxiedForward)
    }

    /// What stands in front of each query.
    fn in_front(self) -> &'static [u8] {
        if self.is_proxied() { &HEADER } else { &[] }
    }

    /// Whether each query goes to the backend.
    fn forwards(self) -> bool {
        matches!(self, Scene::Forward | Scene::ProxiedForward)
    }

    /// Whether the zone is signed, and signatures are asked for.
    fn is_signed(self) -> bool {
        matches!(self, Scene::Signed | Scene::Absent)
    }

    /// How many names its zone has, or are in the cache.
    fn names(self) -> usize {
        match self {
            Scene::Large => 20 * NAMES,
            _ => NAMES,
        }
    }

    /// Whether the cache has the answers.
    fn hits(self) -> bool {
        use Scene::{Hit, Prefixes, Proxied, Suffixes};
        matches!(self, Hit | Suffixes | Prefixes | Proxied)
    }

    /// A rule before all others.
    fn first_rule(self) -> Option<Rule> {
        match self {
            Scene::Suffixes => Some(Rule::new(many_suffixes(), DropAction)),
            Scene::Prefixes => Some(Rule::new(many_prefixes(), DropAction)),
            _ => None,
        }
    }
}

pub(crate) struct Ground {
    scene: Scene,
    /// There are lines of a configuration before the scene's own.
    is_behind: bool,
    config: Arc<Config>,
    shard: Shard,
    exchanges: Exchanges,
    share: Share,
    ports: Ports,
    random: Random,
    frame: Box<[u8]>,
    waiting: Box<Waiting>,
    paused: Paused,
    queries: Vec<Vec<u8>>,
    /// Grows with each forwarded query: its name.
    number: u32,
}

/// A frame's room for a message.
const ROOM: usize = 1_472;

/// Different names that the cache holds.
const NAMES: usize = 1_000;

pub(crate) const NOW: Now = Now(1_000_000_000);

impl Ground {
    /// A scene behind `lines` of a configuration, if there are any: what comes of a query is theirs to say. Everything is allocated
    /// here, and everything that fills up as it is used is used once.
    pub(crate) fn new(lines: &str, scene: Scene) -> Ground {
        let mut config = configuration(lines, scene, BACKEND);
        config.rules.splice(0..0, scene.first_rule());
        config.open_actions();
        let mut random = Random::from_seed(7);
        let servers = Arc::new(Servers::default());
        servers.publish(&config.servers);
        let exchanges = Exchanges::new(1, 65_535, servers, &mut random);
        let ports = Ports::new(1, 16, Box::new(())).expect("epoll");
        for server in &config.servers {
            ports.prepare(server).expect("ports on loopback");
        }
        let mut ground = Ground {
            scene,
            is_behind: !lines.is_empty(),
            config: Arc::new(config),
            shard: Shard::new(0, Writers::One, Rings::new(5_000, 5_000, Writers::One)),
            share: exchanges.share(0),
            exchanges,
            ports,
            random,
            frame: vec![0; 2_048].into_boxed_slice(),
            waiting: Box::default(),
            paused: Paused::default(),
            queries: Vec::new(),
            number: 0,
        };
        ground.fill();
        ground
    }

    fn fill(&mut self) {
        let queries = match self.scene {
            Scene::Refused | Scene::Copied | Scene::Lua | Scene::Qps => {
                vec![query(b"\x03www\x07example\x03com\x00")]
            }
            Scene::Blocked => vec![query(b"\x03www\x07blocked\x07example\x00")],
            Scene::Deep => vec![query(&deep())],
            Scene::Signed => (0..NAMES as u32).map(signed).collect(),
            Scene::Absent => (0..NAMES as u32).map(absent).collect(),
            _ => (0..self.scene.names() as u32).map(numbered).collect(),
        };
        let in_front = self.scene.in_front();
        let whole = |query: Vec<u8>| [in_front, &query].concat();
        self.queries = queries.into_iter().map(whole).collect();
        if self.scene.hits() {
            for number in 0..NAMES as u32 {
                self.forward(&whole(numbered(number)));
            }
        }
        self.serve(3 * NAMES);
    }

    /// Takes so many queries through the stages, each to its answer.
    #[inline(never)]
    pub(crate) fn serve(&mut self, count: usize) {
        let mut queries = std::mem::take(&mut self.queries);
        let forwards = self.scene.forwards();
        for turn in 0..count {
            if forwards {
                self.number += 1;
                let query = &mut queries[0];
                let number = 0x1000_0000 + self.number;
                let start = self.scene.in_front().len() + 13;
                write_number(&mut query[start..start + 8], number);
                self.forward(query);
            } else {
                self.answer(&queries[turn % queries.len()]);
            }
        }
        self.queries = queries;
    }

    fn answer(&mut self, query: &[u8]) {
        let answered = self.ask(query, |verdict, _, _| matches!(verdict, Verdict::Answer(_)));
        assert!(
            answered || self.is_behind,
            "{:?} is answered here",
            self.scene
        );
    }

    /// To the backend and back.
    fn forward(&mut self, query: &[u8]) {
        let forwarded = self.ask(query, |verdict, forwarded, frame| {
            let (Verdict::Forward(server), Some(forwarded)) = (verdict, forwarded) else {
                return None;
            };
            let local = forwarded.port.end();
            Some((local, server.options.address, [frame[0], frame[1]]))
        });
        let Some((local, remote, id)) = forwarded else {
            panic!("{:?}: not forwarded", self.scene)
        };
        let length = respond(&query[self.scene.in_front().len()..], id, &mut self.frame);
        let Ground {
            config,
            shard,
            exchanges,
            share,
            ports,
            random,
            frame,
            waiting,
            ..
        } = self;
        let mut env = Env {
            config,
            now: NOW,
            random,
            shard,
            forwarder: Some(Forwarder {
                exchanges,
                share,
                ports,
                departures: &mut Departures::default(),
                forwarded: None,
            }),
        };
        let answer = respond::accept(local, remote, frame, length, waiting, &mut env);
        assert_eq!(answer, Ok(length));
    }

    fn ask<T>(
        &mut self,
        query: &[u8],
        look: impl FnOnce(&Verdict<'_>, Option<Forwarded>, &[u8]) -> T,
    ) -> T {
        self.frame[..query.len()].copy_from_slice(query);
        let mut outgrown = Vec::new();
        let mut arrival = Arrival {
            message: &mut self.frame,
            length: query.len(),
            client: &SocketAddr::from(([192, 0, 2, 9], 4_242)),
            destination: &SocketAddr::from(([192, 0, 2, 1], 53)),
            protocol: Protocol::Udp,
            way: &Way::Socket { listener: 0 },
            listener: 0,
            room: ROOM,
            outgrown: &mut outgrown,
            in_front: InFront::FromProxies,
        };
        let mut env = Env {
            config: &self.config,
            now: NOW,
            random: &mut self.random,
            shard: &self.shard,
            forwarder: Some(Forwarder {
                exchanges: &self.exchanges,
                share: &mut self.share,
                ports: &self.ports,
                departures: &mut Departures::default(),
                forwarded: None,
            }),
        };
        // As a frame is taken through them that is the only one of its batch.
        let verdict = match begin(&mut arrival, &mut self.paused, &mut env) {
            Some(verdict) => verdict,
            None => {
                let message = || &*arrival.message;
                self.paused.foresee(message, true, env.config);
                go_on(&mut arrival, &mut self.paused, &mut env)
            }
        };
        let forwarded = env.forwarder.and_then(|forwarder| forwarder.forwarded);
        look(&verdict, forwarded, arrival.message)
    }
}

/// What the backend makes of `query`, under the ID that it saw: two addresses; how many octets of `message` that takes.
pub(crate) fn respond(query: &[u8], id: [u8; 2], message: &mut [u8]) -> usize {
    const RECORD: [u8; 16] = *b"\xc0\x0c\x00\x01\x00\x01\x00\x00\x0e\x10\x00\x04\xc0\x00\x02\x01";
    let question = query.len() - 11;
    let opt = &query[question..];
    let mut end = question;
    message[..question].copy_from_slice(&query[..question]);
    for part in [&RECORD[..], &RECORD, opt] {
        message[end..end + part.len()].copy_from_slice(part);
        end += part.len();
    }
    message[..2].copy_from_slice(&id);
    message[2] |= 0x80;
    message[7] = 2;
    end
}

/// The configuration of a scene behind these lines, with its backend at this address.
pub(crate) fn configuration(lines: &str, scene: Scene, backend: &str) -> Config {
    let zone = zone(scene.names(), scene.is_signed());
    let own = scene.configuration().replace("BACKEND", backend);
    loaded(&format!("{lines}\n{own}"), &zone)
}

/// What a file with `text` makes, beside a file `zone`.
pub(crate) fn loaded(text: &str, zone: &str) -> Config {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("stages.lua");
    std::fs::write(&file, text).expect("a file");
    std::fs::write(directory.path().join("zone"), zone).expect("a file");
    let state = load(Some(&file), &Overrides::default(), Purpose::Serve, None);
    let state = state.unwrap_or_else(|error| panic!("{error}"));
    let state = Arc::new(state);
    let config = state.derive(None);
    let mut config = config.unwrap_or_else(|error| panic!("{error}"));
    config.count_traffic(1, None);
    let (local, _) = state.edit(|spec| Local::load(&spec.zones, &Local::default()));
    config.local = Arc::new(local);
    if !config.local.is_empty() {
        // With the counters that zones have when serving: one worker's and the runtime's.
        config.count_traffic(2, None);
    }
    config
}

/// The hash of example.com, without salt and iterations (RFC 5155 §5).
const HASH_OF_APEX: &str = "onib9mgub9h0rml3cdf5bgrj59dkjhvk";

/// A zone with an address for each numbered name.
fn zone(names: usize, is_signed: bool) -> String {
    let mut text = String::new();
    let mut add = |owner: &str, kind: &str, data: &str| {
        let _ = writeln!(text, "{owner} 3600 {kind} {data}");
        if is_signed {
            let _ = writeln!(text, "{owner} 3600 RRSIG {}", signature(kind));
        }
    };
    add("@", "SOA", "ns hostmaster 1 7200 3600 1209600 300");
    add("@", "NS", "ns");
    for number in 0..names {
        add(&format!("{number:08x}"), "A", "192.0.2.1");
    }
    if is_signed {
        add("@", "NSEC3PARAM", "1 0 0 -");
        let hashes = chain();
        let next = hashes.iter().cycle().skip(1);
        for (own, next) in hashes.iter().zip(next) {
            add(own, "NSEC3", &format!("1 0 0 - {next} A RRSIG"));
        }
    }
    text
}

/// As many hashes as names, evenly apart, and that of the apex: what covers a name is found no faster and no slower than if
/// they were those of the names.
fn chain() -> Vec<String> {
    let hash = |number: usize| {
        let high = (number as u64 * (u64::MAX / NAMES as u64)) >> 4;
        let digits = (0..32_u32).map(|place| match place {
            // Twelve digits of five bits.
            0..12 => b"0123456789abcdefghijklmnopqrstuv"[(high >> (55 - 5 * place) & 31) as usize],
            _ => b'7',
        });
        digits.map(char::from).collect()
    };
    let mut hashes: Vec<String> = (0..NAMES).map(hash).collect();
    hashes.push(HASH_OF_APEX.to_owned());
    hashes.sort_unstable();
    hashes
}

/// What looks like a signature of ECDSA P-256 (RFC 6605 §4): 64 octets.
fn signature(kind: &str) -> String {
    let octets = "Qm9n".repeat(21);
    format!("{kind} 13 3 3600 20361122000000 20261122000000 12345 example.com. {octets}QQ==")
}

/// Entries of a large list.
const MANY: u32 = 1_000_000;

/// A million names of two labels and of three, as lists of what to block have them; what is asked has three.
fn many_suffixes() -> QNameSuffixRule {
    let mut suffixes = SuffixSet::default();
    let mut insert = |name: &[u8]| suffixes.insert(&Name::parse(name).expect("a name"));
    for number in 0..MANY / 2 {
        let mut name = *b"\x03www\x0800000000\x07example\x00";
        write_number(&mut name[5..13], number);
        insert(&name);
        insert(&name[4..]);
    }
    QNameSuffixRule {
        suffixes: Arc::new(suffixes),
        quiet: true,
    }
}

/// A million networks, each a gap away from the next, around the client and not with it.
fn many_prefixes() -> NetmaskGroupRule {
    let network = |number: u32| {
        // 2^32 / 1,000,000, rounded down to a /28 that leaves the client out.
        let first = number * 4_288 + 64;
        let network = Ipv4Net::new(first.into(), 28).expect("at most 32 bits");
        Netmask::from(IpNet::V4(network))
    };
    let netmasks = (0..MANY).map(network).collect::<Netmasks>();
    NetmaskGroupRule {
        netmasks: Arc::new(netmasks),
        side: Side::Source,
        quiet: true,
    }
}

/// A query with EDNS and RD, as resolvers and `dig` send them.
pub(crate) fn query(name: &[u8]) -> Vec<u8> {
    query_with(name, false)
}

fn query_with(name: &[u8], dnssec_ok: bool) -> Vec<u8> {
    let name = Name::parse(name).expect("a name");
    let flags = QueryFlags {
        recursion_desired: true,
        payload_size: Some(1_232),
        dnssec_ok,
        ..QueryFlags::default()
    };
    let mut buffer = vec![0; 300];
    let question = (name, qtype::A, class::IN);
    let length = write_query(&mut buffer, 0x1234, question, flags).expect("300 bytes do");
    buffer.truncate(length);
    buffer
}

/// 255 octets, the last 17 of which are blocked.example.
fn deep() -> Vec<u8> {
    let mut name = b"\x01a".repeat(119);
    name.extend_from_slice(b"\x07blocked\x07example\x00");
    name
}

/// A query for a name of its own: eight hexadecimal digits under example.com.
pub(crate) fn numbered(number: u32) -> Vec<u8> {
    query(&numbered_name(number))
}

fn numbered_name(number: u32) -> [u8; 22] {
    let mut name = *b"\x0800000000\x07example\x03com\x00";
    write_number(&mut name[1..9], number);
    name
}

/// The same with DO.
fn signed(number: u32) -> Vec<u8> {
    query_with(&numbered_name(number), true)
}

/// A name that no zone here has, its digits as good as random.
fn absent(number: u32) -> Vec<u8> {
    let number = number.wrapping_mul(0x9e37_79b9) | 0x1000_0000;
    query_with(&numbered_name(number), true)
}

fn write_number(digits: &mut [u8], number: u32) {
    for (place, digit) in digits.iter_mut().enumerate() {
        *digit = b"0123456789abcdef"[(number >> (28 - 4 * place) & 15) as usize];
    }
}
