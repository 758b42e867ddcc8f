//! The daemon as a secondary and as a primary on loopback: of knotd, nsd and named, and of a primary that lies.

mod asking;
mod daemon;
mod disk;
mod faults;
mod files;
mod history;
mod memory;
mod notify;
mod peers;
mod primary;
#[path = "../../../zone/tests/transfers/servers.rs"]
mod servers;
mod signatures;
mod statistics;
mod verbs;
