//! Rings of recent queries and responses, as dnsdist keeps them: what `topQueries`, `topClients` and `grepq` read.

#[derive(Debug, Default)]
pub struct Rings {}
