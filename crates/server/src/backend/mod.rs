//! Backends: the servers that are asked, the pools they stand in, the policies that choose one, the queries in flight,
//! the ports they leave from, the checks that tell who is up.

pub mod exchange;
#[cfg(test)]
pub(crate) mod fixture;
pub mod health;
pub mod policy;
pub mod pool;
pub mod ports;
pub mod server;
