//! The client's side: where generators and the witness run, and whom they ask.

use std::net::SocketAddr;
use std::process::{Child, Command};

use crate::lab::{SERVER_V4, TO_SERVER};
use crate::ledger::Book;
use crate::namespace::Namespace;
use crate::{During, Outcome};

/// Where queries come from.
#[derive(Clone, Debug)]
pub(super) struct Client {
    /// The lab's; none: this machine as it is, before a server on another one.
    namespace: Option<Namespace>,
    target: SocketAddr,
    /// The CPU of generators; none: as they choose.
    cpu: Option<usize>,
    /// Where the lab writes down what runs in it.
    book: Option<Book>,
}

impl Client {
    /// The lab's client, which asks the lab's server.
    pub(super) fn of_lab(namespace: Namespace, cpu: usize) -> Client {
        Client {
            namespace: Some(namespace),
            target: SocketAddr::new(SERVER_V4, 53),
            cpu: Some(cpu),
            book: None,
        }
    }

    /// This machine, which asks another one.
    pub(super) fn before(target: SocketAddr) -> Client {
        Client {
            namespace: None,
            target,
            cpu: None,
            book: None,
        }
    }

    /// The same; what runs is written down, so that after a bench that was killed the next one ends it.
    pub(super) fn written_in(self, book: Book) -> Client {
        Client {
            book: Some(book),
            ..self
        }
    }

    /// Writes a process down that was started here.
    pub(super) fn write_down(&self, id: u32, name: &str) -> Outcome<()> {
        match &self.book {
            Some(book) => book.add(id, name),
            None => Ok(()),
        }
    }

    /// Where the server under test answers.
    pub(super) fn target(&self) -> SocketAddr {
        self.target
    }

    /// The CPU that generators are kept on.
    pub(super) fn cpu(&self) -> Option<usize> {
        self.cpu
    }

    /// Starts a program there.
    pub(super) fn spawn(&self, command: &mut Command) -> Outcome<Child> {
        match &self.namespace {
            Some(namespace) => namespace.spawn(command, None),
            None => command
                .spawn()
                .during(format!("starting {}", command.get_program().display())),
        }
    }

    /// Does something there: sockets that it opens stay there.
    pub(super) fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Outcome<T> {
        match &self.namespace {
            Some(namespace) => namespace.run(work),
            None => Ok(work()),
        }
    }

    /// Takes a program off that a generator left behind. On a machine that is no lab it may be somebody else's.
    pub(super) fn clear(&self) {
        if let Some(namespace) = &self.namespace {
            // Where there is none that can be taken off, there is nothing to do.
            let _ = namespace.ip(&format!("link set dev {TO_SERVER} xdp off\n"));
        }
    }
}
