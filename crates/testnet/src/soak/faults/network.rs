//! What the network does beside links: hardware addresses, addresses, queues.

use std::fmt::{self, Display, Formatter};

use super::{Fault, Harm, Kind};
use crate::Outcome;
use crate::lab::{SERVER_BACKENDS, SERVER_CLIENTS, TO_SERVER};
use crate::soak::ground::{Ground, set_queues};

pub(super) const KINDS: [Kind; 3] = [
    Kind {
        name: "neighbour",
        draw: |random| Box::new(Neighbour(random.between(0x10, 0xfe) as u8)),
    },
    Kind {
        name: "address",
        draw: |_| Box::new(Address),
    },
    Kind {
        name: "channels",
        draw: |random| Box::new(Channels(random.between(3, 4) as u8)),
    },
];

/// The backends have another hardware address, and tell so.
#[derive(Debug)]
struct Neighbour(u8);

impl Neighbour {
    fn set(ground: &Ground, last: u8) -> Outcome<()> {
        let line = format!("link set {TO_SERVER} address 02:00:00:00:02:{last:02x}\n");
        ground.lab.backend().ip(&line)
    }
}

impl Display for Neighbour {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        let last = self.0;
        write!(
            formatter,
            "the backends' MAC address is 02:00:00:00:02:{last:02x}"
        )
    }
}

impl Fault for Neighbour {
    fn harm(&self) -> Harm {
        Harm::UntilItClears
    }

    fn begin(&mut self, ground: &mut Ground) -> Outcome<()> {
        Self::set(ground, self.0)
    }

    fn clear(&mut self, ground: &mut Ground) -> Outcome<()> {
        Self::set(ground, 2)
    }
}

/// The served addresses are taken away and come back.
#[derive(Debug)]
struct Address;

impl Display for Address {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        write!(formatter, "{SERVER_CLIENTS} has no address")
    }
}

impl Fault for Address {
    fn harm(&self) -> Harm {
        Harm::UntilItClears
    }

    fn begin(&mut self, ground: &mut Ground) -> Outcome<()> {
        ground.lab.server().ip(&format!(
            "address del 192.0.2.1/24 dev {SERVER_CLIENTS}\n\
             address del 2001:db8::1/64 dev {SERVER_CLIENTS}\n"
        ))
    }

    fn clear(&mut self, ground: &mut Ground) -> Outcome<()> {
        ground.lab.server().ip(&format!(
            "address add 192.0.2.1/24 dev {SERVER_CLIENTS}\n\
             address add 2001:db8::1/64 dev {SERVER_CLIENTS} nodad\n"
        ))
    }
}

/// `ethtool -L` gives the interface towards backends more queues. Fewer than are served the kernel refuses (ethtool_set_channels:
/// "requested channel counts are too low for existing zerocopy AF_XDP sockets"), and all is as before: it may be asked for.
#[derive(Debug)]
struct Channels(u8);

impl Display for Channels {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        write!(formatter, "{SERVER_BACKENDS} has {} queues", self.0)
    }
}

impl Channels {
    fn set(ground: &Ground, count: u8) -> Outcome<()> {
        let (backend, server) = (ground.lab.backend(), ground.lab.server());
        match set_queues(&backend, &server, SERVER_BACKENDS, count) {
            Err(failure) if failure.to_string().contains("AF_XDP sockets") => Ok(()),
            outcome => outcome,
        }
    }
}

impl Fault for Channels {
    fn harm(&self) -> Harm {
        Harm::UntilItClears
    }

    fn begin(&mut self, ground: &mut Ground) -> Outcome<()> {
        Self::set(ground, self.0)
    }

    fn clear(&mut self, ground: &mut Ground) -> Outcome<()> {
        Self::set(ground, 2)
    }
}
