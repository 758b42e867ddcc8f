//! Values of options: each parser says what would be right.

use crate::questions::network;
use crate::xdp::Affinity;
use std::ops::RangeInclusive;
use std::time::Duration;
use wire::frame::Mac;
use xsk::Sources;

/// A time above nothing: a nanosecond at least.
pub(super) fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "must be a number of seconds")?;
    if !(1e-9..=1e6).contains(&seconds) {
        return Err("must be above 0, and at most 1000000 seconds".to_owned());
    }
    Ok(Duration::from_secs_f64(seconds))
}

pub(super) fn rate(text: &str) -> Result<f64, String> {
    let rate: f64 = text
        .parse()
        .map_err(|_| "must be a number of queries a second")?;
    if !(rate > 0.0 && rate <= 1e9) {
        return Err("must be above 0, and at most 1000000000 queries a second".to_owned());
    }
    Ok(rate)
}

/// How many, or how often: once at least.
pub(super) fn count(text: &str) -> Result<u64, String> {
    let count = text.parse().ok().filter(|count| *count > 0);
    count.ok_or_else(|| "must be a whole number, 1 or more".to_owned())
}

/// An exponent of Zipf's law.
pub(super) fn exponent(text: &str) -> Result<f64, String> {
    let wrong = || "must be a number from 0 to 100".to_owned();
    let exponent: f64 = text.parse().map_err(|_| wrong())?;
    (0.0..=100.0)
        .contains(&exponent)
        .then_some(exponent)
        .ok_or_else(wrong)
}

/// `0s1`, `2`, `s2`, `1s2`.
pub(super) fn affinity(text: &str) -> Result<Affinity, String> {
    let wrong = || "must be [START][sSTEP], such as 0s1, 2 or s2".to_owned();
    let (start, step) = match text.split_once('s') {
        None => (text, "1"),
        Some((start, step)) => (if start.is_empty() { "0" } else { start }, step),
    };
    // No machine has more CPUs.
    let number = |text: &str| text.parse::<u16>().map(usize::from).map_err(|_| wrong());
    Ok(Affinity {
        start: number(start)?,
        step: number(step)?,
    })
}

pub(super) fn sources(text: &str) -> Result<Sources, String> {
    network(text).map(|(address, prefix)| Sources { address, prefix })
}

pub(super) fn mac(text: &str) -> Result<Mac, String> {
    let wrong = || "must be six hexadecimal octets, such as 02:00:00:00:00:01".to_owned();
    let octets: Result<Vec<u8>, _> = text
        .split([':', '-'])
        .map(|octet| u8::from_str_radix(octet, 16))
        .collect();
    let octets = octets.map_err(|_| wrong())?;
    octets.try_into().map_err(|_| wrong())
}

pub(super) fn ports(text: &str) -> Result<RangeInclusive<u16>, String> {
    let wrong = || "must be FIRST-LAST, ascending, within 1 to 65535".to_owned();
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let first: u16 = first.parse().map_err(|_| wrong())?;
    let last: u16 = last.parse().map_err(|_| wrong())?;
    if first == 0 || first > last {
        return Err(wrong());
    }
    Ok(first..=last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn affinities_have_a_start_and_a_step() {
        let pair = |text| affinity(text).map(|affinity| (affinity.start, affinity.step));
        assert_eq!(pair("3"), Ok((3, 1)));
        assert_eq!(pair("s2"), Ok((0, 2)));
        assert_eq!(pair("4s2"), Ok((4, 2)));
        assert!(pair("").is_err());
        assert!(pair("0s18446744073709551615").is_err());
    }

    #[test]
    fn a_count_is_one_at_least_and_a_complaint_is_short() {
        assert_eq!((count("1"), count("4294967296")), (Ok(1), Ok(1 << 32)));
        for wrong in ["0", "-1", "1.5", "x", ""] {
            let said = count(wrong).unwrap_err();
            assert_eq!(said, "must be a whole number, 1 or more", "{wrong}");
        }
    }

    #[test]
    fn times_and_rates_are_above_nothing() {
        assert_eq!(seconds("0.25"), Ok(Duration::from_millis(250)));
        assert_eq!(seconds("1e-9"), Ok(Duration::from_nanos(1)));
        assert!(seconds("1e-12").is_err() && seconds("NaN").is_err());
        assert!(seconds("0").is_err() && seconds("inf").is_err() && seconds("-1").is_err());
        assert_eq!(rate("1e6"), Ok(1e6));
        assert!(rate("NaN").is_err());
        assert_eq!((exponent("0"), exponent("1.5")), (Ok(0.0), Ok(1.5)));
        for wrong in ["nan", "inf", "-1", "1e3", "x"] {
            assert!(exponent(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn networks_and_ports_are_ranges() {
        let network = sources("2001:db8::/32").unwrap();
        assert_eq!((network.prefix, network.address.is_ipv6()), (32, true));
        assert_eq!(sources("192.0.2.1").unwrap().prefix, 32);
        assert!(sources("192.0.2.1/33").is_err());
        assert_eq!(ports("5-9"), Ok(5..=9));
        assert_eq!(ports("7"), Ok(7..=7));
        assert!(ports("0-9").is_err());
        assert_eq!(mac("02-00-00-00-00-0a"), Ok([2, 0, 0, 0, 0, 10]));
    }
}
