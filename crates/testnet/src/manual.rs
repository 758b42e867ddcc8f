//! The pages of the manual, for tests that hold what they name against the code.

use crate::tree;
use std::fs;

/// A page.
pub struct Page {
    /// From the top of the tree.
    pub path: String,
    /// All of it.
    pub text: String,
}

impl Page {
    /// README.md and what lies under docs/.
    ///
    /// # Panics
    /// When one cannot be read.
    pub fn all() -> Vec<Page> {
        let folder = fs::read_dir(tree::top().join("docs")).expect("the manual");
        let names = folder.map(|entry| entry.expect("a name").file_name());
        let names = names.filter_map(|name| name.into_string().ok());
        let mut paths: Vec<String> = names
            .filter(|name| name.ends_with(".md"))
            .map(|name| format!("docs/{name}"))
            .collect();
        paths.push("README.md".to_owned());
        paths.sort();
        paths.iter().map(|path| Page::read(path)).collect()
    }

    /// Another file that names things, by its path from the top of the tree.
    ///
    /// # Panics
    /// When it cannot be read.
    pub fn read(path: &str) -> Page {
        let text = fs::read_to_string(tree::top().join(path));
        Page {
            path: path.to_owned(),
            text: text.unwrap_or_else(|error| panic!("{path}: {error}")),
        }
    }

    /// What it prints as code: the lines of its blocks, without a prompt, and what stands between backticks.
    pub fn code(&self) -> Vec<String> {
        let (mut code, mut prose) = (Vec::new(), String::new());
        let mut in_block = false;
        for line in self.text.lines() {
            if line.trim_start().starts_with("```") {
                in_block = !in_block;
            } else if in_block {
                let line = line.trim_start();
                code.push(line.strip_prefix("$ ").unwrap_or(line).to_owned());
            } else {
                prose.push_str(line);
                prose.push(' ');
            }
        }
        code.extend(prose.split('`').skip(1).step_by(2).map(str::to_owned));
        code
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "Say `one\ntwo`.\n\n```sh\n$ three `four`\n  five\n```\n\nThen `six`.\n";

    #[test]
    fn code_is_found_in_blocks_and_between_backticks() {
        let page = Page {
            path: String::new(),
            text: TEXT.to_owned(),
        };
        assert_eq!(page.code(), ["three `four`", "five", "one two", "six"]);
    }

    #[test]
    fn the_manual_is_there() {
        let pages = Page::all();
        let has = |path: &str| pages.iter().any(|page| page.path == path);
        assert!(has("README.md") && has("docs/operations.md"));
    }
}
