//! Who may ask: `setACL` and its relatives; and sets of netmasks for whoever else needs one.

use super::Env;
use super::query::Arrival;
use crate::counters::Counter;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use prefix_trie::PrefixMap;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// One entry of a set: `192.0.2.0/24`, `192.0.2.1`, or `!192.0.2.1` for what a wider entry should not cover.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Netmask {
    /// Bits behind the prefix are zero.
    pub network: IpNet,
    pub negated: bool,
}

/// Why a text is no netmask.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetmaskError(String);

impl fmt::Display for NetmaskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let NetmaskError(text) = self;
        write!(
            f,
            "'{text}' is no netmask: an address, or address/bits (0-32 for IPv4, 0-128 for IPv6), with ! before it to exclude"
        )
    }
}

impl std::error::Error for NetmaskError {}

impl From<IpNet> for Netmask {
    fn from(network: IpNet) -> Netmask {
        Netmask {
            network: network.trunc(),
            negated: false,
        }
    }
}

impl FromStr for Netmask {
    type Err = NetmaskError;

    fn from_str(text: &str) -> Result<Netmask, NetmaskError> {
        let (negated, rest) = match text.strip_prefix('!') {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let network = match rest.parse::<IpAddr>() {
            Ok(address) => IpNet::from(address),
            Err(_) => rest.parse().map_err(|_| NetmaskError(text.to_owned()))?,
        };
        Ok(Netmask {
            negated,
            ..Netmask::from(network)
        })
    }
}

impl fmt::Display for Netmask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.negated { "!" } else { "" };
        write!(f, "{sign}{}", self.network)
    }
}

/// Sets of up to so many entries per family are searched one by one.
const FEW: usize = 16;

/// A set of netmasks. Of the entries that cover an address the longest decides: four instructions an entry in small sets,
/// 33 ns among 100,000.
#[derive(Clone, Default)]
pub struct Netmasks {
    /// The value: whether the entry includes.
    v4: PrefixMap<Ipv4Net, bool>,
    v6: PrefixMap<Ipv6Net, bool>,
    /// The same, the longest first, as long as they are few: network, mask, whether it includes.
    few_v4: Vec<(u32, u32, bool)>,
    few_v6: Vec<(u128, u128, bool)>,
}

impl Netmasks {
    /// Adds an entry; of two with the same network the later one stands.
    pub fn insert(&mut self, netmask: Netmask) {
        match netmask.network.trunc() {
            IpNet::V4(network) => {
                self.v4.insert(network, !netmask.negated);
                if self.v4.len() <= FEW {
                    let bits = |network: Ipv4Net| {
                        (network.network().to_bits(), network.netmask().to_bits())
                    };
                    self.few_v4 = longest_first(self.v4.iter(), bits);
                }
            }
            IpNet::V6(network) => {
                self.v6.insert(network, !netmask.negated);
                if self.v6.len() <= FEW {
                    let bits = |network: Ipv6Net| {
                        (network.network().to_bits(), network.netmask().to_bits())
                    };
                    self.few_v6 = longest_first(self.v6.iter(), bits);
                }
            }
        }
    }

    #[inline]
    pub fn contains(&self, address: IpAddr) -> bool {
        match address {
            IpAddr::V4(address) if self.v4.len() <= FEW => {
                let bits = address.to_bits();
                let covers = |&&(network, mask, _): &&(u32, u32, bool)| bits & mask == network;
                self.few_v4.iter().find(covers).is_some_and(|found| found.2)
            }
            IpAddr::V6(address) if self.v6.len() <= FEW => {
                let bits = address.to_bits();
                let covers = |&&(network, mask, _): &&(u128, u128, bool)| bits & mask == network;
                self.few_v6.iter().find(covers).is_some_and(|found| found.2)
            }
            IpAddr::V4(address) => self
                .v4
                .get_lpm(&address.into())
                .is_some_and(|found| *found.1),
            IpAddr::V6(address) => self
                .v6
                .get_lpm(&address.into())
                .is_some_and(|found| *found.1),
        }
    }

    pub fn len(&self) -> usize {
        self.v4.len() + self.v6.len()
    }

    pub fn is_empty(&self) -> bool {
        self.v4.is_empty() && self.v6.is_empty()
    }

    /// The entries, IPv4 first, each by address.
    pub fn iter(&self) -> impl Iterator<Item = Netmask> {
        let v4 = self.v4.iter().map(|(network, included)| Netmask {
            network: IpNet::V4(network),
            negated: !included,
        });
        let v6 = self.v6.iter().map(|(network, included)| Netmask {
            network: IpNet::V6(network),
            negated: !included,
        });
        v4.chain(v6)
    }
}

impl<N: Into<Netmask>> FromIterator<N> for Netmasks {
    fn from_iter<I: IntoIterator<Item = N>>(netmasks: I) -> Netmasks {
        let mut set = Netmasks::default();
        for netmask in netmasks {
            set.insert(netmask.into());
        }
        set
    }
}

/// Network, mask and what is kept of each entry, the longest mask first.
fn longest_first<'e, N, B: Ord>(
    entries: impl Iterator<Item = (N, &'e bool)>,
    bits: impl Fn(N) -> (B, B),
) -> Vec<(B, B, bool)> {
    let mut few: Vec<(B, B, bool)> = entries
        .map(|(network, included)| {
            let (network, mask) = bits(network);
            (network, mask, *included)
        })
        .collect();
    few.sort_by(|one, other| other.1.cmp(&one.1));
    few
}

/// The entries as dnsdist's showRules() lists them: sorted as text, so that exclusions come first.
impl fmt::Display for Netmasks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut texts: Vec<String> = self.iter().map(|netmask| netmask.to_string()).collect();
        texts.sort_unstable();
        f.write_str(&texts.join(", "))
    }
}

impl fmt::Debug for Netmasks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Netmasks({self})")
    }
}

/// The "acl" stage.
pub fn allows(arrival: &Arrival<'_>, env: &Env<'_>) -> bool {
    let allowed = env.config.acl.contains(arrival.client.ip());
    if !allowed {
        env.shard.count(Counter::AclDrops);
    }
    allowed
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn set(netmasks: &[&str]) -> Netmasks {
        netmasks
            .iter()
            .map(|text| text.parse::<Netmask>().unwrap())
            .collect()
    }

    fn contains(set: &Netmasks, address: &str) -> bool {
        set.contains(address.parse().unwrap())
    }

    #[test]
    fn the_longest_entry_decides() {
        let set = set(&["10.0.0.0/8", "!10.1.0.0/16", "10.1.2.3", "2001:db8::/32"]);
        assert!(contains(&set, "10.2.0.1"));
        assert!(!contains(&set, "10.1.0.1"));
        assert!(contains(&set, "10.1.2.3"));
        assert!(!contains(&set, "11.0.0.1"));
        assert!(contains(&set, "2001:db8:ffff::1"));
        assert!(!contains(&set, "2001:db9::1"));
        let text = "!10.1.0.0/16, 10.0.0.0/8, 10.1.2.3/32, 2001:db8::/32";
        assert_eq!(set.to_string(), text);
        assert_eq!(set.len(), 4);
    }

    #[test]
    fn everything_and_nothing() {
        assert!(contains(&set(&["0.0.0.0/0"]), "255.255.255.255"));
        assert!(!contains(&set(&["0.0.0.0/0"]), "::1"));
        assert!(contains(&set(&["::/0"]), "::1"));
        assert!(!contains(&Netmasks::default(), "127.0.0.1"));
    }

    #[test]
    fn a_text_that_is_no_netmask_is_told_what_would_be() {
        assert!(
            "192.0.2.1/24".parse::<Netmask>().is_ok(),
            "host bits are cut"
        );
        for wrong in ["", "192.0.2.0/33", "a", "!", "::/129", "1.2.3"] {
            let error = wrong.parse::<Netmask>().unwrap_err().to_string();
            assert!(error.starts_with(&format!("'{wrong}' is no netmask")));
        }
    }

    proptest! {
        #[test]
        fn a_set_is_a_list_searched_for_the_longest(
            entries in proptest::collection::vec((0u32..16, 0u8..=32, any::<bool>()), 0..40),
            asked in 0u32..32,
        ) {
            let netmasks: Vec<Netmask> = entries
                .iter()
                .map(|&(top, bits, negated)| {
                    let network = Ipv4Net::new((top << 28).into(), bits).unwrap();
                    Netmask { negated, ..IpNet::V4(network).into() }
                })
                .collect();
            let address = IpAddr::V4((asked << 27).into());
            let longest = netmasks
                .iter()
                .filter(|netmask| netmask.network.contains(&address))
                .max_by_key(|netmask| netmask.network.prefix_len());
            let expected = longest.is_some_and(|netmask| !netmask.negated);
            prop_assert_eq!(netmasks.into_iter().collect::<Netmasks>().contains(address), expected);
        }
    }
}
