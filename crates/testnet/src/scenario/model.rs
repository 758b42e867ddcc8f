//! What a scenario file says, as types. The words are explained in tests/scenarios/README.md.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use crate::dns::{Edns, Query, Record, RecordPattern};
use crate::frame::Shape;
use crate::lab::{End, Topology};
use crate::subject::{Door, StartedBy, SubjectKind};

/// One file of tests/scenarios.
#[derive(Debug, Clone)]
pub struct Scenario {
    /// Where it stands.
    pub path: PathBuf,
    /// What it proves, in one sentence.
    pub title: String,
    /// Rows of tests/FAULTS.md that it carries.
    pub faults: Vec<u8>,
    /// How client, server and backend are joined.
    pub topology: Topology,
    /// Servers that have the feature.
    pub subjects: Vec<SubjectKind>,
    /// Servers that fail it today, with the reason; a pass is then a failure.
    pub gaps: Vec<(SubjectKind, String)>,
    /// Where TCP must connect before the first step.
    pub listen: SocketAddr,
    /// How the server is started.
    pub start: StartedBy,
    /// The clients' checksum offload is on: partial checksums (F41).
    pub offload: bool,
    /// Queries that backends must get, without their IDs, though no client sent them: rules and options made them so.
    pub made: Vec<Vec<u8>>,
    /// Nobody can say which queries AF_XDP gets: the hash of the flow decides.
    pub mixed_paths: bool,
    /// Configurations with the door each is for; `None` is for both.
    pub configurations: Vec<(Option<Door>, String)>,
    /// The backends and what they answer.
    pub backends: Vec<BackendScript>,
    /// What happens, in order.
    pub steps: Vec<Step>,
}

impl Scenario {
    /// True if a step leaves the lab other than it was.
    pub(super) fn changes_lab(&self) -> bool {
        self.steps.iter().any(|step| {
            matches!(
                step.action,
                Action::Link { .. } | Action::Flap { .. } | Action::Mtu { .. }
            )
        })
    }
}

/// UDP or TCP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    Udp,
    Tcp,
}

/// A backend: one address, UDP and TCP.
#[derive(Debug, Clone)]
pub struct BackendScript {
    /// What steps call it.
    pub name: String,
    /// Where it listens.
    pub address: SocketAddr,
    /// A header of the PROXY protocol stands in front of what it gets.
    pub proxied: bool,
    /// The first rule that fits a query is used.
    pub rules: Vec<BackendRule>,
}

impl BackendScript {
    /// True if one of its rules waits for a step `release NAME`.
    pub(super) fn holds(&self, name: &str) -> bool {
        let mut actions = self.rules.iter().flat_map(|rule| &rule.actions);
        actions.any(|action| matches!(action, BackendAction::Hold(held) if held == name))
    }
}

/// `on NAME TYPE …` with what follows it.
#[derive(Debug, Clone)]
pub struct BackendRule {
    /// Which names.
    pub name: NamePattern,
    /// Which type; `None` is any.
    pub rtype: Option<u16>,
    /// Over what; `None` is both.
    pub transport: Option<Transport>,
    /// How often it can be used; `None` is without end.
    pub times: Option<u32>,
    /// A health check: not counted as a query seen.
    pub probe: bool,
    /// What the backend does, in order.
    pub actions: Vec<BackendAction>,
}

/// Names that a rule of a backend is for, in lower-case wire format.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NamePattern {
    /// `*`
    Any,
    /// `www.example.com.`
    Exactly(Vec<u8>),
    /// `*.example.com.`: names below it.
    Below(Vec<u8>),
}

/// One thing that a backend does with a query.
#[derive(Debug, Clone)]
pub enum BackendAction {
    /// Sends an answer.
    Reply(Box<Reply>),
    /// Sends these octets, with the query's ID in front where asked for.
    Raw { with_id: bool, octets: Vec<u8> },
    /// Lets time pass before the next action.
    Wait(Duration),
    /// Awaits the step that releases what is held under this name.
    Hold(String),
    /// Closes the TCP connection.
    Close,
    /// Sends nothing more on the TCP connection (FIN), and reads on.
    HalfClose,
    /// Resets the TCP connection.
    Reset,
    /// Keeps the TCP connection open and says nothing more on it.
    Hang,
}

/// An answer, and how it differs from a right one.
#[derive(Debug, Clone, Default)]
pub struct Reply {
    /// RCODE by number.
    pub rcode: u16,
    /// Flags besides QR and the copied RD and CD.
    pub flags: u16,
    /// Added to the query's ID.
    pub id_offset: u16,
    /// Another ID altogether.
    pub id: Option<u16>,
    /// Another question: name, type.
    pub question: Option<(Vec<u8>, u16)>,
    /// Another class in the question.
    pub class: Option<u16>,
    /// No question section.
    pub without_question: bool,
    /// QR is left 0: not a response at all.
    pub as_query: bool,
    /// Sent from here instead of the backend's address.
    pub source: Option<SocketAddr>,
    /// Sent this often, at least once.
    pub times: u16,
    /// Only the first octets are sent.
    pub cut_octets: Option<usize>,
    /// Octets behind the message.
    pub trailing: Vec<u8>,
    /// TXT records are added until the message has this size.
    pub size_octets: Option<usize>,
    /// No OPT though the query has one.
    pub without_opt: bool,
    /// This OPT instead of the ordinary one.
    pub opt: Option<Edns>,
    /// TCP: one octet, this long a pause, the next octet.
    pub drip: Option<Duration>,
    /// Answer, authority, additional.
    pub sections: [Vec<Record>; 3],
}

/// A line of `[steps]`.
#[derive(Debug, Clone)]
pub struct Step {
    /// Its line in the file.
    pub line: usize,
    /// Only on this door.
    pub door: Option<Door>,
    /// Only with this server.
    pub subject: Option<SubjectKind>,
    /// What is done.
    pub action: Action,
}

/// What a step does.
#[derive(Debug, Clone)]
pub enum Action {
    /// A client sends a query.
    Ask(Box<Ask>),
    /// A client awaits an answer.
    Expect(Box<Expect>),
    /// The query named (or the last one) must stay without an answer, to the scenario's end.
    ExpectNone(Option<String>),
    /// The query named (or the last one) may get an answer over UDP, or none.
    ExpectMaybe(Option<String>),
    /// The server closes this connection.
    ExpectClosed(String),
    /// A client closes its connection.
    Close(String),
    /// Sends nothing more on a connection (FIN), and reads on.
    HalfClose(String),
    /// A counter reaches a value.
    Counter(Box<Counter>),
    /// A backend has seen this many queries.
    Seen {
        backend: String,
        transport: Option<Transport>,
        count: usize,
    },
    /// A backend has sent this many answers.
    Sent {
        backend: String,
        count: usize,
        within: Duration,
    },
    /// In front of the last query that a backend has seen stood these octets.
    Told { backend: String, front: Vec<u8> },
    /// A backend answers otherwise from now on; probes included.
    Turn {
        backend: String,
        answering: Answering,
    },
    /// What backends hold under this name goes on, now and later.
    Release(String),
    /// The server writes a line with this text.
    Log(String),
    /// So many lines that the server has written until now have this text.
    Logged { text: String, lines: usize },
    /// Time passes, because time is what the scenario is about.
    Pass(Duration),
    /// An end of a veth pair goes down, or up.
    Link { end: End, up: bool },
    /// An end goes down and up again, this often.
    Flap { end: End, times: u16 },
    /// A whole frame is sent from the clients' or the backends' end.
    Inject { end: End, frame: Vec<u8> },
    /// An end of a veth pair gets another MTU.
    Mtu { end: End, octets: u16 },
    /// The server ends and is started again; this often.
    Restart { how: Restart, times: u16 },
    /// A client sends this message again and again, and reads no answer.
    Flood(Box<Flood>),
    /// The server gets a signal.
    Signal(nix::sys::signal::Signal),
}

/// A message that is sent again and again.
#[derive(Debug, Clone)]
pub struct Flood {
    /// The message.
    pub octets: Vec<u8>,
    /// Where it goes.
    pub destination: SocketAddr,
    /// How often.
    pub times: u32,
    /// It is sent so often again and again until this is so, growth being counted from the flood's start: a machine that
    /// stands still loses of a flood what its buffers do not hold.
    pub until: Option<Counter>,
}

/// What a backend answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Answering {
    #[default]
    All,
    Nothing,
    /// Every second message, whatever it is.
    Half,
}

/// How a server ends and the next one starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Restart {
    /// SIGTERM, its end, the next start.
    Terminated,
    /// The same with SIGKILL.
    Killed,
    /// SIGTERM to a server that is still starting, before the next start.
    Early,
    /// The next start comes with SIGTERM, not after the end.
    Overlapping,
}

/// A query and its way to the server.
#[derive(Debug, Clone)]
pub struct Ask {
    /// What `expect` calls it.
    pub label: Option<String>,
    /// The message.
    pub payload: Payload,
    /// UDP or TCP.
    pub transport: Transport,
    /// The client's address.
    pub source: IpAddr,
    /// The client's port; 0 lets the kernel choose.
    pub source_port: u16,
    /// Where it goes.
    pub destination: SocketAddr,
    /// The socket or connection it shares with others.
    pub via: Option<String>,
    /// Sent as a raw frame of this shape.
    pub frame: Option<Shape>,
    /// This one is for the kernel's sockets even where AF_XDP serves.
    pub kernel: bool,
    /// TCP: each octet in a segment of its own.
    pub split: bool,
    /// Octets in front of the message, or of its length.
    pub front: Vec<u8>,
}

/// The message of an `ask` or `send`.
#[derive(Debug, Clone)]
pub enum Payload {
    /// Described by words; the runner gives the ID unless it is given.
    Query {
        query: Query,
        id: Option<u16>,
        counts: Option<[u16; 4]>,
    },
    /// Octet by octet.
    Octets(Vec<u8>),
}

/// An answer that must come.
#[derive(Debug, Clone)]
pub struct Expect {
    /// Which query's; the last one's without a label.
    pub label: Option<String>,
    /// How long to wait.
    pub within: Duration,
    /// RCODE and flags (QR left out); `None` with the word `anything`.
    pub header: Option<(u16, u16)>,
    /// Without a question section, though a query's question is copied otherwise.
    pub without_question: bool,
    /// Octets of the whole message.
    pub size_octets: Option<usize>,
    /// The clock has a say in its TTLs, so that they are not compared between doors.
    pub ages: bool,
    /// The whole message after its ID.
    pub octets: Option<Vec<u8>>,
    /// Answer, authority, additional; `None` lets anything be there.
    pub sections: [Option<Vec<RecordPattern>>; 3],
    /// The OPT record.
    pub opt: OptPattern,
}

/// What an answer's OPT must be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OptPattern {
    /// There is none.
    Absent,
    /// `opt *`
    Any,
    /// One of this size and DO bit; its options octet by octet.
    Is {
        size_octets: u16,
        dnssec_ok: bool,
        options: Vec<u8>,
    },
}

/// A row of /metrics and what it must come to.
#[derive(Debug, Clone)]
pub struct Counter {
    /// The family's name.
    pub name: String,
    /// Labels that a row must have; the rows that have them are added up.
    pub labels: Vec<(String, String)>,
    /// Compared how.
    pub comparison: Comparison,
    /// With what.
    pub value: f64,
    /// How long to wait for it.
    pub within: Duration,
}

/// How a counter is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Comparison {
    /// `+N`: grown by exactly this since the scenario's start.
    GrownBy,
    /// `+>=N`: grown by at least this.
    GrownByAtLeast,
    /// `+<N`: grown by less than this.
    GrownByLess,
    /// `=N`: exactly this.
    Is,
}
