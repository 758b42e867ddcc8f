use super::super::query::Protocol;
use super::super::rules::actions::answer::RCodeAction;
use super::super::rules::selectors::client::{NetmaskGroupRule, Side};
use super::super::scene::{Reply, Scene, query};
use super::*;
use std::sync::Arc;
use wire::codes::qtype;
use wire::proxy::{Ends, LOCAL, Transport, Value, write};

/// A scene whose client is a proxy.
fn behind_proxy() -> Scene {
    let mut scene = Scene::default();
    let proxy = scene.client.ip();
    scene.change(|config| {
        let acl = [acl::Netmask::from(ipnet::IpNet::from(proxy))];
        config.proxies = Some(Box::new(Proxies {
            acl: acl.into_iter().collect(),
            apply_acl: false,
            maximum: 512,
        }));
    });
    scene
}

fn header(source: &str, values: &[(u8, &[u8])]) -> Vec<u8> {
    let ends = Ends {
        source: source.parse().unwrap(),
        destination: "203.0.113.53:53".parse().unwrap(),
        transport: Transport::Datagram,
    };
    let mut header = Vec::new();
    let values = values.iter().map(|&(kind, octets)| Value { kind, octets });
    write(&mut header, &ends, values).expect("room");
    header
}

fn passed_on(scene: &mut Scene, header: &[u8]) -> Reply {
    scene.ask(&[header, &query("a.example.", qtype::A)].concat())
}

fn refusing(mut scene: Scene, network: &str) -> Scene {
    let networks = [network.parse::<acl::Netmask>().unwrap()];
    let rule = NetmaskGroupRule {
        netmasks: Arc::new(networks.into_iter().collect()),
        side: Side::Source,
        quiet: false,
    };
    scene.add_rule(rule, RCodeAction::new(5));
    scene
}

#[test]
fn rules_see_who_asks_and_the_proxy_gets_the_answer() {
    let mut scene = refusing(behind_proxy(), "203.0.113.9");
    let question = query("a.example.", qtype::A);
    let Reply::Answer(answer) = passed_on(&mut scene, &header("203.0.113.9:4242", &[])) else {
        panic!("no answer")
    };
    assert_eq!((&answer[..2], answer[3] & 15), (&question[..2], 5));
    assert_eq!(answer[12..], question[12..]);
    assert_eq!(scene.counted(Counter::Queries), 1);
}

#[test]
fn who_is_no_proxy_is_not_believed() {
    let mut scene = refusing(behind_proxy(), "203.0.113.9");
    scene.client = "192.0.2.77:1".parse().unwrap();
    let reply = passed_on(&mut scene, &header("203.0.113.9:4242", &[]));
    // The octets are no query, and nothing else.
    assert!(!matches!(&reply, Reply::Answer(answer) if answer[3] & 15 == 5));
    let question = query("a.example.", qtype::A);
    assert_ne!(
        scene.ask(&question),
        Reply::Drop(DropReason::ProxyProtocolInvalid)
    );
    assert_eq!(scene.counted(Counter::ProxyProtocolInvalid), 0);
}

/// F13: a proxy must send a header, and a sound one.
#[test]
fn f13_a_proxy_without_a_sound_header_is_dropped_and_is_no_query() {
    let mut scene = behind_proxy();
    let sound = header("203.0.113.9:4242", &[]);
    let mut unspecified = sound.clone();
    unspecified[13] = 0;
    let long = header("203.0.113.9:4242", &[(1, &[0; 500])]);
    let mut older = sound.clone();
    older[12] = 0x11;
    let headers: [&[u8]; 4] = [&[], &older, &unspecified, &long];
    for header in headers {
        let reply = passed_on(&mut scene, header);
        assert_eq!(reply, Reply::Drop(DropReason::ProxyProtocolInvalid));
    }
    assert_eq!(scene.counted(Counter::ProxyProtocolInvalid), 4);
    assert_eq!(scene.counted(Counter::Queries), 0);
}

#[test]
fn what_a_proxy_asks_for_itself_is_its_own_query() {
    let scene = behind_proxy();
    let own = scene.client.ip().to_string();
    let mut scene = refusing(scene, &own);
    let reply = passed_on(&mut scene, &LOCAL);
    assert!(matches!(reply, Reply::Answer(answer) if answer[3] & 15 == 5));
}

#[test]
fn the_acl_is_for_who_is_named_too_when_it_is_to_be() {
    for (apply_acl, expected) in [(false, false), (true, true)] {
        let mut scene = refusing(behind_proxy(), "203.0.113.9");
        scene.change(|config| {
            config.proxies.as_mut().unwrap().apply_acl = apply_acl;
            config.acl = ["192.0.2.0/24".parse::<acl::Netmask>().unwrap()]
                .into_iter()
                .collect();
        });
        let reply = passed_on(&mut scene, &header("203.0.113.9:4242", &[]));
        let is_dropped = reply == Reply::Drop(DropReason::Acl);
        assert_eq!(is_dropped, expected);
        assert_eq!(scene.counted(Counter::AclDrops), u64::from(expected));
    }
}

#[test]
fn a_connection_says_itself_whether_it_began_with_a_header() {
    let mut scene = behind_proxy();
    scene.protocol = Protocol::Tcp;
    let message = [header("203.0.113.9:4242", &[]), query("a.", qtype::A)].concat();
    scene.with_arrival(&message, |arrival, env| {
        arrival.in_front = InFront::Nothing;
        assert!(take(arrival, env).is_ok_and(|said| said.is_none()));
        assert_eq!(arrival.length, message.len());
    });
    scene.change(|config| config.proxies = None);
    scene.with_arrival(&message, |arrival, env| {
        arrival.in_front = InFront::Header;
        let Ok(said) = take(arrival, env) else {
            panic!("nothing said")
        };
        let proxied = said.as_ref().unwrap().proxied.unwrap();
        assert_eq!(proxied.client, "203.0.113.9:4242".parse().unwrap());
        assert_ne!(proxied.client, *arrival.client);
        assert_eq!(arrival.bytes(arrival.length), query("a.", qtype::A));
    });
}

#[test]
fn values_come_along_but_those_about_the_header() {
    let values: [(u8, &[u8]); 5] = [
        (0, b"foo"),
        (Value::CRC32C, &[1, 2, 3, 4]),
        (Value::CRC32C, b"proxy"),
        (Value::NOOP, &[0; 9]),
        (0, b"bar"),
    ];
    let message = [header("203.0.113.9:4242", &values), query("a.", qtype::A)].concat();
    behind_proxy().with_arrival(&message, |arrival, env| {
        let Ok(said) = take(arrival, env) else {
            panic!("nothing said")
        };
        let extras = said.as_deref().unwrap();
        let kept: Vec<_> = extras
            .proxy_values
            .iter()
            .map(|value| (value.kind, value.octets))
            .collect();
        assert_eq!(kept, [values[0], values[2], values[4]]);
    });
}
