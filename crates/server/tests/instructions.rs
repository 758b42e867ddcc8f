//! Instructions per query, counted by callgrind, against the ceilings in bench/counts.txt. Counts repeat where times do not:
//! a change that makes the packet path longer is seen here first.
//!
//! The program that is counted, examples/stages, is built here, optimised: after `cargo programs` that takes no time.

use nix::unistd::Uid;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

/// Queries per count.
const COUNT: u64 = 2_000;

/// How much a count may be above its ceiling, in hundredths: other processors make other choices in memcpy.
const TOLERANCE: f64 = 2.0;

#[test]
fn no_query_takes_more_instructions_than_its_ceiling() {
    if Command::new("valgrind").arg("--version").output().is_err() {
        println!("SKIP: valgrind is not installed, so nothing counts instructions");
        return;
    }
    let program = build();
    let mut broken = Vec::new();
    for (scene, ceiling, counted) in counts(&program) {
        println!("{scene}: {counted:.0} instructions, ceiling {ceiling}");
        let above = (counted / ceiling as f64 - 1.0) * 100.0;
        if above > TOLERANCE {
            broken.push(format!(
                "{scene} takes {counted:.0} instructions, {above:.1} % above {ceiling}"
            ));
        } else if above < -TOLERANCE {
            println!("{scene}: its ceiling in bench/counts.txt can be lowered to {counted:.0}");
        }
    }
    assert!(
        broken.is_empty(),
        "{}: say in bench/counts.txt what that buys, or take it back",
        broken.join("; ")
    );
}

fn top() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Builds the program; where it is.
fn build() -> PathBuf {
    let mut command = Command::new(env!("CARGO"));
    command.args(["programs", "--quiet"]).current_dir(top());
    // What cargo tells this test of its package: some build scripts of dependencies look at that, and would run again, here and
    // when the programs are built next.
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if ["CARGO_MANIFEST_", "CARGO_PKG_"]
            .iter()
            .any(|start| text.starts_with(start))
        {
            command.env_remove(&name);
        }
    }
    let status = command.status();
    assert!(
        status.expect("cargo runs").success(),
        "examples/stages does not build"
    );
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| top().join("target"), PathBuf::from);
    target.join("release/examples/stages")
}

/// Scenes and ceilings: a line each, `#` starts a remark.
fn ceilings() -> Vec<(String, u64)> {
    let text = std::fs::read_to_string(top().join("bench/counts.txt")).expect("bench/counts.txt");
    let lines = text
        .lines()
        .map(|line| line.split('#').next().unwrap_or_default());
    lines
        .filter(|line| !line.trim().is_empty())
        .map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let [scene, ceiling] = words[..] else {
                panic!("bench/counts.txt: \"{line}\" is not a scene and a number")
            };
            (scene.to_owned(), ceiling.parse().expect("a number"))
        })
        .collect()
}

/// Each scene with its ceiling and its count: as many scenes at once as there are processors, for counts do not mind.
fn counts(program: &Path) -> Vec<(String, u64, f64)> {
    let mut scenes = ceilings();
    if !Uid::effective().is_root() {
        println!(
            "SKIP: not root: the backend's address of whole workers belongs into a network of its own"
        );
        scenes.retain(|(scene, _)| !scene.starts_with("loop-"));
    }
    let scenes = Mutex::new(scenes.into_iter());
    let next = || scenes.lock().expect("no count panics here").next();
    let count_some = || {
        let count = |(scene, ceiling): (String, u64)| {
            let allowed = ceiling as f64 * (1.0 + TOLERANCE / 100.0);
            let counted = fewest(program, &scene, allowed);
            (scene, ceiling, counted)
        };
        std::iter::from_fn(next).map(count).collect::<Vec<_>>()
    };
    std::thread::scope(|scope| {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let threads: Vec<_> = (0..processors).map(|_| scope.spawn(count_some)).collect();
        let joined = threads.into_iter().map(|thread| thread.join());
        joined
            .flat_map(|counted| counted.expect("every scene is counted"))
            .collect()
    })
}

/// Instructions per query of a scene. Hash keys are random, and about one in fifty makes two names of a set collide, which
/// costs a comparison more: what is above `allowed` is counted again, with other keys.
fn fewest(program: &Path, scene: &str, allowed: f64) -> f64 {
    let mut counted = instructions(program, scene);
    for _ in 0..2 {
        if counted > allowed {
            counted = counted.min(instructions(program, scene));
        }
    }
    counted
}

/// Instructions per query of a scene.
fn instructions(program: &Path, scene: &str) -> f64 {
    let output = Command::new("valgrind")
        .args([
            "--tool=callgrind",
            "--callgrind-out-file=/dev/null",
            "--toggle-collect=*measured*",
        ])
        .arg(program)
        .args([scene, &COUNT.to_string()])
        .output()
        .expect("valgrind runs");
    let report = String::from_utf8_lossy(&output.stderr);
    let collected = report
        .lines()
        .find_map(|line| line.split("Collected :").nth(1));
    let collected: u64 = collected
        .and_then(|number| number.trim().parse().ok())
        .unwrap_or_else(|| panic!("{scene}: callgrind does not say what it collected:\n{report}"));
    collected as f64 / COUNT as f64
}
