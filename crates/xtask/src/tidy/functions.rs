//! No function grows past seventy lines. Those that did before the rule are listed, and may only shrink.

use std::collections::BTreeMap;

use super::rust::{self, Line};
use super::{Complaint, File};

/// Lines of a function, its signature and closing brace included.
const LINES_AT_MOST: usize = 70;
/// The list: `PATH NAME LINES` a line.
const LIST: &str = "crates/xtask/long-functions.txt";

struct Function {
    name: String,
    line: usize,
    lines: usize,
}

/// Checks all Rust files against the limit and the list.
pub(super) fn check(files: &[File]) -> Vec<Complaint> {
    let list_file = files.iter().find(|file| file.path == LIST);
    let mut listed = list_file
        .map(|file| read_list(&file.text))
        .unwrap_or_default();
    let mut complaints = Vec::new();
    for file in files.iter().filter(|file| file.is("rs")) {
        for function in functions(&file.text)
            .iter()
            .filter(|function| function.lines > LINES_AT_MOST)
        {
            let key = (file.path.clone(), function.name.clone());
            let allowed = listed
                .remove(&key)
                .map_or(LINES_AT_MOST, |(_, lines)| lines);
            if function.lines > allowed {
                let text = format!(
                    "`{}` has {} lines; {allowed} are allowed: split it",
                    function.name, function.lines
                );
                complaints.push(Complaint::new(file, function.line, text));
            }
        }
    }
    let gone = listed.into_iter().map(|((path, name), (line, _))| {
        let text = format!("`{name}` in {path} is short now, or gone: remove this line");
        Complaint::new(list_file.expect("something was listed"), line, text)
    });
    complaints.extend(gone);
    complaints
}

/// Key: path and name. Value: the list's line, and how long the function may be.
fn read_list(text: &str) -> BTreeMap<(String, String), (usize, usize)> {
    let entry = |(place, line): (usize, &str)| {
        let mut words = line.split_whitespace();
        let key = (words.next()?.to_owned(), words.next()?.to_owned());
        Some((key, (place + 1, words.next()?.parse().ok()?)))
    };
    text.lines()
        .enumerate()
        .filter(|(_, line)| !line.starts_with('#'))
        .filter_map(entry)
        .collect()
}

/// Every function with a body, from its `fn` to its closing brace.
fn functions(text: &str) -> Vec<Function> {
    let lines = rust::lines(text);
    let starts = lines
        .iter()
        .enumerate()
        .filter_map(|(place, line)| Some((place, name_of(&line.code)?)));
    let function = |(place, name): (usize, String)| {
        let lines = body_lines(&lines[place..])?;
        Some(Function {
            name,
            line: place + 1,
            lines,
        })
    };
    starts.filter_map(function).collect()
}

/// The name behind `fn` where a line begins a function.
fn name_of(code: &str) -> Option<String> {
    let mut words = code.split_whitespace();
    let starts = |word: &str| {
        word.starts_with("pub") || ["async", "const", "unsafe", "extern", "\"\""].contains(&word)
    };
    let word = words.find(|word| !starts(word) && !word.ends_with(')'))?;
    let name = (word == "fn").then(|| words.next()).flatten()?;
    Some(name.split(['(', '<']).next().unwrap_or(name).to_owned())
}

/// Lines to the brace that closes the first one; `None` for a declaration that ends in a semicolon.
fn body_lines(lines: &[Line]) -> Option<usize> {
    let (mut depth, mut brackets) = (0_usize, 0_usize);
    for (place, line) in lines.iter().enumerate() {
        for character in line.code.chars() {
            match character {
                '(' | '[' => brackets += 1,
                ')' | ']' => brackets = brackets.saturating_sub(1),
                '{' => depth += 1,
                '}' if depth == 1 => return Some(place + 1),
                '}' => depth = depth.saturating_sub(1),
                ';' if depth == 0 && brackets == 0 => return None,
                _ => {}
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(lines: usize) -> File {
        let body = "    a();\n".repeat(lines - 2);
        File {
            path: "crates/a/src/b.rs".to_owned(),
            text: format!("pub(crate) async fn c<T>() {{\n{body}}}\n"),
        }
    }

    fn list(text: &str) -> File {
        File {
            path: LIST.to_owned(),
            text: text.to_owned(),
        }
    }

    #[test]
    fn the_seventy_first_line_is_one_too_many() {
        assert_eq!(check(&[source(70)]), vec![]);
        assert!(
            check(&[source(71)])[0]
                .to_string()
                .contains("`c` has 71 lines")
        );
    }

    #[test]
    fn listed_functions_may_only_shrink() {
        assert_eq!(
            check(&[source(80), list("# old\ncrates/a/src/b.rs c 80\n")]),
            vec![]
        );
        assert_eq!(
            check(&[source(81), list("crates/a/src/b.rs c 80\n")]).len(),
            1
        );
        assert!(
            check(&[source(60), list("crates/a/src/b.rs c 80\n")])[0]
                .to_string()
                .contains("remove this line")
        );
    }

    #[test]
    fn declarations_and_inner_braces_are_understood() {
        let text = "trait A { fn b(c: [u8; 2]); }\nfn d() -> E {\n  E { f: \"}\" }\n}\n";
        let found = functions(text);
        assert_eq!(
            found
                .iter()
                .map(|function| (function.name.as_str(), function.lines))
                .collect::<Vec<_>>(),
            [("d", 3)]
        );
    }
}
