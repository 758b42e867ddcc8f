//! The version of a zone, said by EDNS (RFC 9660).

use super::*;

/// RFC 9660 §3.2: with every answer from a zone, and with no other.
#[test]
fn the_version_of_a_zone_is_said_to_whoever_asks() {
    let delegation = "below NS ns.elsewhere.\n";
    let mut scene = named(&format!("{ZONE}{delegation}"));
    let mut ask = |name: &str, qtype: u16, value: &[u8]| {
        let asked = with_options(name, qtype, &[(edns_option::ZONEVERSION, value)]);
        let said = options(&answered(&mut scene, &asked));
        let version = said
            .into_iter()
            .find(|(code, _)| *code == edns_option::ZONEVERSION);
        version.map(|(_, value)| value)
    };
    // Two labels, the serial of the SOA record, which is 7.
    let version = Some(vec![2, 0, 0, 0, 0, 7]);
    for (name, qtype) in [
        ("www.example.com.", qtype::A),
        ("www.example.com.", qtype::AAAA),
        ("nx.example.com.", qtype::A),
        ("x.below.example.com.", qtype::A),
    ] {
        assert_eq!(ask(name, qtype, b""), version, "{name}");
    }
    assert_eq!(ask("www.example.com.", qtype::A, b"abc"), version);
    assert_eq!(ask("www.example.org.", qtype::A, b""), None);
    let plain = query_with_edns("www.example.com.", qtype::A, Some(1_232));
    assert_eq!(options(&answered(&mut scene, &plain)), []);
    let mut unloaded = named("nonsense");
    let asked = with_options(
        "example.com.",
        qtype::SOA,
        &[(edns_option::ZONEVERSION, b"")],
    );
    let said = options(&answered(&mut unloaded, &asked));
    assert!(
        said.iter()
            .all(|(code, _)| *code != edns_option::ZONEVERSION)
    );
}
