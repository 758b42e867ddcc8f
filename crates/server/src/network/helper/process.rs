//! The helper's side: one request after the other until the daemon has gone.

use super::protocol::{Reply, Request, mode};
use super::successor::OwnProgram;
use super::{HelperError, sys};
use crate::network::activation;
use crate::network::interrupts::{Held, Interrupts};
use caps::{CapSet, Capability, CapsHashSet};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::socket::{
    AddressFamily, SockType, SockaddrLike, SockaddrStorage, getsockname, getsockopt, sockopt,
};
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use xsk::nic::Nic;
use xsk::{AttachMode, BusyPoll, Foreign, Program, Pulses, Socket, Spread};

/// What the helper keeps of what there is, and for what.
const KEPT: [Capability; 11] = [
    // Programs on interfaces.
    Capability::CAP_NET_ADMIN,
    // Programs and maps.
    Capability::CAP_BPF,
    Capability::CAP_PERFMON,
    // AF_XDP sockets.
    Capability::CAP_NET_RAW,
    // Memory for frames, locked.
    Capability::CAP_IPC_LOCK,
    // Ports below 1,024.
    Capability::CAP_NET_BIND_SERVICE,
    // Locked memory for maps, before Linux 5.11.
    Capability::CAP_SYS_RESOURCE,
    // For the process of a restart, which does as its -u and -g say and gives its control socket to that group.
    Capability::CAP_SETUID,
    Capability::CAP_SETGID,
    Capability::CAP_CHOWN,
    MAPS,
];

/// To look at somebody else's program, whose maps are used (newXsk). A configuration without that has it given up after the start.
const MAPS: Capability = Capability::CAP_SYS_ADMIN;

type Done = Result<(Reply, Vec<OwnedFd>), HelperError>;

/// Whether there is anything that a helper could keep.
pub(super) fn has_privileges() -> bool {
    let permitted = caps::read(None, CapSet::Permitted).unwrap_or_default();
    KEPT.iter().any(|capability| permitted.contains(capability))
}

/// Serves until `daemon` has gone.
pub(super) fn run(socket: &OwnedFd, daemon: Pid, program: &OwnProgram) -> ! {
    let served = || prepare(daemon).and_then(|()| serve(socket, program));
    let served = std::panic::catch_unwind(served);
    std::process::exit(match served {
        Ok(Ok(())) => 0,
        _ => 1,
    })
}

/// Gives away what is not needed. What ends the daemon (Ctrl-C in a terminal, SIGTERM to the whole unit) must not end the
/// helper before it.
fn prepare(daemon: Pid) -> io::Result<()> {
    let signals = [
        Signal::SIGINT,
        Signal::SIGTERM,
        Signal::SIGHUP,
        Signal::SIGQUIT,
        Signal::SIGPIPE,
    ];
    SigSet::from_iter(signals).thread_block()?;
    let_go_of_inheritance()?;
    nix::sys::prctl::set_name(c"millrace-helper")?;
    crate::network::privileges::raise_memlock();
    narrow().map_err(|error| io::Error::other(error.to_string()))?;
    nix::sys::prctl::set_no_new_privs()?;
    // After capabilities have changed: that would reset it.
    nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)?;
    if nix::unistd::getppid() != daemon {
        return Err(io::Error::other("the daemon has ended already"));
    }
    Ok(())
}

/// Sockets that came with the start are the daemon's alone: one that it closes must be closed.
fn let_go_of_inheritance() -> io::Result<()> {
    nix::unistd::dup2_stdin(File::open("/dev/null")?)?;
    for number in activation::descriptors(nix::unistd::getppid()) {
        // It may be closed already.
        let _ = nix::unistd::close(number);
    }
    Ok(())
}

fn narrow() -> Result<(), caps::errors::CapsError> {
    let permitted = caps::read(None, CapSet::Permitted)?;
    let kept: CapsHashSet = KEPT
        .into_iter()
        .filter(|capability| permitted.contains(capability))
        .collect();
    caps::set(None, CapSet::Effective, &kept)?;
    caps::clear(None, CapSet::Ambient)?;
    caps::clear(None, CapSet::Inheritable)?;
    caps::set(None, CapSet::Permitted, &kept)
}

fn serve(socket: &OwnedFd, program: &OwnProgram) -> io::Result<()> {
    let mut held = HeldInterrupts::new();
    while let Some((request, descriptors)) = sys::receive(socket)? {
        let (reply, given) =
            fulfil(&request, descriptors, program, &mut held).unwrap_or_else(|error| {
                let (reason, number) = match error {
                    HelperError::Refused { reason, number } => (reason, number),
                    gone => (gone.to_string(), None),
                };
                (Reply::Refused { reason, number }, Vec::new())
            });
        let given: Vec<_> = given.iter().map(AsFd::as_fd).collect();
        sys::send(socket, &reply, &given)?;
    }
    Ok(())
}

/// Does what is asked for, if it is something that the daemon can truly need.
fn fulfil(
    request: &Request,
    mut with: Vec<OwnedFd>,
    program: &OwnProgram,
    held: &mut HeldInterrupts,
) -> Done {
    match *request {
        Request::Attach {
            interface,
            keep,
            generic,
        } => attach(interface, keep, generic),
        Request::OpenSocket {
            interface,
            queue,
            busy_poll,
        } => open((interface, queue), busy_poll, with.pop()),
        Request::HoldInterrupts { interface } => hold(interface, held),
        Request::LetInterrupts { interface } => {
            held.remove(&interface);
            Ok((Reply::Done, Vec::new()))
        }
        Request::Renew => {
            Program::renew(&with)?;
            Ok((Reply::Done, Vec::new()))
        }
        Request::OpenMaps {
            interface,
            ref path,
        } => Ok((Reply::Done, Foreign::maps(interface, path)?)),
        Request::Forgo => forgo(),
        Request::Bind { address } => bind(one(&mut with)?, address),
        Request::Spread { workers } => spread(one(&mut with)?, workers),
        Request::StartSuccessor => start(one(&mut with)?, program),
    }
}

fn attach(interface: u32, keep: bool, generic: bool) -> Done {
    // An interface of this namespace, with a name.
    Nic::by_index(interface)?;
    let mode = match generic {
        true => AttachMode::Generic,
        false => AttachMode::Auto,
    };
    let (program, how) = attached(interface, keep, mode)?;
    let (handed, parts) = program.hand_over()?;
    let reply = Reply::Attached {
        native: handed.native,
        has_buffers: handed.has_buffers,
        kept: handed.kept,
        how,
    };
    Ok((reply, parts))
}

/// Our program on an interface, by a link that goes with it or one that is kept; how it is attached, for the log. Where a link
/// cannot be kept, one that goes is better than none.
pub(super) fn attached(
    interface: u32,
    keep: bool,
    wanted: AttachMode,
) -> xsk::Result<(Program, String)> {
    let mut program = Program::load()?;
    let mut why_not = String::new();
    if keep {
        match program.attach_kept(interface, wanted) {
            Ok(attachment) => return Ok((program, format!("{}, to be kept", mode(&attachment)))),
            Err(error) => why_not = format!(", not to be kept: {error}"),
        }
    }
    let attachment = program.attach(interface, wanted)?;
    Ok((program, mode(&attachment) + &why_not))
}

fn open(
    (interface, queue): (u32, u32),
    busy_poll: Option<(u32, u16)>,
    memory: Option<OwnedFd>,
) -> Done {
    let nic = Nic::by_index(interface)?;
    if queue >= nic.queues {
        return Err(refused(format!(
            "{} has no queue {queue}, it has {}",
            nic.name, nic.queues
        )));
    }
    let busy_poll = busy_poll.map(|(microseconds, budget)| BusyPoll {
        microseconds,
        budget,
    });
    Ok((Reply::Done, vec![opened(busy_poll, memory.as_ref())?]))
}

/// An AF_XDP socket, with this memory registered; polled if wished, and if the kernel lets it.
pub(super) fn opened(
    busy_poll: Option<BusyPoll>,
    memory: Option<&OwnedFd>,
) -> xsk::Result<OwnedFd> {
    let socket = match memory {
        Some(memory) => Socket::open_registered(memory)?,
        None => Socket::open()?,
    };
    if let Some(wish) = busy_poll {
        // Whoever binds the socket looks whether it is, and says what is missing.
        let _ = wish.prefer(&socket);
    }
    Ok(socket)
}

/// What this process has to set as it was before it ends, by interface.
type HeldInterrupts = HashMap<u32, Held>;

fn hold(interface: u32, held: &mut HeldInterrupts) -> Done {
    let name = Nic::by_index(interface)?.name;
    // Those of an interface that is gone have nothing to be set.
    held.retain(|index, _| *index != interface && Nic::by_index(*index).is_ok());
    let taken = Interrupts::of(interface).hold();
    let taken = taken.map_err(|error| HelperError::Refused {
        reason: format!("holding the interrupts of {name} back: {error}"),
        number: match error.kind() {
            io::ErrorKind::WouldBlock => Some(libc::EAGAIN),
            _ => error.raw_os_error(),
        },
    })?;
    held.insert(interface, taken);
    // From now on the daemon's death must not be this process's before it has set them back: the closed socket ends it.
    let _ = nix::sys::prctl::set_pdeathsig(None);
    Ok((Reply::Done, Vec::new()))
}

fn bind(socket: OwnedFd, address: SocketAddr) -> Done {
    check_socket(&socket, address)?;
    nix::sys::socket::bind(socket.as_raw_fd(), &SockaddrStorage::from(address)).map_err(
        |error| HelperError::Refused {
            reason: format!("binding to {address}: {error}"),
            number: Some(error as i32),
        },
    )?;
    Ok((Reply::Done, Vec::new()))
}

/// TCP or UDP, of the address's version of IP; one unicast address or all of them, and a port.
fn check_socket(socket: &OwnedFd, address: SocketAddr) -> Result<(), HelperError> {
    let multicast = match address.ip() {
        IpAddr::V4(ip) => ip.is_multicast() || ip.is_broadcast(),
        IpAddr::V6(ip) => ip.is_multicast(),
    };
    if multicast || address.port() == 0 {
        return Err(refused(format!(
            "binding to {address}: must be a unicast address and a port"
        )));
    }
    let kind = getsockopt(socket, sockopt::SockType).map_err(not_a_socket)?;
    let own: SockaddrStorage = getsockname(socket.as_raw_fd()).map_err(not_a_socket)?;
    let family = if address.is_ipv4() {
        AddressFamily::Inet
    } else {
        AddressFamily::Inet6
    };
    if own.family() != Some(family) || !matches!(kind, SockType::Stream | SockType::Datagram) {
        return Err(refused(format!(
            "binding to {address}: the socket is not TCP or UDP of that version of IP"
        )));
    }
    Ok(())
}

fn forgo() -> Done {
    let sets = [CapSet::Effective, CapSet::Permitted];
    let dropped = sets
        .into_iter()
        .try_for_each(|set| caps::drop(None, set, MAPS));
    dropped.map_err(|error| refused(error.to_string()))?;
    Ok((Reply::Done, Vec::new()))
}

fn spread(pulses: OwnedFd, workers: u32) -> Done {
    let pulses = Pulses::take_over(pulses)?;
    let parts = Spread::load(&pulses, workers)?.hand_over()?;
    Ok((Reply::Done, parts))
}

/// What this process keeps is what the next one starts with.
fn start(end: OwnedFd, program: &OwnProgram) -> Done {
    // One that failed before has ended, or will by itself: it is nobody's concern any more.
    let _ = waitpid(None, Some(WaitPidFlag::WNOHANG));
    pass_on_privileges(true).map_err(|error| refused(error.to_string()))?;
    let started = program.start(end);
    pass_on_privileges(false).map_err(|error| refused(error.to_string()))?;
    Ok((Reply::Started { process: started? }, Vec::new()))
}

/// Whether programs that are run from here have what this process has: root's have it anyway, others' only by the ambient
/// set (capabilities(7)).
fn pass_on_privileges(pass: bool) -> Result<(), caps::errors::CapsError> {
    if !pass {
        caps::clear(None, CapSet::Ambient)?;
        return caps::clear(None, CapSet::Inheritable);
    }
    let own = caps::read(None, CapSet::Permitted)?;
    caps::set(None, CapSet::Inheritable, &own)?;
    caps::set(None, CapSet::Ambient, &own)
}

/// The descriptor that must have come with a request.
fn one(with: &mut Vec<OwnedFd>) -> Result<OwnedFd, HelperError> {
    let first = with.pop();
    first.ok_or_else(|| refused("no descriptor came with the request".to_owned()))
}

fn not_a_socket(error: nix::Error) -> HelperError {
    refused(format!("the descriptor is not a socket to bind: {error}"))
}

fn refused(reason: String) -> HelperError {
    HelperError::Refused {
        reason,
        number: None,
    }
}
