//! What systemd is told (sd_notify(3)): datagrams of `NAME=value` lines to the socket that NOTIFY_SOCKET names. Without one nothing
//! is said. Type=notify-reload: "the service manager will … wait for … RELOADING=1 … MONOTONIC_USEC=… followed by READY=1".

use crate::log;
use nix::sys::socket::{
    AddressFamily, ControlMessage, MsgFlags, SockFlag, SockType, UnixAddr, sendmsg, socket,
};
use nix::time::{ClockId, clock_gettime};
use std::ffi::OsStr;
use std::io::{self, IoSlice};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

/// By what name the descriptor store knows our listening sockets.
const STORED: &str = "millrace";

/// Descriptors of one message: the kernel takes 253.
const AT_ONCE: usize = 200;

/// The service has started, or has reloaded; `status` is what `systemctl status` shows.
pub fn ready(status: &str) {
    tell(&format!("READY=1\nSTATUS={status}"));
}

/// The configuration is read anew; [`ready`] says when that is over, whatever became of it.
pub fn reloading() {
    let now =
        clock_gettime(ClockId::CLOCK_MONOTONIC).map_or(0, |now| Duration::from(now).as_micros());
    tell(&format!("RELOADING=1\nMONOTONIC_USEC={now}"));
}

/// The service ends.
pub fn stopping() {
    tell("STOPPING=1");
}

/// Another process of this service is the one to watch from now on.
pub fn main_process(process: i32) {
    tell(&format!("MAINPID={process}"));
}

/// Queries are served.
pub fn alive() {
    tell("WATCHDOG=1");
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
/// They cannot be sent.
pub fn keep(sockets: &[OwnedFd]) -> io::Result<()> {
    let text = format!("FDSTORE=1\nFDNAME={STORED}");
    for some in sockets.chunks(AT_ONCE) {
        let descriptors: Vec<RawFd> = some.iter().map(AsRawFd::as_raw_fd).collect();
        send(&text, &descriptors)?;
    }
    Ok(())
}

/// Takes all of our sockets out of the store: those that are closed would be kept open there.
pub fn forget() {
    tell(&format!("FDSTOREREMOVE=1\nFDNAME={STORED}"));
}

/// A service manager that does not listen is no reason not to serve.
fn tell(text: &str) {
    if let Err(error) = send(text, &[]) {
        log::verbose!("systemd is not told {text:?}: {error}");
    }
}

fn send(text: &str, descriptors: &[RawFd]) -> io::Result<()> {
    let Some(path) = std::env::var_os("NOTIFY_SOCKET") else {
        return Ok(());
    };
    let flags = SockFlag::SOCK_CLOEXEC;
    let socket = socket(AddressFamily::Unix, SockType::Datagram, flags, None)?;
    let rights = [ControlMessage::ScmRights(descriptors)];
    let rights = if descriptors.is_empty() {
        &[]
    } else {
        &rights[..]
    };
    sendmsg(
        socket.as_raw_fd(),
        &[IoSlice::new(text.as_bytes())],
        rights,
        MsgFlags::MSG_NOSIGNAL,
        Some(&address(&path)?),
    )?;
    Ok(())
}

/// "If the first character of $NOTIFY_SOCKET is "@", the string is understood as Linux abstract namespace socket."
fn address(path: &OsStr) -> io::Result<UnixAddr> {
    Ok(match path.as_bytes() {
        [b'@', name @ ..] => UnixAddr::new_abstract(name)?,
        name => UnixAddr::new(name)?,
    })
}
