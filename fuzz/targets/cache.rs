//! The packet cache against a naive model: what it gives out is what was kept last for such a query, aged, with this
//! client's ID, case and flags, and not for too long; a few entries are never lost.

#![no_main]

use fuzz::input::Input;
use fuzz::world::{World, cached_pool};
use libfuzzer_sys::fuzz_target;
use millrace::counters::{Lane, Writers};
use millrace::pipeline::Verdict;
use millrace::pipeline::cache::{self, Asked};
use millrace::pipeline::proxy::InFront;
use millrace::pipeline::query::{Arrival, Protocol, Query, Way};
use std::collections::{HashMap, HashSet};
use std::time::Duration;
use wire::codes::{edns_option, opcode, qtype, rcode};
use wire::message::{Header, Records, ResponseParts, Section, parse_query, parse_response};
use wire::name::Name;
use wire::ttl;

/// So many entries find room whatever sets they fall into.
const FEW: usize = 8;

/// More than the cache holds.
const MANY: usize = 40;

/// temporaryFailureTTL of the configuration, in seconds.
const FAILURE_TTL: u32 = 60;

/// What makes queries the same, taken apart.
#[derive(PartialEq, Eq, Hash)]
struct Alike {
    flags: u16,
    counts: [u16; 3],
    /// In lower case, with type and class.
    question: Vec<u8>,
    over_tcp: bool,
    tail_length: usize,
    /// What follows the question, without EDNS options.
    fixed: Vec<u8>,
    options: Vec<(u16, Vec<u8>)>,
}

struct Kept {
    response: Vec<u8>,
    /// The response as the cache lists it: without an ID, the name in lower case.
    listed: Vec<u8>,
    /// In seconds: of each record, and for how long the whole may be given out at most.
    ttls: Vec<(usize, u32)>,
    lifetime: u32,
    is_plain: bool,
    /// Seconds.
    since: u64,
}

struct Bench {
    world: World,
    kept: HashMap<Alike, Kept>,
    /// How many different queries were answered so far.
    different: usize,
}

fuzz_target!(|octets: &[u8]| {
    let mut bench = Bench {
        world: World::default(),
        kept: HashMap::new(),
        different: 0,
    };
    let mut input = Input::new(octets);
    while let Some(step) = input.octet() {
        let choice = step / 8;
        let protocol = [Protocol::Udp, Protocol::Tcp][usize::from(choice & 1)];
        match step % 8 {
            0 | 1 => {
                let query = input.piece().unwrap_or_default();
                bench.keep(query, input.piece().unwrap_or_default(), protocol);
            }
            2 if bench.different < MANY => bench.keep_many(choice),
            2 => {}
            3 | 4 => bench.ask(input.piece().unwrap_or_default(), protocol),
            5 => {
                let seconds = input.number().unwrap_or_default();
                bench.world.wait(Duration::from_secs(seconds.into()));
            }
            6 => bench.take_out(choice.into()),
            _ => bench.take_out_by_name(input.piece().unwrap_or_default(), choice),
        }
    }
    bench.look_at_all();
});

impl Bench {
    fn seconds(&self) -> u64 {
        self.world.now().seconds()
    }

    /// Keeps, for `query`, its question with the header and records of `octets`.
    fn keep(&mut self, query: &[u8], octets: &[u8], protocol: Protocol) {
        let Ok(parts) = parse_query(query) else {
            return;
        };
        let (head, records) = octets.split_at(octets.len().min(12));
        let mut response = [head, &[0; 12][head.len()..], parts.question(query), records].concat();
        let mut header = Header::read(&response).expect("twelve octets");
        header.set_qr(true);
        header.set_question_count(1);
        header.write(&mut response).expect("twelve octets");
        let Ok(read) = parse_response(&response) else {
            return;
        };
        response.truncate(read.end.into());
        let asked = Asked {
            edns_added: false,
            failure_ttl: None,
            query,
            parts: &parts,
            protocol,
        };
        let (_, cache) = cached_pool();
        if !cache.insert(
            asked,
            &response,
            &read,
            self.world.now(),
            Lane::new(0, Writers::One),
        ) {
            return;
        }
        let alike = alike(query, protocol).expect("what is kept is a query");
        let kept = Kept::new(response, &read, self.seconds());
        let former = self.kept.insert(alike, kept);
        self.different += usize::from(former.is_none());
    }

    /// Sixteen names of one label, so that sets are full and entries give way.
    fn keep_many(&mut self, choice: u8) {
        for number in 0..16 {
            let query = [
                &[0, 0, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0][..],
                &[2, choice, number, 0, 0, 1, 0, 1],
            ]
            .concat();
            let record = [0xc0, 12, 0, 1, 0, 1, 0, 0, 1, 0, 0, 4, 192, 0, 2, number];
            let response = [&[0, 0, 0x81, 0x80, 0, 1, 0, 1, 0, 0, 0, 0][..], &record].concat();
            self.keep(&query, &response, Protocol::Udp);
        }
    }

    fn ask(&mut self, message: &[u8], protocol: Protocol) {
        let (pool, _) = cached_pool();
        let mut buffer = message.to_vec();
        buffer.resize(message.len().max(4_096), 0);
        let mut outgrown = Vec::new();
        let mut arrival = Arrival {
            room: buffer.len(),
            message: &mut buffer,
            length: message.len(),
            client: &"192.0.2.7:4242".parse().unwrap(),
            destination: &"192.0.2.1:53".parse().unwrap(),
            protocol,
            way: &Way::Stream,
            listener: 0,
            outgrown: &mut outgrown,
            in_front: InFront::FromProxies,
        };
        let answered = self.world.with_env(|env| {
            let parsed = Query::parse(&mut arrival, None, env).ok()?;
            let mut query = Query::new(&mut arrival, parsed);
            query.pool = pool;
            let limit = query.limit;
            // As a query of a batch, and as one by itself where no cache wants it.
            let mut foreseen = cache::Foreseen::default();
            let waits = cache::foresee(&query, env.config, &mut foreseen).is_some();
            if waits {
                cache::foresee_entry(&mut foreseen, pool, env.config);
            }
            match cache::answer(&mut query, waits.then_some(&foreseen), env) {
                Some(Verdict::Answer(length)) => {
                    Some(Some((query.message[..length].to_vec(), limit)))
                }
                Some(other) => panic!("the cache says {other:?}"),
                None => {
                    assert_eq!(query.bytes(), message, "a miss changes nothing");
                    Some(None)
                }
            }
        });
        match answered {
            None => {}
            Some(None) => self.check_miss(message, protocol),
            Some(Some((answer, limit))) => self.check_hit(message, protocol, &answer, limit),
        }
    }

    fn find(&self, message: &[u8], protocol: Protocol) -> Option<&Kept> {
        self.kept.get(&alike(message, protocol)?)
    }

    fn check_miss(&self, message: &[u8], protocol: Protocol) {
        let Some(kept) = self.find(message, protocol) else {
            return;
        };
        let lives = self.seconds() - kept.since < kept.lifetime.into();
        assert!(
            !kept.is_plain || !lives || self.different > FEW,
            "an entry of few was lost"
        );
    }

    fn check_hit(&self, message: &[u8], protocol: Protocol, answer: &[u8], limit: usize) {
        let kept = self
            .find(message, protocol)
            .expect("a hit without anything that was kept");
        let age = self.seconds() - kept.since;
        assert!(age < kept.lifetime.into(), "given out too long");
        let mut expected = kept.aged(age as u32);
        expected[..2].copy_from_slice(&message[..2]);
        let parts = parse_query(message).expect("it was asked");
        expected[12..parts.question_end.into()].copy_from_slice(parts.question(message));
        let asked = Header::read(message).expect("it was asked");
        let mut header = Header::read(&expected).expect("a response");
        header.set_rd(asked.rd());
        header.set_cd(asked.cd());
        header.write(&mut expected).expect("a response");
        if expected.len() <= limit {
            assert_eq!(answer, expected);
        } else {
            let cut = Header::read(answer).expect("an answer");
            assert!(cut.tc() && answer.len() <= limit && cut.id() == asked.id());
        }
    }

    /// By number: some, or those that have expired.
    fn take_out(&mut self, left: usize) {
        let (_, cache) = cached_pool();
        let now = self.world.now();
        if left.is_multiple_of(2) {
            let before = cache.len();
            let removed = cache.expunge(left);
            assert_eq!(
                (cache.len(), removed),
                (before.min(left), before - before.min(left))
            );
            // Which ones is not said.
            let entries: HashSet<_> = cache.entries(now).map(|entry| entry.response).collect();
            self.kept.retain(|_, kept| entries.contains(&kept.listed));
        } else {
            cache.purge_expired(0, now);
            assert!(cache.entries(now).all(|entry| entry.left > 0));
        }
    }

    fn take_out_by_name(&mut self, octets: &[u8], choice: u8) {
        let Ok(name) = Name::parse(octets) else {
            return;
        };
        let (suffix, rtype) = (choice & 1 == 1, (choice & 2 == 2).then_some(qtype::A));
        let (_, cache) = cached_pool();
        cache.expunge_by_name(&name, rtype, suffix);
        let goes = |alike: &Alike| {
            let (owner, fields) = alike.question.split_last_chunk::<4>().expect("a question");
            let owner = Name::parse(owner).expect("a name");
            let named = owner == name || suffix && owner.is_within(&name);
            named && rtype.is_none_or(|rtype| rtype.to_be_bytes() == fields[..2])
        };
        self.kept.retain(|alike, _| !goes(alike));
    }

    /// Every entry that the cache lists was kept.
    fn look_at_all(&self) {
        let (_, cache) = cached_pool();
        let kept: HashSet<_> = self.kept.values().map(|kept| &kept.listed).collect();
        for entry in cache.entries(self.world.now()) {
            assert!(
                kept.contains(&entry.response),
                "listed, but not kept: {entry:?}"
            );
        }
    }
}

impl Kept {
    fn new(response: Vec<u8>, read: &ResponseParts, since: u64) -> Kept {
        let header = Header::read(&response).expect("it was parsed");
        let ttls: Vec<_> = Records::new(&response, read.question_end, &header)
            .map(|record| record.expect("it was parsed"))
            .filter(|record| record.rtype != qtype::OPT)
            .map(|record| (record.ttl_start.into(), ttl::effective(record.ttl)))
            .collect();
        let minimum = ttls.iter().map(|(_, ttl)| *ttl).min();
        // Negative, even behind an alias: maxNegativeTTL may end it sooner.
        let has_soa = Records::new(&response, read.question_end, &header)
            .flatten()
            .any(|record| record.rtype == qtype::SOA && record.section == Section::Authority);
        let has_answer = read.answer_count > 0 && !has_soa;
        let mut kept = Kept {
            listed: Vec::new(),
            lifetime: match read.rcode {
                rcode::SERVFAIL | rcode::REFUSED => FAILURE_TTL,
                _ => minimum.unwrap_or(0).min(86_400),
            },
            is_plain: read.rcode == rcode::NOERROR && has_answer && !read.truncated,
            ttls,
            response,
            since,
        };
        kept.listed = kept.aged(0);
        kept.listed[..2].fill(0);
        kept.listed[12..usize::from(read.question_end) - 4].make_ascii_lowercase();
        kept
    }

    fn aged(&self, seconds: u32) -> Vec<u8> {
        let mut aged = self.response.clone();
        for (place, ttl) in &self.ttls {
            let left = ttl.saturating_sub(seconds);
            aged[*place..place + 4].copy_from_slice(&left.to_be_bytes());
        }
        aged
    }
}

/// `None`: not for a cache.
fn alike(query: &[u8], protocol: Protocol) -> Option<Alike> {
    let parts = parse_query(query).ok()?;
    let header = Header::read(query)?;
    if header.opcode() != opcode::QUERY {
        return None;
    }
    let (end, edns) = (usize::from(parts.question_end), parts.edns);
    let mut question = query[12..end].to_vec();
    question[..usize::from(parts.qname_length)].make_ascii_lowercase();
    let fixed = edns.map_or_else(
        || query[end..].to_vec(),
        |edns| {
            let options = usize::from(edns.start) + 11;
            [&query[end..options], &query[edns.end.into()..]].concat()
        },
    );
    let options = edns
        .iter()
        .flat_map(|edns| edns.options(query))
        .filter(|option| ![edns_option::COOKIE, edns_option::PADDING].contains(&option.code))
        .map(|option| (option.code, option.value.to_vec()))
        .collect();
    Some(Alike {
        flags: header.flags(),
        counts: [
            header.answer_count(),
            header.authority_count(),
            header.additional_count(),
        ],
        question,
        over_tcp: protocol == Protocol::Tcp,
        tail_length: query.len() - end,
        fixed,
        options,
    })
}
