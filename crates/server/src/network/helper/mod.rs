//! The helper: a process that keeps the privileges which the daemon gives away, and does the few things that take them.
//!
//! ```text
//!  millrace ─┬─ control thread ──request──▶ helper (ten capabilities, CAP_SYS_ADMIN for newXsk: process.rs)
//!            ├─ workers         ◀──reply────   attaches programs, opens AF_XDP sockets, binds kernel sockets
//!            └─ runtime          descriptors travel by SCM_RIGHTS (unix(7))
//! ```
//!
//! It is forked before anything else is done: one thread, no configuration, nothing of a client in its memory. It ends with
//! the daemon: the kernel kills it (unless it holds interrupts back, which it has to let first), and a closed socket ends it.
//! When it ends before, the daemon serves on, and what would have taken privileges is refused with that reason.
//!
//! At start the daemon has all privileges still and does everything itself.

pub mod process;
pub mod protocol;
pub mod successor;
pub(crate) mod sys;

use crate::log;
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, SockaddrStorage, setsockopt, socketpair, sockopt,
};
use nix::sys::time::{TimeVal, TimeValLike};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid};
use protocol::{Reply, Request};
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use successor::OwnProgram;
use xsk::{AttachMode, BusyPoll, Foreign, Handed, Program, Pulses, Spread};

/// How long the helper is waited for, in seconds: a driver may reset its device when a program is attached.
const ANSWERS_WITHIN: i64 = 10;

/// What `/metrics` shows of the helper.
#[derive(Debug, Default)]
pub struct HelperCounts {
    /// 1: it is there.
    pub alive: AtomicU64,
    /// Requests that it has answered.
    pub requests: AtomicU64,
    /// Those that it has refused, or that met no helper.
    pub refused: AtomicU64,
}

/// The daemon's end. Without a helper (it was never needed, or it is gone) the daemon tries by itself, which succeeds where
/// it keeps the privileges (addCapabilitiesToRetain) and otherwise says what is missing.
pub struct Helper {
    peer: Mutex<Option<Peer>>,
    /// There was one, and it has ended.
    is_lost: AtomicBool,
    pub counts: Arc<HelperCounts>,
    program: OwnProgram,
}

struct Peer {
    socket: OwnedFd,
    process: Pid,
    /// Its reply to the last request was not waited for any longer.
    is_late: bool,
}

/// Why something privileged was not done.
#[derive(Debug)]
pub enum HelperError {
    /// The kernel's or the helper's reason, with the error number where there is one.
    Refused { reason: String, number: Option<i32> },
    /// There is no helper any more: what happened to it.
    Gone(String),
}

impl fmt::Display for HelperError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HelperError::Refused { reason, .. } => out.write_str(reason),
            HelperError::Gone(what) => write!(
                out,
                "the privileged helper process is gone ({what}): a stop and a start of millrace make another one (`systemctl restart`, not `millrace restart`)"
            ),
        }
    }
}

impl HelperError {
    /// Something of somebody else's is there: a program on the interface, a socket on the address.
    pub fn is_busy(&self) -> bool {
        matches!(self, HelperError::Refused { number, .. } if *number == Some(libc::EBUSY))
    }

    /// The same error, and why the way around it is none.
    pub fn because(self, why: &HelperError) -> HelperError {
        match self {
            HelperError::Refused { reason, number } => HelperError::Refused {
                reason: format!("{reason}. Nor can its maps be used: {why}"),
                number,
            },
            gone @ HelperError::Gone(_) => gone,
        }
    }

    /// Another process has it now, and gives it back when it ends.
    pub fn is_again(&self) -> bool {
        matches!(self, HelperError::Refused { number, .. } if *number == Some(libc::EAGAIN))
    }
}

impl From<HelperError> for io::Error {
    fn from(error: HelperError) -> io::Error {
        match error {
            HelperError::Refused {
                number: Some(number),
                ..
            } => io::Error::from_raw_os_error(number),
            other => io::Error::other(other.to_string()),
        }
    }
}

impl From<xsk::Error> for HelperError {
    fn from(error: xsk::Error) -> HelperError {
        HelperError::Refused {
            number: error.raw_os_error(),
            reason: error.to_string(),
        }
    }
}

type Result<T> = std::result::Result<T, HelperError>;

impl Helper {
    /// Forks the helper, where there are privileges to keep. To be called while this process has one thread.
    ///
    /// # Errors
    /// The kernel gives no process or no descriptors.
    pub fn start() -> io::Result<Helper> {
        let helper = Helper::none();
        if !process::has_privileges() {
            return Ok(helper);
        }
        let (ours, theirs) = socketpair(
            AddressFamily::Unix,
            SockType::SeqPacket,
            None,
            SockFlag::SOCK_CLOEXEC,
        )?;
        setsockopt(
            &ours,
            sockopt::ReceiveTimeout,
            &TimeVal::seconds(ANSWERS_WITHIN),
        )?;
        let daemon = nix::unistd::getpid();
        match sys::fork()? {
            ForkResult::Child => {
                drop(ours);
                process::run(&theirs, daemon, &helper.program)
            }
            ForkResult::Parent { child } => {
                helper.counts.alive.store(1, Relaxed);
                *helper.peer() = Some(Peer {
                    socket: ours,
                    process: child,
                    is_late: false,
                });
                Ok(helper)
            }
        }
    }

    /// No helper: the daemon does by itself what it may.
    pub fn none() -> Helper {
        Helper {
            peer: Mutex::new(None),
            is_lost: AtomicBool::new(false),
            counts: Arc::default(),
            program: OwnProgram::default(),
        }
    }

    /// The helper's process, while it is there.
    pub fn process(&self) -> Option<Pid> {
        self.peer().as_ref().map(|peer| peer.process)
    }

    /// Whether it has ended since the last look: to be called once a second.
    pub fn look_after(&self) {
        let mut peer = self.peer();
        let ended = peer
            .as_ref()
            .map(|peer| waitpid(peer.process, Some(WaitPidFlag::WNOHANG)));
        if let Some(Ok(status)) = ended
            && status.pid().is_some()
        {
            self.lose(&mut peer, &how_it_ended(status));
        }
    }

    /// Gets an interface (index) our program with empty tables, by a link that is to `keep` or not; how it is attached, for the
    /// log.
    ///
    /// # Errors
    /// Why it cannot be: there is no such interface, or another program is there.
    pub fn attach(
        &self,
        interface: u32,
        keep: bool,
        mode: AttachMode,
    ) -> Result<(Program, String)> {
        if self.process().is_none() {
            return Ok(process::attached(interface, keep, mode)?);
        }
        let request = Request::Attach {
            interface,
            keep,
            generic: mode == AttachMode::Generic,
        };
        let (reply, descriptors) = self.ask(&request, &[])?;
        let Reply::Attached {
            native,
            has_buffers,
            kept,
            how,
        } = reply
        else {
            return Err(unexpected(&reply));
        };
        let handed = Handed {
            interface,
            native,
            has_buffers,
            kept,
        };
        Ok((Program::take_over(handed, descriptors)?, how))
    }

    /// The pinned maps of somebody else's program on an interface (index), if it uses the socket map at `path`.
    ///
    /// # Errors
    /// It does not, or this takes CAP_SYS_ADMIN, which is not there: no newXsk was in the configuration at start.
    pub fn open_maps(&self, interface: u32, path: &Path) -> Result<Foreign> {
        if self.process().is_none() {
            return Ok(Foreign::open(interface, path)?);
        }
        let path = path.to_owned();
        let program = xsk::attached_program(interface)?;
        let (_, maps) = self.ask(&Request::OpenMaps { interface, path }, &[])?;
        Ok(Foreign::of(maps, interface, program)?)
    }

    /// Nothing of somebody else's will be used.
    pub fn forgo(&self) {
        // Without a helper there is nothing to give up; one that cannot is as privileged as before.
        if self.process().is_some()
            && let Err(error) = self.ask(&Request::Forgo, &[])
        {
            log::warn!("the privileged helper process keeps CAP_SYS_ADMIN: {error}");
        }
    }

    /// Puts our program on its interface once more, for queues that it does not run on yet; `ends` are those of
    /// [`Program::ends`].
    ///
    /// # Errors
    /// The kernel refuses: the interface is gone.
    pub fn renew(&self, ends: &[OwnedFd]) -> Result<()> {
        if self.process().is_none() {
            return Ok(Program::renew(ends)?);
        }
        let ends: Vec<_> = ends.iter().map(AsFd::as_fd).collect();
        self.ask(&Request::Renew, &ends)?;
        Ok(())
    }

    /// An AF_XDP socket that is bound to nothing, for this queue of an interface (index); with `memory` for frames registered,
    /// if there is some (xsk::Umem::shared_memory), and polled if that is wished and can be had (xsk::Socket::busy_poll tells).
    ///
    /// # Errors
    /// There is no such interface or queue.
    pub fn open_socket(
        &self,
        interface: u32,
        queue: u32,
        busy_poll: Option<BusyPoll>,
        memory: Option<&OwnedFd>,
    ) -> Result<OwnedFd> {
        if self.process().is_none() {
            return Ok(process::opened(busy_poll, memory)?);
        }
        let busy_poll = busy_poll.map(|wish| (wish.microseconds, wish.budget));
        let request = Request::OpenSocket {
            interface,
            queue,
            busy_poll,
        };
        let memory: Vec<_> = memory.iter().map(|memory| memory.as_fd()).collect();
        self.ask(&request, &memory)?
            .1
            .pop()
            .ok_or_else(nothing_came)
    }

    /// Holds an interface's (index) interrupts back, or lets them: the helper sets them as they were when it ends, which it does
    /// after this process, however this one ends.
    ///
    /// # Errors
    /// The kernel does not let it, another process holds them back, or there is no helper, which alone could set them back.
    pub fn hold_interrupts(&self, interface: u32, hold: bool) -> Result<()> {
        let request = match hold {
            true => Request::HoldInterrupts { interface },
            false => Request::LetInterrupts { interface },
        };
        self.ask(&request, &[])?;
        Ok(())
    }

    /// Binds a kernel socket, by the helper where the daemon may not do it (a port below 1,024).
    ///
    /// # Errors
    /// The kernel's: the address is in use, or not ours.
    pub fn bind(&self, socket: &OwnedFd, address: SocketAddr) -> io::Result<()> {
        match nix::sys::socket::bind(socket.as_raw_fd(), &SockaddrStorage::from(address)) {
            Err(nix::Error::EACCES) if self.process().is_some() => {}
            done => return Ok(done?),
        }
        self.ask(&Request::Bind { address }, &[socket.as_fd()])?;
        Ok(())
    }

    /// The program that spreads datagrams over the kernel sockets of so many workers.
    ///
    /// # Errors
    /// Why it cannot be loaded.
    pub fn spread(&self, pulses: &Pulses, workers: u32) -> Result<Spread> {
        if self.process().is_none() {
            return Ok(Spread::load(pulses, workers)?);
        }
        let map = pulses.hand_over()?;
        let (_, parts) = self.ask(&Request::Spread { workers }, &[map.as_fd()])?;
        Ok(Spread::take_over(pulses, workers, parts)?)
    }

    /// Starts the program that this process was started from, as it is on the disk now, with the same arguments and one end of
    /// a socket as its standard input: it is to succeed this process. Its number.
    ///
    /// # Errors
    /// There is no such program, or no process for it; or the helper is gone, without which that process had no privileges.
    pub fn start_successor(&self, end: &OwnedFd) -> Result<i32> {
        if self.is_lost.load(Relaxed) {
            return Err(HelperError::Gone(
                "it would have started the next process".to_owned(),
            ));
        }
        if self.process().is_none() {
            return self.program.start(end.try_clone().map_err(started)?);
        }
        match self.ask(&Request::StartSuccessor, &[end.as_fd()])?.0 {
            Reply::Started { process } => Ok(process),
            other => Err(unexpected(&other)),
        }
    }

    /// One request and its reply.
    fn ask(&self, request: &Request, with: &[BorrowedFd<'_>]) -> Result<(Reply, Vec<OwnedFd>)> {
        let mut peer = self.peer();
        let Some(there) = peer.as_mut() else {
            return Err(HelperError::Gone("it has ended".to_owned()));
        };
        match there.ask(request, with) {
            Ok((Reply::Refused { reason, number }, _)) => {
                self.counts.requests.fetch_add(1, Relaxed);
                self.counts.refused.fetch_add(1, Relaxed);
                Err(HelperError::Refused { reason, number })
            }
            Ok(answer) => {
                self.counts.requests.fetch_add(1, Relaxed);
                Ok(answer)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.counts.refused.fetch_add(1, Relaxed);
                let reason = format!(
                    "the privileged helper process is busy with a request since {ANSWERS_WITHIN} s or more: until it has answered that one, all others are refused"
                );
                Err(HelperError::Refused {
                    reason,
                    number: None,
                })
            }
            Err(error) => {
                self.counts.refused.fetch_add(1, Relaxed);
                let what = error.to_string();
                self.lose(&mut peer, &what);
                Err(HelperError::Gone(what))
            }
        }
    }

    fn lose(&self, peer: &mut Option<Peer>, what: &str) {
        *peer = None;
        self.is_lost.store(true, Relaxed);
        self.counts.alive.store(0, Relaxed);
        log::warn!(
            "the privileged helper process has ended ({what}): what serves goes on; AF_XDP queues, interfaces and ports below 1,024 that are needed from now on are refused until a stop and a start"
        );
    }

    fn peer(&self) -> MutexGuard<'_, Option<Peer>> {
        self.peer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Peer {
    /// One request and its reply. Whoever asks while an earlier reply is late is not kept waiting again.
    ///
    /// # Errors
    /// `WouldBlock`: the reply is late. Others: it will never come.
    fn ask(
        &mut self,
        request: &Request,
        with: &[BorrowedFd<'_>],
    ) -> io::Result<(Reply, Vec<OwnedFd>)> {
        let there = |message: Option<_>| message.ok_or(io::ErrorKind::UnexpectedEof.into());
        if self.is_late {
            // With it goes what it brings: a program whose link is closed is off its interface.
            sys::receive_now::<Reply>(&self.socket).and_then(there)?;
            self.is_late = false;
        }
        sys::send(&self.socket, request, with)?;
        let received = sys::receive::<Reply>(&self.socket);
        self.is_late = received
            .as_ref()
            .is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock);
        received.and_then(there)
    }
}

fn started(error: io::Error) -> HelperError {
    HelperError::Refused {
        number: error.raw_os_error(),
        reason: format!("starting the next process: {error}"),
    }
}

fn unexpected(reply: &Reply) -> HelperError {
    HelperError::Refused {
        reason: format!("the privileged helper answered something else: {reply:?}"),
        number: None,
    }
}

fn nothing_came() -> HelperError {
    HelperError::Refused {
        reason: "the privileged helper sent no descriptor".to_owned(),
        number: None,
    }
}

/// In words, for the log.
fn how_it_ended(status: WaitStatus) -> String {
    match status {
        WaitStatus::Exited(_, code) => format!("exit status {code}"),
        WaitStatus::Signaled(_, signal, _) => format!("killed by {signal}"),
        other => format!("{other:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A helper that is whoever has the other end, and is waited for a hundredth of a second.
    fn helper() -> (Helper, OwnedFd) {
        let (kind, flags) = (SockType::SeqPacket, SockFlag::SOCK_CLOEXEC);
        let (ours, theirs) = socketpair(AddressFamily::Unix, kind, None, flags).unwrap();
        setsockopt(&ours, sockopt::ReceiveTimeout, &TimeVal::milliseconds(10)).unwrap();
        let helper = Helper::none();
        *helper.peer() = Some(Peer {
            socket: ours,
            process: nix::unistd::getpid(),
            is_late: false,
        });
        (helper, theirs)
    }

    #[test]
    fn its_end_is_told_in_words() {
        let process = nix::unistd::getpid();
        let killed = WaitStatus::Signaled(process, nix::sys::signal::Signal::SIGKILL, false);
        assert_eq!(how_it_ended(killed), "killed by SIGKILL");
        let exited = WaitStatus::Exited(process, 3);
        assert_eq!(how_it_ended(exited), "exit status 3");
    }

    fn is_busy(asked: Result<(Reply, Vec<OwnedFd>)>) -> bool {
        matches!(asked, Err(HelperError::Refused { reason, number: None }) if reason.contains("is busy"))
    }

    /// A machine under load may take longer than it is waited for: neither the helper nor its next replies are lost by that.
    #[test]
    fn a_reply_that_is_late_refuses_requests_until_it_has_come_and_is_taken_for_no_other() {
        let (helper, theirs) = helper();
        let asked = |helper: &Helper| helper.ask(&Request::Spread { workers: 1 }, &[]);
        assert!(is_busy(asked(&helper)));
        assert!(is_busy(asked(&helper)));
        // The second one was not sent.
        let (first, _) = sys::receive::<Request>(&theirs).unwrap().unwrap();
        assert_eq!(first, Request::Spread { workers: 1 });
        sys::receive_now::<Request>(&theirs).unwrap_err();
        let (late, in_time) = (Reply::Started { process: 1 }, Reply::Started { process: 2 });
        sys::send(&theirs, &late, &[]).unwrap();
        // This one goes out, and its reply, which lies behind the late one, is its own.
        sys::send(&theirs, &in_time, &[]).unwrap();
        assert_eq!(asked(&helper).unwrap().0, in_time);
        assert_eq!(helper.counts.refused.load(Relaxed), 2);
        assert_eq!(helper.counts.requests.load(Relaxed), 1);
        assert!(helper.process().is_some());
    }

    #[test]
    fn who_closes_while_a_reply_is_late_is_gone() {
        let (helper, theirs) = helper();
        let forgone = |helper: &Helper| helper.ask(&Request::Forgo, &[]);
        assert!(is_busy(forgone(&helper)));
        drop(theirs);
        assert!(matches!(forgone(&helper), Err(HelperError::Gone(_))));
        assert!(helper.process().is_none() && helper.is_lost.load(Relaxed));
    }
}
