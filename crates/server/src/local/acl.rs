//! Who may transfer a zone, say that it has changed, or change it: `acl` of `millrace.addZone`. It is asked on every
//! transport, behind the ACL of all queries and behind the rules.

use crate::pipeline::query::Protocol;
use ipnet::IpNet;
use std::fmt;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use wire::name::{Name, NameBuf};

/// What an entry allows or denies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// AXFR and IXFR out.
    Transfer,
    /// NOTIFY in.
    Notify,
    /// Dynamic updates: loaded, and answered with NOTIMP.
    Update,
}

impl Action {
    /// The words of the configuration.
    pub const WORDS: &'static str = "\"transfer\", \"notify\" or \"update\"";
    /// All of them.
    pub const ALL: [Action; 3] = [Action::Transfer, Action::Notify, Action::Update];

    /// The action of this word.
    pub fn of_word(word: &str) -> Option<Action> {
        match word {
            "transfer" => Some(Action::Transfer),
            "notify" => Some(Action::Notify),
            "update" => Some(Action::Update),
            _ => None,
        }
    }
}

/// Addresses of one family that an entry is about: a network, or a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    first: IpAddr,
    last: IpAddr,
    /// Bits that they have in common.
    prefix: u8,
}

impl Span {
    /// The addresses from `first` to `last`. `None`: they are of two families, or the first one is above the last one.
    pub fn range(first: IpAddr, last: IpAddr) -> Option<Span> {
        let prefix = match (first, last) {
            (IpAddr::V4(first), IpAddr::V4(last)) => {
                (first.to_bits() ^ last.to_bits()).leading_zeros()
            }
            (IpAddr::V6(first), IpAddr::V6(last)) => {
                (first.to_bits() ^ last.to_bits()).leading_zeros()
            }
            _ => return None,
        };
        (first <= last).then_some(Span {
            first,
            last,
            prefix: prefix as u8,
        })
    }

    fn contains(&self, address: &IpAddr) -> bool {
        // Addresses of one family stand together in the order of all.
        (self.first..=self.last).contains(address)
    }
}

impl From<IpNet> for Span {
    fn from(network: IpNet) -> Span {
        Span {
            first: network.network(),
            last: network.broadcast(),
            prefix: network.prefix_len(),
        }
    }
}

/// Where the messages come from that an entry is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    /// Any address, and any path.
    Everywhere,
    /// An address: what comes by a path has none.
    Addresses(Span),
    /// The listener at this path.
    Path(Arc<Path>),
}

impl Scope {
    fn covers(&self, asking: Asking<'_>) -> bool {
        match (self, asking.path) {
            (Scope::Everywhere, _) => true,
            (Scope::Addresses(addresses), None) => addresses.contains(&asking.client),
            (Scope::Path(path), Some(came_by)) => **path == *came_by,
            (Scope::Addresses(_), Some(_)) | (Scope::Path(_), None) => false,
        }
    }

    /// The bits that all places in it have in common. A path has no wider ones around it but [`Scope::Everywhere`].
    fn prefix(&self) -> u8 {
        match self {
            Scope::Everywhere => 0,
            Scope::Addresses(addresses) => addresses.prefix,
            Scope::Path(_) => u8::MAX,
        }
    }
}

/// One permission, or its opposite.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub action: Action,
    pub scope: Scope,
    /// `None`: by address or path alone, signed or not.
    pub key: Option<NameBuf>,
    /// `None`: whatever the message came by.
    pub protocol: Option<Protocol>,
    /// What the entry names may not.
    pub denies: bool,
}

/// A message that asks for something.
#[derive(Clone, Copy)]
pub struct Asking<'m> {
    /// Of no meaning where there is a path.
    pub client: IpAddr,
    /// The path of the listener that it came by; `None`: it came from an address.
    pub path: Option<&'m Path>,
    /// The key that signed it.
    pub key: Option<Name<'m>>,
    pub protocol: Protocol,
}

impl Entry {
    fn has_key_of(&self, asking: Asking<'_>) -> bool {
        match &self.key {
            None => true,
            Some(wanted) => asking.key == Some(wanted.as_name()),
        }
    }

    /// Whether it has a say on such a message from this place. One that allows something with a key also says that it
    /// takes this key; one that denies something says nothing of messages with others.
    fn concerns(&self, action: Action, asking: Asking<'_>) -> bool {
        self.action == action
            && self
                .protocol
                .is_none_or(|protocol| protocol == asking.protocol)
            && self.scope.covers(asking)
            && (!self.denies || self.has_key_of(asking))
    }
}

/// The entries of one zone; without one for an action nobody may.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Acl(Vec<Entry>);

impl Acl {
    /// Whether whoever asks may do this; `None`: no entry says so, and none denies it. The longest prefix that covers the
    /// address wins, a range being as long as what its ends have in common, and a path longer than none; of its entries one
    /// that denies does, then any that matches the key.
    pub fn says(&self, action: Action, asking: Asking<'_>) -> Option<bool> {
        let asking = Asking {
            client: asking.client.to_canonical(),
            ..asking
        };
        let covering = || {
            let entries = self.0.iter();
            entries.filter(move |entry| entry.concerns(action, asking))
        };
        let longest = covering().map(|entry| entry.scope.prefix()).max()?;
        let matching = || {
            covering()
                .filter(move |entry| entry.scope.prefix() == longest && entry.has_key_of(asking))
        };
        let is_denied = matching().any(|entry| entry.denies);
        matching().next().map(|_| !is_denied)
    }

    /// Whether a message from this address over TCP may do this, signed with the right key where it takes one.
    pub fn may_let(&self, action: Action, client: IpAddr) -> bool {
        let keys = self.0.iter().filter_map(|entry| entry.key.as_ref());
        let mut ways = std::iter::once(None).chain(keys.map(|key| Some(key.as_name())));
        ways.any(|key| {
            let asking = Asking {
                client,
                path: None,
                key,
                protocol: Protocol::Tcp,
            };
            self.says(action, asking) == Some(true)
        })
    }

    /// Whether anybody may do this.
    pub fn has(&self, action: Action) -> bool {
        self.0
            .iter()
            .any(|entry| entry.action == action && !entry.denies)
    }

    /// The paths that entries name.
    pub fn paths(&self) -> impl Iterator<Item = &Arc<Path>> {
        self.0.iter().filter_map(|entry| match &entry.scope {
            Scope::Path(path) => Some(path),
            Scope::Everywhere | Scope::Addresses(_) => None,
        })
    }
}

impl FromIterator<Entry> for Acl {
    fn from_iter<I: IntoIterator<Item = Entry>>(entries: I) -> Acl {
        Acl(entries.into_iter().collect())
    }
}

impl fmt::Debug for Acl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.0).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::named::END;

    /// A path, everywhere (""), a network, or two addresses with a hyphen between.
    fn entry((place, key): &(&str, Option<&str>)) -> Entry {
        let scope = match place.split_once('-') {
            _ if place.is_empty() => Scope::Everywhere,
            _ if place.starts_with('/') => Scope::Path(Path::new(place).into()),
            Some((first, last)) => {
                let range = Span::range(first.parse().unwrap(), last.parse().unwrap());
                Scope::Addresses(range.unwrap())
            }
            None => Scope::Addresses(place.parse::<IpNet>().unwrap().into()),
        };
        Entry {
            action: Action::Transfer,
            scope,
            key: key.map(|key| key.parse().unwrap()),
            protocol: None,
            denies: false,
        }
    }

    fn acl(entries: &[(&str, Option<&str>)]) -> Acl {
        entries.iter().map(entry).collect()
    }

    /// `client`: an address, or a path.
    fn says(acl: &Acl, client: &str, key: Option<&str>, protocol: Protocol) -> Option<bool> {
        let key: Option<NameBuf> = key.map(|key| key.parse().unwrap());
        let path = client.starts_with('/').then(|| Path::new(client));
        let asking = Asking {
            client: path.map_or_else(|| client.parse().unwrap(), |_| END.ip()),
            path,
            key: key.as_ref().map(NameBuf::as_name),
            protocol,
        };
        acl.says(Action::Transfer, asking)
    }

    #[test]
    fn the_longest_prefix_wins_then_any_entry_of_it_with_the_key() {
        let acl = acl(&[
            ("192.0.2.0/24", None),
            ("192.0.2.128/25", Some("k.")),
            ("192.0.2.128/25", Some("other.")),
            ("2001:db8::/32", Some("k.")),
        ]);
        for (client, key, expected) in [
            ("192.0.2.1", None, true),
            ("192.0.2.1", Some("k."), true),
            ("192.0.2.129", None, false),
            ("192.0.2.129", Some("K."), true),
            ("192.0.2.129", Some("other."), true),
            ("192.0.2.129", Some("third."), false),
            ("::ffff:192.0.2.1", None, true),
            ("2001:db8::1", Some("k."), true),
            ("2001:db8::1", None, false),
            ("198.51.100.1", Some("k."), false),
        ] {
            let expected = expected.then_some(true);
            let said = says(&acl, client, key, Protocol::Tcp);
            assert_eq!(said, expected, "{client} {key:?}");
        }
    }

    /// 10 and 20 are 01010 and 10100 at their ends: 27 bits are the same, so that /28 and longer ones win over the range.
    #[test]
    fn a_range_is_as_long_as_what_its_ends_have_in_common() {
        let acl = acl(&[
            ("192.0.2.0/26", Some("wide.")),
            ("192.0.2.10-192.0.2.20", None),
            ("192.0.2.16/28", Some("k.")),
            ("2001:db8::1-2001:db8::9", None),
        ]);
        for (client, key, expected) in [
            ("192.0.2.9", None, false),
            ("192.0.2.9", Some("wide."), true),
            ("192.0.2.10", None, true),
            ("192.0.2.15", Some("wide."), true),
            ("192.0.2.16", None, false),
            ("192.0.2.20", Some("k."), true),
            ("192.0.2.40", Some("wide."), true),
            ("2001:db8::", None, false),
            ("2001:db8::1", None, true),
            ("2001:db8::9", None, true),
            ("2001:db8::a", None, false),
        ] {
            let expected = expected.then_some(true);
            let said = says(&acl, client, key, Protocol::Tcp);
            assert_eq!(said, expected, "{client} {key:?}");
        }
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        let range = |first, last| Span::range(address(first), address(last));
        assert_eq!(range("192.0.2.2", "192.0.2.1"), None);
        assert_eq!(range("192.0.2.2", "2001:db8::1"), None);
        let one: Span = IpNet::from(address("192.0.2.2")).into();
        assert_eq!(range("192.0.2.2", "192.0.2.2"), Some(one));
    }

    #[test]
    fn what_is_denied_is_denied_to_whom_the_entry_names() {
        let plain = |addresses| entry(&(addresses, None));
        let acl: Acl = [
            plain("192.0.2.0/24"),
            Entry {
                denies: true,
                ..plain("192.0.2.7/32")
            },
            Entry {
                denies: true,
                ..entry(&("192.0.2.8/32", Some("old.")))
            },
            Entry {
                denies: true,
                protocol: Some(Protocol::Udp),
                ..plain("192.0.2.0/24")
            },
            Entry {
                protocol: Some(Protocol::Tcp),
                ..plain("2001:db8::/32")
            },
        ]
        .into_iter()
        .collect();
        for (client, key, protocol, expected) in [
            ("192.0.2.1", None, Protocol::Tcp, Some(true)),
            ("192.0.2.1", None, Protocol::Udp, Some(false)),
            ("192.0.2.7", None, Protocol::Tcp, Some(false)),
            ("192.0.2.7", Some("k."), Protocol::Tcp, Some(false)),
            ("192.0.2.8", Some("old."), Protocol::Tcp, Some(false)),
            ("192.0.2.8", Some("k."), Protocol::Tcp, Some(true)),
            ("2001:db8::1", None, Protocol::Tcp, Some(true)),
            ("2001:db8::1", None, Protocol::Udp, None),
        ] {
            let said = says(&acl, client, key, protocol);
            assert_eq!(said, expected, "{client} {key:?} {protocol:?}");
        }
        let nobody: Acl = [Entry {
            denies: true,
            ..plain("192.0.2.7/32")
        }]
        .into_iter()
        .collect();
        assert!(acl.has(Action::Transfer) && !nobody.has(Action::Transfer));
    }

    #[test]
    fn whoever_may_with_some_key_may() {
        let acl = acl(&[
            ("192.0.2.0/24", None),
            ("198.51.100.0/24", Some("k.")),
            ("/run/open.sock", None),
        ]);
        for (client, expected) in [
            ("192.0.2.1", true),
            ("198.51.100.1", true),
            ("203.0.113.1", false),
            ("2001:db8::1", false),
        ] {
            let may = acl.may_let(Action::Transfer, client.parse().unwrap());
            assert_eq!(may, expected, "{client}");
        }
        assert!(!acl.may_let(Action::Notify, "192.0.2.1".parse().unwrap()));
    }

    #[test]
    fn a_path_is_no_address_and_an_address_no_path() {
        let all = acl(&[
            ("0.0.0.0/0", None),
            ("127.0.0.1/32", None),
            ("::/0", None),
            ("/run/open.sock", None),
            ("/run/signed.sock", Some("k.")),
            ("", Some("any.")),
        ]);
        for (client, key, expected) in [
            ("127.0.0.1", None, true),
            ("/run/open.sock", None, true),
            ("/run/open.sock", Some("any."), true),
            ("/run/signed.sock", None, false),
            ("/run/signed.sock", Some("k."), true),
            // The path is longer than everywhere.
            ("/run/signed.sock", Some("any."), false),
            ("/run/other.sock", None, false),
            ("/run/other.sock", Some("any."), true),
            ("/run", None, false),
        ] {
            let expected = expected.then_some(true);
            let said = says(&all, client, key, Protocol::Tcp);
            assert_eq!(said, expected, "{client} {key:?}");
        }
        let paths: Vec<_> = all.paths().map(|path| path.to_str()).collect();
        assert_eq!(paths, ["/run/open.sock", "/run/signed.sock"].map(Some));
        // Whoever comes by a path is 127.0.0.1 to others, and nobody by an address here.
        let of_paths = acl(&[("/run/open.sock", None)]);
        assert_eq!(says(&of_paths, "127.0.0.1", None, Protocol::Tcp), None);
        let keyed = acl(&[("", Some("k."))]);
        for client in ["192.0.2.1", "2001:db8::1", "/run/open.sock"] {
            let said = |key| says(&keyed, client, key, Protocol::Tcp);
            assert_eq!((said(Some("k.")), said(None)), (Some(true), None));
        }
        let denying: Acl = [
            entry(&("", None)),
            Entry {
                denies: true,
                ..entry(&("/run/open.sock", None))
            },
        ]
        .into_iter()
        .collect();
        let said = |client| says(&denying, client, None, Protocol::Tcp);
        assert_eq!(said("/run/open.sock"), Some(false));
        assert_eq!(said("/run/other.sock"), Some(true));
    }

    #[test]
    fn an_action_that_no_entry_names_is_nobodys() {
        let acl = acl(&[("0.0.0.0/0", None)]);
        let asking = Asking {
            client: "192.0.2.1".parse().unwrap(),
            path: None,
            key: None,
            protocol: Protocol::Udp,
        };
        assert_eq!(acl.says(Action::Notify, asking), None);
        assert!(acl.has(Action::Transfer) && !acl.has(Action::Update));
    }
}
