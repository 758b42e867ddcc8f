//! `floodgate xdp -T`: an open loop over TCP, a connection for every query (RFC 7766), by kernel sockets.
//!
//! A query is due at its time whatever became of the others: its connection is asked for, the query written when it
//! stands, the answer read, and the connection reset, so that neither side keeps its ports (TIME-WAIT) for a minute.

use crate::failure::{During, Failure, Outcome};
use crate::judge::{self, Fault};
use crate::pace::{Due, Pace};
use crate::path;
use crate::questions::Questions;
use crate::shape::Shape;
use crate::tally::Tally;
use crate::watch::Watch;
use crate::xdp::addressing::source_of;
use crate::xdp::{LaneCounts, Losses, Measurement, not_sent, time_of_day};
use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, SockaddrStorage, bind, connect, setsockopt, socket, sockopt,
};
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};
use wire::message::HEADER_LENGTH;
use xsk::Sources;

/// Everything about a run.
#[derive(Clone, Debug)]
pub struct Plan {
    pub target: SocketAddr,
    /// Send from this address, or evenly from all of this network: "various IPs from the range will be used for different
    /// queries uniformly" (kxdpgun's manual, -l; only QUIC has no range).
    pub sources: Option<Sources>,
    /// Connections asked for at once.
    pub batch: u32,
    /// An answer that takes longer is late. Those to the last queries are waited for twice as long.
    pub late_after: Duration,
    /// How far behind its schedule the generator may fall before it gives queries up.
    pub patience: Duration,
    /// How the rate changes.
    pub shape: Shape,
    /// Leave answers unread: a connection ends when its answer begins to come.
    pub drop: bool,
}

/// The longest wait for something to happen: the end must be noticed.
const LONGEST_WAIT: Duration = Duration::from_millis(5);
/// Events taken at once.
const EVENTS: usize = 256;
/// The longest message there is, with its length.
const MESSAGE_MAX: usize = 2 + 65_535;
/// Of a network of sources, those of so many queries are tried before the run: of a /24, all.
const SOURCES_TRIED: u64 = 4096;

/// What may help where not everything was sent in time: every query has a port and a descriptor, and there is one thread.
const ADVICE: &str =
    "more source addresses (-l NETWORK), more open files (`ulimit -Hn`), or a lower rate (-Q)";

impl Plan {
    /// Whether this machine can send from the sources: said before the run, which else would come to nothing.
    ///
    /// # Errors
    /// They are not of the target's version of IP, or one of them is no address of this machine.
    pub fn check_sources(&self) -> Outcome<()> {
        let Some(sources) = self.sources else {
            return Ok(());
        };
        let (source, target) = (sources.address, self.target.ip());
        if source.is_ipv4() != target.is_ipv4() {
            return Err(Failure::new(format!(
                "source {source} and target {target} are of different versions of IP"
            )));
        }
        let is_single = sources.prefix == if source.is_ipv4() { 32 } else { 128 };
        let tried = if is_single { 1 } else { SOURCES_TRIED };
        (0..tried).try_for_each(|number| {
            let source = source_of(sources, number);
            match open(self.target, Some(source)) {
                Ok(_) => Ok(()),
                Err(Errno::EADDRNOTAVAIL) if is_single => Err(Failure::new(format!(
                    "{source} (-l) is no address of this machine: -T sends by kernel sockets, which need one that \
                     `ip address` shows"
                ))),
                Err(Errno::EADDRNOTAVAIL) => Err(Failure::new(format!(
                    "{source}, of {}/{} (-l), is no address of this machine: -T sends by kernel sockets, which need all of \
                     them; `ip route add local NETWORK dev lo` makes a network ours",
                    sources.address, sources.prefix
                ))),
                Err(error) => Err(error).during(format!("sending from {source} (-l)")),
            }
        })
    }
}

/// Sends at this rate for so long, waits for the last answers, and says what was counted.
///
/// # Errors
/// The kernel refuses what every query needs.
pub fn measure(
    plan: &Plan,
    questions: &Questions,
    (rate, duration): (f64, Duration),
    watch: &mut Watch,
) -> Outcome<Measurement> {
    allow_many_files()?;
    let tally = Mutex::new(Tally::default());
    let (stops, done) = (AtomicU32::new(0), AtomicBool::new(false));
    let pace = Pace::new(rate, duration, plan.batch, plan.patience).shaped(plan.shape);
    let what = format!("{} over TCP", plan.target);
    let started = Instant::now();
    let whole = pace.clone();
    let schedule = Box::new(move |time: Instant| {
        let now = time.saturating_duration_since(started);
        whole.due_by(now.as_nanos() as u64)
    });
    watch.start((&what, "thread"), duration, Some(schedule));
    let sending = std::thread::scope(|scope| {
        let sender = scope.spawn(|| {
            let result =
                Sender::new(plan, questions, &tally).and_then(|sender| sender.run(pace, &stops));
            done.store(true, Ordering::Release);
            result
        });
        while !done.load(Ordering::Acquire) {
            watch.turn(LONGEST_WAIT, || vec![lock(&tally).clone()]);
            stops.store(watch.stops(), Ordering::Relaxed);
        }
        sender.join().expect("the sender does not panic")
    });
    watch.end(lock(&tally).clone());
    let tally = tally
        .into_inner()
        .unwrap_or_else(|poisoned| poisoned.into_inner());
    let end = match sending {
        Ok(end) if watch.is_stopped() => end,
        Ok(end) => End {
            sending: end.sending.max(duration),
            ..end
        },
        Err(failure) if tally.sent == 0 => return Err(failure),
        Err(failure) => End {
            sending: started.elapsed(),
            unwanted: 0,
            failure: Some(failure),
            remark: None,
        },
    };
    let lane = LaneCounts {
        sent: tally.sent,
        received: tally.answers(),
    };
    Ok(Measurement {
        began: time_of_day(started),
        sending: end.sending,
        limits: not_sent(&tally, ADVICE).into_iter().collect(),
        tally,
        lanes: vec![lane],
        losses: Losses {
            unwanted: end.unwanted,
            ..Losses::default()
        },
        interrupted: 0,
        unread: plan.drop,
        failure: end.failure,
        remark: end.remark,
    })
}

/// A socket takes a descriptor: as many as the hard limit allows.
///
/// # Errors
/// The kernel refuses.
pub(crate) fn allow_many_files() -> Outcome<()> {
    let (_, hard) =
        getrlimit(Resource::RLIMIT_NOFILE).during("asking how many files may be open")?;
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).during("raising how many files may be open")
}

/// One connection.
struct Connection {
    stream: TcpStream,
    /// Number of its question.
    question: u32,
    id: u16,
    /// When the query was meant to be sent, in nanoseconds since the start.
    intended: u64,
    /// Octets of the query that are written, its length in front among them.
    written: usize,
    is_written: bool,
    read: Vec<u8>,
}

struct Sender<'r> {
    plan: &'r Plan,
    questions: &'r Questions,
    tally: &'r Mutex<Tally>,
    epoll: Epoll,
    started: Instant,
    /// By slot; free slots are listed below.
    connections: Vec<Option<Connection>>,
    free: Vec<usize>,
    next: u64,
    /// Answers that were left unread, as asked.
    unwanted: u64,
    /// Connections that never stood, and why the first of them did not.
    refused: u64,
    why_refused: Option<std::io::Error>,
}

/// What is known at the end of a run, beside the tally.
struct End {
    /// How long the sending took.
    sending: Duration,
    /// Answers that were left unread.
    unwanted: u64,
    /// What ended the run before its time.
    failure: Option<Failure>,
    /// That no connection ever stood, if it is so.
    remark: Option<String>,
}

impl<'r> Sender<'r> {
    fn new(
        plan: &'r Plan,
        questions: &'r Questions,
        tally: &'r Mutex<Tally>,
    ) -> Outcome<Sender<'r>> {
        Ok(Sender {
            plan,
            questions,
            tally,
            epoll: Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).during("opening connections")?,
            started: Instant::now(),
            connections: Vec::new(),
            free: Vec::new(),
            next: 0,
            unwanted: 0,
            refused: 0,
            why_refused: None,
        })
    }

    /// Sends by the pace and collects until everything is answered or late. `stops`: how often somebody asked to stop.
    fn run(mut self, mut pace: Pace, stops: &AtomicU32) -> Outcome<End> {
        let mut events = vec![EpollEvent::empty(); EVENTS];
        // When all was sent, and how often somebody had asked to stop by then.
        let mut sent_until = None;
        loop {
            let now = self.now();
            let asked = stops.load(Ordering::Relaxed);
            let wait = match self.send(&mut pace, now)? {
                Some(wait) if sent_until.is_none() && asked == 0 => wait,
                _ => {
                    sent_until.get_or_insert((Duration::from_nanos(now), asked));
                    pace = Pace::new(0.0, Duration::ZERO, 1, Duration::ZERO);
                    LONGEST_WAIT
                }
            };
            self.serve(wait, &mut events)?;
            let Some((until, asked_then)) = sent_until else {
                continue;
            };
            // Right answers are in after `late_after`; as long again, and late ones are counted as that, not as lost. Whoever
            // stops the run need not wait for them, and who does it now for none at all.
            let patience = match asked {
                0 => self.plan.late_after * 2,
                again if again > asked_then => Duration::ZERO,
                _ => self.plan.late_after,
            };
            let waited = Duration::from_nanos(self.now()).saturating_sub(until);
            if self.free.len() == self.connections.len() || waited > patience {
                return Ok(self.end(until));
            }
        }
    }

    /// A server that is not there answers nothing either: that the numbers do not tell.
    fn end(self, sending: Duration) -> End {
        let is_all = self.refused == lock(self.tally).sent;
        let target = self.plan.target;
        let why = self.why_refused.filter(|_| is_all);
        End {
            sending,
            unwanted: self.unwanted,
            failure: None,
            remark: why.map(|why| format!("No TCP connection to {target} ever stood: {why}.")),
        }
    }

    /// Nanoseconds since the start.
    fn now(&self) -> u64 {
        self.started.elapsed().as_nanos() as u64
    }

    /// Asks for the connections that are due. Returns how long nothing is due; `None`: everything is sent.
    fn send(&mut self, pace: &mut Pace, now: u64) -> Outcome<Option<Duration>> {
        loop {
            let (queries, intended) = match pace.due(now) {
                Due::Finished { skipped } => {
                    lock(self.tally).skipped += skipped;
                    return Ok(None);
                }
                Due::At(then) => return Ok(Some(Duration::from_nanos(then - now))),
                Due::Batch {
                    queries,
                    intended,
                    skipped,
                } => {
                    lock(self.tally).skipped += skipped;
                    (queries, intended)
                }
            };
            for _ in 0..queries {
                self.ask(intended)?;
            }
        }
    }

    /// Asks for one connection. One that this machine has no room for is the generator's limit: the query is given up, its
    /// source with it, so that the next one is tried from another.
    fn ask(&mut self, intended: u64) -> Outcome<()> {
        let number = self.next;
        self.next += 1;
        let source = self.plan.sources.map(|sources| source_of(sources, number));
        let stream = match start(self.plan.target, source) {
            Ok(stream) => stream,
            Err(Errno::EMFILE | Errno::ENFILE | Errno::EADDRNOTAVAIL | Errno::EAGAIN) => {
                lock(self.tally).skipped += 1;
                return Ok(());
            }
            Err(error) => return Err(error).during(format!("connecting to {}", self.plan.target)),
        };
        let slot = self.free.pop().unwrap_or_else(|| {
            self.connections.push(None);
            self.connections.len() - 1
        });
        let flags = EpollFlags::EPOLLIN | EpollFlags::EPOLLOUT | EpollFlags::EPOLLET;
        self.epoll
            .add(&stream, EpollEvent::new(flags, slot as u64))
            .during("opening connections")?;
        let question = (number % self.questions.len() as u64) as u32;
        self.connections[slot] = Some(Connection {
            stream,
            question,
            id: number as u16,
            intended,
            written: 0,
            is_written: false,
            read: Vec::new(),
        });
        let mut tally = lock(self.tally);
        tally.sent += 1;
        tally.sent_octets += self.questions.get(question as usize).message.len() as u64;
        Ok(())
    }

    /// Waits for at most so long, and goes on with the connections that can.
    fn serve(&mut self, wait: Duration, events: &mut [EpollEvent]) -> Outcome<()> {
        // Rounded up to milliseconds, as epoll counts: the pace catches up.
        let wait = wait.min(LONGEST_WAIT).as_micros().div_ceil(1000) as u16;
        let ready = match self.epoll.wait(events, EpollTimeout::from(wait)) {
            Err(Errno::EINTR) => 0,
            other => other.during("waiting for connections")?,
        };
        let now = self.now();
        for event in &events[..ready] {
            let slot = event.data() as usize;
            let questions = self.questions;
            let Some(connection) = &mut self.connections[slot] else {
                continue;
            };
            if let Some(ended) = connection.go_on(questions, self.plan.drop) {
                match ended {
                    Ended::Answered => count(
                        connection,
                        questions,
                        (now, self.plan.late_after),
                        &mut lock(self.tally),
                    ),
                    Ended::Unread => self.unwanted += 1,
                    Ended::Refused(why) => {
                        self.refused += 1;
                        self.why_refused.get_or_insert(why);
                    }
                    // Never answered.
                    Ended::Broken => {}
                }
                self.connections[slot] = None;
                self.free.push(slot);
            }
        }
        Ok(())
    }
}

/// How a connection ended.
enum Ended {
    /// With a whole message, behind its length.
    Answered,
    /// With a message that nobody wants to read.
    Unread,
    /// Without one.
    Broken,
    /// Before it stood.
    Refused(std::io::Error),
}

impl Connection {
    /// Writes and reads as far as possible; where answers are to `drop`, only looks whether one comes. `None`: it goes on.
    fn go_on(&mut self, questions: &Questions, drop: bool) -> Option<Ended> {
        if !self.is_written {
            match self.stream.peer_addr() {
                Ok(_) => {}
                Err(_) => {
                    return self
                        .stream
                        .take_error()
                        .unwrap_or_else(Some)
                        .map(Ended::Refused);
                }
            }
            match self.write(questions) {
                Ok(whole) => self.is_written = whole,
                Err(_) => return Some(Ended::Broken),
            }
            if !self.is_written {
                return None;
            }
        }
        if drop { self.look() } else { self.read() }
    }

    /// Whether an answer begins to come, without reading it.
    fn look(&self) -> Option<Ended> {
        match self.stream.peek(&mut [0_u8]) {
            Ok(1..) => Some(Ended::Unread),
            Err(error) if error.kind() == ErrorKind::WouldBlock => None,
            Ok(0) | Err(_) => Some(Ended::Broken),
        }
    }

    /// Writes the query behind its length, as far as the kernel takes it; whether all of it is written. A new connection's
    /// buffer takes any usual query whole; a longer one (`-B`: up to 65,535 octets) goes on when there is room.
    fn write(&mut self, questions: &Questions) -> std::io::Result<bool> {
        let message = questions.get(self.question as usize).message;
        let mut out = (message.len() as u16).to_be_bytes().to_vec();
        out.extend(message);
        if let Some(id) = out.get_mut(2..4) {
            id.copy_from_slice(&self.id.to_be_bytes());
        }
        while self.written < out.len() {
            match self.stream.write(&out[self.written..]) {
                Ok(count) => self.written += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    fn read(&mut self) -> Option<Ended> {
        let mut buffer = [0; 4096];
        loop {
            match self.stream.read(&mut buffer) {
                Ok(0) => return Some(Ended::Broken),
                Ok(count) => self.read.extend(&buffer[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return None,
                Err(_) => return Some(Ended::Broken),
            }
            if self.message().is_some() {
                return Some(Ended::Answered);
            }
            if self.read.len() > MESSAGE_MAX {
                return Some(Ended::Broken);
            }
        }
    }

    /// The message, when it is whole.
    fn message(&self) -> Option<&[u8]> {
        let (length, rest) = self.read.split_first_chunk()?;
        rest.get(..usize::from(u16::from_be_bytes(*length)))
    }
}

/// Judges what came by a connection.
fn count(
    connection: &Connection,
    questions: &Questions,
    (now, late_after): (u64, Duration),
    tally: &mut Tally,
) {
    let Some(message) = connection.message() else {
        return;
    };
    if message.get(..2) != Some(&connection.id.to_be_bytes()) && message.len() >= HEADER_LENGTH {
        return tally.count_wrong(Fault::NeverAsked);
    }
    match judge::check(message, questions.get(connection.question as usize)) {
        Err(fault) => tally.count_wrong(fault),
        Ok(answer) => {
            let latency = now.saturating_sub(connection.intended);
            if latency > late_after.as_nanos() as u64 {
                tally.late += 1;
            } else {
                tally.count_right(&answer, latency);
            }
        }
    }
}

/// A socket that is being connected.
fn start(target: SocketAddr, source: Option<IpAddr>) -> nix::Result<TcpStream> {
    let descriptor = open(target, source)?;
    match connect(descriptor.as_raw_fd(), &SockaddrStorage::from(target)) {
        Ok(()) | Err(Errno::EINPROGRESS) => Ok(TcpStream::from(descriptor)),
        Err(error) => Err(error),
    }
}

/// A socket that does not block, is reset when closed, and sends from this address.
fn open(target: SocketAddr, source: Option<IpAddr>) -> nix::Result<OwnedFd> {
    let family = match target {
        SocketAddr::V4(_) => AddressFamily::Inet,
        SocketAddr::V6(_) => AddressFamily::Inet6,
    };
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    let descriptor = socket(family, SockType::Stream, flags, None)?;
    let reset = libc::linger {
        l_onoff: 1,
        l_linger: 0,
    };
    setsockopt(&descriptor, sockopt::Linger, &reset)?;
    if let Some(source) = source {
        // The port is chosen with the connection: then it need only differ from those of others to the same server, and
        // having none left is the same error as without a source.
        setsockopt(&descriptor, sockopt::IpBindAddressNoPort, &true)?;
        let source = path::on_link(source, 0, path::scope_of(target));
        bind(descriptor.as_raw_fd(), &SockaddrStorage::from(source))?;
    }
    Ok(descriptor)
}

fn lock(tally: &Mutex<Tally>) -> MutexGuard<'_, Tally> {
    tally
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// What only sends over AF_XDP.
///
/// # Errors
/// One of the options is given with `-T`.
pub fn refuse(options: &[(&str, bool)]) -> Outcome<()> {
    match options.iter().find(|(_, given)| *given) {
        None => Ok(()),
        Some((option, _)) => Err(Failure::new(format!(
            "-T sends by kernel sockets: {option} means nothing there"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(target: &str, source: &str, prefix: u8) -> Result<(), String> {
        let plan = Plan {
            target: target.parse().unwrap(),
            sources: Some(Sources {
                address: source.parse().unwrap(),
                prefix,
            }),
            batch: 1,
            late_after: Duration::from_secs(1),
            patience: Duration::from_secs(1),
            shape: Shape::Constant,
            drop: false,
        };
        plan.check_sources().map_err(|failure| failure.to_string())
    }

    #[test]
    fn sources_are_addresses_of_this_machine() {
        assert_eq!(check("127.0.0.1:53", "127.0.0.9", 32), Ok(()));
        assert_eq!(check("127.0.0.1:53", "127.1.2.3", 24), Ok(()));
        // RFC 5737: documentation, nobody's.
        let single = check("192.0.2.1:53", "203.0.113.9", 32).unwrap_err();
        assert!(single.starts_with("203.0.113.9 (-l) is no"), "{single}");
        let network = check("192.0.2.1:53", "203.0.113.9", 29).unwrap_err();
        assert!(network.contains(", of 203.0.113.9/29 (-l)"), "{network}");
        let mixed = check("192.0.2.1:53", "::1", 128).unwrap_err();
        assert!(mixed.contains("different versions of IP"), "{mixed}");
    }
}
