//! The PROXY protocol between us and others: Debian's dnsdist in front and behind, kdig as a proxy.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use testnet::again_if_interrupted;
use testnet::loopback::own_address;
use wire::codes::{class, qtype};
use wire::message::{Header, QueryFlags, Records, parse_response, write_query};
use wire::name::NameBuf;

/// The address record that says who asks, as the server sees it.
const WHO: &str = "addAction(AllRule(), LuaAction(function(dq) \
                   return DNSAction.Spoof, dq.remoteaddr:toString() end))\n";

/// A server; it ends with this.
struct Server {
    process: Child,
    address: SocketAddr,
    _folder: tempfile::TempDir,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Server {
    /// Runs `program` with this configuration; `None`: it is not installed.
    fn start(program: &str, configuration: &str) -> Option<Server> {
        let folder = tempfile::tempdir().expect("a folder");
        let address = own_address();
        let file = folder.path().join("server.conf");
        let text = format!(
            "addLocal('{address}')\nsetACL({{'127.0.0.0/8'}})\nsetSecurityPollSuffix('')\n{configuration}"
        );
        fs::write(&file, text).expect("a file");
        let mut command = Command::new(program);
        command.args(["--supervised", "-C"]).arg(&file);
        if program == MILLRACE {
            command.arg("--control").arg(folder.path().join("control"));
        }
        let process = command.stdout(Stdio::null()).spawn().ok()?;
        Some(Server {
            process,
            address,
            _folder: folder,
        })
    }
}

const MILLRACE: &str = env!("CARGO_BIN_EXE_millrace");

fn dnsdist(configuration: &str) -> Option<Server> {
    let program = std::env::var("DNSDIST").unwrap_or_else(|_| "dnsdist".to_owned());
    let server = Server::start(&program, configuration);
    if server.is_none() {
        println!("SKIP: dnsdist is not installed, so nothing is compared with it");
    }
    server
}

fn query() -> Vec<u8> {
    let name: NameBuf = "who.example.".parse().expect("a name");
    let mut query = vec![0; 300];
    let question = (name.as_name(), qtype::A, class::IN);
    let length = write_query(&mut query, 1, question, QueryFlags::default());
    query.truncate(length.expect("300 octets do"));
    query
}

/// What the first record of the answer holds; `None`: there is none, or an error.
fn record(answer: &[u8]) -> Option<Vec<u8>> {
    let header = Header::read(answer)?;
    let parts = parse_response(answer).ok()?;
    let record = Records::new(answer, parts.question_end, &header)
        .next()?
        .ok()?;
    Some(record.rdata(answer).to_vec())
}

fn by_udp(client: SocketAddr, server: SocketAddr) -> Option<Vec<u8>> {
    let socket = UdpSocket::bind(client).ok()?;
    let wait = Some(Duration::from_secs(2));
    socket.set_read_timeout(wait).ok()?;
    socket.send_to(&query(), server).ok()?;
    let mut answer = vec![0; 4_096];
    let length = again_if_interrupted(|| socket.recv(&mut answer)).ok()?;
    record(&answer[..length])
}

fn by_tcp(server: SocketAddr) -> Option<Vec<u8>> {
    let mut stream = TcpStream::connect(server).ok()?;
    let wait = Some(Duration::from_secs(2));
    stream.set_read_timeout(wait).ok()?;
    let query = query();
    let framed = [&(query.len() as u16).to_be_bytes()[..], &query].concat();
    stream.write_all(&framed).ok()?;
    let mut length = [0; 2];
    stream.read_exact(&mut length).ok()?;
    let mut answer = vec![0; usize::from(u16::from_be_bytes(length))];
    stream.read_exact(&mut answer).ok()?;
    record(&answer)
}

/// Asks until there is a record: servers may be starting, and health checks with them.
fn awaited(ask: impl Fn() -> Option<Vec<u8>>) -> Vec<u8> {
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(record) = ask() {
            return record;
        }
        assert!(Instant::now() < until, "no answer with a record");
    }
}

/// Client, dnsdist, millrace, dnsdist: each but the first is told who asks, and what the first one says of it. Health checks
/// of either are taken by the other, else nobody would be up.
#[test]
fn dnsdist_in_front_and_behind_knows_who_asks() {
    let proxied = "setProxyProtocolACL({'127.0.0.0/8'})\n";
    let last = format!(
        "{proxied}addAction(NotRule(ProxyProtocolValueRule(42, 'bar')), RCodeAction(DNSRCode.REFUSED))\n{WHO}"
    );
    let Some(last) = dnsdist(&last) else { return };
    let middle = format!(
        "{proxied}newServer{{address='{}', useProxyProtocol=true}}\n",
        last.address
    );
    let middle = Server::start(MILLRACE, &middle).expect("the daemon starts");
    let first = format!(
        "newServer{{address='{}', useProxyProtocol=true}}\n\
         addAction(AllRule(), SetAdditionalProxyProtocolValueAction(42, 'bar'))\n",
        middle.address
    );
    let Some(first) = dnsdist(&first) else { return };
    let client = SocketAddr::new([127, 9, 8, 7].into(), 0);
    assert_eq!(awaited(|| by_udp(client, first.address)), [127, 9, 8, 7]);
    assert_eq!(awaited(|| by_tcp(first.address)), [127, 0, 0, 1]);
}

#[test]
fn kdig_says_who_asks() {
    let server = format!("setProxyProtocolACL({{'127.0.0.0/8'}})\n{WHO}");
    let server = Server::start(MILLRACE, &server).expect("the daemon starts");
    let ask = |transport| {
        let mut command = Command::new("kdig");
        command.args(["+short", "+timeout=10", "+retry=0", transport]);
        command.arg("+proxy=203.0.113.9#4242-203.0.113.53#53");
        command.arg(format!("@{}", server.address.ip()));
        command.args(["-p", &server.address.port().to_string()]);
        let output = command.args(["who.example.", "A"]).output().ok()?;
        Some(output.stdout)
    };
    if ask("+notcp").is_none() {
        println!("SKIP: kdig is not installed");
        return;
    }
    for transport in ["+notcp", "+tcp"] {
        // Until the server is there kdig may say so in a remark.
        let is_answer = |said: &Vec<u8>| !said.is_empty() && !said.starts_with(b";");
        let said = awaited(|| ask(transport).filter(is_answer));
        assert_eq!(
            String::from_utf8_lossy(&said),
            "203.0.113.9\n",
            "{transport}"
        );
    }
}
