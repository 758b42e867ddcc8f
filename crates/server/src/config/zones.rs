//! What is written about zones that we answer ourselves: `millrace.addZone` and its relatives.

use super::place::Place;
use crate::local::ZoneSettings;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use wire::name::{Name, NameBuf};
use zone::tsig::Key;

/// Where zones and journals are kept, unless systemd or the file says otherwise.
const STATE_DIRECTORY: &str = "/var/lib/millrace";

/// All zones of a file, and what they share.
#[derive(Debug, Clone, Default)]
pub struct ZoneSpecs {
    /// One per millrace.addZone, in their order.
    pub list: Vec<ZoneSpec>,
    /// One per millrace.addKey.
    pub keys: Vec<Arc<Key>>,
    /// millrace.setStateDirectory.
    pub state_directory: Option<PathBuf>,
}

/// One millrace.addZone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ZoneSpec {
    pub place: Place,
    pub settings: Arc<ZoneSettings>,
    /// The pools that it serves, which exist; none: the default one.
    pub pools: Vec<String>,
    /// It has counters of its own.
    pub statistics: bool,
}

impl ZoneSpecs {
    /// The key of this name.
    pub fn key(&self, name: Name<'_>) -> Option<&Arc<Key>> {
        self.keys.iter().find(|key| key.name() == name)
    }

    pub fn has(&self, apex: &NameBuf) -> bool {
        self.list.iter().any(|zone| zone.settings.apex == *apex)
    }

    /// Where zones and journals are kept. systemd names its `StateDirectory=` in the environment.
    pub fn state_directory(&self) -> PathBuf {
        let of_systemd = || {
            let text = std::env::var("STATE_DIRECTORY").ok()?;
            // systemd.exec(5): several are separated by colons.
            text.split(':').next().map(PathBuf::from)
        };
        self.state_directory
            .clone()
            .or_else(of_systemd)
            .unwrap_or_else(|| Path::new(STATE_DIRECTORY).to_owned())
    }
}

#[cfg(test)]
impl ZoneSpecs {
    /// One zone, served from `file`.
    pub(crate) fn of_file(apex: &str, file: &Path) -> ZoneSpecs {
        ZoneSpecs::with([(apex.parse().expect("a name"), file)])
    }

    /// Zones whose file is nowhere.
    pub(crate) fn nowhere(apexes: &[NameBuf]) -> ZoneSpecs {
        let nowhere = Path::new("/nowhere/zone");
        ZoneSpecs::with(apexes.iter().map(|apex| (apex.clone(), nowhere)))
    }

    /// Zones served from their files.
    pub(crate) fn with<'p>(zones: impl IntoIterator<Item = (NameBuf, &'p Path)>) -> ZoneSpecs {
        let zone = |(apex, file): (NameBuf, &Path)| ZoneSpec {
            place: Place::command_line(),
            settings: Arc::new(ZoneSettings {
                file: Some(file.to_owned()),
                ..ZoneSettings::new(apex)
            }),
            pools: Vec::new(),
            statistics: false,
        };
        ZoneSpecs {
            list: zones.into_iter().map(zone).collect(),
            ..ZoneSpecs::default()
        }
    }
}
