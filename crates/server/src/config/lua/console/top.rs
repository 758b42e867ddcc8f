//! Who or what stands most often in the rings: the part that topQueries and its sisters share.

use super::super::define;
use super::{rings, say};
use crate::pipeline::rings::Entry;
use mlua::{Lua, Table};
use std::collections::HashMap;
use wire::name::NameBuf;

/// How many are told of, when nobody says.
const TOP: usize = 10;

/// topSlow's limit, in milliseconds, when nobody says.
const SLOW: u32 = 2_000;

pub(super) fn register(lua: &Lua) -> mlua::Result<()> {
    let queries = |lua: &Lua, (top, labels): (Option<usize>, Option<usize>)| {
        ranking(&names(&rings::queries(lua), labels), top)
    };
    both(lua, "topQueries", "getTopQueries", queries)?;
    define(lua, "topClients", |lua, top: Option<usize>| {
        let clients = clients(&rings::queries(lua), |_| 1);
        show(lua, &ranking(&clients, top));
        Ok(())
    })?;
    let bandwidth = |lua: &Lua, top: Option<usize>| {
        let mut entries = rings::queries(lua);
        entries.extend(rings::responses(lua));
        ranking(&clients(&entries, |entry| entry.size.into()), top)
    };
    both(lua, "topBandwidth", "getTopBandwidth", bandwidth)?;
    type OfResponses = (Option<usize>, Option<u16>, Option<usize>);
    let responses = |lua: &Lua, (top, rcode, labels): OfResponses| {
        let mut entries = rings::responses(lua);
        entries.retain(|entry| entry.flags & 15 == rcode.unwrap_or(0));
        ranking(&names(&entries, labels), top)
    };
    both(lua, "topResponses", "getTopResponses", responses)?;
    type OfSlow = (Option<usize>, Option<u32>, Option<usize>);
    let slow = |lua: &Lua, (top, limit, labels): OfSlow| {
        let mut entries = rings::responses(lua);
        let limit = limit.unwrap_or(SLOW).saturating_mul(1_000);
        entries.retain(|entry| {
            entry
                .answered
                .is_some_and(|answered| answered.latency_microseconds > limit)
        });
        ranking(&names(&entries, labels), top)
    };
    both(lua, "topSlow", "getSlowResponses", slow)?;
    type OfTimeouts = (Option<usize>, Option<usize>);
    define(lua, "topTimeouts", |lua, (top, labels): OfTimeouts| {
        show(lua, &ranking(&names(&rings::timeouts(lua), labels), top));
        Ok(())
    })
}

/// The function that shows a ranking, and the one that returns it.
fn both<A: mlua::FromLuaMulti>(
    lua: &Lua,
    show_name: &'static str,
    get_name: &'static str,
    rank: impl Fn(&Lua, A) -> Vec<Ranked> + Copy + Send + Sync + 'static,
) -> mlua::Result<()> {
    define(lua, show_name, move |lua, arguments: A| {
        show(lua, &rank(lua, arguments));
        Ok(())
    })?;
    define(lua, get_name, move |lua, arguments: A| {
        let rows = rank(lua, arguments)
            .into_iter()
            .map(|ranked| ranked.table(lua));
        rows.collect::<mlua::Result<Vec<Table>>>()
    })
}

/// One line of a ranking.
#[derive(Debug, Clone, PartialEq)]
struct Ranked {
    what: String,
    count: u64,
    percentage: f64,
}

impl Ranked {
    /// dnsdist's triple.
    fn table(&self, lua: &Lua) -> mlua::Result<Table> {
        let row = lua.create_table()?;
        row.raw_set(1, self.what.as_str())?;
        row.raw_set(2, self.count)?;
        row.raw_set(3, self.percentage)?;
        Ok(row)
    }
}

fn show(lua: &Lua, ranking: &[Ranked]) {
    for (place, ranked) in ranking.iter().enumerate() {
        let Ranked {
            what,
            count,
            percentage,
        } = ranked;
        let place = place + 1;
        say(
            lua,
            format!("{place:>4}  {what:<40} {count:>4} {percentage:>4.1}%"),
        );
    }
}

/// The most frequent ones, then the rest together.
fn ranking(counts: &HashMap<String, u64>, top: Option<usize>) -> Vec<Ranked> {
    let all: u64 = counts.values().sum();
    let mut sorted: Vec<_> = counts.iter().collect();
    sorted.sort_by(|(name, count), (other_name, other)| {
        other.cmp(count).then_with(|| name.cmp(other_name))
    });
    sorted.truncate(top.unwrap_or(TOP));
    let rest = all - sorted.iter().map(|(_, count)| **count).sum::<u64>();
    let ranked = sorted
        .into_iter()
        .map(|(what, count)| (what.clone(), *count));
    let ranked = ranked.chain([("Rest".to_owned(), rest)]);
    ranked
        .map(|(what, count)| Ranked {
            what,
            count,
            // Of nothing the rest is all.
            percentage: if all == 0 {
                100.0
            } else {
                100.0 * count as f64 / all as f64
            },
        })
        .collect()
}

/// How often each name stands there, cut down to its last `labels` labels.
fn names(entries: &[Entry], labels: Option<usize>) -> HashMap<String, u64> {
    let mut counts = HashMap::new();
    for entry in entries {
        let name = last_labels(&entry.name, labels).to_ascii_lowercase();
        *counts.entry(name).or_default() += 1;
    }
    counts
}

fn last_labels(name: &NameBuf, labels: Option<usize>) -> String {
    let name = name.as_name();
    let Some(labels) = labels else {
        return name.to_string();
    };
    let mut suffixes = name.suffixes();
    let found = suffixes.find(|suffix| suffix.labels_count() <= labels);
    found.map_or_else(|| ".".to_owned(), |suffix| suffix.to_string())
}

/// What each client's entries weigh.
fn clients(entries: &[Entry], weight: impl Fn(&Entry) -> u64) -> HashMap<String, u64> {
    let mut counts = HashMap::new();
    for entry in entries {
        *counts.entry(entry.client.ip().to_string()).or_default() += weight(entry);
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_is_told_of_too() {
        let counts = [("a.", 3), ("b.", 1), ("c.", 1), ("d.", 5)];
        let counts = counts.map(|(name, count)| (name.to_owned(), count));
        let ranked = ranking(&HashMap::from(counts), Some(2));
        let rows: Vec<_> = ranked
            .iter()
            .map(|ranked| (ranked.what.as_str(), ranked.count, ranked.percentage))
            .collect();
        assert_eq!(rows, [("d.", 5, 50.0), ("a.", 3, 30.0), ("Rest", 2, 20.0)]);
        let empty = ranking(&HashMap::new(), None);
        assert_eq!((empty.len(), empty[0].percentage), (1, 100.0));
    }

    #[test]
    fn names_are_cut_from_the_left() {
        let name: NameBuf = "a.b.Example.com.".parse().unwrap();
        for (labels, expected) in [
            (None, "a.b.Example.com."),
            (Some(9), "a.b.Example.com."),
            (Some(2), "Example.com."),
            (Some(0), "."),
        ] {
            assert_eq!(last_labels(&name, labels), expected);
        }
    }
}
