//! Pool names as small numbers, so that the packet path compares numbers.

use std::collections::HashMap;

/// A pool's number: an index into `Config::pools`, given once per name and never used again for another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct PoolId(pub u16);

impl PoolId {
    /// The pool "" that queries go to unless an action says otherwise.
    pub const DEFAULT: PoolId = PoolId(0);
}

/// All pool names ever seen by this process.
#[derive(Debug, Clone)]
pub struct PoolNames {
    names: Vec<String>,
    numbers: HashMap<String, PoolId>,
}

impl Default for PoolNames {
    fn default() -> PoolNames {
        let mut pools = PoolNames {
            names: Vec::new(),
            numbers: HashMap::new(),
        };
        pools.names.push(String::new());
        pools.numbers.insert(String::new(), PoolId::DEFAULT);
        pools
    }
}

impl PoolNames {
    /// The number of the pool `name`, a new one when the name is new; `None` when all 65,536 are taken.
    pub fn number(&mut self, name: &str) -> Option<PoolId> {
        if let Some(&id) = self.numbers.get(name) {
            return Some(id);
        }
        let id = PoolId(u16::try_from(self.names.len()).ok()?);
        self.names.push(name.to_owned());
        self.numbers.insert(name.to_owned(), id);
        Some(id)
    }

    /// The number of the pool `name`, if it has one.
    pub fn find(&self, name: &str) -> Option<PoolId> {
        self.numbers.get(name).copied()
    }

    pub fn name(&self, id: PoolId) -> &str {
        self.names.get(usize::from(id.0)).map_or("", String::as_str)
    }
}
