//! `--live` on a pseudo-terminal: what it draws, and that the terminal is as it was when the run is over, however it ends.

use crate::lab::{Deed, Responder, SERVER, lab, queries, quiet_port};
use floodgate::live::{ENTER, LEAVE};
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::pty::{Winsize, openpty};
use nix::sys::signal::{Signal, kill};
use nix::sys::termios::{Termios, tcgetattr};
use nix::unistd::Pid;
use std::fs::File;
use std::io::{Read, Write};
use std::net::UdpSocket;
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tempfile::NamedTempFile;
use testnet::again_if_interrupted;
use testnet::lab::TO_SERVER;

/// How long something may take that must come.
const PATIENCE: Duration = Duration::from_secs(60);

/// A terminal, from the side of who sits before it.
struct Terminal {
    keys_and_screen: File,
    /// What programs have.
    other_end: OwnedFd,
    /// Its settings before any program had it.
    before: Termios,
    /// Everything that was written to it.
    shown: Vec<u8>,
}

impl Terminal {
    fn open() -> Terminal {
        Terminal::of_size(None)
    }

    /// One of so many columns and rows.
    fn of_size(size: Option<(u16, u16)>) -> Terminal {
        let size = size.map(|(columns, rows)| Winsize {
            ws_col: columns,
            ws_row: rows,
            ws_xpixel: 0,
            ws_ypixel: 0,
        });
        let pair = openpty(size.as_ref(), None::<&Termios>).unwrap();
        for end in [&pair.master, &pair.slave] {
            // What other tests start meanwhile must not hold it open.
            fcntl(end, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC)).unwrap();
        }
        Terminal {
            before: tcgetattr(&pair.slave).unwrap(),
            keys_and_screen: File::from(pair.master),
            other_end: pair.slave,
            shown: Vec::new(),
        }
    }

    /// Input and outputs of a program.
    fn give_to(&self, command: &mut Command) {
        let end = || Stdio::from(self.other_end.try_clone().unwrap());
        command.stdin(end()).stdout(end()).stderr(end());
    }

    /// Takes what is written to it within so many milliseconds. False: nothing.
    fn read(&mut self, milliseconds: u16) -> bool {
        let mut ends = [PollFd::new(self.keys_and_screen.as_fd(), PollFlags::POLLIN)];
        let timeout = PollTimeout::from(milliseconds);
        let ready = again_if_interrupted(|| Ok(poll(&mut ends, timeout)?)).unwrap();
        let mut buffer = [0; 4096];
        // EIO: nobody has the other end any more, and everything was read.
        let length = match ready {
            0 => 0,
            _ => self.keys_and_screen.read(&mut buffer).unwrap_or(0),
        };
        self.shown.extend(&buffer[..length]);
        length > 0
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.shown).into_owned()
    }

    /// Waits until this was written.
    fn awaits(&mut self, part: &str) {
        let started = Instant::now();
        while !self.text().contains(part) {
            assert!(started.elapsed() < PATIENCE, "no {part}: {}", self.text());
            self.read(50);
        }
    }

    /// Waits for a program's end: everything that was written, and its exit code. The settings are what they were.
    fn end(mut self, mut child: Child) -> (String, Option<i32>) {
        let started = Instant::now();
        let status = loop {
            self.read(20);
            if let Some(status) = child.try_wait().unwrap() {
                break status;
            }
            if started.elapsed() > PATIENCE {
                child.kill().unwrap();
                panic!("it does not end: {}", self.text());
            }
        };
        assert_eq!(tcgetattr(&self.other_end).unwrap(), self.before);
        // The kernel hands on what was written last when it gets to that.
        while self.read(1_000) {}
        (self.text(), status.code())
    }
}

/// What was written before the screen was taken, while it was, and after it was given back. That happens once each.
fn parts(text: &str) -> [&str; 3] {
    for word in [ENTER, LEAVE] {
        assert_eq!(text.matches(word).count(), 1, "{word:?} in {text:?}");
    }
    let (before, rest) = text.split_once(ENTER).unwrap();
    let (screens, after) = rest.split_once(LEAVE).unwrap();
    // What is said on the screen that was there before is plain text.
    for plain in [before, after] {
        assert!(!plain.contains('\x1b'), "{plain:?}");
    }
    [before, screens, after]
}

/// The lines of all screens that were drawn.
fn lines_of(screens: &str) -> Vec<String> {
    let lines = screens.split("\x1b[H").flat_map(|one| one.split("\x1b[K"));
    lines.map(|line| line.trim().to_owned()).collect()
}

/// Asserts that there is a line for each of these, and that bars are not all empty.
fn assert_lines(lines: &[String], starts: &[&str], lane: &str) {
    for start in starts {
        assert!(
            lines.iter().any(|line| line.starts_with(start)),
            "no {start} in {lines:#?}"
        );
    }
    let mut bars = lines.iter().filter(|line| line.starts_with(lane));
    assert!(bars.clone().all(|line| line.ends_with("/s")), "{lines:#?}");
    assert!(bars.any(|line| line.contains('█')), "{lines:#?}");
}

#[test]
fn rates_latency_and_a_bar_for_each_queue_are_drawn_and_the_result_stands_on_the_old_screen() {
    let Some(lab) = lab() else { return };
    let _port = quiet_port(&lab, SERVER);
    let _responder = Responder::start(&lab, None, |_| Deed::Answer);
    let file = queries(100);
    let terminal = Terminal::open();
    let mut command = Command::new(env!("CARGO_BIN_EXE_floodgate"));
    let options = "xdp --live -t 1.25 -Q 1000 --patience 60 --late 60 -i";
    command.args(options.split(' ')).arg(file.path());
    command.arg(SERVER.to_string());
    terminal.give_to(&mut command);
    let child = lab.client().spawn(&mut command, None).unwrap();
    drop(command);
    let (text, code) = terminal.end(child);
    assert_eq!(code, Some(0), "{text}");
    let [before, screens, after] = parts(&text);
    assert!(before.starts_with("using interface "), "{before}");
    let lines = lines_of(screens);
    let headline = format!("{SERVER}:53 over AF_XDP on {TO_SERVER} ");
    let starts = [
        headline.as_str(),
        "sent ",
        "right ",
        "unanswered ",
        "latency      p50 ",
        "queue 0 ",
        "queue 1 ",
        "Ctrl-C ends ",
    ];
    assert_lines(&lines, &starts, "queue");
    assert!(screens.contains(" s left"), "{screens}");
    assert!(after.contains("total queries:     1250 "), "{after}");
    assert!(after.contains("answered right:    1250 "), "{after}");
}

#[test]
fn a_run_that_fails_gives_the_screen_back_before_it_says_why() {
    let Some(lab) = lab() else { return };
    let _port = quiet_port(&lab, SERVER);
    let is_down = Arc::new(AtomicBool::new(false));
    let is_quiet = is_down.clone();
    let _responder = Responder::start(&lab, None, move |_| {
        match is_quiet.load(Ordering::Relaxed) {
            // What is sent to an interface that is down is an error.
            true => Deed::Ignore,
            false => Deed::Answer,
        }
    });
    let file = queries(100);
    let mut terminal = Terminal::open();
    let mut command = Command::new(env!("CARGO_BIN_EXE_floodgate"));
    let options = "xdp --live -t 60 -Q 1000 --patience 60 --late 0.3 -i";
    command.args(options.split(' ')).arg(file.path());
    command.arg(SERVER.to_string());
    terminal.give_to(&mut command);
    let child = lab.client().spawn(&mut command, None).unwrap();
    drop(command);
    terminal.awaits("queue 1 ");
    is_down.store(true, Ordering::Relaxed);
    let down = format!("link set dev {TO_SERVER} down\n");
    lab.client().ip(&down).unwrap();
    let (text, code) = terminal.end(child);
    assert_eq!(code, Some(1), "{text}");
    let [_, _, after] = parts(&text);
    let lines: Vec<&str> = after.lines().collect();
    assert!(lines[0].starts_with("thread#00: sent "), "{after}");
    let says = format!("floodgate: interface {TO_SERVER} cannot send any more: ");
    let (last, statistics) = lines.split_last().unwrap();
    assert!(last.starts_with(&says), "{after}");
    for line in [
        "answered right:    ",
        "latency from the intended time: p50 ",
    ] {
        assert!(
            statistics.iter().any(|found| found.starts_with(line)),
            "no {line} in {after}"
        );
    }
    let complaints = statistics.iter().filter(|line| line.contains("floodgate:"));
    assert_eq!(complaints.count(), 0, "{after}");
}

/// The widest line of the last whole screen, and how many lines it has.
fn last_screen(text: &str) -> Option<(usize, usize)> {
    let whole = text.rfind("\x1b[J")?;
    let start = text[..whole].rfind("\x1b[H")?;
    // The terminal adds a carriage return of its own.
    let screen = text[start..whole].replace("\x1b[H", "");
    let screen = screen.replace("\r\r\n", "\r\n");
    let lines: Vec<&str> = screen.split("\x1b[K\r\n").collect();
    let width = |line: &&str| line.trim_end_matches("\x1b[K").chars().count();
    Some((lines.iter().map(width).max()?, lines.len()))
}

/// A run over sockets that shows itself on this terminal, in a session of its own; and its file.
fn run_live(terminal: &Terminal, options: &str) -> (Child, NamedTempFile) {
    let port = loopback_server();
    let file = queries(100);
    // Whoever started the test may ignore them (a shell does, of what it starts in the background), and what is ignored stays so.
    let mut command = Command::new("env");
    let line = format!("sockets --live -s 127.0.0.1 -p {port} -l 60 -t 60 {options} -d");
    command
        .args(["--default-signal=QUIT,HUP,TSTP", "setsid", "--ctty"])
        .arg(env!("CARGO_BIN_EXE_floodgate"))
        .args(line.split(' '))
        .arg(file.path());
    terminal.give_to(&mut command);
    let child = command.spawn().unwrap();
    (child, file)
}

#[test]
fn screens_are_as_large_as_the_terminal_and_follow_it() {
    let mut terminal = Terminal::of_size(Some((50, 12)));
    let (mut child, _file) = run_live(&terminal, "-Q 500 -c 9 -T 9");
    terminal.awaits("more, ");
    terminal.awaits("\x1b[J");
    let (width, lines) = last_screen(&terminal.text()).unwrap();
    assert!(width < 50 && lines <= 12, "{}", terminal.text());
    assert!(width > 40, "{}", terminal.text());
    // The kernel tells the foreground by SIGWINCH.
    let status = Command::new("stty")
        .args(["cols", "120", "rows", "40"])
        .stdin(Stdio::from(terminal.other_end.try_clone().unwrap()))
        .status()
        .unwrap();
    assert!(status.success());
    terminal.awaits("thread 8 ");
    terminal.awaits("Ctrl-C ends ");
    let (width, lines) = last_screen(&terminal.text()).unwrap();
    assert!((110..120).contains(&width) && lines <= 40, "{width}");
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn statistics_in_between_stay_on_the_screen_that_was_there_before() {
    let mut terminal = Terminal::open();
    let (mut child, _file) = run_live(&terminal, "-Q 500 -S 0.3");
    for _ in 0..4 {
        let seen = terminal.shown.len();
        let (started, enter) = (Instant::now(), ENTER.as_bytes());
        let entered = |shown: &[u8]| shown.windows(enter.len()).any(|part| part == enter);
        while !entered(&terminal.shown[seen..]) {
            assert!(started.elapsed() < PATIENCE, "{}", terminal.text());
            terminal.read(50);
        }
    }
    let text = terminal.text();
    // What is between giving a screen back and taking it again: a line for each period.
    let between = text.split(LEAVE).skip(1);
    let lines: Vec<&str> = between
        .filter_map(|part| part.split(ENTER).next())
        .collect();
    assert!(lines.len() >= 3, "{text}");
    for line in lines {
        let (seconds, rate) = line
            .trim()
            .split_once(": ")
            .unwrap_or_else(|| panic!("{line}"));
        assert!(
            seconds.parse::<f64>().is_ok() && rate.parse::<f64>().is_ok(),
            "{line}"
        );
    }
    let on_the_other = text.split(ENTER).skip(1);
    let drawn: String = on_the_other
        .filter_map(|part| part.split(LEAVE).next())
        .collect();
    assert!(!drawn.contains(".000000"), "{drawn}");
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_shell_has_its_screen_while_the_run_is_stopped() {
    let mut terminal = Terminal::open();
    let (mut child, _file) = run_live(&terminal, "-Q 500");
    terminal.awaits("Ctrl-C ends ");
    let shown = terminal.shown.len();
    kill(Pid::from_raw(child.id() as i32), Signal::SIGTSTP).unwrap();
    // In a session without a shell the kernel does not stop it: it goes on at once.
    let again = format!("{LEAVE}{ENTER}");
    terminal.awaits(&again);
    assert!(!terminal.text()[..shown].contains(LEAVE));
    kill(Pid::from_raw(child.id() as i32), Signal::SIGTERM).unwrap();
    while child.try_wait().unwrap().is_none() {
        terminal.read(20);
    }
    while terminal.read(200) {}
    let text = terminal.text();
    assert!(
        text.matches(LEAVE).count() == 2 && text.contains("Statistics:"),
        "{text}"
    );
}

#[test]
fn a_progress_line_is_no_longer_than_the_terminal_is_wide() {
    let mut terminal = Terminal::of_size(Some((30, 24)));
    let port = loopback_server();
    let file = queries(100);
    let mut command = Command::new(env!("CARGO_BIN_EXE_floodgate"));
    let line = format!("sockets -s 127.0.0.1 -p {port} -l 60 -Q 500 -d");
    command.args(line.split(' ')).arg(file.path());
    terminal.give_to(&mut command);
    let mut child = command.spawn().unwrap();
    drop(command);
    terminal.awaits(" s left: sent ");
    terminal.read(50);
    let text = terminal.text();
    let lines: Vec<&str> = text.split("\r\x1b[K").skip(1).collect();
    assert!(
        lines.iter().all(|line| line.chars().count() < 30),
        "{lines:?}"
    );
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn the_screen_is_given_back_whatever_ends_the_run() {
    // Ctrl-\ on the terminal, and what others send.
    for (key, signal) in [
        (Some(b"\x1c"), Signal::SIGQUIT),
        (None, Signal::SIGTERM),
        (None, Signal::SIGHUP),
    ] {
        let mut terminal = Terminal::open();
        let (child, _file) = run_live(&terminal, "-Q 500");
        terminal.awaits("Ctrl-C ends ");
        match key {
            Some(key) => terminal.keys_and_screen.write_all(key).unwrap(),
            None => kill(Pid::from_raw(child.id() as i32), signal).unwrap(),
        }
        let (text, code) = terminal.end(child);
        let [_, _, after] = parts(&text);
        // SIGQUIT ends a program at once, the others let it tell what it has.
        match signal {
            Signal::SIGQUIT => assert_eq!(code, None, "{after}"),
            _ => assert!(code == Some(0) && after.contains("Statistics:"), "{after}"),
        }
    }
}

/// A server on the loopback interface that answers everything; its port.
fn loopback_server() -> u16 {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = socket.local_addr().unwrap().port();
    std::thread::spawn(move || {
        let mut buffer = [0; 512];
        while let Ok((length, client)) = socket.recv_from(&mut buffer) {
            buffer[2] |= 0x80;
            socket.send_to(&buffer[..length], client).unwrap();
        }
    });
    port
}

#[test]
fn ctrl_c_on_the_terminal_ends_a_run_over_sockets_with_its_statistics() {
    let port = loopback_server();
    let file = queries(100);
    let mut terminal = Terminal::open();
    // A session of its own, whose terminal this is: a key that means SIGINT goes to who is in the foreground there.
    let mut command = Command::new("setsid");
    let options = format!("sockets --live -s 127.0.0.1 -p {port} -l 60 -t 60 -Q 500 -c 2 -T 2 -d");
    command
        .args(["--ctty", env!("CARGO_BIN_EXE_floodgate")])
        .args(options.split(' '))
        .arg(file.path());
    terminal.give_to(&mut command);
    let child = command.spawn().unwrap();
    drop(command);
    terminal.awaits("thread 1 ");
    // Something was sent before the last screen was drawn.
    terminal.awaits("█");
    // ETX, which is Ctrl-C.
    terminal.keys_and_screen.write_all(b"\x03").unwrap();
    let (text, code) = terminal.end(child);
    assert_eq!(code, Some(0), "{text}");
    // The terminal itself shows which key it was.
    let text = text.replace("^C", "");
    let [before, screens, after] = parts(&text);
    assert!(before.contains("[Status] Sending queries"), "{before}");
    let headline = format!("127.0.0.1:{port} over UDP sockets ");
    let lines = lines_of(screens);
    assert_lines(
        &lines,
        &[headline.as_str(), "thread 0 ", "thread 1 "],
        "thread",
    );
    for part in ["Testing complete (interruption)", "Queries completed: "] {
        assert!(after.contains(part), "{after}");
    }
}
