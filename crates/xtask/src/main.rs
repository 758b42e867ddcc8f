//! `cargo xtask`-like jobs without a plug-in: `cargo run -p xtask -- tidy`. Development only, hence a
//! crate of its own.

mod tidy;

use std::path::Path;
use std::process::ExitCode;

const USAGE: &str =
    "usage: xtask tidy\n  tidy   checks the style rules that no lint of rustc or clippy knows";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if words != ["tidy"] {
        eprintln!("{USAGE}");
        return ExitCode::FAILURE;
    }
    // Asked for now: cargo does not compile us again in a clone that was moved.
    let Some(package) = std::env::var_os("CARGO_MANIFEST_DIR") else {
        eprintln!("tidy: cargo says where the tree is: cargo run -p xtask -- tidy");
        return ExitCode::FAILURE;
    };
    let top = Path::new(&package).join("../..");
    match tidy::check(&top) {
        Ok(report) => report.print(),
        Err(error) => {
            eprintln!("tidy: {error}");
            ExitCode::FAILURE
        }
    }
}
