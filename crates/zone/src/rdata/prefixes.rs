//! Address prefixes (APL, RFC 3123).
//!
//! ```text
//! family 2 │ prefix length 1 │ N 1 bit, length 7 bits │ address, its last zero octets left out │ next …
//! ```

use crate::file::words::{Word, Words, Wrong, decimal};
use std::fmt::Write;
use std::net::{Ipv4Addr, Ipv6Addr};

const NEGATION: u8 = 0x80;

struct Item<'o> {
    family: u16,
    prefix_length: u8,
    negated: bool,
    address: &'o [u8],
}

/// The first of the prefixes, and what follows it.
fn first(rest: &[u8]) -> Result<(Item<'_>, &[u8]), &'static str> {
    const SHORT: &str = "address prefix ends within a field";
    let ([high, low, prefix_length, length], rest) = rest.split_first_chunk().ok_or(SHORT)?;
    let (address, rest) = rest
        .split_at_checked(usize::from(length & !NEGATION))
        .ok_or(SHORT)?;
    let item = Item {
        family: u16::from_be_bytes([*high, *low]),
        prefix_length: *prefix_length,
        negated: length & NEGATION != 0,
        address,
    };
    let octets_max = match item.family {
        1 => 4,
        2 => 16,
        _ => return Ok((item, rest)),
    };
    if address.len() > octets_max || usize::from(*prefix_length) > 8 * octets_max {
        return Err("address prefix longer than its address");
    }
    // RFC 3123 §4: "MUST NOT include trailing zero octets".
    if address.last() == Some(&0) {
        return Err("address of a prefix ends with a zero octet, which must be left out");
    }
    Ok((item, rest))
}

/// Checks what fills `rest`, and gives its length.
pub(super) fn check(rest: &[u8]) -> Result<usize, &'static str> {
    let mut left = rest;
    while !left.is_empty() {
        (_, left) = first(left)?;
    }
    Ok(rest.len())
}

pub(super) fn read(words: &mut Words<'_>, out: &mut Vec<u8>) -> Result<(), Wrong> {
    while let Some(word) = words.take() {
        prefix(&word, out).ok_or_else(|| {
            word.wrong("an address prefix such as 1:192.0.2.0/24 or !2:2001:db8::/32 belongs here")
        })?;
    }
    Ok(())
}

fn prefix(word: &Word<'_>, out: &mut Vec<u8>) -> Option<()> {
    let text = std::str::from_utf8(word.text).ok()?;
    let (negation, text) = match text.strip_prefix('!') {
        Some(text) => (NEGATION, text),
        None => (0, text),
    };
    let (family, text) = text.split_once(':')?;
    let (address, length) = text.split_once('/')?;
    let octets: &[u8] = match family {
        "1" => &address.parse::<Ipv4Addr>().ok()?.octets(),
        "2" => &address.parse::<Ipv6Addr>().ok()?.octets(),
        _ => return None,
    };
    let length =
        decimal(length.as_bytes()).filter(|length| *length as usize <= 8 * octets.len())?;
    let used = octets
        .iter()
        .rposition(|octet| *octet != 0)
        .map_or(0, |at| at + 1);
    out.extend([
        0,
        family.as_bytes()[0] - b'0',
        length as u8,
        negation | used as u8,
    ]);
    out.extend_from_slice(&octets[..used]);
    Some(())
}

/// `None` where a family has no text form.
pub(super) fn print(mut rest: &[u8], out: &mut String) -> Option<()> {
    while !rest.is_empty() {
        let (item, others) = first(rest).ok()?;
        out.push_str(if item.negated { " !" } else { " " });
        let mut octets = [0; 16];
        octets
            .get_mut(..item.address.len())?
            .copy_from_slice(item.address);
        let [a, b, c, d, ..] = octets;
        // Nothing can fail when a String is written to.
        let _ = match item.family {
            1 => write!(out, "1:{}", Ipv4Addr::new(a, b, c, d)),
            2 => write!(out, "2:{}", Ipv6Addr::from(octets)),
            _ => return None,
        };
        let _ = write!(out, "/{}", item.prefix_length);
        rest = others;
    }
    Some(())
}
