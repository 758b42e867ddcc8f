//! knotd, nsd and named on loopback, and ourselves for delv. Each ends with what holds it.

use super::corpus::Question;
use super::zones::{Ground, ZoneFile, is_installed};
use std::fmt::Write as _;
use std::fs;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use wire::answer::{OPT_LENGTH, OptFields, append_opt};
use wire::message::parse_query;
use zone::answer::{Outcome, Zones, answer};

pub(crate) struct Peer {
    pub(crate) name: &'static str,
    child: Child,
    address: SocketAddr,
}

/// A port of 127.0.0.1 that no other test has, below those that the kernel gives to clients: none of them takes it while a server
/// starts.
fn free_port() -> u16 {
    static CALLS: AtomicU16 = AtomicU16::new(0);
    let number = (std::process::id() as u16).wrapping_mul(16);
    loop {
        let call = CALLS.fetch_add(1, Ordering::Relaxed);
        let port = 27_000 + number.wrapping_add(call) % 2_700;
        let address = (Ipv4Addr::LOCALHOST, port);
        if TcpListener::bind(address).is_ok() && UdpSocket::bind(address).is_ok() {
            return port;
        }
    }
}

/// Writes the configuration of a server on this port into its folder; how it is started.
type Start = fn(&Ground, u16, &Path) -> Command;

impl Peer {
    pub(crate) fn start_all(ground: &Ground) -> Vec<Peer> {
        let start: [(&str, Start); 3] = [("knotd", knotd), ("nsd", nsd), ("named", named)];
        let installed = start.into_iter().filter(|(name, _)| {
            let there = is_installed(name);
            if !there {
                println!("SKIP: {name} is not installed, so nothing is compared with it");
            }
            there
        });
        installed
            .map(|(name, command)| Peer::start(name, ground, command))
            .collect()
    }

    fn start(name: &'static str, ground: &Ground, command: Start) -> Peer {
        let folder = ground.folder.path().join(name);
        fs::create_dir(&folder).expect("a folder of its own");
        let port = free_port();
        let log = fs::File::create(folder.join("log")).expect("a log");
        let child = command(ground, port, &folder)
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a log"))
            .stderr(log)
            .spawn()
            .expect("it is installed");
        let peer = Peer {
            name,
            child,
            address: ([127, 0, 0, 1], port).into(),
        };
        peer.await_zones(ground, &folder);
        peer
    }

    /// Until it answers for every zone.
    fn await_zones(&self, ground: &Ground, folder: &Path) {
        let patience = Instant::now() + Duration::from_secs(60);
        for zone in &ground.files {
            let question = Question {
                name: zone.name.to_owned(),
                kind: 6,
                signed: false,
            };
            let is_served = |answer: Vec<u8>| answer[3] & 15 == 0 && answer[7] == 1;
            while !self.ask_once(&question).is_some_and(is_served) {
                let log = fs::read_to_string(folder.join("log")).unwrap_or_default();
                assert!(
                    Instant::now() < patience,
                    "{} does not serve {}:\n{log}",
                    self.name,
                    zone.name
                );
            }
        }
    }

    pub(crate) fn ask(&self, question: &Question) -> Vec<u8> {
        let answer = (0..3).find_map(|_| self.ask_once(question));
        let mut answer =
            answer.unwrap_or_else(|| panic!("{} says nothing to {question:?}", self.name));
        // The OPT record is not the zone's.
        cut_opt(&mut answer);
        answer
    }

    /// The same over TCP.
    pub(crate) fn ask_stream(&self, question: &Question) -> Vec<u8> {
        let answer = self.ask_stream_once(question);
        let mut answer = answer.unwrap_or_else(|error| panic!("{} over TCP: {error}", self.name));
        cut_opt(&mut answer);
        answer
    }

    fn ask_stream_once(&self, question: &Question) -> io::Result<Vec<u8>> {
        let mut stream = TcpStream::connect(self.address)?;
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        let message = question.message();
        let length = (message.len() as u16).to_be_bytes();
        stream.write_all(&[&length[..], &message].concat())?;
        let mut length = [0; 2];
        stream.read_exact(&mut length)?;
        let mut answer = vec![0; u16::from_be_bytes(length).into()];
        stream.read_exact(&mut answer)?;
        Ok(answer)
    }

    /// `None` when nothing comes: it may not be there yet, in which case the kernel says so at once.
    fn ask_once(&self, question: &Question) -> Option<Vec<u8>> {
        let socket = UdpSocket::bind("127.0.0.1:0").ok()?;
        socket.connect(self.address).ok()?;
        socket.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
        socket.send(&question.message()).ok()?;
        let mut buffer = vec![0; 65_535];
        let length = socket.recv(&mut buffer).ok()?;
        buffer.truncate(length);
        Some(buffer)
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Takes the OPT record out of a message, of which it is the last record.
fn cut_opt(message: &mut Vec<u8>) {
    let parts = wire::message::parse_response(message).expect("a response");
    if let Some(edns) = parts.edns {
        assert_eq!(edns.end, parts.end, "the OPT record is the last one");
        message.truncate(edns.start.into());
        let count = parts.additional_count - 1;
        message[10..12].copy_from_slice(&count.to_be_bytes());
    }
}

fn knotd(ground: &Ground, port: u16, folder: &Path) -> Command {
    let path = folder.display();
    let mut text = format!(
        "server:\n    rundir: {path}\n    listen: 127.0.0.1@{port}\n    udp-max-payload: 4096\n    udp-workers: 1\ndatabase:\n    storage: {path}\nlog:\n  - target: stderr\n    any: info\nzone:\n"
    );
    for zone in &ground.files {
        let _ = write!(
            text,
            "  - domain: {}\n    file: {}\n",
            zone.name,
            zone.file.display()
        );
    }
    let mut command = Command::new("/usr/sbin/knotd");
    command.arg("-c").arg(written(folder, &text));
    command
}

fn nsd(ground: &Ground, port: u16, folder: &Path) -> Command {
    let path = folder.display();
    let mut text = format!(
        "server:\n  ip-address: 127.0.0.1@{port}\n  zonesdir: \"{path}\"\n  database: \"\"\n  pidfile: \"{path}/pid\"\n  xfrdfile: \"{path}/xfrd\"\n  zonelistfile: \"{path}/list\"\n  xfrdir: \"{path}\"\n  username: \"\"\n  server-count: 1\n  ipv4-edns-size: 4096\n  minimal-responses: yes\n  refuse-any: yes\nremote-control:\n  control-enable: no\n"
    );
    for zone in &ground.files {
        let _ = write!(
            text,
            "zone:\n  name: {}\n  zonefile: {}\n",
            zone.name,
            zone.file.display()
        );
    }
    let mut command = Command::new("/usr/sbin/nsd");
    command.arg("-d").arg("-c").arg(written(folder, &text));
    command
}

fn named(ground: &Ground, port: u16, folder: &Path) -> Command {
    let path = folder.display();
    let mut text = format!(
        "options {{ directory \"{path}\"; pid-file \"{path}/pid\"; session-keyfile \"{path}/key\"; listen-on port {port} {{ 127.0.0.1; }}; listen-on-v6 {{ none; }}; recursion no; minimal-responses no-auth; minimal-any yes; max-udp-size 4096; edns-udp-size 4096; allow-transfer {{ none; }}; notify no; check-names primary ignore; }};\ncontrols {{ }};\n"
    );
    for zone in &ground.files {
        let _ = writeln!(
            text,
            "zone \"{}\" {{ type primary; file \"{}\"; check-integrity no; }};",
            zone.name,
            zone.file.display()
        );
    }
    let mut command = Command::new("/usr/sbin/named");
    command
        .arg("-g")
        .arg("-n")
        .arg("1")
        .arg("-c")
        .arg(written(folder, &text));
    command
}

fn written(folder: &Path, text: &str) -> std::path::PathBuf {
    let file = folder.join("configuration");
    fs::write(&file, text).expect("a configuration");
    file
}

/// We ourselves on a socket, for who wants to ask over the network.
pub(crate) struct Responder {
    address: SocketAddr,
}

impl Responder {
    /// Answers until the process ends. Over TCP too: BIND believes a DNAME record over UDP only with a cookie.
    pub(crate) fn start(zones: &Zones) -> Responder {
        let (socket, streams) = sockets();
        let address = streams.local_addr().expect("it is bound");
        let zones = zones.iter();
        let zones = Arc::new(Zones::new(
            zones.map(|(apex, zone)| (apex.to_owned(), zone.cloned())),
        ));
        let of_streams = Arc::clone(&zones);
        thread::spawn(move || {
            let mut message = vec![0; 65_535];
            while let Ok((length, client)) = socket.recv_from(&mut message) {
                if let Some(length) = respond(&zones, &mut message, length, false) {
                    let _ = socket.send_to(&message[..length], client);
                }
            }
        });
        thread::spawn(move || {
            for stream in streams.incoming().flatten() {
                let _ = serve(&of_streams, stream);
            }
        });
        Responder { address }
    }

    /// What delv says to a question that this zone answers.
    pub(crate) fn delv(&self, zone: &ZoneFile, question: &Question) -> String {
        let anchor = zone.anchor.as_ref().expect("a signed zone");
        let kind = wire::codes::QtypeText(question.kind).to_string();
        let output = Command::new("delv")
            .args(["@127.0.0.1", "-p", &self.address.port().to_string(), "-a"])
            .arg(anchor)
            .arg(format!("+root={}", zone.name))
            .args(["-q", &question.name, "-t", &kind])
            .stdin(Stdio::null())
            .output()
            .expect("delv is installed");
        let (said, wrong) = (
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr),
        );
        format!("{said}{wrong}")
    }
}

/// A port of loopback that is free for both transports.
fn sockets() -> (UdpSocket, TcpListener) {
    let pair = || {
        let socket = UdpSocket::bind("127.0.0.1:0").ok()?;
        let streams = TcpListener::bind(socket.local_addr().ok()?).ok()?;
        Some((socket, streams))
    };
    (0..100).find_map(|_| pair()).expect("a free port")
}

/// Makes the query in `message` its answer; its length.
fn respond(zones: &Zones, message: &mut [u8], length: usize, stream: bool) -> Option<usize> {
    let parts = parse_query(&message[..length]).ok()?;
    let most = if stream {
        65_535
    } else {
        usize::from(parts.payload_size())
    };
    match answer(zones, message, &parts, most - OPT_LENGTH) {
        Outcome::Answered(answered) => {
            let fields = OptFields {
                payload_size: 1_232,
                extended_rcode: 0,
                dnssec_ok: true,
            };
            Some(append_opt(message, answered.length, fields, &[]))
        }
        _ => None,
    }
}

/// Answers one connection until it ends.
fn serve(zones: &Zones, mut stream: TcpStream) -> io::Result<()> {
    let mut message = vec![0; 65_535];
    loop {
        let mut length = [0; 2];
        stream.read_exact(&mut length)?;
        let length = usize::from(u16::from_be_bytes(length));
        stream.read_exact(&mut message[..length])?;
        let length =
            respond(zones, &mut message, length, true).ok_or(io::ErrorKind::InvalidData)?;
        stream.write_all(&(length as u16).to_be_bytes())?;
        stream.write_all(&message[..length])?;
    }
}
