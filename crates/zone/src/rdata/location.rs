//! A place on earth (LOC, RFC 1876).
//!
//! ```text
//! version 1 = 0 │ size 1 │ horizontal precision 1 │ vertical 1 │ latitude 4 │ longitude 4 │ altitude 4
//! ```
//! Size and precisions: a digit and a power of ten, in centimetres. Angles: thousandths of an arc second around 2³¹.
//! Altitude: centimetres above 100,000 m below the reference.

use crate::file::words::{Word, Words, Wrong, decimal};
use std::fmt::Write;

/// The equator and the prime meridian (RFC 1876 §2).
const ZERO_ANGLE: u32 = 1 << 31;
const DEGREE: u32 = 3_600_000;
const MINUTE: u32 = 60_000;
/// 100,000 m in centimetres.
const ZERO_ALTITUDE: i64 = 10_000_000;

/// RFC 1876 §3: "defaults: … 1m …, 10000m …, 10m".
const SIZES: [(&str, u64); 3] = [
    ("the size", 100),
    ("the horizontal precision", 1_000_000),
    ("the vertical precision", 1_000),
];

/// Checks what fills `rest`, and gives its length.
pub(super) fn check(rest: &[u8]) -> Result<usize, &'static str> {
    let [version, sizes @ .., _, _, _, _] = rest else {
        return Err("location: 16 octets are needed");
    };
    // RFC 1876 §2: "Implementations are required to check this field and make no assumptions about the format of
    // unrecognized versions."
    if *version != 0 || rest.len() != 16 {
        return Err("location: version 0 with 16 octets is the only one defined");
    }
    if sizes[..3].iter().any(|size| size >> 4 > 9 || size & 15 > 9) {
        return Err("location: a size is a digit and a power of ten, both at most 9");
    }
    let angle = |at| u32_at(rest, at).abs_diff(ZERO_ANGLE);
    if angle(4) > 90 * DEGREE || angle(8) > 180 * DEGREE {
        return Err("location: latitudes reach to 90 degrees, longitudes to 180");
    }
    Ok(16)
}

fn u32_at(octets: &[u8], at: usize) -> u32 {
    octets[at..]
        .first_chunk()
        .map_or(0, |field| u32::from_be_bytes(*field))
}

// ---------------------------------------------------------------------------------------------- text

pub(super) fn read(words: &mut Words<'_>, out: &mut Vec<u8>) -> Result<(), Wrong> {
    let latitude = angle(words, 90, [b'N', b'S'])?;
    let longitude = angle(words, 180, [b'E', b'W'])?;
    let altitude = altitude(&words.want("the altitude in metres, such as 12.00m,")?)?;
    out.push(0);
    for (name, default) in SIZES {
        let centimetres = match words.take() {
            Some(word) => metres(word.text)
                .filter(|centimetres| *centimetres <= 9_000_000_000)
                .ok_or_else(|| {
                    word.wrong(format_args!(
                        "{name}, from 0 to 90000000.00 metres, belongs here"
                    ))
                })?,
            None => default,
        };
        out.push(power_of_ten(centimetres));
    }
    for field in [latitude, longitude, altitude] {
        out.extend(field.to_be_bytes());
    }
    Ok(())
}

/// `degrees [minutes [seconds]] N|S`.
fn angle(words: &mut Words<'_>, degrees_max: u32, [plus, minus]: [u8; 2]) -> Result<u32, Wrong> {
    let degrees = words.want("degrees of an angle")?;
    let mut angle = degrees.number(degrees_max)? * DEGREE;
    for unit in [MINUTE, 1_000, 0] {
        let word = words.want(format_args!(
            "{} or {}",
            char::from(plus),
            char::from(minus)
        ))?;
        match word.text {
            [sign] if sign.eq_ignore_ascii_case(&plus) => {
                return within(ZERO_ANGLE + angle, angle, degrees_max, &degrees);
            }
            [sign] if sign.eq_ignore_ascii_case(&minus) => {
                return within(ZERO_ANGLE - angle, angle, degrees_max, &degrees);
            }
            _ => {}
        }
        angle += match unit {
            MINUTE => word.number(59)? * MINUTE,
            1_000 => fixed(word.text, 3)
                .filter(|thousandths| *thousandths < 60_000)
                .ok_or_else(|| word.wrong("seconds from 0 to 59.999 belong here"))?
                as u32,
            _ => {
                return Err(word.wrong(format_args!(
                    "{} or {} belongs here",
                    char::from(plus),
                    char::from(minus)
                )));
            }
        };
    }
    Err(degrees.wrong("angle without its direction"))
}

fn within(value: u32, angle: u32, degrees_max: u32, degrees: &Word<'_>) -> Result<u32, Wrong> {
    if angle > degrees_max * DEGREE {
        return Err(degrees.wrong(format_args!("angles here reach to {degrees_max} degrees")));
    }
    Ok(value)
}

fn altitude(word: &Word<'_>) -> Result<u32, Wrong> {
    let (sign, digits) = match word.text {
        [b'-', digits @ ..] => (-1, digits),
        digits => (1, digits),
    };
    metres(digits)
        .and_then(|centimetres| {
            u32::try_from(ZERO_ALTITUDE + sign * i64::try_from(centimetres).ok()?).ok()
        })
        .ok_or_else(|| word.wrong("an altitude from -100000.00 to 42849672.95 metres belongs here"))
}

/// Centimetres of `12.34m`.
fn metres(text: &[u8]) -> Option<u64> {
    fixed(text.strip_suffix(b"m").unwrap_or(text), 2)
}

/// A number with up to so many digits behind its point, without the point.
fn fixed(text: &[u8], decimals: usize) -> Option<u64> {
    let point = text.iter().position(|octet| *octet == b'.');
    let (whole, part) = match point {
        Some(at) => (&text[..at], &text[at + 1..]),
        None => (text, &b""[..]),
    };
    if part.len() > decimals || (point.is_some() && part.is_empty()) {
        return None;
    }
    let part_value = if part.is_empty() { 0 } else { decimal(part)? };
    let scale = |digits: usize| 10_u64.pow(digits as u32);
    Some(
        u64::from(decimal(whole)?) * scale(decimals)
            + u64::from(part_value) * scale(decimals - part.len()),
    )
}

/// The first digit, and the number of digits behind it: what is finer is lost (RFC 1876 §2).
fn power_of_ten(mut centimetres: u64) -> u8 {
    let mut exponent = 0;
    while centimetres > 9 {
        centimetres /= 10;
        exponent += 1;
    }
    (centimetres as u8) << 4 | exponent
}

/// `None` where a size has a form that would be read as another (0 × 10³).
pub(super) fn print(location: &[u8], out: &mut String) -> Option<()> {
    print_angle(u32_at(location, 4), ['N', 'S'], out);
    print_angle(u32_at(location, 8), ['E', 'W'], out);
    let altitude = i64::from(u32_at(location, 12)) - ZERO_ALTITUDE;
    let sign = if altitude < 0 { "-" } else { "" };
    let altitude = altitude.unsigned_abs();
    // Nothing can fail when a String is written to.
    let _ = write!(out, " {sign}{}.{:02}m", altitude / 100, altitude % 100);
    for size in &location[1..4] {
        let centimetres = u64::from(size >> 4) * 10_u64.pow(u32::from(size & 15));
        if power_of_ten(centimetres) != *size {
            return None;
        }
        let _ = write!(out, " {}", centimetres / 100);
        if centimetres % 100 != 0 {
            let _ = write!(out, ".{:02}", centimetres % 100);
        }
        out.push('m');
    }
    Some(())
}

fn print_angle(value: u32, [plus, minus]: [char; 2], out: &mut String) {
    let sign = if value < ZERO_ANGLE { minus } else { plus };
    let angle = value.abs_diff(ZERO_ANGLE);
    let thousandths = angle % MINUTE;
    let _ = write!(
        out,
        " {} {} {}.{:03} {sign}",
        angle / DEGREE,
        angle % DEGREE / MINUTE,
        thousandths / 1_000,
        thousandths % 1_000
    );
}
