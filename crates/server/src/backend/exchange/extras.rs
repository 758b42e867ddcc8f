//! What rules want of the answers to queries in flight, for the few that have such wishes: beside the bodies, whose words
//! cannot hold it. Who opens or ends another exchange does not come by here.

use crate::pipeline::carried::Carried;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Parts with a lock of their own: workers have slices of the bodies and so seldom meet.
const SHARDS: usize = 64;

/// Extras that a part has room for from the start: it grows, and allocates, when more are in flight.
const ROOM: usize = 28;

/// By body.
pub(super) struct KeptExtras {
    shards: [Mutex<HashMap<u32, Carried>>; SHARDS],
}

impl KeptExtras {
    pub(super) fn new() -> KeptExtras {
        KeptExtras {
            shards: [(); SHARDS].map(|()| Mutex::new(HashMap::with_capacity(ROOM))),
        }
    }

    /// To be called before the body can be found.
    pub(super) fn keep(&self, body: u32, extras: Carried) {
        self.shard(body).insert(body, extras);
    }

    /// For whoever won the exchange.
    pub(super) fn take(&self, body: u32) -> Carried {
        self.shard(body).remove(&body).unwrap_or_default()
    }

    /// For a leg of a race, which others may share them with.
    pub(super) fn copy(&self, body: u32) -> Carried {
        self.shard(body).get(&body).cloned().unwrap_or_default()
    }

    fn shard(&self, body: u32) -> MutexGuard<'_, HashMap<u32, Carried>> {
        let shard = &self.shards[body as usize / 64 % SHARDS];
        // A map is whole whatever its holder died of.
        shard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
