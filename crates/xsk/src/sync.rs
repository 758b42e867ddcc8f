//! The atomics of the rings, and how they are ordered. `model/rings` puts loom's in their place.

pub(crate) use std::sync::atomic::AtomicU32;
use std::sync::atomic::{Ordering, fence};

/// Reading the other side's position: what it wrote before is seen after.
pub(crate) const OBSERVE: Ordering = Ordering::Acquire;
/// Storing our position: what we did before is seen by the other side.
pub(crate) const PUBLISH: Ordering = Ordering::Release;
/// Reading the flags: nothing else hangs on it.
pub(crate) const FLAG: Ordering = Ordering::Relaxed;

/// Our stores before it are seen by whoever's stores we do not see after it.
pub(crate) fn barrier() {
    fence(Ordering::SeqCst);
}
