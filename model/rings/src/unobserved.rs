//! Positions read Relaxed: slots can be read before the position that says they are there.

mod sync {
    pub(crate) use loom::sync::atomic::AtomicU32;
    use loom::sync::atomic::{Ordering, fence};
    pub(crate) const OBSERVE: Ordering = Ordering::Relaxed;
    pub(crate) const PUBLISH: Ordering = Ordering::Release;
    pub(crate) const FLAG: Ordering = Ordering::Relaxed;
    pub(crate) fn barrier() {
        fence(Ordering::SeqCst);
    }
}
#[path = "../../../crates/xsk/src/ring.rs"]
mod ring;
include!("checks.rs");
