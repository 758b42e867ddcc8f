//! The system calls that a worker makes turn after turn. Without the C library: its functions of these names are cancellation
//! points, which cost a process of several threads two locked instructions each.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Result;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use std::os::fd::BorrowedFd;

/// Asks the kernel to send what is in the TX ring.
#[inline]
pub(crate) fn send_waiting(socket: BorrowedFd<'_>) -> Result<()> {
    send(socket, &[], SendFlags::DONTWAIT).map(drop)
}

/// Has the kernel look at the socket's queue now, on this thread (SO_PREFER_BUSY_POLL); what came is in the ring then. That
/// nothing was received is no error: the ring says.
pub(crate) fn poll_queue(socket: BorrowedFd<'_>) {
    let _: Result<_> = recv(socket, &mut [0_u8; 0], RecvFlags::DONTWAIT);
}

/// Asks the kernel to take frames from the fill ring (and, in copy mode, to send): a poll that does not wait. Its result says
/// only whether frames wait, which the ring says too.
pub(crate) fn take_fill(socket: BorrowedFd<'_>) {
    let polled = PollFd::from_borrowed_fd(socket, PollFlags::IN);
    let _: Result<usize> = poll(&mut [polled], Some(&Timespec::default()));
}
