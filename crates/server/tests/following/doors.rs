//! Every question that crate `zone` is compared with knotd, nsd and named by (`crates/zone/tests/peers.rs`), asked of the
//! daemon: over kernel sockets and over AF_XDP, by UDP and by TCP, it gives the crate's answers, octet by octet, and so those
//! that were compared (I10).

use crate::corpus::{Question, any_questions, questions};
use crate::rig::{PATIENCE, Rig};
use crate::zones::Ground;
use std::fmt::Write as _;
use std::io::{Read, Write as _};
use std::net::{TcpStream, UdpSocket};
use std::time::{Duration, Instant};
use testnet::again_if_interrupted;
use testnet::lab::{End, SERVER_CLIENTS, Topology};
use wire::answer::{OPT_LENGTH, OptFields, append_opt};

const ADDRESS: &str = "192.0.2.1:53";

/// Octets: what the questions of the corpus say that they take.
const PAYLOAD_SIZE: u16 = 4_096;

/// Octets of IPv4 and UDP before a message.
const HEADERS: u16 = 20 + 8;

/// How long an answer is waited for before the question is asked again: a datagram may be lost.
const AGAIN: Duration = Duration::from_secs(5);

/// A question with an ID of its own, and what is to be said to it.
struct Asked {
    question: Question,
    message: Vec<u8>,
    answer: Vec<u8>,
}

impl Asked {
    fn new(ground: &Ground, id: u16, question: Question) -> Asked {
        let mut message = question.message();
        let mut answer = ground.ask(&question).expect("the zone is served");
        message[..2].copy_from_slice(&id.to_be_bytes());
        answer[..2].copy_from_slice(&id.to_be_bytes());
        let length = answer.len();
        answer.resize(length + OPT_LENGTH, 0);
        let fields = OptFields {
            payload_size: PAYLOAD_SIZE,
            extended_rcode: 0,
            dnssec_ok: question.signed,
        };
        append_opt(&mut answer, length, fields, &[]);
        Asked {
            question,
            message,
            answer,
        }
    }

    /// What is said, where it is not the answer.
    fn differs(&self, said: &[u8]) -> Option<String> {
        (said != self.answer).then(|| {
            format!(
                "{:?}\nsaid {said:02x?}\nnot  {:02x?}",
                self.question, self.answer
            )
        })
    }
}

fn configuration(ground: &Ground, options: &str) -> String {
    let folder = ground.folder.path().display();
    // A client that waits for a processor is not gone.
    let mut text = format!(
        "addLocal('{ADDRESS}', {{{options}}})\nsetPayloadSizeOnSelfGeneratedAnswers({PAYLOAD_SIZE})\nsetTCPRecvTimeout(60)\n\
         millrace.setStateDirectory('{folder}/state')\n"
    );
    for zone in &ground.files {
        let (name, file) = (zone.name, zone.file.display());
        let _ = writeln!(
            text,
            "millrace.addZone{{name='{name}', file='{file}', statistics=true}}"
        );
    }
    text
}

/// Asks for all of these; how many messages that took, and what is answered otherwise.
type Ask = fn(&[Asked]) -> (usize, Vec<String>);

/// In datagrams, with one question under way at a time.
fn by_udp(all: &[Asked]) -> (usize, Vec<String>) {
    let socket = UdpSocket::bind("0.0.0.0:0").expect("a socket");
    socket.set_read_timeout(Some(AGAIN)).expect("a time");
    socket.connect(ADDRESS).expect("a way to the server");
    let mut buffer = vec![0; 65_535];
    let (mut all_sent, mut differences) = (0, Vec::new());
    for asked in all {
        let (sent, length) = exchange(&socket, asked, &mut buffer);
        all_sent += sent;
        differences.extend(asked.differs(&buffer[..length]));
    }
    (all_sent, differences)
}

/// Sends a question until its answer comes: how often that was, and the answer's length.
fn exchange(socket: &UdpSocket, asked: &Asked, buffer: &mut [u8]) -> (usize, usize) {
    let began = Instant::now();
    let mut sent = 0;
    while began.elapsed() < PATIENCE {
        socket.send(&asked.message).expect("somebody listens");
        sent += 1;
        // A question that was sent again may be answered twice, and the second answer is nobody's then.
        while let Ok(length) = again_if_interrupted(|| socket.recv(buffer)) {
            if buffer[..2] == asked.message[..2] {
                return (sent, length);
            }
        }
    }
    panic!("no answer within {PATIENCE:?}: {:?}", asked.question);
}

/// Over one connection.
fn by_tcp(all: &[Asked]) -> (usize, Vec<String>) {
    let mut stream = TcpStream::connect(ADDRESS).expect("somebody listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a time");
    let mut differences = Vec::new();
    for asked in all {
        let length = (asked.message.len() as u16).to_be_bytes();
        let message = [&length[..], &asked.message].concat();
        stream.write_all(&message).expect("it is read");
        let mut length = [0; 2];
        stream.read_exact(&mut length).expect("an answer");
        let mut said = vec![0; u16::from_be_bytes(length).into()];
        stream.read_exact(&mut said).expect("a whole answer");
        differences.extend(asked.differs(&said));
    }
    (all.len(), differences)
}

/// What was asked over UDP.
struct Counts {
    questions: usize,
    /// As many, but where some were lost.
    datagrams: usize,
    /// Questions whose answer has no room in a packet.
    large: usize,
}

/// Asks for the whole corpus, both ways, where a packet has room for messages of so many octets.
fn ask_all(rig: &Rig, ground: &Ground, room: usize) -> Counts {
    let is_signed = ground.files.iter().any(|zone| zone.anchor.is_some());
    assert!(is_signed, "half of the corpus is about signed zones");
    let questions = questions(ground).chain(any_questions(ground));
    let all: Vec<Asked> = (1..)
        .zip(questions)
        .map(|(id, question)| Asked::new(ground, id, question))
        .collect();
    let messages = |way: &str, ask: Ask| {
        let asked = rig.lab.client().run(|| ask(&all));
        let (messages, differences) = asked.expect("the namespace");
        let (count, first) = (differences.len(), differences.first());
        assert_eq!(first, None, "{count} of {} over {way}", all.len());
        messages
    };
    let (datagrams, by_stream) = (messages("UDP", by_udp), messages("TCP", by_tcp));
    assert_eq!(came(rig, "tcp4"), by_stream as f64, "over TCP");
    let is_large = |asked: &&Asked| asked.answer.len() > room;
    Counts {
        questions: all.len(),
        datagrams,
        large: all.iter().filter(is_large).count(),
    }
}

/// How many queries for the zones have come by this protocol: those that [`Rig`] asks are for none of them.
fn came(rig: &Rig, protocol: &str) -> f64 {
    rig.metric("millrace_zone_request_protocol", &[("protocol", protocol)])
}

/// What was asked over UDP has come over AF_XDP, but for what the kernel got because a worker had waited for a processor for
/// long. And what came that way was answered that way, but where no packet has room for the answer.
fn went_over_xdp(rig: &Rig, asked: &Counts) {
    let (questions, datagrams) = (asked.questions as f64, asked.datagrams as f64);
    let (over_xdp, passed) = (came(rig, "udp4-xdp"), came(rig, "udp4"));
    assert!(
        (questions..=datagrams).contains(&(over_xdp + passed)) && over_xdp > passed,
        "{over_xdp} over AF_XDP and {passed} by kernel sockets, of {questions} in {datagrams} datagrams:\n{}",
        rig.log()
    );
    let stalled = rig.metric("millrace_xsk_heartbeat_passes", &[]);
    assert!(passed <= stalled, "{passed}, {stalled} for a stall");
    // Those that Rig has asked are answered by the ring that they came by: they make no difference.
    let interface = [("interface", SERVER_CLIENTS)];
    let large = asked.large as f64;
    let expected = large - passed..=large + (datagrams - questions);
    let what = format!("{expected:?} answers to leave by kernel sockets");
    rig.awaits(&what, || {
        let received = rig.metric("millrace_xsk_received", &interface);
        let sent = rig.metric("millrace_xsk_sent", &interface);
        expected.contains(&(received - sent))
    });
    let outgrown = rig.metric("millrace_handover", &[("reason", "oversized")]);
    assert!(outgrown > 0.0, "no answer has outgrown its frame");
}

/// Over AF_XDP, where a packet has so many octets.
fn af_xdp_answers_the_corpus(name: &str, mtu: u16) {
    let Some(ground) = Ground::new() else { return };
    let Some(lab) = Rig::lab(name, Topology::TwoInterfaces) else {
        return;
    };
    lab.set_mtu(End::ServerClients, mtu).expect("an MTU");
    let rig = Rig::start_in(lab, &configuration(&ground, "xdp=true"));
    rig.is_served_over_xdp(ADDRESS, SERVER_CLIENTS);
    let asked = ask_all(&rig, &ground, usize::from(mtu - HEADERS));
    went_over_xdp(&rig, &asked);
    rig.stop();
}

#[test]
fn i10_kernel_sockets_answer_the_corpus_as_compared() {
    let Some(ground) = Ground::new() else { return };
    let configuration = configuration(&ground, "reusePort=true");
    let Some(rig) = Rig::start("corpus", &configuration) else {
        return;
    };
    rig.is_served_again(ADDRESS);
    ask_all(&rig, &ground, usize::from(PAYLOAD_SIZE));
    assert_eq!(came(&rig, "udp4-xdp"), 0.0, "without AF_XDP");
    rig.stop();
}

#[test]
fn i10_af_xdp_answers_the_corpus_as_compared() {
    af_xdp_answers_the_corpus("corpus-xdp", 1_500);
}

/// What proves that a name is not there has no room in a packet then: it leaves in fragments, by the kernel's socket.
#[test]
fn i10_af_xdp_answers_the_corpus_as_compared_where_packets_are_small() {
    af_xdp_answers_the_corpus("corpus-small", 600);
}
