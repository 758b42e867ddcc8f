//! Is every word of the dialect known?

use super::chores::MAINTENANCE;
use super::later::{changing, observing};
use super::state::LuaState;
use crate::config::pools::PoolNames;
use crate::config::spec::{Purpose, RemarkKind, Spec};
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
        .filter(|name| *name != MAINTENANCE)
        .filter(|name| {
            state
                .run("test", format!("assert({name})").as_bytes())
                .is_err()
        })
        .collect();
    assert_eq!(unknown, Vec::<&str>::new());
}

fn new_state() -> LuaState {
    LuaState::new(Spec::new(Purpose::Check, PoolNames::default())).unwrap()
}

#[test]
fn what_would_change_an_answer_is_an_error_that_names_it_with_file_and_line() {
    for name in changing() {
        let text = format!("\n{name}()");
        let error = new_state().run("test", text.as_bytes()).unwrap_err();
        let beginning = format!("test:2: {name} is not in millrace yet");
        assert!(error.to_string().starts_with(&beginning), "{error}");
    }
}

#[test]
fn what_only_observes_loads_with_a_remark_that_names_it() {
    for name in observing() {
        let state = new_state();
        let text = format!("\n{name}()");
        state.run("test", text.as_bytes()).unwrap();
        state.edit(|spec| {
            let [remark] = spec.remarks.as_slice() else {
                panic!("{name}: {:?}", spec.remarks);
            };
            assert_eq!(remark.place.to_string(), "test:2");
            assert_eq!(remark.kind, RemarkKind::NoEffectYet);
            assert_eq!(remark.subject, name);
        });
    }
}

/// docs/dialect.md is made from what is registered. `MILLRACE_GOLDEN=write` writes it anew.
#[test]
fn the_manual_says_of_each_function_whether_it_works() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/dialect.md");
    let text = manual();
    if std::env::var_os("MILLRACE_GOLDEN").is_some() {
        std::fs::write(page, &text).unwrap();
    }
    assert!(
        std::fs::read_to_string(page).unwrap() == text,
        "docs/dialect.md is old: MILLRACE_GOLDEN=write makes it anew"
    );
}

fn manual() -> String {
    let later: BTreeSet<&str> = changing().collect();
    let quiet: BTreeSet<&str> = observing().collect();
    let mut page = String::from(
        "# Functions of the dialect\n\nMade from the code. **Works**; *accepted*: loads, no effect yet; refused: an error that names it.\n",
    );
    for line in include_str!("dialect.txt").lines().skip(1) {
        match line.strip_prefix("# ") {
            Some(area) => page += &format!("\n## {area}\n\n"),
            None => {
                for name in line.split_whitespace() {
                    page += &match name {
                        name if later.contains(name) => format!("- {name} (refused)\n"),
                        name if quiet.contains(name) => format!("- *{name}*\n"),
                        name => format!("- **{name}**\n"),
                    };
                }
            }
        }
    }
    page
}
