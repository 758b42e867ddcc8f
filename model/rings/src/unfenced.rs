//! No barrier before the flag is read: a sleeping consumer can be missed.

mod sync {
    pub(crate) use loom::sync::atomic::AtomicU32;
    use loom::sync::atomic::Ordering;
    pub(crate) const OBSERVE: Ordering = Ordering::Acquire;
    pub(crate) const PUBLISH: Ordering = Ordering::Release;
    pub(crate) const FLAG: Ordering = Ordering::Relaxed;
    pub(crate) fn barrier() {}
}
#[path = "../../../crates/xsk/src/ring.rs"]
mod ring;
include!("checks.rs");
