//! AF_XDP sockets: options, bind, wake-ups.

use std::io;
use std::mem::{size_of, size_of_val, zeroed};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Most frames one `sendto` sends in copy mode; settable since about Linux 6.17. Not in libc yet.
pub(crate) const XDP_MAX_TX_SKB_BUDGET: i32 = 9;

/// A value that the kernel may fill with any bits.
///
/// # Safety
/// All fields are integers: every bit pattern, zero included, is a value.
pub(crate) unsafe trait Plain: Copy {}
// SAFETY: integers.
unsafe impl Plain for libc::xdp_mmap_offsets {}
// SAFETY: integers.
unsafe impl Plain for libc::xdp_statistics {}
// SAFETY: integers.
unsafe impl Plain for libc::xdp_options {}
// SAFETY: integers.
unsafe impl Plain for libc::xdp_umem_reg {}
// SAFETY: an integer.
unsafe impl Plain for u32 {}

fn result(returned: i32) -> io::Result<()> {
    if returned < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// A new, unbound AF_XDP socket. Needs CAP_NET_RAW.
pub(crate) fn open() -> io::Result<OwnedFd> {
    // SAFETY: no memory is involved.
    let descriptor = unsafe { libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
    result(descriptor)?;
    // SAFETY: just opened, and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

pub(crate) fn set_option<T: Plain>(
    socket: BorrowedFd<'_>,
    option: i32,
    value: &T,
) -> io::Result<()> {
    let length = size_of_val(value) as libc::socklen_t;
    // SAFETY: the kernel reads `length` octets of a value that lives through the call.
    result(unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_XDP,
            option,
            std::ptr::from_ref(value).cast(),
            length,
        )
    })
}

/// What the kernel fills; a shorter answer of an older kernel leaves zeros at the end.
pub(crate) fn option<T: Plain>(socket: BorrowedFd<'_>, option: i32) -> io::Result<T> {
    // SAFETY: `Plain`: zero is a value.
    let mut value: T = unsafe { zeroed() };
    let mut length = size_of::<T>() as libc::socklen_t;
    let at = std::ptr::from_mut(&mut value).cast();
    // SAFETY: the kernel writes at most `length` octets into `value`, and any bits are a `T`.
    result(unsafe {
        libc::getsockopt(socket.as_raw_fd(), libc::SOL_XDP, option, at, &mut length)
    })?;
    Ok(value)
}

/// Sets a number of the socket level (socket(7)).
pub(crate) fn set_number(socket: BorrowedFd<'_>, option: i32, number: i32) -> io::Result<()> {
    let length = size_of_val(&number) as libc::socklen_t;
    // SAFETY: the kernel reads `length` octets of a value that lives through the call.
    result(unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            option,
            std::ptr::from_ref(&number).cast(),
            length,
        )
    })
}

/// A number of the socket level.
pub(crate) fn number(socket: BorrowedFd<'_>, option: i32) -> io::Result<i32> {
    let mut number: i32 = 0;
    let mut length = size_of_val(&number) as libc::socklen_t;
    let at = std::ptr::from_mut(&mut number).cast();
    // SAFETY: the kernel writes at most `length` octets into `number`, and any bits are a number.
    result(unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            option,
            at,
            &mut length,
        )
    })?;
    Ok(number)
}

/// Binds to a queue. `sharer`: a bound socket whose UMEM is used.
pub(crate) fn bind(
    socket: BorrowedFd<'_>,
    interface: u32,
    queue: u32,
    flags: u16,
    sharer: Option<BorrowedFd<'_>>,
) -> io::Result<()> {
    let address = libc::sockaddr_xdp {
        sxdp_family: libc::AF_XDP as u16,
        sxdp_flags: flags,
        sxdp_ifindex: interface,
        sxdp_queue_id: queue,
        sxdp_shared_umem_fd: sharer.map_or(0, |sharer| sharer.as_raw_fd() as u32),
    };
    let length = size_of_val(&address) as libc::socklen_t;
    // SAFETY: the kernel reads `length` octets of an address that lives through the call.
    result(unsafe {
        libc::bind(
            socket.as_raw_fd(),
            std::ptr::from_ref(&address).cast(),
            length,
        )
    })
}

/// Lets a program choose the socket for each datagram of a SO_REUSEPORT group; any socket of the group will do.
pub(crate) fn attach_reuseport(socket: BorrowedFd<'_>, program: BorrowedFd<'_>) -> io::Result<()> {
    let program = program.as_raw_fd();
    let length = size_of_val(&program) as libc::socklen_t;
    // SAFETY: the kernel reads `length` octets of a value that lives through the call.
    result(unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_REUSEPORT_EBPF,
            std::ptr::from_ref(&program).cast(),
            length,
        )
    })
}

/// Takes the program off a SO_REUSEPORT group (Linux 5.3).
pub(crate) fn detach_reuseport(socket: BorrowedFd<'_>) -> io::Result<()> {
    let unused: libc::c_int = 0;
    let length = size_of_val(&unused) as libc::socklen_t;
    // SAFETY: the kernel reads `length` octets of a value that lives through the call.
    result(unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_DETACH_REUSEPORT_BPF,
            std::ptr::from_ref(&unused).cast(),
            length,
        )
    })
}
