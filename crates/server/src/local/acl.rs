//! Who may transfer a zone, say that it has changed, or change it: `acl` of `millrace.addZone`. It is asked on every
//! transport, behind the ACL of all queries and behind the rules.

use ipnet::IpNet;
use std::fmt;
use std::net::IpAddr;
use wire::name::{Name, NameBuf};

/// What an entry allows.
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

/// One permission.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub action: Action,
    /// Bits behind the prefix are zero.
    pub network: IpNet,
    /// `None`: by address alone, signed or not.
    pub key: Option<NameBuf>,
}

/// The entries of one zone; without one for an action nobody may.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Acl(Vec<Entry>);

impl Acl {
    /// Whether `client`, whose message was signed with `key` if with any, may do this. The longest prefix that covers the
    /// address wins; of its entries any that matches the key does.
    pub fn allows(&self, action: Action, client: IpAddr, key: Option<Name<'_>>) -> bool {
        let client = client.to_canonical();
        let covers = |entry: &&Entry| entry.action == action && entry.network.contains(&client);
        let covering = || self.0.iter().filter(covers);
        let Some(longest) = covering().map(|entry| entry.network.prefix_len()).max() else {
            return false;
        };
        covering()
            .filter(|entry| entry.network.prefix_len() == longest)
            .any(|entry| match &entry.key {
                None => true,
                Some(wanted) => key == Some(wanted.as_name()),
            })
    }

    /// Whether anybody may do this.
    pub fn has(&self, action: Action) -> bool {
        self.0.iter().any(|entry| entry.action == action)
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

    fn acl(entries: &[(&str, Option<&str>)]) -> Acl {
        let entry = |(network, key): &(&str, Option<&str>)| Entry {
            action: Action::Transfer,
            network: network.parse().unwrap(),
            key: key.map(|key| key.parse().unwrap()),
        };
        entries.iter().map(entry).collect()
    }

    fn allows(acl: &Acl, client: &str, key: Option<&str>) -> bool {
        let key: Option<NameBuf> = key.map(|key| key.parse().unwrap());
        let key = key.as_ref().map(NameBuf::as_name);
        acl.allows(Action::Transfer, client.parse().unwrap(), key)
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
            assert_eq!(allows(&acl, client, key), expected, "{client} {key:?}");
        }
    }

    #[test]
    fn an_action_that_no_entry_names_is_nobodys() {
        let acl = acl(&[("0.0.0.0/0", None)]);
        assert!(!acl.allows(Action::Notify, "192.0.2.1".parse().unwrap(), None));
        assert!(acl.has(Action::Transfer) && !acl.has(Action::Update));
    }
}
