use super::*;
use crate::config::zones::ZoneSpecs;
use fixture::text;
use std::fs;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::{Duration, Instant};
use store::{Facts, Store};
use testnet::again_if_interrupted;

fn serial(local: &Local) -> Option<u32> {
    local.zones().zone(0).map(|zone| zone.soa().serial)
}

#[test]
fn a_reload_keeps_what_did_not_change_and_what_is_broken() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("zone");
    let specs = ZoneSpecs::of_file("example.com.", &file);
    let load = |previous: &Local| Local::load(&specs, previous);
    let zone = |local: &Local| local.zones().zone(0).cloned().unwrap();
    fs::write(&file, text(7, "www A 192.0.2.80")).unwrap();
    let (first, lines) = load(&Local::default());
    assert_eq!(
        lines[0].text,
        "zone example.com.: serial 7, 4 records loaded"
    );
    let (second, lines) = load(&first);
    assert!(lines.is_empty());
    assert!(Arc::ptr_eq(&zone(&first), &zone(&second)));
    fs::write(&file, text(7, "www A 192.0.2.80\nwww CNAME a")).unwrap();
    let (third, lines) = load(&second);
    assert!(
        lines[0].is_error && lines[0].text.ends_with("serial 7 serves on"),
        "{lines:?}"
    );
    assert!(Arc::ptr_eq(&zone(&first), &zone(&third)));
    fs::write(&file, text(8, "")).unwrap();
    let (fourth, _) = load(&third);
    assert_eq!(serial(&fourth), Some(8));
    // What was a snapshot of then is one still (I8).
    assert_eq!(serial(&third), Some(7));
}

#[test]
fn a_warning_names_the_line_of_its_record() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("zone");
    let specs = ZoneSpecs::of_file("example.com.", &file);
    fs::write(
        &file,
        text(7, "www A 192.0.2.80\nhigh 2147483648 A 192.0.2.6"),
    )
    .unwrap();
    let (_, lines) = Local::load(&specs, &Local::default());
    let start = format!(
        "zone example.com.: {}:6:1: A at high.example.com. has a TTL of 2147483648 s",
        file.display()
    );
    let told = lines.iter().filter(|line| line.text.starts_with(&start));
    assert_eq!(told.count(), 1, "{lines:?}");
}

/// As secondaries see none of it, and as whoever has ordered the reload would not know.
#[test]
fn a_changed_file_without_a_greater_serial_is_said_to_whom_reloads_it() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("zone");
    let mut specs = ZoneSpecs::of_file("example.com.", &file);
    specs.state_directory = Some(folder.path().join("state"));
    Arc::make_mut(&mut specs.list[0].settings).acl = to_everybody();
    fs::write(&file, text(7, "")).unwrap();
    let (mut local, _) = Local::load(&specs, &Local::default());
    let cases = [
        (7, "www A 192.0.2.80", "its serial is 7 as before"),
        (6, "www A 192.0.2.1", "its serial went from 7 to 6"),
        (8, "www A 192.0.2.100", "serial 8, 4 records loaded"),
    ];
    for (serial, line, expected) in cases {
        fs::write(&file, text(serial, line)).unwrap();
        (local, _) = Local::load(&specs, &local);
        let status = local.status(&[]).unwrap().remove(0);
        let is_said = status
            .said
            .contains(&format!("serial {serial}, 4 records loaded"));
        assert!(is_said && status.said.contains(expected), "{status}");
        assert!(!status.failed, "{status}");
        assert_eq!(
            status.said.contains("do not see it"),
            serial < 8,
            "{status}"
        );
    }
}

/// Zone example.com. of `folder`, which everybody may transfer.
fn primary_in(folder: &std::path::Path, journal_octets: u64) -> ZoneSpecs {
    let mut specs = ZoneSpecs::of_file("example.com.", &folder.join("zone"));
    specs.state_directory = Some(folder.join("state"));
    let settings = Arc::make_mut(&mut specs.list[0].settings);
    (settings.acl, settings.journal_octets) = (to_everybody(), journal_octets);
    specs
}

/// A secondary that has serial 300 takes nothing until there is a greater one.
#[test]
fn a_serial_that_went_down_is_said_until_it_is_greater_than_secondaries_may_have() {
    for journal_octets in [0, 1 << 20] {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("zone");
        let specs = primary_in(folder.path(), journal_octets);
        fs::write(&file, text(300, "")).unwrap();
        let (mut local, _) = Local::load(&specs, &Local::default());
        for (serial, line, expected) in [
            (100, ";", "went from 300 to 100: secondaries"),
            (101, "www A 192.0.2.1", "went from 100 to 101: secondaries"),
            (101, "www A 192.0.2.10", "is 101 as before: secondaries"),
            (
                300,
                "www A 192.0.2.100",
                "went from 101 to 300: secondaries",
            ),
            (301, "", "loaded"),
        ] {
            fs::write(&file, text(serial, line)).unwrap();
            (local, _) = Local::load(&specs, &local);
            let said = local.status(&[]).unwrap().remove(0).said;
            assert!(said.contains(expected), "{said}");
            let is_until = said.contains("until the serial is greater than 300");
            assert_eq!(is_until, serial != 301, "{said}");
        }
        // Nothing has changed but the file's time.
        fs::write(&file, text(301, "; a remark")).unwrap();
        let (_, lines) = Local::load(&specs, &local);
        assert!(lines.len() == 1 && !lines[0].is_error, "{lines:?}");
    }
}

#[test]
fn what_secondaries_may_have_outlives_the_process_and_a_restored_backup() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("zone");
    let specs = primary_in(folder.path(), 1 << 20);
    let start = || {
        let (local, _) = Local::load(&specs, &Local::default());
        let (live, settings) = local.iter().next().unwrap();
        let line = live.keep_first(settings, local.state());
        (line.map_or(String::new(), |line| line.text), local)
    };
    for (serial, expected) in [
        (300, ""),
        (100, "went from 300 to 100: secondaries"),
        (101, "went from 100 to 101: secondaries"),
        (301, ""),
    ] {
        fs::write(&file, text(serial, "")).unwrap();
        let (said, _) = start();
        assert!(said.contains(expected), "{said}");
        assert_eq!(
            said.contains("greater than 300"),
            !expected.is_empty(),
            "{said}"
        );
    }
    let (_, local) = start();
    let (live, settings) = local.iter().next().unwrap();
    let back = backup::Holding {
        zone: Some(Arc::new(fixture::zone(200, ""))),
        journal: None,
        timers: None,
    };
    live.put_back(&back, settings, local.state()).unwrap();
    drop(local);
    fs::write(&file, text(201, "")).unwrap();
    let (said, _) = start();
    assert!(
        said.contains("greater than 301, which they may have"),
        "{said}"
    );
}

/// A secondary that was restarted, and whose primary has confirmed its zone meanwhile.
#[test]
fn what_secondaries_of_a_secondary_may_have_outlives_its_process() {
    let folder = tempfile::tempdir().unwrap();
    let settings = fixture::secondary();
    let state = Arc::new(StateDirectory::new(folder.path().join("state")));
    let install = |live: &Live, serial: u32, line: &str| {
        let new = fixture::zone(serial, line);
        live.install(new, true, &settings, &state);
        let heard = timers::Heard {
            came: true,
            expires_in: None,
        };
        assert_eq!(live.confirm(heard, &settings, &state), None);
    };
    let start = || {
        let live = Live::new(&fixture::apex());
        live.load(&settings, &state, &Room::WHOLE);
        live
    };
    let store = Store::new(&state, &fixture::apex(), 1 << 20);
    let live = start();
    install(&live, 21, "www A 192.0.2.1");
    install(&live, 21, "www A 192.0.2.2");
    let live = start();
    install(&live, 22, "www A 192.0.2.2");
    assert!(store.changes(21, 22).is_none());
    let live = start();
    install(&live, 23, "www A 192.0.2.2");
    assert!(store.changes(21, 23).is_none());
    assert_eq!(store.changes(22, 23).unwrap().len(), 1);
    assert_eq!(store.facts().greatest, None);
}

/// What is said at a start where serial 7 of the file is kept, behind these others, and something was done to what is kept.
fn said_of_damage(others: &[u32], damage: impl FnOnce(&std::path::Path)) -> String {
    let folder = tempfile::tempdir().unwrap();
    let specs = primary_in(folder.path(), 1 << 20);
    let start = || {
        let (local, _) = Local::load(&specs, &Local::default());
        let (live, settings) = local.iter().next().unwrap();
        let line = live.keep_first(settings, local.state());
        line.map_or(String::new(), |line| line.text)
    };
    for serial in others.iter().chain(&[7]) {
        fs::write(folder.path().join("zone"), text(*serial, "")).unwrap();
        start();
    }
    damage(&folder.path().join("state"));
    start()
}

/// A damaged one of a secondary is said, too: [`Live::load`].
#[test]
fn f37_a_damaged_snapshot_of_a_primary_is_said_with_what_it_costs() {
    let snapshot = |state: &std::path::Path| state.join("example.com.zone");
    let said = said_of_damage(&[6], |state| fs::write(snapshot(state), [7; 500]).unwrap());
    assert!(
        said.contains("/example.com.zone: cannot be used: "),
        "{said}"
    );
    let ends = "; serial 7 of the file serves: secondaries get it whole, and IXFR begins there";
    assert!(said.ends_with(ends), "{said}");
    let said = said_of_damage(&[6], |_| {});
    assert_eq!(said, "");
}

#[test]
fn f37_a_damaged_journal_of_a_primary_is_said_with_the_serial_that_ixfr_leads_on_from() {
    let tear = |state: &std::path::Path| {
        let journal = state.join("example.com.journal");
        let octets = fs::read(&journal).unwrap();
        fs::write(&journal, &octets[..octets.len() - 1]).unwrap();
    };
    let said = said_of_damage(&[4, 5, 6], tear);
    let expected = "the changes behind serial 6 are discarded";
    assert!(said.contains(expected), "{said}");
    let ends = "; serial 7 of the file serves: IXFR leads to it from serial 6 at the latest, not from behind";
    assert!(said.ends_with(ends), "{said}");
}

/// A tool that writes the file again.
#[test]
fn a_file_that_is_touched_costs_no_history() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("zone");
    let specs = primary_in(folder.path(), 1 << 20);
    let mut local = Local::default();
    for (serial, line) in [(7, ""), (7, "; a remark"), (8, "")] {
        fs::write(&file, text(serial, line)).unwrap();
        (local, _) = Local::load(&specs, &local);
        let (live, settings) = local.iter().next().unwrap();
        live.keep_first(settings, local.state());
    }
    let store = Store::new(local.state(), &fixture::apex(), 1 << 20);
    assert_eq!(store.changes(7, 8).unwrap().len(), 1);
}

/// Whoever loads all zones waits for each.
#[test]
fn a_panic_while_a_zone_is_loaded_is_an_error_of_that_zone() {
    let live = Live::new(&fixture::apex());
    live.begin("loading");
    let lines = live.guarded(|| panic!("as this test wants it"));
    let text = &lines[0].text;
    assert!(lines[0].is_error && text.contains("panic"), "{text}");
    assert!(text.ends_with("answered with SERVFAIL"), "{text}");
    let state = live.state();
    assert!(state.failed && state.work.is_none(), "{}", state.said);
}

/// Whatever wakes a zone's task behind that: else it would be asked for when the clock is again where it was.
#[test]
fn times_by_a_clock_that_has_gone_back_are_mended_for_good() {
    let live = Live::new(&fixture::apex());
    live.change_state(|state| state.timers = Some(timers::Timers::new(5_000)));
    let refreshed = |state: live::State| state.timers.map(|timers| timers.refreshed);
    assert_eq!(refreshed(live.state_by_clock(6_000)), Some(5_000));
    assert_eq!(refreshed(live.state_by_clock(1_000)), Some(1_000));
    assert_eq!(refreshed(live.state_by_clock(9_000)), Some(1_000));
}

/// RFC 1996 §3.11: whoever is told asks for the zone then.
#[test]
fn servers_that_are_told_in_vain_are_named_once() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("zone");
    fs::write(&file, text(7, "")).unwrap();
    let with_acl = |networks: &[&str]| {
        let mut specs = ZoneSpecs::of_file("example.com.", &file);
        let settings = Arc::make_mut(&mut specs.list[0].settings);
        settings.journal_octets = 0;
        settings.notify = ["192.0.2.1:53", "[2001:db8::1]:53"]
            .map(|address| Peer::new(address.parse().unwrap()))
            .to_vec();
        let entry = |network: &&str| AclEntry {
            action: Action::Transfer,
            scope: Scope::Addresses(network.parse::<ipnet::IpNet>().unwrap().into()),
            key: None,
            protocol: None,
            denies: false,
        };
        settings.acl = networks.iter().map(entry).collect();
        specs
    };
    let said = |lines: Vec<Line>| {
        let lines = lines.into_iter().map(|line| line.text);
        let told = lines.filter(|line| line.contains("is told of changes"));
        told.collect::<Vec<_>>()
    };
    let specs = with_acl(&["192.0.2.0/24"]);
    let (first, lines) = Local::load(&specs, &Local::default());
    let lines = said(lines);
    let ends = "acl needs {action=\"transfer\", address=\"2001:db8::1\"}";
    assert!(lines.len() == 1 && lines[0].ends_with(ends), "{lines:?}");
    let (again, lines) = Local::load(&specs, &first);
    assert_eq!(said(lines), Vec::<String>::new());
    let (_, lines) = Local::load(&with_acl(&[]), &again);
    assert_eq!(said(lines).len(), 2);
    let all = with_acl(&["192.0.2.0/24", "2001:db8::/32"]);
    let (_, lines) = Local::load(&all, &Local::default());
    assert_eq!(said(lines), Vec::<String>::new());
}

#[test]
fn many_zones_are_loaded_at_a_time_and_one_that_is_none_is_not_loaded() {
    let folder = tempfile::tempdir().unwrap();
    let mut specs = ZoneSpecs::default();
    for number in 0..40 {
        let file = folder.path().join(format!("zone-{number}"));
        let lines = if number == 13 { "nonsense" } else { "" };
        fs::write(&file, text(number, lines)).unwrap();
        let mut one = ZoneSpecs::of_file(&format!("z{number}.example."), &file);
        specs.list.append(&mut one.list);
    }
    let (local, lines) = Local::load(&specs, &Local::default());
    assert!(lines[0].is_error && lines[0].text.starts_with("zone z13.example.: "));
    let serials: Vec<_> = local
        .zones()
        .iter()
        .map(|(_, zone)| zone.map(|zone| zone.soa().serial))
        .collect();
    let expected = (0..40).map(|number| (number != 13).then_some(number));
    assert_eq!(serials, expected.collect::<Vec<_>>());
}

#[test]
fn a_start_leaves_large_zones_to_their_tasks() {
    let folder = tempfile::tempdir().unwrap();
    let mut specs = ZoneSpecs::default();
    let many = "$GENERATE 1-300 host-$ A 192.0.2.1";
    for (name, lines) in [("large.example.", many), ("small.example.", "")] {
        let file = folder.path().join(name);
        fs::write(&file, text(5, lines)).unwrap();
        specs.list.append(&mut ZoneSpecs::of_file(name, &file).list);
    }
    let (local, lines) = Local::load_within(&specs, &Local::default(), &Room::of(100));
    assert_eq!(
        lines[0].text,
        "zone small.example.: serial 5, 3 records loaded"
    );
    let is_served = |local: &Local| {
        local
            .zones()
            .iter()
            .map(|(_, zone)| zone.is_some())
            .collect()
    };
    let served: Vec<bool> = is_served(&local);
    assert_eq!(served, [false, true]);
    let status = local.status(&[]).unwrap();
    assert!(
        status[0]
            .to_string()
            .ends_with("SERVFAIL, waiting to be loaded"),
        "{}",
        status[0]
    );
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (published, publish) = std::sync::mpsc::channel();
    let keeper = Keeper::new(runtime.handle().clone(), move || {
        published.send(()).unwrap()
    });
    keeper.follow(&local);
    publish.recv_timeout(Duration::from_secs(30)).unwrap();
    let served: Vec<bool> = is_served(&local.anew());
    assert_eq!(served, [true, true]);
    // What was left is loaded once.
    assert!(local.iter().all(|(live, _)| !live.is_awaited()));
}

/// A secondary that begins with a file which was written then.
fn secondary_since(written: SystemTime) -> (tempfile::TempDir, Local) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("zone");
    fs::write(&file, text(5, "")).unwrap();
    let opened = fs::File::options().write(true).open(&file).unwrap();
    opened.set_modified(written).unwrap();
    let mut specs = ZoneSpecs::of_file("example.com.", &file);
    specs.state_directory = Some(folder.path().join("state"));
    Arc::make_mut(&mut specs.list[0].settings).primaries = fixture::secondary().primaries;
    let (local, _) = Local::load(&specs, &Local::default());
    (folder, local)
}

#[test]
fn a_file_of_times_to_come_does_not_keep_a_zone_from_being_asked_for() {
    let future = SystemTime::now() + Duration::from_secs(1_000_000_000);
    let (_folder, local) = secondary_since(future);
    let status = local.status(&[]).unwrap().remove(0);
    assert_eq!(status.serial, Some(5));
    let is_within = |seconds: Option<u64>, most| seconds.is_some_and(|seconds| seconds <= most);
    assert!(is_within(status.refresh_in, 3_600), "{status}");
    assert!(is_within(status.expires_in, 86_400), "{status}");
}

#[test]
fn the_status_of_an_expired_zone_tells_when_it_is_asked_for() {
    let (_folder, local) = secondary_since(SystemTime::UNIX_EPOCH);
    let (live, _) = local.iter().next().unwrap();
    live.change_state(|state| {
        let timers = state.timers.as_mut().unwrap();
        timers.failed(crate::clock::unix(), false);
    });
    let status = local.status(&[]).unwrap().remove(0);
    assert!(status.expired && status.serial.is_none(), "{status}");
    // RETRY of its SOA record is 600 s: it is there, if it is not served.
    let is_by_retry = |seconds: u64| (300..=600).contains(&seconds);
    assert!(status.refresh_in.is_some_and(is_by_retry), "{status}");
}

#[test]
fn a_frozen_zone_stays_as_it_is_until_its_thaw() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("zone");
    fs::write(&file, text(5, "")).unwrap();
    let specs = ZoneSpecs::of_file("example.com.", &file);
    let (local, _) = Local::load(&specs, &Local::default());
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let keeper = Keeper::new(runtime.handle().clone(), || {});
    keeper.follow(&local);
    let status = || local.status(&[]).unwrap().remove(0);
    let obeyed = |order: Order| {
        let ticket = local.begin(&[], &order).unwrap()[0].ticket;
        let until = Instant::now() + Duration::from_secs(60);
        while status().outcome(ticket).is_none() {
            assert!(Instant::now() < until, "{}", status());
            std::thread::yield_now();
        }
        status()
    };
    assert!(obeyed(Order::Freeze).to_string().contains(", frozen; "));
    fs::write(&file, text(6, "www A 192.0.2.80")).unwrap();
    let said = obeyed(Order::Reload);
    assert!(said.failed, "{said}");
    assert!(said.said.contains("`millrace zone thaw example.com.`"));
    let (again, lines) = Local::load(&specs, &local);
    assert_eq!((serial(&again), lines), (Some(5), Vec::new()));
    let waits = "frozen, and something waits for its thaw";
    assert!(status().to_string().contains(waits), "{}", status());
    let thawed = obeyed(Order::Thaw);
    assert_eq!((thawed.serial, thawed.frozen), (Some(6), false));
    assert!(obeyed(Order::Thaw).said.contains("nothing was held back"));
    for order in [Order::Refresh, Order::Purge, Order::Flush(None)] {
        let said = obeyed(order.clone());
        assert!(said.failed && said.serial == Some(6), "{order:?}: {said}");
    }
}

#[test]
fn an_order_to_all_zones_is_given_to_each_or_to_none() {
    let folder = tempfile::tempdir().unwrap();
    let mut specs = ZoneSpecs::default();
    for number in 0..2 {
        let file = folder.path().join(format!("zone-{number}"));
        fs::write(&file, text(number, "")).unwrap();
        let mut one = ZoneSpecs::of_file(&format!("z{number}.example."), &file);
        specs.list.append(&mut one.list);
    }
    let (local, _) = Local::load(&specs, &Local::default());
    let zones = local.status(&[]).unwrap().into_iter();
    let names: Vec<String> = zones.map(|zone| zone.name).collect();
    // Nobody follows them.
    while local.begin(&names[1..], &Order::Notify).is_ok() {}
    let refused = local.begin(&[], &Order::Notify).err().unwrap();
    assert!(
        refused.contains(&names[1]) && refused.contains("nothing was begun"),
        "{refused}"
    );
    let begun = local.begin(&names[..1], &Order::Notify).unwrap();
    assert_eq!(begun[0].ticket, 1, "the first order that it was given");
}

/// Scripts look at the exit status: a primary beside them is no failure of `millrace zone refresh`.
#[test]
fn an_order_without_names_is_for_the_zones_that_can_obey_it() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("zone");
    fs::write(&file, text(5, "")).unwrap();
    let mut specs = ZoneSpecs::of_file("primary.example.", &file);
    let mut other = ZoneSpecs::of_file("secondary.example.", &file);
    specs.state_directory = Some(folder.path().join("state"));
    Arc::make_mut(&mut other.list[0].settings).primaries = fixture::secondary().primaries;
    specs.list.append(&mut other.list);
    let (local, _) = Local::load(&specs, &Local::default());
    let begun = |names: &[String], order: Order| -> Vec<String> {
        let begun = local.begin(names, &order).unwrap().into_iter();
        begun.map(|zone| zone.name).collect()
    };
    for order in [Order::Refresh, Order::Retransfer, Order::Flush(None)] {
        assert_eq!(begun(&[], order), ["secondary.example."]);
    }
    assert_eq!(begun(&[], Order::Reload).len(), 2);
    assert_eq!(begun(&[], Order::Notify).len(), 2, "each says why not");
    let named = ["primary.example.".to_owned()];
    assert_eq!(begun(&named, Order::Refresh), named);
}

#[test]
fn secondaries_are_told_of_a_version_when_it_serves() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("zone");
    fs::write(&file, text(5, "$GENERATE 1-300 host-$ A 192.0.2.1")).unwrap();
    let secondary = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let mut specs = ZoneSpecs::of_file("example.com.", &file);
    let settings = Arc::make_mut(&mut specs.list[0].settings);
    settings
        .notify
        .push(Peer::new(secondary.local_addr().unwrap()));
    let (local, _) = Local::load_within(&specs, &Local::default(), &Room::of(100));
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (published, publish) = std::sync::mpsc::channel();
    let keeper = Keeper::new(runtime.handle().clone(), move || {
        published.send(()).unwrap()
    });
    keeper.follow(&local);
    publish.recv_timeout(Duration::from_secs(30)).unwrap();
    let told = || again_if_interrupted(|| secondary.recv(&mut [0; 512])).is_ok();
    secondary
        .set_read_timeout(Some(Duration::from_millis(300)))
        .unwrap();
    assert!(!told(), "whoever asks at once is answered with SERVFAIL");
    keeper.published(keeper.publishing());
    // Less than it would be waited for.
    secondary
        .set_read_timeout(Some(Duration::from_secs(30)))
        .unwrap();
    assert!(told());
}

#[test]
fn an_expired_secondary_that_becomes_a_primary_without_a_file_does_not_serve_on() {
    let (folder, local) = secondary_since(SystemTime::UNIX_EPOCH);
    let file = folder.path().join("zone");
    fs::write(&file, "nonsense").unwrap();
    let specs = ZoneSpecs::of_file("example.com.", &file);
    let (primary, lines) = Local::load(&specs, &local);
    assert_eq!(serial(&primary), None);
    let said = &lines[0].text;
    assert!(said.ends_with("answered with SERVFAIL"), "{said}");
}

fn to_everybody() -> Acl {
    let everybody = AclEntry {
        action: Action::Transfer,
        scope: Scope::Everywhere,
        key: None,
        protocol: None,
        denies: false,
    };
    Acl::from_iter([everybody])
}

/// What is known on the disk of a zone whose settings a reload has changed, which found its file as it was.
fn kept_after_a_reload(change: impl FnOnce(&mut ZoneSettings)) -> Facts {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("zone");
    fs::write(&file, text(5, "")).unwrap();
    let mut specs = ZoneSpecs::of_file("example.com.", &file);
    specs.state_directory = Some(folder.path().join("state"));
    let (first, _) = Local::load(&specs, &Local::default());
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let keeper = Keeper::new(runtime.handle().clone(), || {});
    keeper.follow(&first);
    change(Arc::make_mut(&mut specs.list[0].settings));
    let (second, lines) = Local::load(&specs, &first);
    assert!(lines.is_empty(), "{lines:?}");
    keeper.follow(&second);
    let mut store = Store::new(second.state(), &fixture::apex(), 1 << 20);
    let until = Instant::now() + Duration::from_secs(60);
    while store.serial().is_none() || store.facts() == Facts::default() {
        assert!(Instant::now() < until, "it is not kept");
        std::thread::yield_now();
    }
    assert_eq!(store.serial(), Some(5));
    store.facts()
}

#[test]
fn a_journal_can_begin_where_a_reload_allows_transfers() {
    let facts = kept_after_a_reload(|settings| settings.acl = to_everybody());
    assert_eq!(facts.stamps.len(), 1);
}

#[test]
fn a_zone_is_on_the_disk_where_a_reload_makes_a_primary_a_secondary() {
    let facts = kept_after_a_reload(|settings| {
        settings.primaries = fixture::secondary().primaries;
    });
    assert!(facts.refreshed > 0);
}

/// A primary that begins a transfer, and then sends the same record ten times a second for ever. It tells when it has begun,
/// and when nobody takes it any more.
fn drip(listener: &TcpListener, tell: &Sender<()>) -> io::Result<()> {
    let (mut stream, _) = listener.accept()?;
    let mut length = [0; 2];
    stream.read_exact(&mut length)?;
    let mut query = vec![0; u16::from_be_bytes(length).into()];
    stream.read_exact(&mut query)?;
    // Header and question: example.com., its type and class.
    let mut head = query[..12 + 13 + 4].to_vec();
    head[2..12].copy_from_slice(&[0x84, 0, 0, 1, 0, 1, 0, 0, 0, 0]);
    let address = [0xc0u8, 12, 0, 1, 0, 1, 0, 0, 1, 44, 0, 4, 192, 0, 2, 1];
    let names = [
        0xc0u8, 12, 0, 6, 0, 1, 0, 0, 1, 44, 0, 24, 0xc0, 12, 0xc0, 12,
    ];
    let soa = [&names[..], &[1u8; 20]].concat();
    let message = |record: &[u8]| {
        let length = (head.len() + record.len()) as u16;
        [&length.to_be_bytes()[..], &head, record].concat()
    };
    stream.write_all(&message(&soa))?;
    tell.send(()).unwrap();
    stream.set_read_timeout(Some(Duration::from_millis(100)))?;
    let waits = [
        ErrorKind::WouldBlock,
        ErrorKind::TimedOut,
        ErrorKind::Interrupted,
    ];
    while let Err(error) = stream.read(&mut [0]) {
        if !waits.contains(&error.kind()) || stream.write_all(&message(&address)).is_err() {
            break;
        }
    }
    tell.send(()).unwrap();
    Ok(())
}

fn ask_of(specs: &mut ZoneSpecs, address: SocketAddr) {
    Arc::make_mut(&mut specs.list[0].settings).primaries = vec![Peer::new(address)];
}

/// Those before may go on for as long as `transferTimeout` allows.
#[test]
fn other_primaries_are_asked_at_once_while_a_transfer_is_under_way() {
    const PATIENCE: Duration = Duration::from_secs(60);
    let listen = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let (before, next) = (listen(), listen());
    let addresses = [&before, &next].map(|listener| listener.local_addr().unwrap());
    let (tell, told) = channel();
    thread::spawn(move || drip(&before, &tell));
    let folder = tempfile::tempdir().unwrap();
    let mut specs = ZoneSpecs::of_file("example.com.", &folder.path().join("zone"));
    specs.state_directory = Some(folder.path().join("state"));
    ask_of(&mut specs, addresses[0]);
    let (first, _) = Local::load(&specs, &Local::default());
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let keeper = Keeper::new(runtime.handle().clone(), || {});
    keeper.follow(&first);
    told.recv_timeout(PATIENCE).expect("a transfer");
    let (again, _) = Local::load(&specs, &first);
    let status = again.status(&[]).unwrap().remove(0);
    assert_eq!(status.work.as_deref(), Some("transferring"), "{status}");
    ask_of(&mut specs, addresses[1]);
    let (second, _) = Local::load(&specs, &again);
    keeper.follow(&second);
    told.recv_timeout(PATIENCE).expect("its end");
    let (tell, told) = channel();
    thread::spawn(move || tell.send(next.accept().is_ok()));
    assert_eq!(told.recv_timeout(PATIENCE), Ok(true));
}
