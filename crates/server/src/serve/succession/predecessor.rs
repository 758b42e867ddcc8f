//! The old process's part: it starts its successor, leaves the queues when that one is ready, and ends when it serves.

use super::{Word, caches, hear, say};
use crate::control::protocol::{READY_WITHIN, SERVING_WITHIN};
use crate::log;
use crate::network::steering::Steering;
use crate::notify;
use crate::serve::lock;
use crate::serve::workers::reports;
use crate::serve::{Daemon, Event};
use crate::worker::Order;
use nix::sys::socket::{
    AddressFamily, Shutdown, SockFlag, SockType, setsockopt, shutdown, socketpair, sockopt,
};
use nix::sys::time::{TimeVal, TimeValLike};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

/// How long a worker may take to close its queues; one that is stalled is not waited for.
const CLOSED_WITHIN: Duration = Duration::from_secs(1);

/// Sockets of one message: a message holds no more descriptors.
const AT_ONCE: usize = 16;

/// Whoever asked for the restart, who waits for its outcome.
type Asker = Sender<Result<Vec<String>, String>>;

/// The process that is to succeed this one.
pub(crate) struct Successor {
    end: Arc<OwnedFd>,
    process: i32,
    asker: Asker,
    /// This process has left the queues.
    has_queues: bool,
    /// When it has taken too long.
    pub(crate) until: Instant,
}

impl Daemon {
    /// Starts a successor; `asker` is told what becomes of it.
    pub(in crate::serve) fn restart(&mut self, asker: Asker) {
        let begun = match &self.successor {
            Some(successor) => Err(format!(
                "a restart is under way already: process {} is to take over",
                successor.process
            )),
            // Listeners that it has opened already would be "in use" for the next process.
            None if self.is_reloading() => {
                Err("a reload is under way: try again when it has ended".to_owned())
            }
            None => self.start_successor(asker.clone()),
        };
        match begun {
            Ok(successor) => {
                log::notice!("restart: process {} is to take over", successor.process);
                self.successor = Some(successor);
            }
            Err(reason) => {
                log::error!("no restart, this process serves on: {reason}");
                // Whoever asked may have gone.
                let _ = asker.send(Err(reason));
            }
        }
    }

    fn start_successor(&self, asker: Asker) -> Result<Successor, String> {
        let failed = |error: io::Error| format!("a socket to the next process: {error}");
        let (ours, theirs) = pair().map_err(failed)?;
        let started = self.helper.start_successor(&theirs);
        let process = started.map_err(|error| error.to_string())?;
        drop(theirs);
        self.bequeath(&ours)
            .map_err(|error| format!("process {process} does not take what it needs: {error}"))?;
        let ours = Arc::new(ours);
        listen(process, &ours, &self.overview.events).map_err(failed)?;
        Ok(Successor {
            end: ours,
            process,
            asker,
            has_queues: false,
            until: Instant::now() + READY_WITHIN,
        })
    }

    /// What the new process begins with.
    fn bequeath(&self, end: &OwnedFd) -> io::Result<()> {
        let mut sockets = Vec::new();
        for listener in self.instance.listeners.all().iter().flatten() {
            sockets.extend(listener.duplicates()?);
        }
        sockets.extend(self.overview.listening.duplicates()?);
        for some in sockets.chunks(AT_ONCE) {
            say(end, &Word::Sockets, some)?;
        }
        for socket in self.instance.named.all().iter() {
            let word = match socket.is_handed_on() {
                true => Word::Named,
                false => Word::Sockets,
            };
            say(end, &word, &[socket.duplicate()?])?;
        }
        if let Some(estate) = &self.estate {
            let (listener, path) = estate.parts();
            let word = Word::Control {
                path: path.to_owned(),
            };
            say(end, &word, &[listener.try_clone_to_owned()?])?;
        }
        let (reader, writer) = io::pipe()?;
        let form = crate::pipeline::cache::FORM;
        say(end, &Word::Caches { form }, &[reader.into()])?;
        let config = self.instance.config.load_full();
        let write = move || {
            // A reader that has gone has what it wants.
            let _ = caches::write(&config, writer.into());
        };
        std::thread::Builder::new()
            .name("cache-dump".to_owned())
            .spawn(write)?;
        let process = std::process::id() as i32;
        say(end, &Word::Begin { process }, &[])
    }

    /// The new process has said something, or is gone (`None`); whether this one has done its part and is to end.
    pub(in crate::serve) fn hear_successor(&mut self, process: i32, word: Option<Word>) -> bool {
        let is_current = |successor: &Successor| successor.process == process;
        if !self.successor.as_ref().is_some_and(is_current) {
            return false;
        }
        match word {
            Some(Word::Ready) => self.leave_queues(),
            Some(Word::Serving) => {
                self.farewell();
                return true;
            }
            Some(Word::Failed { reason }) => self.serve_on(&reason),
            Some(word) => self.serve_on(&format!("process {process} says {word:?} now")),
            None => self.serve_on(&format!("process {process} ended before it served")),
        }
        false
    }

    /// Whether queues are left to the new process for now: what changes meanwhile is looked at when it has failed.
    pub(in crate::serve) fn has_lent_queues(&self) -> bool {
        self.successor
            .as_ref()
            .is_some_and(|successor| successor.has_queues)
    }

    /// The new process has taken too long.
    pub(in crate::serve) fn give_up_successor(&mut self) {
        let late = self.successor.as_ref();
        if let Some(late) = late.filter(|successor| successor.until <= Instant::now()) {
            let reason = format!("process {} has taken too long", late.process);
            self.serve_on(&reason);
        }
    }

    /// Queues leave the map, so that kernel sockets get everything, which both processes read; rings are drained and closed.
    fn leave_queues(&mut self) {
        lock(&self.steering).leave_all();
        xsk::settle();
        for device in self
            .keeping
            .plan
            .devices
            .iter()
            .map(|planned| planned.device.number)
        {
            self.order(|| Order::Close(device, None));
            self.needs.forget(device);
        }
        self.await_workers();
        self.overview.forget_all();
        let listeners = self.instance.listeners.all();
        let sockets = listeners.iter().flatten();
        sockets.for_each(|sockets| sockets.stop_spreading());
        let Some(successor) = &mut self.successor else {
            return;
        };
        successor.has_queues = true;
        successor.until = Instant::now() + SERVING_WITHIN;
        let (end, process) = (Arc::clone(&successor.end), successor.process);
        let said = say_links(&end, &lock(&self.steering));
        if let Err(error) = said {
            self.serve_on(&format!("process {process} takes no links: {error}"));
        }
    }

    fn await_workers(&self) {
        let workers = self.workers.iter().map(|worker| &worker.reins);
        let reported = reports(workers, CLOSED_WITHIN);
        if reported < self.workers.len() {
            log::warn!(
                "{} of {} workers have closed their queues within {} s",
                reported,
                self.workers.len(),
                CLOSED_WITHIN.as_secs()
            );
        }
    }

    /// The new process serves: nothing is read here any more, what is in flight is finished.
    fn farewell(&mut self) {
        let Some(successor) = self.successor.take() else {
            return;
        };
        if let Some(estate) = &self.estate {
            estate.give();
        }
        self.instance.named.give();
        self.keeper.leave(&self.instance.config.load().local);
        self.has_left = true;
        notify::main_process(successor.process);
        let (old, new) = (std::process::id(), successor.process);
        let line = format!("process {new} serves, process {old} finishes what is in flight");
        log::notice!("{line}");
        let _ = successor.asker.send(Ok(vec![line]));
    }

    /// The successor has failed: all is as before.
    fn serve_on(&mut self, reason: &str) {
        let Some(successor) = self.successor.take() else {
            return;
        };
        log::error!("no restart, this process serves on: {reason}");
        // If it still runs it ends by this.
        let _ = shutdown(successor.end.as_raw_fd(), Shutdown::Both);
        if successor.has_queues {
            self.take_back();
        }
        let _ = successor.asker.send(Err(reason.to_owned()));
    }

    /// Programs and queues are ours again.
    fn take_back(&mut self) {
        for steered in lock(&self.steering).devices() {
            if let Err(error) = steered.attached.restore() {
                log::warn!("{}: {error}", steered.device.name);
            }
        }
        for sockets in self.instance.listeners.all().iter().flatten() {
            if let Err(error) = sockets.spread_again() {
                log::warn!("{}: {error}", sockets.address);
            }
        }
        self.replan();
        // An edit may have made a device needless meanwhile, when nothing was planned.
        let lines = self.detach_unplanned();
        lines.iter().for_each(|line| log::notice!("{line}"));
        self.steer_again();
    }

    /// Told to stop while a successor starts: that one is not wanted either.
    pub(in crate::serve) fn dismiss_successor(&mut self) {
        if let Some(successor) = self.successor.take() {
            // If it does not hear this it ends by itself, when it finds nobody to succeed.
            let _ = say(&successor.end, &Word::Stopping, &[]);
            let _ = successor
                .asker
                .send(Err("the instance is stopping".to_owned()));
        }
    }
}

fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let (family, flags) = (AddressFamily::Unix, SockFlag::SOCK_CLOEXEC);
    let (ours, theirs) = socketpair(family, SockType::SeqPacket, None, flags)?;
    // A process that does not read must not hold up this one.
    setsockopt(&ours, sockopt::SendTimeout, &TimeVal::seconds(1))?;
    Ok((ours, theirs))
}

/// Makes events of what the successor says, until it is gone.
fn listen(process: i32, end: &Arc<OwnedFd>, events: &Sender<Event>) -> io::Result<()> {
    let (end, events) = (Arc::clone(end), events.clone());
    let listen = move || {
        loop {
            let word = hear(&end).ok().map(|(word, _)| word);
            let is_last = word.is_none();
            if events.send(Event::Successor(process, word)).is_err() || is_last {
                return;
            }
        }
    };
    std::thread::Builder::new()
        .name("successor".to_owned())
        .spawn(listen)
        .map(drop)
}

fn say_links(end: &OwnedFd, steering: &Steering) -> io::Result<()> {
    for steered in steering.devices() {
        let Some((handed, parts)) = steered.attached.bequeath().map_err(io::Error::other)? else {
            continue;
        };
        say(end, &Word::link(&handed), &parts)?;
    }
    say(end, &Word::Left, &[])
}
