//! Zones that we answer ourselves: the bridge between crate `zone`, which does no I/O, and files, primaries, secondaries.
//! Workers meet only the finished [`Zones`] within their configuration, which is swapped whole.
//!
//! ```text
//!  file, primary ─▶ live ─ commit ─▶ store (disk)
//!                    │ ▲
//!       a new zone   │ │ orders: NOTIFY, the command line, timers
//!                    ▼ └── task (one per zone) ── ask ─▶ primaries
//!  control thread: Local::anew ─▶ Config ─▶ workers      └─ tell ─▶ secondaries (NOTIFY)
//!                                 runtime: answer ─▶ AXFR, IXFR, NOTIFY, signed queries
//! ```

pub mod acl;
pub mod answer;
mod ask;
mod backup;
mod claims;
mod flush;
mod keeper;
mod live;
mod load;
mod mailbox;
mod order;
mod placed;
mod places;
mod progress;
mod read;
mod reading;
mod room;
mod settings;
mod state;
mod status;
mod store;
mod task;
mod tell;
mod timers;
mod unseen;
mod work;

pub use acl::{Acl, Action, Entry as AclEntry, Scope, Span};
pub use backup::{BackupOrder, Parts};
pub use keeper::Keeper;
pub use live::Live;
pub use order::Order;
pub use placed::placed;
pub use progress::Progress;
pub use read::{ReadZone, read};
pub use reading::Reading;
pub use settings::{Peer, TimeBounds, TransferBounds, ZoneSettings};
pub use state::StateDirectory;
pub use status::{Begun, ZoneStatus};

use crate::config::zones::ZoneSpecs;
use crate::log;
use room::Room;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;
use wire::name::Name;
use zone::answer::Zones;
use zone::tsig::Key;

/// The zones of one configuration, as they are at one moment.
#[derive(Default)]
pub struct Local {
    zones: Zones,
    /// By the same numbers.
    entries: Vec<Entry>,
    keys: Vec<Arc<Key>>,
    state: Arc<StateDirectory>,
}

#[derive(Clone)]
struct Entry {
    live: Arc<Live>,
    settings: Arc<ZoneSettings>,
}

/// What changes when somebody writes a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stamp {
    pub path: PathBuf,
    pub modified: Option<SystemTime>,
    /// Bytes.
    pub length: u64,
    pub inode: u64,
}

impl Local {
    /// The zones that `specs` ask for: those of `previous` that have not changed, others read anew, several at a time. A
    /// zone that cannot be read stays as it was; one that never was there is not loaded, and answered with SERVFAIL. The
    /// second value are lines for the operator, what went wrong first. Takes as long as the largest zone does.
    pub fn load(specs: &ZoneSpecs, previous: &Local) -> (Local, Vec<Line>) {
        Local::load_within(specs, previous, &Room::WHOLE)
    }

    /// The same for a start that nobody serves beside: large zones are left to their tasks ([`Keeper::follow`]), and
    /// answered with SERVFAIL until they are there. The others are there when this returns.
    pub fn load_early(specs: &ZoneSpecs) -> (Local, Vec<Line>) {
        Local::load_within(specs, &Local::default(), &Room::early())
    }

    fn load_within(specs: &ZoneSpecs, previous: &Local, room: &Room) -> (Local, Vec<Line>) {
        let entry = |spec: &crate::config::zones::ZoneSpec| {
            let apex = &spec.settings.apex;
            let live = previous.live(apex.as_name()).cloned();
            Entry {
                live: live.unwrap_or_else(|| Arc::new(Live::new(apex))),
                settings: Arc::clone(&spec.settings),
            }
        };
        let path = specs.state_directory();
        let state = match previous.state.path() == path {
            true => Arc::clone(&previous.state),
            false => Arc::new(StateDirectory::new(path)),
        };
        let mut local = Local {
            zones: Zones::default(),
            entries: specs.list.iter().map(entry).collect(),
            keys: specs.keys.clone(),
            state,
        };
        let mut lines = load::all(&local, room);
        lines.extend(told_in_vain(&local, previous));
        lines.sort_by_key(|line| !line.is_error);
        local.zones = local.current();
        (local, lines)
    }

    /// The same zones, as they are now.
    pub fn anew(&self) -> Local {
        Local {
            zones: self.current(),
            entries: self.entries.clone(),
            keys: self.keys.clone(),
            state: Arc::clone(&self.state),
        }
    }

    fn current(&self) -> Zones {
        let zone = |entry: &Entry| (entry.live.apex.clone(), entry.live.served());
        Zones::new(self.entries.iter().map(zone))
    }

    pub fn zones(&self) -> &Zones {
        &self.zones
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The key of this name.
    pub fn key(&self, name: Name<'_>) -> Option<Arc<Key>> {
        let key = self.keys.iter().find(|key| key.name() == name);
        key.cloned()
    }

    /// Whether anything can be signed here.
    #[inline]
    pub fn has_keys(&self) -> bool {
        !self.keys.is_empty()
    }

    /// Where zones and journals are kept.
    pub fn state(&self) -> &Arc<StateDirectory> {
        &self.state
    }

    /// The zone with this apex, and its settings.
    pub fn find(&self, apex: Name<'_>) -> Option<(&Arc<Live>, &Arc<ZoneSettings>)> {
        self.numbered(self.zones.number_of(apex)?)
    }

    /// The zone with this number, and its settings.
    pub fn numbered(&self, number: usize) -> Option<(&Arc<Live>, &Arc<ZoneSettings>)> {
        let entry = self.entries.get(number)?;
        Some((&entry.live, &entry.settings))
    }

    /// How long a secondary that hears from this zone now may go on with it, in seconds; `now`: those of the clock that the
    /// pipeline sees. `None`: it is not loaded.
    pub fn expires_in(&self, number: usize, now: u64) -> Option<u32> {
        let soa = self.zones.zone(number)?.soa();
        let live = &self.entries.get(number)?.live;
        // RFC 7314 §3: a primary answers with the EXPIRE field of its SOA record, a secondary with the time that is left until
        // its own copy expires.
        Some(live.expires_in(now).unwrap_or(soa.expire))
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = (&Arc<Live>, &Arc<ZoneSettings>)> {
        self.entries
            .iter()
            .map(|entry| (&entry.live, &entry.settings))
    }

    fn live(&self, apex: Name<'_>) -> Option<&Arc<Live>> {
        self.find(apex).map(|(live, _)| live)
    }
}

/// What is said of servers that are told of changes and may not fetch them, where `previous` had not the same to say.
fn told_in_vain(local: &Local, previous: &Local) -> Vec<Line> {
    let mut lines = Vec::new();
    for Entry { settings, .. } in &local.entries {
        let before = previous.find(settings.apex.as_name());
        let is_as_before = before
            .is_some_and(|(_, old)| (&old.notify, &old.acl) == (&settings.notify, &settings.acl));
        if is_as_before {
            continue;
        }
        lines.extend(settings.told_in_vain().map(|peer| {
            let ip = peer.address.ip();
            Line::info(format!(
                "zone {}: {ip} is told of changes (notify) and may not transfer them: unless it asks from another address, \
                 acl needs {{action=\"transfer\", address=\"{ip}\"}}",
                settings.apex
            ))
        }));
    }
    lines
}

/// A line for the operator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// The zone is not served as it should be.
    pub is_error: bool,
    pub text: String,
}

impl Line {
    fn error(text: String) -> Line {
        Line {
            is_error: true,
            text,
        }
    }

    fn info(text: String) -> Line {
        Line {
            is_error: false,
            text,
        }
    }

    pub fn log(&self) {
        match self.is_error {
            true => log::error!("{}", self.text),
            false => log::info!("{}", self.text),
        }
    }
}

#[cfg(test)]
mod fixture;
#[cfg(test)]
mod tests;
