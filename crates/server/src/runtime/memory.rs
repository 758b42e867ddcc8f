//! A bound on the bytes that TCP clients and backends make us keep (invariant I6): whoever would pass it is turned away,
//! nobody waits.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Bytes that may be held, over all tasks.
#[derive(Debug, Clone)]
pub struct Memory(Arc<Account>);

#[derive(Debug)]
struct Account {
    used: AtomicUsize,
    limit: usize,
}

impl Memory {
    /// `limit` is in bytes.
    pub fn new(limit: usize) -> Memory {
        Memory(Arc::new(Account {
            used: AtomicUsize::new(0),
            limit,
        }))
    }

    /// A hold of nothing yet.
    pub fn hold(&self) -> Hold {
        Hold {
            memory: self.clone(),
            bytes: 0,
        }
    }

    /// Bytes held now.
    pub fn used(&self) -> usize {
        self.0.used.load(Relaxed)
    }
}

/// Bytes that belong to one message; they are free again when this is dropped.
#[derive(Debug)]
pub struct Hold {
    memory: Memory,
    bytes: usize,
}

/// The limit would be passed; nothing has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Full;

impl Hold {
    /// Holds so many bytes in all, more or fewer than before.
    ///
    /// # Errors
    /// When the limit would be passed by holding more.
    pub fn set(&mut self, bytes: usize) -> Result<(), Full> {
        let account = &self.memory.0;
        if bytes <= self.bytes {
            account.used.fetch_sub(self.bytes - bytes, Relaxed);
        } else {
            let more = bytes - self.bytes;
            if account.used.fetch_add(more, Relaxed) + more > account.limit {
                account.used.fetch_sub(more, Relaxed);
                return Err(Full);
            }
        }
        self.bytes = bytes;
        Ok(())
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.memory.0.used.fetch_sub(self.bytes, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_never_passes_the_limit_and_comes_back() {
        let memory = Memory::new(100);
        let mut one = memory.hold();
        let mut other = memory.hold();
        assert_eq!(one.set(60), Ok(()));
        assert_eq!(other.set(41), Err(Full));
        assert_eq!(memory.used(), 60);
        assert_eq!(other.set(40), Ok(()));
        assert_eq!(one.set(10), Ok(()));
        assert_eq!(memory.used(), 50);
        drop(other);
        assert_eq!(memory.used(), 10);
        drop(one);
        assert_eq!(memory.used(), 0);
    }
}
