//! Listening sockets beside those of DNS, for a process that succeeds this one.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What listens now, by who does.
#[derive(Debug, Clone, Default)]
pub struct Listening(Arc<Mutex<HashMap<&'static str, OwnedFd>>>);

impl Listening {
    /// From now on `who` listens by this socket, or by none.
    pub fn set(&self, who: &'static str, listener: Option<&impl AsFd>) {
        // Without a duplicate the next process finds the address in use, and says so.
        let duplicate = listener.and_then(|listener| listener.as_fd().try_clone_to_owned().ok());
        match duplicate {
            Some(duplicate) => self.all().insert(who, duplicate),
            None => self.all().remove(who),
        };
    }

    /// Duplicates of all of them.
    ///
    /// # Errors
    /// No descriptors left.
    pub fn duplicates(&self) -> io::Result<Vec<OwnedFd>> {
        self.all().values().map(OwnedFd::try_clone).collect()
    }

    fn all(&self) -> MutexGuard<'_, HashMap<&'static str, OwnedFd>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
