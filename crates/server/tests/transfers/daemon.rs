//! A daemon on loopback with one zone, its commands and its log; and questions to any server.

use crate::primary::apex;
use crate::servers::SECRET;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream, UdpSocket};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use testnet::again_if_interrupted;
use wire::message::{HEADER_LENGTH, Header, Records};
use zone::transfer::{query, serial};

/// Nothing on loopback takes so long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// How long an answer over UDP is waited for that is asked for once.
const ANSWERED_WITHIN: Duration = Duration::from_secs(10);

/// A zone that differs from serial to serial in one record.
pub(crate) fn text(serial: u32) -> String {
    let hosts: String = (0..500)
        .map(|number| format!("h{number} A 10.0.0.7\n"))
        .collect();
    format!(
        "$TTL 300\n@ SOA ns host {serial} 3600 60 86400 60\n NS ns\nns A 127.0.0.1\n\
         {hosts}serial-{serial} TXT x\n"
    )
}

/// A daemon in a folder of its own.
pub(crate) struct Millrace {
    process: Child,
    pub(crate) port: u16,
    pub(crate) folder: TempDir,
    /// Words before the daemon's own.
    before: Vec<String>,
}

impl Drop for Millrace {
    fn drop(&mut self) {
        // It may be gone by itself; both are fine.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Millrace {
    pub(crate) fn start(port: u16, zone: &str) -> Millrace {
        Millrace::start_with(port, zone, |_| Vec::new())
    }

    /// `before`: words before the daemon's own, for its folder.
    pub(crate) fn start_with(
        port: u16,
        zone: &str,
        before: impl FnOnce(&Path) -> Vec<String>,
    ) -> Millrace {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("zone"), text(5)).unwrap();
        configure(folder.path(), port, "", zone);
        let before = before(folder.path());
        Millrace {
            process: spawn(folder.path(), &before),
            port,
            folder,
            before,
        }
    }

    /// By SIGKILL, and anew.
    pub(crate) fn restart(&mut self) {
        self.kill();
        self.process = spawn(self.folder.path(), &self.before);
    }

    pub(crate) fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    /// Another zone, from the next start or reload on.
    pub(crate) fn configure(&self, zone: &str) {
        configure(self.folder.path(), self.port, "", zone);
    }

    /// The same with these lines before.
    pub(crate) fn configure_after(&self, lines: &str, zone: &str) {
        configure(self.folder.path(), self.port, lines, zone);
    }

    pub(crate) fn command(&self, words: &[&str]) -> String {
        let output = self.output(words);
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
    }

    /// What `millrace` with these words comes to, its exit status too.
    pub(crate) fn output(&self, words: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_millrace"))
            .args(words)
            .arg("--control")
            .arg(self.folder.path().join("control"))
            .output()
            .unwrap()
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap()
    }

    /// Until it has written this.
    pub(crate) fn until_said(&self, text: &str) {
        until(
            || self.log().contains(text),
            || format!("it never said {text:?}:\n{}", self.log()),
        );
    }

    /// Until it serves this serial.
    pub(crate) fn until_serial(&self, wanted: u32) {
        until_serial(self.port, wanted, "we", || self.log());
    }
}

fn configure(folder: &Path, port: u16, lines: &str, zone: &str) {
    let text = format!(
        "addLocal('127.0.0.1:{port}')\nmillrace.setStateDirectory('state')\n\
         millrace.addKey{{name='k.', secret='{SECRET}'}}\n{lines}\
         millrace.addZone{{name='example.com.', {zone}}}\n"
    );
    fs::write(folder.join("conf"), text).unwrap();
}

fn spawn(folder: &Path, before: &[String]) -> Child {
    let log = File::options()
        .create(true)
        .append(true)
        .open(folder.join("log"))
        .unwrap();
    let daemon = env!("CARGO_BIN_EXE_millrace").to_owned();
    let words = [before, &[daemon]].concat();
    Command::new(&words[0])
        .args(&words[1..])
        .args(["--supervised", "--structured-logging", "false", "-C"])
        .arg(folder.join("conf"))
        .arg("--control")
        .arg(folder.join("control"))
        .stdout(log.try_clone().unwrap())
        .stderr(log)
        .stdin(Stdio::null())
        .spawn()
        .unwrap()
}

/// The answer of the server on this port; at once `None` where nobody listens.
pub(crate) fn answer(port: u16, request: &[u8]) -> Option<Vec<u8>> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    socket.set_read_timeout(Some(ANSWERED_WITHIN)).unwrap();
    socket.connect((Ipv4Addr::LOCALHOST, port)).ok()?;
    socket.send(request).ok()?;
    let mut answer = vec![0; 4_096];
    let length = again_if_interrupted(|| socket.recv(&mut answer)).ok()?;
    answer.truncate(length);
    Some(answer)
}

/// The serial that the server on this port answers with.
pub(crate) fn asked(port: u16) -> Option<u32> {
    let answer = answer(port, &query::soa(7, apex().as_name()))?;
    let header = Header::read(&answer)?;
    serial_in(&answer).filter(|_| header.rcode() == 0 && header.aa())
}

/// The serial in the first record behind the question for the zone, which is its SOA record.
pub(crate) fn serial_in(message: &[u8]) -> Option<u32> {
    let question_end = HEADER_LENGTH + apex().as_name().as_bytes().len() + 4;
    let header = Header::read(message)?;
    let record = Records::new(message, question_end as u16, &header).next()?;
    serial::of_soa(record.ok()?.rdata(message))
}

pub(crate) fn until_serial(port: u16, wanted: u32, who: &str, log: impl Fn() -> String) {
    until(
        || asked(port) == Some(wanted),
        || format!("{who} never had serial {wanted}:\n{}", log()),
    );
}

/// Until something is so that no event tells of: another process's doing.
pub(crate) fn until(so: impl Fn() -> bool, otherwise: impl Fn() -> String) {
    let start = Instant::now();
    while !so() {
        assert!(start.elapsed() < PATIENCE, "{}", otherwise());
        // tidy: somebody else's server tells by no event that it has a zone.
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The same over TCP: the first message of the answer.
pub(crate) fn answer_by_stream(port: u16, request: &[u8]) -> Option<Vec<u8>> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    let length = (request.len() as u16).to_be_bytes();
    stream.write_all(&[&length, request].concat()).ok()?;
    let mut length = [0; 2];
    stream.read_exact(&mut length).ok()?;
    let mut answer = vec![0; u16::from_be_bytes(length).into()];
    stream.read_exact(&mut answer).ok()?;
    Some(answer)
}
