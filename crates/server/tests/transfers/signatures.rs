//! Signed transfers (RFC 8945): what is not signed as it must be leaves the old zone serving, and the line tells why; all
//! algorithms, with kdig, knotd, nsd and named.

use crate::daemon::{Millrace, PATIENCE, asked, text};
use crate::faults::{good, whole};
use crate::primary::{Deed, Primary, Script, Sign, apex, key, now};
use crate::servers::{ALL, Role, SECRET};
use std::net::{Ipv4Addr, UdpSocket};
use std::process::Command;
use testnet::again_if_interrupted;
use testnet::loopback::own_port;
use wire::codes::rcode;
use zone::transfer::query;
use zone::tsig::{Algorithm, sign_request};

#[test]
fn transfers_that_are_not_signed_as_they_must_be_leave_the_old_zone() {
    let primary = Primary::start(good(5));
    let zone = format!(
        "primaries={{{{address='127.0.0.1:{}', key='k.'}}}}",
        primary.port
    );
    let ours = Millrace::start(own_port(), &zone);
    ours.until_serial(5);
    for (sign, reason) in [
        (Sign::Never, "signature: no signature"),
        (Sign::AllButTheLast, "signature: no signature"),
        (Sign::WrongMac, "signature: BADSIG"),
        (Sign::Late, "signature: BADTIME"),
        (Sign::OtherKey, "signature: BADKEY"),
    ] {
        for ixfr in [Deed::Code(rcode::NOTIMP), whole(6)] {
            primary.follow(Script {
                sign,
                ixfr,
                ..good(6)
            });
            let said = ours.command(&["zone", "reload"]);
            assert!(said.contains(reason), "{sign:?}: {said}");
            assert_eq!(asked(ours.port), Some(5), "{sign:?}");
        }
    }
    primary.follow(good(6));
    let said = ours.command(&["zone", "reload"]);
    assert!(said.contains("serial 6 came by AXFR"), "{said}");
    assert_eq!(asked(ours.port), Some(6));
}

/// RFC 8914 §4.21 is of zones: a signature that is no good is told of by the TSIG record alone.
#[test]
fn an_unknown_key_is_no_matter_of_zones() {
    let ours = Millrace::start(own_port(), "file='zone'");
    ours.until_serial(5);
    let mut message = query::soa(9, apex().as_name());
    let end = message.len();
    // An OPT record.
    message.extend_from_slice(&[0, 0, 41, 4, 208, 0, 0, 0, 0, 0, 0]);
    message[11] = 1;
    let _session = sign_request(&mut message, &key("nobody.", Algorithm::Sha256), now());
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let to = (Ipv4Addr::LOCALHOST, ours.port);
    socket.send_to(&message, to).unwrap();
    let mut answer = [0; 512];
    let length = again_if_interrupted(|| socket.recv(&mut answer)).unwrap();
    let answer = &answer[..length];
    assert_eq!(answer[3] & 15, rcode::NOTAUTH as u8);
    // OPT without options, TSIG.
    assert_eq!(answer[end..end + 3], [0, 0, 41]);
    assert_eq!(answer[end + 9..end + 11], [0, 0]);
    assert_eq!(answer[10..12], [0, 2]);
}

/// A line of configuration per algorithm: a key that is called as the algorithm is.
fn keys() -> String {
    let key = |algorithm: Algorithm| {
        let name = algorithm.name();
        format!("millrace.addKey{{name='{name}.', algorithm='{name}', secret='{SECRET}'}}\n")
    };
    Algorithm::ALL.map(key).concat()
}

#[test]
fn every_algorithm_signs_what_comes_from_them() {
    for kind in ALL {
        let Some(primary) = kind.start(Role::Primary, &text(5)) else {
            println!(
                "SKIP: a server to transfer with is not installed: {}",
                kind.program
            );
            continue;
        };
        let address = format!("127.0.0.1:{}", primary.port);
        let zone = |key: &str| format!("primaries={{{{address='{address}', key='{key}'}}}}");
        let ours = Millrace::start(own_port(), &zone("k."));
        ours.until_serial(5);
        for algorithm in Algorithm::ALL {
            ours.configure_after(&keys(), &zone(&format!("{}.", algorithm.name())));
            let said = ours.command(&["reload"]);
            let name = algorithm.name();
            let again = ours.command(&["zone", "retransfer"]);
            let expected = format!("serial 5 came by AXFR from {address}");
            assert!(
                again.contains(&expected),
                "{} {name}: {said}{again}",
                kind.program
            );
        }
    }
}

#[test]
fn every_algorithm_signs_what_goes_to_kdig() {
    let key = |algorithm: Algorithm| format!("'{}.'", algorithm.name());
    let keys_allowed = Algorithm::ALL.map(key).join(", ");
    let zone = format!("file='zone', acl={{action='transfer', key={{{keys_allowed}}}}}");
    let ours = Millrace::start(own_port(), "file='zone'");
    ours.until_serial(5);
    ours.configure_after(&keys(), &zone);
    ours.command(&["reload"]);
    for algorithm in Algorithm::ALL {
        for (kind, words) in [
            ("AXFR", &[][..]),
            ("IXFR=4", &[][..]),
            ("IXFR=5", &["+notcp"][..]),
            ("SOA", &["+dnssec"][..]),
        ] {
            let said = kdig(ours.port, algorithm, kind, words);
            let Some(said) = said else {
                println!("SKIP: kdig is not installed, so nobody verifies what we sign");
                return;
            };
            let name = algorithm.name();
            assert!(
                said.contains("SOA\tns.example.com."),
                "{name} {kind}: {said}"
            );
            // Of a transfer kdig shows the signature as the last record.
            let is_signed = said.contains("TSIG PSEUDOSECTION") || said.contains("\tTSIG\t");
            assert!(is_signed, "{name} {kind}: {said}");
            assert!(!said.contains(";; WARNING"), "{name} {kind}: {said}");
            assert!(!said.contains(";; ERROR"), "{name} {kind}: {said}");
        }
    }
}

/// What it says, errors too; `None`: it is not installed.
fn kdig(port: u16, algorithm: Algorithm, kind: &str, words: &[&str]) -> Option<String> {
    let name = algorithm.name();
    let output = Command::new("kdig")
        .args(["@127.0.0.1", "-p", &port.to_string()])
        .args(["-y", &format!("{name}:{name}.:{SECRET}")])
        .args(["-q", "example.com.", "-t", kind])
        .args(words)
        .output()
        .ok()?;
    Some(String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
}
