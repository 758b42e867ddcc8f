//! A crate of its own because a safety rule differs here: this is where `unsafe` is allowed, so that nothing else needs it.
//!
//! AF_XDP: frames from and to a network interface without the kernel's network stack between. Linux 5.10 and newer.
//!
//! ```text
//!            Program (bpf/steer.bpf.c, one per interface)
//!  NIC ──frame──▶ ours? ──no──▶ the kernel's stack
//!                   │yes
//!                   ▼                                    one worker
//!  ┌─────────────────────────────── Umem: chunks of 2,048 octets, free list ───────────────┐
//!  │  fill ring ◀── refill ── free        RX ring ── receive ─▶ Frame ─▶ chunk_mut         │ one
//!  │  completion ring ── complete ─▶ free     TX ring ◀── send ── Frame                    │ Socket
//!  └────────────────────────────────────────────────────────────────────────────────────────┘ per queue
//! ```
//!
//! One worker owns one [`Umem`] and one [`Socket`] per interface on it. A [`Frame`] is the right to touch one chunk; it is
//! owned by exactly one of: free list, fill, RX, pipeline, TX, completion ([`Census`]).

mod attach;
mod busy_poll;
mod collector;
mod dnsdist;
mod error;
mod foreign;
mod found;
mod heartbeat;
mod kept;
mod layout;
pub mod nic;
mod object;
mod pages;
mod program;
mod ring;
#[cfg(test)]
mod ring_tests;
mod settle;
#[cfg(any(test, feature = "simulation"))]
pub mod simulated;
mod socket;
mod spread;
mod sync;
#[allow(unsafe_code)]
mod sys;
mod tally;
mod umem;
mod wake;

pub use attach::{AttachMode, Attachment, attached_program};
pub use busy_poll::BusyPoll;
pub use collector::{COLLECTED, Collected, Collection, Collector, Sources};
pub use dnsdist::{DNSDIST_PINS, Owner, load_dnsdist};
pub use error::{Error, Result};
pub use foreign::Foreign;
pub use found::{Found, Owned};
pub use heartbeat::Heartbeat;
pub use kept::unload;
pub use layout::{LAYOUT, REASONS, ROOM, Reason};
pub use pages::{Area, Pages, smaps};
pub use program::{Handed, Program};
pub use settle::settle;
pub use socket::{
    BATCH, Batch, BindMode, Flushed, KernelCounters, Options, Received, Refilled, RingSizes, Socket,
};
pub use spread::{Chosen, Pulses, SPREADS, Spread, forget_spread};
pub use sys::memory::prefetch_line;
pub use tally::{Count, Counters, Tally};
pub use umem::{CHUNK, Census, Frame, Umem, UmemOptions};
