//! No function grows past seventy lines.

use super::rust::{self, Line};
use super::{Complaint, File};

/// Lines of a function, its signature and closing brace included.
const LINES_AT_MOST: usize = 70;

struct Function {
    name: String,
    line: usize,
    lines: usize,
}

/// Checks all Rust files against the limit.
pub(super) fn check(files: &[File]) -> Vec<Complaint> {
    let sources = files.iter().filter(|file| file.is("rs"));
    sources.flat_map(check_file).collect()
}

fn check_file(file: &File) -> Vec<Complaint> {
    let all = functions(&file.text).into_iter();
    let long = all.filter(|function| function.lines > LINES_AT_MOST);
    long.map(|Function { name, line, lines }| {
        let text = format!("`{name}` has {lines} lines; {LINES_AT_MOST} are allowed: split it");
        Complaint::new(file, line, text)
    })
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
