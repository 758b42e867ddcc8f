//! Actions on queries that say something of the answer, or put an option into the query.

use crate::log;
use crate::network::neighbourhood::Neighbourhood;
use crate::pipeline::Env;
use crate::pipeline::extras::ExtendedError;
use crate::pipeline::query::Query;
use crate::pipeline::rules::{Action, Outcome};
use ipnet::IpNet;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use wire::edit;
use wire::message::EdnsOption;

/// `DelayAction(milliseconds)`: "Delay the response by the specified amount of milliseconds (UDP-only). … the sending of the
/// query to the backend, if needed, is not delayed."
pub struct DelayAction {
    pub delay: Duration,
}

impl Action for DelayAction {
    fn act(&self, query: &mut Query<'_>, _: &mut Env<'_>) -> Outcome {
        query.extras().delay = self.delay;
        Outcome::Continue
    }

    fn describe(&self) -> String {
        format!("delay by {} msec", self.delay.as_millis())
    }
}

/// `SetMaxReturnedTTLAction(max)`, in seconds.
pub struct SetMaxReturnedTTLAction {
    pub maximum: u32,
}

impl Action for SetMaxReturnedTTLAction {
    fn act(&self, query: &mut Query<'_>, _: &mut Env<'_>) -> Outcome {
        query.extras().maximum_returned_ttl = Some(self.maximum);
        Outcome::Continue
    }

    fn describe(&self) -> String {
        format!("set max returned ttl to {}", self.maximum)
    }
}

/// `SetTempFailureCacheTTLAction(ttl)`, in seconds: for how long the cache keeps SERVFAIL and REFUSED.
pub struct SetTempFailureCacheTTLAction {
    pub ttl: u32,
}

impl Action for SetTempFailureCacheTTLAction {
    fn act(&self, query: &mut Query<'_>, _: &mut Env<'_>) -> Outcome {
        query.extras().temporary_failure_ttl = Some(self.ttl);
        Outcome::Continue
    }

    fn describe(&self) -> String {
        format!("set tempfailure cache ttl to {}", self.ttl)
    }
}

/// `SetExtendedDNSErrorAction(code [, text [, clear]])`: for clients that know EDNS.
pub struct SetExtendedDNSErrorAction {
    pub error: ExtendedError,
    /// In place of those that the answer has already.
    pub clear: bool,
}

impl Action for SetExtendedDNSErrorAction {
    fn act(&self, query: &mut Query<'_>, _: &mut Env<'_>) -> Outcome {
        if query.knows_edns() {
            query.extras().add_error(self.error.clone(), self.clear);
        }
        Outcome::Continue
    }

    fn describe(&self) -> String {
        describe_error(&self.error)
    }
}

/// What showRules() prints of an extended error.
pub(super) fn describe_error(error: &ExtendedError) -> String {
    let text = String::from_utf8_lossy(&error.text);
    format!("set EDNS Extended DNS Error to {} (\"{text}\")", error.code)
}

/// `SetEDNSOptionAction(code, data)`: "Any existing EDNS content with the same option code will be overwritten." RFC 8945 §5.5:
/// what is signed goes on as it came.
pub struct SetEDNSOptionAction {
    pub code: u16,
    pub value: Box<[u8]>,
}

impl Action for SetEDNSOptionAction {
    fn act(&self, query: &mut Query<'_>, _: &mut Env<'_>) -> Outcome {
        if !query.parts.is_signed {
            set_option(query, self.code, &self.value);
        }
        Outcome::Continue
    }

    fn describe(&self) -> String {
        format!("add EDNS Option (code={})", self.code)
    }
}

/// `SetMacAddrAction(option)`: "Add the source MAC address to the query as EDNS0 option `option`. … Subsequent rules are processed
/// after this action." The query of a client whose address the kernel does not know, one behind a router above all, goes on as
/// it is, and so does one that is signed.
pub struct SetMacAddrAction {
    code: u16,
    neighbours: OnceLock<Arc<Neighbourhood>>,
}

impl SetMacAddrAction {
    pub fn new(code: u16) -> SetMacAddrAction {
        SetMacAddrAction {
            code,
            neighbours: OnceLock::new(),
        }
    }
}

impl Action for SetMacAddrAction {
    fn act(&self, query: &mut Query<'_>, _: &mut Env<'_>) -> Outcome {
        let neighbours = self.neighbours.get().filter(|_| !query.parts.is_signed);
        if let Some(mac) = neighbours.and_then(|all| all.mac(query.client().ip())) {
            set_option(query, self.code, &mac);
        }
        Outcome::Continue
    }

    fn open(&self) {
        if self.neighbours.get().is_some() {
            return;
        }
        match Neighbourhood::shared() {
            Ok(all) => {
                self.neighbours.get_or_init(|| all);
            }
            Err(error) => log::error!("no MAC addresses for queries: {error}"),
        }
    }

    fn describe(&self) -> String {
        format!("add EDNS MAC (code={})", self.code)
    }
}

/// SetECSAction and its relatives: what a server with useClientSubnet is told.
pub enum SubnetAction {
    /// `SetECSAction(v4 [, v6])`: these networks, for clients over IPv4 and IPv6.
    Networks(IpNet, IpNet),
    /// `SetDisableECSAction()`.
    Disable,
    /// `SetECSOverrideAction(override)`.
    Override(bool),
    /// `SetECSPrefixLengthAction(v4, v6)`, in bits.
    Prefixes(u8, u8),
}

impl Action for SubnetAction {
    fn act(&self, query: &mut Query<'_>, _: &mut Env<'_>) -> Outcome {
        let wishes = &mut query.extras().subnet;
        match *self {
            SubnetAction::Networks(v4, v6) => wishes.networks = Some((v4, v6)),
            SubnetAction::Disable => wishes.disabled = true,
            SubnetAction::Override(overrides) => wishes.override_existing = Some(overrides),
            SubnetAction::Prefixes(v4, v6) => wishes.prefixes = Some((v4, v6)),
        }
        Outcome::Continue
    }

    fn describe(&self) -> String {
        match self {
            SubnetAction::Networks(v4, v6) if v4 == v6 => format!("set ECS to {v4}"),
            SubnetAction::Networks(v4, v6) => format!("set ECS to {v4} / {v6}"),
            SubnetAction::Disable => "disable ECS".to_owned(),
            SubnetAction::Override(overrides) => {
                format!("set ECS override to {}", u8::from(*overrides))
            }
            SubnetAction::Prefixes(v4, v6) => format!("set ECS prefix length to {v4}/{v6}"),
        }
    }
}

/// The payload size that is said for a client without EDNS, in bytes: what it takes (RFC 1035 §4.2.1).
const PAYLOAD_SIZE: u16 = 512;

/// Puts an option into the query, in place of those with its code; whether there was room. What trails the query's last
/// record is lost, as the manual says.
pub(crate) fn set_option(query: &mut Query<'_>, code: u16, value: &[u8]) -> bool {
    let question_end = query.parts.question_end;
    let mut length = usize::from(query.parts.end);
    let mut edns = query.parts.edns;
    if let Some(found) = edns {
        let (shorter, left) =
            edit::remove_options(query.message, (question_end, length), found, code);
        (length, edns) = (shorter, Some(left));
    }
    let option = EdnsOption { code, value };
    query.grow(length + edit::option_room(value));
    let changed = edit::set_option(
        query.message,
        (question_end, length),
        edns,
        option,
        PAYLOAD_SIZE,
    );
    if let Some((longer, found)) = changed {
        query.marks.edns_added |= edns.is_none();
        (length, edns) = (longer, Some(found));
    }
    query.length = length;
    query.parts.end = length as u16;
    query.parts.edns = edns;
    changed.is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipeline::query::Protocol;
    use crate::pipeline::rules::actions::answer::RCodeAction;
    use crate::pipeline::rules::selectors::logic::AllRule;
    use crate::pipeline::scene::{Reply, Scene, query, query_with_edns};
    use crate::pipeline::{HandOverReason, rules};
    use wire::codes::qtype;
    use wire::message::parse_response;

    #[test]
    fn an_answer_waits_over_udp_only() {
        let delay = Duration::from_millis(300);
        let mut scene = Scene::with_rule(AllRule, DelayAction { delay });
        scene.add_rule(AllRule, RCodeAction::new(5));
        let message = query("a.", qtype::A);
        assert_eq!(
            scene.ask(&message),
            Reply::HandOver(HandOverReason::Delayed)
        );
        scene.protocol = Protocol::Tcp;
        assert!(matches!(scene.ask(&message), Reply::Answer(_)));
    }

    fn with_error(message: &[u8]) -> Vec<u8> {
        let error = ExtendedError {
            code: 15,
            text: Box::from(*b"no"),
        };
        let mut scene = Scene::with_rule(AllRule, SetExtendedDNSErrorAction { error, clear: true });
        scene.add_rule(AllRule, RCodeAction::new(5));
        match scene.ask(message) {
            Reply::Answer(answer) => answer,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_error_is_for_clients_that_know_edns() {
        let answer = with_error(&query_with_edns("a.", qtype::A, Some(1_232)));
        let edns = parse_response(&answer).unwrap().edns.unwrap();
        let options: Vec<_> = edns
            .options(&answer)
            .map(|option| (option.code, option.value.to_vec()))
            .collect();
        assert_eq!(options, [(15, b"\0\x0fno".to_vec())]);
        let plain = query("a.", qtype::A);
        assert_eq!(with_error(&plain).len(), plain.len());
    }

    #[test]
    fn a_neighbours_address_goes_into_an_option() {
        let mut scene = Scene::default();
        let mac = [2, 0, 0, 0, 0, 9];
        let action = SetMacAddrAction::new(65_001);
        let known = Neighbourhood::of([(scene.client.ip(), mac)]);
        action.neighbours.get_or_init(|| Arc::new(known));
        scene.add_rule(AllRule, action);
        let message = query("a.", qtype::A);
        let option = |scene: &mut Scene| {
            scene.examine(&message, |query, env| {
                let _ = rules::apply(query, env);
                let option = query.parts.edns?.option(query.message, 65_001)?;
                Some(option.to_vec())
            })
        };
        assert_eq!(option(&mut scene), Some(mac.to_vec()));
        scene.client = "192.0.2.77:1".parse().unwrap();
        assert_eq!(option(&mut scene), None, "nobody knows who that is");
    }

    #[test]
    fn an_option_replaces_its_like() {
        let action = SetEDNSOptionAction {
            code: 65_001,
            value: Box::from(*b"abc"),
        };
        let mut scene = Scene::with_rule(AllRule, action);
        let shown = |scene: &mut Scene, message: &[u8]| {
            scene.examine(message, |query, env| {
                let _ = rules::apply(query, env);
                let _ = rules::apply(query, env);
                let edns = query.parts.edns.expect("an OPT record");
                let count = edns.options(query.message).count();
                (count, query.marks.edns_added, query.length)
            })
        };
        let plain = query("a.", qtype::A);
        assert_eq!(shown(&mut scene, &plain), (1, true, plain.len() + 18));
        let edns = query_with_edns("a.", qtype::A, Some(4_096));
        assert_eq!(shown(&mut scene, &edns), (1, false, edns.len() + 7));
        // Who has no key changes nothing.
        let mut signed = plain.clone();
        signed[11] = 1;
        signed.extend([0, 0, qtype::TSIG as u8, 0, 255, 0, 0, 0, 0, 0, 0]);
        let after = scene.examine(&signed, |query, env| {
            let _ = rules::apply(query, env);
            query.bytes().to_vec()
        });
        assert_eq!(after, signed);
    }
}
