//! Selectors, one file per theme.

pub mod logic;
