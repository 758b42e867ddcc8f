//! The daemon itself: handed over, killed, stopped (F21, F26).

use std::fmt::{self, Display, Formatter};
use std::time::Duration;

use nix::sys::signal::Signal;

use super::{Fault, Harm, Kind};
use crate::Outcome;
use crate::soak::ground::{Ground, configuration};

pub(super) const KINDS: [Kind; 3] = [
    Kind {
        name: "process-restart",
        draw: |_| Box::new(HandOver),
    },
    Kind {
        name: "process-kill",
        draw: |_| Box::new(Killed),
    },
    Kind {
        name: "process-stop",
        draw: |random| Box::new(Stopped(Duration::from_millis(random.between(100, 300)))),
    },
];

#[derive(Debug)]
struct HandOver;

impl Display for HandOver {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter.write_str("millrace restart")
    }
}

impl Fault for HandOver {
    fn harm(&self) -> Harm {
        Harm::None
    }

    fn begin(&mut self, ground: &mut Ground) -> Outcome<()> {
        ground.daemon.hand_over(&ground.lab)
    }
}

#[derive(Debug)]
struct Killed;

impl Display for Killed {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter.write_str("kill -9 and start")
    }
}

impl Fault for Killed {
    fn harm(&self) -> Harm {
        Harm::UntilItClears
    }

    fn begin(&mut self, ground: &mut Ground) -> Outcome<()> {
        ground
            .daemon
            .kill_and_start(&ground.lab, &configuration(""))
    }
}

#[derive(Debug)]
struct Stopped(Duration);

impl Display for Stopped {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        write!(formatter, "SIGSTOP for {:?}", self.0)
    }
}

impl Fault for Stopped {
    fn harm(&self) -> Harm {
        Harm::UntilItClears
    }

    fn begin(&mut self, ground: &mut Ground) -> Outcome<()> {
        ground.daemon.signal(Signal::SIGSTOP)?;
        let stopped = ground.daemon.watch_for(self.0);
        ground.daemon.signal(Signal::SIGCONT)?;
        stopped
    }
}
