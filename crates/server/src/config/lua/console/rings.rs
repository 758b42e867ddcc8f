//! The rings of recent queries and responses, of all workers together.

use super::serving;
use crate::pipeline::rings::{Entry, Rings};
use mlua::Lua;

/// Recent queries, the oldest first.
pub(super) fn queries(lua: &Lua) -> Vec<Entry> {
    read(lua, Rings::queries)
}

/// Recent responses of backends, the oldest first.
pub(super) fn responses(lua: &Lua) -> Vec<Entry> {
    read(lua, Rings::responses)
}

/// Queries that no backend answered in time, the oldest first.
pub(super) fn timeouts(lua: &Lua) -> Vec<Entry> {
    read(lua, Rings::timeouts)
}

/// Responses and timeouts together, the oldest first.
pub(super) fn outcomes(lua: &Lua) -> Vec<Entry> {
    let mut entries = responses(lua);
    entries.extend(timeouts(lua));
    entries.sort_by_key(|entry| entry.time);
    entries
}

fn read(lua: &Lua, ring: fn(&Rings) -> Vec<Entry>) -> Vec<Entry> {
    let shards = serving(lua).map(|metrics| metrics.running().shards());
    let shards = shards.unwrap_or_default();
    let mut entries: Vec<Entry> = shards.iter().flat_map(|shard| ring(&shard.rings)).collect();
    entries.sort_by_key(|entry| entry.time);
    entries
}
