//! What functions of the configuration did: the rows millrace_lua_*.

use super::text::{Kind, Text};
use crate::config::Config;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The lock of the Lua state, and calls of functions in it.
pub(super) fn rows(text: &mut Text, config: &Config) {
    let Some(lua) = &config.lua else { return };
    let counts = &lua.counts;
    let rows: [(&str, &AtomicU64, &str); 5] = [
        (
            "locks",
            &counts.locks,
            "Times that the lock of the Lua state was taken.",
        ),
        (
            "calls",
            &counts.calls,
            "Functions of the configuration called while serving.",
        ),
        ("errors", &counts.errors, "Calls that failed."),
        (
            "stopped",
            &counts.stopped,
            "Calls that failed because they ran too long.",
        ),
        (
            "skipped",
            &counts.skipped,
            "Calls left out because the function had run too long just before, or for want of memory.",
        ),
    ];
    for (name, count, help) in rows {
        let name = format!("millrace_lua_{name}");
        text.single(&name, Kind::Counter, help, count.load(Relaxed));
    }
}
