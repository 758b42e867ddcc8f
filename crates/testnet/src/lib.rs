//! The laboratory: network namespaces joined by veth pairs, scripted clients and hostile backends in
//! them, and the runner of `tests/scenarios`. A crate of its own because it is development only:
//! nothing of it is in the shipped programs. It needs root, and leaves nothing behind.
//!
//! ```text
//!  PREFIX-client                PREFIX-server                 PREFIX-backend
//! ┌─────────────────┐   veth   ┌───────────────────────┐  veth  ┌─────────────────┐
//! │ to-server       │══════════│ enp1s0         enp2s0 │════════│ to-server       │
//! │ 192.0.2.100 …   │ 2 queues │ 192.0.2.1             │ 2 q.   │ 198.51.100.2 …  │
//! │ 2001:db8::100 … │          │ 2001:db8::1           │        │ 2001:db8:1::2 … │
//! └─────────────────┘          │ 198.51.100.1          │        │ 192.0.2.2       │
//!                              └───────────────────────┘        └─────────────────┘
//! ```
//!
//! Messages are built and read with the crate `domain`, not with our own `wire`: whoever checks an
//! answer should not share a mistake with whoever wrote it.

mod again;
pub mod bench;
pub mod dns;
pub mod exceptions;
mod failure;
pub mod frame;
pub mod kernel_counters;
pub mod lab;
pub mod ledger;
pub mod loopback;
pub mod manual;
pub mod metrics;
pub mod namespace;
pub mod process;
pub mod resolvers;
pub mod scenario;
pub mod seccomp;
mod signals;
pub mod sniffer;
pub mod soak;
pub mod subject;
pub mod sys;
pub mod tour;
mod tree;

pub use again::again_if_interrupted;
pub use failure::{During, Failure, Outcome};
