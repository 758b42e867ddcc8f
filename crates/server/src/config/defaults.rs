//! Defaults of dnsdist that are lists (its manual: setACL, setWebserverConfig).

use ipnet::IpNet;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};

/// Served when neither the file nor the command line names a listener.
pub const LISTENER: SocketAddr = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 53));

/// The port of an address without one.
pub const DNS_PORT: u16 = 53;

/// SOMAXCONN, in connections.
pub const TCP_LISTEN_QUEUE_SIZE: u32 = 4_096;

/// Who may ask: private and local addresses.
const ACL: [&str; 9] = [
    "127.0.0.0/8",
    "10.0.0.0/8",
    "100.64.0.0/10",
    "169.254.0.0/16",
    "192.168.0.0/16",
    "172.16.0.0/12",
    "::1/128",
    "fc00::/7",
    "fe80::/10",
];

/// Who may read the web server.
const WEB_ACL: [&str; 2] = ["127.0.0.1/32", "::1/128"];

pub fn acl() -> Vec<IpNet> {
    netmasks(&ACL)
}

pub fn web_acl() -> Vec<IpNet> {
    netmasks(&WEB_ACL)
}

fn netmasks(texts: &[&str]) -> Vec<IpNet> {
    texts.iter().filter_map(|text| text.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_default_netmask_is_one() {
        assert_eq!(acl().len(), ACL.len());
        assert_eq!(web_acl().len(), WEB_ACL.len());
    }
}
