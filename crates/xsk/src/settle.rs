//! Waiting for what processors have begun with a map as it was before.

use std::time::Duration;

use crate::sys::memory::synchronize;

/// How long to wait where the kernel cannot tell: a processor takes a batch of frames in far less.
const LONG_ENOUGH: Duration = Duration::from_millis(10);

/// Waits until every frame that a program redirected by a map entry which has been removed since is in its ring. A processor
/// works on a batch of frames in an RCU read-side section, and membarrier(2) waits until all that have begun are over.
pub fn settle() {
    if synchronize().is_err() {
        std::thread::sleep(LONG_ENOUGH);
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn this_kernel_can_tell() {
        assert!(super::synchronize().is_ok());
    }
}
