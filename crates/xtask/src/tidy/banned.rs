//! What must not stand in the source, where, and what to do instead.
//!
//! A line may be excused by a comment on it or right above it that says `tidy: ` and why.

use super::rust::{self, Line};
use super::{Complaint, File};

/// Where a rule holds.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Where {
    /// In all Rust code.
    Everywhere,
    /// In tests and in the laboratory.
    Tests,
    /// Outside crate xsk and files named ffi.rs or sys.rs (invariant I14).
    Safe,
    /// In wire, zone and the pipeline, their tests left out (invariant I13).
    Pure,
}

struct Rule {
    words: &'static [&'static str],
    place: Where,
    instead: &'static str,
}

const RULES: [Rule; 8] = [
    Rule {
        words: &["allow(dead_code)", "allow(unused", "allow(clippy::all"],
        place: Where::Everywhere,
        instead: "use the code or take it out",
    },
    Rule {
        words: &["todo!(", "unimplemented!(", "dbg!("],
        place: Where::Everywhere,
        instead: "finish it, or leave it out and say so in ARCHITECTURE.md under \"Not yet\"",
    },
    Rule {
        words: &["#[ignore"],
        place: Where::Everywhere,
        instead: "print `SKIP: reason` and return; tests/SKIPS lists what may be skipped",
    },
    Rule {
        words: &["unsafe {", "unsafe fn", "unsafe impl", "unsafe extern"],
        place: Where::Safe,
        instead: "put it into crate xsk or a file ffi.rs or sys.rs, and list that in ARCHITECTURE.md",
    },
    Rule {
        words: &["thread::sleep(", "time::sleep(", " sleep("],
        place: Where::Tests,
        instead: "await the event: a connection, a line of the log, a counter, a descriptor, a channel",
    },
    Rule {
        words: &["Instant::now(", "SystemTime::now("],
        place: Where::Pure,
        instead: "take the time as an argument: it is read once per batch",
    },
    Rule {
        words: &[
            "UdpSocket::",
            "TcpStream::",
            "TcpListener::",
            "File::open",
            "fs::read",
            "fs::write",
        ],
        place: Where::Pure,
        instead: "take and return octets: sockets are for frontend/, backend/ and control/",
    },
    Rule {
        words: &["println!(", "eprintln!("],
        place: Where::Pure,
        instead: "return it: nothing on the path of a packet prints",
    },
];

/// Checks one file.
pub(super) fn check(file: &File) -> Vec<Complaint> {
    if file.is("rs") {
        return check_rust(file);
    }
    if file.is("sh") || file.path == "dev" || file.path.starts_with(".ci/") {
        return check_shell(file);
    }
    Vec::new()
}

fn check_rust(file: &File) -> Vec<Complaint> {
    let lines = rust::lines(&file.text);
    let mut complaints = Vec::new();
    for (place, line) in lines.iter().enumerate() {
        let above = place.checked_sub(1).map(|above| &lines[above]);
        if is_excused(line, above) {
            continue;
        }
        for rule in RULES.iter().filter(|rule| rule.place.holds(file, line)) {
            let found = rule.words.iter().find(|word| line.code.contains(*word));
            complaints.extend(found.map(|word| {
                Complaint::new(file, line.number, format!("`{word}`: {}", rule.instead))
            }));
        }
        complaints.extend(open_task(file, line.number, &line.comment));
    }
    complaints
}

fn check_shell(file: &File) -> Vec<Complaint> {
    let mut complaints = Vec::new();
    for (place, line) in file.text.lines().enumerate() {
        let (code, comment) = line.split_once('#').unwrap_or((line, ""));
        if comment.contains("tidy: ") {
            continue;
        }
        let mut complain = |text: &str| complaints.push(Complaint::new(file, place + 1, text));
        if code.trim_end().ends_with("|| true") {
            complain("`|| true`: say which failure is fine, and why, by testing for it");
        }
        if code.trim_start().starts_with("sleep ") {
            complain("`sleep`: await the event");
        }
        if ["pkill", "killall"]
            .iter()
            .any(|word| code.split_whitespace().any(|other| other == *word))
        {
            complain("end a process by its number, and only one that this script started");
        }
        complaints.extend(open_task(file, place + 1, comment));
    }
    complaints
}

/// A note of something to do needs the number of the issue that will do it.
fn open_task(file: &File, line: usize, comment: &str) -> Option<Complaint> {
    let is_task =
        |word: &str| ["TODO", "FIXME", "XXX"].contains(&word.trim_end_matches([':', '.', ',']));
    let has_number = comment
        .split('#')
        .skip(1)
        .any(|rest| rest.starts_with(|digit: char| digit.is_ascii_digit()));
    let found = !has_number && comment.split_whitespace().any(is_task);
    found.then(|| {
        Complaint::new(
            file,
            line,
            "something to do, without the number of its issue: do it, or `#12`",
        )
    })
}

fn is_excused(line: &Line, above: Option<&Line>) -> bool {
    let says_why = |line: &Line| {
        line.comment
            .split_once("tidy: ")
            .is_some_and(|(_, why)| why.trim().len() > 10)
    };
    says_why(line) || above.is_some_and(|above| above.code.trim().is_empty() && says_why(above))
}

impl Where {
    fn holds(self, file: &File, line: &Line) -> bool {
        let path = file.path.as_str();
        let is_test_file = path.contains("/tests/") || path.ends_with("/tests.rs");
        match self {
            Self::Everywhere => true,
            Self::Tests => is_test_file || line.in_tests || path.starts_with("crates/testnet/"),
            Self::Safe => {
                !path.starts_with("crates/xsk/") && !["ffi.rs", "sys.rs"].contains(&file.name())
            }
            Self::Pure => {
                let folders = [
                    "crates/wire/src/",
                    "crates/zone/src/",
                    "crates/server/src/pipeline/",
                ];
                folders.iter().any(|folder| path.starts_with(folder))
                    && !is_test_file
                    && !line.in_tests
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints(path: &str, text: &str) -> Vec<String> {
        let file = File {
            path: path.to_owned(),
            text: text.to_owned(),
        };
        check(&file).iter().map(ToString::to_string).collect()
    }

    /// I13 (no clock, no socket) and I14 (no `unsafe`) among them.
    #[test]
    fn each_rule_holds_in_its_place() {
        let cases = [
            ("crates/a/src/b.rs", "#[allow(dead_code)]"),
            ("crates/a/src/b.rs", "fn c() { todo!() }"),
            ("crates/a/src/b.rs", "let c = unsafe { d() };"),
            ("crates/a/tests/b.rs", "thread::sleep(c);"),
            ("crates/a/tests/b.rs", "    sleep(c).await;"),
            ("crates/a/src/b.rs", "#[cfg(test)]\nthread::sleep(c);"),
            ("crates/wire/src/b.rs", "let c = Instant::now();"),
            ("crates/server/src/pipeline/b.rs", "println!(\"c\");"),
            ("crates/a/src/b.rs", "// TODO: c"),
            ("dev", "rm a || true"),
            ("dev.d/a.sh", "  sleep 1"),
            ("dev", "pkill -f millrace"),
        ];
        for (path, text) in cases {
            assert_eq!(complaints(path, text).len(), 1, "{path}: {text}");
        }
    }

    #[test]
    fn what_is_allowed_is_let_alone() {
        let cases = [
            ("crates/xsk/src/b.rs", "let c = unsafe { d() };"),
            ("crates/a/src/sys.rs", "let c = unsafe { d() };"),
            ("crates/a/src/b.rs", "thread::sleep(c);"),
            ("crates/a/tests/b.rs", "fn whatever_ends_a_sleep() {}"),
            (
                "crates/wire/src/b.rs",
                "#[cfg(test)]\nlet c = Instant::now();",
            ),
            ("crates/a/src/b.rs", "// TODO: c (#12)"),
            (
                "crates/a/src/b.rs",
                "let c = \"todo!()\"; // unsafe { in a comment",
            ),
            (
                "crates/a/tests/b.rs",
                "// tidy: time itself is under test here\nthread::sleep(c);",
            ),
            ("dev", "rm a || true  # tidy: it may be gone already"),
        ];
        for (path, text) in cases {
            assert_eq!(
                complaints(path, text),
                Vec::<String>::new(),
                "{path}: {text}"
            );
        }
    }
}
