//! Service parameters of SVCB and HTTPS (RFC 9460 §2, appendix A; RFC 9461, 9540).
//!
//! ```text
//! key 2 │ length 2 │ value … │ next, its key greater …
//! ```

use super::read::base64;
use crate::file::words::{Word, Words, Wrong, decimal, escaped, unescape};
use std::fmt::Write;
use std::net::{Ipv4Addr, Ipv6Addr};

/// How a value is written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Value {
    /// Keys, ascending.
    Keys,
    /// Protocol names, each with an octet of length before it.
    Protocols,
    /// Nothing.
    None,
    Port,
    Ip4,
    Ip6,
    Base64,
    /// Any octets.
    Octets,
    /// Any octets, at least one.
    Path,
    /// 16-bit numbers.
    Numbers,
}

/// Name, number, form: IANA's "Service Parameter Keys (SvcParamKeys)". What is not here is `key65280`.
const KEYS: &[(&str, u16, Value)] = &[
    ("mandatory", MANDATORY, Value::Keys),
    ("alpn", ALPN, Value::Protocols),
    ("no-default-alpn", NO_DEFAULT_ALPN, Value::None),
    ("port", 3, Value::Port),
    ("ipv4hint", 4, Value::Ip4),
    ("ech", 5, Value::Base64),
    ("ipv6hint", 6, Value::Ip6),
    ("dohpath", 7, Value::Path),
    ("ohttp", 8, Value::None),
    ("tls-supported-groups", 9, Value::Numbers),
];

const MANDATORY: u16 = 0;
const ALPN: u16 = 1;
const NO_DEFAULT_ALPN: u16 = 2;

fn value_form(key: u16) -> Value {
    let row = KEYS.iter().find(|(_, number, _)| *number == key);
    row.map_or(Value::Octets, |(_, _, form)| *form)
}

/// The parameters of checked octets.
struct Params<'o>(&'o [u8]);

impl<'o> Iterator for Params<'o> {
    type Item = (u16, &'o [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let ([key_high, key_low, high, low], rest) = self.0.split_first_chunk()?;
        let length = usize::from(u16::from_be_bytes([*high, *low]));
        let (value, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        Some((u16::from_be_bytes([*key_high, *key_low]), value))
    }
}

// --------------------------------------------------------------------------------------------- checks

/// Checks what fills `rest`, and gives its length.
pub(super) fn check(rest: &[u8]) -> Result<usize, &'static str> {
    let mut params = Params(rest);
    let mut least = 0;
    for (key, value) in params.by_ref() {
        // RFC 9460 §2.2: "SvcParamKeys … in strictly increasing numeric order".
        if u32::from(key) < least {
            return Err("service parameters: keys must ascend, each only once");
        }
        least = u32::from(key) + 1;
        if !is_of_form(value, value_form(key)) {
            return Err("service parameters: a value has not the form of its key");
        }
    }
    if !params.0.is_empty() {
        return Err("service parameters: the last one is cut");
    }
    Ok(rest.len())
}

fn is_of_form(value: &[u8], form: Value) -> bool {
    let numbers = || {
        value
            .as_chunks::<2>()
            .0
            .iter()
            .map(|key| u16::from_be_bytes(*key))
    };
    match form {
        Value::Keys => {
            // RFC 9460 §8: keys "in strictly increasing numeric order"; "mandatory" itself "MUST NOT appear".
            whole(value, 2)
                && numbers().is_sorted_by(|a, b| a < b)
                && numbers().all(|key| key != MANDATORY)
        }
        Value::Protocols => {
            let mut rest = value;
            while let Some((length, tail)) = rest.split_first() {
                match tail.split_at_checked(usize::from(*length)) {
                    Some((protocol, tail)) if !protocol.is_empty() => rest = tail,
                    _ => return false,
                }
            }
            !value.is_empty()
        }
        Value::None => value.is_empty(),
        Value::Port => value.len() == 2,
        Value::Ip4 => whole(value, 4),
        Value::Ip6 => whole(value, 16),
        Value::Base64 | Value::Path => !value.is_empty(),
        Value::Numbers => whole(value, 2),
        Value::Octets => true,
    }
}

fn whole(value: &[u8], unit: usize) -> bool {
    !value.is_empty() && value.len().is_multiple_of(unit)
}

/// Whether parameters that name each other are there (RFC 9460 §2.4.3, §7.1.1, §8: "self-consistent"). Who reads zone files
/// sees to that; on the wire such octets are well-formed (§2.2), and no zone is refused a secondary for them.
fn consistent(params: &[u8]) -> Result<(), &'static str> {
    let has = |key: u16| Params(params).any(|(other, _)| other == key);
    if has(NO_DEFAULT_ALPN) && !has(ALPN) {
        return Err("service parameters: no-default-alpn needs alpn beside it");
    }
    let mandatory = Params(params).find(|(key, _)| *key == MANDATORY);
    let keys = mandatory.map_or(&[][..], |(_, value)| value.as_chunks::<2>().0);
    if !keys.iter().all(|key| has(u16::from_be_bytes(*key))) {
        return Err("service parameters: a key that is called mandatory is not there");
    }
    Ok(())
}

// ----------------------------------------------------------------------------------------------- text

pub(super) fn read(words: &mut Words<'_>, out: &mut Vec<u8>) -> Result<(), Wrong> {
    let mut params: Vec<(u16, Vec<u8>)> = Vec::new();
    let first = words.peek();
    while let Some(word) = words.take() {
        let param = param(&word)?;
        if params.iter().any(|(key, _)| *key == param.0) {
            return Err(word.wrong("this key was given before: each may stand once"));
        }
        params.push(param);
    }
    params.sort_unstable_by_key(|(key, _)| *key);
    let start = out.len();
    for (key, value) in params {
        out.extend(key.to_be_bytes());
        out.extend((value.len() as u16).to_be_bytes());
        out.extend(value);
    }
    match (consistent(&out[start..]), first) {
        (Err(what), Some(first)) => Err(first.wrong(what)),
        _ => Ok(()),
    }
}

/// `key`, `key=value`, `key="value"`.
fn param(word: &Word<'_>) -> Result<(u16, Vec<u8>), Wrong> {
    let equals = word.text.iter().position(|octet| *octet == b'=');
    let (name, written) = match equals {
        Some(at) => (&word.text[..at], Some(&word.text[at + 1..])),
        None => (word.text, None),
    };
    let number = numbered(name);
    let key = named(name).or(number).ok_or_else(|| {
        word.wrong_part(
            name,
            "unknown service parameter: a name such as alpn, or key and its number (0 to 65534), belongs here",
        )
    })?;
    // RFC 9460 §2.1: of a key written as its number "the decoded value SHALL be used as its wire-format encoding".
    let (form, right) = match (number, value_form(key)) {
        (Some(_), Value::Octets) | (None, _) => (value_form(key), right(value_form(key))),
        (Some(_), _) => (Value::Octets, RIGHT_OF_NUMBERED),
    };
    let written = unquoted(written.unwrap_or_default()).ok_or_else(|| word.wrong(RIGHT_QUOTES))?;
    let value = value(form, written)
        .filter(|value| is_of_form(value, value_form(key)) && value.len() <= usize::from(u16::MAX))
        .ok_or_else(|| word.wrong(right))?;
    Ok((key, value))
}

/// A value without the quotes around it; `None` where a quote stands within: RFC 9460 §2.1 has values either all in quotes or
/// without any.
fn unquoted(text: &[u8]) -> Option<&[u8]> {
    let inner = text
        .strip_prefix(b"\"")
        .and_then(|text| text.strip_suffix(b"\""))
        .unwrap_or(text);
    let mut octets = inner.iter();
    while let Some(octet) = octets.next() {
        match octet {
            b'"' => return None,
            b'\\' => {
                octets.next();
            }
            _ => {}
        }
    }
    Some(inner)
}

const RIGHT_QUOTES: &str = "quotes belong around the whole value, with a blank behind the closing one; one within it is written \\\"";

const RIGHT_OF_NUMBERED: &str =
    "the key's octets on the wire belong here, such as key1=\\002h2, or its name, such as alpn=h2";

fn right(form: Value) -> &'static str {
    match form {
        Value::Keys => "names of other keys, each once, joined by commas, belong here",
        Value::Protocols => "protocol names joined by commas belong here, such as alpn=h2,h3",
        Value::None => "this key takes no value",
        Value::Port => "a port from 0 to 65535 belongs here",
        Value::Ip4 => "IPv4 addresses joined by commas belong here",
        Value::Ip6 => "IPv6 addresses joined by commas belong here",
        Value::Base64 => "Base64 belongs here",
        Value::Path => "a path belongs here, such as dohpath=/dns-query{?dns}",
        Value::Numbers => "numbers from 0 to 65535 joined by commas belong here",
        Value::Octets => "a string of at most 65535 octets belongs here; \\DDD takes 000 to 255",
    }
}

pub(super) fn key(name: &[u8]) -> Option<u16> {
    named(name).or_else(|| numbered(name))
}

/// The number of a key that has a name.
fn named(name: &[u8]) -> Option<u16> {
    let known = KEYS.iter().find(|(known, _, _)| known.as_bytes() == name);
    known.map(|(_, number, _)| *number)
}

/// The number of a key that is written as `key` and its number, RFC 9460 §2.1: "without leading zeros".
fn numbered(name: &[u8]) -> Option<u16> {
    let digits = name.strip_prefix(b"key")?;
    let is_plain = digits == b"0" || digits.first() != Some(&b'0');
    let number = u16::try_from(decimal(digits).filter(|_| is_plain)?).ok()?;
    // RFC 9460 §14.3.1: "key65535" is reserved, and no key of a record.
    (number != u16::MAX).then_some(number)
}

fn value(form: Value, written: &[u8]) -> Option<Vec<u8>> {
    let mut octets = Vec::with_capacity(written.len());
    unescape(written, &mut octets).ok()?;
    if octets.is_empty() {
        return Some(octets);
    }
    let mut out = Vec::with_capacity(octets.len());
    let mut items = octets.split(|octet| *octet == b',');
    let text = |item| std::str::from_utf8(item).ok();
    let number = |item| u16::try_from(decimal(item)?).ok();
    match form {
        Value::Keys => {
            let mut keys = items.map(key).collect::<Option<Vec<u16>>>()?;
            keys.sort_unstable();
            out.extend(keys.into_iter().flat_map(u16::to_be_bytes));
        }
        Value::Protocols => protocols(&octets, &mut out)?,
        Value::Port => out.extend(number(&octets)?.to_be_bytes()),
        Value::Numbers => items.try_for_each(|item| {
            out.extend(number(item)?.to_be_bytes());
            Some(())
        })?,
        Value::Ip4 => items.try_for_each(|item| {
            out.extend(text(item)?.parse::<Ipv4Addr>().ok()?.octets());
            Some(())
        })?,
        Value::Ip6 => items.try_for_each(|item| {
            out.extend(text(item)?.parse::<Ipv6Addr>().ok()?.octets());
            Some(())
        })?,
        Value::Base64 => base64(&octets, &mut out)?,
        Value::None | Value::Octets | Value::Path => out = octets,
    }
    Some(out)
}

/// A list in which a comma or a backslash that belongs to an item has a backslash before it (RFC 9460 appendix A.1).
fn protocols(octets: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let mut length_at = out.len();
    out.push(0);
    let mut at = 0;
    while let Some(octet) = octets.get(at) {
        match octet {
            b',' => {
                out[length_at] = u8::try_from(out.len() - length_at - 1).ok()?;
                length_at = out.len();
                out.push(0);
                at += 1;
            }
            b'\\' => {
                let (octet, length) =
                    escaped(&octets[at + 1..]).filter(|(_, length)| *length == 1)?;
                out.push(octet);
                at += 1 + length;
            }
            _ => {
                out.push(*octet);
                at += 1;
            }
        }
    }
    out[length_at] = u8::try_from(out.len() - length_at - 1).ok()?;
    Some(())
}

/// Prints the parameters of checked octets. `None` where they would not be read back: see [`consistent`].
pub(super) fn print(rest: &[u8], out: &mut String) -> Option<()> {
    consistent(rest).ok()?;
    for (key, value) in Params(rest) {
        let known = KEYS.iter().find(|(_, number, _)| *number == key);
        // Nothing can fail when a String is written to.
        let _ = match known {
            Some((name, _, _)) => write!(out, " {name}"),
            None => write!(out, " key{key}"),
        };
        if value_form(key) != Value::None && !value.is_empty() {
            out.push('=');
            print_value(value_form(key), value, out);
        }
    }
    Some(())
}

fn print_value(form: Value, value: &[u8], out: &mut String) {
    let numbers = || {
        value
            .as_chunks::<2>()
            .0
            .iter()
            .map(|number| u16::from_be_bytes(*number))
    };
    match form {
        Value::Keys => list(out, numbers(), |key, out| {
            let known = KEYS.iter().find(|(_, number, _)| *number == key);
            let _ = match known {
                Some((name, _, _)) => write!(out, "{name}"),
                None => write!(out, "key{key}"),
            };
        }),
        Value::Port | Value::Numbers => list(out, numbers(), |number, out| {
            let _ = write!(out, "{number}");
        }),
        Value::Ip4 => list(out, value.as_chunks::<4>().0.iter(), |address, out| {
            let _ = write!(out, "{}", Ipv4Addr::from(*address));
        }),
        Value::Ip6 => list(out, value.as_chunks::<16>().0.iter(), |address, out| {
            let _ = write!(out, "{}", Ipv6Addr::from(*address));
        }),
        Value::Base64 => data_encoding::BASE64.encode_append(value, out),
        Value::Protocols => super::print::quoted(&joined(value), out),
        Value::None | Value::Octets | Value::Path => super::print::quoted(value, out),
    }
}

fn list<T>(
    out: &mut String,
    items: impl Iterator<Item = T>,
    mut print: impl FnMut(T, &mut String),
) {
    for (number, item) in items.enumerate() {
        if number > 0 {
            out.push(',');
        }
        print(item, out);
    }
}

/// The protocols as a list, its commas and backslashes protected.
fn joined(protocols: &[u8]) -> Vec<u8> {
    let mut list = Vec::with_capacity(protocols.len());
    let mut rest = protocols;
    while let Some((length, tail)) = rest.split_first() {
        let (protocol, tail) = tail.split_at(usize::from(*length).min(tail.len()));
        if !list.is_empty() {
            list.push(b',');
        }
        for octet in protocol {
            if matches!(octet, b',' | b'\\') {
                list.push(b'\\');
            }
            list.push(*octet);
        }
        rest = tail;
    }
    list
}
