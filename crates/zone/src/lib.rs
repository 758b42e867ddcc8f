//! A crate of its own because it must run without root, and because the daemon and its tools both use it: authoritative
//! data, without I/O, without a clock, without `unsafe`.
//!
//! | module | what | RFCs |
//! | --- | --- | --- |
//! | [`answer`] | answers from zones, in the buffer of the query | 1034, 2308, 4035, 4592, 5155, 6672, 8482, 9460, 9471 |
//! | [`file`] | zone files: read entry by entry, printed | 1035, 2308, 3597 |
//! | [`rdata`] | the data of every type: on the wire, as text, checked, canonical | listed there |
//! | [`record`] | one resource record, as zone files and transfers give it | 1035 |
//! | [`transfer`] | zones to and from others, journals | 1982, 1995, 1996, 5936 |
//! | [`tsig`] | messages signed with shared secrets | 8945 |
//! | [`zone`] | the compiled zone: records encoded once, names found by hash; signatures verified | 1034, 2181, 4034, 4035, 4592, 5155, 6672, 9276 |
#![forbid(unsafe_code)]

pub mod answer;
pub mod file;
pub mod rdata;
pub mod record;
pub mod transfer;
pub mod tsig;
pub mod zone;
