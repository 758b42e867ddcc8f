//! Which pools a zone serves: that of its `pool`, as a server's, or the default one.

use crate::config::pools::PoolId;
use wire::name::Name;
use zone::answer::Zones;

/// Pools by zone. The default value: every zone serves the default pool.
#[derive(Clone, Default)]
pub struct ZonePools {
    /// By a zone's number; empty where none names a pool.
    of_zone: Vec<Box<[PoolId]>>,
    /// All of them, each once.
    all: Vec<PoolId>,
}

impl ZonePools {
    /// `zones` with the pools that they name; those that name none serve the default one.
    pub fn new<'z>(
        named: impl IntoIterator<Item = (Name<'z>, &'z [PoolId])>,
        zones: &Zones,
    ) -> ZonePools {
        let mut of_zone: Vec<Box<[PoolId]>> = Vec::new();
        for (apex, pools) in named.into_iter().filter(|(_, pools)| !pools.is_empty()) {
            if let Some(number) = zones.number_of(apex) {
                of_zone.resize_with(zones.count(), || Box::from([PoolId::DEFAULT]));
                of_zone[number] = pools.into();
            }
        }
        let mut all = of_zone.concat();
        all.sort_unstable();
        all.dedup();
        ZonePools { of_zone, all }
    }

    /// Whether any zone serves this pool; where there are zones at all.
    #[inline]
    pub fn has(&self, pool: PoolId) -> bool {
        match self.of_zone.is_empty() {
            true => pool == PoolId::DEFAULT,
            false => self.all.contains(&pool),
        }
    }

    /// Whether any zone names the pools that it serves.
    pub fn are_named(&self) -> bool {
        !self.of_zone.is_empty()
    }

    /// Whether the zone with this number serves this pool.
    #[inline]
    pub fn serves(&self, zone: usize, pool: PoolId) -> bool {
        self.of_zone.is_empty() || self.of_zone[zone].contains(&pool)
    }
}
