//! A daemon on loopback that serves zones, and questions to it.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::path::PathBuf;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use testnet::again_if_interrupted;
use testnet::loopback::own_address;
use wire::codes::class;
use wire::message::{QueryFlags, write_query};
use wire::name::NameBuf;

pub(crate) const ZONE: &str =
    "@ 300 SOA ns hostmaster 7 3600 600 86400 60\n@ 300 NS ns\nns 300 A 192.0.2.1\n";

/// A daemon that serves a zone, and its folder; it ends with this.
pub(crate) struct Daemon {
    process: Child,
    folder: tempfile::TempDir,
    pub(crate) dns: SocketAddr,
    web: SocketAddr,
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Daemon {
    /// With these lines more in its configuration.
    pub(crate) fn start(more: &str) -> Daemon {
        Daemon::start_with(more, &[])
    }

    /// The same, with these files and what is in them.
    pub(crate) fn start_with(more: &str, files: &[(&str, &str)]) -> Daemon {
        let folder = tempfile::tempdir().expect("a folder");
        for (name, text) in files {
            fs::write(folder.path().join(name), text).expect("a file");
        }
        let (dns, web) = (own_address(), own_address());
        let state = folder.path().join("state");
        fs::create_dir(&state).expect("a folder of its own");
        let text = format!(
            "millrace.setStateDirectory('{}')\naddLocal('{dns}')\nsetACL({{'127.0.0.0/8'}})\nwebserver('{web}')\n\
             setWebserverConfig{{statsRequireAuthentication=false}}\n\
             millrace.addZone{{name='example.com.', file='zone', statistics=true}}\n\
             millrace.addZone{{name='example.org.', file='zone'}}\n",
            state.display()
        );
        fs::write(folder.path().join("millrace.conf"), text + more).expect("a file");
        let zone = files.iter().find(|(name, _)| *name == "zone");
        let zone = zone.map_or(ZONE, |(_, text)| text);
        fs::write(folder.path().join("zone"), zone).expect("a file");
        let process = Command::new(env!("CARGO_BIN_EXE_millrace"))
            .args(["--supervised", "-C"])
            .arg(folder.path().join("millrace.conf"))
            .arg("--control")
            .arg(folder.path().join("control"))
            .spawn()
            .expect("the daemon starts");
        Daemon {
            process,
            folder,
            dns,
            web,
        }
    }

    pub(crate) fn control(&self) -> PathBuf {
        self.folder.path().join("control")
    }

    /// Replaces a file beside its configuration.
    pub(crate) fn write(&self, name: &str, text: &str) {
        fs::write(self.folder.path().join(name), text).expect("a file");
    }

    /// What `millrace` says of these words to the running instance.
    pub(crate) fn say(&self, words: &[&str]) -> String {
        let mut command = Command::new(env!("CARGO_BIN_EXE_millrace"));
        command.args(words).arg("--control").arg(self.control());
        let output = command.output().expect("the program starts");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Asks for a name; see [`ask`].
    pub(crate) fn ask(&self, name: &str, qtype: u16) {
        ask(self.dns, &query(name, qtype));
    }

    pub(crate) fn metrics(&self) -> String {
        let mut stream = TcpStream::connect(self.web).expect("the web server listens");
        let request = "GET /metrics HTTP/1.0\r\nHost: localhost\r\n\r\n";
        stream.write_all(request.as_bytes()).expect("it reads");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("it answers");
        text
    }
}

/// A query in class IN, without EDNS.
pub(crate) fn query(name: &str, qtype: u16) -> Vec<u8> {
    let name: NameBuf = name.parse().expect("a name");
    let mut query = vec![0; 300];
    let question = (name.as_name(), qtype, class::IN);
    let length = write_query(&mut query, 1, question, QueryFlags::default());
    query.truncate(length.expect("300 octets do"));
    query
}

/// Asks until there is an answer: whoever is asked may be starting. Who has its socket is asked once, for queries are counted.
pub(crate) fn ask(server: SocketAddr, query: &[u8]) -> Vec<u8> {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    socket.connect(server).expect("an address of loopback");
    let wait = Some(Duration::from_secs(10));
    socket.set_read_timeout(wait).expect("a time");
    let until = Instant::now() + Duration::from_secs(60);
    let mut answer = vec![0; 4_096];
    while Instant::now() < until {
        // Until the server has its socket the kernel refuses.
        if socket.send(query).is_ok()
            && let Ok(length) = again_if_interrupted(|| socket.recv(&mut answer))
        {
            answer.truncate(length);
            return answer;
        }
        std::thread::park_timeout(Duration::from_millis(5));
    }
    panic!("no answer from {server} within 60 s");
}

/// The same over TCP.
pub(crate) fn ask_stream(server: SocketAddr, query: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(server).expect("it listens");
    let length = (query.len() as u16).to_be_bytes();
    stream
        .write_all(&[&length, query].concat())
        .expect("it reads");
    let mut length = [0; 2];
    stream.read_exact(&mut length).expect("an answer");
    let mut answer = vec![0; u16::from_be_bytes(length).into()];
    stream.read_exact(&mut answer).expect("a whole answer");
    answer
}
