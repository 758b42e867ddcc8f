//! I7: no ID or port of a query to a backend can be predicted from those before it.

use super::{Checked, Violation};
use std::collections::{BTreeMap, HashSet};
use std::net::{IpAddr, SocketAddr};

/// Queries at the end of a run that leave one after the other.
pub(super) const IN_A_ROW: usize = 9;

/// Queries that say something of the ports of one pool.
const QUERIES: usize = 5;

/// What a query to a backend has that whoever forges answers must know.
#[derive(Debug, Clone, Copy)]
pub(super) struct Key {
    pub(super) source: SocketAddr,
    pub(super) id: u16,
    /// It is marked: such queries leave from ports of their own.
    pub(super) is_marked: bool,
}

/// The keys of all queries of a run, in order, the last [`IN_A_ROW`] of them one after the other.
pub(super) fn check(keys: &[Key]) -> Checked {
    let (_, in_a_row) = keys.split_at(keys.len().saturating_sub(IN_A_ROW));
    check_ids(in_a_row)?;
    check_ports(keys)
}

/// Where IDs are random no step leads from each to the next. Steps are taken modulo the eight IDs that there are here.
fn check_ids(keys: &[Key]) -> Checked {
    let steps = keys.windows(2);
    let steps: HashSet<u16> = steps
        .map(|pair| pair[1].id.wrapping_sub(pair[0].id) % 8)
        .collect();
    if keys.len() == IN_A_ROW && steps.len() == 1 {
        let what = format!("each ID follows from the last one: {keys:?}");
        return Err(Violation::new("I7", what));
    }
    Ok(())
}

/// Each pool has two ports, of which each batch chooses one: by chance one pool may use the same all the time, not all three.
fn check_ports(keys: &[Key]) -> Checked {
    let mut pools: BTreeMap<(IpAddr, bool), Vec<u16>> = BTreeMap::new();
    for key in keys {
        let pool = pools.entry((key.source.ip(), key.is_marked)).or_default();
        pool.push(key.source.port());
    }
    let is_stuck =
        |ports: &Vec<u16>| ports.len() >= QUERIES && ports.iter().all(|port| *port == ports[0]);
    if pools.len() == 3 && pools.values().all(is_stuck) {
        let what = format!("always the same ports: {pools:?}");
        return Err(Violation::new("I7", what));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    fn keys(mut key: impl FnMut(u16) -> (u16, u16)) -> Vec<Key> {
        let sources = ["192.0.2.1", "2001:db8::1", "192.0.2.1"];
        let sources = sources.map(|text| text.parse().expect("an address"));
        let all = (0..60).map(|number| {
            let (port, id) = key(number);
            let pool = usize::from(number % 3);
            Key {
                source: SocketAddr::new(sources[pool], port),
                id,
                is_marked: pool == 2,
            }
        });
        all.collect()
    }

    #[test]
    fn random_keys_are_well_and_others_are_not() {
        let mut random = Random::from_seed(1);
        let well = keys(|_| (1_024 + random.below(2) as u16, random.below(8) as u16));
        assert!(check(&well).is_ok());
        let counted = keys(|number| (1_024 + random.below(2) as u16, number * 3 % 8));
        assert!(check(&counted).is_err() && check(&counted[..5]).is_ok());
        let one_port = keys(|_| (1_024, random.below(8) as u16));
        assert!(check(&one_port).is_err());
    }
}
