//! Standard output and standard error that cannot be written, and a terminal that goes away in the middle of a run.

use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::pty::{Winsize, openpty};
use nix::sys::signal::{Signal, kill};
use nix::sys::termios::Termios;
use nix::unistd::Pid;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::UdpSocket;
use std::process::{Command, Stdio};

fn flood(line: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_floodgate"));
    command.args(line.split_whitespace()).stdin(Stdio::null());
    command
}

/// A disk without room.
fn full() -> Stdio {
    OpenOptions::new()
        .write(true)
        .open("/dev/full")
        .unwrap()
        .into()
}

fn queries() -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    writeln!(file, "www.example A").unwrap();
    file
}

/// A server that says nothing, and the options that ask it for so many seconds.
fn silent_server(seconds: &str) -> (UdpSocket, String) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = socket.local_addr().unwrap().port();
    let options = format!("sockets -s 127.0.0.1 -p {port} -Q 20 -t 0.1 -l {seconds}");
    (socket, options)
}

#[test]
fn results_that_find_no_room_are_an_error() {
    let file = queries();
    let (_server, options) = silent_server("0.2");
    for format in ["", "--json", "--csv"] {
        let line = format!("{options} {format} -d {}", file.path().display());
        let output = flood(&line).stdout(full()).output().unwrap();
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{line}: {complaint}");
        let last = complaint.lines().last().unwrap_or_default();
        assert!(last.contains("standard output: No space left"), "{last}");
    }
}

#[test]
fn an_error_that_nobody_reads_is_no_panic() {
    for line in ["", "xdp", "sockets -d /nonexistent"] {
        let output = flood(line).stderr(full()).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{line}");
    }
}

#[test]
fn a_run_goes_on_when_its_terminal_goes_away() {
    let file = queries();
    let (_server, options) = silent_server("2.5");
    let terminal = openpty(None::<&Winsize>, None::<&Termios>).unwrap();
    for end in [&terminal.master, &terminal.slave] {
        // What other tests start meanwhile must not hold it open.
        fcntl(end, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC)).unwrap();
    }
    let line = format!("{options} -d {}", file.path().display());
    let child = flood(&line)
        .stdout(Stdio::piped())
        .stderr(Stdio::from(terminal.slave))
        .spawn()
        .unwrap();
    // Its first progress line is on the screen, and another one is to come.
    let mut screen = File::from(terminal.master);
    let read = screen.read(&mut [0; 1]).unwrap();
    assert_eq!(read, 1);
    drop(screen);
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{:?}: {text}", output.status);
    assert!(text.contains("Queries sent:"), "{text}");
}

/// Runs floodgate for two seconds, by another program, and sends it SIGHUP when it has begun, as a terminal
/// does that goes away: what it prints from then on.
fn hung_up(by: &[&str]) -> String {
    let file = queries();
    let (_server, options) = silent_server("2");
    let line = format!("{options} -d {}", file.path().display());
    let mut words = by.iter().copied().chain([env!("CARGO_BIN_EXE_floodgate")]);
    let mut child = Command::new(words.next().unwrap())
        .args(words)
        .args(line.split_whitespace())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let begun = lines.find(|line| line.as_ref().unwrap().contains("Stopping after"));
    assert!(begun.is_some());
    kill(Pid::from_raw(child.id() as i32), Signal::SIGHUP).unwrap();
    let rest: Vec<String> = lines.map(Result::unwrap).collect();
    let status = child.wait().unwrap();
    assert!(status.success(), "{status:?}: {rest:?}");
    rest.join("\n")
}

#[test]
fn a_hangup_ends_a_run_with_its_statistics_unless_it_is_ignored() {
    // Whoever started the test may ignore it, and what is ignored stays so.
    for (by, end) in [
        (
            &["env", "--default-signal=HUP"][..],
            "Testing complete (interruption)",
        ),
        (&["nohup"][..], "Testing complete (time limit)"),
    ] {
        let text = hung_up(by);
        assert!(text.contains(end), "{by:?}: {text}");
        assert!(text.contains("Queries sent:"), "{by:?}: {text}");
    }
}
