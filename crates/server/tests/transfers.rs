//! The daemon as a secondary and as a primary of knotd, nsd and named on loopback: what they have comes and outlives both,
//! what we have goes to them, and what changes goes by IXFR after a NOTIFY. Prints SKIP for a server that is not installed.

#[path = "../../zone/tests/transfers/servers.rs"]
mod servers;

use servers::{ALL, Kind, Role, SECRET};
use std::fs::{self, File};
use std::net::{Ipv4Addr, UdpSocket};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use wire::message::{Header, Records, parse_query};
use wire::name::NameBuf;
use zone::transfer::{query, serial};

/// Nothing on loopback takes so long.
const PATIENCE: Duration = Duration::from_secs(30);

fn text(serial: u32) -> String {
    let hosts: String = (0..500)
        .map(|number| format!("h{number} A 10.0.0.7\n"))
        .collect();
    format!(
        "$TTL 300\n@ SOA ns host {serial} 3600 60 86400 60\n NS ns\nns A 127.0.0.1\n\
         {hosts}serial-{serial} TXT x\n"
    )
}

/// A daemon in a folder of its own.
struct Millrace {
    process: Child,
    port: u16,
    folder: TempDir,
}

impl Drop for Millrace {
    fn drop(&mut self) {
        // It may be gone by itself; both are fine.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Millrace {
    fn start(port: u16, zone: &str) -> Millrace {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("zone"), text(5)).unwrap();
        configure(folder.path(), port, zone);
        let process = spawn(folder.path());
        Millrace {
            process,
            port,
            folder,
        }
    }

    /// By SIGKILL, and anew.
    fn restart(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
        self.process = spawn(self.folder.path());
    }

    fn command(&self, words: &[&str]) -> String {
        let output = Command::new(env!("CARGO_BIN_EXE_millrace"))
            .args(words)
            .arg("--control")
            .arg(self.folder.path().join("control"))
            .output()
            .unwrap();
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
    }

    fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap()
    }
}

fn configure(folder: &Path, port: u16, zone: &str) {
    let text = format!(
        "addLocal('127.0.0.1:{port}')\nmillrace.setStateDirectory('state')\n\
         millrace.addKey{{name='k.', secret='{SECRET}'}}\n\
         millrace.addZone{{name='example.com.', {zone}}}\n"
    );
    fs::write(folder.join("conf"), text).unwrap();
}

fn spawn(folder: &Path) -> Child {
    let log = File::options()
        .create(true)
        .append(true)
        .open(folder.join("log"))
        .unwrap();
    Command::new(env!("CARGO_BIN_EXE_millrace"))
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

/// A port that nobody has.
fn free_port() -> u16 {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    socket.local_addr().unwrap().port()
}

/// The serial that the server on this port answers with.
fn asked(port: u16) -> Option<u32> {
    let apex: NameBuf = "example.com.".parse().unwrap();
    let request = query::soa(7, apex.as_name());
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    socket
        .set_read_timeout(Some(Duration::from_millis(200)))
        .unwrap();
    socket.connect((Ipv4Addr::LOCALHOST, port)).ok()?;
    socket.send(&request).ok()?;
    let mut answer = [0; 4_096];
    let length = socket.recv(&mut answer).ok()?;
    let answer = &answer[..length];
    let header = Header::read(answer)?;
    let start = parse_query(&request).unwrap().question_end;
    let record = Records::new(answer, start, &header).next()?.ok()?;
    serial::of_soa(record.rdata(answer)).filter(|_| header.rcode() == 0 && header.aa())
}

fn until_serial(port: u16, wanted: u32, who: &str, log: impl Fn() -> String) {
    let start = Instant::now();
    while asked(port) != Some(wanted) {
        assert!(
            start.elapsed() < PATIENCE,
            "{who} never had serial {wanted}:\n{}",
            log()
        );
        // tidy: somebody else's server tells by no event that it has a zone.
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn skip(kind: &Kind) {
    println!(
        "SKIP: a server to transfer with is not installed: {}",
        kind.program
    );
}

#[test]
fn what_they_have_comes_and_survives_both() {
    for kind in ALL {
        let Some(primary) = kind.start(Role::Primary, &text(5)) else {
            skip(kind);
            continue;
        };
        let address = format!("127.0.0.1:{}", primary.port);
        let zone = format!("primaries={{{{address='{address}', key='k.'}}}}");
        let mut ours = Millrace::start(free_port(), &zone);
        until_serial(ours.port, 5, kind.program, || ours.log());
        let status = ours.command(&["zone", "status"]);
        assert!(
            status.starts_with("example.com. secondary, serial 5, 504 records"),
            "{status}"
        );
        let again = ours.command(&["zone", "retransfer", "example.com."]);
        let expected = format!("example.com.: serial 5 came by AXFR from {address}\n");
        assert_eq!(again, expected, "{}", kind.program);
        drop(primary);
        ours.restart();
        until_serial(ours.port, 5, "without its primary we", || ours.log());
    }
}

#[test]
fn what_we_have_goes_to_them_and_changes_by_ixfr() {
    for kind in ALL {
        let port = free_port();
        let zone = "file='zone', acl={action='transfer', key='k.'}";
        let mut ours = Millrace::start(port, zone);
        until_serial(port, 5, "we", || ours.log());
        let Some(secondary) = kind.start(Role::Secondary(port), "") else {
            skip(kind);
            continue;
        };
        until_serial(secondary.port, 5, kind.program, || ours.log());
        let zone = format!("{zone}, notify='127.0.0.1:{}'", secondary.port);
        configure(ours.folder.path(), port, &zone);
        // What was kept before a crash still leads on.
        ours.restart();
        until_serial(ours.port, 5, "after a crash we", || ours.log());
        fs::write(ours.folder.path().join("zone"), text(6)).unwrap();
        let said = ours.command(&["zone", "reload", "example.com."]);
        let expected = "example.com.: zone example.com.: serial 6, 504 records loaded\n";
        assert_eq!(said, expected, "{}", kind.program);
        until_serial(secondary.port, 6, kind.program, || ours.log());
        let log = ours.log();
        assert!(
            log.contains("serial 6 went by IXFR to 127.0.0.1:"),
            "{}: {log}",
            kind.program
        );
        assert!(
            ours.command(&["zone", "notify"])
                .contains("1 servers are told of serial 6")
        );
    }
}
