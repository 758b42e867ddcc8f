//! Versions that secondaries do not see: they take one whose serial is greater than theirs (RFC 1982), and no other.

use zone::transfer::{Change, serial};
use zone::zone::Zone;

/// The greatest serial that secondaries may have, where the zone's own is not newer than it.
pub(super) type Greatest = Option<u32>;

/// What a version is to secondaries that takes the place of another one.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// The same version again.
    Same,
    /// Whoever has the serial before has the version before: what has changed since makes this one of it.
    Next,
    /// Whoever has the serial before may have another version of it: what has changed would make of that one what nobody has. And
    /// what is wrong with the new serial, where secondaries do not see it.
    Anew(Option<String>),
}

/// A version of serial `new` serves from now on in place of that of serial `before`.
pub(super) fn step(
    greatest: &mut Greatest,
    (before, new): (u32, u32),
    is_same: impl FnOnce() -> bool,
) -> Step {
    if before == new && is_same() {
        return Step::Same;
    }
    let unpassed = greatest.filter(|greatest| !serial::is_newer(before, *greatest));
    let known = unpassed.unwrap_or(before);
    let is_seen = serial::is_newer(new, known);
    *greatest = (!is_seen).then_some(known);
    match (is_seen, unpassed) {
        (true, None) => Step::Next,
        (true, Some(_)) => Step::Anew(None),
        (false, _) => Step::Anew(Some(warning((before, new), known))),
    }
}

fn warning((before, new): (u32, u32), known: u32) -> String {
    let went = match before == new {
        true => format!("is {new} as before"),
        false => format!("went from {before} to {new}"),
    };
    let known_by = match known == before {
        true => "",
        false => ", which they may have",
    };
    format!(
        "its serial {went}: secondaries do not see it until the serial is greater than {known}{known_by}"
    )
}

impl Step {
    /// What is wrong with the serial of a version that was read from a file.
    pub(super) fn of_file(self) -> Option<String> {
        let warning = self.warning()?;
        Some(format!("the file has changed and {warning}"))
    }

    /// What is wrong with the serial.
    pub(super) fn warning(self) -> Option<String> {
        match self {
            Step::Anew(warning) => warning,
            Step::Same | Step::Next => None,
        }
    }
}

/// Whether two versions have the same records.
pub(super) fn are_same(old: &Zone, new: &Zone) -> bool {
    std::ptr::eq(old, new)
        || Change::between(old.records(), new.records()).is_some_and(|change| is_none(&change))
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
        let mut said = |new: u32| {
            let said = step(&mut greatest, (before, new), || false).warning();
            before = new;
            said.map_or(String::new(), |said| said.replace("its serial ", ""))
        };
        let until = ": secondaries do not see it until the serial is greater than 300";
        assert_eq!(said(100), format!("went from 300 to 100{until}"));
        for (new, went) in [
            (101, "went from 100 to 101"),
            (101, "is 101 as before"),
            (300, "went from 101 to 300"),
            (299, "went from 300 to 299"),
            (300 + (1 << 31), "went from 299 to 2147483948"),
        ] {
            let said = said(new);
            assert!(said.starts_with(&format!("{went}{until}")), "{said}");
        }
        assert_eq!(said(301), "");
        // RFC 1982 §7: how a serial is lowered.
        assert_eq!([said(301 + (1 << 31) - 1), said(7)], ["", ""]);
        assert!(said(6).ends_with("greater than 7"));
    }

    #[test]
    fn the_same_version_is_nothing_new() {
        let mut greatest = None;
        assert_eq!(step(&mut greatest, (7, 7), || true), Step::Same);
        assert_eq!(greatest, None);
        let other = step(&mut greatest, (7, 7), || false);
        assert!(other.of_file().is_some() && greatest == Some(7));
        assert_eq!(step(&mut greatest, (7, 7), || true), Step::Same);
        assert_eq!(greatest, Some(7));
    }

    #[test]
    fn changes_lead_on_from_a_serial_that_was_one_version_only() {
        let mut greatest = None;
        let mut step = |before: u32, new: u32| step(&mut greatest, (before, new), || false);
        assert_eq!(step(300, 301), Step::Next);
        assert!(matches!(step(301, 301), Step::Anew(Some(_))));
        assert!(matches!(step(301, 15), Step::Anew(Some(_))));
        assert!(matches!(step(15, 300), Step::Anew(Some(_))));
        assert_eq!(step(300, 302), Step::Anew(None));
        assert_eq!(step(302, 303), Step::Next);
    }
}
