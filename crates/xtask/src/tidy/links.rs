//! Links and paths in documents lead somewhere.

use std::path::Path;

use super::{Complaint, File};

/// A path in backticks that begins so is meant to be there.
const FOLDERS: [&str; 9] = [
    "crates/",
    "bpf/",
    "tests/",
    "fuzz/",
    "bench/",
    "docs/",
    "examples/",
    "packaging/",
    "dev.d/",
];

/// Checks one document.
pub(super) fn check(file: &File, top: &Path) -> Vec<Complaint> {
    if !file.is("md") {
        return Vec::new();
    }
    let folder = top.join(Path::new(&file.path).parent().unwrap_or(Path::new("")));
    let mut complaints = Vec::new();
    let mut in_block = false;
    for (place, line) in file.text.lines().enumerate() {
        in_block ^= line.trim_start().starts_with("```");
        let dead_links = links(line).filter(|link| !in_block && !leads_somewhere(&folder, link));
        let dead_paths = paths(line).filter(|path| !top.join(path).exists());
        let dead: Vec<&str> = dead_links.chain(dead_paths).collect();
        complaints.extend(
            dead.into_iter()
                .map(|path| Complaint::new(file, place + 1, format!("`{path}` is not there"))),
        );
    }
    complaints
}

/// What stands in `[text](HERE)`.
fn links(line: &str) -> impl Iterator<Item = &str> {
    line.split("](")
        .skip(1)
        .filter_map(|rest| rest.split_once(')'))
        .map(|(link, _)| link)
}

/// What stands in backticks and looks like a file of ours.
fn paths(line: &str) -> impl Iterator<Item = &str> {
    let quoted = line.split('`').skip(1).step_by(2);
    let is_plain = |path: &&str| {
        let plain = |octet: u8| octet.is_ascii_alphanumeric() || b"/._-".contains(&octet);
        path.bytes().all(plain) && FOLDERS.iter().any(|folder| path.starts_with(folder))
    };
    quoted.filter(is_plain)
}

fn leads_somewhere(folder: &Path, link: &str) -> bool {
    let path = link.split('#').next().unwrap_or_default();
    path.is_empty()
        || link.contains("://")
        || link.starts_with("mailto:")
        || folder.join(path).exists()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dead_links_and_paths_are_found() {
        let top = tempfile::tempdir().expect("a folder");
        std::fs::create_dir_all(top.path().join("docs")).expect("made");
        std::fs::write(top.path().join("docs/there.md"), "").expect("written");
        let check = |text: &str| {
            check(
                &File {
                    path: "docs/a.md".to_owned(),
                    text: text.to_owned(),
                },
                top.path(),
            )
            .len()
        };
        assert_eq!(
            check(
                "[a](there.md) [b](there.md#part) [c](https://example.com) [d](#part) `docs/there.md`"
            ),
            0
        );
        assert_eq!(check("[a](gone.md) and `docs/gone.md`"), 2);
        assert_eq!(check("`docs/*.md` `cargo test` `crates/NAME/…`"), 0);
    }
}
