//! F35: a zone file with an error leaves the old zone serving, and the line says where the error is.

use crate::daemon::{Millrace, asked, text};
use std::fs;
use testnet::loopback::own_port;

#[test]
fn f35_a_bad_file_leaves_the_old_zone_and_the_line_says_where() {
    let ours = Millrace::start(own_port(), "file='zone'");
    ours.until_serial(5);
    let file = ours.folder.path().join("zone");
    let long = format!("x TXT {}", "a".repeat(4_096));
    fs::write(ours.folder.path().join("again"), "$INCLUDE again\n").unwrap();
    for (line, column, what) in [
        ("www A 192.0.2.300", 7, "192.0.2.300"),
        (long.as_str(), 7, ""),
        ("$GENERATE 1-2147483648 h$ A 192.0.2.1", 11, ""),
        ("$INCLUDE ../secret", 10, ""),
        ("$INCLUDE again", 10, ""),
        ("a\\25 A 192.0.2.1", 1, ""),
        ("www SOA ns host 1 2 3 4 5", 1, ""),
    ] {
        // 505 lines before it.
        fs::write(&file, format!("{}{line}\n", text(6))).unwrap();
        let said = ours.command(&["zone", "reload"]);
        let place = format!("zone:506:{column}: ");
        let is_within = line == "$INCLUDE again" && said.contains("again:1:1: ");
        assert!(said.contains(&place) || is_within, "{line}: {said}");
        assert!(
            said.contains(what) && said.contains("serial 5 serves on"),
            "{said}"
        );
        assert_eq!(asked(ours.port), Some(5));
    }
    // Each line is good; their records together are no zone. A million: crates/zone/src/file/tests.rs.
    let many = "$GENERATE 0-9999 many TXT $\n";
    fs::write(&file, format!("{}{many}", text(6))).unwrap();
    let said = ours.command(&["zone", "reload"]);
    assert!(
        said.contains("zone:506:1: TXT records at many.example.com"),
        "{said}"
    );
    assert!(
        said.contains("or several names, are right; serial 5 serves on"),
        "{said}"
    );
    assert_eq!(asked(ours.port), Some(5));
    fs::write(&file, text(6)).unwrap();
    let said = ours.command(&["zone", "reload"]);
    assert!(said.contains("serial 6, 504 records loaded"), "{said}");
    assert_eq!(asked(ours.port), Some(6));
}
