//! Values of options: each parser says what would be right.

use crate::xdp::Affinity;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::time::Duration;
use wire::frame::Mac;
use xsk::Sources;

/// A time above nothing.
pub(super) fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "must be a number of seconds")?;
    if !(seconds > 0.0 && seconds <= 1e6) {
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

/// `0s1`, `2`, `s2`, `1s2`.
pub(super) fn affinity(text: &str) -> Result<Affinity, String> {
    let wrong = || "must be [START][sSTEP], such as 0s1, 2 or s2".to_owned();
    let (start, step) = match text.split_once('s') {
        None => (text, "1"),
        Some((start, step)) => (if start.is_empty() { "0" } else { start }, step),
    };
    Ok(Affinity {
        start: start.parse().map_err(|_| wrong())?,
        step: step.parse().map_err(|_| wrong())?,
    })
}

pub(super) fn sources(text: &str) -> Result<Sources, String> {
    let (address, prefix) = match text.split_once('/') {
        None => (text, None),
        Some((address, prefix)) => (address, Some(prefix)),
    };
    let address: IpAddr = address
        .parse()
        .map_err(|_| "must be an address, or a network such as 192.0.2.0/24")?;
    let bits = if address.is_ipv4() { 32 } else { 128 };
    let prefix = prefix.map_or(Ok(bits), str::parse);
    match prefix {
        Ok(prefix) if prefix <= bits => Ok(Sources { address, prefix }),
        _ => Err(format!("the prefix must be 0 to {bits}")),
    }
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

/// An EDNS option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct EdnsOption {
    pub(super) code: u16,
    pub(super) value: Vec<u8>,
}

/// `CODE:HEXADECIMAL`, as dnsperf's -E.
pub(super) fn edns_option(text: &str) -> Result<EdnsOption, String> {
    let wrong = || "must be CODE:HEXADECIMAL, such as 65001:0102".to_owned();
    let (code, digits) = text.split_once(':').ok_or_else(wrong)?;
    let octets = digits.as_bytes().chunks(2).map(|pair| {
        let pair = std::str::from_utf8(pair)
            .ok()
            .filter(|pair| pair.len() == 2)?;
        u8::from_str_radix(pair, 16).ok()
    });
    Ok(EdnsOption {
        code: code.parse().map_err(|_| wrong())?,
        value: octets.collect::<Option<_>>().ok_or_else(wrong)?,
    })
}

/// A client's cookie of eight octets in hexadecimal (RFC 7873 §4).
pub(super) fn cookie(text: &str) -> Result<EdnsOption, String> {
    let option = edns_option(&format!("{}:{text}", wire::codes::edns_option::COOKIE));
    option
        .ok()
        .filter(|option| option.value.len() == 8)
        .ok_or_else(|| {
            "must be 16 hexadecimal digits: a client's cookie has eight octets".to_owned()
        })
}

/// A network as client subnet (RFC 7871 §6): family, source prefix, scope 0, the octets that the prefix needs.
pub(super) fn client_subnet(text: &str) -> Result<EdnsOption, String> {
    let Sources { address, prefix } = sources(text)?;
    let (family, octets) = match address {
        IpAddr::V4(address) => (1, address.octets().to_vec()),
        IpAddr::V6(address) => (2, address.octets().to_vec()),
    };
    let mut value = vec![0, family, prefix, 0];
    for (at, octet) in octets
        .iter()
        .enumerate()
        .take(usize::from(prefix).div_ceil(8))
    {
        // "trailing bits SHOULD be set to zero" beyond the prefix.
        let bits = (usize::from(prefix) - at * 8).min(8);
        value.push(octet & (0xff00_u16 >> bits) as u8);
    }
    Ok(EdnsOption {
        code: wire::codes::edns_option::ECS,
        value,
    })
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
    }

    #[test]
    fn times_and_rates_are_above_nothing() {
        assert_eq!(seconds("0.25"), Ok(Duration::from_millis(250)));
        assert!(seconds("0").is_err() && seconds("inf").is_err() && seconds("-1").is_err());
        assert_eq!(rate("1e6"), Ok(1e6));
        assert!(rate("NaN").is_err());
    }

    #[test]
    fn edns_options_are_codes_and_octets() {
        assert_eq!(edns_option("65001:00ff").unwrap().value, [0, 0xff]);
        assert!(edns_option("3:").unwrap().value.is_empty());
        for wrong in ["3", "x:00", "3:0", "3:zz", "65536:00"] {
            assert!(edns_option(wrong).is_err(), "{wrong}");
        }
        assert_eq!(cookie("0102030405060708").unwrap().code, 10);
        assert!(cookie("01").is_err());
        assert_eq!(
            client_subnet("192.0.2.255/25").unwrap().value,
            [0, 1, 25, 0, 192, 0, 2, 128]
        );
        assert_eq!(client_subnet("::/0").unwrap().value, [0, 2, 0, 0]);
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
