//! tests/SKIPS: what may be skipped when the tests run as root, each with its reason.

use super::{Complaint, File};

const LIST: &str = "tests/SKIPS";

/// Checks that every line has a reason and still is somewhere in the source.
pub(super) fn check(files: &[File]) -> Vec<Complaint> {
    let Some(list) = files.iter().find(|file| file.path == LIST) else {
        return Vec::new();
    };
    let lines = list
        .text
        .lines()
        .enumerate()
        .filter(|(_, line)| !line.trim().is_empty() && !line.starts_with('#'));
    lines
        .filter_map(|(place, line)| {
            complaint(line, files).map(|text| Complaint::new(list, place + 1, text))
        })
        .collect()
}

fn complaint(line: &str, files: &[File]) -> Option<String> {
    let Some((text, reason)) = line.split_once(" | ") else {
        return Some("neither `TEXT OF THE SKIP | REASON` nor a comment".to_owned());
    };
    if reason.trim().len() < 10 {
        return Some("the reason is missing".to_owned());
    }
    let is_said = files
        .iter()
        .any(|file| file.path != LIST && file.text.contains(text.trim()));
    (!is_said).then(|| format!("nothing says `{}` any more: remove this line", text.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints(list: &str) -> usize {
        let file = |path: &str, text: &str| File {
            path: path.to_owned(),
            text: text.to_owned(),
        };
        check(&[
            file(LIST, list),
            file("crates/a/src/b.rs", "println!(\"SKIP: no dummy devices\")"),
        ])
        .len()
    }

    #[test]
    fn a_line_has_a_text_that_is_said_and_a_reason() {
        assert_eq!(
            complaints("# comment\nno dummy devices | this kernel has no module for them\n"),
            0
        );
        assert_eq!(complaints("no dummy devices\n"), 1);
        assert_eq!(complaints("no dummy devices | \n"), 1);
        assert_eq!(
            complaints("no such text | this kernel has no module for them\n"),
            1
        );
    }
}
