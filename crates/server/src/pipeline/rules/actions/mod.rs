//! Actions, one file per theme.

pub mod answer;
pub mod limit;
pub mod pass;
pub mod response;
pub mod route;
