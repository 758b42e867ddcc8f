//! A daemon that serves zones, from outside: what scripts and graphs read of it, and what Knot DNS makes of its cookies.

mod daemon;
mod edns;
mod large;
mod peers;
mod statistics;
