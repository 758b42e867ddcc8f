//! `millrace zone backup` and `millrace zone restore`: zones of the running instance copied, and put back. What is meant of a
//! zone is said with the words of Knot's zone-backup.

use super::{ask, complain};
use crate::control::protocol::{DEFAULT_PATH, Request};
use crate::local::{BackupOrder, Parts};
use std::path::{Path, PathBuf, absolute};
use std::process::ExitCode;

/// The filters, as an error names them.
const FILTERS: &str = "+zonefile, +journal, +timers, +nozonefile, +nojournal, +notimers and +force";

#[derive(Debug, Clone, PartialEq, Eq, clap::Args)]
pub(super) struct Backup {
    /// Zones, none: all; +journal, +nozonefile, +notimers for what is copied; +force to replace a backup
    #[arg(value_name = "NAME|+FILTER")]
    words: Vec<String>,
    /// Copy into DIRECTORY/ZONE, as the user that the instance runs as
    #[arg(long, value_name = "DIRECTORY")]
    to: PathBuf,
    /// Where the instance's control socket is
    #[arg(long, value_name = "PATH", default_value = DEFAULT_PATH)]
    control: PathBuf,
}

#[derive(Debug, Clone, PartialEq, Eq, clap::Args)]
pub(super) struct Restore {
    /// Zones, none: all; +journal, +nozonefile, +notimers for what is put back
    #[arg(value_name = "NAME|+FILTER")]
    words: Vec<String>,
    /// Where `backup` has copied to
    #[arg(long, value_name = "DIRECTORY")]
    from: PathBuf,
    /// Where the instance's control socket is
    #[arg(long, value_name = "PATH", default_value = DEFAULT_PATH)]
    control: PathBuf,
}

/// What is done with the zones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Command {
    Backup,
    Restore,
}

impl Backup {
    pub(super) fn run(&self) -> ExitCode {
        match read(&self.words, &self.to, Command::Backup) {
            Ok((zones, backup)) => ask::begin(&self.control, Request::ZoneBackup { zones, backup }),
            Err(reason) => failure(&reason),
        }
    }
}

impl Restore {
    pub(super) fn run(&self) -> ExitCode {
        match read(&self.words, &self.from, Command::Restore) {
            Ok((zones, backup)) => {
                ask::begin(&self.control, Request::ZoneRestore { zones, backup })
            }
            Err(reason) => failure(&reason),
        }
    }
}

fn failure(reason: &str) -> ExitCode {
    complain(reason);
    ExitCode::FAILURE
}

/// The zones that are named, and what is to be done with them.
fn read(
    words: &[String],
    folder: &Path,
    command: Command,
) -> Result<(Vec<String>, BackupOrder), String> {
    // The instance is in another directory than whoever asks.
    let folder = absolute(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut order = BackupOrder {
        folder,
        parts: Parts::default(),
        is_forced: false,
    };
    let mut zones = Vec::new();
    for word in words {
        match word.strip_prefix('+') {
            Some(filter) => apply(filter, &mut order, command)?,
            None => zones.push(word.clone()),
        }
    }
    Ok((zones, order))
}

/// knotc(8): "Setting a filter for an item doesn't change default settings for other items."
fn apply(filter: &str, order: &mut BackupOrder, command: Command) -> Result<(), String> {
    let (part, is_wanted) = match filter.strip_prefix("no") {
        Some(part) => (part, false),
        None => (filter, true),
    };
    match part {
        "force" if is_wanted && command == Command::Restore => {
            complain("+force: no effect: restore always replaces what is here");
        }
        "force" if is_wanted => order.is_forced = true,
        "zonefile" => order.parts.zonefile = is_wanted,
        "journal" => order.parts.journal = is_wanted,
        "timers" => order.parts.timers = is_wanted,
        "kaspdb" | "keysonly" | "quic" => {
            complain(format_args!(
                "+{filter}: no effect: millrace does not sign, there are no keys"
            ));
        }
        "catalog" => complain(format_args!(
            "+{filter}: no effect: there are no catalog zones"
        )),
        _ => {
            return Err(format!(
                "+{filter}: no such filter: one of {FILTERS} expected"
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(words: &[&str]) -> Result<(Vec<String>, BackupOrder), String> {
        order_to(Command::Backup, words)
    }

    fn order_to(command: Command, words: &[&str]) -> Result<(Vec<String>, BackupOrder), String> {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        read(&words, Path::new("/copies"), command)
    }

    #[test]
    fn a_restore_cannot_be_forced() {
        let (zones, found) = order_to(Command::Restore, &["a.", "+force", "+journal"]).unwrap();
        assert_eq!(zones, ["a."]);
        assert!(!found.is_forced && found.parts.journal);
    }

    #[test]
    fn zones_and_filters_are_told_apart_by_the_sign() {
        let (zones, found) = order(&["a.", "+journal", "b.", "+notimers", "+force"]).unwrap();
        assert_eq!(zones, ["a.", "b."]);
        let parts = Parts {
            zonefile: true,
            journal: true,
            timers: false,
        };
        let expected = BackupOrder {
            folder: "/copies".into(),
            parts,
            is_forced: true,
        };
        assert_eq!(found, expected);
    }

    #[test]
    fn keys_change_nothing_and_other_words_are_errors() {
        let (zones, found) = order(&["+kaspdb", "+nokeysonly", "+nocatalog"]).unwrap();
        assert_eq!((zones.len(), found.parts), (0, Parts::default()));
        assert!(!found.is_forced);
        for word in ["+nonsense", "+", "+noforce"] {
            let reason = order(&[word]).unwrap_err();
            assert!(reason.contains("no such filter"), "{word}: {reason}");
        }
    }
}
