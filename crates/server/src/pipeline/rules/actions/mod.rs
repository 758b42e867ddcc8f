//! Actions, one file per theme.

pub mod answer;
pub mod count;
pub mod limit;
pub mod log;
pub mod pass;
pub mod proxy;
pub mod remember;
pub mod response;
pub mod route;
pub mod spoof;
pub mod svc;
pub mod tags;
pub mod tee;
