//! Addresses as the dialect writes them.

use std::net::{IpAddr, SocketAddr, SocketAddrV6};

/// The address in `text`, with `port` if it has none.
///
/// # Errors
/// What was expected.
pub fn with_port(text: &str, port: u16) -> Result<SocketAddr, String> {
    parse(text, port).ok_or_else(|| {
        format!("'{text}' is not an address: 192.0.2.1, 192.0.2.1:53, 2001:db8::1 or [2001:db8::1]:53 expected")
    })
}

fn parse(text: &str, port: u16) -> Option<SocketAddr> {
    if let Ok(address) = text.parse::<SocketAddr>() {
        return Some(address);
    }
    let bare = text
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
        .unwrap_or(text);
    if let Ok(address) = bare.parse::<IpAddr>() {
        return Some(SocketAddr::new(address, port));
    }
    scoped(text, bare, port)
}

/// A link-local address with its interface by name or number: `fe80::1%eth0`, `[fe80::1%2]:53`.
fn scoped(text: &str, bare: &str, default_port: u16) -> Option<SocketAddr> {
    let with_port = text
        .strip_prefix('[')
        .and_then(|rest| rest.split_once("]:"));
    let (address, port) = match with_port {
        Some((address, port)) => (address, port.parse().ok()?),
        None => (bare, default_port),
    };
    let (address, interface) = address.split_once('%')?;
    let scope = interface
        .parse()
        .ok()
        .or_else(|| nix::net::if_::if_nametoindex(interface).ok())?;
    Some(SocketAddrV6::new(address.parse().ok()?, port, 0, scope).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_with_and_without_a_port() {
        for (text, expected) in [
            ("192.0.2.1", "192.0.2.1:53"),
            ("192.0.2.1:5300", "192.0.2.1:5300"),
            ("2001:db8::1", "[2001:db8::1]:53"),
            ("[2001:db8::1]", "[2001:db8::1]:53"),
            ("[2001:db8::1]:5300", "[2001:db8::1]:5300"),
            ("fe80::1%2", "[fe80::1%2]:53"),
            ("[fe80::1%2]", "[fe80::1%2]:53"),
            ("[fe80::1%1]:5300", "[fe80::1%1]:5300"),
            ("[fe80::1%lo]:5300", "[fe80::1%1]:5300"),
        ] {
            assert_eq!(with_port(text, 53).unwrap().to_string(), expected, "{text}");
        }
    }

    #[test]
    fn what_is_no_address() {
        for text in [
            "",
            "192.0.2.1:",
            "192.0.2.1:70000",
            "192.0.2",
            "[2001:db8::1",
            "example.com",
            "1.2.3.4:53:53",
            "fe80::1%nosuchinterface",
        ] {
            assert!(with_port(text, 53).is_err(), "{text}");
        }
    }
}
