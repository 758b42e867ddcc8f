//! `millrace`: a DNS load balancer and authoritative server whose UDP path runs over AF_XDP. The program is in `main.rs`;
//! it is a library too, so that tests, fuzz targets and the counting harness call the pipeline without a socket.

pub mod at_path;
pub mod backend;
pub mod clock;
pub mod commands;
pub mod config;
pub mod control;
pub mod counters;
pub mod frontend;
pub mod handover;
pub mod heap;
pub mod holder;
pub mod instance;
pub mod local;
pub mod log;
pub mod memory;
pub mod network;
pub mod notify;
pub mod pipeline;
pub mod querycount;
pub mod querylog;
pub mod random;
pub mod runtime;
pub mod serve;
#[cfg(test)]
mod simulation;
pub mod stop;
pub mod tee;
pub mod words;
pub mod worker;

/// What `--version` and the API say; it begins with the name that scripts look for.
pub fn version() -> String {
    format!("dnsdist (millrace {})", env!("CARGO_PKG_VERSION"))
}
