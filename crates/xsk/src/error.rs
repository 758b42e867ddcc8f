//! What can go wrong outside the packet path, each with where, how much, and what would be right.

use std::fmt;
use std::io;
use std::path::PathBuf;

pub type Result<T> = std::result::Result<T, Error>;

/// An error while setting up or changing something. Nothing on the packet path returns it.
#[derive(Debug)]
pub enum Error {
    /// A program of somebody else's sits on the interface (index). It is never replaced or detached; kernel sockets serve.
    ForeignProgram { interface: u32, program: u32 },
    /// The queue belongs to another UMEM, or its last owner has not let go in the time given.
    QueueBusy { interface: u32, queue: u32 },
    /// The UMEM is shared with a zero-copy socket, and this interface cannot do zero-copy: bind all of them in copy mode.
    ZeroCopyMismatch { interface: u32, queue: u32 },
    /// Pinned maps that the program attached to this interface does not use: they would serve nothing.
    StaleMaps {
        interface: u32,
        path: PathBuf,
        reason: String,
    },
    /// No interface of this name or index.
    NoInterface(String),
    /// A value that cannot work: says which, and the range that would.
    Invalid(String),
    /// The kernel refused; `doing` says what was asked of it, and what usually helps.
    System { doing: String, error: io::Error },
}

impl Error {
    pub fn system(doing: impl Into<String>, error: io::Error) -> Error {
        Error::System {
            doing: doing.into(),
            error,
        }
    }

    /// An AF_XDP socket was refused.
    pub(crate) fn opening(error: io::Error) -> Error {
        let needs = match error.raw_os_error() {
            Some(libc::EAFNOSUPPORT) => {
                "a kernel with CONFIG_XDP_SOCKETS, and AF_XDP in RestrictAddressFamilies= of a unit that has it"
            }
            _ => "CAP_NET_RAW",
        };
        Error::system(format!("opening an AF_XDP socket (needs {needs})"), error)
    }

    /// The kernel's error number where there is one.
    pub fn raw_os_error(&self) -> Option<i32> {
        match self {
            Error::System { error, .. } => error.raw_os_error(),
            Error::QueueBusy { .. } | Error::ForeignProgram { .. } => Some(libc::EBUSY),
            _ => None,
        }
    }
}

/// An interface by its name, or by its index where it has gone.
pub(crate) struct Named(pub(crate) u32);

impl fmt::Display for Named {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match crate::sys::interface::name(self.0) {
            Some(name) => out.write_str(&name.to_string_lossy()),
            None => write!(out, "{}", self.0),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::ForeignProgram { interface, program } => write!(
                out,
                "interface {name} already has an XDP program that is not ours (program id {program}); it is left alone. \
                 To use AF_XDP here end its owner (`bpftool prog show id {program}`), or detach it once nobody needs it: \
                 `millrace xdp unload --interface {name}` where `millrace xdp load` put it, else `ip link set dev {name} xdp off`",
                name = Named(*interface)
            ),
            Error::QueueBusy { interface, queue } => write!(
                out,
                "queue {queue} of interface {} is in use by another AF_XDP socket",
                Named(*interface)
            ),
            Error::ZeroCopyMismatch { interface, queue } => write!(
                out,
                "queue {queue} of interface {} cannot do zero-copy, but the worker's other sockets do and all of a \
                 worker's sockets must agree: bind all in copy mode",
                Named(*interface)
            ),
            Error::StaleMaps {
                interface,
                path,
                reason,
            } => write!(
                out,
                "{} is not used on interface {}: {reason}. Load the program that uses it there first, or leave the path \
                 out to use our own program",
                path.display(),
                Named(*interface)
            ),
            Error::NoInterface(name) => write!(out, "there is no network interface {name}"),
            Error::Invalid(what) => out.write_str(what),
            Error::System { doing, error } => write!(out, "{doing}: {error}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::System { error, .. } => Some(error),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_that_is_refused_says_what_it_takes() {
        let said = |number| Error::opening(io::Error::from_raw_os_error(number)).to_string();
        assert!(said(libc::EPERM).contains("needs CAP_NET_RAW)"));
        assert!(said(libc::EAFNOSUPPORT).contains("RestrictAddressFamilies="));
    }
}
