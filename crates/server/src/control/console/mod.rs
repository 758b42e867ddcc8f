//! dnsdist's console: `controlSocket("127.0.0.1:5199")` and `setKey("…")` on one side, `-c` and `-e` on the other. Each
//! message is a command in Lua, each answer what it printed and returned.

pub mod client;
pub mod server;
pub mod wire;

pub use server::{Commands, SERVICE, serve, too_long};
