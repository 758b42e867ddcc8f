//! Orders to the task of a zone: by a configuration, by NOTIFY, by an operator.

use super::settings::ZoneSettings;
use super::{BackupOrder, StateDirectory};
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;

/// What a zone's task is told.
#[derive(Debug, Clone)]
pub enum Order {
    /// A configuration takes effect.
    Settings(Arc<ZoneSettings>, Arc<StateDirectory>),
    /// This process may write to the state directory, which another one has left.
    MayWrite,
    /// A primary says that it has something new.
    Notified {
        from: IpAddr,
        serial: Option<u32>,
    },
    /// `millrace zone reload`: the file is read if it has changed; primaries are asked.
    Reload,
    /// `millrace zone refresh`: primaries are asked.
    Refresh,
    /// `millrace zone retransfer`: the whole zone, whatever its serial.
    Retransfer,
    /// `millrace zone notify`.
    Notify,
    /// `millrace zone freeze` and `thaw`.
    Freeze,
    Thaw,
    /// `millrace zone xfr-freeze` and `xfr-thaw`: whether the zone goes to nobody.
    Withhold(bool),
    /// `millrace zone flush`: into the zone's file, or a copy into this folder.
    Flush(Option<PathBuf>),
    /// `millrace zone purge`: a secondary forgets the zone.
    Purge,
    /// `millrace zone backup` and `restore`.
    Backup(BackupOrder),
    Restore(BackupOrder),
}

impl Order {
    /// Whether a zone with these settings is among those that it is for where it names none.
    pub(super) fn is_for(&self, settings: &ZoneSettings) -> bool {
        match self {
            Order::Refresh | Order::Retransfer => settings.is_secondary(),
            Order::Notify => !settings.notify.is_empty(),
            Order::Flush(None) => settings.is_secondary() && settings.file.is_some(),
            _ => true,
        }
    }
}

/// An order on its way to a zone's task.
#[derive(Debug)]
pub struct Letter {
    pub(super) order: Order,
    /// Of an operator, who asks what came of it: see [`super::status::Outcome`].
    pub(super) ticket: Option<u64>,
}

impl From<Order> for Box<Letter> {
    fn from(order: Order) -> Box<Letter> {
        Box::new(Letter {
            order,
            ticket: None,
        })
    }
}
