//! Another process that owns the queue, so that it can be stopped and killed: this test program again.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use testnet::lab::{Lab, SERVER_CLIENTS};
use xsk::AttachMode;

use crate::lab::Echo;

/// Set in the process that [`Owner::start`] starts: the interface to serve.
const OWNER: &str = "XSK_TEST_OWNER";

/// The process; it ends with the value.
pub(crate) struct Owner(Child);

impl Owner {
    pub(crate) fn start(lab: &Lab) -> Owner {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", "owner::owner_process", "--nocapture"])
            .env(OWNER, SERVER_CLIENTS)
            .stdout(Stdio::piped());
        let mut child = lab.server().spawn(&mut command, None).unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        assert!(
            output
                .lines()
                .any(|line| line.unwrap().contains("owner is ready")),
            "the owner did not start"
        );
        Owner(child)
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.0.id() as i32), signal).unwrap();
    }

    /// Whether all its threads are stopped: a signal reaches those that sleep when they get a processor.
    pub(crate) fn is_stopped(&self) -> bool {
        let threads = fs::read_dir(format!("/proc/{}/task", self.0.id())).unwrap();
        let mut files = threads.map(|thread| thread.unwrap().path().join("stat"));
        files.all(|file| fs::read_to_string(file).is_ok_and(|text| text.contains(") T ")))
    }
}

impl Owner {
    /// Until it has ended.
    pub(crate) fn wait(&mut self) {
        self.0.wait().unwrap();
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Not a test of its own: the body of the process that [`Owner`] starts.
#[test]
fn owner_process() {
    let Ok(interface) = std::env::var(OWNER) else {
        return;
    };
    let echo = Echo::start(&interface, AttachMode::Native);
    println!("owner is ready");
    echo.run();
}
