//! Selectors by rate: of everything, and of each client or its network.

use crate::clock::Now;
use crate::pipeline::Env;
use crate::pipeline::query::Query;
use crate::pipeline::rules::Selector;
use crate::pipeline::rules::limiter::{Bucket, Rate, take};
use crate::words;
use rapidhash::quality::RandomState;
use std::hash::BuildHasher;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// `MaxQPSRule(qps [, burst])`: matches traffic that does *not* exceed the limit.
pub struct MaxQPSRule {
    qps: u32,
    rate: Rate,
    bucket: Bucket,
}

impl MaxQPSRule {
    /// `burst`: how many at once, by default one second's.
    pub fn new(qps: u32, burst: Option<u32>) -> MaxQPSRule {
        MaxQPSRule {
            qps,
            rate: Rate::new(qps, burst.unwrap_or(qps)),
            bucket: Bucket::default(),
        }
    }
}

impl Selector for MaxQPSRule {
    fn matches(&self, _: &Query<'_>, env: &mut Env<'_>) -> bool {
        self.bucket.take(self.rate, env.now)
    }

    fn describe(&self) -> String {
        format!("Max {} qps", self.qps)
    }
}

/// `MaxQPSIPRule(qps [, v4Mask [, v6Mask [, burst, …]]])`: matches what a client network sends above the limit.
///
/// The table is bounded (8 MB, taken as it fills): when its place for a network is full, the network there that is
/// furthest below its limit is forgotten, so that a flood of forged sources does not free the loud ones. For that
/// reason the options on expiry, cleaning and shards have nothing to do here.
pub struct MaxQPSIPRule {
    qps: u32,
    burst: u32,
    /// Bits.
    v4_mask: u8,
    v6_mask: u8,
    rate: Rate,
    sources: Sources,
}

impl MaxQPSIPRule {
    /// Masks in bits, dnsdist's defaults are 32 and 64; larger ones mean the whole address. `burst`: by default `qps`.
    pub fn new(qps: u32, v4_mask: u8, v6_mask: u8, burst: Option<u32>) -> MaxQPSIPRule {
        let burst = burst.unwrap_or(qps);
        MaxQPSIPRule {
            qps,
            burst,
            v4_mask: v4_mask.min(32),
            v6_mask: v6_mask.min(128),
            rate: Rate::new(qps, burst),
            sources: Sources::new(SETS),
        }
    }

    fn network(&self, address: IpAddr) -> IpAddr {
        match address {
            IpAddr::V4(address) => {
                let mask = u32::MAX
                    .checked_shl(32 - u32::from(self.v4_mask))
                    .unwrap_or(0);
                Ipv4Addr::from(u32::from(address) & mask).into()
            }
            IpAddr::V6(address) => {
                let mask = u128::MAX
                    .checked_shl(128 - u32::from(self.v6_mask))
                    .unwrap_or(0);
                Ipv6Addr::from(u128::from(address) & mask).into()
            }
        }
    }
}

impl Selector for MaxQPSIPRule {
    fn matches(&self, query: &Query<'_>, env: &mut Env<'_>) -> bool {
        let network = self.network(query.client.ip());
        !self.sources.take(network, self.rate, env.now)
    }

    fn describe(&self) -> String {
        let (v4, v6, qps, burst) = (self.v4_mask, self.v6_mask, self.qps, self.burst);
        format!("IP (/{v4}, /{v6}) match for QPS over {qps} burst {burst}")
    }
}

/// Sets of a [`MaxQPSIPRule`]: 2^16 sets of 8 networks of 16 bytes.
const SETS: usize = 1 << 16;

/// Networks in a set.
const WAYS: usize = 8;

/// A bucket per network, as many as fit.
///
/// ```text
///  set i:  key 0 … key 7 │ moment 0 … moment 7      words; a key is a keyed hash of the network, never 0; 0 is free
/// ```
///
/// Two networks with the same 64 bits of hash share a bucket, and a network that is put in a place in the very moment
/// when another one's query is counted there is charged for it: one query too many or too few, no more.
struct Sources {
    words: Box<[AtomicU64]>,
    hashing: RandomState,
}

impl Sources {
    fn new(sets: usize) -> Sources {
        Sources {
            words: words::zeroed(sets * WAYS * 2),
            hashing: RandomState::default(),
        }
    }

    /// Takes a token of the network's bucket; whether there was one.
    fn take(&self, network: IpAddr, rate: Rate, now: Now) -> bool {
        let key = self.hashing.hash_one(network) | 1;
        let sets = self.words.len() / (WAYS * 2);
        // The upper bits choose the set: the lowest one is always 1.
        let set = (key >> 32) as usize % sets;
        let (keys, moments) = self.words[set * WAYS * 2..][..WAYS * 2].split_at(WAYS);
        if let Some(way) = keys.iter().position(|place| place.load(Relaxed) == key) {
            return take(&moments[way], rate, now);
        }
        let way = (0..WAYS)
            .min_by_key(|&way| moments[way].load(Relaxed))
            .expect("a set has ways");
        keys[way].store(key, Relaxed);
        moments[way].store(0, Relaxed);
        take(&moments[way], rate, now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipeline::scene::{Scene, query};
    use wire::codes::qtype;

    #[test]
    fn one_limit_for_all() {
        let mut scene = Scene::default();
        let selector = MaxQPSRule::new(5, None);
        let message = query("a.", qtype::A);
        let matched = (0..20)
            .filter(|_| scene.matches(&selector, &message))
            .count();
        assert_eq!(matched, 5);
        assert_eq!(selector.describe(), "Max 5 qps");
    }

    #[test]
    fn each_network_has_its_own_limit() {
        let mut scene = Scene::default();
        let selector = MaxQPSIPRule::new(5, 24, 48, Some(10));
        let mut over = |client: &str| {
            scene.client = client.parse().unwrap();
            let message = query("a.", qtype::A);
            (0..20)
                .filter(|_| scene.matches(&selector, &message))
                .count()
        };
        assert_eq!(over("192.0.2.1:1"), 10);
        assert_eq!(over("192.0.2.200:1"), 20, "the same /24");
        assert_eq!(over("[2001:db8::1]:1"), 10);
        assert_eq!(over("[2001:db8:0:1::1]:1"), 20, "the same /48");
        assert_eq!(over("[2001:db8:1::1]:1"), 10);
        let text = "IP (/24, /48) match for QPS over 5 burst 10";
        assert_eq!(selector.describe(), text);
    }

    #[test]
    fn masks_of_nothing_and_of_everything() {
        let all = MaxQPSIPRule::new(1, 0, 0, None);
        assert_eq!(
            all.network("192.0.2.1".parse().unwrap()),
            Ipv4Addr::UNSPECIFIED
        );
        let whole = MaxQPSIPRule::new(1, 99, 200, None);
        assert_eq!(
            whole.network(Ipv6Addr::LOCALHOST.into()),
            Ipv6Addr::LOCALHOST
        );
    }

    /// F30: forged sources by the thousand, and one that is loud.
    #[test]
    fn a_flood_of_sources_does_not_free_the_loud_one() {
        let (sources, rate) = (Sources::new(4), Rate::new(10, 10));
        let loud: IpAddr = "192.0.2.1".parse().unwrap();
        let mut passed = 0;
        for number in 0..10_000u32 {
            let now = Now(1_000_000_000 + u64::from(number));
            sources.take(Ipv4Addr::from(number).into(), rate, now);
            passed += usize::from(sources.take(loud, rate, now));
        }
        assert_eq!(passed, 10);
    }
}
