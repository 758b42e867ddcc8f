//! What systemd is told (sd_notify(3)): datagrams of `NAME=value` lines to the socket that NOTIFY_SOCKET names. Without one nothing
//! is said. Type=notify-reload: "the service manager will … wait for … RELOADING=1 … MONOTONIC_USEC=… followed by READY=1".

use crate::log;
use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, ControlMessage, MsgFlags, SockFlag, SockType, UnixAddr, sendmsg, socket,
};
use nix::time::{ClockId, clock_gettime};
use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::io::{self, IoSlice};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{LazyLock, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

/// By what name the descriptor store knows our listening sockets.
pub const STORED: &str = "millrace";

/// Descriptors of one message: the kernel takes 253.
const AT_ONCE: usize = 200;

/// Messages that may wait for room: some reloads' worth.
const WAITING_MAX: usize = 64;

/// The service manager of this process.
static MANAGER: LazyLock<Manager> =
    LazyLock::new(|| Manager::at(std::env::var_os("NOTIFY_SOCKET")));

/// The service has started, or has reloaded; `status` is what `systemctl status` shows.
pub fn ready(status: &str) {
    *MANAGER.shown() = status.to_owned();
    MANAGER.tell(format!("READY=1\nSTATUS={status}"));
}

/// Whether there is a service manager, which starts this process anew when it fails.
pub fn is_heard() -> bool {
    MANAGER.address.is_some()
}

/// What `systemctl status` shows from now on; what it shows already is not said again.
pub fn status(text: &str) {
    MANAGER.status(text);
}

/// The configuration is read anew; [`ready`] says when that is over, whatever became of it.
pub fn reloading() {
    let now =
        clock_gettime(ClockId::CLOCK_MONOTONIC).map_or(0, |now| Duration::from(now).as_micros());
    MANAGER.tell(format!("RELOADING=1\nMONOTONIC_USEC={now}"));
}

/// The service ends.
pub fn stopping() {
    MANAGER.tell("STOPPING=1".to_owned());
}

/// Another process of this service is the one to watch from now on.
pub fn main_process(process: i32) {
    MANAGER.tell(format!("MAINPID={process}"));
    MANAGER.is_main.store(false, Relaxed);
}

/// Another process of this service is the one to watch, until [`take_turn`].
pub fn await_turn() {
    MANAGER.is_main.store(false, Relaxed);
}

/// This process is the one to watch, or will be in a moment.
pub fn take_turn() {
    MANAGER.is_main.store(true, Relaxed);
}

/// Queries are served. What has no room is not kept: it is said again soon.
pub fn alive() {
    MANAGER.alive();
}

/// Says again what the service manager had no room for; to be called now and then.
pub fn again() {
    MANAGER.send_waiting(&mut MANAGER.waiting());
}

/// How often [`alive`] is waited for, if it is (sd_watchdog_enabled(3)): for this process, or, after a restart by hand-over, for
/// whichever is the main one.
pub fn watchdog_interval() -> Option<Duration> {
    let variable = |name| std::env::var(name).ok();
    let own = std::process::id().to_string();
    if variable("WATCHDOG_PID").is_some_and(|process| process != own) {
        return None;
    }
    let micros: u64 = variable("WATCHDOG_USEC")?.parse().ok()?;
    (micros > 0).then(|| Duration::from_micros(micros))
}

/// Leaves these sockets in the descriptor store (FileDescriptorStoreMax=); those that are there already stay as they are.
///
/// # Errors
/// They cannot be sent, or too much waits already.
pub fn keep(sockets: Vec<OwnedFd>) -> io::Result<()> {
    MANAGER.keep(sockets)
}

/// Takes all of our sockets out of the store: those that are closed would be kept open there.
pub fn forget() {
    MANAGER.forget();
}

/// One datagram.
struct Message {
    text: String,
    descriptors: Vec<OwnedFd>,
}

impl Message {
    fn of(text: String) -> Message {
        Message {
            text,
            descriptors: Vec::new(),
        }
    }
}

/// Who is told. Nobody waits for it: what its socket has no room for is kept, and said before anything else is.
struct Manager {
    /// $NOTIFY_SOCKET.
    address: Option<OsString>,
    /// What is sent by. Opened once: where clients have all the descriptors the service must not be taken for dead.
    end: OnceLock<OwnedFd>,
    waiting: Mutex<VecDeque<Message>>,
    /// The status that was told last.
    shown: Mutex<String>,
    /// This process is the one that is watched: no other is listened to (NotifyAccess=main), and what it says is a warning in
    /// the journal.
    is_main: AtomicBool,
}

impl Manager {
    fn at(address: Option<OsString>) -> Manager {
        Manager {
            address,
            end: OnceLock::new(),
            waiting: Mutex::default(),
            shown: Mutex::default(),
            is_main: AtomicBool::new(true),
        }
    }

    fn status(&self, text: &str) {
        let mut shown = self.shown();
        if *shown != text && self.is_main.load(Relaxed) {
            text.clone_into(&mut shown);
            self.tell(format!("STATUS={text}"));
        }
    }

    fn shown(&self) -> MutexGuard<'_, String> {
        // A text is whole whatever the holder died of.
        self.shown.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn alive(&self) {
        if self.is_main.load(Relaxed) {
            let message = Message::of("WATCHDOG=1".to_owned());
            self.log_failure(&message, self.try_send(&message));
        }
    }

    fn end(&self) -> io::Result<&OwnedFd> {
        if let Some(end) = self.end.get() {
            return Ok(end);
        }
        let flags = SockFlag::SOCK_CLOEXEC;
        let end = socket(AddressFamily::Unix, SockType::Datagram, flags, None)?;
        Ok(self.end.get_or_init(|| end))
    }

    /// A service manager that does not listen is no reason not to serve.
    fn tell(&self, text: String) {
        let message = Message::of(text);
        let mut waiting = self.waiting();
        self.send_waiting(&mut waiting);
        if waiting.is_empty() {
            match self.try_send(&message) {
                Err(error) if is_full(&error) => {}
                sent => return self.log_failure(&message, sent),
            }
        }
        // What was said last is what is true.
        if waiting.len() >= WAITING_MAX {
            waiting.pop_front();
        }
        waiting.push_back(message);
    }

    fn keep(&self, sockets: Vec<OwnedFd>) -> io::Result<()> {
        let mut waiting = self.waiting();
        self.send_waiting(&mut waiting);
        let mut sockets = sockets.into_iter();
        loop {
            let message = Message {
                text: format!("FDSTORE=1\nFDNAME={STORED}"),
                descriptors: sockets.by_ref().take(AT_ONCE).collect(),
            };
            if message.descriptors.is_empty() {
                return Ok(());
            }
            if waiting.is_empty() {
                match self.try_send(&message) {
                    Err(error) if is_full(&error) => {}
                    sent => {
                        sent?;
                        continue;
                    }
                }
            }
            if waiting.len() >= WAITING_MAX {
                return Err(io::Error::other("systemd does not read what it is told"));
            }
            waiting.push_back(message);
        }
    }

    fn forget(&self) {
        // What was to be stored, or forgotten, is no more.
        self.waiting()
            .retain(|message| !message.text.starts_with("FDSTORE"));
        self.tell(format!("FDSTOREREMOVE=1\nFDNAME={STORED}"));
    }

    fn waiting(&self) -> MutexGuard<'_, VecDeque<Message>> {
        // Messages are whole whatever the holder died of.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends what waits, in its order, as far as there is room.
    fn send_waiting(&self, waiting: &mut VecDeque<Message>) {
        while let Some(message) = waiting.front() {
            match self.try_send(message) {
                Err(error) if is_full(&error) => return,
                sent => self.log_failure(message, sent),
            }
            waiting.pop_front();
        }
    }

    fn log_failure(&self, message: &Message, sent: io::Result<()>) {
        if let Err(error) = sent {
            let text = &message.text;
            log::verbose!("systemd is not told {text:?}: {error}");
        }
    }

    /// Never waits: the socket of a service manager that does not read is full at last (net.unix.max_dgram_qlen).
    fn try_send(&self, message: &Message) -> io::Result<()> {
        let Some(path) = &self.address else {
            return Ok(());
        };
        let descriptors: Vec<RawFd> = message.descriptors.iter().map(AsRawFd::as_raw_fd).collect();
        let rights = [ControlMessage::ScmRights(&descriptors)];
        let rights = if descriptors.is_empty() {
            &[]
        } else {
            &rights[..]
        };
        sendmsg(
            self.end()?.as_raw_fd(),
            &[IoSlice::new(message.text.as_bytes())],
            rights,
            MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT,
            Some(&address(path)?),
        )?;
        Ok(())
    }
}

/// Whether there will be room another time.
fn is_full(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::WouldBlock || error.raw_os_error() == Some(Errno::ENOBUFS as i32)
}

/// "If the first character of $NOTIFY_SOCKET is "@", the string is understood as Linux abstract namespace socket."
fn address(path: &OsStr) -> io::Result<UnixAddr> {
    Ok(match path.as_bytes() {
        [b'@', name @ ..] => UnixAddr::new_abstract(name)?,
        name => UnixAddr::new(name)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixDatagram;
    use std::path::Path;
    use std::sync::Arc;
    use std::sync::mpsc::channel;

    /// How long what does not wait may take on a busy machine.
    const PATIENCE: Duration = Duration::from_secs(60);

    /// A service manager whose socket has no room.
    fn full() -> (tempfile::TempDir, UnixDatagram, Arc<Manager>) {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("notify");
        let socket = UnixDatagram::bind(&path).expect("a socket");
        socket.set_nonblocking(true).expect("a socket");
        fill(&path);
        let manager = Manager::at(Some(path.into_os_string()));
        (folder, socket, Arc::new(manager))
    }

    /// Sends until nobody can send any more: one sender's own room may end sooner.
    fn fill(path: &Path) {
        loop {
            let sender = UnixDatagram::unbound().expect("a socket");
            sender.set_nonblocking(true).expect("a socket");
            if sender.send_to(b"filling", path).is_err() {
                return;
            }
            while sender.send_to(b"filling", path).is_ok() {}
        }
    }

    /// Does it, on a thread that may hang.
    fn without_waiting(manager: &Arc<Manager>, work: impl FnOnce(&Manager) + Send + 'static) {
        let (done, is_done) = channel();
        let manager = Arc::clone(manager);
        std::thread::spawn(move || {
            work(&manager);
            // Who waited for it may have given up.
            let _ = done.send(());
        });
        is_done.recv_timeout(PATIENCE).expect("nobody waits");
    }

    /// What has come, without what filled the socket.
    fn read(socket: &UnixDatagram) -> Vec<String> {
        let mut buffer = [0; 256];
        let next = || {
            let length = socket.recv(&mut buffer).ok()?;
            Some(buffer[..length].to_vec())
        };
        let texts = std::iter::from_fn(next).map(|text| String::from_utf8(text).expect("text"));
        texts.filter(|text| text != "filling").collect()
    }

    #[test]
    fn nobody_waits_for_who_does_not_read_and_what_must_arrive_does() {
        let (_folder, socket, manager) = full();
        let (end, _other) = UnixDatagram::pair().expect("sockets");
        without_waiting(&manager, move |manager| {
            manager.tell("READY=1".to_owned());
            manager.forget();
            manager.keep(vec![end.into()]).expect("it is kept");
            let alive = manager.try_send(&Message::of("WATCHDOG=1".to_owned()));
            assert!(is_full(&alive.expect_err("there is no room")));
            manager.tell("STOPPING=1".to_owned());
            manager.send_waiting(&mut manager.waiting());
        });
        assert_eq!(read(&socket), [""; 0]);
        manager.send_waiting(&mut manager.waiting());
        let expected = [
            "READY=1",
            "FDSTOREREMOVE=1\nFDNAME=millrace",
            "FDSTORE=1\nFDNAME=millrace",
            "STOPPING=1",
        ];
        assert_eq!(read(&socket), expected);
        assert!(manager.waiting().is_empty());
    }

    #[test]
    fn only_the_process_that_is_watched_tells_of_its_life() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("notify");
        let socket = UnixDatagram::bind(&path).expect("a socket");
        socket.set_nonblocking(true).expect("a socket");
        let manager = Manager::at(Some(path.into_os_string()));
        manager.is_main.store(false, Relaxed);
        manager.alive();
        assert_eq!(read(&socket), [""; 0]);
        manager.is_main.store(true, Relaxed);
        manager.alive();
        assert_eq!(read(&socket), ["WATCHDOG=1"]);
    }

    #[test]
    fn a_status_is_told_when_it_is_another_one_and_by_the_main_process_alone() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("notify");
        let socket = UnixDatagram::bind(&path).expect("a socket");
        socket.set_nonblocking(true).expect("a socket");
        let manager = Manager::at(Some(path.into_os_string()));
        for queues in [0, 0, 2, 2] {
            manager.status(&format!("{queues} queues"));
        }
        assert_eq!(read(&socket), ["STATUS=0 queues", "STATUS=2 queues"]);
        manager.is_main.store(false, Relaxed);
        manager.status("0 queues");
        assert_eq!(read(&socket), [""; 0]);
    }

    #[test]
    fn what_waits_is_bounded_and_the_latest_is_kept() {
        let (_folder, socket, manager) = full();
        let (end, _other) = UnixDatagram::pair().expect("sockets");
        without_waiting(&manager, move |manager| {
            let twin = end.try_clone().expect("a socket");
            manager.keep(vec![twin.into()]).expect("it is kept");
            manager.forget();
            let waiting = manager.waiting().len();
            assert_eq!(waiting, 1, "what was to be stored is no more");
            for number in 0..=WAITING_MAX {
                manager.tell(format!("STATUS={number}"));
            }
            let refused = manager.keep(vec![end.into()]);
            assert!(refused.is_err(), "descriptors are not piled up");
        });
        read(&socket);
        // The socket may hold fewer than wait.
        let mut told = Vec::new();
        while !manager.waiting().is_empty() {
            manager.send_waiting(&mut manager.waiting());
            told.extend(read(&socket));
        }
        assert_eq!(told.len(), WAITING_MAX);
        assert_eq!(told.last(), Some(&format!("STATUS={WAITING_MAX}")));
    }
}
