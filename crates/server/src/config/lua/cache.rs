//! newPacketCache. What becomes of a cache is said by its pool: `getPool(name):setCache(cache)`.

use super::objects::cache::CacheObject;
use super::options::{Flag, Options, shown};
use super::{define, spec, wrong};
use crate::config::cache::CacheOptions;
use crate::heap;
use mlua::{FromLua, Lua, MultiValue, Value};
use wire::codes::edns_option;

pub(super) fn register(lua: &Lua) -> mlua::Result<()> {
    define(lua, "newPacketCache", |lua, (entries, second, rest)| {
        let options = options(lua, entries, second, rest)?;
        Ok(CacheObject(spec(lua)?.add_cache(options)))
    })
}

/// Each entry takes up to two KiB: so many are more than any machine has.
const ENTRIES_MAX: usize = 1 << 32;

fn options(
    lua: &Lua,
    entries: Value,
    second: Value,
    rest: MultiValue,
) -> mlua::Result<CacheOptions> {
    let Ok(entries @ 1..=ENTRIES_MAX) = usize::from_lua(entries.clone(), lua) else {
        let got = shown(&entries);
        return Err(wrong(format!(
            "a number of entries from 1 to {ENTRIES_MAX} expected, got {got}"
        )));
    };
    check_room(entries)?;
    match second {
        Value::Nil => Ok(CacheOptions::new(entries)),
        Value::Table(table) => {
            from_table(entries, Options::new(lua, "newPacketCache", Some(table)))
        }
        second => from_list(lua, entries, second, rest),
    }
}

/// Whether the machine gives the part of a cache that is there from the start: 16 bytes an entry for the table, and some
/// for the list of the log's parts. Asked for here, and given back, because the cache itself could only abort.
fn check_room(entries: usize) -> mlua::Result<()> {
    let bytes = entries.saturating_mul(17);
    if heap::gives(bytes) {
        return Ok(());
    }
    Err(wrong(format!(
        "{entries} entries need {} MiB of memory at once and up to {} MiB when full, which this machine does not give",
        bytes >> 20,
        entries.saturating_mul(2_048) >> 20
    )))
}

/// `newPacketCache(entries, {maxTTL=, …})`.
fn from_table(entries: usize, mut options: Options<'_>) -> mlua::Result<CacheOptions> {
    let mut cache = CacheOptions::new(entries);
    for (name, field) in [
        ("maxTTL", &mut cache.maximum_ttl),
        ("minTTL", &mut cache.minimum_ttl),
        ("maxNegativeTTL", &mut cache.maximum_negative_ttl),
        ("temporaryFailureTTL", &mut cache.temporary_failure_ttl),
        ("staleTTL", &mut cache.stale_ttl),
        ("truncatedTTL", &mut cache.truncated_ttl),
    ] {
        *field = options.number(name, "seconds")?.unwrap_or(*field);
    }
    for (name, field) in [
        ("dontAge", &mut cache.dont_age),
        ("keepStaleData", &mut cache.keep_stale_data),
        ("parseECS", &mut cache.parse_subnet),
        ("cookieHashing", &mut cache.cookie_hashing),
        ("shuffle", &mut cache.shuffle),
    ] {
        *field = options.flag(name)?.unwrap_or(*field);
    }
    if let Some(bytes) = options.number("maximumEntrySize", "bytes")? {
        cache.maximum_entry_size = bytes;
    }
    cache.skip_options = skip_options(cache.skip_options, &mut options, cache.cookie_hashing)?;
    cache.payload_ranks = payload_ranks(&mut options, cache.maximum_entry_size)?;
    // There are no locks: who meets another writer never waits for it.
    options.skip("deferrableInsertLock");
    options.skip("numberOfShards");
    options.finish()?;
    Ok(cache)
}

/// The manual calls `skipOptions` an extra list; a cookie that is hashed is not skipped.
fn skip_options(
    default: Vec<u16>,
    options: &mut Options<'_>,
    cookie_hashing: bool,
) -> mlua::Result<Vec<u16>> {
    let mut skipped = default;
    skipped.extend(options.get::<Vec<u16>>("skipOptions")?.unwrap_or_default());
    skipped.retain(|option| !(cookie_hashing && *option == edns_option::COOKIE));
    skipped.sort_unstable();
    skipped.dedup();
    Ok(skipped)
}

/// What is below 512 or above maximumEntrySize is left out, as the manual says, and the order is no matter.
fn payload_ranks(options: &mut Options<'_>, maximum: usize) -> mlua::Result<Vec<u16>> {
    let sizes: Option<Vec<i64>> = options.get("payloadRanks")?;
    let fits = |size: &u16| (512..=maximum).contains(&usize::from(*size));
    let rank = |size: i64| u16::try_from(size).ok().filter(fits);
    let mut ranks: Vec<u16> = sizes.into_iter().flatten().filter_map(rank).collect();
    ranks.sort_unstable();
    ranks.dedup();
    Ok(ranks)
}

/// The form before 1.4: `newPacketCache(entries, maxTTL, minTTL, temporaryFailureTTL, staleTTL, dontAge, numberOfShards,
/// deferrableInsertLock, maxNegativeTTL, parseECS)`.
fn from_list(
    lua: &Lua,
    entries: usize,
    maximum_ttl: Value,
    rest: MultiValue,
) -> mlua::Result<CacheOptions> {
    type Rest = (
        Option<u32>,
        Option<u32>,
        Option<u32>,
        Option<Flag>,
        Option<u32>,
        Option<Flag>,
        Option<u32>,
        Option<Flag>,
    );
    let mut cache = CacheOptions::new(entries);
    let (minimum, failure, stale, dont_age, _shards, _deferrable, negative, parse_ecs) =
        lua.unpack_multi::<Rest>(rest)?;
    cache.maximum_ttl = u32::from_lua(maximum_ttl, lua)?;
    cache.minimum_ttl = minimum.unwrap_or(cache.minimum_ttl);
    cache.temporary_failure_ttl = failure.unwrap_or(cache.temporary_failure_ttl);
    cache.stale_ttl = stale.unwrap_or(cache.stale_ttl);
    cache.dont_age = Flag::or(dont_age, cache.dont_age);
    cache.maximum_negative_ttl = negative.unwrap_or(cache.maximum_negative_ttl);
    cache.parse_subnet = Flag::or(parse_ecs, false);
    Ok(cache)
}
