//! Selectors, one file per theme.

pub mod client;
pub mod logic;
pub mod message;
pub mod name;
pub mod pool;
pub mod proxy;
pub mod random;
pub mod rate;
pub mod tags;
