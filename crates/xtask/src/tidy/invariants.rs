//! What ARCHITECTURE.md says of its invariants: each is named where it is tested, and the files that may hold `unsafe` are
//! those that it lists (I14).

use super::{Complaint, File};

const DOCUMENT: &str = "ARCHITECTURE.md";

/// All that lies there is for tests: a mention counts wherever it stands.
const TEST_FOLDERS: [&str; 5] = [
    "crates/server/src/simulation/",
    "crates/testnet/",
    "fuzz/",
    "model/",
    "tests/",
];

/// Checks the document against all files.
pub(super) fn check(files: &[File]) -> Vec<Complaint> {
    let Some(document) = files.iter().find(|file| file.path == DOCUMENT) else {
        return Vec::new();
    };
    let mut complaints = unnamed(document, files);
    complaints.extend(unlisted(document, files));
    complaints.extend(gone(document, files));
    complaints
}

/// Invariants that no test names.
fn unnamed(document: &File, files: &[File]) -> Vec<Complaint> {
    let tests: Vec<&str> = files.iter().filter_map(tests_of).collect();
    let mut complaints = Vec::new();
    for (place, line) in document.text.lines().enumerate() {
        let invariant = line
            .strip_prefix("- **I")
            .and_then(|rest| rest.split_once("**"));
        let Some((number, _)) = invariant else {
            continue;
        };
        let name = format!("I{number}");
        if !tests.iter().any(|test| is_named(test, &name)) {
            let text = format!("no test names {name}: say so where it is asserted, or assert it");
            complaints.push(Complaint::new(document, place + 1, text));
        }
    }
    complaints
}

/// The part of a file that is for tests only.
fn tests_of(file: &File) -> Option<&str> {
    let path = file.path.as_str();
    let is_all = TEST_FOLDERS.iter().any(|folder| path.starts_with(folder))
        || path.contains("/tests/")
        || path.ends_with("/tests.rs");
    let begins = match is_all {
        true => 0,
        false => file.text.find("\n#[cfg(test)]")?,
    };
    (file.is("rs") || file.is("scenario")).then(|| &file.text[begins..])
}

/// True when the text has the name as a word: `I1` is not in `I14`.
fn is_named(text: &str, name: &str) -> bool {
    text.match_indices(name).any(|(place, _)| {
        let before = text[..place].chars().next_back();
        let behind = text[place + name.len()..].chars().next();
        let beside = [before, behind];
        !beside.into_iter().flatten().any(char::is_alphanumeric)
    })
}

/// As the document writes the path of a file with `unsafe`.
fn listed_as(path: &str) -> &str {
    path.strip_prefix("crates/").unwrap_or(path)
}

/// Files with `unsafe` outside crate xsk that have no row.
fn unlisted<'f>(document: &'f File, files: &'f [File]) -> impl Iterator<Item = Complaint> + 'f {
    let is_unsafe = |file: &&File| {
        ["ffi.rs", "sys.rs"].contains(&file.name())
            && !file.path.starts_with("crates/xsk/")
            && file.text.contains("unsafe ")
    };
    let is_listed = move |file: &File| {
        let row = format!("| `{}` |", listed_as(&file.path));
        document.text.contains(&row)
    };
    files
        .iter()
        .filter(is_unsafe)
        .filter(move |file| !is_listed(file))
        .map(|file| {
            let path = listed_as(&file.path);
            Complaint::new(
                file,
                1,
                format!("holds `unsafe`: {DOCUMENT} wants a row for `{path}` with the reason"),
            )
        })
}

/// Rows of files that are not there any more.
fn gone(document: &File, files: &[File]) -> Vec<Complaint> {
    let row = |line: &str| -> Option<String> {
        let path = line.strip_prefix("| `")?.split('`').next()?;
        let is_file = path.ends_with("/ffi.rs") || path.ends_with("/sys.rs");
        is_file.then(|| path.to_owned())
    };
    let rows = document.text.lines().enumerate();
    let rows = rows.filter_map(|(place, line)| Some((place + 1, row(line)?)));
    rows.filter(|(_, path)| !files.iter().any(|file| listed_as(&file.path) == path))
        .map(|(place, path)| Complaint::new(document, place, format!("`{path}` is not there")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "- **I98** No word.\n- **I99** No other word.\n\n\
        | file | why |\n| --- | --- |\n| `a/src/sys.rs` | a call |\n| `b/src/ffi.rs` | another |\n";

    fn complaints(others: &[(&str, &str)]) -> Vec<String> {
        let file = |(path, text): &(&str, &str)| File {
            path: (*path).to_owned(),
            text: (*text).to_owned(),
        };
        let mut files = vec![file(&(DOCUMENT, TEXT))];
        files.extend(others.iter().map(file));
        check(&files).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn what_is_named_and_listed_is_let_alone() {
        let files = [
            ("crates/a/src/sys.rs", "unsafe { a() }"),
            ("crates/b/src/ffi.rs", "unsafe fn b() {}"),
            ("crates/xsk/src/sys.rs", "unsafe fn c() {}"),
            ("crates/a/tests/d.rs", "/// I98: no word."),
            (
                "crates/a/src/e.rs",
                "fn e() {}\n#[cfg(test)]\nmod tests {} // (I99)",
            ),
        ];
        assert_eq!(complaints(&files), Vec::<String>::new());
    }

    #[test]
    fn what_lacks_is_found() {
        let files = [
            ("crates/a/src/sys.rs", "unsafe { a() }"),
            ("fuzz/src/ffi.rs", "unsafe fn b() {}"),
            // Not in a test, and not these numbers.
            ("crates/a/src/e.rs", "// I98\n#[cfg(test)]\n// I981, AI98"),
            ("crates/a/tests/d.rs", "I99"),
        ];
        let found = complaints(&files);
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(found[0].contains("no test names I98"), "{found:?}");
        assert!(found[1].starts_with("fuzz/src/ffi.rs:1: "), "{found:?}");
        assert!(
            found[2].contains("`b/src/ffi.rs` is not there"),
            "{found:?}"
        );
    }
}
