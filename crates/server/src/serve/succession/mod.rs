//! `millrace restart`: a new process of the program on the disk succeeds this one, and no query is lost. It is an overlap, not a
//! hand-over of AF_XDP sockets, so that no two versions share the layout of anything but the few words here.
//!
//! ```text
//!  old                                          new, started by the helper with one end of a socket as standard input
//!   │── Sockets* Named* Control? Caches? Begin ▶│ reads its configuration, fills its caches, starts its workers: now both
//!   │                                           │ read the kernel sockets
//!   │◀── Ready ─────────────────────────────────│
//!   │ queues leave the map (all is passed to the kernel sockets), rings are drained and closed
//!   │── Link* Left ────────────────────────────▶│ its programs take their places on the links, queues are bound (busy for up to
//!   │                                           │ 35 ms) and enter the map
//!   │◀── Serving ───────────────────────────────│
//!   │ reads no more queries, waits for the answers of those in flight, closes its backend ports, ends
//!   │── its end ───────────────────────────────▶│ tells systemd of itself, which listens to it by now (MAINPID=)
//! ```
//!
//! Whatever goes wrong before `Serving` leaves the old process serving: it opens its queues again and says why. Words are JSON,
//! descriptors travel beside them (SCM_RIGHTS); a word that one of two versions does not know ends the attempt.

mod caches;
mod predecessor;
mod successor;

pub(crate) use predecessor::Successor;
pub(crate) use successor::{Legacy, Predecessor};

use crate::network::helper::sys;
use serde::{Deserialize, Serialize};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use xsk::Handed;

/// What the two say to each other.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "says", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Word {
    /// Old: some listening sockets come with it.
    Sockets,
    /// Old: a socket that listens at a path comes with it, whose file is to go with whoever serves at last.
    Named,
    /// Old: the socket of our own commands comes with it, bound to this path.
    Control { path: PathBuf },
    /// Old: where its caches can be read from comes with it, entries in this form.
    Caches { form: u32 },
    /// Old, of this number: that is all there is to begin with.
    Begin { process: i32 },
    /// New: the kernel sockets are served.
    Ready,
    /// New: why it ends.
    Failed { reason: String },
    /// Old: a link comes with it; its program passes everything to the kernel.
    Link {
        interface: u32,
        native: bool,
        has_buffers: bool,
        kept: Option<PathBuf>,
    },
    /// Old: none of its queues is bound any more.
    Left,
    /// New: what can be had is had.
    Serving,
    /// Old: it was told to stop, and the new one is not wanted either.
    Stopping,
}

/// Octets of a reason, at most: a word must fit into one message.
const REASON: usize = 2_000;

impl Word {
    fn failed(reason: &str) -> Word {
        let mut reason = reason.to_owned();
        if reason.len() > REASON {
            reason.truncate(reason.floor_char_boundary(REASON));
            reason.push('…');
        }
        Word::Failed { reason }
    }

    fn link(handed: &Handed) -> Word {
        Word::Link {
            interface: handed.interface,
            native: handed.native,
            has_buffers: handed.has_buffers,
            kept: handed.kept.clone(),
        }
    }
}

fn say(end: &OwnedFd, word: &Word, with: &[OwnedFd]) -> io::Result<()> {
    let with: Vec<_> = with.iter().map(AsFd::as_fd).collect();
    sys::send(end, word, &with)
}

/// The next word; an end that is closed is an error.
fn hear(end: &OwnedFd) -> io::Result<(Word, Vec<OwnedFd>)> {
    sys::receive(end)?.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};

    #[test]
    fn words_and_descriptors_arrive_as_they_were_said() {
        let flags = SockFlag::SOCK_CLOEXEC;
        let (ours, theirs) =
            socketpair(AddressFamily::Unix, SockType::SeqPacket, None, flags).unwrap();
        let file = || OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
        say(&ours, &Word::Sockets, &[file(), file()]).unwrap();
        let reason = "ä".repeat(REASON);
        say(&ours, &Word::failed(&reason), &[]).unwrap();
        drop(ours);
        let (word, with) = hear(&theirs).unwrap();
        assert_eq!((word, with.len()), (Word::Sockets, 2));
        let Word::Failed { reason } = hear(&theirs).unwrap().0 else {
            panic!("another word");
        };
        assert_eq!(reason.chars().count(), REASON / 2 + 1);
        let closed = hear(&theirs).unwrap_err();
        assert_eq!(closed.kind(), io::ErrorKind::UnexpectedEof);
    }
}
