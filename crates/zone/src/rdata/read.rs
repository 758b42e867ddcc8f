//! RDATA from words: one reader per kind of field.

use super::table::{self, Field};
use super::{RDATA_LENGTH_MAX, a6, kinds, location, params, prefixes};
use crate::file::words::{Word, Words, Wrong, decimal};
use crate::rdata;
use data_encoding::{BASE32HEX_NOPAD, BASE64, Encoding, HEXLOWER_PERMISSIVE};
use std::net::{Ipv4Addr, Ipv6Addr};
use wire::codes::{QtypeText, qtype};

/// Appends the RDATA of a record of this type to `out`. All words left must belong to it.
pub(crate) fn read(kind: u16, words: &mut Words<'_>, out: &mut Vec<u8>) -> Result<(), Wrong> {
    let start = out.len();
    if words
        .peek()
        .is_some_and(|word| word.text == b"\\#" && !word.quoted)
    {
        return generic(kind, words, out);
    }
    let row = table::row(kind).ok_or_else(|| {
        words.wrong(format!(
            "{} has no text form: its RDATA is written \\# length hexadecimal (RFC 3597), such as \\# 2 c0ff",
            QtypeText(kind)
        ))
    })?;
    for field in row {
        if is_deletion(kind, *field, words, &out[start..]) {
            words.take();
            out.push(0);
        } else {
            read_field(*field, words, start, out)?;
        }
    }
    words.end("the record")?;
    if out.len() - start > RDATA_LENGTH_MAX {
        return Err(words.wrong(format!(
            "RDATA of {} octets: {RDATA_LENGTH_MAX} is the most",
            out.len() - start
        )));
    }
    Ok(())
}

/// Whether the next word is the last of "CDS 0 0 0 0" or "CDNSKEY 0 3 0 0", as RFC 8078 §4 writes the records that ask a parent
/// to delete its DS records. Its octet is written 00, or AA==, elsewhere.
fn is_deletion(kind: u16, field: Field, words: &Words<'_>, before: &[u8]) -> bool {
    let front = match (kind, field) {
        (qtype::CDS, Field::Digest) => [0_u8, 0, 0, 0],
        (qtype::CDNSKEY, Field::Base64) => [0, 0, 3, 0],
        _ => return false,
    };
    before == front && words.peek().is_some_and(|word| word.text == b"0")
}

/// `\# length hexadecimal` (RFC 3597 §5), for known types as well.
fn generic(kind: u16, words: &mut Words<'_>, out: &mut Vec<u8>) -> Result<(), Wrong> {
    words.take();
    let start = out.len();
    let length_word = words.want("the number of octets")?;
    let length = length_word.number(RDATA_LENGTH_MAX as u32)? as usize;
    if !words.is_empty() {
        encoded(words, &HEXLOWER_PERMISSIVE, "hexadecimal digits", out)?;
    }
    let found = out.len() - start;
    if found != length {
        return Err(length_word.wrong(format_args!(
            "{found} octets follow: length and octets must agree"
        )));
    }
    // RFC 3597 §5: "the RDATA of a known type must be valid".
    rdata::check(kind, &out[start..]).map_err(|error| length_word.wrong(error))
}

fn read_field(
    field: Field,
    words: &mut Words<'_>,
    start: usize,
    out: &mut Vec<u8>,
) -> Result<(), Wrong> {
    match field {
        Field::U8 => out.push(words.want("a number from 0 to 255")?.number(255)? as u8),
        Field::U16 => {
            let number = words.want("a number from 0 to 65535")?.number(65_535)?;
            out.extend((number as u16).to_be_bytes());
        }
        Field::U32 => {
            let number = words.want("a number from 0 to 4294967295")?;
            out.extend(number.number(u32::MAX)?.to_be_bytes());
        }
        Field::Word8(known) => out.push(mnemonic(words, known)?),
        Field::Word16(known) => out.extend(mnemonic(words, known)?.to_be_bytes()),
        Field::Seconds => {
            let time = words.want("a time, in seconds or with units such as 1h30m,")?;
            out.extend(time.seconds()?.to_be_bytes());
        }
        Field::Time => {
            let time = words.want("a time such as 20261231235959")?;
            out.extend(date(&time)?.to_be_bytes());
        }
        Field::Kind => out.extend(words.want("a type")?.kind()?.to_be_bytes()),
        Field::AddressSuffix => a6::read(words, out)?,
        Field::PrefixName if out[start] == 0 => {}
        Field::Name | Field::PlainName | Field::PrefixName => {
            let origin = words.origin;
            words.want("a name")?.name(origin, out)?;
        }
        Field::Ip4 => out.extend(address::<Ipv4Addr>(words, IP4)?.octets()),
        Field::Ip6 => out.extend(address::<Ipv6Addr>(words, IP6)?.octets()),
        Field::Eui(octets) => eui(&words.want("an identifier")?, octets, out)?,
        Field::Node => node(&words.want("a locator of four groups")?, out)?,
        Field::RelayKind => {
            let discovery = words.want("the discovery bit")?.number(1)? as u8;
            let kind = words.want("the type of the relay")?.number(127)? as u8;
            out.push(discovery << 7 | kind);
        }
        Field::Gateway(mask) => {
            let kind = out[start + 1] & mask;
            gateway(kind, words, out)?;
        }
        Field::Kinds => kinds::read(words, out)?,
        Field::Location => location::read(words, out)?,
        Field::Prefixes => prefixes::read(words, out)?,
        Field::Params => params::read(words, out)?,
        Field::HostIdentity => host_identity(words, out)?,
        Field::Services => services(words, out)?,
        Field::Text
        | Field::OptionalText
        | Field::Texts
        | Field::LongText
        | Field::Tag
        | Field::Base64
        | Field::OptionalBase64
        | Field::Base64OrDash
        | Field::Hex(_)
        | Field::Digest
        | Field::Salt
        | Field::Hash
        | Field::Nsap => octets(field, words, out)?,
    }
    Ok(())
}

/// Fields that are strings or encoded octets.
fn octets(field: Field, words: &mut Words<'_>, out: &mut Vec<u8>) -> Result<(), Wrong> {
    match field {
        Field::Text => text(&words.want("a string")?, out),
        Field::OptionalText => words.take().map_or(Ok(()), |word| text(&word, out)),
        Field::Texts => {
            text(
                &words.want("a string, in quotes where it has blanks,")?,
                out,
            )?;
            while let Some(word) = words.take() {
                text(&word, out)?;
            }
            Ok(())
        }
        Field::LongText => words.want("a string, in quotes")?.octets(out),
        Field::Tag => tag(&words.want("a tag such as issue")?, out),
        Field::OptionalBase64 if words.is_empty() => Ok(()),
        Field::Base64OrDash if words.peek().is_some_and(|word| word.text == b"-") => {
            words.take();
            Ok(())
        }
        Field::Base64 | Field::OptionalBase64 | Field::Base64OrDash => {
            encoded(words, &BASE64, "Base64", out)
        }
        Field::Hex(least) => hex(least, words, out),
        Field::Digest => digest(words, out),
        Field::Salt => salt(&words.want("a salt in hexadecimal, or -,")?, out),
        Field::Hash => {
            let word = words.want("a hash in Base32hex")?;
            let upper = word.text.to_ascii_uppercase();
            counted(
                &word,
                &upper,
                &BASE32HEX_NOPAD,
                "a hash in Base32hex without padding belongs here",
                out,
            )
        }
        _ => nsap(&words.want("an address such as 0x47.0005")?, out),
    }
}

// ---------------------------------------------------------------------------------- numbers and addresses

fn mnemonic<N: Copy + TryFrom<u32>>(
    words: &mut Words<'_>,
    known: &[(&str, N)],
) -> Result<N, Wrong> {
    let example = known.first().map_or("", |(name, _)| name);
    let word = words.want(format_args!("a number, or a name such as {example},"))?;
    let named = known
        .iter()
        .find(|(name, _)| name.as_bytes().eq_ignore_ascii_case(word.text));
    let number = decimal(word.text).and_then(|number| N::try_from(number).ok());
    named.map(|(_, number)| *number).or(number).ok_or_else(|| {
        let most = 256_u64.pow(size_of::<N>() as u32) - 1;
        word.wrong(format_args!(
            "a number from 0 to {most}, or a name such as {example}, belongs here"
        ))
    })
}

const IP4: &str = "an IPv4 address such as 192.0.2.1";
pub(super) const IP6: &str = "an IPv6 address such as 2001:db8::1";

fn address<A: std::str::FromStr>(words: &mut Words<'_>, right: &str) -> Result<A, Wrong> {
    parsed(&words.want(right)?, right)
}

pub(super) fn parsed<A: std::str::FromStr>(word: &Word<'_>, right: &str) -> Result<A, Wrong> {
    let address = std::str::from_utf8(word.text)
        .ok()
        .and_then(|text| text.parse().ok());
    address.ok_or_else(|| word.wrong(format_args!("{right} belongs here")))
}

fn date(word: &Word<'_>) -> Result<u32, Wrong> {
    time(word.text).ok_or_else(|| {
        word.wrong(
            "a time belongs here: YYYYMMDDHHmmSS such as 20261231235959, or seconds since 1970",
        )
    })
}

/// Seconds since 1970, written as fourteen digits or as a plain number (RFC 4034 §3.2).
pub(super) fn time(text: &[u8]) -> Option<u32> {
    match text.len() {
        14 => date_of_digits(text),
        _ => decimal(text),
    }
}

fn date_of_digits(text: &[u8]) -> Option<u32> {
    let number = |range: std::ops::Range<usize>| decimal(&text[range]).map(u64::from);
    let (year, month, day) = (number(0..4)?, number(4..6)?, number(6..8)?);
    let (hour, minute, second) = (number(8..10)?, number(10..12)?, number(12..14)?);
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let month_length = match month {
        4 | 6 | 9 | 11 => 30,
        2 => 28 + u64::from(leap),
        _ => 31,
    };
    let is_date = (1970..=9999).contains(&year)
        && (1..=12).contains(&month)
        && (1..=month_length).contains(&day);
    if !is_date || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let days = days_before_month(year, month) + day - 1;
    // RFC 4034 §3.1.5: times are 32-bit numbers, compared as serials: what is greater wraps.
    Some((days * 86_400 + hour * 3_600 + minute * 60 + second) as u32)
}

/// Days from 1970-01-01 to the first of a month of 1970 or later.
pub(super) fn days_before_month(year: u64, month: u64) -> u64 {
    let leap_days = |year: u64| year / 4 - year / 100 + year / 400;
    let before_year = 365 * (year - 1970) + leap_days(year - 1) - leap_days(1969);
    const BEFORE: [u64; 12] = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334];
    let is_leap = leap_days(year) != leap_days(year - 1);
    before_year + BEFORE[month as usize - 1] + u64::from(is_leap && month > 2)
}

/// `00-00-5e-00-53-2a` (RFC 7043 §3.2).
fn eui(word: &Word<'_>, octets: usize, out: &mut Vec<u8>) -> Result<(), Wrong> {
    let wrong = || {
        word.wrong(format_args!(
            "{octets} pairs of hexadecimal digits joined by '-' belong here"
        ))
    };
    let start = out.len();
    for pair in word.text.split(|octet| *octet == b'-') {
        let octet = hexadecimal(pair, 2)
            .filter(|_| pair.len() == 2)
            .ok_or_else(wrong)?;
        out.push(octet as u8);
    }
    if out.len() - start != octets {
        return Err(wrong());
    }
    Ok(())
}

/// `2001:0DB8:1140:1000` (RFC 6742 §2.1.2).
fn node(word: &Word<'_>, out: &mut Vec<u8>) -> Result<(), Wrong> {
    let wrong = || word.wrong("four groups of hexadecimal digits joined by ':' belong here");
    let start = out.len();
    for group in word.text.split(|octet| *octet == b':') {
        out.extend(hexadecimal(group, 4).ok_or_else(wrong)?.to_be_bytes());
    }
    if out.len() - start != 8 {
        return Err(wrong());
    }
    Ok(())
}

fn hexadecimal(text: &[u8], digits_max: usize) -> Option<u16> {
    let digits = (1..=digits_max).contains(&text.len()) && text.iter().all(u8::is_ascii_hexdigit);
    let text = std::str::from_utf8(text).ok().filter(|_| digits)?;
    u16::from_str_radix(text, 16).ok()
}

fn gateway(kind: u8, words: &mut Words<'_>, out: &mut Vec<u8>) -> Result<(), Wrong> {
    let origin = words.origin;
    let word = words.want("a gateway: an address, a name, or '.',")?;
    match kind {
        0 if word.text == b"." => {}
        0 => return Err(word.wrong("the gateway's type is 0: '.' belongs here")),
        1 => out.extend(
            parsed::<Ipv4Addr>(&word, "the gateway's type is 1: an IPv4 address")?.octets(),
        ),
        2 => out.extend(
            parsed::<Ipv6Addr>(&word, "the gateway's type is 2: an IPv6 address")?.octets(),
        ),
        3 => word.name(origin, out)?,
        _ => {
            return Err(word.wrong(format_args!(
                "unknown type {kind} of gateway: 0 is none, 1 IPv4, 2 IPv6, 3 a name"
            )));
        }
    }
    Ok(())
}

/// Protocol and ports, as numbers or by name (RFC 1035 §3.4.2).
fn services(words: &mut Words<'_>, out: &mut Vec<u8>) -> Result<(), Wrong> {
    out.push(mnemonic(words, &[("tcp", 6_u8), ("udp", 17)])?);
    let start = out.len();
    while !words.is_empty() {
        let port = usize::from(mnemonic(words, table::SERVICES)?);
        let length = (out.len() - start).max(port / 8 + 1);
        out.resize(start + length, 0);
        out[start + port / 8] |= 0x80 >> (port % 8);
    }
    Ok(())
}

/// `algorithm tag key [rendezvous servers]` (RFC 8005 §6).
fn host_identity(words: &mut Words<'_>, out: &mut Vec<u8>) -> Result<(), Wrong> {
    let algorithm = words.want("the algorithm of the key")?.number(255)? as u8;
    let tag = words.want("the host identity tag in hexadecimal")?;
    let start = out.len();
    out.extend([0, algorithm, 0, 0]);
    let right = "a host identity tag of 1 to 255 octets in hexadecimal belongs here";
    let tag_length = decode(&HEXLOWER_PERMISSIVE, tag.text, out).ok_or_else(|| tag.wrong(right))?;
    out[start] = u8::try_from(tag_length).map_err(|_| tag.wrong(right))?;
    let key = words.want("the key in Base64, in one word,")?;
    let right = "a key of 1 to 65535 octets in Base64, without blanks, belongs here";
    let key_length = decode(&BASE64, key.text, out).ok_or_else(|| key.wrong(right))?;
    let length = u16::try_from(key_length).map_err(|_| key.wrong(right))?;
    out[start + 2..start + 4].copy_from_slice(&length.to_be_bytes());
    let origin = words.origin;
    while let Some(word) = words.take() {
        word.name(origin, out)?;
    }
    Ok(())
}

// --------------------------------------------------------------------------------- strings and encodings

/// A character string: at most 255 octets (RFC 1035 §3.3).
fn text(word: &Word<'_>, out: &mut Vec<u8>) -> Result<(), Wrong> {
    let length_at = out.len();
    out.push(0);
    word.octets(out)?;
    let length = out.len() - length_at - 1;
    out[length_at] = u8::try_from(length).map_err(|_| {
        word.wrong(format_args!(
            "string of {length} octets: 255 is the most, write several strings one behind the other"
        ))
    })?;
    Ok(())
}

fn tag(word: &Word<'_>, out: &mut Vec<u8>) -> Result<(), Wrong> {
    let right = "a tag of letters and digits belongs here, such as issue";
    if word.text.is_empty() || !word.text.iter().all(u8::is_ascii_alphanumeric) {
        return Err(word.wrong(right));
    }
    text(word, out)
}

/// Octets to the end in an encoding; blanks may stand anywhere in them.
fn encoded(
    words: &mut Words<'_>,
    encoding: &Encoding,
    what: &str,
    out: &mut Vec<u8>,
) -> Result<(), Wrong> {
    let first = words.want(what)?;
    let wrong = || {
        first.wrong(format_args!(
            "{what}, whole to its last digit, belongs here"
        ))
    };
    let length = match words.take() {
        None => decode(encoding, first.text, out),
        Some(second) => {
            let mut joined = [first.text, second.text].concat();
            while let Some(word) = words.take() {
                joined.extend_from_slice(word.text);
            }
            decode(encoding, &joined, out)
        }
    };
    length.map(|_| ()).ok_or_else(wrong)
}

/// Appends what `text` encodes, and tells its length; `None` where it is wrong or nothing.
fn decode(encoding: &Encoding, text: &[u8], out: &mut Vec<u8>) -> Option<usize> {
    let start = out.len();
    let room = encoding.decode_len(text.len()).ok()?;
    out.resize(start + room, 0);
    let length = encoding.decode_mut(text, &mut out[start..]).ok()?;
    out.truncate(start + length);
    (length > 0).then_some(length)
}

/// Appends what this Base64 encodes.
pub(super) fn base64(text: &[u8], out: &mut Vec<u8>) -> Option<()> {
    decode(&BASE64, text, out).map(|_| ())
}

fn counted(
    word: &Word<'_>,
    text: &[u8],
    encoding: &Encoding,
    right: &str,
    out: &mut Vec<u8>,
) -> Result<(), Wrong> {
    let length_at = out.len();
    out.push(0);
    let length = decode(encoding, text, out).and_then(|length| u8::try_from(length).ok());
    out[length_at] = length.ok_or_else(|| word.wrong(right))?;
    Ok(())
}

fn salt(word: &Word<'_>, out: &mut Vec<u8>) -> Result<(), Wrong> {
    // RFC 5155 §3.3: "represented as "-" (without the quotes) when the Salt Length field has a value of 0".
    if word.text == b"-" {
        out.push(0);
        return Ok(());
    }
    let right = "a salt of at most 255 octets in hexadecimal, or -, belongs here";
    counted(word, word.text, &HEXLOWER_PERMISSIVE, right, out)
}

fn hex(least: usize, words: &mut Words<'_>, out: &mut Vec<u8>) -> Result<(), Wrong> {
    let start = out.len();
    let first = words.peek();
    encoded(words, &HEXLOWER_PERMISSIVE, "hexadecimal digits", out)?;
    match first {
        Some(first) if out.len() - start < least => Err(first.wrong(format_args!(
            "{} octets: at least {least} belong here",
            out.len() - start
        ))),
        _ => Ok(()),
    }
}

fn digest(words: &mut Words<'_>, out: &mut Vec<u8>) -> Result<(), Wrong> {
    let kind = out.last().copied().unwrap_or_default();
    let start = out.len();
    let first = words.peek();
    encoded(words, &HEXLOWER_PERMISSIVE, "hexadecimal digits", out)?;
    let found = out.len() - start;
    match (super::walk::digest_length(kind), first) {
        (Some(length), Some(first)) if length != found => Err(first.wrong(format_args!(
            "digest of {found} octets: digests of type {kind} have {length}"
        ))),
        _ => Ok(()),
    }
}

/// `0x`, then hexadecimal digits with dots anywhere (RFC 1706 §7).
fn nsap(word: &Word<'_>, out: &mut Vec<u8>) -> Result<(), Wrong> {
    let digits = word
        .text
        .strip_prefix(b"0x")
        .or(word.text.strip_prefix(b"0X"));
    let digits: Vec<u8> = digits
        .unwrap_or_default()
        .iter()
        .copied()
        .filter(|octet| *octet != b'.')
        .collect();
    decode(&HEXLOWER_PERMISSIVE, &digits, out)
        .map(|_| ())
        .ok_or_else(|| {
            word.wrong("0x and pairs of hexadecimal digits belong here, such as 0x47.0005.80")
        })
}
