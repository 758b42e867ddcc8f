//! fork(2), and descriptors that came by SCM_RIGHTS or with the start of the process.
#![allow(unsafe_code)] // this file is one of those that may: each block says why it is sound

use nix::sys::socket::{ControlMessage, ControlMessageOwned, MsgFlags, recvmsg, sendmsg};
use nix::unistd::ForkResult;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// Octets of the longest message.
const MESSAGE: usize = 4_096;

/// Descriptors of one message, at most: those of a program.
const DESCRIPTORS: usize = 16;

/// Attempts of one call, at most: each has the socket's whole time-out again.
const ATTEMPTS_MAX: u32 = 100;

/// Makes a system call again when it ends with EINTR, which needs no signal handler where the socket has a time-out. signal(7):
/// "certain blocking interfaces can fail with the error EINTR after the process is stopped by one of the stop signals and then
/// resumed via SIGCONT", and so it is when the machine is frozen for a snapshot. Nobody loses a helper or a successor by that.
fn again_if_interrupted<T>(mut attempt: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    for _ in 1..ATTEMPTS_MAX {
        match attempt() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            outcome => return outcome,
        }
    }
    attempt()
}

/// Makes a second process.
///
/// # Errors
/// There are other threads, whose locks the child would never see opened; or the kernel's.
pub(super) fn fork() -> io::Result<ForkResult> {
    let threads = std::fs::read_dir("/proc/self/task").map_or(1, Iterator::count);
    if threads != 1 {
        return Err(io::Error::other(format!(
            "{threads} threads run already: the helper must be forked before"
        )));
    }
    // SAFETY: this is the only thread, so that the child has all that the parent has, and no lock is held by a thread that
    // it lacks.
    Ok(unsafe { nix::unistd::fork()? })
}

/// Sends one message with descriptors, which stay ours.
pub(crate) fn send(
    socket: &OwnedFd,
    message: &impl Serialize,
    with: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let text = serde_json::to_vec(message)?;
    let descriptors: Vec<RawFd> = with.iter().map(AsRawFd::as_raw_fd).collect();
    let rights = [ControlMessage::ScmRights(&descriptors)];
    let rights = if with.is_empty() { &[] } else { &rights[..] };
    let parts = [IoSlice::new(&text)];
    let flags = MsgFlags::MSG_NOSIGNAL;
    again_if_interrupted(|| {
        sendmsg::<()>(socket.as_raw_fd(), &parts, rights, flags, None)?;
        Ok(())
    })
}

/// The next message and the descriptors that came with it; `None`: the other end is closed.
///
/// # Errors
/// The kernel's, or a message that is none of ours.
pub(crate) fn receive<T: DeserializeOwned>(
    socket: &OwnedFd,
) -> io::Result<Option<(T, Vec<OwnedFd>)>> {
    again_if_interrupted(|| receive_once(socket, MsgFlags::empty()))
}

/// The same of a message that is there already.
///
/// # Errors
/// `WouldBlock`: none is.
pub(super) fn receive_now<T: DeserializeOwned>(
    socket: &OwnedFd,
) -> io::Result<Option<(T, Vec<OwnedFd>)>> {
    again_if_interrupted(|| receive_once(socket, MsgFlags::MSG_DONTWAIT))
}

fn receive_once<T: DeserializeOwned>(
    socket: &OwnedFd,
    flags: MsgFlags,
) -> io::Result<Option<(T, Vec<OwnedFd>)>> {
    let mut text = [0; MESSAGE];
    let mut room = nix::cmsg_space!([RawFd; DESCRIPTORS]);
    let mut parts = [IoSliceMut::new(&mut text)];
    let received = recvmsg::<()>(
        socket.as_raw_fd(),
        &mut parts,
        Some(&mut room),
        MsgFlags::MSG_CMSG_CLOEXEC | flags,
    )?;
    let mut descriptors = Vec::new();
    for message in received.cmsgs()? {
        if let ControlMessageOwned::ScmRights(rights) = message {
            // SAFETY: the kernel has just opened them for us, and nobody else has them.
            let owned = rights
                .into_iter()
                .map(|right| unsafe { OwnedFd::from_raw_fd(right) });
            descriptors.extend(owned);
        }
    }
    let (length, flags) = (received.bytes, received.flags);
    if length == 0 {
        return Ok(None);
    }
    if flags.intersects(MsgFlags::MSG_TRUNC | MsgFlags::MSG_CTRUNC) {
        return Err(io::Error::other("a message was cut"));
    }
    Ok(Some((
        serde_json::from_slice(&text[..length])?,
        descriptors,
    )))
}

/// The descriptor of this number, that whoever started this process has opened for it; the value goes with programs that are run
/// from here no more. To be called once for each number.
pub(crate) fn given(number: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: LISTEN_FDS names it as ours (sd_listen_fds(3)), nothing in this process has opened or closed it, and the caller
    // asks for it once.
    let descriptor = unsafe { OwnedFd::from_raw_fd(number) };
    // A duplicate closes on exec, which this one does not.
    descriptor.try_clone()
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
    use nix::sys::socket::{AddressFamily, SockFlag, SockType, setsockopt, socketpair, sockopt};
    use nix::sys::time::{TimeVal, TimeValLike};
    use std::os::unix::thread::JoinHandleExt;
    use std::path::Path;
    use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
    use std::sync::mpsc::channel;
    use std::time::{Duration, Instant};

    /// How long something is awaited that comes at once.
    const PATIENCE: Duration = Duration::from_secs(10);

    static INTERRUPTIONS: AtomicU32 = AtomicU32::new(0);

    extern "C" fn count(_: libc::c_int) {
        INTERRUPTIONS.fetch_add(1, Relaxed);
    }

    fn until(what: &str, is_so: impl Fn() -> bool) {
        let began = Instant::now();
        while !is_so() {
            assert!(began.elapsed() < PATIENCE, "not in {PATIENCE:?}: {what}");
            std::thread::park_timeout(Duration::from_millis(1));
        }
    }

    /// Whether the thread of this folder in /proc sleeps in recvmsg(2). proc_pid_syscall(5): "exposes the system call number and
    /// argument registers for the system call currently being executed by the process"; of one that runs it says "running".
    fn waits_for_a_message(thread: &Path) -> bool {
        let call = std::fs::read_to_string(thread.join("syscall")).unwrap_or_default();
        call.split(' ').next() == Some(libc::SYS_recvmsg.to_string().as_str())
    }

    /// The handler stands for SIGSTOP and SIGCONT, which would stop the test as well.
    #[test]
    fn an_interruption_ends_no_wait_for_a_message() {
        let handler = SigHandler::Handler(count);
        let action = SigAction::new(handler, SaFlags::empty(), SigSet::empty());
        // SAFETY: the handler only counts, and no other test has one for this signal.
        let former = unsafe { sigaction(Signal::SIGUSR2, &action) };
        former.unwrap();
        let (kind, flags) = (SockType::SeqPacket, SockFlag::SOCK_CLOEXEC);
        let (ours, theirs) = socketpair(AddressFamily::Unix, kind, None, flags).unwrap();
        setsockopt(&ours, sockopt::ReceiveTimeout, &TimeVal::seconds(60)).unwrap();
        let (tells, told) = channel();
        let waiting = std::thread::spawn(move || {
            tells.send(std::fs::read_link("/proc/thread-self")).unwrap();
            receive::<u32>(&ours)
        });
        let folder = Path::new("/proc").join(told.recv().unwrap().unwrap());
        let thread = waiting.as_pthread_t();
        for number in 1..=ATTEMPTS_MAX / 2 {
            // A signal that comes before the wait interrupts nothing.
            until("the thread waits", || waits_for_a_message(&folder));
            // SAFETY: the thread was not joined yet: its number is nobody else's.
            let sent = unsafe { libc::pthread_kill(thread, libc::SIGUSR2) };
            assert_eq!(sent, 0);
            let came = || INTERRUPTIONS.load(Relaxed) == number;
            until("it is interrupted", came);
        }
        send(&theirs, &7_u32, &[]).unwrap();
        let received = waiting.join().unwrap().unwrap();
        assert!(received.is_some_and(|(number, with)| number == 7 && with.is_empty()));
    }
}
