//! What clients send is lost, doubled, delayed, reordered or corrupted on its way (netem on their interface).

use std::collections::HashSet;
use std::time::Duration;

use testnet::Outcome;
use testnet::lab::{Lab, SERVER_CLIENTS, TO_SERVER};
use testnet::namespace::run;
use xsk::AttachMode;

use crate::lab::{Client, Echo, Path, SERVED, Witness, has_module, inside, lab, until};

const NOW: Duration = Duration::ZERO;

/// A worker whose clients' frames are disturbed; a kernel socket is there for what it is not given.
struct Disturbed {
    /// Over IPv4 and over IPv6.
    clients: [Client; 2],
    echo: Echo,
    _witness: Witness,
    lab: Lab,
}

impl Disturbed {
    /// Disturbed as tc's netem understands `how`; `None` and a line where that cannot be.
    fn start(name: &str, how: &str) -> Option<Disturbed> {
        let lab = lab(name)?;
        acquaint(&lab);
        let mut echo = inside(&lab.server(), || {
            Echo::start(SERVER_CLIENTS, AttachMode::Native)
        });
        let witness = Witness::start(&lab.server(), &SERVED);
        let mut clients = [Client::new(&lab, 0), Client::new(&lab, 1)];
        for client in &mut clients {
            client.reach(&mut echo);
        }
        let line = format!("qdisc replace dev {TO_SERVER} root netem {how}");
        has_module("sch_netem", tc(&lab, &line)).then_some(Disturbed {
            clients,
            echo,
            _witness: witness,
            lab,
        })
    }

    /// Frames that the program has judged.
    fn judged(&self) -> u64 {
        self.echo.program.verdicts().unwrap().iter().sum()
    }

    /// Ends the disturbance.
    fn calm(&self) {
        tc(&self.lab, &format!("qdisc del dev {TO_SERVER} root")).unwrap();
    }

    /// Asks once more, undisturbed, and gives what came before the answer.
    fn rest(&mut self, version: usize) -> Vec<(u16, Path)> {
        // A worker that has frames and does not take them counts as stalled after 100 ms.
        self.echo.turn();
        let last = self.clients[version].send();
        let mut answers = Vec::new();
        until("the last answer", || {
            self.echo.turn();
            answers.extend(self.clients[version].receive(NOW));
            answers.last().is_some_and(|(id, _)| *id == last)
        });
        answers.pop();
        answers
    }
}

fn tc(lab: &Lab, line: &str) -> Outcome<()> {
    let arguments: Vec<&str> = line.split(' ').collect();
    inside(&lab.client(), || run("tc", &arguments))
}

/// Nobody asks for a hardware address: the disturbance is of queries alone.
fn acquaint(lab: &Lab) {
    let client = format!(
        "neigh replace 192.0.2.1 lladdr 02:00:00:00:01:01 dev {TO_SERVER} nud permanent\n\
         neigh replace 2001:db8::1 lladdr 02:00:00:00:01:01 dev {TO_SERVER} nud permanent\n"
    );
    let server = format!(
        "neigh replace 192.0.2.100 lladdr 02:00:00:00:01:64 dev {SERVER_CLIENTS} nud permanent\n\
         neigh replace 2001:db8::100 lladdr 02:00:00:00:01:64 dev {SERVER_CLIENTS} nud permanent\n"
    );
    lab.client().ip(&client).unwrap();
    lab.server().ip(&server).unwrap();
}

#[test]
fn each_copy_of_a_doubled_query_is_answered_once() {
    let Some(mut world) = Disturbed::start("doubled", "duplicate 100%") else {
        return;
    };
    let received = world.echo.socket.counters().received;
    for version in 0..2 {
        for _ in 0..20 {
            let id = world.clients[version].send();
            let mut answers = Vec::new();
            until("an answer to each copy", || {
                world.echo.turn();
                answers.extend(world.clients[version].receive(NOW));
                answers.len() == 2
            });
            // A third answer would be among the next ones.
            assert_eq!(answers, [(id, Path::Xsk); 2]);
        }
    }
    assert_eq!(world.echo.socket.counters().received - received, 80);
    world.calm();
    for version in 0..2 {
        let rest = world.rest(version);
        assert!(rest.is_empty(), "{rest:?}");
    }
}

#[test]
fn queries_of_a_lossy_line_are_answered_once_in_any_order() {
    let how = "delay 20ms reorder 50% loss 30%";
    let Some(mut world) = Disturbed::start("lossy", how) else {
        return;
    };
    let mut answered = [HashSet::new(), HashSet::new()];
    for (version, answered) in answered.iter_mut().enumerate() {
        until("fifty answers", || {
            world.clients[version].send();
            world.echo.turn();
            if let Some((id, _)) = world.clients[version].receive(Duration::from_millis(10)) {
                assert!(answered.insert(id), "{id} is answered twice");
            }
            answered.len() >= 50
        });
    }
    world.calm();
    for (version, answered) in answered.iter_mut().enumerate() {
        for (id, _) in world.rest(version) {
            assert!(answered.insert(id), "{id} is answered twice");
        }
    }
}

/// A bit of each frame is flipped. What the checksums cover is answered by nobody: the kernel drops it, and what the worker
/// of these tests makes of it keeps the wrong checksum. A hop limit or a flow label is covered by none.
#[test]
fn corrupted_queries_get_the_right_answer_or_none() {
    const ROUNDS: u64 = 25;
    const EACH: u64 = 8;
    let Some(mut world) = Disturbed::start("corrupted", "corrupt 100%") else {
        return;
    };
    let mut asked = [HashSet::new(), HashSet::new()];
    let mut answers = [Vec::new(), Vec::new()];
    for version in 0..2 {
        let before = world.judged();
        for round in 1..=ROUNDS {
            asked[version].extend((0..EACH).map(|_| world.clients[version].send()));
            until("the program has seen them", || {
                world.echo.turn();
                // The client checks what it receives, octet by octet.
                answers[version].extend(world.clients[version].receive(NOW));
                world.judged() - before >= round * EACH
            });
        }
    }
    world.calm();
    for version in 0..2 {
        let rest = world.rest(version);
        answers[version].extend(rest);
        let count = answers[version].len();
        assert!(4 * count < asked[version].len(), "{count} are answered");
        for (id, _) in &answers[version] {
            assert!(asked[version].remove(id), "{id} was not asked, or once");
        }
        assert_eq!(
            world.clients[version].ask_of(&mut world.echo),
            Some(Path::Xsk)
        );
    }
    assert_eq!(world.echo.socket.statistics().unwrap().rx_dropped, 0);
}
