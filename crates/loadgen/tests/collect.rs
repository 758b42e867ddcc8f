//! Frame in, verdict out: a case for each row of the table in `bpf/README.md`, run by the kernel (BPF_PROG_TEST_RUN)
//! without an interface.

use floodgate::questions::summed;
use floodgate::xdp::addressing::{Addressing, Target};
use std::net::SocketAddr;
use xsk::{COLLECTED, Collected, Collection, Collector, ROOM, Socket, Sources};

const XDP_DROP: u32 = 1;
const XDP_PASS: u32 = 2;
const XDP_REDIRECT: u32 = 4;
const OUR_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
const TARGETS: [&str; 2] = ["198.51.100.1:53", "[2001:db8:1::1]:53"];
const THEIR_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];

/// The program with a target of each version of IP; `None` and a line without the privileges.
fn collector(change: impl FnOnce(&mut Collection)) -> Option<Collector> {
    let sources = |address: &str, prefix| Sources {
        address: address.parse().unwrap(),
        prefix,
    };
    let mut collection = Collection {
        mac: OUR_MAC,
        targets: TARGETS.map(|target| target.parse().unwrap()).to_vec(),
        sources: vec![sources("192.0.2.96", 28), sources("2001:db8::9", 128)],
        ports: 16384..=16399,
        vlan: None,
        drop: false,
    };
    change(&mut collection);
    Collector::load(&collection)
        .inspect_err(|error| println!("SKIP: {error}"))
        .ok()
}

/// The frame of an answer.
fn answer(from: &str, to: &str, vlan: Option<u16>, length: usize) -> Vec<u8> {
    let to: SocketAddr = to.parse().unwrap();
    let addressing = Addressing {
        targets: vec![Target {
            server: to,
            mac: OUR_MAC,
            sources: Sources {
                address: from.parse::<SocketAddr>().unwrap().ip(),
                prefix: if to.is_ipv4() { 32 } else { 128 },
            },
        }],
        first_port: from.parse::<SocketAddr>().unwrap().port(),
        port_bits: 0,
        local_mac: THEIR_MAC,
        vlan,
    };
    let mut frame = vec![0; 3000];
    let message = vec![0x80; length];
    let end = addressing.write(&mut frame, summed(&message), (0, 0, 1), 0);
    frame.truncate(end as usize);
    frame
}

/// The verdict on a frame, and the one counter that it moved.
fn judge(collector: &Collector, frame: &[u8]) -> (u32, Collected) {
    let before = collector.counts().unwrap();
    let verdict = collector.test_run(frame).unwrap();
    let after = collector.counts().unwrap();
    let moved: Vec<usize> = (0..COLLECTED)
        .filter(|&at| after[at] != before[at])
        .collect();
    let all = [
        Collected::AnswerTaken,
        Collected::AnswerDropped,
        Collected::AnswerLarge,
        Collected::AnswerSocket,
        Collected::NoAnswer,
        Collected::OtherSource,
    ];
    assert_eq!(moved.len(), 1, "{before:?} {after:?}");
    (verdict, all[moved[0]])
}

#[test]
fn answers_to_us_are_taken_on_both_versions_of_ip() {
    let Some(collector) = collector(|_| {}) else {
        return;
    };
    let socket = Socket::open().unwrap();
    for (from, to) in [
        ("198.51.100.1:53", "192.0.2.96:16384"),
        ("198.51.100.1:53", "192.0.2.111:16399"),
        ("[2001:db8:1::1]:53", "[2001:db8::9]:16390"),
    ] {
        let frame = answer(from, to, None, 40);
        assert_eq!(
            judge(&collector, &frame),
            (XDP_PASS, Collected::AnswerSocket),
            "{from} to {to}, without a socket"
        );
    }
    // An unbound socket is enough for the map to know it.
    if collector.enter(0, &socket).is_ok() {
        let frame = answer("198.51.100.1:53", "192.0.2.96:16384", None, 40);
        assert_eq!(
            judge(&collector, &frame),
            (XDP_REDIRECT, Collected::AnswerTaken)
        );
    }
}

#[test]
fn everything_else_is_passed() {
    let Some(collector) = collector(|_| {}) else {
        return;
    };
    for (from, to) in [
        ("198.51.100.1:53", "192.0.2.96:16383"),
        ("198.51.100.1:53", "192.0.2.96:16400"),
        ("198.51.100.1:53", "192.0.2.112:16384"),
        ("198.51.100.2:53", "192.0.2.96:16383"),
        ("[2001:db8:1::1]:53", "[2001:db8::8]:16384"),
    ] {
        let frame = answer(from, to, None, 40);
        assert_eq!(
            judge(&collector, &frame),
            (XDP_PASS, Collected::NoAnswer),
            "{from} to {to}"
        );
    }
    let whole = answer("198.51.100.1:53", "192.0.2.96:16384", None, 40);
    for length in 14..whole.len() {
        assert_eq!(
            judge(&collector, &whole[..length]),
            (XDP_PASS, Collected::NoAnswer),
            "{length} octets"
        );
    }
    let mut other_mac = whole.clone();
    other_mac[5] ^= 1;
    assert_eq!(
        judge(&collector, &other_mac),
        (XDP_PASS, Collected::NoAnswer)
    );
    let tagged = answer("198.51.100.1:53", "192.0.2.96:16384", Some(7), 40);
    assert_eq!(judge(&collector, &tagged), (XDP_PASS, Collected::NoAnswer));
}

#[test]
fn what_comes_to_our_ports_from_elsewhere_is_passed_and_counted() {
    let Some(collector) = collector(|_| {}) else {
        return;
    };
    for (from, to) in [
        ("198.51.100.1:54", "192.0.2.96:16384"),
        ("198.51.100.2:53", "192.0.2.96:16384"),
        ("[2001:db8:1::2]:53", "[2001:db8::9]:16384"),
    ] {
        let frame = answer(from, to, None, 40);
        let judged = judge(&collector, &frame);
        assert_eq!(judged, (XDP_PASS, Collected::OtherSource), "{from} to {to}");
    }
}

#[test]
fn of_one_server_alone_only_its_answers_are_taken() {
    let (to_v4, to_v6) = ("192.0.2.96:16384", "[2001:db8::9]:16384");
    for only in TARGETS {
        let alone = |collection: &mut Collection| collection.targets = vec![only.parse().unwrap()];
        let Some(collector) = collector(alone) else {
            return;
        };
        for (from, to) in [
            ("198.51.100.1:53", to_v4),
            ("198.51.100.1:54", to_v4),
            ("198.51.100.2:53", to_v4),
            ("[2001:db8:1::1]:53", to_v6),
            ("[2001:db8:1::1]:54", to_v6),
            ("[2001:db8:1::1:1]:53", to_v6),
        ] {
            let judged = judge(&collector, &answer(from, to, None, 40)).1;
            let expected = match from == only {
                true => Collected::AnswerSocket,
                false => Collected::OtherSource,
            };
            assert_eq!(judged, expected, "{from} to {to}, of {only}");
        }
    }
}

#[test]
fn a_frame_longer_than_a_chunks_room_is_passed() {
    let Some(collector) = collector(|_| {}) else {
        return;
    };
    let fits = answer("198.51.100.1:53", "192.0.2.96:16384", None, ROOM - 42);
    assert_eq!(judge(&collector, &fits).1, Collected::AnswerSocket);
    let longer = answer("198.51.100.1:53", "192.0.2.96:16384", None, ROOM - 41);
    assert_eq!(
        judge(&collector, &longer),
        (XDP_PASS, Collected::AnswerLarge)
    );
}

/// The same frame as the fragment of a datagram that begins at this offset, in units of eight octets, with or without more
/// behind it.
fn fragment(frame: &[u8], offset: u16, more: bool) -> Vec<u8> {
    let (ethernet, ip) = frame.split_at(14);
    if ip[0] >> 4 == 4 {
        let word = u16::from(more) << 13 | offset;
        return [ethernet, &ip[..6], &word.to_be_bytes(), &ip[8..]].concat();
    }
    let word = (offset << 3 | u16::from(more)).to_be_bytes();
    let header = [17, 0, word[0], word[1], 0, 0, 0, 9];
    let mut frame = [ethernet, &ip[..40], &header, &ip[40..]].concat();
    frame[14 + 6] = 44;
    frame
}

#[test]
fn of_an_answer_in_fragments_the_first_is_counted_as_a_long_one() {
    let Some(collector) = collector(|_| {}) else {
        return;
    };
    for (from, to, counted) in [
        (TARGETS[0], "192.0.2.96:16384", Collected::AnswerLarge),
        (TARGETS[1], "[2001:db8::9]:16384", Collected::AnswerLarge),
        (TARGETS[0], "192.0.2.96:20000", Collected::NoAnswer),
        (
            "198.51.100.1:54",
            "192.0.2.96:16384",
            Collected::OtherSource,
        ),
    ] {
        let whole = answer(from, to, None, 1400);
        let first = fragment(&whole, 0, true);
        assert_eq!(judge(&collector, &first), (XDP_PASS, counted), "{from}");
        for (offset, more) in [(180, true), (180, false)] {
            let rest = judge(&collector, &fragment(&whole, offset, more));
            assert_eq!(rest, (XDP_PASS, Collected::NoAnswer), "{from}, {offset}");
        }
        // Cut off before the end of its ports.
        let cut = judge(&collector, &first[..if whole[12] == 8 { 41 } else { 69 }]);
        assert_eq!(cut, (XDP_PASS, Collected::NoAnswer), "{from}");
    }
}

#[test]
fn unwanted_answers_are_dropped_and_nothing_else() {
    let Some(collector) = collector(|collection| collection.drop = true) else {
        return;
    };
    let ours = answer("198.51.100.1:53", "192.0.2.96:16384", None, 40);
    assert_eq!(
        judge(&collector, &ours),
        (XDP_DROP, Collected::AnswerDropped)
    );
    let theirs = answer("198.51.100.1:53", "192.0.2.96:20000", None, 40);
    assert_eq!(judge(&collector, &theirs), (XDP_PASS, Collected::NoAnswer));
}

#[test]
fn with_a_tag_only_frames_with_this_tag_are_answers() {
    let Some(collector) = collector(|collection| collection.vlan = Some(7)) else {
        return;
    };
    let tagged = |tag| answer("198.51.100.1:53", "192.0.2.96:16384", tag, 40);
    assert_eq!(
        judge(&collector, &tagged(Some(7))).1,
        Collected::AnswerSocket
    );
    for tag in [None, Some(8)] {
        assert_eq!(
            judge(&collector, &tagged(tag)),
            (XDP_PASS, Collected::NoAnswer),
            "{tag:?}"
        );
    }
    // Priority bits do not matter.
    assert_eq!(
        judge(&collector, &tagged(Some(0x6007))).1,
        Collected::AnswerSocket
    );
}
