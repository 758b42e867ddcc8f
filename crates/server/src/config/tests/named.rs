//! Listeners at paths.

use super::*;
use crate::config::named::{LocalAddress, NamedListener};
use crate::config::place::Place;
use crate::config::spec::Remark;
use std::path::Path;

const PATH: &str = "/run/millrace/dns.sock";

fn plain_path() -> NamedListener {
    NamedListener::plain(Path::new(PATH).into())
}

fn path() -> LocalAddress {
    LocalAddress::Path(Path::new(PATH).into())
}

#[test]
fn a_path_is_served_beside_addresses_and_has_its_place_behind_them() {
    let config = config(&format!(
        "addLocal('{PATH}') addLocal('192.0.2.1') addLocal('/run/other.sock', {{maxConcurrentTCPConnections=7, maxInFlight=3}})"
    ));
    assert_eq!(config.listeners, [plain(address("192.0.2.1:53"))]);
    assert_eq!(config.named.len(), 2);
    assert_eq!(config.named[0], plain_path());
    assert_eq!(config.place_of(&path()), Some(1));
    assert_eq!(config.place_of(&address("192.0.2.1:53").into()), Some(0));
    let streams = |place| {
        let streams = config.streams_at(place)?;
        Some((streams.maximum_connections, streams.in_flight))
    };
    assert_eq!(
        [0, 1, 2].map(streams),
        [Some((0, 0)), Some((0, 0)), Some((7, 3))]
    );
    for place in [3, u16::MAX] {
        assert_eq!(streams(place), None, "{place}");
    }
    let paths = [0, 1, 2, 3, u16::MAX].map(|place| config.path_at(place).map(|path| &**path));
    let other = Path::new("/run/other.sock");
    assert_eq!(
        paths,
        [None, Some(Path::new(PATH)), Some(other), None, None]
    );
    let all: Vec<String> = config
        .local_addresses()
        .map(|address| address.to_string())
        .collect();
    assert_eq!(all, ["192.0.2.1:53", PATH, "/run/other.sock"]);
}

#[test]
fn a_path_alone_is_enough_and_set_local_is_for_all() {
    let alone = config(&format!("addLocal('{PATH}')"));
    assert_eq!((alone.listeners.len(), alone.named.len()), (0, 1));
    let text = format!("addLocal('/run/other.sock') addLocal('192.0.2.1') setLocal('{PATH}')");
    let set = config(&text);
    assert!(set.listeners.is_empty());
    assert_eq!(set.named, [plain_path()]);
    let back = config(&format!("addLocal('{PATH}') setLocal('192.0.2.1')"));
    assert_eq!((back.listeners.len(), back.named.len()), (1, 0));
}

#[test]
fn options_of_connections_hold_for_a_path() {
    let config = config(&format!(
        "addLocal('{PATH}', {{tcpListenQueueSize=5, maxConcurrentTCPConnections=6, maxInFlight=7, \
         enableProxyProtocol=false, xdp=false, reusePort=false, interface=''}})"
    ));
    let expected = NamedListener {
        tcp_listen_queue_size: 5,
        maximum_tcp_connections: 6,
        tcp_in_flight: 7,
        proxy_protocol: false,
        ..plain_path()
    };
    assert_eq!(config.named, [expected]);
}

#[test]
fn options_that_a_path_cannot_have_are_errors() {
    for option in [
        "reusePort=true",
        "xdp=true",
        "xdp={'eth0'}",
        "xskSocket=newXsk({ifName='eth0', NIC_queue_id=0})",
        "interface='eth0'",
        "cpus={1}",
        "tcpFastOpenQueueSize=5",
    ] {
        let (name, _) = option.split_once('=').unwrap();
        assert_eq!(
            error(&format!("addLocal('{PATH}', {{{option}}})")),
            format!(
                "test.conf:1: addLocal: {name}: a path is a UNIX stream socket, which has no such thing: take it out"
            )
        );
    }
}

#[test]
fn what_is_no_path_of_a_socket_is_an_error() {
    let long = format!("/{}", "a".repeat(107));
    let too_long = format!(
        "test.conf:1: addLocal: '{long}' has 108 octets: the path of a socket has at most 107"
    );
    assert_eq!(error(&format!("addLocal('{long}')")), too_long);
    assert_eq!(
        error("setLocal('/run/')"),
        "test.conf:1: setLocal: '/run/' is a folder: the path of a socket expected, as in /run/millrace/dns.sock"
    );
    assert_eq!(
        error(&format!("addLocal('{PATH}')\naddLocal('{PATH}')")),
        format!("test.conf:2: {PATH} is served by an earlier line already: a path has one line")
    );
}

#[test]
fn the_command_line_names_paths_too() {
    let overrides = Overrides {
        listeners: vec![path(), address("127.0.0.1:5300").into()],
        ..Overrides::default()
    };
    let state = load(None, &overrides, Purpose::Serve, None).unwrap();
    let config = state.edit(|spec| derive(spec, None)).unwrap();
    assert_eq!(config.listeners, [plain(address("127.0.0.1:5300"))]);
    assert_eq!(config.named, [plain_path()]);
}

/// Whatever stands in front of what: listeners are known at the end, the command line's too.
#[test]
fn a_path_of_an_acl_that_nobody_listens_at_is_remarked() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("conf");
    let text = format!(
        "for name in pairs{{['a.']=1, ['b.']=1}} do millrace.addZone{{name=name, file='z', acl={{{{action='transfer', \
         address={{'192.0.2.1', '{PATH}', '/run/a-b.sock'}}}}}}}} end\naddLocal('{PATH}')\n"
    );
    std::fs::write(&file, text).unwrap();
    let said = |listeners: &[&str]| {
        let listeners = listeners.iter().map(|path| Path::new(path).into());
        let overrides = Overrides {
            listeners: listeners.map(LocalAddress::Path).collect(),
            ..Overrides::default()
        };
        let state = load(Some(&file), &overrides, Purpose::Serve, None).unwrap();
        state.edit(|spec| spec.remarks.clone())
    };
    let remark = |path: &str| Remark {
        place: Place::line_of(&file.display().to_string(), Some(1)),
        kind: RemarkKind::UnservedPath,
        subject: path.to_owned(),
    };
    assert_eq!(said(&[]), [remark("/run/a-b.sock")], "once a line");
    assert_eq!(said(&["/run/a-b.sock"]), [remark(PATH)]);
    assert_eq!(said(&["/run/a-b.sock", PATH]), []);
}

#[test]
fn a_path_keeps_its_counters_over_a_reload_wherever_it_stands() {
    let mut old = config(&format!("addLocal('{PATH}')"));
    old.count_traffic(2, None);
    let text = format!("addLocal('192.0.2.1') addLocal('/run/other.sock') addLocal('{PATH}')");
    let mut new = reload(&text, Some(&old)).unwrap();
    new.count_traffic(2, Some(&old));
    let counters = |config: &Config| {
        let place = config.place_of(&path()).unwrap();
        let [_, streams] = &config.traffic[usize::from(place)];
        Arc::clone(streams)
    };
    assert!(Arc::ptr_eq(&counters(&old), &counters(&new)));
    assert_eq!(new.traffic.len(), 3);
    assert!(!Arc::ptr_eq(&new.traffic[1][1], &new.traffic[2][1]));
}
