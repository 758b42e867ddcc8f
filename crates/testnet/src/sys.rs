//! The system interfaces that neither std nor nix wraps safely: packet sockets (AF_PACKET), descriptors of
//! processes (pidfd) and in messages (SCM_RIGHTS), and what a child has to do with: its signal mask, what the kernel refuses it.

#![allow(unsafe_code)] // this file is one of those that may: each block says why it is sound

use std::ffi::CString;
use std::io::{self, IoSliceMut};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use nix::sys::signal::SigSet;
use nix::sys::socket::{
    AddressFamily, ControlMessageOwned, MsgFlags, SockFlag, SockProtocol, SockType, recvmsg, socket,
};

use crate::seccomp::Filter;

/// One datagram and the descriptors that came with it.
pub fn receive_descriptors(from: &impl AsRawFd) -> io::Result<(Vec<u8>, Vec<OwnedFd>)> {
    let mut text = vec![0; 4_096];
    let mut room = nix::cmsg_space!([RawFd; 253]);
    let mut parts = [IoSliceMut::new(&mut text)];
    let flags = MsgFlags::MSG_CMSG_CLOEXEC;
    let received = recvmsg::<()>(from.as_raw_fd(), &mut parts, Some(&mut room), flags)?;
    let mut descriptors = Vec::new();
    for message in received.cmsgs()? {
        if let ControlMessageOwned::ScmRights(rights) = message {
            let owned = rights.into_iter();
            // SAFETY: the kernel has just opened them for us, and nobody else has them.
            descriptors.extend(owned.map(|right| unsafe { OwnedFd::from_raw_fd(right) }));
        }
    }
    let length = received.bytes;
    text.truncate(length);
    Ok((text, descriptors))
}

/// A packet socket bound to one interface: whole Ethernet frames out and in.
pub struct PacketSocket {
    descriptor: OwnedFd,
}

/// What `PacketSocket::receive` found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Captured {
    /// Octets of the frame that are now in the buffer.
    pub length: usize,
    /// True for a frame that this machine sent (AF_PACKET shows those as well).
    pub outgoing: bool,
}

impl PacketSocket {
    /// Opens a socket on `interface` of the calling thread's network namespace. It does not block.
    pub fn open(interface: &str) -> io::Result<Self> {
        let descriptor = socket(
            AddressFamily::Packet,
            SockType::Raw,
            SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK,
            SockProtocol::EthAll,
        )?;
        let mut address = empty_link_address();
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
        address.sll_ifindex = nix::net::if_::if_nametoindex(interface)? as i32;
        // SAFETY: `address` is a complete sockaddr_ll that lives across the call, and its own size is given.
        let result = unsafe {
            libc::bind(
                descriptor.as_raw_fd(),
                (&raw const address).cast::<libc::sockaddr>(),
                size_of::<libc::sockaddr_ll>() as libc::socklen_t,
            )
        };
        check(result as isize)?;
        Ok(Self { descriptor })
    }

    /// Sends one whole frame, Ethernet header first.
    pub fn send(&self, frame: &[u8]) -> io::Result<()> {
        // SAFETY: pointer and length describe `frame`, which outlives the call.
        let sent = unsafe {
            libc::send(
                self.descriptor.as_raw_fd(),
                frame.as_ptr().cast(),
                frame.len(),
                0,
            )
        };
        check(sent).map(drop)
    }

    /// Takes the next captured frame, or `WouldBlock` where there is none.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<Captured> {
        let mut address = empty_link_address();
        let mut length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        // SAFETY: buffer and address are ours, writable and as long as said; the kernel writes no further.
        let received = unsafe {
            libc::recvfrom(
                self.descriptor.as_raw_fd(),
                buffer.as_mut_ptr().cast(),
                buffer.len(),
                0,
                (&raw mut address).cast::<libc::sockaddr>(),
                &raw mut length,
            )
        };
        let length = check(received)? as usize;
        Ok(Captured {
            length,
            outgoing: address.sll_pkttype == libc::PACKET_OUTGOING,
        })
    }
}

impl std::os::fd::AsFd for PacketSocket {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

/// A descriptor that becomes readable when the process `id` ends.
pub fn process_descriptor(id: u32) -> io::Result<OwnedFd> {
    // SAFETY: pidfd_open takes two integers and touches no memory of ours.
    let descriptor = unsafe { libc::syscall(libc::SYS_pidfd_open, id as libc::pid_t, 0) };
    let descriptor = check(descriptor as isize)?;
    // SAFETY: the kernel has just returned this descriptor to us alone.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor as i32) })
}

/// Lets the child begin with no signal blocked, though this process blocks some: std passes the mask on.
pub fn unblock_signals(command: &mut Command) {
    let unblock = || Ok(SigSet::all().thread_unblock()?);
    // SAFETY: between fork and exec only pthread_sigmask is called, which is async-signal-safe, and
    // nothing is allocated.
    unsafe { command.pre_exec(unblock) };
}

/// What the kernel refuses to a process and all that it starts, as a service's sandbox would.
#[derive(Debug, Clone)]
pub enum Denied {
    /// bpf(2), with EPERM.
    Bpf,
    /// Sockets of the family AF_XDP, with EAFNOSUPPORT, as systemd's RestrictAddressFamilies does.
    AfXdp,
    /// Transparent huge pages.
    HugePages,
    /// What a filter of system calls refuses.
    Calls(Filter),
}

impl Denied {
    /// What scenarios call it.
    pub fn of_word(word: &str) -> Option<Self> {
        match word {
            "bpf" => Some(Self::Bpf),
            "af_xdp" => Some(Self::AfXdp),
            "huge-pages" => Some(Self::HugePages),
            _ => None,
        }
    }

    /// The filter that does it; huge pages are no matter of system calls.
    fn filter(&self) -> Option<Filter> {
        let socket = libc::SYS_socket as u32;
        let af_xdp = (0, libc::AF_XDP as u32);
        match self {
            Self::Bpf => Some(Filter::calls(&[libc::SYS_bpf as u32], libc::EPERM)),
            Self::AfXdp => Some(Filter::argument(socket, af_xdp, libc::EAFNOSUPPORT)),
            Self::Calls(filter) => Some(filter.clone()),
            Self::HugePages => None,
        }
    }
}

/// Lets the child begin without these.
pub fn deny(command: &mut Command, denied: &[Denied]) {
    for what in denied {
        let filter = what.filter();
        // SAFETY: between fork and exec only prctl is called, which is a bare system call; its filter is made already, and
        // nothing is allocated.
        unsafe { command.pre_exec(move || refuse(filter.as_ref())) };
    }
}

/// Lets the calling thread, and what it starts from then on, do without these. seccomp(2): "In order to use the
/// SECCOMP_SET_MODE_FILTER operation, either the calling thread must have the CAP_SYS_ADMIN capability in its user namespace,
/// or the thread must already have the no_new_privs bit set."
pub fn deny_here(denied: &[Denied]) -> io::Result<()> {
    let mut filters = denied.iter().map(Denied::filter);
    filters.try_for_each(|filter| refuse(filter.as_ref()))
}

/// What a filter refuses; without one, transparent huge pages.
fn refuse(filter: Option<&Filter>) -> io::Result<()> {
    let Some(filter) = filter else {
        // SAFETY: five integers.
        let result = unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0) };
        return check(result as isize).map(drop);
    };
    let instructions = filter.instructions();
    let program = libc::sock_fprog {
        len: instructions.len() as u16,
        // Not const in the header; the kernel only reads them.
        filter: instructions.as_ptr().cast_mut(),
    };
    // SAFETY: `program` and its instructions live across the call, which copies them.
    let result = unsafe {
        libc::prctl(
            libc::PR_SET_SECCOMP,
            libc::SECCOMP_MODE_FILTER,
            &raw const program,
        )
    };
    check(result as isize).map(drop)
}

// ------------------------------------------------------------------------------------------------------ XDP programs

// Commands of bpf(2) and what they take: linux/bpf.h.
const BPF_PROG_LOAD: libc::c_long = 5;
const BPF_OBJ_GET: libc::c_long = 7;
const BPF_LINK_CREATE: libc::c_long = 28;
const BPF_LINK_DETACH: libc::c_long = 34;
const BPF_PROG_TYPE_XDP: u32 = 6;
const BPF_XDP: u32 = 37;

#[repr(C)]
struct Pinned {
    path: u64,
    descriptor: u32,
    flags: u32,
}

#[repr(C)]
struct ToLoad {
    kind: u32,
    instructions: u32,
    code: u64,
    license: u64,
}

#[repr(C)]
struct ToAttach {
    program: u32,
    interface: u32,
    place: u32,
    flags: u32,
}

/// Takes an XDP program off its interface by the link that is pinned at `path`, as an operator may.
pub fn detach_link(path: &Path) -> io::Result<()> {
    let path = CString::new(path.as_os_str().as_encoded_bytes())?;
    let pinned = Pinned {
        path: path.as_ptr() as u64,
        descriptor: 0,
        flags: 0,
    };
    // SAFETY: `pinned` names `path`, which ends with 0 and outlives the call; the kernel reads both.
    let link = unsafe { bpf(BPF_OBJ_GET, &pinned) }?;
    let link = link.as_raw_fd() as u32;
    // SAFETY: the attribute is the link's descriptor alone.
    let detached = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            BPF_LINK_DETACH,
            &raw const link,
            size_of::<u32>(),
        )
    };
    check(detached as isize).map(drop)
}

/// Attaches an XDP program that passes everything: somebody else's. It stays until the descriptor is closed.
pub fn attach_passing_program(interface: &str) -> io::Result<OwnedFd> {
    // r0 = XDP_PASS; exit
    let code: [u64; 2] = [0x0000_0002_0000_00b7, 0x95];
    let to_load = ToLoad {
        kind: BPF_PROG_TYPE_XDP,
        instructions: code.len() as u32,
        code: code.as_ptr() as u64,
        license: c"GPL".as_ptr() as u64,
    };
    // SAFETY: `to_load` names `code` and a constant text, which outlive the call; the kernel reads them.
    let program = unsafe { bpf(BPF_PROG_LOAD, &to_load) }?;
    let to_attach = ToAttach {
        program: program.as_raw_fd() as u32,
        interface: nix::net::if_::if_nametoindex(interface)?,
        place: BPF_XDP,
        flags: 0,
    };
    // SAFETY: four integers.
    unsafe { bpf(BPF_LINK_CREATE, &to_attach) }
}

/// Calls bpf(2) with a command that gives a descriptor.
///
/// # Safety
/// `attribute` is what the command takes, or its beginning, and what it points to lives.
unsafe fn bpf<T>(command: libc::c_long, attribute: &T) -> io::Result<OwnedFd> {
    let attribute: *const T = attribute;
    // SAFETY: as the caller says; the size is the attribute's own, and the kernel takes the rest as 0.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, attribute, size_of::<T>()) };
    let descriptor = check(result as isize)?;
    // SAFETY: the kernel has just returned this descriptor to us alone.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor as i32) })
}

// ------------------------------------------------------------------------------------------------------------ helpers

fn empty_link_address() -> libc::sockaddr_ll {
    // SAFETY: sockaddr_ll is integers and an array of octets: all zeroes is a value of it.
    unsafe { std::mem::zeroed() }
}

fn check(result: isize) -> io::Result<isize> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}
