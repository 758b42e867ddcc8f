//! Actions that answer with records made up here.

use super::answer::AnswerFlags;
use crate::pipeline::Env;
use crate::pipeline::compose::{self, Composition, record_class};
use crate::pipeline::query::Query;
use crate::pipeline::rules::{Action, Outcome};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use wire::codes::{qtype, rcode};
use wire::edit::NewRecord;
use wire::message::{HEADER_LENGTH, Section};
use wire::name::NameBuf;

/// The options of actions that make up records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpoofOptions {
    pub flags: AnswerFlags,
    /// Seconds.
    pub ttl: u32,
}

impl Default for SpoofOptions {
    fn default() -> SpoofOptions {
        SpoofOptions {
            flags: AnswerFlags::default(),
            ttl: 60,
        }
    }
}

/// `SpoofAction(addresses [, options])`: "If you specify multiple addresses, all that match the query type (A, AAAA or ANY)
/// will get spoofed in"; a query for what there is none of goes on to the next rule. The first one changes at random.
pub struct SpoofAction {
    v4: Vec<[u8; 4]>,
    v6: Vec<[u8; 16]>,
    options: SpoofOptions,
}

impl SpoofAction {
    pub fn new(addresses: &[IpAddr], options: SpoofOptions) -> SpoofAction {
        let v4 = |address: &IpAddr| match address {
            IpAddr::V4(address) => Some(address.octets()),
            IpAddr::V6(_) => None,
        };
        let v6 = |address: &IpAddr| match address {
            IpAddr::V4(_) => None,
            IpAddr::V6(address) => Some(address.octets()),
        };
        SpoofAction {
            v4: addresses.iter().filter_map(v4).collect(),
            v6: addresses.iter().filter_map(v6).collect(),
            options,
        }
    }
}

impl Action for SpoofAction {
    fn act(&self, query: &mut Query<'_>, env: &mut Env<'_>) -> Outcome {
        let asked = query.parts.qtype;
        let is_asked = |rtype| asked == rtype || asked == qtype::ANY;
        let v4 = if is_asked(qtype::A) {
            &self.v4[..]
        } else {
            &[]
        };
        let v6 = if is_asked(qtype::AAAA) {
            &self.v6[..]
        } else {
            &[]
        };
        if v4.is_empty() && v6.is_empty() {
            return Outcome::Continue;
        }
        let mut composition = Composition::begin(query, env, rcode::NOERROR);
        let class = record_class(query.parts.qclass);
        let ttl = self.options.ttl;
        for address in rotated(v4, env) {
            composition.add(query, &record((qtype::A, class), ttl, address));
        }
        for address in rotated(v6, env) {
            composition.add(query, &record((qtype::AAAA, class), ttl, address));
        }
        finish(composition, query, env, self.options.flags)
    }

    fn describe(&self) -> String {
        let v4 = self
            .v4
            .iter()
            .map(|octets| Ipv4Addr::from(*octets).to_string());
        let v6 = self
            .v6
            .iter()
            .map(|octets| Ipv6Addr::from(*octets).to_string());
        let addresses: Vec<String> = v4.chain(v6).collect();
        format!("spoof in {}", addresses.join(" "))
    }
}

/// All, from a random one on: so that clients which take the first spread over them.
fn rotated<'a, T>(items: &'a [T], env: &mut Env<'_>) -> impl Iterator<Item = &'a T> + use<'a, T> {
    let first = match items.len() {
        0 | 1 => 0,
        count => env.random.below(count as u32) as usize,
    };
    items[first..].iter().chain(&items[..first])
}

/// A record in the answer section, whose owner is the question's name.
fn record((rtype, class): (u16, u16), ttl: u32, rdata: &[u8]) -> NewRecord<'_> {
    NewRecord {
        section: Section::Answer,
        owner: None,
        rtype,
        class,
        ttl,
        rdata,
    }
}

pub(super) fn finish(
    composition: Composition,
    query: &mut Query<'_>,
    env: &Env<'_>,
    flags: AnswerFlags,
) -> Outcome {
    let length = composition.finish(query, env);
    flags.apply(query.message);
    Outcome::Answer(length)
}

/// `SpoofCNAMEAction(name [, options])`: for every type.
pub struct SpoofCNAMEAction {
    pub target: NameBuf,
    pub options: SpoofOptions,
}

impl Action for SpoofCNAMEAction {
    fn act(&self, query: &mut Query<'_>, env: &mut Env<'_>) -> Outcome {
        let mut composition = Composition::begin(query, env, rcode::NOERROR);
        let kind = (qtype::CNAME, record_class(query.parts.qclass));
        let target = self.target.as_name();
        composition.add(query, &record(kind, self.options.ttl, target.as_bytes()));
        finish(composition, query, env, self.options.flags)
    }

    fn describe(&self) -> String {
        format!("spoof in {}", self.target)
    }
}

/// `SpoofRawAction(data [, options])`: records of the type that is asked for, with these data.
pub struct SpoofRawAction {
    pub data: Vec<Box<[u8]>>,
    /// In place of ANY, which no record has.
    pub type_for_any: Option<u16>,
    pub options: SpoofOptions,
}

impl Action for SpoofRawAction {
    fn act(&self, query: &mut Query<'_>, env: &mut Env<'_>) -> Outcome {
        let rtype = match (query.parts.qtype, self.type_for_any) {
            (qtype::ANY, Some(rtype)) => rtype,
            (asked, _) => asked,
        };
        let kind = (rtype, record_class(query.parts.qclass));
        let mut composition = Composition::begin(query, env, rcode::NOERROR);
        for data in rotated(&self.data, env) {
            composition.add(query, &record(kind, self.options.ttl, data));
        }
        finish(composition, query, env, self.options.flags)
    }

    fn describe(&self) -> String {
        "spoof in raw bytes".to_owned()
    }
}

/// `SpoofPacketAction(packet, length)`: these bytes, under the query's ID.
pub struct SpoofPacketAction {
    packet: Box<[u8]>,
}

impl SpoofPacketAction {
    /// `None` for what has no header.
    pub fn new(packet: &[u8]) -> Option<SpoofPacketAction> {
        (packet.len() >= HEADER_LENGTH).then(|| SpoofPacketAction {
            packet: packet.into(),
        })
    }
}

impl Action for SpoofPacketAction {
    fn act(&self, query: &mut Query<'_>, _: &mut Env<'_>) -> Outcome {
        Outcome::Answer(compose::replace(query, &self.packet))
    }

    fn describe(&self) -> String {
        "spoof raw packet".to_owned()
    }
}

/// `NegativeAndSOAAction(nxd, zone, ttl, mname, rname, serial, refresh, retry, expire, minimum [, options])`: NXDOMAIN or
/// NODATA with an SOA record.
pub struct NegativeAndSOAAction {
    pub nxdomain: bool,
    pub zone: NameBuf,
    /// Seconds.
    pub ttl: u32,
    /// The record's data (RFC 1035 §3.3.13).
    pub soa: Box<[u8]>,
    /// "Place the SOA record in the authority section for a complete NXDOMAIN/NODATA response", else in the additional one.
    pub in_authority: bool,
    pub flags: AnswerFlags,
}

impl Action for NegativeAndSOAAction {
    fn act(&self, query: &mut Query<'_>, env: &mut Env<'_>) -> Outcome {
        let code = if self.nxdomain {
            rcode::NXDOMAIN
        } else {
            rcode::NOERROR
        };
        let mut composition = Composition::begin(query, env, code);
        let section = if self.in_authority {
            Section::Authority
        } else {
            Section::Additional
        };
        let soa = NewRecord {
            section,
            owner: Some(self.zone.as_name()),
            rtype: qtype::SOA,
            class: record_class(query.parts.qclass),
            ttl: self.ttl,
            rdata: &self.soa,
        };
        composition.add(query, &soa);
        finish(composition, query, env, self.flags)
    }

    fn describe(&self) -> String {
        let kind = if self.nxdomain { "NXD" } else { "NODATA" };
        format!("{kind} with SOA")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipeline::rules::actions::limit::DropAction;
    use crate::pipeline::rules::selectors::logic::AllRule;
    use crate::pipeline::scene::{Reply, Scene, query, query_with_edns};
    use std::collections::HashSet;
    use wire::codes::class;
    use wire::message::parse_response;

    fn answered(action: impl Action + 'static, message: &[u8]) -> Vec<u8> {
        match Scene::with_rule(AllRule, action).ask(message) {
            Reply::Answer(answer) => answer,
            other => panic!("{other:?}"),
        }
    }

    fn spoof(addresses: &[&str]) -> SpoofAction {
        let addresses: Vec<IpAddr> = addresses.iter().map(|text| text.parse().unwrap()).collect();
        SpoofAction::new(&addresses, SpoofOptions::default())
    }

    #[test]
    fn addresses_of_the_type_that_is_asked_for() {
        let all = || spoof(&["192.0.2.1", "192.0.2.2", "2001:db8::1"]);
        let count = |qtype| {
            let answer = answered(all(), &query_with_edns("www.example.", qtype, Some(1_232)));
            let parts = parse_response(&answer).unwrap();
            assert_eq!((parts.rcode, usize::from(parts.end)), (0, answer.len()));
            (parts.answer_count, parts.edns.is_some())
        };
        assert_eq!(count(qtype::A), (2, true));
        assert_eq!(count(qtype::AAAA), (1, true));
        assert_eq!(count(qtype::ANY), (3, true));
        assert_eq!(all().describe(), "spoof in 192.0.2.1 192.0.2.2 2001:db8::1");
        // What there is no address for goes on.
        let mut scene = Scene::with_rule(AllRule, spoof(&["192.0.2.1"]));
        scene.add_rule(AllRule, DropAction);
        let reply = scene.ask(&query("a.", qtype::AAAA));
        assert_eq!(reply, Reply::Drop(crate::pipeline::drop::DropReason::Rule));
    }

    #[test]
    fn each_address_is_the_first_one_now_and_then() {
        let mut scene = Scene::with_rule(AllRule, spoof(&["192.0.2.1", "192.0.2.2", "192.0.2.3"]));
        let message = query("a.", qtype::A);
        let mut firsts = HashSet::new();
        for _ in 0..100 {
            let Reply::Answer(answer) = scene.ask(&message) else {
                panic!("no answer")
            };
            firsts.insert(answer[message.len() + 15]);
        }
        assert_eq!(firsts.len(), 3);
    }

    #[test]
    fn what_has_no_room_is_truncated() {
        let many: Vec<String> = (0..60).map(|number| format!("192.0.2.{number}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let answer = answered(spoof(&many), &query("a.", qtype::A));
        assert_eq!((answer[2] & 2, answer.len()), (2, 12 + 3 + 4));
        let answer = answered(spoof(&many), &query_with_edns("a.", qtype::A, Some(1_232)));
        assert_eq!(parse_response(&answer).unwrap().answer_count, 60);
    }

    #[test]
    fn names_data_and_packets() {
        let cname = SpoofCNAMEAction {
            target: "target.example.".parse().unwrap(),
            options: SpoofOptions::default(),
        };
        let message = query("a.", qtype::MX);
        let answer = answered(cname, &message);
        assert_eq!(
            answer[message.len()..],
            *b"\xc0\x0c\0\x05\0\x01\0\0\0\x3c\0\x10\x06target\x07example\0"
        );
        let raw = SpoofRawAction {
            data: vec![Box::from(*b"\x07rfc8482\0")],
            type_for_any: Some(qtype::HINFO),
            options: SpoofOptions::default(),
        };
        let message = query("a.", qtype::ANY);
        assert_eq!(answered(raw, &message)[message.len() + 3], 13);
        let packet = SpoofPacketAction::new(b"\0\0\x81\x83\0\0\0\0\0\0\0\0").unwrap();
        assert_eq!(
            answered(packet, &message),
            *b"\x12\x34\x81\x83\0\0\0\0\0\0\0\0"
        );
        assert!(SpoofPacketAction::new(b"short").is_none());
    }

    /// `version.bind` is asked for in class CHAOS, and who asks takes no record of another class.
    #[test]
    fn records_are_of_the_class_that_is_asked_for() {
        for (asked, expected) in [
            (class::CHAOS, class::CHAOS),
            (class::ANY, class::IN),
            (class::NONE, class::IN),
        ] {
            let mut message = query("version.bind.", qtype::TXT);
            let end = message.len();
            message[end - 2..].copy_from_slice(&asked.to_be_bytes());
            let raw = SpoofRawAction {
                data: vec![Box::from(*b"\x01x")],
                type_for_any: None,
                options: SpoofOptions::default(),
            };
            let answer = answered(raw, &message);
            // Behind a pointer to the name, and the type.
            assert_eq!(answer[end + 4..end + 6], expected.to_be_bytes(), "{asked}");
        }
    }

    #[test]
    fn a_negative_answer_has_its_soa_where_it_is_wanted() {
        let counts = |in_authority, nxdomain| {
            let action = NegativeAndSOAAction {
                nxdomain,
                zone: "example.".parse().unwrap(),
                ttl: 60,
                soa: Box::from([0; 22]),
                in_authority,
                flags: AnswerFlags::default(),
            };
            let answer = answered(action, &query("a.example.", qtype::A));
            let parts = parse_response(&answer).unwrap();
            (parts.rcode, parts.authority_count, parts.additional_count)
        };
        assert_eq!(counts(false, true), (3, 0, 1));
        assert_eq!(counts(true, false), (0, 1, 0));
    }
}
