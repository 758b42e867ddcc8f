//! Selectors by who asks, where, and over what.

use crate::clock::Now;
use crate::pipeline::Env;
use crate::pipeline::acl::Netmasks;
use crate::pipeline::query::{Protocol, Query};
use crate::pipeline::rules::Selector;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, PoisonError, RwLock};

/// Which address of a query is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Side {
    /// The client's.
    #[default]
    Source,
    /// The one that the client sent to.
    Destination,
}

/// `NetmaskGroupRule(nmg [, src [, quiet]])`.
pub struct NetmaskGroupRule {
    pub netmasks: Arc<Netmasks>,
    pub side: Side,
    /// Do not list the netmasks in showRules().
    pub quiet: bool,
}

impl Selector for NetmaskGroupRule {
    fn matches(&self, query: &mut Query<'_>, _: &mut Env<'_>) -> bool {
        let address = match self.side {
            Side::Source => query.client(),
            Side::Destination => query.destination(),
        };
        self.netmasks.contains(address.ip())
    }

    fn describe(&self) -> String {
        let side = match self.side {
            Side::Source => "Src",
            Side::Destination => "Dst",
        };
        if self.quiet {
            return format!("{side}: in-group");
        }
        format!("{side}: {}", self.netmasks)
    }
}

/// `DSTPortRule(port)`: sent to this port.
pub struct DSTPortRule(pub u16);

impl Selector for DSTPortRule {
    fn matches(&self, query: &mut Query<'_>, _: &mut Env<'_>) -> bool {
        query.destination().port() == self.0
    }

    fn describe(&self) -> String {
        format!("dst port=={}", self.0)
    }
}

/// `TCPRule(tcp)`: over TCP if `true`, over UDP if `false`.
pub struct TCPRule(pub bool);

impl Selector for TCPRule {
    fn matches(&self, query: &mut Query<'_>, _: &mut Env<'_>) -> bool {
        (query.protocol == Protocol::Tcp) == self.0
    }

    fn describe(&self) -> String {
        if self.0 { "TCP" } else { "UDP" }.to_owned()
    }
}

/// `IncomingProtocolRule(name)`: dnsdist's names are DoUDP, DoTCP, and those of protocols that are not there.
pub struct IncomingProtocolRule(pub String);

/// The names that the manual has.
pub const INCOMING_PROTOCOLS: [&str; 8] = [
    "DoUDP",
    "DoTCP",
    "DNSCryptUDP",
    "DNSCryptTCP",
    "DoT",
    "DoH",
    "DoQ",
    "DoH3",
];

impl Selector for IncomingProtocolRule {
    fn matches(&self, query: &mut Query<'_>, _: &mut Env<'_>) -> bool {
        let name = match query.protocol {
            Protocol::Udp => "DoUDP",
            Protocol::Tcp => "DoTCP",
        };
        self.0 == name
    }

    fn describe(&self) -> String {
        format!("incoming protocol=={}", self.0)
    }
}

/// `SNIRule(name)`: a name in TLS, which queries over UDP and TCP do not have.
pub struct SNIRule(pub String);

impl Selector for SNIRule {
    fn matches(&self, _: &mut Query<'_>, _: &mut Env<'_>) -> bool {
        false
    }

    fn describe(&self) -> String {
        format!("SNI == {}", self.0)
    }
}

/// `HTTPPathRule(path)`, `HTTPPathRegexRule(regex)` and `HTTPHeaderRule(name, regex)`: "Matches DNS over HTTPS queries", of which
/// there are none.
pub struct HttpsRule(
    /// What `showRules()` prints.
    pub String,
);

impl Selector for HttpsRule {
    fn matches(&self, _: &mut Query<'_>, _: &mut Env<'_>) -> bool {
        false
    }

    fn describe(&self) -> String {
        self.0.clone()
    }
}

/// `TimedIPSetRule()`: clients that were put into the set, each for a time. The set is shared by all that it was given to.
#[derive(Clone, Default)]
pub struct TimedIPSetRule(Arc<RwLock<HashMap<IpAddr, Now>>>);

impl TimedIPSetRule {
    /// Puts an address in until a moment; one that is in already stays as long as the later of both.
    pub fn add(&self, address: IpAddr, until: Now) {
        let mut set = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let end = set.entry(address).or_insert(until);
        *end = until.max(*end);
    }

    /// Forgets those whose time is over.
    pub fn clean_up(&self, now: Now) {
        let mut set = self.0.write().unwrap_or_else(PoisonError::into_inner);
        set.retain(|_, until| *until > now);
    }

    /// Forgets all.
    pub fn clear(&self) {
        self.0
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .clear();
    }
}

impl Selector for TimedIPSetRule {
    fn matches(&self, query: &mut Query<'_>, env: &mut Env<'_>) -> bool {
        let set = self.0.read().unwrap_or_else(PoisonError::into_inner);
        set.get(&query.client().ip())
            .is_some_and(|until| *until > env.now)
    }

    fn describe(&self) -> String {
        let set = self.0.read().unwrap_or_else(PoisonError::into_inner);
        format!("Src: {} ips", set.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipeline::acl::Netmask;
    use crate::pipeline::scene::{Scene, query};
    use wire::codes::qtype;

    #[test]
    fn source_and_destination_are_told_apart() {
        let group = |mask: &str, side| NetmaskGroupRule {
            netmasks: Arc::new([mask.parse::<Netmask>().unwrap()].into_iter().collect()),
            side,
            quiet: false,
        };
        let mut scene = Scene::default();
        let message = query("a.", qtype::A);
        assert!(scene.matches(&group("192.0.2.9", Side::Source), &message));
        assert!(!scene.matches(&group("192.0.2.9", Side::Destination), &message));
        assert!(scene.matches(&group("192.0.2.1/32", Side::Destination), &message));
        let described = group("192.0.2.9", Side::Source).describe();
        assert_eq!(described, "Src: 192.0.2.9/32");
    }

    #[test]
    fn port_and_protocol() {
        let mut scene = Scene::default();
        let message = query("a.", qtype::A);
        assert!(scene.matches(&DSTPortRule(53), &message));
        assert!(!scene.matches(&DSTPortRule(4242), &message));
        assert!(scene.matches(&TCPRule(false), &message));
        scene.protocol = Protocol::Tcp;
        assert!(scene.matches(&TCPRule(true), &message));
        assert!(!scene.matches(&TCPRule(false), &message));
    }

    #[test]
    fn an_address_is_in_the_set_for_its_time() {
        let mut scene = Scene::default();
        let message = query("a.", qtype::A);
        let set = TimedIPSetRule::default();
        assert!(!scene.matches(&set, &message));
        set.add(scene.client.ip(), Now(scene.now.0 + 5));
        set.add(scene.client.ip(), Now(scene.now.0 + 1));
        assert!(scene.matches(&set, &message));
        scene.now = Now(scene.now.0 + 5);
        assert!(!scene.matches(&set, &message));
        assert_eq!(set.describe(), "Src: 1 ips");
        set.clean_up(scene.now);
        assert_eq!(set.describe(), "Src: 0 ips");
    }

    #[test]
    fn protocols_by_name() {
        let mut scene = Scene::default();
        let message = query("a.", qtype::A);
        assert!(scene.matches(&IncomingProtocolRule("DoUDP".to_owned()), &message));
        assert!(!scene.matches(&IncomingProtocolRule("DoH".to_owned()), &message));
        assert!(!scene.matches(&SNIRule(String::new()), &message));
        assert!(!scene.matches(&HttpsRule("url path == /".to_owned()), &message));
    }
}
