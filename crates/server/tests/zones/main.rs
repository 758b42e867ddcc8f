//! A daemon that serves zones, from outside: what scripts and graphs read of it, what Knot DNS makes of its cookies, and the
//! questions that crate `zone` compares with other servers.

mod check;
#[path = "../../../zone/tests/peers/corpus.rs"]
mod corpus;
mod daemon;
mod edns;
mod large;
mod peers;
#[path = "../../../zone/tests/answers/read.rs"]
mod read;
mod reloads;
mod same;
mod statistics;
#[path = "../../../zone/tests/peers/zones.rs"]
mod zones;
