//! What scenario after scenario stands on.

use crate::Outcome;
use crate::exceptions::Exceptions;
use crate::lab::{Lab, Topology};

/// A lab with what watches it, for run after run.
pub(super) struct Ground {
    // In the order in which they must end: the lab's name is free with the lab, and the next one watches under that name at once.
    pub(super) exceptions: Exceptions,
    pub(super) lab: Lab,
}

impl Ground {
    /// Builds the first lab called `base`-0, `base`-1, … that nobody has, and watches it.
    pub(super) fn up(base: &str, topology: Topology) -> Outcome<Self> {
        let lab = Lab::up_beside_others(base, topology)?;
        let exceptions = Exceptions::watch(lab.prefix())?;
        Ok(Self { exceptions, lab })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_ends_takes_nothing_from_the_next_of_its_name() {
        if !nix::unistd::geteuid().is_root() {
            println!("SKIP: network namespaces need root");
            return;
        }
        let ground_after_ground = || {
            for _ in 0..25 {
                Ground::up("millrace-grounds", Topology::TwoInterfaces).expect("a ground");
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(ground_after_ground);
            }
        });
    }
}
