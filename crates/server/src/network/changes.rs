//! What happened to interfaces, programs and queues while we serve, counted by name; each is a line of the log as well.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// One kind of change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub enum Change {
    /// Our program was attached to an interface.
    Attached,
    /// An interface has gone with its sockets: deleted, or moved to another network namespace.
    InterfaceGone,
    /// Our program was taken off an interface by somebody else.
    ProgramGone,
    /// Our program and sockets were taken off an interface that the configuration needs no more.
    Detached,
    /// Our program could not be attached; it is tried again.
    AttachRefused,
    /// A queue's frames come to a socket of ours.
    QueueOpened,
    /// A queue has gone, or is needed no more.
    QueueClosed,
    /// A queue could not be opened; it is tried again.
    QueueRefused,
    /// An interface's own Ethernet address, largest packet, name or number of queues is another one.
    InterfaceChanged,
    /// Addresses and ports that come over AF_XDP on an interface are other ones.
    DestinationsChanged,
    /// A server that is reached over AF_XDP is asked from another address.
    SourceChanged,
    /// An interface with our program is down or has no carrier: nothing comes by it.
    LinkDown,
    /// It is up, again or for the first time.
    LinkUp,
    /// A server is reached by another next hop or interface, by kernel sockets, or over AF_XDP (again).
    PathChanged,
}

/// How many kinds there are.
const KINDS: usize = Change::PathChanged as usize + 1;

impl Change {
    pub const ALL: [Change; KINDS] = [
        Change::Attached,
        Change::InterfaceGone,
        Change::ProgramGone,
        Change::Detached,
        Change::AttachRefused,
        Change::QueueOpened,
        Change::QueueClosed,
        Change::QueueRefused,
        Change::InterfaceChanged,
        Change::DestinationsChanged,
        Change::SourceChanged,
        Change::LinkDown,
        Change::LinkUp,
        Change::PathChanged,
    ];

    /// Its name in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Change::Attached => "attached",
            Change::InterfaceGone => "interface-gone",
            Change::ProgramGone => "program-gone",
            Change::Detached => "detached",
            Change::AttachRefused => "attach-refused",
            Change::QueueOpened => "queue-opened",
            Change::QueueClosed => "queue-closed",
            Change::QueueRefused => "queue-refused",
            Change::InterfaceChanged => "interface-changed",
            Change::DestinationsChanged => "destinations-changed",
            Change::SourceChanged => "source-changed",
            Change::LinkDown => "link-down",
            Change::LinkUp => "link-up",
            Change::PathChanged => "path-changed",
        }
    }
}

/// How often each was seen since start.
#[derive(Debug, Default)]
pub struct Changes([AtomicU64; KINDS]);

impl Changes {
    pub fn count(&self, change: Change) {
        self.0[change as usize].fetch_add(1, Relaxed);
    }

    pub fn get(&self, change: Change) -> u64 {
        self.0[change as usize].load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_change_has_its_own_place_and_name() {
        let changes = Changes::default();
        for (place, change) in Change::ALL.into_iter().enumerate() {
            assert_eq!(change as usize, place);
            changes.count(change);
        }
        assert!(Change::ALL.iter().all(|&change| changes.get(change) == 1));
        let names: std::collections::HashSet<_> = Change::ALL.map(Change::name).into();
        assert_eq!(names.len(), KINDS);
    }
}
