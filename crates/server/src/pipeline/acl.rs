//! Who may ask: `setACL` and its relatives; and sets of netmasks for whoever else needs one.

use super::Env;
use super::drop::DropReason;
use super::ranges::Ranges;
use crate::counters::Counter;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;
use std::sync::OnceLock;

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
        let unbracketed = without_brackets(rest);
        let rest = unbracketed.as_deref().unwrap_or(rest);
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

/// `2001:db8::/32` for `[2001:db8::]/32`, which dnsdist reads too.
fn without_brackets(text: &str) -> Option<String> {
    let (address, length) = text.strip_prefix('[')?.split_once(']')?;
    let is_v6 = address.contains(':') && (length.is_empty() || length.starts_with('/'));
    is_v6.then(|| format!("{address}{length}"))
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
/// one short binary search in others.
#[derive(Clone, Default)]
pub struct Netmasks {
    /// The value: whether the entry includes.
    v4: BTreeMap<Ipv4Net, bool>,
    v6: BTreeMap<Ipv6Net, bool>,
    /// The same, the longest first, as long as they are few: network, mask, whether it includes.
    few_v4: Vec<(u32, u32, bool)>,
    few_v6: Vec<(u128, u128, bool)>,
    /// The same as ranges when they are many, from the first look-up to the next change: four bytes an end for IPv4,
    /// sixteen for IPv6.
    many_v4: OnceLock<Ranges<u32>>,
    many_v6: OnceLock<Ranges<u128>>,
}

impl Netmasks {
    /// Adds an entry; of two with the same network the later one stands.
    pub fn insert(&mut self, netmask: Netmask) {
        match netmask.network.trunc() {
            IpNet::V4(network) => {
                self.v4.insert(network, !netmask.negated);
                self.many_v4.take();
                if self.v4.len() <= FEW {
                    let bits = |network: Ipv4Net| {
                        (network.network().to_bits(), network.netmask().to_bits())
                    };
                    self.few_v4 = longest_first(self.v4.iter(), bits);
                }
            }
            IpNet::V6(network) => {
                self.v6.insert(network, !netmask.negated);
                self.many_v6.take();
                if self.v6.len() <= FEW {
                    let bits = |network: Ipv6Net| {
                        (network.network().to_bits(), network.netmask().to_bits())
                    };
                    self.few_v6 = longest_first(self.v6.iter(), bits);
                }
            }
        }
    }

    /// Lays many entries out now, so that the first look-up need not.
    pub fn prepare(&self) {
        if self.v4.len() > FEW {
            self.ranges_v4();
        }
        if self.v6.len() > FEW {
            self.ranges_v6();
        }
    }

    #[inline]
    fn ranges_v4(&self) -> &Ranges<u32> {
        self.many_v4.get_or_init(|| {
            let spans = self.v4.iter().map(|(network, included)| {
                let (first, last) = (network.network(), network.broadcast());
                (first.to_bits(), last.to_bits(), *included)
            });
            Ranges::new(spans)
        })
    }

    #[inline]
    fn ranges_v6(&self) -> &Ranges<u128> {
        self.many_v6.get_or_init(|| {
            let spans = self.v6.iter().map(|(network, included)| {
                let (first, last) = (network.network(), network.broadcast());
                (first.to_bits(), last.to_bits(), *included)
            });
            Ranges::new(spans)
        })
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
            IpAddr::V4(address) => self.ranges_v4().contain(address.to_bits()),
            IpAddr::V6(address) => self.ranges_v6().contain(address.to_bits()),
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
        let v4 = self.v4.iter().map(|(&network, included)| Netmask {
            network: IpNet::V4(network),
            negated: !included,
        });
        let v6 = self.v6.iter().map(|(&network, included)| Netmask {
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
        set.prepare();
        set
    }
}

/// Network, mask and what is kept of each entry, the longest mask first.
fn longest_first<'e, N: Copy + 'e, B: Ord>(
    entries: impl Iterator<Item = (&'e N, &'e bool)>,
    bits: impl Fn(N) -> (B, B),
) -> Vec<(B, B, bool)> {
    let mut few: Vec<(B, B, bool)> = entries
        .map(|(network, included)| {
            let (network, mask) = bits(*network);
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

/// Whether a client that has connected, and asked nothing yet, gets past the "acl" stage; one that does not is counted as a query
/// of its would be.
pub fn admits(client: SocketAddr, env: &Env<'_>) -> bool {
    let allowed = allows(client, env);
    if !allowed {
        env.shard.count_drop(DropReason::Acl);
    }
    allowed
}

/// The "acl" stage, and its look at whom a proxy names.
#[inline]
pub fn allows(client: SocketAddr, env: &Env<'_>) -> bool {
    let allowed = env.config.acl.contains(client.ip());
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
    fn brackets_around_an_ipv6_address_are_left_out() {
        for (text, expected) in [
            ("[::]/0", "::/0"),
            ("[2001:db8::1]", "2001:db8::1/128"),
            ("![2001:db8::]/32", "!2001:db8::/32"),
        ] {
            let netmask: Netmask = text.parse().unwrap();
            assert_eq!(netmask.to_string(), expected, "{text}");
        }
    }

    #[test]
    fn a_text_that_is_no_netmask_is_told_what_would_be() {
        assert!(
            "192.0.2.1/24".parse::<Netmask>().is_ok(),
            "host bits are cut"
        );
        for wrong in [
            "",
            "192.0.2.0/33",
            "a",
            "!",
            "::/129",
            "1.2.3",
            "[::1",
            "[::1]5",
            "[::]/129",
            "[192.0.2.1]",
        ] {
            let error = wrong.parse::<Netmask>().unwrap_err().to_string();
            assert!(error.starts_with(&format!("'{wrong}' is no netmask")));
        }
    }

    /// What the longest of the masks that cover an address says.
    fn searched_one_by_one(netmasks: &[Netmask], address: IpAddr) -> bool {
        let covering = netmasks
            .iter()
            .filter(|netmask| netmask.network.contains(&address));
        // Of several with the same network the last one stands: max_by_key gives it.
        let longest = covering.max_by_key(|netmask| netmask.network.prefix_len());
        longest.is_some_and(|netmask| !netmask.negated)
    }

    #[test]
    fn a_change_after_a_look_up_counts() {
        let mut set: Netmasks = (0..40u32)
            .map(|number| IpNet::V4(Ipv4Net::new((number << 24).into(), 8).unwrap()))
            .collect();
        assert!(contains(&set, "3.1.2.3"));
        set.insert("!3.1.0.0/16".parse().unwrap());
        assert!(!contains(&set, "3.1.2.3"));
        assert!(contains(&set.clone(), "3.2.0.0"));
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
            let expected = searched_one_by_one(&netmasks, address);
            prop_assert_eq!(netmasks.into_iter().collect::<Netmasks>().contains(address), expected);
        }

        #[test]
        fn a_large_set_is_that_list_too(
            entries in proptest::collection::vec((any::<u16>(), 0u8..=20, any::<bool>()), 17..200),
            asked in proptest::collection::vec(any::<u16>(), 50),
        ) {
            // Crowded, so that masks lie within and beside each other: 16 bits that count, and four below them.
            let v4 = entries.iter().map(|&(top, bits, negated)| {
                let network = Ipv4Net::new((u32::from(top) << 12).into(), bits + 12).unwrap();
                Netmask { negated, ..IpNet::V4(network).into() }
            });
            let v6 = entries.iter().map(|&(top, bits, negated)| {
                let network = Ipv6Net::new((u128::from(top) << 112).into(), bits).unwrap();
                Netmask { negated, ..IpNet::V6(network).into() }
            });
            let netmasks: Vec<Netmask> = v4.chain(v6).collect();
            let set: Netmasks = netmasks.iter().copied().collect();
            for asked in asked {
                let v4 = IpAddr::V4((u32::from(asked) << 12 | 7).into());
                prop_assert_eq!(set.contains(v4), searched_one_by_one(&netmasks, v4), "{}", v4);
                let v6 = IpAddr::V6((u128::from(asked) << 112).into());
                prop_assert_eq!(set.contains(v6), searched_one_by_one(&netmasks, v6), "{}", v6);
            }
        }
    }
}
