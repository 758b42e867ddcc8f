//! A crate of its own because it must run without root, and because the daemon and its tools both use it: authoritative
//! data, without I/O, without a clock, without `unsafe`.
//!
//! | module | what | RFCs |
//! | --- | --- | --- |
//! | [`file`] | zone files: read entry by entry, printed | 1035, 2308, 3597 |
//! | [`rdata`] | the data of every type: on the wire, as text, checked, canonical | listed there |
//! | [`record`] | one resource record, as zone files and transfers give it | 1035 |
#![forbid(unsafe_code)]

pub mod file;
pub mod rdata;
pub mod record;
