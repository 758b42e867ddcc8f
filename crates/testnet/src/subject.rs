//! The server under test: ours, or a real dnsdist with the same configuration. `SUBJECT` chooses:
//! `dnsdist` (the program that `DNSDIST` names, else the one in the path) or a path to `millrace`.

use std::fs::{self, File};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::lab::Lab;
use crate::process::Process;
use crate::sys::{self, Denied};
use crate::{During, Failure, Outcome, metrics};

/// Which way queries take into the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Door {
    /// Kernel sockets.
    Sockets,
    /// AF_XDP.
    Xdp,
}

impl Door {
    /// The word for it in scenarios and on the command line.
    pub fn word(self) -> &'static str {
        match self {
            Self::Sockets => "sockets",
            Self::Xdp => "xdp",
        }
    }

    /// The door of this word.
    pub fn of_word(word: &str) -> Option<Self> {
        [Self::Sockets, Self::Xdp]
            .into_iter()
            .find(|door| door.word() == word)
    }

    /// What stands for `$LISTEN` and `$BACKEND` in a configuration.
    pub fn options(self) -> (&'static str, &'static str) {
        match self {
            Self::Sockets => ("reusePort=true", ""),
            Self::Xdp => ("xdp=true", "xdp=true"),
        }
    }
}

/// Whose server it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SubjectKind {
    /// Ours.
    Millrace,
    /// The one whose language we speak.
    Dnsdist,
}

impl SubjectKind {
    /// The word for it in scenarios and in `SUBJECT`.
    pub fn word(self) -> &'static str {
        match self {
            Self::Millrace => "millrace",
            Self::Dnsdist => "dnsdist",
        }
    }

    /// The kind of this word.
    pub fn of_word(word: &str) -> Option<Self> {
        [Self::Millrace, Self::Dnsdist]
            .into_iter()
            .find(|kind| kind.word() == word)
    }

    /// What every configuration begins with: /metrics, an ACL that lets the lab's addresses in, no
    /// questions to the Internet.
    fn prelude(self) -> String {
        let common = format!(
            "webserver(\"{}\")\nsetACL({{\"0.0.0.0/0\", \"::/0\"}})\nsetSecurityPollSuffix(\"\")\n",
            metrics::ADDRESS
        );
        match self {
            Self::Millrace => common,
            Self::Dnsdist => {
                common
                    + &format!(
                        "setWebserverConfig({{password=\"lab\", apiKey=\"{}\"}})\n",
                        metrics::API_KEY
                    )
            }
        }
    }
}

/// A server program to test.
#[derive(Debug, Clone)]
pub struct Subject {
    /// Whose it is.
    pub kind: SubjectKind,
    /// The program.
    pub program: PathBuf,
}

impl Subject {
    /// What `SUBJECT` says; without it the `millrace` that was built beside this program, if it was.
    pub fn from_environment() -> Outcome<Option<Self>> {
        match std::env::var("SUBJECT") {
            Ok(word) if word == SubjectKind::Dnsdist.word() => {
                let program =
                    std::env::var_os("DNSDIST").map_or_else(|| "dnsdist".into(), PathBuf::from);
                Ok(Some(Self {
                    kind: SubjectKind::Dnsdist,
                    program,
                }))
            }
            Ok(path) => {
                let program = fs::canonicalize(&path).during(format!("SUBJECT={path}"))?;
                Ok(Some(Self {
                    kind: SubjectKind::Millrace,
                    program,
                }))
            }
            Err(_) => Ok(built_beside_us().map(|program| Self {
                kind: SubjectKind::Millrace,
                program,
            })),
        }
    }

    /// The doors that it has.
    pub fn doors(&self) -> &'static [Door] {
        match self.kind {
            SubjectKind::Millrace => &[Door::Sockets, Door::Xdp],
            SubjectKind::Dnsdist => &[Door::Sockets],
        }
    }
}

/// `target/debug/deps/scenarios-…` and `target/debug/lab` both find `target/debug/millrace`.
fn built_beside_us() -> Option<PathBuf> {
    let own = std::env::current_exe().ok()?;
    own.ancestors()
        .skip(1)
        .take(2)
        .map(|folder| folder.join("millrace"))
        .find(|program| program.is_file())
}

/// How a server is started: words before its own, and what it must do without.
#[derive(Debug, Clone, Default)]
pub struct StartedBy {
    /// A program that starts the rest of its words: `prlimit --memlock=65536`.
    pub command: Vec<String>,
    /// What the kernel refuses.
    pub denied: Vec<Denied>,
}

impl StartedBy {
    fn command(&self, program: &Path) -> Command {
        let mut words = self.command.iter();
        let mut command = match words.next() {
            Some(first) => Command::new(first),
            None => Command::new(program),
        };
        if !self.command.is_empty() {
            command.args(words).arg(program);
        }
        sys::deny(&mut command, &self.denied);
        command
    }
}

/// A running server.
pub struct Server {
    kind: SubjectKind,
    process: Process,
    log: PathBuf,
}

impl Server {
    /// Writes the configuration into `folder` and starts the subject in the lab's server namespace.
    pub fn start(
        subject: &Subject,
        lab: &Lab,
        (configuration, by): (&str, &StartedBy),
        folder: &Path,
    ) -> Outcome<Self> {
        let file = folder.join("server.lua");
        let log = folder.join("server.log");
        fs::write(&file, subject.kind.prelude() + configuration)
            .during(format!("writing {}", file.display()))?;
        let output = File::options().append(true).create(true).open(&log);
        let output = output.during(format!("opening {}", log.display()))?;
        let errors = output.try_clone().during("sharing the log")?;
        let mut command = by.command(&subject.program);
        command
            .arg("--supervised")
            .arg("-C")
            .arg(&file)
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(errors);
        match subject.kind {
            SubjectKind::Dnsdist => command.arg("--disable-syslog"),
            SubjectKind::Millrace => command.arg("--control").arg(folder.join("control")),
        };
        let child = lab.server().spawn(&mut command, Some(&lab.bpffs()))?;
        let process = Process::new(subject.kind.word(), child, lab.ledger())?;
        Ok(Self {
            kind: subject.kind,
            process,
            log,
        })
    }

    /// Awaits that TCP connects to `address` from the clients' side.
    pub fn await_ready(&mut self, lab: &Lab, address: SocketAddr, within: Duration) -> Outcome<()> {
        let connect = || TcpStream::connect_timeout(&address, Duration::from_millis(200)).map(drop);
        self.until(within, &format!("TCP to {address} to connect"), || {
            Ok(lab.client().run(connect)?.is_ok())
        })
    }

    /// Awaits a line with `text` in what the server writes.
    pub fn await_log(&mut self, text: &str, within: Duration) -> Outcome<()> {
        self.await_log_times(text, 1, within)
    }

    /// Awaits that it has written `text` so often.
    pub fn await_log_times(&mut self, text: &str, times: usize, within: Duration) -> Outcome<()> {
        let log = self.log.clone();
        self.until(
            within,
            &format!("the server to say `{text}` ({times} times)"),
            || {
                let written = fs::read_to_string(&log).during("reading the log")?;
                Ok(written.matches(text).count() >= times)
            },
        )
    }

    /// Checks that so many lines of what it has written until now have this text.
    pub fn check_logged(&self, text: &str, lines: usize) -> Outcome<()> {
        let written = fs::read_to_string(&self.log).during("reading the log")?;
        let found: Vec<&str> = written.lines().filter(|line| line.contains(text)).collect();
        if found.len() == lines {
            return Ok(());
        }
        Err(Failure::new(format!(
            "{} lines of the log say `{text}`, {lines} expected:\n{}",
            found.len(),
            found.join("\n")
        )))
    }

    /// Awaits that it is so, as `Process::until` does.
    pub fn until(
        &mut self,
        within: Duration,
        what: &str,
        is_so: impl FnMut() -> Outcome<bool>,
    ) -> Outcome<()> {
        self.process.until(within, what, is_so)
    }

    /// Its number, for whoever looks at /proc.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) -> Outcome<()> {
        self.process.signal(signal)
    }

    /// SIGTERM; it must end with status 0 within 5 s (reference, 0.1).
    pub fn stop(mut self) -> Outcome<()> {
        self.end(false)
    }

    /// SIGTERM at a moment of its start: it ends as `stop` says, or by the signal where it had not begun to listen to it.
    pub fn end_early(mut self, after: Duration) -> Outcome<()> {
        if self.process.ended_within(after)?.is_some() {
            return Err(Failure::new("the server ended by itself while it started"));
        }
        let status = self.process.terminate(END)?;
        let by_signal = status.signal() == Some(Signal::SIGTERM as i32);
        match status.success() || by_signal {
            true => Ok(()),
            false => Err(Failure::new(format!(
                "after SIGTERM during its start the server ended with {status}"
            ))),
        }
    }

    /// Awaits its end after a SIGTERM that was sent already.
    pub fn await_end(&mut self) -> Outcome<()> {
        let status = self.process.ended_within(END)?;
        match status {
            Some(status) if status.success() => Ok(()),
            other => Err(Failure::new(format!(
                "after SIGTERM the server ended with {other:?}, not with status 0"
            ))),
        }
    }

    /// Ends a server that was started while another one ended: it serves, or has refused with status 1.
    pub fn end_overlapped(mut self) -> Outcome<()> {
        match self.process.ended_within(Duration::from_millis(300))? {
            Some(status) if status.code() == Some(1) => Ok(()),
            Some(status) => Err(Failure::new(format!(
                "started while another one ended, the server ended with {status}"
            ))),
            None => self.end_or_refusal(),
        }
    }

    /// SIGTERM: it ends by that, or refuses all the same where the machine is slow.
    fn end_or_refusal(&mut self) -> Outcome<()> {
        self.process.signal(Signal::SIGTERM)?;
        let status = self.process.ended_within(END)?;
        let is_right = |status: &ExitStatus| {
            let by_signal = status.signal() == Some(Signal::SIGTERM as i32);
            status.success() || by_signal || status.code() == Some(1)
        };
        match status {
            Some(status) if is_right(&status) => Ok(()),
            other => Err(Failure::new(format!(
                "after SIGTERM while another one ended the server ended with {other:?}"
            ))),
        }
    }

    /// Ends it: as `stop` does, or with SIGKILL.
    pub fn end(&mut self, killed: bool) -> Outcome<()> {
        if killed {
            self.process.signal(Signal::SIGKILL)?;
            return match self.process.ended_within(PATIENCE)? {
                Some(_) => Ok(()),
                None => Err(Failure::new("the server outlives SIGKILL")),
            };
        }
        let status = self.process.terminate(END)?;
        // 1.7.3 leaves the signal its default action, and so dies of it.
        let by_signal =
            self.kind == SubjectKind::Dnsdist && status.signal() == Some(Signal::SIGTERM as i32);
        if status.success() || by_signal {
            return Ok(());
        }
        Err(Failure::new(format!(
            "after SIGTERM the server ended with {status}, not with status 0"
        )))
    }
}

/// How long SIGTERM may take (reference, 0.1: "SIGTERM ends it with exit status 0 within 5 s").
const END: Duration = Duration::from_secs(5);

/// How long the kernel may take after SIGKILL.
const PATIENCE: Duration = Duration::from_secs(30);
