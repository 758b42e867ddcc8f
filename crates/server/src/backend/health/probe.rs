//! One probe: a query of our own to one server, and what its answer says.

use super::pace::Pace;
use super::{Asked, Functions};
use crate::backend::exchange::is_bare_error;
use crate::backend::server::{HealthCounters, HealthOptions, Server};
use std::fmt;
use std::io;
use std::net::UdpSocket;
use std::sync::atomic::Ordering::Relaxed;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep_until, timeout};
use wire::codes::rcode;
use wire::message::{
    HEADER_LENGTH, Header, QueryFlags, parse_response, question_matches, write_query,
};
use wire::name::NameBuf;

/// A query without EDNS: header, name of at most 255 bytes, type, class.
const QUERY_ROOM: usize = HEADER_LENGTH + 255 + 4;

/// RFC 1035, section 4.2.1: without EDNS an answer has 512 bytes at most; some servers send more.
const ANSWER_ROOM: usize = 4_096;

/// Messages that are read at a time: whoever sends junk without end holds up no other server's checks.
const READ_AT_ONCE: u32 = 1_024;

/// Why a server is not well.
#[derive(Debug)]
pub(super) enum Failure {
    /// The query could not be sent, or the stream broke.
    Socket(io::Error),
    /// checkName is no name.
    Name(String),
    /// checkFunction failed, and has said how.
    Function,
    /// checkTimeout passed.
    NoAnswer,
    /// An answer that says no.
    Rcode(u16),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Socket(error) => write!(f, "{error}"),
            Failure::Name(text) => write!(f, "checkName: {text}"),
            Failure::Function => f.write_str("checkFunction has failed"),
            Failure::NoAnswer => f.write_str("no answer within checkTimeout"),
            Failure::Rcode(code) => match rcode::name(*code) {
                Some(name) => write!(f, "RCODE {name}"),
                None => write!(f, "RCODE {code}"),
            },
        }
    }
}

impl Failure {
    /// Adds it to dnsdist's numbers. What kept it from being sent is none of their kinds.
    pub(super) fn count(&self, counters: &HealthCounters) {
        counters.failures.fetch_add(1, Relaxed);
        let kind = match self {
            Failure::Socket(_) => &counters.network,
            Failure::NoAnswer => &counters.timeout,
            Failure::Rcode(_) => &counters.invalid,
            Failure::Name(_) | Failure::Function => return,
        };
        kind.fetch_add(1, Relaxed);
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        Failure::Socket(error)
    }
}

/// What `server` is to be asked under `id`: its options say it, or the function that they name.
pub(super) fn asked(server: &Server, id: u16, functions: &Functions) -> Result<Asked, Failure> {
    let health = &server.options.health;
    let asked = by_options(health, id)?;
    let Some(function) = &health.function else {
        return Ok(asked);
    };
    let shaped = functions
        .upgrade()
        .and_then(|state| function.0.shape(&asked, &state));
    shaped.ok_or(Failure::Function)
}

fn by_options(health: &HealthOptions, id: u16) -> Result<Asked, Failure> {
    let name: NameBuf = (health.name.parse())
        .map_err(|error| Failure::Name(format!("{}: {error}", health.name)))?;
    let mut header = Header::default();
    header.set_id(id);
    header.set_rd(true);
    header.set_cd(health.set_cd);
    header.set_question_count(1);
    Ok(Asked {
        name,
        qtype: health.qtype,
        qclass: health.qclass,
        header,
    })
}

/// Asks `server` by a socket that is connected to it; over TCP from the same address. Answers are looked for at `pace`.
pub(super) async fn ask(
    server: &Server,
    connected: UdpSocket,
    asked: &Asked,
    pace: Pace,
) -> Result<(), Failure> {
    let options = &server.options;
    let question = Question::new(asked)?;
    // The manual on checkTCP: "Always enabled for TCP-only … backends".
    let code = if options.health.over_tcp || options.tcp_only {
        let answer = question.ask_tcp(connected, server);
        let limited = timeout(options.health.timeout, answer).await;
        limited.map_err(|_| Failure::NoAnswer)??
    } else {
        question.ask_udp(&connected, server, pace).await?
    };
    if is_well(code, options.health.must_resolve) {
        return Ok(());
    }
    Err(Failure::Rcode(code))
}

/// The manual on mustResolve: "Set to true when the health check MUST return a RCODE different from NXDomain, ServFail and
/// Refused. Default is false, meaning that every RCODE except ServFail is considered valid."
fn is_well(code: u16, must_resolve: bool) -> bool {
    match code {
        rcode::SERVFAIL => false,
        rcode::NXDOMAIN | rcode::REFUSED => !must_resolve,
        _ => true,
    }
}

/// What stands in front of a probe.
fn begin_of(server: &Server) -> &'static [u8] {
    match server.options.proxy_protocol {
        true => &wire::proxy::LOCAL,
        false => &[],
    }
}

/// The query, as it goes over the wire.
struct Question {
    /// Behind two bytes of room for its length.
    framed: [u8; 2 + QUERY_ROOM],
    length: usize,
}

impl Question {
    fn new(asked: &Asked) -> Result<Question, Failure> {
        let mut framed = [0; 2 + QUERY_ROOM];
        let too_long = || Failure::Name(format!("{}: too long", asked.name));
        let (name, flags) = (asked.name.as_name(), QueryFlags::default());
        let fields = (name, asked.qtype, asked.qclass);
        let id = asked.header.id();
        let length = write_query(&mut framed[2..], id, fields, flags).ok_or_else(too_long)?;
        asked.header.write(&mut framed[2..]).ok_or_else(too_long)?;
        framed[..2].copy_from_slice(&(length as u16).to_be_bytes());
        Ok(Question { framed, length })
    }

    fn message(&self) -> &[u8] {
        &self.framed[2..2 + self.length]
    }

    /// The RCODE of `message` if it answers this question; counted if it does not.
    fn answered_by(&self, message: &[u8], counters: &HealthCounters) -> Option<u16> {
        let Ok(parts) = parse_response(message) else {
            counters.parsing.fetch_add(1, Relaxed);
            return None;
        };
        let repeats = match parts.question {
            Some(_) => question_matches(message, &self.message()[HEADER_LENGTH..]),
            None => is_bare_error(&parts),
        };
        if message[..2] != self.framed[2..4] || !repeats {
            counters.mismatch.fetch_add(1, Relaxed);
            return None;
        }
        Some(parts.rcode)
    }

    /// The socket is looked at now and then: to be woken by it would cost as much as all the rest of the check.
    async fn ask_udp(
        &self,
        socket: &UdpSocket,
        server: &Server,
        mut pace: Pace,
    ) -> Result<u16, Failure> {
        let end = Instant::now() + server.options.health.timeout;
        let datagram = [begin_of(server), self.message()].concat();
        socket.send(&datagram)?;
        loop {
            let until = pace.next(Instant::now()).min(end);
            sleep_until(until).await;
            if let Some(code) = self.read_answer(socket, &server.health) {
                return Ok(code);
            }
            if until == end {
                return Err(Failure::NoAnswer);
            }
        }
    }

    /// The RCODE of the true answer, if it is there, whatever came before. The errors of a connected socket are ICMP messages,
    /// which anybody can forge: they end no wait.
    fn read_answer(&self, socket: &UdpSocket, counters: &HealthCounters) -> Option<u16> {
        let mut buffer = [0; ANSWER_ROOM];
        for _ in 0..READ_AT_ONCE {
            match socket.recv(&mut buffer) {
                Ok(length) => {
                    let code = self.answered_by(&buffer[..length], counters);
                    if code.is_some() {
                        return code;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return None,
                Err(_) => {}
            }
        }
        None
    }

    async fn ask_tcp(&self, connected: UdpSocket, server: &Server) -> Result<u16, Failure> {
        let options = &server.options;
        let mut source = connected.local_addr()?;
        source.set_port(0);
        drop(connected);
        let socket = options.source.tcp(options.address, Some(source))?;
        let mut stream = socket.connect(options.address).await?;
        let bytes = [begin_of(server), &self.framed[..2 + self.length]].concat();
        stream.write_all(&bytes).await?;
        loop {
            let message = read_message(&mut stream).await?;
            if let Some(code) = self.answered_by(&message, &server.health) {
                return Ok(code);
            }
        }
    }
}

/// RFC 1035, section 4.2.2: "The message is prefixed with a two byte length field".
async fn read_message(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let length = stream.read_u16().await?;
    let mut message = vec![0; length.into()];
    stream.read_exact(&mut message).await?;
    Ok(message)
}

#[cfg(test)]
mod tests {
    use super::super::super::fixture;
    use super::*;

    #[test]
    fn the_default_probe_is_dnsdists() {
        let options = fixture::options("192.0.2.7:53");
        let question = |health: &HealthOptions, id| {
            let asked = by_options(health, id).expect("a name");
            Question::new(&asked).expect("room")
        };
        let plain = question(&options.health, 0x1234);
        assert_eq!(
            plain.message(),
            b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x01a\x0croot-servers\x03net\x00\x00\x01\x00\x01",
            "RD, no EDNS"
        );
        let mut health = options.health;
        health.set_cd = true;
        assert_eq!(question(&health, 0).message()[2..4], [0x01, 0x10], "RD CD");
    }

    #[test]
    fn must_resolve_wants_more_than_an_answer() {
        let codes = [0, 1, 2, 3, 4, 5].map(|code| (is_well(code, false), is_well(code, true)));
        let (well, bad, depends) = ((true, true), (false, false), (true, false));
        assert_eq!(codes, [well, well, bad, depends, well, depends]);
    }

    #[test]
    fn a_name_that_is_none_is_said() {
        let mut health = fixture::options("192.0.2.7:53").health;
        health.name = "a..b".to_owned();
        let failure = by_options(&health, 1)
            .err()
            .map(|failure| failure.to_string());
        assert!(failure.is_some_and(|text| text.starts_with("checkName: a..b: ")));
    }
}
