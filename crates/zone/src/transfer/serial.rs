//! Serial numbers of zones, which wrap (RFC 1982).

use std::cmp::Ordering;

/// How serial `a` stands to `b`: RFC 1982 §3.2. `None` where they are 2³¹ apart, of which "the result of the comparison
/// is undefined".
#[must_use]
pub fn compare(a: u32, b: u32) -> Option<Ordering> {
    match a.wrapping_sub(b) {
        0 => Some(Ordering::Equal),
        1..=0x7fff_ffff => Some(Ordering::Greater),
        0x8000_0000 => None,
        _ => Some(Ordering::Less),
    }
}

/// Whether a zone of serial `candidate` replaces one of serial `held`.
#[must_use]
pub fn is_newer(candidate: u32, held: u32) -> bool {
    compare(candidate, held) == Some(Ordering::Greater)
}

/// The serial in the RDATA of a SOA record; `None` where that is none.
#[must_use]
pub fn of_soa(rdata: &[u8]) -> Option<u32> {
    // Two names, then five numbers of 32 bits.
    let start = rdata.len().checked_sub(20)?;
    rdata
        .get(start..)?
        .first_chunk()
        .map(|serial| u32::from_be_bytes(*serial))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn examples_of_rfc_1982() {
        for (greater, less) in [
            (1, 0),
            (44, 0),
            (100, 0),
            (100, 44),
            (200, 100),
            (0xffff_fff0, 0x8000_0000),
            (0, u32::MAX),
            (44, 0xffff_ff00),
        ] {
            assert!(is_newer(greater, less), "{greater} {less}");
            assert!(!is_newer(less, greater), "{less} {greater}");
            assert_eq!(compare(less, greater), Some(Ordering::Less));
        }
        assert_eq!(compare(0, 1 << 31), None);
        assert_eq!(compare(7, 7), Some(Ordering::Equal));
        assert!(!is_newer(1 << 31, 0) && !is_newer(0, 1 << 31));
    }
}
