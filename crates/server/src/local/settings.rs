//! What the configuration says of one zone: a line of `millrace.addZone`, everything in it resolved.

use super::acl::{Acl, Action};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use wire::name::NameBuf;
use zone::transfer::incoming;
use zone::tsig::Key;

/// One zone that is served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ZoneSettings {
    pub apex: NameBuf,
    /// Of a primary all there is to the zone; of a secondary what it begins with when nothing is kept yet.
    pub file: Option<PathBuf>,
    /// Whom the zone is transferred from; nobody: it is a primary.
    pub primaries: Vec<Peer>,
    /// Who is told that the zone has changed.
    pub notify: Vec<Peer>,
    /// How long after a new version.
    pub notify_delay: Duration,
    pub acl: Acl,
    pub times: TimeBounds,
    /// How long the journal may get, in octets; 0: none is kept.
    pub journal_octets: u64,
    pub transfer: TransferBounds,
}

/// A server that zones are exchanged with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    pub address: SocketAddr,
    /// The address of ours that messages to it come from; `None`: as the kernel's routes say.
    pub source: Option<IpAddr>,
    /// What messages to it and from it are signed with.
    pub key: Option<Arc<Key>>,
    /// Of a primary: secondaries are not told of versions that it has sent.
    pub blocks_notify: bool,
}

impl Peer {
    /// A server at this address, and the defaults.
    pub fn new(address: SocketAddr) -> Peer {
        Peer {
            address,
            source: None,
            key: None,
            blocks_notify: false,
        }
    }
}

/// Between what the times of a SOA record are held, in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeBounds {
    pub refresh: (u32, u32),
    pub retry: (u32, u32),
    pub expire: (u32, u32),
}

/// How much, and how long, a primary may send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TransferBounds {
    /// Of messages.
    pub octets: u64,
    pub duration: Duration,
}

impl ZoneSettings {
    /// A zone of this name, and the defaults.
    pub fn new(apex: NameBuf) -> ZoneSettings {
        ZoneSettings {
            apex,
            file: None,
            primaries: Vec::new(),
            notify: Vec::new(),
            notify_delay: Duration::ZERO,
            acl: Acl::default(),
            times: TimeBounds::default(),
            journal_octets: JOURNAL_OCTETS,
            transfer: TransferBounds::default(),
        }
    }

    pub fn is_secondary(&self) -> bool {
        !self.primaries.is_empty()
    }

    /// Whether versions of the zone are kept on disk: a secondary has to outlive its primary, and a primary has to know
    /// what has changed when somebody may ask for it.
    pub fn is_kept(&self) -> bool {
        self.is_secondary() || self.journal_octets > 0 && self.may_have_secondaries()
    }

    /// Whether somebody may transfer the zone.
    pub fn may_have_secondaries(&self) -> bool {
        self.acl.has(Action::Transfer)
    }

    /// Those of `notify` that no entry of the acl lets transfer the zone from the address that they are told at.
    pub fn told_in_vain(&self) -> impl Iterator<Item = &Peer> {
        let acl = &self.acl;
        let peers = self.notify.iter();
        peers.filter(move |peer| !acl.may_let(Action::Transfer, peer.address.ip()))
    }
}

/// Room for a hundred thousand changed records.
const JOURNAL_OCTETS: u64 = 16 << 20;

impl Default for TimeBounds {
    /// Knot's lower bounds; nobody means more than 30 years.
    fn default() -> TimeBounds {
        const MOST: u32 = 1_000_000_000;
        TimeBounds {
            refresh: (2, MOST),
            retry: (1, MOST),
            expire: (3, MOST),
        }
    }
}

impl Default for TransferBounds {
    /// 4 GiB are more than a compiled zone can hold; an hour is BIND's time for a transfer that comes slowly.
    fn default() -> TransferBounds {
        TransferBounds {
            octets: 4 << 30,
            duration: Duration::from_secs(3_600),
        }
    }
}

impl TransferBounds {
    /// As crate `zone` takes them. No record has fewer than eleven octets.
    pub fn incoming(self) -> incoming::Bounds {
        incoming::Bounds {
            octets: self.octets,
            records: self.octets / 11,
        }
    }
}
