//! checkFunction: a function of the configuration has the last word on what a check asks.

use crate::config::LuaState;
use std::fmt;
use std::sync::Arc;
use wire::message::Header;
use wire::name::NameBuf;

/// What a check asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    pub name: NameBuf,
    pub qtype: u16,
    pub qclass: u16,
    /// Its ID and counts are the check's own.
    pub header: Header,
}

/// What makes one question of another.
pub trait Shape: Send + Sync {
    /// `state` is the one that the function is of. `None`: it failed, which was said.
    fn shape(&self, asked: &Asked, state: &LuaState) -> Option<Asked>;
}

/// The option of a server.
#[derive(Clone)]
pub struct CheckFunction(pub Arc<dyn Shape>);

/// Whether it is the same object: a file that is read again has functions of its own.
impl PartialEq for CheckFunction {
    fn eq(&self, other: &CheckFunction) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl fmt::Debug for CheckFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CheckFunction")
    }
}
