//! What the control thread does with caches. setCacheCleaningDelay: they are looked through for what has expired. Nothing needs it:
//! an entry that has expired is not served, and the newest one takes the place of the oldest. It tells the truth about how many
//! there are.
//!
//! And where memory is short, they give some of theirs back.

use super::PacketCache;
use crate::backend::pool::Pool;
use crate::clock::Now;
use crate::config::Config;
use std::sync::Arc;
use std::time::Duration;

/// Takes out what has expired of all caches, as setCacheCleaningPercentage says.
pub fn clean(config: &Config, now: Now) {
    let pools: Vec<&Arc<Pool>> = config.pools.iter().flatten().collect();
    // What may still be served when all servers are down has not had its time.
    let stale = Duration::from_secs(config.tuning.stale_cache_entries_ttl.into());
    let expired = Now(now.0.saturating_sub(stale.as_nanos() as u64));
    let kept = 100 - usize::from(config.tuning.cleaning.percentage.min(100));
    let mut done: Vec<&Arc<PacketCache>> = Vec::new();
    for cache in pools.iter().filter_map(|pool| pool.cache.as_ref()) {
        let is_done = done.iter().any(|other| Arc::ptr_eq(other, cache));
        if !is_done && !is_suspended(cache, &pools) {
            cache.purge_expired(cache.options().maximum_entries * kept / 100, expired);
        }
        done.push(cache);
    }
}

/// Has the caches of all pools give memory back with the oldest of their entries, in turn, until it is so many bytes; how many.
pub fn give_back(config: &Config, bytes: u64) -> u64 {
    let pools = config.pools.iter().flatten();
    let caches: Vec<&Arc<PacketCache>> = pools.filter_map(|pool| pool.cache.as_ref()).collect();
    let mut given = 0;
    while given < bytes {
        let before = given;
        for cache in &caches {
            if given < bytes {
                given += cache.log.give_back();
            }
        }
        if given == before {
            break;
        }
    }
    given
}

/// The manual on keepStaleData: "Whether to suspend the removal of expired entries from the cache when there is no backend
/// available in at least one of the pools using this cache."
fn is_suspended(cache: &Arc<PacketCache>, pools: &[&Arc<Pool>]) -> bool {
    let uses = |pool: &Pool| (pool.cache.as_ref()).is_some_and(|own| Arc::ptr_eq(own, cache));
    let is_down = |pool: &Pool| !pool.servers.iter().any(|server| server.state.is_up());
    cache.options().keep_stale_data && pools.iter().any(|pool| uses(pool) && is_down(pool))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{keep, scene, wait};
    use super::*;
    use crate::backend::server::HealthMode;
    use crate::pipeline::scene::{Scene, answer_to, query};
    use wire::codes::{qtype, rcode};

    /// Two answers, for 60 and for 600 s.
    fn filled(keep_stale_data: bool) -> (Scene, Arc<PacketCache>) {
        let (scene, cache) = scene(|options| options.keep_stale_data = keep_stale_data);
        for (name, ttl) in [("a.example.", 60), ("b.example.", 600)] {
            let query = query(name, qtype::A);
            let response = answer_to(&query, rcode::NOERROR as u8, &[ttl]);
            assert!(keep(&cache, &scene, &query, &response));
        }
        (scene, cache)
    }

    #[test]
    fn what_has_expired_goes() {
        let (mut scene, cache) = filled(false);
        wait(&mut scene, 59);
        clean(&scene.config, scene.now);
        assert_eq!(cache.len(), 2);
        wait(&mut scene, 2);
        clean(&scene.config, scene.now);
        assert_eq!(cache.len(), 1);
    }

    #[test]
    fn what_may_be_served_stale_stays_as_long() {
        let (mut scene, cache) = filled(false);
        scene.change(|config| config.tuning.stale_cache_entries_ttl = 30);
        wait(&mut scene, 80);
        clean(&scene.config, scene.now);
        assert_eq!(cache.len(), 2);
        wait(&mut scene, 20);
        clean(&scene.config, scene.now);
        assert_eq!(cache.len(), 1);
    }

    #[test]
    fn no_more_than_the_percentage_is_freed() {
        let (mut scene, cache) = filled(false);
        // The cache has room for 1,000: 995 are free already.
        scene.change(|config| config.tuning.cleaning.percentage = 90);
        wait(&mut scene, 1_000);
        clean(&scene.config, scene.now);
        assert_eq!(cache.len(), 2);
    }

    #[test]
    fn keep_stale_data_keeps_all_while_a_pool_is_down() {
        let (mut scene, cache) = filled(true);
        let server = Arc::clone(&scene.config.pools[0].as_ref().unwrap().servers[0]);
        server.state.set_mode(HealthMode::Down);
        wait(&mut scene, 1_000);
        clean(&scene.config, scene.now);
        assert_eq!(cache.len(), 2);
        server.state.set_mode(HealthMode::Up);
        clean(&scene.config, scene.now);
        assert_eq!(cache.len(), 0);
    }
}
