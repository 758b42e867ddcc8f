//! Versions that secondaries do not see: they take one whose serial is greater than theirs (RFC 1982), and no other.

use zone::transfer::{Change, serial};
use zone::zone::Zone;

/// The greatest serial that secondaries may have, where the zone's own is not newer than it.
pub(super) type Greatest = Option<u32>;

/// What is wrong with the serial of a version that serves from now on in place of that of serial `before`; nothing where
/// secondaries see it, or it is the same version.
pub(super) fn unseen(
    greatest: &mut Greatest,
    (before, new): (u32, u32),
    is_same: impl FnOnce() -> bool,
) -> Option<String> {
    let is_passed = |greatest: &u32| serial::is_newer(before, *greatest);
    let known = greatest.filter(|known| !is_passed(known)).unwrap_or(before);
    let is_seen = serial::is_newer(new, known);
    *greatest = (!is_seen).then_some(known);
    if is_seen || is_same() {
        return None;
    }
    let went = match before == new {
        true => format!("is {new} as before"),
        false => format!("went from {before} to {new}"),
    };
    let known_by = match known == before {
        true => "",
        false => ", which they may have",
    };
    Some(format!(
        "the file has changed and its serial {went}: secondaries do not see it until the serial is greater than {known}{known_by}"
    ))
}

/// Whether two versions have the same records.
pub(super) fn are_same(old: &Zone, new: &Zone) -> bool {
    Change::between(old.records(), new.records()).is_some_and(|change| is_none(&change))
}

/// Whether it changes nothing, the SOA record included.
pub(super) fn is_none(change: &Change) -> bool {
    change.from == change.to && change.removed.is_empty() && change.added.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each step's text behind "serial ", up to the colon, and the serial that has to be exceeded.
    #[test]
    fn a_serial_is_held_against_the_greatest_that_secondaries_may_have() {
        let mut greatest = None;
        let mut before = 300;
        let mut step = |new: u32| {
            let said = unseen(&mut greatest, (before, new), || false);
            before = new;
            said.map_or(String::new(), |said| {
                said.replace("the file has changed and its serial ", "")
            })
        };
        let until = ": secondaries do not see it until the serial is greater than 300";
        assert_eq!(step(100), format!("went from 300 to 100{until}"));
        for (new, went) in [
            (101, "went from 100 to 101"),
            (101, "is 101 as before"),
            (300, "went from 101 to 300"),
            (299, "went from 300 to 299"),
            (300 + (1 << 31), "went from 299 to 2147483948"),
        ] {
            let said = step(new);
            assert!(said.starts_with(&format!("{went}{until}")), "{said}");
        }
        assert_eq!(step(301), "");
        // RFC 1982 §7: how a serial is lowered.
        assert_eq!([step(301 + (1 << 31) - 1), step(7)], ["", ""]);
        assert!(step(6).ends_with("greater than 7"));
    }

    #[test]
    fn the_same_version_is_nothing_new() {
        let mut greatest = None;
        assert_eq!(unseen(&mut greatest, (7, 7), || true), None);
        assert!(unseen(&mut greatest, (7, 7), || false).is_some());
    }
}
