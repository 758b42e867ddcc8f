//! The system calls and shared memory behind the safe types of this crate; nearly all of its unsafe code.

pub(crate) mod bpf;
pub(crate) mod interface;
pub(crate) mod memory;
pub(crate) mod socket;
