//! Listeners that a reload has removed: nothing comes to them any more, and they stay until the answers to what came before are sent.

use super::Daemon;
use super::workers::reports;
use crate::config::{Config, LocalAddress};
use crate::frontend::listeners::Sockets;
use crate::log;
use crate::notify;
use crate::worker::Order;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long they stay beyond the time-out of a query: rules may delay an answer.
const GRACE: Duration = Duration::from_secs(3);

/// How long the workers may take to let go of one.
const LET_GO_WITHIN: Duration = Duration::from_secs(1);

impl Daemon {
    /// Has those of `listeners` leave that `config` does not have, and the others serve.
    pub(super) fn let_leave(
        &mut self,
        mut listeners: Vec<Option<Arc<Sockets>>>,
        config: &Config,
        before: &Config,
    ) {
        let is_wanted = |sockets: &Sockets| {
            let mut wanted = config.listeners.iter();
            wanted.any(|listener| listener.address == sockets.address)
        };
        let gone = |place: &mut Option<Arc<Sockets>>| place.take_if(|sockets| !is_wanted(sockets));
        let gone: Vec<Arc<Sockets>> = listeners.iter_mut().filter_map(gone).collect();
        let until = Instant::now() + before.longest_timeout() + GRACE;
        self.instance.listeners.let_leave(&gone, until);
        self.instance.listeners.replace(listeners);
        for sockets in gone {
            self.services.refuse(&LocalAddress::Ip(sockets.address));
            self.keep_lent(&sockets);
            take_no_more(&sockets);
            self.order(|| Order::Unlisten(sockets.number));
        }
    }

    /// A socket unit lends its sockets once, at the start, and nobody can bind its addresses: duplicates stay, which nobody reads
    /// until a listener has such an address again.
    fn keep_lent(&mut self, sockets: &Sockets) {
        if sockets.is_ours {
            return;
        }
        self.lent.close(sockets.address);
        match sockets.duplicates() {
            // None comes back: each is a socket of that address.
            Ok(copies) => copies
                .into_iter()
                .for_each(|copy| drop(self.lent.add_lent(copy))),
            Err(error) => log::warn!(
                "{}: to serve it again takes a restart, for what the socket unit lent is not kept: {error}",
                sockets.address
            ),
        }
    }

    /// This process ends: whoever shares an address with it gets all queries from now on, and whoever asks learns that the port is
    /// closed. Not where others have these sockets too and will go on with them: a successor, or systemd for the next start.
    pub(super) fn take_no_more(&self) {
        if self.has_left || notify::is_heard() {
            return;
        }
        for sockets in self.instance.listeners.all().iter().flatten() {
            take_no_more(sockets);
        }
    }

    /// Closes those whose time is over.
    pub(super) fn forget_leaving(&self) {
        let now = Instant::now();
        self.forget(|_, until| until <= now);
    }

    /// Closes the one at this address now, for another one is to be opened there. What has not been answered yet is lost: that two
    /// reloads within seconds remove a listener and bring it back is rarer than that somebody else may want the port.
    pub(super) fn forget_at(&self, address: SocketAddr) {
        if !self.forget(|sockets, _| sockets.address == address) {
            return;
        }
        // Whoever does not report hangs: the address is then in use, which is said.
        let workers = self.workers.iter().map(|worker| &worker.reins);
        reports(workers, LET_GO_WITHIN);
    }

    /// Closes those of which this is true; whether there are any.
    fn forget(&self, is_over: impl Fn(&Sockets, Instant) -> bool) -> bool {
        let gone = self.instance.listeners.forget(is_over);
        for sockets in &gone {
            self.order(|| Order::Forget(sockets.number));
        }
        !gone.is_empty()
    }
}

fn take_no_more(sockets: &Sockets) {
    if let Err(error) = sockets.take_no_more() {
        let address = sockets.address;
        log::verbose!("{address}: queries come until it is closed: {error}");
    }
}
