//! The new process's part: it begins with the sockets and caches of the old one, and asks for its queues when it serves by
//! kernel sockets.

use super::{Word, caches, hear, say};
use crate::config::{Config, Listener, Xdp};
use crate::control::socket::ControlSocket;
use crate::frontend::inherited::Inherited;
use crate::frontend::named::Owner;
use crate::log;
use crate::network::attached::Attached;
use crate::network::{Plan, activation};
use crate::notify;
use crate::pipeline::cache::FORM;
use crate::serve::listeners::spread;
use crate::serve::lock;
use crate::serve::{Daemon, Event};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::socket::{setsockopt, sockopt};
use nix::sys::time::{TimeVal, TimeValLike};
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::mpsc::Sender;
use xsk::{Handed, Program};

/// How long the old process may take for a word, in seconds.
const ANSWERS_WITHIN: i64 = 10;

/// The process that this one succeeds.
pub(crate) struct Predecessor {
    end: OwnedFd,
    process: i32,
    /// Loaded while there are privileges for it, by the interface (index) that each is for.
    programs: HashMap<u32, Program>,
}

/// What there is of others' at a start; nothing at most.
#[derive(Default)]
pub(crate) struct Legacy {
    pub(crate) sockets: Inherited,
    pub(crate) control: Option<ControlSocket>,
    caches: Option<OwnedFd>,
    pub(crate) predecessor: Option<Predecessor>,
}

fn say_stray() {
    log::warn!("a descriptor that came with the start is no socket of DNS: it is closed");
}

impl Legacy {
    /// What systemd passes, and with `succeed` what the old process says at the other end of standard input. After the helper
    /// was forked, which is to have none of it, and before anything else.
    ///
    /// # Errors
    /// Standard input is no such socket, or the old process is gone.
    pub(crate) fn receive(succeed: bool) -> io::Result<Legacy> {
        let mut legacy = Legacy::default();
        let given = activation::take()?.into_iter();
        let left = given.filter_map(|(socket, is_stored)| match is_stored {
            true => legacy.sockets.add(socket),
            false => legacy.sockets.add_lent(socket),
        });
        left.for_each(|_| say_stray());
        if succeed {
            // The helper that started this process blocks signals, and its mask has come along. SIGHUP waits until it is heard.
            let mut blocked = SigSet::all();
            blocked.remove(Signal::SIGHUP);
            blocked.thread_unblock()?;
            let end = io::stdin().as_fd().try_clone_to_owned()?;
            nix::unistd::dup2_stdin(File::open("/dev/null")?)?;
            setsockopt(
                &end,
                sockopt::ReceiveTimeout,
                &TimeVal::seconds(ANSWERS_WITHIN),
            )?;
            legacy.listen(end)?;
        }
        Ok(legacy)
    }

    fn add(&mut self, socket: OwnedFd) {
        if self.sockets.add(socket).is_some() {
            say_stray();
        }
    }

    fn listen(&mut self, end: OwnedFd) -> io::Result<()> {
        loop {
            let (word, mut with) = hear(&end)?;
            match word {
                Word::Sockets => with.into_iter().for_each(|socket| self.add(socket)),
                Word::Named => {
                    for socket in with {
                        self.sockets.add_named(socket, Owner::Successor);
                    }
                }
                Word::Control { path } => {
                    let socket = with.pop().ok_or(io::ErrorKind::InvalidData)?;
                    self.control = Some(ControlSocket::inherit(socket, &path)?);
                }
                Word::Caches { form } if form == FORM => self.caches = with.pop(),
                // Another version: its caches are of no use.
                Word::Caches { .. } => {}
                Word::Begin { process } => {
                    self.predecessor = Some(Predecessor {
                        end,
                        process,
                        programs: HashMap::new(),
                    });
                    return Ok(());
                }
                other => return Err(io::Error::other(format!("it began with {other:?}"))),
            }
        }
    }

    /// Fills the caches with those of the old process.
    pub(crate) fn fill_caches(&mut self, config: &Config) {
        let Some(from) = self.caches.take() else {
            return;
        };
        match caches::read(config, from) {
            Ok(entries) => log::info!("{entries} cache entries taken over"),
            Err(error) => log::warn!("caches begin with a part of what there was: {error}"),
        }
    }

    /// Closes the sockets whose address no listener of `listeners` has, and says so; what is lent stays for a listener that a
    /// reload may bring.
    pub(crate) fn close_unused(&mut self, listeners: &[Listener]) {
        let is_served = |address| listeners.iter().any(|one| one.address == address);
        let lines = lines_of_unused(&self.sockets, is_served);
        lines.iter().for_each(|line| log::notice!("{line}"));
        self.sockets.keep_lent(is_served);
    }
}

fn lines_of_unused(unused: &Inherited, is_served: impl Fn(SocketAddr) -> bool) -> Vec<String> {
    let addresses = unused.left().into_iter();
    let unwanted = addresses.filter(|address| !is_served(*address));
    let line = |address| match unused.is_lent(address) {
        true => format!("sockets of LISTEN_FDS for {address} are not used: no addLocal has it"),
        false => format!("{address} is not served any more"),
    };
    unwanted.map(line).collect()
}

impl Predecessor {
    /// The programs of all planned devices, to be put on their links when the time has come.
    pub(crate) fn load_programs(&mut self, plan: &Plan) {
        for device in plan.devices.iter().map(|planned| &planned.device) {
            match Program::load() {
                Ok(program) => {
                    self.programs.insert(device.interface, program);
                }
                Err(error) => log::warn!("no AF_XDP on {}: {error}", device.name),
            }
        }
    }

    /// Tells the old process why this one ends.
    pub(crate) fn fail(&self, reason: &str) {
        // If it does not hear this it sees that this process is gone.
        let _ = say(&self.end, &Word::failed(reason), &[]);
    }

    /// Asks the old process to leave its queues; their links.
    fn await_links(&self) -> io::Result<Vec<(Handed, Vec<OwnedFd>)>> {
        say(&self.end, &Word::Ready, &[])?;
        let mut links = Vec::new();
        loop {
            match hear(&self.end)? {
                (
                    Word::Link {
                        interface,
                        native,
                        has_buffers,
                        kept,
                    },
                    parts,
                ) => {
                    let handed = Handed {
                        interface,
                        native,
                        has_buffers,
                        kept,
                    };
                    links.push((handed, parts));
                }
                (Word::Left, _) => return Ok(links),
                (other, _) => return Err(io::Error::other(format!("it says {other:?}"))),
            }
        }
    }
}

impl Daemon {
    /// The kernel sockets are served: takes over programs and queues.
    ///
    /// # Errors
    /// The old process does not give them: it serves on, or both are to end.
    pub(in crate::serve) fn take_over(&mut self) -> io::Result<()> {
        let Some(predecessor) = &mut self.predecessor else {
            return Ok(());
        };
        if self.services.is_told_to_end() {
            return Err(io::Error::other("this one was told to end before"));
        }
        for (handed, parts) in predecessor.await_links()? {
            let device = lock(&self.steering).device_on(handed.interface).cloned();
            let devices = self.keeping.plan.devices.iter();
            let mut devices = devices.map(|planned| &planned.device);
            let planned = devices.find(|device| device.interface == handed.interface);
            let program = predecessor.programs.remove(&handed.interface);
            let (None, Some(device), Some(mut program)) = (device, planned, program) else {
                continue;
            };
            let mode = if handed.native { "native" } else { "generic" };
            match program.succeed(handed, parts) {
                Ok(()) => {
                    lock(&self.steering).insert(device, Attached::Ours(program));
                    log::info!(
                        "{}: the AF_XDP program has taken the last one's place, in {mode} mode",
                        device.name
                    );
                }
                // It is attached anew, when the old process has let go.
                Err(error) => log::warn!("{}: {error}", device.name),
            }
        }
        let config = self.instance.config.load_full();
        for sockets in self.instance.listeners.all().iter().flatten() {
            let mut listeners = config.listeners.iter();
            let listener = listeners.find(|listener| listener.address == sockets.address);
            if let Some(pulses) = &self.instance.pulses
                && listener.is_some_and(|listener| listener.xdp != Xdp::Off)
            {
                spread(sockets, pulses, &self.helper);
            }
        }
        self.steer_again();
        match self.say_when_serving() {
            true => Ok(()),
            false => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }

    /// Once no queue is waited for any more, the old process may go. False: it does not hear that, so that this one must end,
    /// for it may serve on.
    pub(in crate::serve) fn say_when_serving(&mut self) -> bool {
        if self.needs.is_opening() {
            return true;
        }
        let Some(predecessor) = self.predecessor.take() else {
            return true;
        };
        let said = say(&predecessor.end, &Word::Serving, &[]);
        if let Some(estate) = self.estate.as_ref().filter(|_| said.is_ok()) {
            estate.take();
        }
        if said.is_ok() {
            self.instance.named.take();
            notify::take_turn();
        }
        match &said {
            Ok(()) => {
                log::notice!("took over from process {}", predecessor.process);
                tell_when_gone(predecessor.end, self.overview.events.clone());
            }
            Err(error) => log::error!(
                "process {} has not waited for this one and serves on: {error}",
                predecessor.process
            ),
        }
        said.is_ok()
    }
}

/// Makes an event of the end of the old process, which finishes what is in flight; of one that takes too long for that, too
/// ([`ANSWERS_WITHIN`]).
fn tell_when_gone(end: OwnedFd, events: Sender<Event>) {
    let wait = move || {
        // It has nothing more to say.
        let _ = hear(&end);
        // A control thread that has ended needs no news.
        let _ = events.send(Event::PredecessorGone);
    };
    let name = "predecessor".to_owned();
    if let Err(error) = std::thread::Builder::new().name(name).spawn(wait) {
        log::warn!("no thread to await the end of the process before this one: {error}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;

    #[test]
    fn sockets_that_no_listener_has_are_told_of_by_where_they_come_from() {
        let mut sockets = Inherited::default();
        let [lent, served] = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
        let [lent_at, served_at] = [&lent, &served].map(|socket| socket.local_addr().unwrap());
        assert!(sockets.add_lent(lent.into()).is_none());
        assert!(sockets.add(served.into()).is_none());
        let mut lines = lines_of_unused(&sockets, |_| false);
        lines.sort();
        let expected = [
            format!("{served_at} is not served any more"),
            format!("sockets of LISTEN_FDS for {lent_at} are not used: no addLocal has it"),
        ];
        assert_eq!(lines, expected);
    }
}
