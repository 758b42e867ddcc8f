//! One named network namespace, and how work gets into it: a thread enters for good and ends, while
//! the sockets and processes it made stay inside.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, setns, unshare};

use crate::{During, Failure, Outcome, sys};

/// A network namespace that `ip netns add` made; its name is the file under /run/netns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Namespace {
    name: String,
}

impl Namespace {
    /// Names a namespace; nothing is made or checked.
    pub fn named(name: impl Into<String>) -> Self {
        Self { name: name.into() }
    }

    /// Its name, as `ip netns list` prints it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// True if it exists now.
    pub fn exists(&self) -> bool {
        self.path().exists()
    }

    fn path(&self) -> PathBuf {
        Path::new("/run/netns").join(&self.name)
    }

    /// Makes it, with its loopback interface up.
    pub fn create(&self) -> Outcome<()> {
        run("ip", &["netns", "add", &self.name])?;
        self.ip("link set lo up\n")
    }

    /// Removes it with the interfaces in it.
    pub fn remove(&self) -> Outcome<()> {
        run("ip", &["netns", "del", &self.name])
    }

    /// Runs `ip` inside, one command a line.
    ///
    /// Not as `ip -n`: that changes mounts, which fails where `/` is no mount point (in a chroot).
    pub fn ip(&self, lines: &str) -> Outcome<()> {
        let mut command = Command::new("ip");
        command
            .args(["-batch", "-"])
            .stdin(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = self.run(|| command.spawn())?.during("starting ip")?;
        let mut input = child.stdin.take().expect("stdin is piped");
        input.write_all(lines.as_bytes()).during("writing to ip")?;
        drop(input);
        let output = child.wait_with_output().during("waiting for ip")?;
        if output.status.success() {
            return Ok(());
        }
        let complaint = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        Err(Failure::new(format!(
            "ip in {} with\n{lines}{complaint}",
            self.name
        )))
    }

    /// Runs a command inside to its end and gives what it printed.
    pub fn output(&self, program: &str, arguments: &[&str]) -> Outcome<String> {
        let output = self.run(|| Command::new(program).args(arguments).output())?;
        let output = output.during(format!("starting {program}"))?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Runs `work` on a thread of its own that has entered. Sockets it opens stay in the namespace
    /// whoever uses them later.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Outcome<T> {
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| self.enter().map(|()| work()));
            thread.join().expect("work in a namespace does not panic")
        })
    }

    /// Starts a process inside, with what `ip netns exec` gives (a /sys that shows these interfaces)
    /// and what it hides: `bpffs` becomes the process's /sys/fs/bpf, so that pins outlive the process
    /// and are nobody else's. No signal is blocked in it, though this process may block some.
    pub fn spawn(&self, command: &mut Command, bpffs: Option<&Path>) -> Outcome<Child> {
        sys::unblock_signals(command);
        let child = self.run(|| {
            own_mounts(bpffs)?;
            command
                .spawn()
                .during(format!("starting {}", command.get_program().display()))
        })?;
        child.during(format!("in namespace {}", self.name))
    }

    fn enter(&self) -> Outcome<()> {
        let file = File::open(self.path()).during(format!("opening {}", self.path().display()))?;
        setns(file, CloneFlags::CLONE_NEWNET).during(format!("entering namespace {}", self.name))
    }
}

/// Binds a socket that somebody here has just closed. A process that is being started holds copies of
/// all our descriptors until it executes its program, and nothing tells when that is.
pub fn bind_when_free<T>(mut bind: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        match bind() {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && Instant::now() < deadline => {
                std::thread::park_timeout(Duration::from_millis(5));
            }
            outcome => return outcome,
        }
    }
}

/// Gives the calling thread mounts of its own.
fn own_mounts(bpffs: Option<&Path>) -> Outcome<()> {
    const NONE: Option<&str> = None;
    unshare(CloneFlags::CLONE_NEWNS).during("unsharing mounts")?;
    // In a chroot `/` is no mount point; then it is enough that what we mount over is nobody else's.
    let make_private = |place| {
        mount(
            NONE,
            place,
            NONE,
            MsFlags::MS_REC | MsFlags::MS_PRIVATE,
            NONE,
        )
    };
    make_private("/")
        .or_else(|_| make_private("/sys"))
        .during("making mounts private")?;
    mount(Some("sysfs"), "/sys", Some("sysfs"), MsFlags::empty(), NONE).during("mounting /sys")?;
    if let Some(bpffs) = bpffs {
        mount(Some(bpffs), "/sys/fs/bpf", NONE, MsFlags::MS_BIND, NONE)
            .during(format!("binding {} to /sys/fs/bpf", bpffs.display()))?;
    }
    Ok(())
}

/// Runs a command to its end and turns what it complains about into the failure.
pub fn run(program: &str, arguments: &[&str]) -> Outcome<()> {
    let output = Command::new(program)
        .args(arguments)
        .output()
        .during(format!("starting {program}"))?;
    if output.status.success() {
        return Ok(());
    }
    let complaint = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(Failure::new(format!(
        "{program} {}: {complaint}",
        arguments.join(" ")
    )))
}
