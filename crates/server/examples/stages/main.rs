//! Takes queries through the stages of the pipeline, or through a whole worker, for counting: `stages SCENE COUNT`, best under
//! `valgrind --tool=callgrind --toggle-collect='*measured*'`. tests/instructions.rs does that.

mod ground;
mod rings;

use ground::{Ground, NOW, Scene};
use millrace::worker::Worker;
use rings::Course;
use std::process::ExitCode;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let done = match &words[..] {
        [name, count] => count.parse().is_ok_and(|count| serve(name, count)),
        _ => false,
    };
    if done {
        return ExitCode::SUCCESS;
    }
    let scenes = Scene::ALL.iter().chain(&Course::ALL);
    let names: Vec<&str> = scenes.map(|(name, _)| *name).collect();
    eprintln!(
        "usage: stages SCENE COUNT\n  SCENE: one of {}",
        names.join(", ")
    );
    ExitCode::FAILURE
}

/// Whether there is such a scene, whose queries are served then.
fn serve(name: &str, count: usize) -> bool {
    let find = |scenes: &[(&str, Scene)]| {
        let found = scenes.iter().find(|(known, _)| *known == name);
        found.map(|(_, scene)| *scene)
    };
    if let Some(scene) = find(&Scene::ALL) {
        measured(&mut Ground::new(scene), count);
    } else if let Some(scene) = find(&Course::ALL) {
        Course::new(scene).serve(count, measured_turn);
    } else {
        return false;
    }
    true
}

/// What callgrind counts.
#[inline(never)]
fn measured(ground: &mut Ground, count: usize) {
    ground.serve(count);
}

/// What it counts of a whole worker: not what the simulated kernel does between two turns.
#[inline(never)]
fn measured_turn(worker: &mut Worker) {
    worker.turn(NOW);
}
