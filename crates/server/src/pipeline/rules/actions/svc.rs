//! SpoofSVCAction: answers with service bindings (RFC 9460).

use super::spoof::{SpoofOptions, finish};
use crate::pipeline::Env;
use crate::pipeline::compose::{Composition, record_class};
use crate::pipeline::query::Query;
use crate::pipeline::rules::{Action, Outcome};
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr};
use wire::codes::{qtype, rcode};
use wire::edit::NewRecord;
use wire::message::Section;
use wire::name::NameBuf;

/// Keys of parameters (RFC 9460 §14.3.2).
const MANDATORY: u16 = 0;
const ALPN: u16 = 1;
const NO_DEFAULT_ALPN: u16 = 2;
const PORT: u16 = 3;
const IPV4HINT: u16 = 4;
const ECH: u16 = 5;
const IPV6HINT: u16 = 6;

/// One service binding: what newSVCRecordParameters was given.
#[derive(Debug, Clone)]
pub struct ServiceBinding {
    pub priority: u16,
    pub target: NameBuf,
    pub mandatory: Vec<u16>,
    pub alpns: Vec<Vec<u8>>,
    pub no_default_alpn: bool,
    pub port: Option<u16>,
    pub ech: Vec<u8>,
    pub v4_hints: Vec<Ipv4Addr>,
    pub v6_hints: Vec<Ipv6Addr>,
    /// By key.
    pub others: BTreeMap<u16, Vec<u8>>,
}

impl ServiceBinding {
    /// The record's data (RFC 9460 §2.2): "SvcParamKeys SHALL appear in increasing numeric order".
    ///
    /// ```text
    /// priority 2 │ target, not compressed │ { key 2 │ length 2 │ value } …
    /// ```
    pub fn data(&self) -> Vec<u8> {
        let mut data = self.priority.to_be_bytes().to_vec();
        data.extend_from_slice(self.target.as_name().as_bytes());
        for (key, value) in self.parameters() {
            data.extend(key.to_be_bytes());
            data.extend((value.len() as u16).to_be_bytes());
            data.extend(value);
        }
        data
    }

    fn parameters(&self) -> BTreeMap<u16, Vec<u8>> {
        let mut parameters = self.others.clone();
        let mut put = |key, value: Vec<u8>| {
            if !value.is_empty() {
                parameters.insert(key, value);
            }
        };
        let mut mandatory = self.mandatory.clone();
        // RFC 9460 §8: "in strictly increasing numeric order".
        mandatory.sort_unstable();
        mandatory.dedup();
        put(
            MANDATORY,
            mandatory.iter().flat_map(|key| key.to_be_bytes()).collect(),
        );
        let alpn = |alpn: &Vec<u8>| [&[alpn.len() as u8][..], &alpn[..]].concat();
        put(ALPN, self.alpns.iter().flat_map(alpn).collect());
        put(
            PORT,
            self.port
                .map(u16::to_be_bytes)
                .into_iter()
                .flatten()
                .collect(),
        );
        put(
            IPV4HINT,
            self.v4_hints.iter().flat_map(Ipv4Addr::octets).collect(),
        );
        put(ECH, self.ech.clone());
        put(
            IPV6HINT,
            self.v6_hints.iter().flat_map(Ipv6Addr::octets).collect(),
        );
        if self.no_default_alpn {
            parameters.insert(NO_DEFAULT_ALPN, Vec::new());
        }
        parameters
    }
}

/// `SpoofSVCAction(parameters [, options])`: "it is assumed they match the query type". The hints are additional records of
/// the target, or of the name asked for where the target is the root.
pub struct SpoofSVCAction {
    bindings: Vec<(ServiceBinding, Vec<u8>)>,
    options: SpoofOptions,
}

impl SpoofSVCAction {
    pub fn new(bindings: Vec<ServiceBinding>, options: SpoofOptions) -> SpoofSVCAction {
        let with_data = |binding: ServiceBinding| {
            let data = binding.data();
            (binding, data)
        };
        SpoofSVCAction {
            bindings: bindings.into_iter().map(with_data).collect(),
            options,
        }
    }

    fn add_hints(
        &self,
        binding: &ServiceBinding,
        composition: &mut Composition,
        query: &mut Query<'_>,
    ) {
        let target = binding.target.as_name();
        let class = record_class(query.parts.qclass);
        let mut add = |rtype, rdata: &[u8]| {
            let record = NewRecord {
                section: Section::Additional,
                owner: (target.as_bytes().len() > 1).then_some(target),
                rtype,
                class,
                ttl: self.options.ttl,
                rdata,
            };
            composition.add(query, &record);
        };
        for hint in &binding.v4_hints {
            add(qtype::A, &hint.octets());
        }
        for hint in &binding.v6_hints {
            add(qtype::AAAA, &hint.octets());
        }
    }
}

impl Action for SpoofSVCAction {
    fn act(&self, query: &mut Query<'_>, env: &mut Env<'_>) -> Outcome {
        let rtype = query.parts.qtype;
        let class = record_class(query.parts.qclass);
        let mut composition = Composition::begin(query, env, rcode::NOERROR);
        for (_, data) in &self.bindings {
            let record = NewRecord {
                section: Section::Answer,
                owner: None,
                rtype,
                class,
                ttl: self.options.ttl,
                rdata: data,
            };
            composition.add(query, &record);
        }
        for (binding, _) in &self.bindings {
            self.add_hints(binding, &mut composition, query);
        }
        finish(composition, query, env, self.options.flags)
    }

    fn describe(&self) -> String {
        "spoof SVC record".to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipeline::rules::selectors::logic::AllRule;
    use crate::pipeline::scene::{Reply, Scene, query_with_edns};
    use wire::message::parse_response;

    fn binding() -> ServiceBinding {
        ServiceBinding {
            priority: 1,
            target: ".".parse().unwrap(),
            mandatory: vec![3, 1],
            alpns: vec![b"h2".to_vec()],
            no_default_alpn: true,
            port: Some(443),
            ech: Vec::new(),
            v4_hints: vec![[192, 0, 2, 1].into()],
            v6_hints: vec!["2001:db8::1".parse().unwrap()],
            others: [(42, b"x".to_vec())].into(),
        }
    }

    #[test]
    fn parameters_are_in_the_order_of_their_keys() {
        let data = binding().data();
        let expected = b"\0\x01\0\0\0\0\x04\0\x01\0\x03\0\x01\0\x03\x02h2\0\x02\0\0\0\x03\0\x02\x01\xbb\0\x04\0\x04\xc0\0\x02\x01\0\x06\0\x10";
        assert_eq!(data[..expected.len()], *expected);
        assert!(data.ends_with(b"\0\x2a\0\x01x"));
    }

    #[test]
    fn hints_are_additional_records() {
        let action = SpoofSVCAction::new(vec![binding()], SpoofOptions::default());
        let message = query_with_edns("www.example.", qtype::HTTPS, Some(1_232));
        let Reply::Answer(answer) = Scene::with_rule(AllRule, action).ask(&message) else {
            panic!("no answer")
        };
        let parts = parse_response(&answer).unwrap();
        // The OPT record is one of them.
        assert_eq!((parts.answer_count, parts.additional_count), (1, 3));
    }
}
