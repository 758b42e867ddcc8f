//! IPv6 addresses in parts (A6, RFC 2874), historic since RFC 6563.
//!
//! ```text
//! prefix length 1 │ address suffix 0..16, as many octets as hold the other bits │ prefix name, where the length is not 0
//! ```

use super::read::{IP6, parsed};
use crate::file::words::{Words, Wrong};
use std::fmt::Write;
use std::net::Ipv6Addr;

/// Octets of the suffix of an address whose first `prefix` bits are elsewhere.
fn suffix_length(prefix: u8) -> usize {
    (128 - usize::from(prefix)).div_ceil(8)
}

/// Octets of prefix length and suffix.
pub(super) fn check(rest: &[u8]) -> Result<usize, &'static str> {
    match rest.first() {
        Some(prefix @ ..=128) => Ok(1 + suffix_length(*prefix)),
        Some(_) => Err("prefix length over 128: an IPv6 address has 128 bits"),
        None => Err("prefix length is missing: 0 to 128 belongs here"),
    }
}

/// `prefix-length address`; the address may be left out where the prefix length is 128 (RFC 2874 §3.1.1).
pub(super) fn read(words: &mut Words<'_>, out: &mut Vec<u8>) -> Result<(), Wrong> {
    let prefix = words.want("the prefix length")?.number(128)? as u8;
    out.push(prefix);
    if prefix == 128 {
        // It has no bit that counts here.
        if words
            .peek()
            .is_some_and(|word| parsed::<Ipv6Addr>(&word, IP6).is_ok())
        {
            words.take();
        }
        return Ok(());
    }
    let address: Ipv6Addr = parsed(&words.want(IP6)?, IP6)?;
    let suffix = out.len();
    out.extend(&address.octets()[16 - suffix_length(prefix)..]);
    // RFC 2874 §3.1: "Pad bits, if present, MUST be set to zero when loading a zone file".
    out[suffix] &= 0xff >> (prefix % 8);
    Ok(())
}

/// `None`: bits that the text form has no place for are set.
pub(super) fn print(octets: &[u8], out: &mut String) -> Option<()> {
    let (prefix, suffix) = octets.split_first()?;
    let mut address = [0; 16];
    address
        .get_mut(16_usize.checked_sub(suffix.len())?..)?
        .copy_from_slice(suffix);
    let address = u128::from_be_bytes(address);
    // Nothing can fail when a String is written to.
    let _ = match 128 - u32::from(*prefix) {
        0 => write!(out, " {prefix}"),
        bits if address.checked_shr(bits).unwrap_or(0) != 0 => return None,
        _ => write!(out, " {prefix} {}", Ipv6Addr::from(address)),
    };
    Some(())
}
