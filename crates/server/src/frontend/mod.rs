//! Doors: bytes into a query, an answer into bytes, nothing else. No rule, check or query counter lives here (I13).

pub mod devices;
pub mod inherited;
pub mod listeners;
pub mod named;
pub mod outlets;
pub mod sys;
pub mod tap;
pub mod tcp;
pub mod udp;
pub mod watch;
pub mod xsk;
