//! `millrace`: a DNS load balancer and authoritative server whose UDP path runs over AF_XDP.

mod backend;
mod clock;
mod commands;
mod config;
mod control;
mod counters;
mod frontend;
mod network;
mod pipeline;
mod random;
mod words;

fn main() {}
