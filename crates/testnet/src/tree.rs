//! Where the files of the source tree lie that the lab reads: examples, scenarios, plans of the bench.

use std::path::{Path, PathBuf};

/// The top of the tree that this program was built in. What cargo says when it compiles us outlives a clone that is moved or
/// copied with what was built: cargo does not compile anew then.
pub(crate) fn top() -> PathBuf {
    let own = std::env::current_exe().unwrap_or_default();
    let compiled = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    above(&own).unwrap_or_else(|| compiled.canonicalize().unwrap_or(compiled))
}

/// The tree around a program. None where CARGO_TARGET_DIR names a folder elsewhere.
fn above(program: &Path) -> Option<PathBuf> {
    let mut folders = program.ancestors();
    let top = folders.find(|folder| folder.join("examples/lab").is_dir());
    top.map(Path::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_reads_the_tree_that_it_lies_in() {
        let tree = tempfile::tempdir().expect("a folder");
        let program = tree.path().join("target/release/lab");
        assert_eq!(above(&program), None);
        std::fs::create_dir_all(tree.path().join("examples/lab")).expect("a folder");
        assert_eq!(above(&program).as_deref(), Some(tree.path()));
        assert!(top().join("tests/scenarios").is_dir());
    }
}
