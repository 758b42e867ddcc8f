//! AF_XDP over veth pairs, in network namespaces of their own: one lab per test. Needs root.

mod answering;
mod bond;
mod faults;
mod foreign;
mod joining;
mod lab;
mod leaving;
mod netem;
mod owner;
mod sharing;
mod vlan;
