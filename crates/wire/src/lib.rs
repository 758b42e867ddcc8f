//! A crate of its own because of its safety rule: no I/O, no clock, no `unsafe`; the daemon and the generator share it.
//!
//! Bytes ⇄ meaning: Ethernet, IP, UDP and DNS. Everything here is a function of the bytes it is given. Nothing that is
//! called per packet allocates, and no length or count in a packet sizes anything: they are checked against the bytes
//! that are there.
//!
//! | module | bytes | RFCs |
//! | --- | --- | --- |
//! | [`frame`] | Ethernet II, IPv4, IPv6, UDP: parsing, and writing headers in front of a payload | 768, 791, 894, 2464, 6864, 8200 |
//! | [`checksum`] | the Internet checksum | 1071 |
//! | [`name`] | domain names, compressed and not, as bytes and as text | 1035, 4343 |
//! | [`message`] | DNS messages: header, query, response, records, EDNS | 1035, 2181, 6891, 9619 |
//! | [`answer`] | answers made in the query's own buffer | 1035, 6891 |
//! | [`edit`] | messages changed where they lie: records, OPT, options | 1035, 3597, 6891 |
//! | [`ttl`] | times to live: found, aged, limited | 1035, 2181, 2308 |
//! | [`proxy`] | the PROXY protocol's header, version 2 | HAProxy's document |
//! | [`cookie`] | DNS cookies and the servers' half of them | 7873, 9018 |
//! | [`codes`] | the numbers of IANA's registries and their names | 6895, 3597 |
#![forbid(unsafe_code)]

pub mod answer;
pub mod checksum;
pub mod codes;
pub mod cookie;
pub mod edit;
pub mod frame;
pub mod message;
pub mod name;
pub mod proxy;
pub mod ttl;

mod bytes;
#[cfg(test)]
mod examples;
