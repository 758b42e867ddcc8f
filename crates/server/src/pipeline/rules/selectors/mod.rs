//! Selectors, one file per theme.
