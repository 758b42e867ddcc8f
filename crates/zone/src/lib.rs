//! A crate of its own because it must run without root, and because the daemon and its tools both use it: authoritative
//! data, without I/O, without a clock, without `unsafe`.
//!
//! | module | what | RFCs |
//! | --- | --- | --- |
//! | [`record`] | one resource record, as zone files and transfers give it | 1035 |
#![forbid(unsafe_code)]

pub mod record;
