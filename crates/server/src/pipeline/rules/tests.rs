//! All selectors and actions at once, on whatever a client sends.

use super::actions::answer::{AnswerFlags, ERCodeAction, RCodeAction, TCAction};
use super::actions::limit::{DropAction, QPSAction};
use super::actions::pass::{
    ContinueAction, NoneAction, SetDisableValidationAction, SetNoRecurseAction, SetSkipCacheAction,
};
use super::actions::route::{PoolAction, QPSPoolAction};
use super::names::{NameSet, SuffixSet};
use super::selectors::{client, logic, message, name, pool, random, rate};
use super::*;
use crate::config::pools::PoolId;
use crate::pipeline::query::Protocol;
use crate::pipeline::scene::{Scene, query_with_edns};
use proptest::prelude::*;
use wire::codes::qtype;
use wire::message::Section;
use wire::name::NameBuf;

fn by_name_and_client() -> Vec<Arc<dyn Selector>> {
    let example: NameBuf = "example.com.".parse().unwrap();
    let suffixes: SuffixSet = [example.as_name()].into_iter().collect();
    let names: NameSet = [example.as_name()].into_iter().collect();
    let netmasks = ["192.0.2.0/25".parse::<ipnet::IpNet>().unwrap()];
    vec![
        Arc::new(logic::AllRule),
        Arc::new(name::QNameRule(example)),
        Arc::new(name::QNameSuffixRule {
            suffixes: Arc::new(suffixes),
            quiet: false,
        }),
        Arc::new(name::QNameSetRule(Arc::new(names))),
        Arc::new(name::QNameLabelsCountRule {
            minimum: 1,
            maximum: 3,
        }),
        Arc::new(name::QNameWireLengthRule {
            minimum: 2,
            maximum: 30,
        }),
        Arc::new(name::RegexRule::new("^[a-m.]+$").unwrap()),
        Arc::new(client::NetmaskGroupRule {
            netmasks: Arc::new(netmasks.into_iter().collect()),
            side: client::Side::Source,
            quiet: false,
        }),
        Arc::new(client::DSTPortRule(53)),
        Arc::new(client::TCPRule(true)),
        Arc::new(random::ProbaRule::new(0.5)),
        Arc::new(pool::PoolAvailableRule {
            pool: PoolId(9),
            name: String::new(),
        }),
        Arc::new(pool::PoolOutstandingRule {
            pool: PoolId(9),
            name: String::new(),
            limit: 1,
        }),
        Arc::new(rate::MaxQPSRule::new(5, None)),
        Arc::new(rate::MaxQPSIPRule::new(5, 24, 48, None)),
    ]
}

fn by_message() -> Vec<Arc<dyn Selector>> {
    let section = message::CountedSection::Records(Section::Additional);
    let (minimum, maximum) = (1, 2);
    vec![
        Arc::new(message::QTypeRule(qtype::A)),
        Arc::new(message::QClassRule(1)),
        Arc::new(message::OpcodeRule(0)),
        Arc::new(message::RDRule),
        Arc::new(message::DNSSECRule),
        Arc::new(message::EDNSVersionRule(0)),
        Arc::new(message::EDNSOptionRule(10)),
        Arc::new(message::RCodeRule(0)),
        Arc::new(message::ERCodeRule(16)),
        Arc::new(message::RecordsCountRule {
            section,
            minimum,
            maximum,
        }),
        Arc::new(message::RecordsTypeCountRule {
            section,
            qtype: qtype::OPT,
            minimum,
            maximum,
        }),
        Arc::new(message::TrailingDataRule),
    ]
}

fn every_selector() -> Vec<Arc<dyn Selector>> {
    let leaves = [by_name_and_client(), by_message()].concat();
    let inverted: Vec<Arc<dyn Selector>> = leaves
        .iter()
        .map(|leaf| Arc::new(logic::NotRule(Arc::clone(leaf))) as Arc<dyn Selector>)
        .collect();
    let all = logic::AndRule(leaves.clone());
    let any = logic::OrRule(inverted.clone());
    leaves
        .into_iter()
        .chain(inverted)
        .chain([Arc::new(all) as Arc<dyn Selector>, Arc::new(any)])
        .collect()
}

fn every_action() -> Vec<Arc<dyn Action>> {
    let pool = || PoolAction {
        pool: PoolId(3),
        name: String::new(),
        stop: false,
    };
    let answers: Vec<Arc<dyn Action>> = vec![
        Arc::new(RCodeAction::new(5)),
        Arc::new(ERCodeAction::with_flags(
            16,
            AnswerFlags {
                aa: Some(true),
                ad: None,
                ra: Some(false),
            },
        )),
        Arc::new(TCAction),
        Arc::new(DropAction),
    ];
    let go_on: Vec<Arc<dyn Action>> = vec![
        Arc::new(NoneAction),
        Arc::new(SetSkipCacheAction),
        Arc::new(SetNoRecurseAction),
        Arc::new(SetDisableValidationAction),
        Arc::new(QPSAction::new(1_000)),
        Arc::new(pool()),
        Arc::new(QPSPoolAction::new(1_000, pool())),
    ];
    let continued = answers
        .iter()
        .map(|action| Arc::new(ContinueAction(Arc::clone(action))) as Arc<dyn Action>);
    go_on
        .into_iter()
        .chain(continued)
        .chain(answers.clone())
        .collect()
}

/// Every selector with every action that goes on, and at last those that end.
fn scene() -> Scene {
    let mut scene = Scene::default();
    let mut rules = Vec::new();
    for action in every_action() {
        for selector in every_selector() {
            let mut rule = Rule::new(logic::AllRule, NoneAction);
            rule.selector = selector;
            rule.action = Arc::clone(&action);
            rules.push(rule);
        }
    }
    scene.change(|config| config.rules = rules);
    scene
}

#[test]
fn each_says_what_it_is() {
    for selector in every_selector() {
        assert!(!selector.describe().is_empty());
    }
    for action in every_action() {
        assert!(!action.describe().is_empty());
    }
}

proptest! {
    /// F9 to F12: any opcode, class, type, any EDNS, any records, anything behind them.
    #[test]
    fn no_query_is_too_odd_for_the_rules(
        changes in proptest::collection::vec((0usize..60, any::<u8>()), 0..12),
        tail in proptest::collection::vec(any::<u8>(), 0..40),
        tcp in any::<bool>(),
    ) {
        let mut scene = scene();
        scene.protocol = if tcp { Protocol::Tcp } else { Protocol::Udp };
        let mut message = query_with_edns("www.example.com.", qtype::ANY, Some(1_232));
        message.extend(tail);
        for (place, byte) in changes {
            let length = message.len();
            message[place % length] = byte;
        }
        scene.ask(&message);
    }
}
