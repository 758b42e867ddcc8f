//! The daemon follows the network: what changes is served by kernel sockets within a second and over AF_XDP within five,
//! by the privileged helper, long after the daemon has given its capabilities away. Each test has a lab of its own; needs
//! root.

mod addresses;
mod bad_reload;
mod connections;
mod helper;
mod idle;
mod interfaces;
mod kept;
mod looking;
mod polling;
mod programs;
mod resources;
mod restart;
mod restricted;
mod rig;
mod service;
mod stalled;
