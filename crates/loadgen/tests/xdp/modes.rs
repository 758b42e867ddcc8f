//! `-m`: the mode that it says it got is the one that the kernel shows, and queries are answered in it.

use crate::lab::{
    Deed, Responder, SERVER, Talking, end, lab, lab_of, program_on, queries, quiet_port, start,
};
use std::net::UdpSocket;
use testnet::lab::{CLIENT_V4, SERVER_CLIENTS, TO_SERVER, Topology};
use testnet::namespace::Namespace;

/// How the kernel has a program on an interface: `xdp` in the driver, `xdpgeneric` in its stack; empty without one.
fn shown(namespace: &Namespace, interface: &str) -> String {
    let text = namespace.output("ip", &["link", "show", "dev", interface]);
    let text = text.unwrap();
    // Some versions of ip write the program's number behind it: `xdp/id:7`.
    let mut words = text
        .split_whitespace()
        .filter_map(|word| word.split('/').next());
    let word = words.find(|word| word.starts_with("xdp"));
    word.unwrap_or_default().to_owned()
}

/// Runs until queries have gone out, then ends it: what it said of its mode, and what the kernel said meanwhile.
fn modes_of(namespace: &Namespace, interface: &str, line: &str) -> ((String, String), String) {
    let mut flood = Talking::start(namespace, line);
    let header = flood.object();
    flood.busy();
    let shown = shown(namespace, interface);
    let result = flood.interrupt();
    assert!(result["queries"].as_u64() > Some(0), "{line}: {result:#}");
    assert_eq!(
        result["floodgate"]["right"], result["queries"],
        "{line}: {result:#}"
    );
    assert_eq!(program_on(namespace, interface), "", "{line}");
    let told = |name: &str| {
        let word = header["additional_info"][name].as_str();
        word.unwrap_or_default().to_owned()
    };
    ((told("attached"), told("bound")), shown)
}

#[test]
fn the_mode_that_is_asked_for_is_the_one_that_it_tells_and_the_kernel_shows() {
    let Some(lab) = lab() else { return };
    let _port = quiet_port(&lab, SERVER);
    let _responder = Responder::start(&lab, None, |_| Deed::Answer);
    let file = queries(100);
    let path = file.path().display();
    // A veth pair has no zero-copy.
    for (mode, attached, by_kernel) in [
        ("-m auto", "native", "xdp"),
        ("-m copy", "native", "xdp"),
        ("-m generic", "generic", "xdpgeneric"),
    ] {
        let line = format!("xdp -j {mode} -S 50 -t 600 --patience 60 --late 60 -i {path} {SERVER}");
        let (told, shown) = modes_of(&lab.client(), TO_SERVER, &line);
        assert_eq!(told, (attached.to_owned(), "copy".to_owned()), "{mode}");
        assert_eq!(shown, by_kernel, "{mode}");
    }
    let line = format!("xdp -m generic -t 0.1 -i {path} {SERVER}");
    let printed = end(start(&lab.client(), &line));
    let first = printed.out.lines().next();
    let says = format!("using interface {TO_SERVER}, XDP threads 2, UDP, generic mode, copy");
    assert_eq!(first, Some(says.as_str()), "{printed:?}");
}

#[test]
fn where_the_driver_takes_no_program_auto_says_that_it_is_generic_and_copy_is_refused() {
    let Some(lab) = lab_of(Topology::Generic) else {
        return;
    };
    // The other way round: it is the server's interface whose driver takes none.
    let (here, there) = (lab.server(), lab.client());
    let port = there.run(|| UdpSocket::bind((CLIENT_V4, 53)));
    let _port = port.unwrap().unwrap();
    let _responder = Responder::start_on((&there, TO_SERVER), None, |_| Deed::Answer);
    let file = queries(100);
    let path = file.path().display();
    let line = format!("xdp -j -S 50 -t 600 --patience 60 --late 60 -i {path} {CLIENT_V4}");
    let (told, shown) = modes_of(&here, SERVER_CLIENTS, &line);
    assert_eq!(told, ("generic".to_owned(), "copy".to_owned()));
    assert_eq!(shown, "xdpgeneric");
    let copy = end(start(&here, &format!("xdp -m copy -i {path} {CLIENT_V4}")));
    assert!(!copy.success && copy.out.is_empty(), "{copy:?}");
    assert_eq!(copy.complaint.lines().count(), 1, "{copy:?}");
    for part in [SERVER_CLIENTS, "-m copy asks for native mode"] {
        assert!(copy.complaint.contains(part), "{copy:?}");
    }
    assert_eq!(program_on(&here, SERVER_CLIENTS), "");
}
