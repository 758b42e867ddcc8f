//! Actions on queries, one file per theme.

pub mod answer;
