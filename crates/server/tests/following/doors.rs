//! Every question that crate `zone` is compared with knotd, nsd and named by (`crates/zone/tests/peers.rs`), asked of the
//! daemon: over kernel sockets and over AF_XDP, by UDP and by TCP, it gives the crate's answers, octet by octet, and so those
//! that were compared (I10).

use crate::corpus::{Question, any_questions, questions};
use crate::rig::{PATIENCE, Rig};
use crate::zones::Ground;
use std::fmt::Write as _;
use std::io::{Read, Write as _};
use std::net::{TcpStream, UdpSocket};
use testnet::again_if_interrupted;
use testnet::lab::SERVER_CLIENTS;
use wire::answer::{OPT_LENGTH, OptFields, append_opt};

const ADDRESS: &str = "192.0.2.1:53";

/// Octets: what the questions of the corpus say that they take.
const PAYLOAD_SIZE: u16 = 4_096;

struct Asked {
    question: Question,
    message: Vec<u8>,
    answer: Vec<u8>,
}

impl Asked {
    fn new(ground: &Ground, question: Question) -> Asked {
        let mut answer = ground.ask(&question).expect("the zone is served");
        let length = answer.len();
        answer.resize(length + OPT_LENGTH, 0);
        let fields = OptFields {
            payload_size: PAYLOAD_SIZE,
            extended_rcode: 0,
            dnssec_ok: question.signed,
        };
        append_opt(&mut answer, length, fields, &[]);
        Asked {
            message: question.message(),
            question,
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
        let _ = writeln!(text, "millrace.addZone{{name='{name}', file='{file}'}}");
    }
    text
}

/// Asks for all of these; what is answered otherwise.
type Ask = fn(&[Asked]) -> Vec<String>;

/// In datagrams, of which one is under way at a time.
fn by_udp(all: &[Asked]) -> Vec<String> {
    let socket = UdpSocket::bind("0.0.0.0:0").expect("a socket");
    socket.set_read_timeout(Some(PATIENCE)).expect("a time");
    socket.connect(ADDRESS).expect("a way to the server");
    let mut buffer = vec![0; 65_535];
    let mut differences = Vec::new();
    for asked in all {
        socket.send(&asked.message).expect("somebody listens");
        let length = again_if_interrupted(|| socket.recv(&mut buffer)).expect("an answer");
        differences.extend(asked.differs(&buffer[..length]));
    }
    differences
}

/// Over one connection.
fn by_tcp(all: &[Asked]) -> Vec<String> {
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
    differences
}

/// Asks for the whole corpus, both ways; how many datagrams that were.
fn ask_all(rig: &Rig, ground: &Ground) -> usize {
    let is_signed = ground.files.iter().any(|zone| zone.anchor.is_some());
    assert!(is_signed, "half of the corpus is about signed zones");
    let questions = questions(ground).chain(any_questions(ground));
    let all: Vec<Asked> = questions
        .map(|question| Asked::new(ground, question))
        .collect();
    let ways: [(&str, Ask); 2] = [("UDP", by_udp), ("TCP", by_tcp)];
    for (way, ask) in ways {
        let differences = rig.lab.client().run(|| ask(&all)).expect("the namespace");
        let (count, first) = (differences.len(), differences.first());
        assert_eq!(first, None, "{count} of {} over {way}", all.len());
    }
    all.len()
}

#[test]
fn i10_kernel_sockets_answer_the_corpus_as_compared() {
    let Some(ground) = Ground::new() else { return };
    let configuration = configuration(&ground, "reusePort=true");
    let Some(rig) = Rig::start("corpus", &configuration) else {
        return;
    };
    rig.is_served_again(ADDRESS);
    ask_all(&rig, &ground);
    rig.stop();
}

#[test]
fn i10_af_xdp_answers_the_corpus_as_compared() {
    let Some(ground) = Ground::new() else { return };
    let configuration = configuration(&ground, "xdp=true");
    let Some(rig) = Rig::start("corpus-xdp", &configuration) else {
        return;
    };
    rig.is_served_over_xdp(ADDRESS, SERVER_CLIENTS);
    let received = || rig.metric("millrace_xsk_received", &[("interface", SERVER_CLIENTS)]);
    let before = received();
    let datagrams = ask_all(&rig, &ground);
    // The kernel gets some where a worker has waited for a processor for long.
    let most = datagrams as f64 / 2.0;
    rig.awaits("most queries by AF_XDP", || received() - before >= most);
    rig.stop();
}
