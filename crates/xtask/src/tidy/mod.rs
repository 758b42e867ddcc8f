//! Style as a test: rules that rustc and clippy do not know, each with what to do instead.

mod banned;
mod functions;
mod invariants;
mod links;
mod rust;
mod skips;

use std::fmt;
use std::fs;
use std::io;
use std::path::Path;
use std::process::{Command, ExitCode};

/// A file of the project with its text.
pub(crate) struct File {
    /// Relative to the top of the tree, with `/`.
    pub path: String,
    /// All of it; empty for files that are not text.
    pub text: String,
}

/// Something to mend.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Complaint {
    path: String,
    line: usize,
    text: String,
}

/// What a check of the whole tree came to.
pub(crate) struct Report {
    files: usize,
    complaints: Vec<Complaint>,
}

/// A file longer than this has more than one subject.
const FILE_LINES_AT_MOST: usize = 1000;

/// Reads every file that git knows, or would, and checks it.
pub(crate) fn check(top: &Path) -> io::Result<Report> {
    let files = files(top)?;
    let mut complaints = Vec::new();
    for file in &files {
        complaints.extend(too_long(file));
        complaints.extend(banned::check(file));
        complaints.extend(links::check(file, top));
    }
    complaints.extend(functions::check(&files));
    complaints.extend(invariants::check(&files));
    complaints.extend(skips::check(&files));
    Ok(Report {
        files: files.len(),
        complaints,
    })
}

impl Report {
    /// One line for each complaint, and a closing one.
    pub(crate) fn print(&self) -> ExitCode {
        for complaint in &self.complaints {
            println!("{complaint}");
        }
        println!(
            "tidy: {} files, {} complaints",
            self.files,
            self.complaints.len()
        );
        if self.complaints.is_empty() {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        }
    }
}

impl Complaint {
    /// A complaint about a line of a file.
    pub(crate) fn new(file: &File, line: usize, text: impl Into<String>) -> Self {
        Self {
            path: file.path.clone(),
            line,
            text: text.into(),
        }
    }
}

impl fmt::Display for Complaint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}: {}", self.path, self.line, self.text)
    }
}

impl File {
    /// True for a path that ends so.
    pub(crate) fn is(&self, extension: &str) -> bool {
        Path::new(&self.path)
            .extension()
            .is_some_and(|own| own == extension)
    }

    /// The last part of its path.
    pub(crate) fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or(&self.path)
    }
}

fn files(top: &Path) -> io::Result<Vec<File>> {
    let listing = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard"])
        .current_dir(top)
        .output()?;
    if !listing.status.success() {
        return Err(io::Error::other(
            String::from_utf8_lossy(&listing.stderr).trim().to_owned(),
        ));
    }
    let read = |path: &str| {
        let octets = fs::read(top.join(path)).ok()?;
        Some(File {
            path: path.to_owned(),
            text: String::from_utf8(octets).unwrap_or_default(),
        })
    };
    Ok(String::from_utf8_lossy(&listing.stdout)
        .lines()
        .filter_map(read)
        .collect())
}

fn too_long(file: &File) -> Option<Complaint> {
    let lines = file.text.lines().count();
    let is_source = ["rs", "c", "h", "sh"]
        .iter()
        .any(|extension| file.is(extension));
    (is_source && lines > FILE_LINES_AT_MOST).then(|| {
        Complaint::new(
            file,
            lines,
            format!("{lines} lines; split it by subject, {FILE_LINES_AT_MOST} are the end"),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_file_is_found() {
        let file = |lines: usize| File {
            path: "a.rs".to_owned(),
            text: "x\n".repeat(lines),
        };
        assert_eq!(too_long(&file(1000)), None);
        assert!(too_long(&file(1001)).is_some());
    }
}
