//! Zones of our own: what millrace.addKey, addZone and addZoneTemplate leave for [`derive`].

use super::*;
use crate::config::zones::{ZoneSpec, ZoneSpecs};
use crate::local::acl::Asking;
use crate::local::{Action, Peer};
use crate::pipeline::query::Protocol;
use wire::name::NameBuf;

const KEY: &str = "millrace.addKey{name='k.', algorithm='hmac-sha256', secret='c2VjcmV0'}\n";

/// What these lines say of zones; a key `k.` stands before them.
fn zones(lines: &str) -> ZoneSpecs {
    let text = format!("{KEY}{lines}");
    let state = state(&text, None).unwrap_or_else(|error| panic!("{text}: {error}"));
    state.edit(|spec| {
        assert_eq!(spec.remarks, []);
        spec.zones.clone()
    })
}

/// Whether whoever asks from this address, signed with this key, may do that.
fn may(zone: &ZoneSpec, action: Action, client: &str, key: Option<&str>) -> bool {
    let key: Option<NameBuf> = key.map(|key| key.parse().unwrap());
    let asking = Asking {
        client: client.parse().unwrap(),
        path: None,
        key: key.as_ref().map(|key| key.as_name()),
        protocol: Protocol::Tcp,
    };
    zone.settings.acl.says(action, asking) == Some(true)
}

/// As issue 6 writes it.
#[test]
fn a_zone_has_servers_around_it_and_says_who_may() {
    let zones = zones(
        r#"millrace.addZone{name="example.com.", file="example.com.zone",
             primaries={{address="192.0.2.1:53", key="k."}}, notify={{address="[2001:db8::1]:53", key="k."}},
             acl={{action="transfer", address={"192.0.2.0/24"}, key="k."}, {action="notify", address="192.0.2.7"}, {action="update", key="k."}}}
           millrace.addZone{name="example.org.", file="example.org.zone"}"#,
    );
    let key = &zones.keys[0];
    let signed = |text: &str| Peer {
        key: Some(Arc::clone(key)),
        ..Peer::new(address(text))
    };
    let zone = &zones.list[0];
    assert_eq!(zone.settings.primaries, [signed("192.0.2.1:53")]);
    assert_eq!(zone.settings.notify, [signed("[2001:db8::1]:53")]);
    for (action, client, key, allowed) in [
        (Action::Transfer, "192.0.2.9", Some("k."), true),
        (Action::Transfer, "192.0.2.9", Some("another."), false),
        (Action::Transfer, "192.0.2.9", None, false),
        (Action::Transfer, "198.51.100.9", Some("k."), false),
        // No key: by address alone.
        (Action::Notify, "192.0.2.7", None, true),
        (Action::Notify, "192.0.2.8", None, false),
        (Action::Update, "203.0.113.1", Some("k."), true),
        (Action::Update, "203.0.113.1", None, false),
    ] {
        let is_allowed = may(zone, action, client, key);
        assert_eq!(is_allowed, allowed, "{action:?} {client} {key:?}");
    }
    // No primaries: a primary.
    assert!(zone.settings.is_secondary());
    assert!(!zones.list[1].settings.is_secondary());
}

#[test]
fn a_zone_has_what_its_template_says_and_it_does_not() {
    let zones = zones(
        "millrace.addZoneTemplate{name='ours', file='zones/%s.zone', notify='192.0.2.2', notifyDelay=5, journalSize=7, refreshMin=60,\n\
           pool={'auth'}, statistics=true, acl={action='transfer', key='k.'}}\n\
         millrace.addZone{name='Example.org.', template='ours'}\n\
         millrace.addZone{name='example.net.', template='ours', notify={}, journalSize=8, pool='', statistics=false}\n",
    );
    let [first, second] = &zones.list[..] else {
        panic!("two zones");
    };
    let told = address("192.0.2.2:53");
    assert_eq!(first.settings.notify, [Peer::new(told)]);
    assert_eq!(second.settings.notify, []);
    for (zone, file, journal) in [
        (first, "zones/example.org.zone", 7),
        (second, "zones/example.net.zone", 8),
    ] {
        let settings = &zone.settings;
        let path = settings.file.as_ref().expect("the template names one");
        assert!(path.ends_with(file), "{}", path.display());
        assert_eq!(settings.journal_octets, journal);
        assert_eq!(settings.notify_delay, Duration::from_secs(5));
        assert_eq!(settings.times.refresh.0, 60);
        assert!(may(zone, Action::Transfer, "203.0.113.1", Some("k.")));
    }
    assert_eq!(first.pools, ["auth"]);
    assert_eq!(second.pools, [""]);
    assert!(first.statistics && !second.statistics);
}

#[test]
fn what_is_wrong_with_a_template_or_a_key_is_said_where_it_stands() {
    for (text, expected) in [
        (
            "millrace.addZone{name='a.', template='t'}",
            "test.conf:1: millrace.addZone: template: there is no 't'",
        ),
        (
            "millrace.addZoneTemplate{file='z'}",
            "test.conf:1: millrace.addZoneTemplate: name: the template's name is missing",
        ),
        (
            "millrace.addZoneTemplate{name='t'}\nmillrace.addZoneTemplate{name='t'}",
            "test.conf:2: millrace.addZoneTemplate: name: template 't' was added before",
        ),
        (
            "millrace.addZoneTemplate{name='t', retryMin=5, retryMax=4}",
            "test.conf:1: millrace.addZoneTemplate: retryMin: 5 is more than retryMax, which is 4",
        ),
        (
            "millrace.addZoneTemplate{name='t', statistics=1}",
            "test.conf:1: millrace.addZoneTemplate: statistics: ",
        ),
        (
            "millrace.addZone{name='a.', file='z', acl={{action='transfer', key='k.'}}}",
            "test.conf:1: millrace.addZone: acl[1]: key: there is no 'k.'",
        ),
        (
            "millrace.addKey{secret='c2VjcmV0'}",
            "test.conf:1: millrace.addKey: name: the key's name is missing",
        ),
        (
            "millrace.addKey{name='k.', algorithm='rot13', secret='c2VjcmV0'}",
            "test.conf:1: millrace.addKey: algorithm: 'rot13' is none of hmac-",
        ),
        (
            "millrace.addKey{name='k.', secret='c2VjcmV0*'}",
            "test.conf:1: millrace.addKey: secret: no base64 at character ",
        ),
        (
            "millrace.addKey{name='k.', secret='c2VjcmV0'}\nmillrace.addKey{name='K', secret='c2VjcmV0'}",
            "test.conf:2: millrace.addKey: name: key K. was added before",
        ),
    ] {
        let said = error(text);
        assert!(said.starts_with(expected), "{text}: {said}");
        assert!(!said.contains("c2VjcmV0"), "a secret is shown: {said}");
    }
}
