//! Links: down, flapping, with another MTU (F22, F23).

use std::fmt::{self, Display, Formatter};

use super::{Fault, Harm, Kind};
use crate::lab::End;
use crate::soak::ground::Ground;
use crate::soak::random::Random;
use crate::{Failure, Outcome};

pub(super) const KINDS: [Kind; 3] = [
    Kind {
        name: "link-down",
        draw: |random| Box::new(Down(random.one_of(&ENDS))),
    },
    Kind {
        name: "link-flaps",
        draw: |random| {
            Box::new(Flaps {
                end: random.one_of(&ENDS),
                times: random.between(2, 50),
            })
        },
    },
    Kind {
        name: "link-mtu",
        draw: |random| Box::new(Mtu::draw(random)),
    },
];

const ENDS: [End; 4] = [
    End::Clients,
    End::Backends,
    End::ServerClients,
    End::ServerBackends,
];

const MTU_OCTETS: u16 = 1_500;

#[derive(Debug)]
struct Down(End);

impl Display for Down {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        write!(formatter, "the link of {:?} is down", self.0)
    }
}

impl Fault for Down {
    fn harm(&self) -> Harm {
        Harm::UntilItClears
    }

    fn begin(&mut self, ground: &mut Ground) -> Outcome<()> {
        pause_load(ground, self.0)?;
        ground.lab.set_link(self.0, false)
    }

    fn clear(&mut self, ground: &mut Ground) -> Outcome<()> {
        ground.lab.set_link(self.0, true)?;
        ground.load.start(&ground.lab)
    }
}

/// floodgate ends when its own link goes down, as it should.
fn pause_load(ground: &mut Ground, end: End) -> Outcome<()> {
    match end {
        End::Clients => ground.load.stop(),
        _ => Ok(()),
    }
}

#[derive(Debug)]
struct Flaps {
    end: End,
    times: u64,
}

impl Display for Flaps {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "the link of {:?} goes down and up {} times",
            self.end, self.times
        )
    }
}

impl Fault for Flaps {
    fn harm(&self) -> Harm {
        Harm::UntilItClears
    }

    fn begin(&mut self, ground: &mut Ground) -> Outcome<()> {
        pause_load(ground, self.end)?;
        for _ in 0..self.times {
            ground.lab.set_link(self.end, false)?;
            ground.lab.set_link(self.end, true)?;
        }
        ground.load.start(&ground.lab)
    }
}

/// Both ends of a link, as where a whole network is changed.
#[derive(Debug)]
struct Mtu {
    ends: [End; 2],
    octets: u16,
}

impl Mtu {
    fn draw(random: &mut Random) -> Self {
        Self {
            ends: random.one_of(&[
                [End::Clients, End::ServerClients],
                [End::Backends, End::ServerBackends],
            ]),
            octets: random.one_of(&[1_280, 1_400, 3_506, 9_000]),
        }
    }

    /// A driver may refuse what its XDP mode cannot carry.
    fn set(&self, ground: &Ground, octets: u16) -> Outcome<()> {
        let refused =
            |failure: &Failure| octets > MTU_OCTETS && failure.to_string().contains("Invalid");
        for end in self.ends {
            match ground.lab.set_mtu(end, octets) {
                Err(failure) if !refused(&failure) => return Err(failure),
                _ => {}
            }
        }
        Ok(())
    }
}

impl Display for Mtu {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "the MTU of {:?} is {} octets",
            self.ends, self.octets
        )
    }
}

impl Fault for Mtu {
    fn harm(&self) -> Harm {
        Harm::UntilItClears
    }

    fn begin(&mut self, ground: &mut Ground) -> Outcome<()> {
        self.set(ground, self.octets)
    }

    fn clear(&mut self, ground: &mut Ground) -> Outcome<()> {
        self.set(ground, MTU_OCTETS)
    }
}
