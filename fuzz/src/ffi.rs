//! The kernel program, compiled for user space: see `kernel/steer.c`, whose maps are static. The one place of this package
//! with `unsafe`.
#![allow(unsafe_code)] // I14: a file named ffi.rs; each block says why it is sound

use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, MutexGuard, PoisonError};
use xsk::Reason;

unsafe extern "C" {
    fn kernel_load(mac: *const u8) -> i32;
    fn kernel_open_port(bitmap: u32, port: u16);
    fn kernel_close_port(bitmap: u32, port: u16);
    fn kernel_serve(address: *const u8, version: u16, port: u16);
    fn kernel_unserve();
    fn kernel_trust(local: *const u8, remote: *const u8, version: u16, port: u16, bitmap: u32);
    fn kernel_steer(frame: *const u8, length: u32) -> i32;
}

/// Who has the program: there is one, because its maps are static.
static ONLY: Mutex<()> = Mutex::new(());

/// The loaded program.
pub struct Kernel {
    _only: MutexGuard<'static, ()>,
}

impl Kernel {
    /// The program with empty maps, for an interface with this Ethernet address.
    ///
    /// # Panics
    /// Where the kernel gives no memory below 4 GiB.
    pub fn load(mac: [u8; 6]) -> Kernel {
        let only = ONLY.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: it reads six octets; nobody else is in the C code, here and below, because of the lock.
        let loaded = unsafe { kernel_load(mac.as_ptr()) };
        assert_eq!(loaded, 0, "no memory below 4 GiB for frames");
        Kernel { _only: only }
    }

    /// Adds a destination; eight at most.
    pub fn serve(&mut self, served: SocketAddr) {
        let (address, version) = key(served.ip());
        // SAFETY: it reads sixteen octets of the address.
        unsafe { kernel_serve(address.as_ptr(), version, served.port()) }
    }

    /// Removes the destination that was added last.
    pub fn unserve(&mut self) {
        // SAFETY: only numbers change.
        unsafe { kernel_unserve() }
    }

    /// Lets `remote` answer to the ports of `local` that are open in `bitmap`, below 16; eight such pairs at most.
    pub fn trust(&mut self, local: IpAddr, remote: SocketAddr, bitmap: u32) {
        let ((local, _), (address, version)) = (key(local), key(remote.ip()));
        // SAFETY: it reads sixteen octets of each address.
        unsafe {
            kernel_trust(
                local.as_ptr(),
                address.as_ptr(),
                version,
                remote.port(),
                bitmap,
            );
        }
    }

    /// Opens or closes a port in `bitmap`, below 16.
    pub fn set_port(&mut self, bitmap: u32, port: u16, open: bool) {
        assert!(bitmap < 16, "sixteen bitmaps of backend ports");
        // SAFETY: the bitmap exists, and it has a bit for every port.
        unsafe {
            match open {
                true => kernel_open_port(bitmap, port),
                false => kernel_close_port(bitmap, port),
            }
        }
    }

    /// What the program says of a frame of at most 8,192 octets.
    ///
    /// # Panics
    /// Where the verdict is not the one of the reason that was counted, or none or several were.
    pub fn steer(&mut self, frame: &[u8]) -> Reason {
        let length = u32::try_from(frame.len()).expect("a frame");
        // SAFETY: it copies `length` octets.
        let reason = unsafe { kernel_steer(frame.as_ptr(), length) };
        let reason = usize::try_from(reason).expect("one reason, and its verdict");
        Reason::ALL[reason]
    }
}

/// An address as the program's maps have it, and its IP version.
fn key(address: IpAddr) -> ([u8; 16], u16) {
    match address {
        IpAddr::V4(address) => {
            let mut octets = [0; 16];
            octets[..4].copy_from_slice(&address.octets());
            (octets, 4)
        }
        IpAddr::V6(address) => (address.octets(), 6),
    }
}
