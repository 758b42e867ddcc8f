//! Is every word of the dialect known?

use super::later::CALLED_IF_DEFINED;
use super::state::LuaState;
use crate::config::pools::PoolNames;
use crate::config::spec::{Purpose, Spec};
use std::collections::BTreeSet;

/// The names in dialect.txt.
pub(in crate::config) fn dialect() -> impl Iterator<Item = &'static str> {
    let lines = include_str!("dialect.txt")
        .lines()
        .filter(|line| !line.starts_with('#'));
    lines.flat_map(str::split_whitespace)
}

#[test]
fn every_function_of_the_dialect_is_there_or_named_as_later() {
    let state = LuaState::new(Spec::new(Purpose::Check, PoolNames::default())).unwrap();
    let names: BTreeSet<_> = dialect().collect();
    assert_eq!(names.len(), 471);
    let unknown: Vec<_> = names
        .into_iter()
        .filter(|name| !CALLED_IF_DEFINED.contains(name))
        .filter(|name| {
            state
                .run("test", format!("assert({name})").as_bytes())
                .is_err()
        })
        .collect();
    assert_eq!(unknown, Vec::<&str>::new());
}
