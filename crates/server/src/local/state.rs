//! The state directory, and the right to write there, which one process has at a time: two of a restart overlap, and each
//! reads the directory, but what the newer one writes before the older one has ended could tear what that one writes.
//!
//! ```text
//!  process   right   writes
//!  older     held    yes          keeps what comes until it leaves
//!  newer     none    no           serves what it has read; what comes meanwhile serves, and is kept later
//!  older     given   never again  it has left
//!  newer     held    yes          reads again what was kept, and goes on from there
//! ```
//!
//! The right is a lock (flock(2)) on the directory itself, which ends with its process, however that ends.

use std::fmt;
use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Where zones and journals are kept.
#[derive(Debug, Default)]
pub struct StateDirectory {
    path: PathBuf,
    right: RwLock<Right>,
    /// Somebody waits for the right.
    is_awaited: AtomicBool,
}

/// Whether this process may write.
#[derive(Debug, Default)]
enum Right {
    #[default]
    None,
    /// The directory, locked.
    Held { locked: File },
    /// This process has left it to the next one.
    Given,
}

/// Why this process may not write.
#[derive(Debug)]
pub(super) enum NoRight {
    /// Another process has it.
    Others,
    Given,
    System(io::Error),
}

impl fmt::Display for NoRight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NoRight::Others => f.write_str(
                "another process keeps its zones there: each needs a directory of its own (millrace.setStateDirectory)",
            ),
            NoRight::Given => f.write_str("it is left to the process that has taken over"),
            NoRight::System(error) => write!(f, "{error}"),
        }
    }
}

impl StateDirectory {
    /// Nothing is touched yet.
    pub fn new(path: PathBuf) -> StateDirectory {
        StateDirectory {
            path,
            ..StateDirectory::default()
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The right to write while the guard lives.
    ///
    /// # Errors
    /// Why there is none.
    pub(super) fn enter(&self) -> Result<impl Sized + '_, NoRight> {
        let guard = self.read();
        if self.holds(&guard) {
            return Ok(guard);
        }
        drop(guard);
        self.take()?;
        let guard = self.read();
        match *guard {
            Right::Held { .. } => Ok(guard),
            // It was given away between the two.
            _ => Err(NoRight::Given),
        }
    }

    /// Takes the right, if nobody else has it.
    fn take(&self) -> Result<(), NoRight> {
        let mut right = self.write();
        if self.holds(&right) {
            return Ok(());
        }
        if let Right::Given = *right {
            return Err(NoRight::Given);
        }
        let directory = self.open().map_err(NoRight::System)?;
        match directory.try_lock() {
            Ok(()) => {
                *right = Right::Held { locked: directory };
                Ok(())
            }
            Err(TryLockError::WouldBlock) => Err(NoRight::Others),
            Err(TryLockError::Error(error)) => Err(NoRight::System(error)),
        }
    }

    /// Whether this is the right to the directory at the path: who renames or removes that one takes the lock away with it, and
    /// the next one that is made there is anybody's.
    fn holds(&self, right: &Right) -> bool {
        let Right::Held { locked } = right else {
            return false;
        };
        let number = |found: fs::Metadata| (found.dev(), found.ino());
        let there = fs::metadata(&self.path).map(number);
        let ours = locked.metadata().map(number);
        there.is_ok_and(|there| ours.is_ok_and(|ours| ours == there))
    }

    /// Whether another process has the right, and nobody waits yet for its end.
    pub(super) fn is_to_be_awaited(&self) -> bool {
        self.is_others() && !self.is_awaited.swap(true, SeqCst)
    }

    /// Whether another process has the right.
    pub(super) fn is_others(&self) -> bool {
        matches!(self.take(), Err(NoRight::Others))
    }

    /// Waits until the other process has ended or given the right away. False: something went wrong, and whoever writes
    /// will be told what.
    pub(super) fn wait(&self) -> bool {
        let locked = self.open().and_then(|directory| {
            directory.lock()?;
            Ok(directory)
        });
        self.is_awaited.store(false, SeqCst);
        let Ok(directory) = locked else {
            return false;
        };
        let mut right = self.write();
        if let Right::None = *right {
            *right = Right::Held { locked: directory };
        }
        true
    }

    /// Leaves the right to the next process, when what is being written is written.
    pub(super) fn give(&self) {
        *self.write() = Right::Given;
    }

    /// The directory, made where it was missing.
    fn open(&self) -> io::Result<File> {
        match File::open(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                fs::create_dir_all(&self.path)?;
                File::open(&self.path)
            }
            opened => opened,
        }
    }

    fn read(&self) -> RwLockReadGuard<'_, Right> {
        self.right.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Right> {
        self.right.write().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn one_process_writes_at_a_time_and_the_next_one_when_it_has_left() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        let (older, newer) = (
            StateDirectory::new(path.clone()),
            StateDirectory::new(path.clone()),
        );
        assert!(!older.is_to_be_awaited());
        assert!(older.enter().is_ok());
        assert!(matches!(newer.enter().err(), Some(NoRight::Others)));
        assert!(
            newer.is_to_be_awaited() && !newer.is_to_be_awaited(),
            "once"
        );
        thread::scope(|scope| {
            let waiting = scope.spawn(|| newer.wait());
            older.give();
            assert!(waiting.join().unwrap());
        });
        assert!(newer.enter().is_ok());
        assert!(matches!(older.enter().err(), Some(NoRight::Given)));
        // However a process ends, what it has locked is free.
        drop(newer);
        assert!(StateDirectory::new(path).enter().is_ok());
    }
}
