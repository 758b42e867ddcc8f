//! Selectors by rate: of everything, and of each client or its network.

use crate::pipeline::Env;
use crate::pipeline::query::Query;
use crate::pipeline::rules::Selector;
use crate::pipeline::rules::limiter::{Bucket, Buckets, Limit, Prefixes, Rate};
use std::any::Any;

/// `MaxQPSRule(qps [, burst])`: matches traffic that does *not* exceed the limit.
pub struct MaxQPSRule {
    qps: u32,
    limit: Limit<Bucket>,
}

impl MaxQPSRule {
    /// `burst`: how many at once, by default one second's.
    pub fn new(qps: u32, burst: Option<u32>) -> MaxQPSRule {
        MaxQPSRule {
            qps,
            limit: Limit::new(Rate::new(qps, burst.unwrap_or(qps)), Bucket::default()),
        }
    }
}

impl Selector for MaxQPSRule {
    fn matches(&self, _: &mut Query<'_>, env: &mut Env<'_>) -> bool {
        self.limit.take_in(env)
    }

    fn go_on_from(&self, former: &dyn Selector) {
        let former: &dyn Any = former;
        if let Some(former) = former.downcast_ref::<MaxQPSRule>() {
            self.limit.go_on_from(&former.limit);
        }
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
    prefixes: Prefixes,
    limit: Limit<Buckets>,
}

impl MaxQPSIPRule {
    /// Masks in bits, dnsdist's defaults are 32 and 64; larger ones mean the whole address. `burst`: by default `qps`.
    pub fn new(qps: u32, v4_mask: u8, v6_mask: u8, burst: Option<u32>) -> MaxQPSIPRule {
        let burst = burst.unwrap_or(qps);
        MaxQPSIPRule {
            qps,
            burst,
            prefixes: Prefixes::new(v4_mask, v6_mask),
            limit: Limit::new(Rate::new(qps, burst), Buckets::new(NETWORKS)),
        }
    }
}

impl Selector for MaxQPSIPRule {
    fn matches(&self, query: &mut Query<'_>, env: &mut Env<'_>) -> bool {
        let network = self.prefixes.network(query.client().ip());
        !self.limit.take_in(network, env)
    }

    fn go_on_from(&self, former: &dyn Selector) {
        let former: &dyn Any = former;
        // With other masks its networks are other ones.
        if let Some(former) = former.downcast_ref::<MaxQPSIPRule>()
            && former.prefixes == self.prefixes
        {
            self.limit.go_on_from(&former.limit);
        }
    }

    fn describe(&self) -> String {
        let (v4, v6, qps, burst) = (self.prefixes.v4, self.prefixes.v6, self.qps, self.burst);
        format!("IP (/{v4}, /{v6}) match for QPS over {qps} burst {burst}")
    }
}

/// Networks that a [`MaxQPSIPRule`] remembers.
const NETWORKS: usize = 1 << 19;

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
}
