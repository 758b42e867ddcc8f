//! The bridge to Lua: dnsdist's functions, one file per theme.
