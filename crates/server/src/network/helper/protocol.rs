//! What daemon and helper say to each other: a JSON object a message, descriptors beside it.

use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::path::PathBuf;
use xsk::{AttachMode, Attachment};

/// What the daemon may ask for, and no more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
    /// Our program on an interface (index). [`Reply::Attached`].
    Attach {
        interface: u32,
        /// By a link that is kept when the daemon ends.
        keep: bool,
        /// In generic mode, even where the driver can do better.
        generic: bool,
    },
    /// An AF_XDP socket for a queue of an interface (index), with the memory that comes with it registered for its frames,
    /// if some does. [`Reply::Done`] with the socket.
    OpenSocket {
        interface: u32,
        queue: u32,
        /// Microseconds and budget of busy polling, if it is wished ([`xsk::BusyPoll`]); whether it was had, the socket tells.
        busy_poll: Option<(u32, u16)>,
    },
    /// To hold an interface's (index) interrupts back until [`Request::LetInterrupts`] or the end. [`Reply::Done`].
    HoldInterrupts { interface: u32 },
    /// To set them as they were. [`Reply::Done`].
    LetInterrupts { interface: u32 },
    /// The program and link that come with it: to put the one on the other once more. [`Reply::Done`].
    Renew,
    /// The pinned maps of somebody else's program on an interface (index), by the path of its socket map. [`Reply::Done`] with
    /// them.
    OpenMaps { interface: u32, path: PathBuf },
    /// To give up what only [`Request::OpenMaps`] takes. [`Reply::Done`].
    Forgo,
    /// To bind the TCP or UDP socket that comes with it. [`Reply::Done`].
    Bind { address: SocketAddr },
    /// The program that spreads datagrams, reading the heartbeats that come with it. [`Reply::Done`] with its parts.
    Spread { workers: u32 },
    /// A new process of the program on the disk, with the same arguments and the socket that comes with it as its standard
    /// input. [`Reply::Started`].
    StartSuccessor,
}

/// What comes back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "reply", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Reply {
    Done,
    /// The program's parts come with it.
    Attached {
        native: bool,
        has_buffers: bool,
        /// Where the link is kept.
        kept: Option<PathBuf>,
        /// For the log.
        how: String,
    },
    Started {
        process: i32,
    },
    Refused {
        reason: String,
        /// The kernel's error number.
        number: Option<i32>,
    },
}

/// How a program was attached, for the log.
pub fn mode(attachment: &Attachment) -> String {
    match (attachment.mode, &attachment.native_refused) {
        (AttachMode::Generic, Some(why)) => format!("generic mode (native: {why})"),
        (AttachMode::Generic, None) => "generic mode".to_owned(),
        _ => "native mode".to_owned(),
    }
}
