//! A running backend: real sockets in the lab, answering as its script says.

use std::collections::{HashMap, HashSet};
use std::io::{PipeReader, PipeWriter, pipe};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::answering::{PROXY_LOCAL, Way, front_length, read_front, read_message};
use super::model::{
    Answering, BackendAction, BackendRule, BackendScript, NamePattern, Reply, Transport,
};
use crate::dns::{Query, hex_of_octets, question_of};
use crate::namespace::{Namespace, bind_when_free};
use crate::{During, Failure, Outcome, again_if_interrupted};

/// A backend that answers until it is dropped.
pub(super) struct Backend {
    shared: Arc<Shared>,
    stop: Option<PipeWriter>,
    thread: Option<JoinHandle<()>>,
}

/// A query as a backend received it.
#[derive(Debug, Clone)]
pub(super) struct Seen {
    /// Over what.
    pub transport: Transport,
    /// The message.
    pub octets: Vec<u8>,
    /// What stood in front of it, or of its connection.
    pub front: Vec<u8>,
}

/// What the threads of a backend share.
pub(super) struct Shared {
    script: BackendScript,
    state: Mutex<State>,
    pub(super) changed: Condvar,
    pub(super) udp: UdpSocket,
    /// Sockets that send from elsewhere than the backend's address.
    pub(super) others: HashMap<SocketAddr, UdpSocket>,
}

#[derive(Default)]
pub(super) struct State {
    answering: Answering,
    /// Messages that came, whatever became of them.
    came: usize,
    pub(super) stopping: bool,
    /// What is held under these names goes on.
    pub(super) released: HashSet<String>,
    used: Vec<u32>,
    seen: Vec<Seen>,
    pub(super) sent: usize,
    unexpected: Vec<String>,
    connections: HashMap<SocketAddr, TcpStream>,
}

/// dnsdist asks this of every backend unless `checkName` says otherwise.
const DEFAULT_PROBE: &str = "a.root-servers.net.";

impl Backend {
    /// Opens the sockets inside `namespace` and begins to answer.
    pub(super) fn start(script: &BackendScript, namespace: &Namespace) -> Outcome<Self> {
        let what = format!("backend {} at {}", script.name, script.address);
        let sources = other_sources(script);
        let (udp, tcp, others) = namespace
            .run(|| open(script.address, &sources))?
            .during(&what)?;
        let state = State {
            used: vec![0; script.rules.len()],
            ..State::default()
        };
        let state = Mutex::new(state);
        let shared = Arc::new(Shared {
            script: script.clone(),
            state,
            changed: Condvar::new(),
            udp,
            others,
        });
        let (stopped, stop) = pipe().during(&what)?;
        let in_thread = Arc::clone(&shared);
        let thread = std::thread::spawn(move || in_thread.serve(&tcp, &stopped));
        Ok(Self {
            shared,
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    /// What scenarios call it.
    pub(super) fn name(&self) -> &str {
        &self.shared.script.name
    }

    /// Answers so from now on; health checks included.
    pub(super) fn set_answering(&self, answering: Answering) {
        self.shared.lock().answering = answering;
    }

    /// Lets what its rules hold under this name go on, now and later.
    pub(super) fn release(&self, name: &str) {
        self.shared.release(name);
    }

    /// Awaits that it has seen `count` queries, health checks left out; more are a failure.
    pub(super) fn await_seen(
        &self,
        transport: Option<Transport>,
        count: usize,
        within: Duration,
    ) -> Outcome<()> {
        let fits = |seen: &&Seen| transport.is_none_or(|only| only == seen.transport);
        self.await_count(count, within, "seen queries", |state| {
            state.seen.iter().filter(fits).count()
        })
    }

    /// Awaits that it has sent `count` answers, those to health checks left out; more are a failure.
    pub(super) fn await_sent(&self, count: usize, within: Duration) -> Outcome<()> {
        self.await_count(count, within, "sent answers", |state| state.sent)
    }

    /// Fails unless these octets stood in front of the last query, health checks left out.
    pub(super) fn check_told(&self, front: &[u8]) -> Outcome<()> {
        let state = self.shared.lock();
        let last = state.seen.last().map(|seen| hex_of_octets(&seen.front));
        match last {
            Some(last) if last == hex_of_octets(front) => Ok(()),
            last => Err(Failure::new(format!(
                "backend {} was told {}, not {}",
                self.name(),
                last.as_deref().unwrap_or("nothing"),
                hex_of_octets(front)
            ))),
        }
    }

    fn await_count(
        &self,
        wanted: usize,
        within: Duration,
        what: &str,
        count: impl Fn(&State) -> usize,
    ) -> Outcome<()> {
        let deadline = Instant::now() + within;
        let mut state = self.shared.lock();
        loop {
            let now = count(&state);
            let left = deadline.saturating_duration_since(Instant::now());
            if now == wanted {
                return Ok(());
            }
            if now > wanted || left.is_zero() {
                let name = self.name();
                return Err(Failure::new(format!(
                    "backend {name} has {what}: {now}, not {wanted}"
                )));
            }
            state = self
                .shared
                .changed
                .wait_timeout(state, left)
                .expect("no backend panics")
                .0;
        }
    }

    /// The queries it has seen, health checks left out.
    pub(super) fn seen(&self) -> Vec<Seen> {
        self.shared.lock().seen.clone()
    }

    /// Fails if it was asked what no rule of its script is for.
    pub(super) fn check_all_expected(&self) -> Outcome<()> {
        match self.shared.lock().unexpected.first() {
            None => Ok(()),
            Some(query) => Err(Failure::new(format!(
                "backend {} got a query that no rule is for: {query}",
                self.name()
            ))),
        }
    }
}

impl Drop for Backend {
    fn drop(&mut self) {
        let connections = {
            let mut state = self.shared.lock();
            state.stopping = true;
            std::mem::take(&mut state.connections)
        };
        self.shared.changed.notify_all();
        for connection in connections.values() {
            let _ = connection.shutdown(Shutdown::Both);
        }
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            thread.join().expect("no backend panics");
        }
    }
}

type Sockets = (UdpSocket, TcpListener, HashMap<SocketAddr, UdpSocket>);

fn open(address: SocketAddr, sources: &[SocketAddr]) -> std::io::Result<Sockets> {
    let mut others = HashMap::new();
    for source in sources {
        others.insert(*source, bind_when_free(|| UdpSocket::bind(source))?);
    }
    Ok((
        bind_when_free(|| UdpSocket::bind(address))?,
        bind_when_free(|| TcpListener::bind(address))?,
        others,
    ))
}

fn other_sources(script: &BackendScript) -> Vec<SocketAddr> {
    let actions = script.rules.iter().flat_map(|rule| &rule.actions);
    let mut sources: Vec<SocketAddr> = actions
        .filter_map(|action| match action {
            BackendAction::Reply(reply) => reply.source,
            _ => None,
        })
        .collect();
    sources.sort_unstable();
    sources.dedup();
    sources
}

impl Shared {
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no backend panics")
    }

    fn release(&self, name: &str) {
        self.lock().released.insert(name.to_owned());
        self.changed.notify_all();
    }

    /// Answers until the other end of `stopped` is dropped.
    fn serve(self: &Arc<Self>, tcp: &TcpListener, stopped: &PipeReader) {
        std::thread::scope(|scope| {
            let mut buffer = vec![0; 65536];
            while let Some((udp_ready, tcp_ready)) = await_any(&self.udp, tcp, stopped) {
                if udp_ready && let Ok((length, peer)) = self.udp.recv_from(&mut buffer) {
                    let (front, query) = self.split(&buffer[..length]);
                    match self.rule_for(&front, &query, Transport::Udp) {
                        // What waits must not hold up others.
                        Some(rule) if waits(&rule) => {
                            scope.spawn(move || self.act(&rule, &query, &Way::Udp(peer)));
                        }
                        Some(rule) => drop(self.act(&rule, &query, &Way::Udp(peer))),
                        None => {}
                    }
                }
                if tcp_ready && let Ok((stream, peer)) = tcp.accept() {
                    scope.spawn(move || self.serve_connection(stream, peer));
                }
            }
        });
    }

    fn serve_connection(&self, stream: TcpStream, peer: SocketAddr) {
        self.note(&stream, peer);
        let front = match self.script.proxied {
            true => read_front(&stream).unwrap_or_default(),
            false => Vec::new(),
        };
        while let Some(query) = read_message(&stream) {
            let Some(rule) = self.rule_for(&front, &query, Transport::Tcp) else {
                continue;
            };
            if self.act(&rule, &query, &Way::Tcp(&stream)).is_none() {
                break;
            }
        }
        // The copy goes first: only the last descriptor's end can send a reset.
        self.lock().connections.remove(&peer);
        drop(stream);
    }

    /// Keeps a second descriptor, by which the backend's end can end the reading.
    fn note(&self, stream: &TcpStream, peer: SocketAddr) {
        let mut state = self.lock();
        if state.stopping {
            let _ = stream.shutdown(Shutdown::Both);
        } else if let Ok(copy) = stream.try_clone() {
            state.connections.insert(peer, copy);
        }
    }

    /// What stands in front of a datagram's query, and the query.
    fn split(&self, datagram: &[u8]) -> (Vec<u8>, Vec<u8>) {
        let length = match self.script.proxied {
            true => front_length(datagram).unwrap_or(0),
            false => 0,
        };
        let (front, query) = datagram.split_at(length);
        (front.to_vec(), query.to_vec())
    }

    /// Notes the query and picks what to do with it; `None` while silent.
    fn rule_for(&self, front: &[u8], query: &[u8], transport: Transport) -> Option<BackendRule> {
        let mut state = self.lock();
        state.came += 1;
        let is_lost = match state.answering {
            Answering::All => false,
            Answering::Nothing => true,
            Answering::Half => state.came.is_multiple_of(2),
        };
        if is_lost {
            return None;
        }
        let used = state.used.clone();
        let is_probe = is_default_probe(query);
        let fits = |(place, rule): &(usize, &BackendRule)| {
            !(is_probe && rule.name == NamePattern::Any)
                && rule.fits(query, transport)
                && rule.times.is_none_or(|times| used[*place] < times)
        };
        let found = self.script.rules.iter().enumerate().find(fits);
        if self.script.proxied && is_probe != (front == PROXY_LOCAL) {
            let text = format!("{} behind {}", hex_of_octets(query), hex_of_octets(front));
            state.unexpected.push(text);
            return None;
        }
        if found.is_none() && is_probe {
            return Some(BackendRule::answers_a_probe());
        }
        if !found.is_some_and(|(_, rule)| rule.probe) {
            state.seen.push(Seen {
                transport,
                octets: query.to_vec(),
                front: front.to_vec(),
            });
        }
        match found {
            Some((place, _)) => state.used[place] += 1,
            None => state.unexpected.push(hex_of_octets(query)),
        }
        self.changed.notify_all();
        found.map(|(_, rule)| rule.clone())
    }
}

impl BackendRule {
    fn fits(&self, query: &[u8], transport: Transport) -> bool {
        let Ok(question) = question_of(query) else {
            return false;
        };
        let Some((name, fixed)) = question.split_last_chunk::<4>() else {
            return false;
        };
        let name = name.to_ascii_lowercase();
        let name_fits = match &self.name {
            NamePattern::Any => true,
            NamePattern::Exactly(wanted) => name == *wanted,
            NamePattern::Below(suffix) => is_below(&name, suffix),
        };
        let rtype = u16::from_be_bytes([fixed[0], fixed[1]]);
        name_fits
            && self.rtype.is_none_or(|wanted| wanted == rtype)
            && self.transport.is_none_or(|wanted| wanted == transport)
    }

    fn answers_a_probe() -> Self {
        let reply = Reply {
            times: 1,
            ..Reply::default()
        };
        Self {
            name: NamePattern::Any,
            rtype: None,
            transport: None,
            times: None,
            probe: true,
            actions: vec![BackendAction::Reply(Box::new(reply))],
        }
    }
}

/// True if `name` has labels before `suffix`; both in wire format.
fn is_below(name: &[u8], suffix: &[u8]) -> bool {
    let mut rest = name;
    while let Some((&length, behind)) = rest.split_first() {
        if length == 0 {
            return false;
        }
        rest = &behind[usize::from(length)..];
        if rest == suffix {
            return true;
        }
    }
    false
}

fn is_default_probe(query: &[u8]) -> bool {
    let probe = Query::new(DEFAULT_PROBE, "A").expect("good words").octets();
    question_of(query).is_ok_and(|question| question.eq_ignore_ascii_case(&probe[12..]))
}

fn waits(rule: &BackendRule) -> bool {
    rule.actions.iter().any(|action| {
        matches!(
            action,
            BackendAction::Wait(_) | BackendAction::Hold(_) | BackendAction::Hang
        )
    })
}

/// Awaits a datagram, a connection, or the end (`None`).
fn await_any(udp: &UdpSocket, tcp: &TcpListener, stopped: &PipeReader) -> Option<(bool, bool)> {
    let mut descriptors =
        [udp.as_fd(), tcp.as_fd(), stopped.as_fd()].map(|fd| PollFd::new(fd, PollFlags::POLLIN));
    again_if_interrupted(|| Ok(poll(&mut descriptors, PollTimeout::NONE)?)).ok()?;
    let ready = descriptors
        .each_ref()
        .map(|descriptor| descriptor.any().unwrap_or(false));
    (!ready[2]).then_some((ready[0], ready[1]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn below_means_whole_labels() {
        let name = |text| Query::new(text, "A").expect("good name").name;
        assert!(is_below(&name("www.example.com."), &name("example.com.")));
        assert!(is_below(&name("a.b.example.com."), &name("example.com.")));
        assert!(!is_below(&name("example.com."), &name("example.com.")));
        assert!(!is_below(&name("badexample.com."), &name("example.com.")));
    }

    #[test]
    fn what_is_held_goes_on_when_it_is_released() {
        let client = UdpSocket::bind("127.0.0.1:0").expect("a port");
        let peer = client.local_addr().expect("it is bound");
        let raw = BackendAction::Raw {
            with_id: true,
            octets: vec![1],
        };
        let rule = BackendRule {
            probe: false,
            actions: vec![BackendAction::Hold("late".to_owned()), raw],
            ..BackendRule::answers_a_probe()
        };
        assert!(waits(&rule));
        let shared = Shared {
            script: BackendScript {
                name: "auth".to_owned(),
                address: peer,
                proxied: false,
                rules: Vec::new(),
            },
            state: Mutex::default(),
            changed: Condvar::new(),
            udp: UdpSocket::bind("127.0.0.1:0").expect("a port"),
            others: HashMap::new(),
        };
        std::thread::scope(|scope| {
            let held = scope.spawn(|| shared.act(&rule, &[7, 7], &Way::Udp(peer)));
            shared.release("another");
            assert_eq!(shared.lock().sent, 0);
            shared.release("late");
            held.join().expect("no backend panics")
        });
        assert_eq!(shared.lock().sent, 1);
        // Who comes later does not wait.
        shared.act(&rule, &[7, 7], &Way::Udp(peer));
        assert_eq!(shared.lock().sent, 2);
    }

    #[test]
    fn the_default_probe_is_known_in_any_case() {
        assert!(is_default_probe(
            &Query::new("A.Root-Servers.NET.", "A")
                .expect("good name")
                .octets()
        ));
        assert!(!is_default_probe(
            &Query::new("a.root-servers.net.", "AAAA")
                .expect("good name")
                .octets()
        ));
    }
}
