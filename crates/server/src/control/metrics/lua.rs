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
    let holder = &lua.holder;
    let help = "Queries and responses that functions have suspended, now.";
    text.single(
        "millrace_lua_suspended",
        Kind::Gauge,
        help,
        holder.count() as u64,
    );
    let help =
        "Times that suspend returned false: its key was taken, or as many are suspended as may be.";
    let refused = holder.refused.load(Relaxed);
    text.single("millrace_lua_suspend_refused", Kind::Counter, help, refused);
    let help = "Suspended queries and responses that went on because their time was over.";
    let timeouts = holder.timeouts.load(Relaxed);
    text.single(
        "millrace_lua_suspend_timeouts",
        Kind::Counter,
        help,
        timeouts,
    );
}
