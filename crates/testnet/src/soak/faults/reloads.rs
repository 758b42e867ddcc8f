//! Reloads, good ones and bad ones (F36).

use std::fmt::{self, Display, Formatter};

use super::{Fault, Harm, Kind};
use crate::soak::daemon::said;
use crate::soak::ground::{Ground, configuration};
use crate::{Failure, Outcome};

pub(super) const KINDS: [Kind; 2] = [
    Kind {
        name: "reload-good",
        draw: |random| Box::new(Good(random.one_of(&ADDITIONS))),
    },
    Kind {
        name: "reload-bad",
        draw: |random| Box::new(Bad(random.one_of(&MISTAKES))),
    },
];

/// What may be there as well; no query of the soak's is for it.
const ADDITIONS: [&str; 4] = [
    "",
    "addAction(\"unused.example.\", DropAction())\n",
    "addLocal(\"192.0.2.1:5353\")\n",
    "newServer({address=\"198.51.100.66:53\", name=\"unused\", pool=\"unused\", healthCheckMode=\"up\"})\n",
];

const MISTAKES: [&str; 4] = [
    "addAction(AllRule(\n",
    "addLocl(\"192.0.2.1:53\")\n",
    "newServer(\"no-such-backend.invalid.:53\")\n",
    // The console has it.
    "addLocal(\"127.0.0.1:5199\")\n",
];

#[derive(Debug)]
struct Good(&'static str);

impl Display for Good {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        write!(formatter, "reload with `{}`", self.0.trim())
    }
}

impl Fault for Good {
    fn harm(&self) -> Harm {
        Harm::None
    }

    fn begin(&mut self, ground: &mut Ground) -> Outcome<()> {
        reload(ground, self.0, true)
    }

    fn clear(&mut self, ground: &mut Ground) -> Outcome<()> {
        reload(ground, "", true)
    }
}

#[derive(Debug)]
struct Bad(&'static str);

impl Display for Bad {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        write!(formatter, "reload with the mistake `{}`", self.0.trim())
    }
}

impl Fault for Bad {
    fn harm(&self) -> Harm {
        Harm::None
    }

    fn begin(&mut self, ground: &mut Ground) -> Outcome<()> {
        reload(ground, self.0, false)
    }

    fn clear(&mut self, ground: &mut Ground) -> Outcome<()> {
        reload(ground, "", true)
    }
}

/// It must go well, or be refused, as said.
fn reload(ground: &Ground, more: &str, goes_well: bool) -> Outcome<()> {
    ground.daemon.write(&configuration(more))?;
    let output = ground.daemon.ask(&["reload"])?;
    match output.status.success() == goes_well {
        true => Ok(()),
        false => Err(Failure::new(format!(
            "reload with `{}`: {}",
            more.trim(),
            said(&output)
        ))),
    }
}
