//! Selectors by the tags of a query.

use crate::pipeline::Env;
use crate::pipeline::query::Query;
use crate::pipeline::rules::Selector;

/// `TagRule(name [, value])`: the query has the tag; with `value`: it has that value.
pub struct TagRule {
    pub name: Box<[u8]>,
    pub value: Option<Box<[u8]>>,
}

impl Selector for TagRule {
    fn matches(&self, query: &mut Query<'_>, _: &mut Env<'_>) -> bool {
        let tags = query.extras.as_ref().map(|extras| &extras.tags);
        let found = tags.and_then(|tags| tags.get(&self.name));
        match (&self.value, found) {
            (_, None) => false,
            (None, Some(_)) => true,
            (Some(wanted), Some(value)) => wanted == value,
        }
    }

    fn describe(&self) -> String {
        let name = String::from_utf8_lossy(&self.name);
        match &self.value {
            None => format!("tag '{name}' is set"),
            Some(value) => {
                let value = String::from_utf8_lossy(value);
                format!("tag '{name}' is set to '{value}'")
            }
        }
    }
}
