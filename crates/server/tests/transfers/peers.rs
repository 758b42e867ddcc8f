//! knotd, nsd and named: what they have comes and outlives both, what we have goes to them, and what changes goes by IXFR
//! after a NOTIFY. Prints SKIP for a server that is not installed.

use crate::daemon::{Millrace, text, until_serial};
use crate::servers::{ALL, Kind, Role};
use std::fs;
use testnet::loopback::own_port;

fn skip(kind: &Kind) {
    println!(
        "SKIP: a server to transfer with is not installed: {}",
        kind.program
    );
}

#[test]
fn what_they_have_comes_and_survives_both() {
    for kind in ALL {
        let Some(primary) = kind.start(Role::Primary, &text(5)) else {
            skip(kind);
            continue;
        };
        let address = format!("127.0.0.1:{}", primary.port);
        let zone = format!("primaries={{{{address='{address}', key='k.'}}}}");
        let mut ours = Millrace::start(own_port(), &zone);
        until_serial(ours.port, 5, kind.program, || ours.log());
        let status = ours.command(&["zone", "status"]);
        assert!(
            status.starts_with("example.com. secondary, serial 5, 504 records"),
            "{status}"
        );
        let again = ours.command(&["zone", "retransfer", "example.com."]);
        let expected = format!("example.com.: serial 5 came by AXFR from {address}\n");
        assert_eq!(again, expected, "{}", kind.program);
        drop(primary);
        ours.restart();
        until_serial(ours.port, 5, "without its primary we", || ours.log());
    }
}

#[test]
fn what_we_have_goes_to_them_and_changes_by_ixfr() {
    for kind in ALL {
        let port = own_port();
        let zone = "file='zone', acl={action='transfer', key='k.'}";
        let mut ours = Millrace::start(port, zone);
        until_serial(port, 5, "we", || ours.log());
        let Some(secondary) = kind.start(Role::Secondary(port), "") else {
            skip(kind);
            continue;
        };
        until_serial(secondary.port, 5, kind.program, || ours.log());
        let zone = format!("{zone}, notify='127.0.0.1:{}'", secondary.port);
        ours.configure(&zone);
        // What was kept before a crash still leads on.
        ours.restart();
        until_serial(ours.port, 5, "after a crash we", || ours.log());
        fs::write(ours.folder.path().join("zone"), text(6)).unwrap();
        let said = ours.command(&["zone", "reload", "example.com."]);
        let expected = "example.com.: zone example.com.: serial 6, 504 records loaded\n";
        assert_eq!(said, expected, "{}", kind.program);
        until_serial(secondary.port, 6, kind.program, || ours.log());
        // The line comes after the last octet.
        ours.until_said("serial 6 went by IXFR to 127.0.0.1:");
        assert!(
            ours.command(&["zone", "notify"])
                .contains("1 server is told of serial 6")
        );
    }
}
