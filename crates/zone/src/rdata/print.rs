//! RDATA as text: each field with a blank before it.

use super::table::{self, Field};
use super::walk::{Names, walk};
use super::{a6, kinds, location, params, prefixes};
use data_encoding::{BASE32HEX_NOPAD, BASE64, HEXLOWER, HEXUPPER};
use std::fmt::Write;
use std::net::{Ipv4Addr, Ipv6Addr};
use wire::codes::QtypeText;
use wire::name::Name;

/// Appends the fields; what is unknown or malformed in the form of RFC 3597.
pub(crate) fn print(kind: u16, rdata: &[u8], out: &mut String) {
    let start = out.len();
    let mut whole = true;
    let walked = table::row(kind).map(|row| {
        walk(rdata, 0..rdata.len(), row, Names::Whole, |field, range| {
            whole &= print_field(field, rdata, range, out).is_some();
        })
    });
    if walked != Some(Ok(())) || !whole {
        out.truncate(start);
        generic(rdata, out);
    }
}

/// `\# length hexadecimal` (RFC 3597 §5).
fn generic(rdata: &[u8], out: &mut String) {
    // Nothing can fail when a String is written to.
    let _ = write!(out, " \\# {}", rdata.len());
    if !rdata.is_empty() {
        out.push(' ');
        HEXLOWER.encode_append(rdata, out);
    }
}

/// `None` where the field has no text form.
fn print_field(
    field: Field,
    rdata: &[u8],
    range: std::ops::Range<usize>,
    out: &mut String,
) -> Option<()> {
    let octets = &rdata[range];
    match field {
        Field::Text | Field::OptionalText | Field::Texts => {
            each_text(octets, out);
            return Some(());
        }
        Field::Kinds => {
            kinds::print(octets, out);
            return Some(());
        }
        Field::Location => return location::print(octets, out),
        Field::Params => return params::print(octets, out),
        Field::Prefixes => return prefixes::print(octets, out),
        Field::Services => return services(octets, out),
        Field::HostIdentity => return host_identity(octets, out),
        Field::AddressSuffix => return a6::print(octets, out),
        Field::OptionalBase64 | Field::PrefixName if octets.is_empty() => return Some(()),
        _ => out.push(' '),
    }
    match field {
        Field::Name | Field::PlainName | Field::PrefixName => name(octets, out)?,
        Field::LongText => quoted(octets, out),
        Field::Tag => out.push_str(std::str::from_utf8(octets.get(1..)?).ok()?),
        Field::Base64OrDash if octets.is_empty() => out.push('-'),
        Field::Base64 | Field::OptionalBase64 | Field::Base64OrDash => {
            BASE64.encode_append(octets, out)
        }
        Field::Hex(_) | Field::Digest => HEXUPPER.encode_append(octets, out),
        Field::Salt if octets == [0] => out.push('-'),
        Field::Salt => HEXUPPER.encode_append(octets.get(1..)?, out),
        Field::Hash => BASE32HEX_NOPAD.encode_append(octets.get(1..)?, out),
        Field::Nsap => {
            out.push_str("0x");
            HEXUPPER.encode_append(octets, out);
        }
        Field::Gateway(mask) => match rdata[1] & mask {
            0 => out.push('.'),
            3 => name(octets, out)?,
            _ => address(octets, out)?,
        },
        _ => number(field, octets, out)?,
    }
    Some(())
}

fn number(field: Field, octets: &[u8], out: &mut String) -> Option<()> {
    let value = octets
        .iter()
        .fold(0_u64, |value, octet| value << 8 | u64::from(*octet));
    // Nothing can fail when a String is written to.
    let _ = match field {
        Field::Ip4 | Field::Ip6 => return address(octets, out),
        Field::Time => {
            date(value, out);
            Ok(())
        }
        Field::Kind => write!(out, "{}", QtypeText(value as u16)),
        Field::RelayKind => write!(out, "{} {}", value >> 7, value & 0x7f),
        Field::Eui(_) => {
            let pairs: Vec<String> = octets.iter().map(|octet| format!("{octet:02x}")).collect();
            out.push_str(&pairs.join("-"));
            Ok(())
        }
        Field::Node => {
            let group = |at: u32| value >> (48 - 16 * at) & 0xffff;
            write!(
                out,
                "{:04x}:{:04x}:{:04x}:{:04x}",
                group(0),
                group(1),
                group(2),
                group(3)
            )
        }
        _ => write!(out, "{value}"),
    };
    Some(())
}

fn address(octets: &[u8], out: &mut String) -> Option<()> {
    // Nothing can fail when a String is written to.
    let _ = match octets.len() {
        4 => write!(out, "{}", Ipv4Addr::from(*octets.first_chunk::<4>()?)),
        _ => write!(out, "{}", Ipv6Addr::from(*octets.first_chunk::<16>()?)),
    };
    Some(())
}

/// Appends the uncompressed name that these octets begin with. More is escaped than in names elsewhere: what has a
/// meaning in zone files.
pub(crate) fn name(octets: &[u8], out: &mut String) -> Option<()> {
    let name = Name::parse(octets).ok()?;
    if name.is_root() {
        out.push('.');
    }
    for label in name.labels() {
        for octet in label {
            match octet {
                b'.' | b'\\' | b'"' | b'(' | b')' | b';' | b'@' | b'$' => {
                    out.push('\\');
                    out.push(char::from(*octet));
                }
                0x21..=0x7e => out.push(char::from(*octet)),
                _ => decimal(*octet, out),
            }
        }
        out.push('.');
    }
    Some(())
}

/// `\DDD` (RFC 1035 §5.1).
fn decimal(octet: u8, out: &mut String) {
    // Nothing can fail when a String is written to.
    let _ = write!(out, "\\{octet:03}");
}

/// `YYYYMMDDHHmmSS` (RFC 4034 §3.2).
fn date(seconds: u64, out: &mut String) {
    let days = seconds / 86_400;
    let mut year = 1970 + days / 366;
    while super::read::days_before_month(year + 1, 1) <= days {
        year += 1;
    }
    let starts = |month: &u64| super::read::days_before_month(year, *month) <= days;
    let month = (1..=12).rev().find(starts).unwrap_or(1);
    let day = days - super::read::days_before_month(year, month) + 1;
    let (hour, minute, second) = (seconds / 3_600 % 24, seconds / 60 % 60, seconds % 60);
    // Nothing can fail when a String is written to.
    let _ = write!(
        out,
        "{year:04}{month:02}{day:02}{hour:02}{minute:02}{second:02}"
    );
}

/// Character strings one behind the other, each in quotes.
fn each_text(octets: &[u8], out: &mut String) {
    let mut rest = octets;
    while let Some((length, tail)) = rest.split_first() {
        let (text, tail) = tail.split_at(usize::from(*length).min(tail.len()));
        out.push(' ');
        quoted(text, out);
        rest = tail;
    }
}

/// A string in quotes; what is not printing ASCII as `\DDD`.
pub(super) fn quoted(octets: &[u8], out: &mut String) {
    out.push('"');
    for octet in octets {
        match octet {
            b'"' | b'\\' => {
                out.push('\\');
                out.push(char::from(*octet));
            }
            0x20..=0x7e => out.push(char::from(*octet)),
            _ => decimal(*octet, out),
        }
    }
    out.push('"');
}

fn services(octets: &[u8], out: &mut String) -> Option<()> {
    let (protocol, map) = octets.split_first()?;
    // Ports alone do not say how many octets follow the last one.
    if map.last() == Some(&0) {
        return None;
    }
    // Nothing can fail when a String is written to.
    let _ = write!(out, " {protocol}");
    for port in 0..8 * map.len() {
        if map[port / 8] & 0x80 >> (port % 8) != 0 {
            let _ = write!(out, " {port}");
        }
    }
    Some(())
}

fn host_identity(octets: &[u8], out: &mut String) -> Option<()> {
    let ([tag_length, algorithm, high, low], rest) = octets.split_first_chunk()?;
    let key_length = usize::from(u16::from_be_bytes([*high, *low]));
    let (tag, rest) = rest.split_at_checked(usize::from(*tag_length))?;
    let (key, mut rest) = rest.split_at_checked(key_length)?;
    // Nothing can fail when a String is written to.
    let _ = write!(out, " {algorithm} ");
    HEXUPPER.encode_append(tag, out);
    out.push(' ');
    BASE64.encode_append(key, out);
    while !rest.is_empty() {
        out.push(' ');
        name(rest, out)?;
        rest = &rest[Name::parse(rest).ok()?.len()..];
    }
    Some(())
}
