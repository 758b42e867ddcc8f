//! A bar on standard error while something takes long; nothing where that is no terminal, or it is done at once.

use crate::local::Progress;
use std::io::{self, IsTerminal, Write};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

/// How often it is drawn.
pub(super) const DRAWN_EVERY: Duration = Duration::from_millis(200);

/// Characters of a full bar.
const WIDTH: u64 = 30;

/// Does the work, and draws how far it has come.
pub(super) fn shown<T>(progress: &Progress, work: impl FnOnce() -> T) -> T {
    if !io::stderr().is_terminal() {
        return work();
    }
    let (done, finished) = channel::<()>();
    thread::scope(|scope| {
        scope.spawn(move || {
            while finished.recv_timeout(DRAWN_EVERY) == Err(RecvTimeoutError::Timeout) {
                draw(&reading(progress));
            }
            draw("");
        });
        let outcome = work();
        drop(done);
        outcome
    })
}

/// What is drawn of a file: when it is read to its end, or is short, how many records that has made so far.
fn reading(progress: &Progress) -> String {
    let (done, total) = progress.read();
    match done < total {
        true => bar("", done, total),
        false => format!(" {} records", progress.records()),
    }
}

/// Draws over what was drawn before, on a terminal.
pub(super) fn draw(line: &str) {
    // \r: to the line's beginning; ESC [K: the rest of it goes (ECMA-48 §8.3.41).
    let mut out = io::stderr().lock();
    // Whoever closed standard error does not want to see it.
    let _ = write!(out, "\r{line}\x1b[K").and_then(|()| out.flush());
}

/// What is drawn of so many octets; a total of 0 is one that nobody knows.
pub(super) fn bar(what: &str, done: u64, total: u64) -> String {
    let megabytes = |octets: u64| octets as f64 / 1e6;
    if total == 0 {
        return format!("{what} {:.1} MB", megabytes(done));
    }
    let filled = (done.min(total) * WIDTH / total) as usize;
    format!(
        "{what} [{}{}] {} % of {:.1} MB",
        "=".repeat(filled),
        " ".repeat(WIDTH as usize - filled),
        done.min(total) * 100 / total,
        megabytes(total)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_fills_up() {
        let expected = format!("x [{}{}] 50 % of 4.0 MB", "=".repeat(15), " ".repeat(15));
        assert_eq!(bar("x", 2_000_000, 4_000_000), expected);
        assert!(bar("x", 9, 4).contains("] 100 % of"));
        assert_eq!(bar("x", 1_500_000, 0), "x 1.5 MB");
    }

    /// `$GENERATE` makes many of a line.
    #[test]
    fn a_file_that_is_read_shows_what_it_has_made() {
        let progress = Progress::default();
        progress.begin(4_000_000);
        progress.add(1_000_000);
        progress.have(20_000);
        assert!(reading(&progress).ends_with("] 25 % of 4.0 MB"));
        progress.add(3_000_000);
        assert_eq!(reading(&progress), " 20000 records");
    }
}
