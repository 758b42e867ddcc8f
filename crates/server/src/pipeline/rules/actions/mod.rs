//! Actions on queries, one file per theme.
