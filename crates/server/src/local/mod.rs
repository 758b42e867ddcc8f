//! Zones that we answer ourselves: the bridge to crate `zone`. Files are read here, by the control thread; workers meet
//! only the finished [`Zones`] within their configuration.

mod read;

pub use read::{ReadZone, read};

use crate::config::spec::ZoneSpec;
use crate::log;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;
use wire::name::NameBuf;
use zone::answer::Zones;
use zone::zone::Zone;

/// The zones of one configuration.
#[derive(Default)]
pub struct Local {
    zones: Zones,
    /// By the same numbers.
    sources: Vec<Source>,
}

/// Where a zone is from.
struct Source {
    apex: NameBuf,
    file: PathBuf,
    /// The files that the zone was made of, as they were: the same ones make the same zone. Empty where none was made.
    stamps: Vec<Stamp>,
}

/// What changes when somebody writes a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stamp {
    pub path: PathBuf,
    pub modified: Option<SystemTime>,
    /// Bytes.
    pub length: u64,
    pub inode: u64,
}

impl Local {
    /// The zones that `specs` ask for: those of `previous` whose files have not changed, others read anew. A zone that
    /// cannot be read stays as it was; one that never was there is not loaded, and answered with SERVFAIL. The second
    /// value are lines for the operator, what went wrong first.
    pub fn load(specs: &[ZoneSpec], previous: &Local) -> (Local, Vec<Line>) {
        let mut lines = Vec::new();
        let mut zones = Vec::new();
        let mut sources = Vec::new();
        for spec in specs {
            let old = previous.find(spec);
            let (zone, stamps) = match old {
                Some((Some(zone), source)) if source.is_unchanged() => {
                    (Some(Arc::clone(zone)), source.stamps.clone())
                }
                old => anew(spec, old.and_then(|(zone, _)| zone), &mut lines),
            };
            zones.push((spec.apex.clone(), zone));
            sources.push(Source {
                apex: spec.apex.clone(),
                file: spec.file.clone(),
                stamps,
            });
        }
        lines.sort_by_key(|line| !line.is_error);
        (
            Local {
                zones: Zones::new(zones),
                sources,
            },
            lines,
        )
    }

    pub fn zones(&self) -> &Zones {
        &self.zones
    }

    pub fn is_empty(&self) -> bool {
        self.sources.is_empty()
    }

    /// The zone that serves now in the place of `spec`, and where it is from.
    fn find(&self, spec: &ZoneSpec) -> Option<(Option<&Arc<Zone>>, &Source)> {
        let is_same = |source: &&Source| source.apex == spec.apex && source.file == spec.file;
        let source = self.sources.iter().find(is_same)?;
        let number = self.zones.number_of(source.apex.as_name())?;
        Some((self.zones.zone(number), source))
    }
}

/// A line for the operator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// The zone is not served as its file says.
    pub is_error: bool,
    pub text: String,
}

impl Line {
    pub fn log(&self) {
        match self.is_error {
            true => log::error!("{}", self.text),
            false => log::info!("{}", self.text),
        }
    }
}

/// Warnings of one zone that are said; `millrace zone check` says all.
const WARNINGS_SAID: usize = 10;

/// Reads a zone anew; on failure the old one, if there is one.
fn anew(
    spec: &ZoneSpec,
    old: Option<&Arc<Zone>>,
    lines: &mut Vec<Line>,
) -> (Option<Arc<Zone>>, Vec<Stamp>) {
    match read(spec.apex.as_name(), &spec.file) {
        Ok(read) => {
            lines.push(Line {
                is_error: false,
                text: format!(
                    "zone {}: serial {}, {} records loaded",
                    spec.apex,
                    read.zone.soa().serial,
                    read.zone.records_count()
                ),
            });
            let warnings = read.warnings.iter().take(WARNINGS_SAID);
            lines.extend(warnings.map(|warning| Line {
                is_error: false,
                text: format!("zone {}: {warning}", spec.apex),
            }));
            (Some(Arc::new(read.zone)), read.stamps)
        }
        Err(errors) => {
            let outcome = match old {
                Some(old) => format!("serial {} serves on", old.soa().serial),
                None => "answered with SERVFAIL".to_owned(),
            };
            lines.extend(errors.into_iter().map(|error| Line {
                is_error: true,
                text: format!("zone {}: {error}; {outcome}", spec.apex),
            }));
            // Without stamps, so that the next reload tries again.
            (old.cloned(), Vec::new())
        }
    }
}

impl Source {
    fn is_unchanged(&self) -> bool {
        !self.stamps.is_empty()
            && self
                .stamps
                .iter()
                .all(|stamp| Stamp::of(&stamp.path).as_ref() == Some(stamp))
    }
}
