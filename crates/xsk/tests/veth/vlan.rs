//! Frames with a VLAN tag are left to the kernel, whose VLAN device answers; those without one beside them are not.

use testnet::lab::{Lab, SERVER_CLIENTS, TO_SERVER};
use testnet::namespace::run;
use xsk::nic::Tuning;
use xsk::{AttachMode, Reason};

use crate::lab::{Client, Echo, Path, SERVED, Witness, has_module, inside, lab};

/// Addresses of VLAN 7.
const TAGGED_SERVERS: [&str; 2] = ["203.0.113.1:53", "[2001:db8:7::1]:53"];
const TAGGED_CLIENTS: [&str; 2] = ["203.0.113.2:0", "[2001:db8:7::2]:0"];
/// Asked with a tag, and as many without.
const QUESTIONS: u64 = 20;

/// Gives clients and server a VLAN device on the veth pair between them; `false` and a line where there is none.
fn has_vlan(lab: &Lab) -> bool {
    let ends = [
        (lab.client(), TO_SERVER, 2),
        (lab.server(), SERVER_CLIENTS, 1),
    ];
    for (namespace, interface, host) in ends {
        // Else veth hands the tag over beside the frame, where an XDP program cannot see it.
        let arguments = ["-K", interface, "txvlan", "off"];
        let offload = inside(&namespace, || run("ethtool", &arguments));
        offload.unwrap_or_else(|failure| panic!("{failure}"));
        let added = namespace.ip(&format!(
            "link add link {interface} name {interface}.7 type vlan id 7\n"
        ));
        if !has_module("8021q", added) {
            return false;
        }
        let lines = format!(
            "link set {interface}.7 up\n\
             address add 203.0.113.{host}/24 dev {interface}.7\n\
             address add 2001:db8:7::{host}/64 dev {interface}.7 nodad\n"
        );
        namespace.ip(&lines).unwrap();
    }
    true
}

fn tags_decide(mode: AttachMode, name: &str) {
    let Some(lab) = lab(name).filter(has_vlan) else {
        return;
    };
    let mut echo = inside(&lab.server(), || Echo::start(SERVER_CLIENTS, mode));
    // Served as well, so that nothing but the tag leaves their queries to the kernel.
    for server in TAGGED_SERVERS {
        echo.program.serve(server.parse().unwrap()).unwrap();
    }
    let _untagged = Witness::start(&lab.server(), &SERVED);
    let _tagged = Witness::start(&lab.server(), &TAGGED_SERVERS);
    for version in 0..2 {
        let (from, to) = (TAGGED_CLIENTS[version], TAGGED_SERVERS[version]);
        let mut tagged = Client::between(&lab.client(), from, to);
        let mut untagged = Client::new(&lab, version);
        tagged.reach(&mut echo);
        untagged.reach(&mut echo);
        let before = echo.program.verdicts().unwrap();
        for _ in 0..QUESTIONS {
            assert_eq!(tagged.ask_of(&mut echo), Some(Path::Kernel));
            assert_eq!(untagged.ask_of(&mut echo), Some(Path::Xsk));
        }
        let after = echo.program.verdicts().unwrap();
        let counted = |reason: Reason| after[reason as usize] - before[reason as usize];
        assert_eq!(
            counted(Reason::TakeQuery) + counted(Reason::TakeProbe),
            QUESTIONS
        );
        // What asks for hardware addresses is counted there too.
        assert!(counted(Reason::PassProtocol) >= QUESTIONS);
    }
}

#[test]
fn tagged_queries_are_left_to_the_kernel_in_native_mode() {
    tags_decide(AttachMode::Native, "vlan-native");
}

#[test]
fn tagged_queries_are_left_to_the_kernel_in_generic_mode() {
    tags_decide(AttachMode::Generic, "vlan-generic");
}

/// `millrace doctor` goes by it: a card that does it hides tags from the program.
#[test]
fn whether_a_driver_takes_tags_off_is_told() {
    let Some(lab) = lab("vlan-told") else { return };
    for (word, expected) in [("off", false), ("on", true)] {
        let tuning = inside(&lab.server(), || {
            let set = run("ethtool", &["-K", SERVER_CLIENTS, "rxvlan", word]);
            set.unwrap_or_else(|failure| panic!("{failure}"));
            Tuning::read(SERVER_CLIENTS).unwrap()
        });
        assert_eq!(tuning.rx_vlan, Some(expected), "rxvlan {word}");
    }
}
