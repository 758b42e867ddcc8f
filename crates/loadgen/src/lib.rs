//! `floodgate`: a load generator for DNS servers. Every answer is matched to its query.
//!
//! A crate of its own because it is a program of its own: the second user of `wire` and `xsk`.

pub mod commands;
pub mod connections;
pub mod expected;
pub mod failure;
pub mod flights;
pub mod judge;
pub mod live;
pub mod pace;
pub mod path;
pub mod queries;
pub mod questions;
pub mod ramp;
pub mod report;
pub mod search;
pub mod shape;
pub mod sockets;
pub mod tally;
pub mod watch;
pub mod xdp;
