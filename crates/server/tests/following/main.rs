//! The daemon follows the network: what changes is served by kernel sockets within a second and over AF_XDP within five,
//! by the privileged helper, long after the daemon has given its capabilities away. Each test has a lab of its own; needs
//! root. And what both doors answer there ([`doors`]).

mod addresses;
mod bad_reload;
mod bonds;
mod connections;
#[path = "../../../zone/tests/peers/corpus.rs"]
mod corpus;
mod doors;
mod helper;
mod idle;
mod interfaces;
mod kept;
mod leaving;
mod looking;
mod polling;
mod programs;
mod resources;
mod restart;
mod restricted;
mod rig;
mod service;
mod sources;
mod stalled;
#[path = "../../../zone/tests/peers/zones.rs"]
mod zones;
