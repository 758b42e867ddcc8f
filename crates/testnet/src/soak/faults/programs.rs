//! XDP programs on our interface: others' that come, and ours taken off.

use std::fmt::{self, Display, Formatter};

use super::{Fault, Harm, Kind};
use crate::lab::{SERVER_BACKENDS, SERVER_CLIENTS};
use crate::soak::daemon::said;
use crate::soak::ground::Ground;
use crate::{During, Failure, Outcome, sys};
use std::os::fd::OwnedFd;

pub(super) const KINDS: [Kind; 2] = [
    Kind {
        name: "program-refused",
        draw: |random| Box::new(Refused(random.one_of(&["load", "unload"]))),
    },
    Kind {
        name: "program-other",
        draw: |random| {
            Box::new(Other {
                interface: random.one_of(&[SERVER_CLIENTS, SERVER_BACKENDS]),
                link: None,
            })
        },
    },
];

/// Somebody tries by hand what must not work while the daemon serves.
#[derive(Debug)]
struct Refused(&'static str);

impl Display for Refused {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        write!(formatter, "millrace xdp {} is tried", self.0)
    }
}

impl Fault for Refused {
    fn harm(&self) -> Harm {
        Harm::None
    }

    fn begin(&mut self, ground: &mut Ground) -> Outcome<()> {
        let words = ["xdp", self.0, "--interface", SERVER_CLIENTS];
        let output = ground.daemon.run_beside(&ground.lab, &words)?;
        match output.status.success() {
            false => Ok(()),
            true => Err(Failure::new(format!(
                "it was not refused: {}",
                said(&output)
            ))),
        }
    }
}

/// Ours is taken off, and another one is there for a while.
#[derive(Debug)]
struct Other {
    interface: &'static str,
    /// Attached as long as this is open.
    link: Option<OwnedFd>,
}

impl Display for Other {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "our program is taken off {}, another one is there",
            self.interface
        )
    }
}

impl Fault for Other {
    fn harm(&self) -> Harm {
        Harm::UntilItClears
    }

    fn begin(&mut self, ground: &mut Ground) -> Outcome<()> {
        let link = format!("millrace/{}/link", self.interface);
        sys::detach_link(&ground.lab.bpffs().join(link)).during("taking our program off")?;
        let interface = self.interface;
        let server = ground.lab.server();
        // Within a second the daemon puts its own on again: it may have been faster.
        self.link = server.run(|| sys::attach_passing_program(interface))?.ok();
        Ok(())
    }

    fn clear(&mut self, _ground: &mut Ground) -> Outcome<()> {
        self.link = None;
        Ok(())
    }
}
