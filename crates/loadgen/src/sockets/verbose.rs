//! A line for every query, as dnsperf's `-v` prints it: response code, name, type, seconds.

use crate::judge::Answer;
use crate::report::{rcode_text, say};
use wire::codes::QtypeText;
use wire::name::Name;

/// The answer to a question came after `latency` nanoseconds.
pub(super) fn answered(question: &[u8], answer: &Answer, latency: u64) {
    let rcode = rcode_text(Some(answer.rcode));
    let seconds = latency as f64 / 1e9;
    say(&format!("> {rcode} {} {seconds:.6}\n", text(question)));
}

/// A question was given up.
pub(super) fn gave_up(question: &[u8]) {
    say(&format!("> T {}\n", text(question)));
}

/// The run ended before a question was answered.
pub(super) fn interrupted(question: &[u8]) {
    say(&format!("> I {}\n", text(question)));
}

/// Name and type of a question; question marks where the message had none.
fn text(question: &[u8]) -> String {
    let Ok(name) = Name::parse(question) else {
        return "? ?".to_owned();
    };
    let qtype = question[name.len()..].first_chunk().copied();
    let qtype = QtypeText(qtype.map_or(0, u16::from_be_bytes));
    let name = name.to_string();
    let short = name.strip_suffix('.').filter(|short| !short.is_empty());
    format!("{} {qtype}", short.unwrap_or(&name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lose_their_last_dot_and_the_root_does_not() {
        assert_eq!(
            text(b"\x03www\x07example\0\0\x1c\0\x01"),
            "www.example AAAA"
        );
        assert_eq!(text(b"\0\0\x02\0\x01"), ". NS");
        assert_eq!(text(b""), "? ?");
    }
}
