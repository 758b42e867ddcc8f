//! Bit maps of types in NSEC, NSEC3 and CSYNC (RFC 4034 §4.1.2).
//!
//! ```text
//! window 1 │ length 1 (1 to 32) │ bit map … │ next window …         type = window × 256 + number of the bit
//! ```

use crate::file::words::{Words, Wrong};
use wire::codes::QtypeText;

/// Checks a map that fills `rest`, and gives its length.
pub(super) fn check(rest: &[u8]) -> Result<usize, &'static str> {
    let mut at = 0;
    let mut windows = 0..256_u16;
    while at < rest.len() {
        let [window, length, ..] = rest[at..] else {
            return Err("bit map of types ends within a window");
        };
        let map = rest.get(at + 2..at + 2 + usize::from(length));
        let Some([.., last]) = map else {
            return Err("bit map of types: a window has 1 to 32 octets");
        };
        // "Blocks are present in the NSEC RR RDATA in increasing numerical order."
        if length > 32 || !windows.contains(&u16::from(window)) {
            return Err("bit map of types: windows must ascend and have 1 to 32 octets");
        }
        // "Trailing zero octets in the bitmap MUST be omitted."
        if *last == 0 {
            return Err("bit map of types: a window must not end with a zero octet");
        }
        windows.start = u16::from(window) + 1;
        at += 2 + usize::from(length);
    }
    Ok(at)
}

/// The types of a checked map, ascending.
pub(crate) fn each(map: &[u8]) -> impl Iterator<Item = u16> + '_ {
    let mut rest = map;
    let windows = std::iter::from_fn(move || {
        let (head, tail) = rest.split_at_checked(2)?;
        let (bits, tail) = tail.split_at_checked(usize::from(head[1]))?;
        rest = tail;
        Some((u16::from(head[0]) << 8, bits))
    });
    windows.flat_map(|(base, bits)| {
        let count = 8 * bits.len().min(32) as u16;
        let is_set = |number: &u16| bits[usize::from(number / 8)] & 0x80 >> (number % 8) != 0;
        (0..count).filter(is_set).map(move |number| base + number)
    })
}

pub(super) fn read(words: &mut Words<'_>, out: &mut Vec<u8>) -> Result<(), Wrong> {
    let mut listed = Vec::with_capacity(16);
    while let Some(word) = words.take() {
        listed.push(word.kind()?);
    }
    write(&mut listed, out);
    Ok(())
}

/// Appends the map of these types.
pub(crate) fn write(kinds: &mut [u16], out: &mut Vec<u8>) {
    kinds.sort_unstable();
    let mut rest = &*kinds;
    while let [first, ..] = rest {
        let window = first >> 8;
        let count = rest.partition_point(|kind| kind >> 8 == window);
        let (these, others) = rest.split_at(count);
        let length = usize::from(these[count - 1] & 0xff) / 8 + 1;
        out.extend([window as u8, length as u8]);
        let start = out.len();
        out.resize(start + length, 0);
        for kind in these {
            out[start + usize::from(kind & 0xff) / 8] |= 0x80 >> (kind % 8);
        }
        rest = others;
    }
}

pub(super) fn print(map: &[u8], out: &mut String) {
    use std::fmt::Write;
    for kind in each(map) {
        // Nothing can fail when a String is written to.
        let _ = write!(out, " {}", QtypeText(kind));
    }
}
