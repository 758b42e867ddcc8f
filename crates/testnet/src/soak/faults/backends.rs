//! Backends that are dead, hang, lie, are slow, repeat themselves or lose queries (F14 to F17, F19). There are two; one is bad.

use std::fmt::{self, Display, Formatter};

use super::{Fault, Harm, Kind};
use crate::Outcome;
use crate::soak::backend::Conduct;
use crate::soak::ground::Ground;
use crate::soak::random::Random;

pub(super) const KINDS: [Kind; 8] = [
    kind("backend-dead", |random| one(random, Conduct::Dead)),
    kind("backend-silent", |random| one(random, Conduct::Silent)),
    kind("backend-lying", |random| one(random, Conduct::Lying)),
    kind("backend-slow", |random| one(random, Conduct::Slow)),
    kind("backend-repeating", |random| {
        one(random, Conduct::Repeating)
    }),
    kind("backend-lossy", |random| one(random, Conduct::Lossy)),
    kind("backend-dripping", |random| one(random, Conduct::Dripping)),
    kind("backend-resetting", |random| {
        one(random, Conduct::Resetting)
    }),
];

const fn kind(name: &'static str, draw: fn(&mut Random) -> Box<dyn Fault>) -> Kind {
    Kind { name, draw }
}

fn one(random: &mut Random, conduct: Conduct) -> Box<dyn Fault> {
    Box::new(Misconduct {
        which: random.between(0, 1) as usize,
        conduct,
    })
}

#[derive(Debug)]
struct Misconduct {
    which: usize,
    conduct: Conduct,
}

impl Display for Misconduct {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        let conduct = format!("{:?}", self.conduct).to_lowercase();
        write!(formatter, "backend {} is {conduct}", self.which + 1)
    }
}

impl Fault for Misconduct {
    fn harm(&self) -> Harm {
        match self.conduct {
            Conduct::Lying | Conduct::Slow | Conduct::Repeating => Harm::None,
            _ => Harm::UntilItClears,
        }
    }

    fn begin(&mut self, ground: &mut Ground) -> Outcome<()> {
        ground.backends[self.which].behave(self.conduct);
        Ok(())
    }

    fn clear(&mut self, ground: &mut Ground) -> Outcome<()> {
        ground.backends[self.which].behave(Conduct::Good);
        Ok(())
    }
}
