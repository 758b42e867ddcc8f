//! Signed requests to the daemon, over UDP and TCP: NOTIFY, updates, transfers, ordinary queries; and what of RFC 8945 refuses
//! them.

use crate::daemon::{Millrace, answer, answer_by_stream};
use crate::primary::{apex, key, now};
use std::sync::Arc;
use testnet::loopback::own_port;
use wire::codes::{opcode, qtype, rcode};
use wire::message::{Header, Records, parse_response};
use wire::name::NameBuf;
use zone::transfer::query;
use zone::tsig::{Algorithm, Key, Session, sign_request};

/// Octets of the MAC of hmac-sha256.
const MAC: usize = 32;
/// What stands before it in the TSIG record of key `k.`: owner, fixed fields, the algorithm's name, time, fudge, size.
const BEFORE: usize = 3 + 10 + 13 + 6 + 2 + 2;

fn keys() -> Arc<Key> {
    key("k.", Algorithm::Sha256)
}

/// A request, where its TSIG record starts, and what verifies the answer.
fn signed(mut message: Vec<u8>, key: &Arc<Key>, time: u64) -> (Vec<u8>, usize, Session) {
    let length = message.len();
    let session = sign_request(&mut message, key, time);
    (message, length, session)
}

/// The request with so many octets of its MAC.
fn cut(mut message: Vec<u8>, start: usize, octets: usize) -> Vec<u8> {
    let mac = start + BEFORE;
    message.drain(mac + octets..mac + MAC);
    message[mac - 2..mac].copy_from_slice(&(octets as u16).to_be_bytes());
    // Owner, type, class and TTL stand before the length of the RDATA.
    let place = start + 3 + 8;
    let length = u16::from_be_bytes([message[place], message[place + 1]]);
    let length = length - (MAC - octets) as u16;
    message[place..place + 2].copy_from_slice(&length.to_be_bytes());
    message
}

/// The error in the TSIG record of an answer, and the length of its MAC; `None`: there is no such record.
fn tsig(answer: &[u8]) -> Option<(u16, u16)> {
    let header = Header::read(answer)?;
    let start = parse_response(answer).ok()?.question?.end;
    let last = Records::new(answer, start, &header).flatten().last()?;
    if last.rtype != qtype::TSIG {
        return None;
    }
    let rdata = last.rdata(answer);
    let algorithm = rdata.iter().position(|octet| *octet == 0)? + 1;
    let field = |at: usize| Some(u16::from_be_bytes([*rdata.get(at)?, *rdata.get(at + 1)?]));
    let mac = field(algorithm + 8)?;
    Some((field(algorithm + 10 + usize::from(mac) + 2)?, mac))
}

fn code(answer: &[u8]) -> u16 {
    Header::read(answer).unwrap().rcode().into()
}

/// How a message goes to a port, and what comes back.
type Ask = fn(u16, &[u8]) -> Option<Vec<u8>>;

const WAYS: [(&str, Ask); 2] = [("UDP", answer), ("TCP", answer_by_stream)];

/// A secondary that only a message signed with `k.` may notify.
fn secondary() -> Millrace {
    let zone = "primaries='127.0.0.2:1', acl={{action='notify', address='127.0.0.1', key='k.'}, \
                {action='notify', address='127.0.0.0/8'}}";
    let ours = Millrace::start(own_port(), zone);
    let plain = query::notify(1, apex().as_name(), None);
    crate::daemon::until(|| answer(ours.port, &plain).is_some(), || ours.log());
    ours
}

#[test]
fn requests_are_verified_and_their_answers_signed_over_udp_and_tcp() {
    let ours = secondary();
    let notify = || query::notify(77, apex().as_name(), None);
    let mut update = query::soa(78, apex().as_name());
    update[2] = opcode::UPDATE << 3;
    for (way, ask) in WAYS {
        let ask = |message: &[u8]| ask(ours.port, message).unwrap_or_else(|| panic!("{way}"));
        for (request, expected) in [
            (notify(), rcode::NOERROR),
            (update.clone(), rcode::NOTIMP),
            (query::axfr(79, apex().as_name()), rcode::REFUSED),
        ] {
            let (message, _, mut session) = signed(request, &keys(), now());
            let reply = ask(&message);
            assert_eq!(code(&reply), expected, "{way}");
            session
                .verify(&reply, now())
                .unwrap_or_else(|error| panic!("{way}: {error}"));
        }
        // The longest prefix asks for the key: the shorter one, which does not, is not looked at.
        let reply = ask(&notify());
        assert_eq!(
            (code(&reply), tsig(&reply)),
            (rcode::REFUSED, None),
            "{way}"
        );
        refusals(&ask, way, &notify);
    }
}

/// RFC 8945 §5.2 and §5.3 are of requests of any kind.
#[test]
fn ordinary_queries_are_verified_and_their_answers_signed_over_udp_and_tcp() {
    let ours = Millrace::start(own_port(), "file='zone'");
    ours.until_serial(5);
    for (way, ask) in WAYS {
        let ask = |message: &[u8]| ask(ours.port, message).unwrap_or_else(|| panic!("{way}"));
        for (name, expected) in [
            ("example.com.", rcode::NOERROR),
            ("absent.example.com.", rcode::NXDOMAIN),
            ("example.org.", rcode::REFUSED),
        ] {
            let name: NameBuf = name.parse().unwrap();
            let request = query::soa(81, name.as_name());
            let (message, _, mut session) = signed(request, &keys(), now());
            let reply = ask(&message);
            assert_eq!(code(&reply), expected, "{way} {name}");
            session
                .verify(&reply, now())
                .unwrap_or_else(|error| panic!("{way} {name}: {error}"));
        }
        refusals(&ask, way, &|| query::soa(82, apex().as_name()));
    }
}

/// RFC 8945 §5.3 is of all responses: those of rules, and to CHAOS names, too.
#[test]
fn answers_of_rules_and_chaos_names_are_signed_over_udp_and_tcp() {
    let ours = Millrace::start(own_port(), "file='zone'");
    ours.until_serial(5);
    let lines = "setServerID('one')\n\
                 addAction(QNameRule('ruled.example.org.'), RCodeAction(DNSRCode.NXDOMAIN))\n";
    ours.configure_after(lines, "file='zone'");
    ours.command(&["reload"]);
    let ruled: NameBuf = "ruled.example.org.".parse().unwrap();
    let ruled = || query::soa(83, ruled.as_name());
    let identity: NameBuf = "id.server.".parse().unwrap();
    let mut chaos = query::soa(84, identity.as_name());
    let end = chaos.len();
    chaos[end - 4..].copy_from_slice(&[0, 16, 0, 3]);
    for (way, ask) in WAYS {
        let ask = |message: &[u8]| ask(ours.port, message).unwrap_or_else(|| panic!("{way}"));
        for (request, expected) in [(ruled(), rcode::NXDOMAIN), (chaos.clone(), rcode::NOERROR)] {
            let (message, _, mut session) = signed(request, &keys(), now());
            let reply = ask(&message);
            assert_eq!(code(&reply), expected, "{way}");
            session
                .verify(&reply, now())
                .unwrap_or_else(|error| panic!("{way}: {error}"));
        }
        // A rule has decided, whoever knows the key; a signature that is no good is one all the same.
        let (unknown, ..) = signed(ruled(), &key("x.", Algorithm::Sha256), now());
        let (mut wrong, start, _) = signed(ruled(), &keys(), now());
        wrong[start + BEFORE] ^= 1;
        for (message, expected) in [
            (unknown, (rcode::NXDOMAIN, None)),
            (wrong, (rcode::NOTAUTH, Some((rcode::BADVERS, 0)))),
            (ruled(), (rcode::NXDOMAIN, None)),
        ] {
            let reply = ask(&message);
            assert_eq!((code(&reply), tsig(&reply)), expected, "{way}");
        }
    }
}

/// RFC 8945 §5.2: what is wrong with the signature of a request.
fn refusals(ask: &impl Fn(&[u8]) -> Vec<u8>, way: &str, request: &impl Fn() -> Vec<u8>) {
    let said = |message: &[u8]| {
        let reply = ask(message);
        (code(&reply), tsig(&reply))
    };
    let (unknown, ..) = signed(request(), &key("x.", Algorithm::Sha256), now());
    let (other, ..) = signed(request(), &key("k.", Algorithm::Sha512), now());
    for message in [unknown, other] {
        // §5.2.1: "the server MUST … respond with RCODE 9 (NOTAUTH)" and error BADKEY, "unsigned".
        let expected = (rcode::NOTAUTH, Some((rcode::BADKEY, 0)));
        assert_eq!(said(&message), expected, "{way}");
    }
    let (mut wrong, start, _) = signed(request(), &keys(), now());
    wrong[start + BEFORE] ^= 1;
    // BADSIG has the number of BADVERS.
    let expected = (rcode::NOTAUTH, Some((rcode::BADVERS, 0)));
    assert_eq!(said(&wrong), expected, "{way}");
    let (late, ..) = signed(request(), &keys(), now() - 1_000);
    let expected = (rcode::NOTAUTH, Some((rcode::BADTIME, MAC as u16)));
    assert_eq!(said(&late), expected, "{way}");
    let (right, start, _) = signed(request(), &keys(), now());
    // §5.2.2.1: "less than the larger of 10 (octets) and half the length of the hash function": FORMERR; else what local
    // policy says, and ours is whole MACs: BADTRUNC.
    for octets in [0, 9, 15] {
        let expected = (rcode::FORMERR, None);
        assert_eq!(
            said(&cut(right.clone(), start, octets)),
            expected,
            "{way} {octets}"
        );
    }
    for octets in [16, 31] {
        let expected = (rcode::NOTAUTH, Some((rcode::BADTRUNC, MAC as u16)));
        assert_eq!(
            said(&cut(right.clone(), start, octets)),
            expected,
            "{way} {octets}"
        );
    }
    // §5.1: it must be the last record, and the only one.
    let mut twice = right.clone();
    twice.extend_from_slice(&right[start..]);
    twice[11] = 2;
    assert_eq!(said(&twice), (rcode::FORMERR, None), "{way}");
    let mut behind = right;
    behind.extend_from_slice(&[0, 0, 1, 0, 1, 0, 0, 0, 0, 0, 0]);
    behind[11] = 2;
    assert_eq!(said(&behind), (rcode::FORMERR, None), "{way}");
}
