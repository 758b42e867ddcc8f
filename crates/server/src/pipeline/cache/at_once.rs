//! The usual hit, at once: of a query that has paused, whose entry was found meanwhile.

use super::Foreseen;
use super::buffer::Buffer;
use super::record::{Record, Ttl, moment};
use crate::pipeline::query::{Arrival, Found};
use crate::pipeline::{Env, authority, respond};

/// Makes the query of `arrival`, of which all this is known and for which no rule wants anything of its answer, the answer, whose
/// length it gives. `None`, and the query is as it was: [`super::answer`] and the stages before it see to all that is not usual.
///
/// Of a query as the stages take it nothing is needed but these few numbers: to put it together again takes 90 instructions.
#[inline]
pub fn answer_at_once(
    arrival: &mut Arrival<'_>,
    found: &Found,
    foreseen: &Foreseen,
    env: &Env<'_>,
) -> Option<usize> {
    let config = &**env.config;
    let position = foreseen.position()?;
    if authority::serves(config, found.pool) || !config.chains.cache_hit.is_empty() {
        return None;
    }
    let pool = config.pool(found.pool)?;
    let cache = pool.cache.as_deref()?;
    let record = Record::open(&cache.log, position)?;
    let is_it = record.has_key(foreseen.key()?);
    let (expires, stored) = record.times();
    let now = moment(env.now);
    let room = arrival
        .message
        .len()
        .min(arrival.room)
        .min(found.limit.into());
    let fits = usize::from(found.parts.question_end) + record.body_length() <= room;
    if !is_it || now >= expires || !fits || cache.is_renewed(&record) || cache.options.shuffle {
        return None;
    }
    let buffer = Buffer {
        message: arrival.message,
        length: found.length.into(),
        question_end: found.parts.question_end,
        client_flags: found.client_flags,
    };
    let length = buffer.fill(&record, Ttl::Age(cache.age(stored, now)))?;
    cache.count_hit(env.shard);
    respond::count_own(arrival.message, env.shard);
    Some(length)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{keep, scene, wait};
    use crate::backend::server::HealthMode;
    use crate::config::cache::CacheOptions;
    use crate::counters::Counter;
    use crate::pipeline::rules::actions::response::LimitTTLResponseAction;
    use crate::pipeline::rules::response::ResponseRule;
    use crate::pipeline::rules::selectors::logic::AllRule;
    use crate::pipeline::scene::{Reply, Scene, answer_to, query, query_with_edns};
    use wire::codes::qtype;

    /// What becomes of `asked`, for whose name in lower case there is an answer, and all that was counted.
    fn ask(
        asked: &[u8],
        options: fn(&mut CacheOptions),
        change: fn(&mut Scene),
        in_batch: bool,
    ) -> (Reply, Vec<u64>) {
        let (mut scene, cache) = scene(options);
        let mut known = asked.to_vec();
        known[12..].make_ascii_lowercase();
        let response = answer_to(&known, 0, &[300, 40]);
        assert!(keep(&cache, &scene, &known, &response));
        change(&mut scene);
        let reply = match in_batch {
            true => scene.ask_in_batch(asked).1,
            false => scene.ask(asked),
        };
        let counted = Counter::ALL.map(|(counter, _)| scene.counted(counter));
        let own = [&cache.counts.hits, &cache.counts.misses].map(|counter| counter.sum());
        (reply, [&counted[..], &own].concat())
    }

    #[test]
    fn a_hit_at_once_is_what_the_stages_make_of_it() {
        let limit = |scene: &mut Scene| {
            scene.change(|config| {
                let limit = LimitTTLResponseAction {
                    minimum: 0,
                    maximum: 10,
                    types: Vec::new(),
                };
                config.chains.cache_hit = vec![ResponseRule::new(AllRule, limit)];
            });
        };
        let all_are_down = |scene: &mut Scene| {
            let pool = scene.config.pools[0].as_ref().expect("the default one");
            pool.servers[0].state.set_mode(HealthMode::Down);
            scene.change(|config| config.tuning.stale_cache_entries_ttl = 1_000);
            wait(scene, 500);
        };
        let options: [fn(&mut CacheOptions); 3] = [
            |_| (),
            |options| options.dont_age = true,
            |options| options.shuffle = true,
        ];
        let changes: [fn(&mut Scene); 7] = [
            |_| (),
            |scene| wait(scene, 39),
            |scene| wait(scene, 41),
            |scene| scene.room = 60,
            |scene| scene.frame = 60,
            limit,
            all_are_down,
        ];
        let label = "abcdefghijklmnopqrstuvwxyz.";
        let mut checking_disabled = query("known.example.", qtype::A);
        checking_disabled[3] |= 0x10;
        let queries = [
            query("known.example.", qtype::A),
            query_with_edns("KNOWN.example.", qtype::A, Some(1_232)),
            query(&label.repeat(4), qtype::A),
            checking_disabled,
        ];
        for (number, asked) in queries.iter().enumerate() {
            for (option, options) in options.into_iter().enumerate() {
                for (changed, change) in changes.into_iter().enumerate() {
                    let [at_once, by_stages] =
                        [true, false].map(|in_batch| ask(asked, options, change, in_batch));
                    assert_eq!(at_once, by_stages, "{number}, {option}, {changed}");
                }
            }
        }
    }
}
