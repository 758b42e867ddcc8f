//! The lines of bench/rules.txt: what single rules and features of a configuration cost a query.

use std::path::Path;

/// A line of the list.
#[derive(Debug)]
pub(crate) struct Listed {
    /// The scene in which it is counted.
    pub(crate) scene: String,
    /// Instructions that a query takes more than in the scene alone, or fewer; `*` behind them: it may allocate.
    pub(crate) cost: String,
    /// What stands before the scene's own lines.
    pub(crate) lines: String,
}

/// All of them, in order; `#` starts a remark.
pub(crate) fn listed() -> Vec<Listed> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench/rules.txt");
    let text = std::fs::read_to_string(path).expect("bench/rules.txt");
    let lines = text.lines().map(str::trim);
    let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    let listed = lines.map(|line| {
        read(line).unwrap_or_else(|| {
            panic!(
                "bench/rules.txt: \"{line}\" is not a scene, a cost and lines of a configuration"
            )
        })
    });
    listed.collect()
}

fn read(line: &str) -> Option<Listed> {
    let (scene, rest) = line.split_once(' ')?;
    let (cost, lines) = rest.trim_start().split_once(' ')?;
    Some(Listed {
        scene: scene.to_owned(),
        cost: cost.to_owned(),
        lines: lines.trim().to_owned(),
    })
}
