//! Selectors by who asks, where, and over what.

use crate::pipeline::Env;
use crate::pipeline::acl::Netmasks;
use crate::pipeline::query::{Protocol, Query};
use crate::pipeline::rules::Selector;
use std::sync::Arc;

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
    fn matches(&self, query: &Query<'_>, _: &mut Env<'_>) -> bool {
        let address = match self.side {
            Side::Source => query.client,
            Side::Destination => query.destination,
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
    fn matches(&self, query: &Query<'_>, _: &mut Env<'_>) -> bool {
        query.destination.port() == self.0
    }

    fn describe(&self) -> String {
        format!("dst port=={}", self.0)
    }
}

/// `TCPRule(tcp)`: over TCP if `true`, over UDP if `false`.
pub struct TCPRule(pub bool);

impl Selector for TCPRule {
    fn matches(&self, query: &Query<'_>, _: &mut Env<'_>) -> bool {
        (query.protocol == Protocol::Tcp) == self.0
    }

    fn describe(&self) -> String {
        if self.0 { "TCP" } else { "UDP" }.to_owned()
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
}
