//! Takes queries through the stages of the pipeline, or through a whole worker, for counting: `stages SCENE COUNT`, best under
//! `valgrind --tool=callgrind --toggle-collect='*measured*'`. tests/instructions does that. `stages SCENE COUNT LINES` has
//! lines of a configuration before the scene's own.

mod ground;
mod rings;

use ground::{Ground, NOW, Scene};
use millrace::worker::Worker;
use rings::Course;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let done = match &words[..] {
        [name, count] => count.parse().is_ok_and(|count| serve(name, "", count)),
        [name, count, lines] => count.parse().is_ok_and(|count| serve(name, lines, count)),
        _ => false,
    };
    if done {
        return ExitCode::SUCCESS;
    }
    let scenes = Scene::ALL.iter().chain(&Course::ALL);
    let names: Vec<&str> = scenes.map(|(name, _)| *name).collect();
    eprintln!(
        "usage: stages SCENE COUNT [LINES]\n  SCENE: one of {}\n  LINES: of a configuration, before the scene's own; not of a loop",
        names.join(", ")
    );
    ExitCode::FAILURE
}

/// Whether there is such a scene, whose queries are served then, behind these lines.
fn serve(name: &str, lines: &str, count: usize) -> bool {
    let find = |scenes: &[(&str, Scene)]| {
        let found = scenes.iter().find(|(known, _)| *known == name);
        found.map(|(_, scene)| *scene)
    };
    if let Some(scene) = find(&Scene::ALL) {
        measured(&mut Ground::new(lines, scene), count);
    } else if let Some(scene) = find(&Course::ALL).filter(|_| lines.is_empty()) {
        eprintln!("turns begin and end with a store to {:p}", &TURN);
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

/// Whether a turn is taken: for whoever looks at all loads and stores.
static TURN: AtomicBool = AtomicBool::new(false);

/// What it counts of a whole worker: not what the simulated kernel does between two turns.
#[inline(never)]
fn measured_turn(worker: &mut Worker) {
    TURN.store(true, Ordering::Release);
    worker.turn(NOW);
    TURN.store(false, Ordering::Release);
}
