//! Sockets that systemd passes at start (sd_listen_fds(3)): of socket units, or kept over a restart in its descriptor store.
//!
//! "The first file descriptor may be found at file descriptor number 3 (i.e. SD_LISTEN_FDS_START), the remaining descriptors
//! follow at 4, 5, 6, …, if any." `LISTEN_PID` says which process they are for, `LISTEN_FDS` how many there are.

use super::helper::sys;
use crate::notify;
use nix::unistd::{Pid, getpid};
use std::io;
use std::ops::Range;
use std::os::fd::{OwnedFd, RawFd};

/// SD_LISTEN_FDS_START.
const FIRST: RawFd = 3;

/// More than anybody passes: a number that is wrong must not become a long loop.
const MOST: RawFd = 65_536;

/// The numbers of the descriptors that `process` was started with.
pub(super) fn descriptors(process: Pid) -> Range<RawFd> {
    let variable = |name| std::env::var(name).unwrap_or_default();
    numbers(&variable("LISTEN_PID"), &variable("LISTEN_FDS"), process)
}

fn numbers(owner: &str, count: &str, process: Pid) -> Range<RawFd> {
    let is_ours = owner.parse() == Ok(process.as_raw());
    let count = count.parse().unwrap_or(0);
    let end = match is_ours && (0..=MOST).contains(&count) {
        true => FIRST + count,
        false => FIRST,
    };
    FIRST..end
}

/// The descriptors that this process was started with, and which of them are of the descriptor store: systemd gives those up when
/// we do, and those of a socket unit never. To be called once, before anything else is opened.
///
/// # Errors
/// No descriptors left.
pub fn take() -> io::Result<Vec<(OwnedFd, bool)>> {
    let names = std::env::var("LISTEN_FDNAMES").unwrap_or_default();
    let given = descriptors(getpid()).enumerate();
    let given = given.map(|(place, number)| Ok((sys::given(number)?, is_stored(&names, place))));
    given.collect()
}

/// Whether the descriptor in this place has the name that ours have in the store.
fn is_stored(names: &str, place: usize) -> bool {
    names.split(':').nth(place) == Some(notify::STORED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_those_for_this_process_are_taken() {
        let us = Pid::from_raw(42);
        assert_eq!(numbers("42", "2", us), 3..5);
        for (owner, count) in [
            ("41", "2"),
            ("", ""),
            ("42", "-1"),
            ("42", "x"),
            ("42", "9999999"),
        ] {
            assert_eq!(numbers(owner, count, us), 3..3, "{owner} {count}");
        }
    }

    #[test]
    fn those_of_the_store_are_told_from_those_of_a_socket_unit() {
        let stored = |names: &str| [0, 1, 2].map(|place| is_stored(names, place));
        assert_eq!(stored("millrace:millrace.socket"), [true, false, false]);
        assert_eq!(
            stored("millrace.socket:millrace:millrace"),
            [false, true, true]
        );
        assert_eq!(stored(""), [false; 3]);
    }
}
