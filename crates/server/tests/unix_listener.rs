//! A UNIX stream socket as a listener: queries by a path, and the life of its file.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use testnet::again_if_interrupted;
use testnet::loopback::own_address;
use wire::codes::{class, qtype, rcode};
use wire::message::{Header, QueryFlags, write_query};
use wire::name::NameBuf;

/// How long a start, a reload or an end may take, in a debug build on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// What does not come by events is looked for so often.
const LOOK_AFTER: Duration = Duration::from_millis(5);

/// Four records with the SOA record at the end, in one message.
const ZONE: &str = "@ 300 SOA ns hostmaster 7 3600 600 86400 60\n@ 300 NS ns\nns 300 A 192.0.2.1\n";

/// A daemon in a folder of its own; it ends with this.
struct Daemon {
    process: Child,
    folder: tempfile::TempDir,
    dns: SocketAddr,
    web: SocketAddr,
    /// The process that has taken over.
    successor: Option<Pid>,
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        if let Some(successor) = self.successor {
            let _ = kill(successor, Signal::SIGKILL);
        }
    }
}

impl Daemon {
    /// With an address and the lines that `listeners` makes of the folder.
    fn start(listeners: impl FnOnce(&Path) -> String) -> Daemon {
        let folder = tempfile::tempdir().expect("a folder");
        let (dns, web) = (own_address(), own_address());
        fs::write(folder.path().join("zone"), ZONE).expect("a file");
        let lines = listeners(folder.path());
        configure(folder.path(), (dns, web), &lines);
        let log = File::create(folder.path().join("log")).expect("a file");
        let process = Command::new(env!("CARGO_BIN_EXE_millrace"))
            .args(["--supervised", "--structured-logging", "false", "-C"])
            .arg(folder.path().join("conf"))
            .arg("--control")
            .arg(folder.path().join("control"))
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a descriptor"))
            .stderr(log)
            .spawn()
            .expect("the daemon starts");
        let daemon = Daemon {
            process,
            folder,
            dns,
            web,
            successor: None,
        };
        daemon.until("it serves its address", || daemon.by_udp().is_some());
        daemon
    }

    /// With a listener at its path.
    fn at_path() -> Daemon {
        Daemon::start(|folder| format!("addLocal('{}')\n", path_in(folder).display()))
    }

    fn path(&self) -> PathBuf {
        path_in(self.folder.path())
    }

    fn configure(&self, lines: &str) {
        configure(self.folder.path(), (self.dns, self.web), lines);
    }

    /// What `millrace` says of this word to the running instance.
    fn say(&self, word: &str) -> String {
        let mut command = Command::new(env!("CARGO_BIN_EXE_millrace"));
        command.arg(word).arg("--control");
        let output = command
            .arg(self.folder.path().join("control"))
            .output()
            .expect("the program starts");
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
    }

    fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).expect("a file")
    }

    fn until(&self, what: &str, mut is_so: impl FnMut() -> bool) {
        let begun = Instant::now();
        while !is_so() {
            assert!(begun.elapsed() < PATIENCE, "not: {what}\n{}", self.log());
            std::thread::park_timeout(LOOK_AFTER);
        }
    }

    /// The response code of the rule's name by its address.
    fn by_udp(&self) -> Option<u8> {
        let socket = UdpSocket::bind("127.0.0.1:0").ok()?;
        socket.set_read_timeout(Some(Duration::from_secs(2))).ok()?;
        socket.connect(self.dns).ok()?;
        socket.send(&query(1, "tcp.example.", qtype::A)).ok()?;
        let mut answer = [0; 512];
        let length = again_if_interrupted(|| socket.recv(&mut answer)).ok()?;
        Some(Header::read(&answer[..length])?.rcode())
    }

    /// The response code of a transfer from its address.
    fn transfer_by_tcp(&self, name: &str) -> u8 {
        let mut stream = TcpStream::connect(self.dns).expect("somebody listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a time");
        let query = framed(&query(9, name, qtype::AXFR));
        stream.write_all(&query).expect("it is read");
        let mut start = [0; 2 + 12];
        stream.read_exact(&mut start).expect("an answer");
        Header::read(&start[2..]).expect("a header").rcode()
    }

    fn connect(&self) -> Client {
        let stream = UnixStream::connect(self.path()).expect("somebody listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a time");
        Client(stream)
    }

    fn metrics(&self) -> String {
        let mut stream = TcpStream::connect(self.web).expect("the web server listens");
        let request = "GET /metrics HTTP/1.0\r\nHost: localhost\r\n\r\n";
        stream.write_all(request.as_bytes()).expect("it reads");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("it answers");
        text
    }
}

fn path_in(folder: &Path) -> PathBuf {
    folder.join("dns.sock")
}

fn configure(folder: &Path, (dns, web): (SocketAddr, SocketAddr), lines: &str) {
    let state = folder.join("state");
    fs::create_dir_all(&state).expect("a folder of its own");
    let text = format!(
        "millrace.setStateDirectory('{}')\naddLocal('{dns}')\n{lines}setACL({{'127.0.0.0/8'}})\nwebserver('{web}')\n\
         setWebserverConfig{{statsRequireAuthentication=false}}\n\
         addAction(AndRule{{QNameRule('tcp.example.'), TCPRule(true)}}, RCodeAction(DNSRCode.NXDOMAIN))\n\
         addAction('example.', RCodeAction(DNSRCode.REFUSED))\n\
         millrace.addZone{{name='example.com.', file='zone', acl={{action='transfer', address='{}'}}}}\n\
         millrace.addZone{{name='example.org.', file='zone', acl={{action='transfer', address='127.0.0.0/8'}}}}\n",
        state.display(),
        path_in(folder).display()
    );
    fs::write(folder.join("conf"), text).expect("a file");
}

fn query(id: u16, name: &str, qtype: u16) -> Vec<u8> {
    let name: NameBuf = name.parse().expect("a name");
    let mut query = vec![0; 300];
    let question = (name.as_name(), qtype, class::IN);
    let length = write_query(&mut query, id, question, QueryFlags::default());
    query.truncate(length.expect("300 octets do"));
    query
}

fn framed(message: &[u8]) -> Vec<u8> {
    [&(message.len() as u16).to_be_bytes(), message].concat()
}

/// A connection to the path.
struct Client(UnixStream);

impl Client {
    fn send(&mut self, octets: &[u8]) {
        self.0.write_all(octets).expect("it is read");
    }

    fn next(&mut self) -> Answer {
        let mut length = [0; 2];
        self.0.read_exact(&mut length).expect("an answer");
        let mut message = vec![0; usize::from(u16::from_be_bytes(length))];
        self.0.read_exact(&mut message).expect("a whole answer");
        let header = Header::read(&message).expect("a header");
        let number = |at: usize| u16::from_be_bytes([message[at], message[at + 1]]);
        Answer {
            id: number(0),
            rcode: header.rcode(),
            is_authoritative: header.aa(),
            records: number(6),
        }
    }

    fn ask(&mut self, name: &str, qtype: u16) -> Answer {
        self.send(&framed(&query(9, name, qtype)));
        self.next()
    }
}

#[derive(Debug)]
struct Answer {
    id: u16,
    rcode: u8,
    is_authoritative: bool,
    records: u16,
}

const NOERROR: u8 = rcode::NOERROR as u8;
const NXDOMAIN: u8 = rcode::NXDOMAIN as u8;
const REFUSED: u8 = rcode::REFUSED as u8;

#[test]
fn a_path_is_asked_as_tcp_is() {
    let daemon = Daemon::at_path();
    let mode = fs::metadata(daemon.path()).expect("a file").permissions();
    assert_eq!(mode.mode() & 0o777, 0o660);
    let line = format!("Listening (address {})", daemon.path().display());
    daemon.until("the log tells of the path", || daemon.log().contains(&line));
    assert_eq!(daemon.by_udp(), Some(REFUSED));
    let mut client = daemon.connect();
    let rule = client.ask("tcp.example.", qtype::A);
    assert_eq!(rule.rcode, NXDOMAIN, "TCPRule(true)");
    // Pipelined.
    let three: Vec<u8> = (1..=3)
        .flat_map(|id| framed(&query(id, "www.example.", qtype::A)))
        .collect();
    client.send(&three);
    for id in 1..=3 {
        let answer = client.next();
        assert_eq!((answer.id, answer.rcode), (id, REFUSED));
    }
    let zone = client.ask("ns.example.com.", qtype::A);
    assert_eq!((zone.rcode, zone.records), (NOERROR, 1));
    assert!(zone.is_authoritative);
    let whole = client.ask("example.com.", qtype::AXFR);
    assert_eq!((whole.rcode, whole.records), (NOERROR, 4));
    let denied = client.ask("example.org.", qtype::AXFR);
    assert_eq!(denied.rcode, REFUSED, "its acl has addresses only");
    assert_eq!(daemon.transfer_by_tcp("example.org."), NOERROR);
    assert_eq!(daemon.transfer_by_tcp("example.com."), REFUSED);
    let row = format!(
        "dnsdist_frontend_queries{{frontend=\"{}\",proto=\"TCP\",thread=\"0\"}} 7",
        daemon.path().display()
    );
    // What is counted may be shown after the answer has come.
    let is_shown = || daemon.metrics().lines().any(|line| line == row);
    daemon.until(&row, is_shown);
}

#[test]
fn a_path_comes_stays_and_goes_by_reloads() {
    let mut daemon = Daemon::at_path();
    let path = daemon.path();
    let inode = || fs::metadata(&path).expect("the file is there").ino();
    let before = inode();
    let mut client = daemon.connect();
    assert_eq!(client.ask("tcp.example.", qtype::A).rcode, NXDOMAIN);
    assert!(daemon.say("reload").contains("serves"), "{}", daemon.log());
    assert_eq!(inode(), before, "the same file");
    assert_eq!(client.ask("tcp.example.", qtype::A).rcode, NXDOMAIN);
    assert_eq!(
        daemon.connect().ask("tcp.example.", qtype::A).rcode,
        NXDOMAIN
    );

    daemon.configure("");
    daemon.say("reload");
    daemon.until("the file has gone", || !path.exists());
    assert_eq!(daemon.by_udp(), Some(REFUSED));

    daemon.configure(&format!("addLocal('{}')\n", path.display()));
    daemon.say("reload");
    assert_eq!(
        daemon.connect().ask("tcp.example.", qtype::A).rcode,
        NXDOMAIN
    );
    // Somebody has removed the file: a reload brings it back.
    fs::remove_file(&path).expect("a file");
    daemon.say("reload");
    assert_eq!(
        daemon.connect().ask("tcp.example.", qtype::A).rcode,
        NXDOMAIN
    );

    end(&daemon.process);
    let status = daemon.process.wait().expect("a child");
    assert!(status.success(), "{}", daemon.log());
    assert!(!path.exists(), "the file goes with the daemon");
}

#[test]
fn a_restart_hands_the_path_over() {
    let mut daemon = Daemon::at_path();
    let path = daemon.path();
    let before = fs::metadata(&path).expect("a file").ino();
    let mut client = daemon.connect();
    let said = daemon.say("restart");
    daemon.successor = successor(&said);
    let successor = daemon
        .successor
        .unwrap_or_else(|| panic!("{said}\n{}", daemon.log()));
    daemon.process.wait().expect("a child");
    let after = fs::metadata(&path).expect("the file is there still").ino();
    assert_eq!(before, after, "the same file");
    assert_eq!(
        daemon.connect().ask("tcp.example.", qtype::A).rcode,
        NXDOMAIN
    );
    // The old process has ended this one.
    let end = again_if_interrupted(|| client.0.read(&mut [0]));
    assert_eq!(end.ok(), Some(0));
    let _ = kill(successor, Signal::SIGTERM);
    daemon.until("the file has gone with the last process", || !path.exists());
    daemon.until("the last process has ended", || !is_running(successor));
    daemon.successor = None;
}

/// Whoever is to wait for it may not have done so yet.
fn is_running(process: Pid) -> bool {
    let status = fs::read_to_string(format!("/proc/{process}/stat"));
    status.is_ok_and(|status| !status.contains(") Z "))
}

/// The number in `process 7 serves, process 5 finishes what is in flight`.
fn successor(said: &str) -> Option<Pid> {
    let (_, rest) = said.split_once("process ")?;
    let (number, _) = rest.split_once(" serves")?;
    number.parse().ok().map(Pid::from_raw)
}

fn end(process: &Child) {
    let process = Pid::from_raw(process.id() as i32);
    kill(process, Signal::SIGTERM).expect("a child");
}

#[test]
fn where_a_path_cannot_be_had_a_line_says_why_and_all_else_is_served() {
    let daemon = Daemon::start(|folder| {
        fs::write(folder.join("file"), "of value").expect("a file");
        let path = |name: &str| format!("addLocal('{}')\n", folder.join(name).display());
        path("missing/dns.sock") + &path("file") + &path("dns.sock")
    });
    assert_eq!(daemon.by_udp(), Some(REFUSED));
    let answer = daemon.connect().ask("tcp.example.", qtype::A);
    assert_eq!(answer.rcode, NXDOMAIN);
    let folder = daemon.folder.path().display();
    for line in [
        format!("cannot serve {folder}/missing/dns.sock: there is no folder {folder}/missing: "),
        format!("cannot serve {folder}/file: there is a file that is no socket: "),
    ] {
        assert!(daemon.log().contains(&line), "{line}\n{}", daemon.log());
    }
    let kept = fs::read(daemon.folder.path().join("file"));
    assert_eq!(kept.expect("a file"), b"of value");
    // What has been put right is served by the next reload.
    fs::create_dir(daemon.folder.path().join("missing")).expect("a folder");
    let said = daemon.say("reload");
    assert!(
        said.contains(&format!("cannot serve {folder}/file: ")),
        "{said}"
    );
    assert!(!said.contains("missing"), "{said}");
    assert!(daemon.folder.path().join("missing/dns.sock").exists());
}

#[test]
fn a_second_instance_leaves_the_path_to_the_first() {
    let daemon = Daemon::at_path();
    let output = Command::new(env!("CARGO_BIN_EXE_millrace"))
        .args(["--supervised", "-l"])
        .arg(daemon.path())
        .arg("--control")
        .arg(daemon.folder.path().join("second"))
        .arg("-C")
        .arg("/dev/null")
        .stdin(Stdio::null())
        .output()
        .expect("the program starts");
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    assert!(!output.status.success(), "it has nobody to serve: {said}");
    assert!(said.contains("another process listens there"), "{said}");
    let answer = daemon.connect().ask("tcp.example.", qtype::A);
    assert_eq!(answer.rcode, NXDOMAIN);
}
