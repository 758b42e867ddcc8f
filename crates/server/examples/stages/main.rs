//! Takes queries through the stages of the pipeline, for counting: `stages SCENE COUNT`, best under
//! `valgrind --tool=callgrind --toggle-collect='*measured*'`. tests/instructions.rs does that.

mod ground;

use ground::{Ground, Scene};
use std::process::ExitCode;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let chosen = match &words[..] {
        [name, count] => Scene::ALL
            .iter()
            .find(|(known, _)| known == name)
            .zip(count.parse().ok()),
        _ => None,
    };
    let Some(((_, scene), count)) = chosen else {
        let names = Scene::ALL.map(|(name, _)| name).join(", ");
        eprintln!("usage: stages SCENE COUNT\n  SCENE: one of {names}");
        return ExitCode::FAILURE;
    };
    let mut ground = Ground::new(*scene);
    measured(&mut ground, count);
    ExitCode::SUCCESS
}

/// What callgrind counts.
#[inline(never)]
fn measured(ground: &mut Ground, count: usize) {
    ground.serve(count);
}
