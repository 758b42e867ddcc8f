//! The faults of a soak, one file a family. A kind draws its particulars from the seed's numbers; a fault begins, holds, and clears.

mod backends;
mod clients;
mod control;
mod frames;
mod links;
mod network;
mod process;
mod programs;
mod reloads;

use std::fmt::{Debug, Display};

use super::ground::Ground;
use super::random::Random;
use crate::Outcome;

/// What clients may notice of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Harm {
    /// Nothing: every query is answered all the while.
    None,
    /// Queries may be lost until one second after it has cleared.
    UntilItClears,
}

/// Something that goes wrong. What it says of itself, with the seed, is all that is needed to repeat it.
pub(super) trait Fault: Debug + Display {
    fn harm(&self) -> Harm;
    fn begin(&mut self, ground: &mut Ground) -> Outcome<()>;
    /// What lasts is put right again.
    fn clear(&mut self, _ground: &mut Ground) -> Outcome<()> {
        Ok(())
    }
}

/// A kind of fault.
pub(super) struct Kind {
    pub name: &'static str,
    /// One of its kind.
    pub draw: fn(&mut Random) -> Box<dyn Fault>,
}

/// All that there are.
pub(super) fn kinds() -> impl Iterator<Item = &'static Kind> {
    let families: [&'static [Kind]; 9] = [
        &links::KINDS,
        &network::KINDS,
        &programs::KINDS,
        &backends::KINDS,
        &process::KINDS,
        &reloads::KINDS,
        &frames::KINDS,
        &clients::KINDS,
        &control::KINDS,
    ];
    families.into_iter().flatten()
}
