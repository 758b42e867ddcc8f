//! A generator that runs, and what it says, line by line.

use super::start;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStderr};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;
use testnet::namespace::Namespace;

/// How long a line may take that must come.
const PATIENCE: Duration = Duration::from_secs(60);

/// A generator, until it is dropped.
pub struct Talking {
    child: Child,
    lines: Receiver<String>,
}

impl Talking {
    /// Starts floodgate in a namespace.
    pub fn start(namespace: &Namespace, line: &str) -> Talking {
        let mut child = start(namespace, line);
        let out = BufReader::new(child.stdout.take().unwrap());
        let (tell, lines) = channel();
        std::thread::spawn(move || {
            let mut said = out.lines().map_while(Result::ok);
            said.all(|line| tell.send(line).is_ok())
        });
        Talking { child, lines }
    }

    /// Its process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// What it says on standard error.
    pub fn errors(&mut self) -> ChildStderr {
        self.child.stderr.take().unwrap()
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.id() as i32), signal).unwrap();
    }

    /// Its next line.
    pub fn line(&mut self) -> String {
        match self.lines.recv_timeout(PATIENCE) {
            Ok(line) => line,
            Err(error) => panic!("no line more: {error}; {}", self.complaint()),
        }
    }

    /// Its next line, which is JSON.
    pub fn object(&mut self) -> Value {
        read(&self.line())
    }

    /// The first line of statistics in between that tells of queries.
    pub fn busy(&mut self) -> Value {
        for _ in 0..1000 {
            let object = self.object();
            assert_eq!(object["type"], "stats_periodic", "{object}");
            if object["queries"].as_u64() > Some(0) {
                return object;
            }
        }
        panic!("it sends nothing: {}", self.complaint());
    }

    /// Waits for its end: the lines that were left, and its exit code.
    pub fn end(mut self) -> (Vec<String>, Option<i32>) {
        let mut rest = Vec::new();
        loop {
            match self.lines.recv_timeout(PATIENCE) {
                Ok(line) => rest.push(line),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => panic!("it does not end: {rest:?}"),
            }
        }
        let status = self.child.wait().unwrap();
        (rest, status.code())
    }

    /// Ends it by SIGINT: its result, the last line, which is JSON. It succeeds.
    pub fn interrupt(self) -> Value {
        self.signal(Signal::SIGINT);
        let (lines, code) = self.end();
        assert_eq!(code, Some(0), "{lines:?}");
        read(lines.last().expect("a result"))
    }

    /// Kills it: what it has said on standard error.
    fn complaint(&mut self) -> String {
        let mut text = String::new();
        // Where it cannot be killed or read, there is nothing more to say.
        let _ = self.child.kill();
        if let Some(errors) = &mut self.child.stderr {
            let _ = errors.read_to_string(&mut text);
        }
        text
    }
}

impl Drop for Talking {
    /// A test that fails leaves nobody behind.
    fn drop(&mut self) {
        // It has ended already where the test went well.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn read(line: &str) -> Value {
    serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))
}
