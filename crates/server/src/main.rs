//! The daemon `millrace`.

fn main() {}
