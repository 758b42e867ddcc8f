//! EDNS options in text: `CODE:HEX`, a client's cookie, a client's network.

use std::net::IpAddr;

/// An EDNS option (RFC 6891 §6.1.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EdnsOption {
    pub code: u16,
    pub value: Vec<u8>,
}

impl EdnsOption {
    /// `CODE:HEXADECIMAL`, as dnsperf's -E.
    ///
    /// # Errors
    /// What would be right.
    pub fn from_text(text: &str) -> Result<EdnsOption, String> {
        let wrong = || "must be CODE:HEXADECIMAL, such as 65001:0102".to_owned();
        let (code, digits) = text.split_once(':').ok_or_else(wrong)?;
        let octets = digits.as_bytes().chunks(2).map(|pair| {
            let pair = std::str::from_utf8(pair).ok().filter(|pair| {
                // Not `+f`, which is a number too.
                pair.len() == 2 && pair.bytes().all(|digit| digit.is_ascii_hexdigit())
            })?;
            u8::from_str_radix(pair, 16).ok()
        });
        Ok(EdnsOption {
            code: code.parse().map_err(|_| wrong())?,
            value: octets.collect::<Option<_>>().ok_or_else(wrong)?,
        })
    }

    /// A client's cookie of eight octets in hexadecimal (RFC 7873 §4).
    ///
    /// # Errors
    /// What would be right.
    pub fn cookie(text: &str) -> Result<EdnsOption, String> {
        let option = EdnsOption::from_text(&format!("{}:{text}", wire::codes::edns_option::COOKIE));
        option
            .ok()
            .filter(|option| option.value.len() == 8)
            .ok_or_else(|| {
                "must be 16 hexadecimal digits: a client's cookie has eight octets".to_owned()
            })
    }

    /// A network as client subnet (RFC 7871 §6): family, source prefix, scope 0, the octets that the prefix needs.
    ///
    /// # Errors
    /// What would be right.
    pub fn client_subnet(text: &str) -> Result<EdnsOption, String> {
        let (address, prefix) = network(text)?;
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

    /// Puts it behind others: code 2, length 2, value.
    pub fn append_to(&self, options: &mut Vec<u8>) {
        options.extend(self.code.to_be_bytes());
        options.extend((self.value.len() as u16).to_be_bytes());
        options.extend(&self.value);
    }
}

/// An address, or a network of addresses with its prefix.
///
/// # Errors
/// What would be right.
pub fn network(text: &str) -> Result<(IpAddr, u8), String> {
    let (address, prefix) = match text.split_once('/') {
        None => (text, None),
        Some((address, prefix)) => (address, Some(prefix)),
    };
    let address: IpAddr = address
        .parse()
        .map_err(|_| "must be an address, or a network such as 192.0.2.0/24")?;
    let bits = if address.is_ipv4() { 32 } else { 128 };
    match prefix.map_or(Ok(bits), str::parse) {
        Ok(prefix) if prefix <= bits => Ok((address, prefix)),
        _ => Err(format!("the prefix must be 0 to {bits}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edns_options_are_codes_and_octets() {
        assert_eq!(
            EdnsOption::from_text("65001:00ff").unwrap().value,
            [0, 0xff]
        );
        assert!(EdnsOption::from_text("3:").unwrap().value.is_empty());
        for wrong in ["3", "x:00", "3:0", "3:zz", "3:+f", "65536:00"] {
            assert!(EdnsOption::from_text(wrong).is_err(), "{wrong}");
        }
        assert_eq!(EdnsOption::cookie("0102030405060708").unwrap().code, 10);
        assert!(EdnsOption::cookie("01").is_err());
        assert_eq!(
            EdnsOption::client_subnet("192.0.2.255/25").unwrap().value,
            [0, 1, 25, 0, 192, 0, 2, 128]
        );
        assert_eq!(
            EdnsOption::client_subnet("::/0").unwrap().value,
            [0, 2, 0, 0]
        );
    }

    #[test]
    fn networks_have_a_prefix_that_fits() {
        assert_eq!(network("2001:db8::/32").unwrap().1, 32);
        assert_eq!(network("192.0.2.1").unwrap().1, 32);
        assert!(network("192.0.2.1/33").is_err() && network("x/3").is_err());
    }
}
