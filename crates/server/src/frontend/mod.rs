//! Doors: bytes into a query, an answer into bytes, nothing else. No rule, check or query counter lives here (I13).
pub mod tcp;
