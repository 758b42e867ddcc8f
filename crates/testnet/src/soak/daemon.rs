//! The daemon of a soak. It may be a child of ours, or the process that took over from one.

use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::lab::{Lab, SERVER_V4};
use crate::subject::{Server, StartedBy, Subject};
use crate::{During, Failure, Outcome, again_if_interrupted, signals, sys};

/// How long a start, an end, a take-over may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// How often a state is looked at that nothing tells of.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// What lasts twice as long as this was interrupted.
const PIECE: Duration = Duration::from_millis(20);

pub(super) struct Daemon {
    subject: Subject,
    folder: PathBuf,
    /// Ours, until another process has taken over.
    server: Option<Server>,
    id: u32,
    end: OwnedFd,
    /// How many processes have served so far.
    pub generation: usize,
}

impl Daemon {
    /// Starts it under this configuration and awaits that it serves.
    pub(super) fn start(
        subject: &Subject,
        lab: &Lab,
        configuration: &str,
        folder: &Path,
    ) -> Outcome<Self> {
        let (server, id, end) = begin(subject, lab, configuration, folder)?;
        Ok(Self {
            subject: subject.clone(),
            folder: folder.to_owned(),
            server: Some(server),
            id,
            end,
            generation: 1,
        })
    }

    /// SIGKILL, and a new start when it is gone.
    pub(super) fn kill_and_start(&mut self, lab: &Lab, configuration: &str) -> Outcome<()> {
        self.signal(Signal::SIGKILL)?;
        self.await_end()?;
        let (server, id, end) = begin(&self.subject, lab, configuration, &self.folder)?;
        (self.server, self.id, self.end) = (Some(server), id, end);
        self.generation += 1;
        Ok(())
    }

    /// `millrace restart`: another process takes over.
    pub(super) fn hand_over(&mut self, lab: &Lab) -> Outcome<()> {
        let output = self.ask(&["restart"])?;
        if !output.status.success() {
            return Err(Failure::new(format!("no restart: {}", said(&output))));
        }
        self.await_end()?;
        self.server = None;
        let id =
            daemon_in(lab, &self.subject)?.ok_or_else(|| Failure::new("nobody has taken over"))?;
        lab.ledger().add(id, "millrace")?;
        self.end = sys::process_descriptor(id).during("watching who has taken over")?;
        self.id = id;
        self.generation += 1;
        Ok(())
    }

    /// SIGTERM: a child must end with status 0; of another process no more than its end can be seen.
    pub(super) fn stop(mut self) -> Outcome<()> {
        match self.server.take() {
            Some(server) => server.stop(),
            None => {
                self.signal(Signal::SIGTERM)?;
                self.await_end()
            }
        }
    }

    /// Its number, for whoever looks at /proc.
    pub(super) fn id(&self) -> u32 {
        self.id
    }

    pub(super) fn signal(&self, signal: Signal) -> Outcome<()> {
        if self.has_ended(Duration::ZERO)? {
            return Err(Failure::new("the daemon has ended by itself"));
        }
        kill(Pid::from_raw(self.id as i32), signal).during(format!("sending {signal}"))
    }

    /// Lets time pass; the daemon's end is a failure at once.
    pub(super) fn watch_for(&self, time: Duration) -> Outcome<()> {
        let has_ended = self.has_ended(time)?;
        // Ctrl-C reaches the daemon, too.
        signals::go_on()?;
        match has_ended {
            true => Err(Failure::new("the daemon has ended by itself")),
            false => Ok(()),
        }
    }

    /// The same for a time in which this machine runs: most of what it is frozen for does not count. How long it took in all.
    pub(super) fn watch_for_running(&self, time: Duration) -> Outcome<Duration> {
        let (began, mut counted) = (Instant::now(), Duration::ZERO);
        while counted < time {
            let before = Instant::now();
            self.watch_for((time - counted).min(PIECE))?;
            counted += before.elapsed().min(2 * PIECE);
        }
        Ok(began.elapsed())
    }

    /// Asks again and again until it is so.
    pub(super) fn until(
        &self,
        within: Duration,
        what: &str,
        mut is_so: impl FnMut() -> Outcome<bool>,
    ) -> Outcome<()> {
        let began = Instant::now();
        while !is_so()? {
            self.watch_for(LOOK_EVERY).during(what)?;
            if began.elapsed() > within {
                return Err(Failure::new(format!("waited {within:?} for {what}")));
            }
        }
        Ok(())
    }

    /// `millrace WORDS…` to this daemon, by its control socket.
    pub(super) fn ask(&self, words: &[&str]) -> Outcome<Output> {
        Command::new(&self.subject.program)
            .args(words)
            .arg("--control")
            .arg(self.folder.join("control"))
            .output()
            .during(format!("millrace {}", words.join(" ")))
    }

    /// `millrace WORDS…` in the server's namespace, to its end.
    pub(super) fn run_beside(&self, lab: &Lab, words: &[&str]) -> Outcome<Output> {
        run_beside(&self.subject.program, lab, words)
    }

    /// The program that it is.
    pub(super) fn program(&self) -> PathBuf {
        self.subject.program.clone()
    }

    /// Its configuration file; the lab's own first lines stay.
    pub(super) fn file(&self) -> PathBuf {
        self.folder.join("server.lua")
    }

    /// Puts another configuration behind the lab's own first three lines.
    pub(super) fn write(&self, configuration: &str) -> Outcome<()> {
        let file = self.file();
        let old = fs::read_to_string(&file).during("reading the configuration")?;
        let prelude: String = old.split_inclusive('\n').take(3).collect();
        fs::write(&file, prelude + configuration).during("writing the configuration")
    }

    fn await_end(&mut self) -> Outcome<()> {
        if !self.has_ended(PATIENCE)? {
            return Err(Failure::new(format!("it still runs after {PATIENCE:?}")));
        }
        Ok(())
    }

    fn has_ended(&self, within: Duration) -> Outcome<bool> {
        let timeout = PollTimeout::try_from(within).unwrap_or(PollTimeout::MAX);
        let mut ends = [PollFd::new(self.end.as_fd(), PollFlags::POLLIN)];
        let ended = again_if_interrupted(|| Ok(poll(&mut ends, timeout)?));
        Ok(ended.during("watching the daemon")? > 0)
    }
}

fn begin(
    subject: &Subject,
    lab: &Lab,
    configuration: &str,
    folder: &Path,
) -> Outcome<(Server, u32, OwnedFd)> {
    let by = StartedBy::default();
    let mut server = Server::start(subject, lab, (configuration, &by), folder)?;
    server.await_ready(lab, (SERVER_V4, 53).into(), PATIENCE)?;
    let id = server.id();
    let end = sys::process_descriptor(id).during("watching the daemon")?;
    Ok((server, id, end))
}

/// Runs the program with other words in the server's namespace, to its end.
pub(super) fn run_beside(program: &Path, lab: &Lab, words: &[&str]) -> Outcome<Output> {
    let mut command = Command::new(program);
    command
        .args(words)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let child = lab.server().spawn(&mut command, Some(&lab.bpffs()))?;
    child
        .wait_with_output()
        .during(format!("millrace {}", words.join(" ")))
}

/// The number of the process that runs the program of `subject` in the lab's server namespace.
fn daemon_in(lab: &Lab, subject: &Subject) -> Outcome<Option<u32>> {
    let program = subject.program.file_name().unwrap_or_default();
    // proc_pid_comm(5): longer names are cut to 15 octets.
    let name: Vec<u8> = program.as_bytes().iter().copied().take(15).collect();
    let own = lab
        .server()
        .run(|| fs::read_link("/proc/thread-self/ns/net"))?;
    let namespace = own.during("reading the namespace's number")?;
    let is_it = |id: &u32| {
        let called = fs::read(format!("/proc/{id}/comm"));
        let theirs = fs::read_link(format!("/proc/{id}/ns/net"));
        called.is_ok_and(|called| called.trim_ascii_end() == name)
            && theirs.is_ok_and(|theirs| theirs == namespace)
    };
    let processes = fs::read_dir("/proc").during("reading /proc")?.flatten();
    let mut ids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    Ok(ids.find(is_it))
}

/// What a command has printed.
pub(super) fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}
