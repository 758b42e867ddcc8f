//! A kernel program on an interface, held there by a link: it goes when the link is closed, so with the process at the latest.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::error::{Error, Named, Result};
use crate::kept::Kept;
use crate::sys::bpf;

/// Where in the kernel the program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum AttachMode {
    /// Native where the driver can, else generic.
    #[default]
    Auto,
    /// In the driver, before the kernel has made a packet of the frame.
    Native,
    /// In the kernel's stack: any device, slower.
    Generic,
}

/// How an attachment went.
#[derive(Debug)]
pub struct Attachment {
    /// Native or generic.
    pub mode: AttachMode,
    /// Why it is not native.
    pub native_refused: Option<io::Error>,
}

/// A program that is on an interface. Dropping it takes the program off.
pub(crate) struct Attached {
    link: OwnedFd,
    /// The interface's index.
    pub(crate) interface: u32,
    /// Native or generic.
    pub(crate) mode: AttachMode,
    /// Where it is kept when this value, or the process, ends.
    kept: Option<Kept>,
}

impl Attached {
    /// Attaches. A program of somebody else's is left where it is: [`Error::ForeignProgram`].
    pub(crate) fn attach(
        program: &OwnedFd,
        interface: u32,
        mode: AttachMode,
    ) -> Result<(Attached, Attachment)> {
        let mut native_refused = None;
        if mode != AttachMode::Generic {
            match link(program, interface, AttachMode::Native) {
                Err(Error::System { error, .. }) if mode == AttachMode::Auto => {
                    native_refused = Some(error)
                }
                other => return other.map(|attached| attached.with(None)),
            }
        }
        link(program, interface, AttachMode::Generic).map(|attached| attached.with(native_refused))
    }

    /// What another process has attached.
    pub(crate) fn of(link: OwnedFd, interface: u32, native: bool) -> Attached {
        let mode = if native {
            AttachMode::Native
        } else {
            AttachMode::Generic
        };
        Attached {
            link,
            interface,
            mode,
            kept: None,
        }
    }

    pub(crate) fn kept_in(self, kept: Kept) -> Attached {
        Attached {
            kept: Some(kept),
            ..self
        }
    }

    pub(crate) fn kept(&self) -> Option<&Kept> {
        self.kept.as_ref()
    }

    pub(crate) fn link(&self) -> &OwnedFd {
        &self.link
    }

    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.link.as_fd()
    }

    pub(crate) fn with(self, native_refused: Option<io::Error>) -> (Attached, Attachment) {
        let mode = self.mode;
        (
            self,
            Attachment {
                mode,
                native_refused,
            },
        )
    }

    /// Whether it is still there: somebody may have taken it off, or the device is gone.
    pub(crate) fn is_alive(&self) -> bool {
        bpf::link_interface(&self.link).is_ok_and(|interface| interface != 0)
    }
}

/// The id of the XDP program on an interface (index), whosever it is; `None`: there is none.
///
/// # Errors
/// No such interface, or no netlink.
pub fn attached_program(interface: u32) -> Result<Option<u32>> {
    bpf::attached_program(interface).map_err(|error| {
        Error::system(
            format!("asking for the XDP program of interface {interface}"),
            error,
        )
    })
}

fn link(program: &OwnedFd, interface: u32, mode: AttachMode) -> Result<Attached> {
    let flags = match mode {
        AttachMode::Native => libbpf_sys::XDP_FLAGS_DRV_MODE,
        AttachMode::Generic | AttachMode::Auto => libbpf_sys::XDP_FLAGS_SKB_MODE,
    };
    match bpf::link(program, interface, flags) {
        Ok(link) => Ok(Attached {
            link,
            interface,
            mode,
            kept: None,
        }),
        // EBUSY: a program is there in this mode, EEXIST: in the other. A link never replaces it.
        Err(error) if matches!(error.raw_os_error(), Some(libc::EBUSY | libc::EEXIST)) => {
            let program = bpf::attached_program(interface).ok().flatten().unwrap_or(0);
            Err(Error::ForeignProgram { interface, program })
        }
        Err(error) => {
            let doing = format!(
                "attaching the kernel program to interface {} in {mode:?} mode",
                Named(interface)
            );
            Err(Error::system(doing, error))
        }
    }
}
