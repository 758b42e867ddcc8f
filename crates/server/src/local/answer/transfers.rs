//! Transfers out: the messages of one, made as fast as the client takes them, of one version of the zone from the first to
//! the last.

use super::super::store::Store;
use super::opt::Opt;
use super::{Session, Transfer, shown};
use crate::clock;
use crate::config::Config;
use crate::counters::Shard;
use crate::log;
use crate::pipeline::authority::statistics::Beside;
use crate::pipeline::respond;
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;
use wire::codes::rcode;
use wire::message::{HEADER_LENGTH, Header};
use wire::name::Name;
use zone::transfer::outgoing::{self, MESSAGE_LENGTH};
use zone::transfer::{AsRecord, Change, serial};

/// Messages that are made ahead of the client: a slow one makes us keep no more of its zone than these.
const AHEAD: usize = 2;

/// The messages of a transfer. When `None` comes behind the last, it is whole; an error breaks it off, and the client must
/// be told so by the connection's end.
pub type Messages = mpsc::Receiver<Result<Vec<u8>, String>>;

/// Begins a transfer; it ends when nobody takes its messages any more.
pub fn transfer(transfer: Box<Transfer>) -> Messages {
    let (sender, messages) = mpsc::channel(AHEAD);
    tokio::spawn(transfer.send(sender));
    messages
}

/// One message and no more.
pub fn alone(message: Vec<u8>) -> Messages {
    let (sender, messages) = mpsc::channel(1);
    // There is room for one.
    let _ = sender.try_send(Ok(message));
    messages
}

type Sink = mpsc::Sender<Result<Vec<u8>, String>>;

impl Transfer {
    async fn send(mut self: Box<Self>, sink: Sink) {
        let zone = Arc::clone(&self.zone);
        let soa = zone.soa_record();
        let current = zone.soa().serial;
        let (head, client) = (std::mem::take(&mut self.head), self.client);
        let apex = shown(&zone);
        let counting = Counting::of(&self, apex.as_name());
        let mut closing = Closing {
            session: self.session.take(),
            opt: self.opt,
        };
        // RFC 1995 §2: "If an IXFR query with the same or newer version number than that of the server is received, it is
        // replied to with a single SOA record of the server's current version".
        let is_newer = |known: &u32| serial::is_newer(current, *known);
        let known = self.known;
        let changes = match known {
            Some(known) if !is_newer(&known) => Some(Vec::new()),
            Some(_) => spawn_blocking(move || self.changes()).await.ok().flatten(),
            None => None,
        };
        let has_newest = changes.as_ref().is_some_and(Vec::is_empty);
        let (what, sent) = match changes {
            Some(changes) => {
                let records = outgoing::ixfr(&soa, &changes);
                let sent = pass(records, &head, &mut closing, &sink).await;
                ("IXFR", sent)
            }
            // RFC 1995 §4: where the changes are not known, "the server should reply with an AXFR style response".
            None => {
                let records = outgoing::axfr(&soa, zone.records().skip(1));
                let sent = pass(records, &head, &mut closing, &sink).await;
                ("AXFR", sent)
            }
        };
        let (octets, end) = sent;
        counting.count(octets);
        match end {
            // Some ask so whenever REFRESH is over, every zone: nothing has gone anywhere.
            Ok(()) if has_newest => log::verbose!(
                "zone {apex}: {client} asked for changes, and was told that serial {current} is the newest"
            ),
            Ok(()) => log::info!(
                "zone {apex}: serial {current} went by {what} to {client}, {octets} octets"
            ),
            Err(reason) => log::warn!("zone {apex}: {what} to {client} was broken off: {reason}"),
        }
    }

    /// The changes from what the client knows to this version, where the journal has them and they are less than the zone.
    fn changes(&self) -> Option<Vec<Change>> {
        let octets = self.settings.journal_octets;
        let store = Store::new(&self.state, &self.live.apex, octets);
        let changes = store.changes(self.known?, self.zone.soa().serial)?;
        let count: usize = changes.iter().map(|change| change.records().count()).sum();
        (count as u64 <= self.zone.records_count()).then_some(changes)
    }

    /// The one message that answers over UDP: the changes where they fit, else the SOA record alone, which says: come by
    /// TCP (RFC 1995 §2).
    pub(super) fn datagram(mut self, limit: usize) -> Vec<u8> {
        let soa = self.zone.soa_record();
        let current = self.zone.soa().serial;
        let is_behind = self
            .known
            .is_some_and(|known| serial::is_newer(current, known));
        let changes = if is_behind { self.changes() } else { None };
        let apex = shown(&self.zone);
        let counting = Counting::of(&self, apex.as_name());
        let mut closing = Closing {
            session: self.session.take(),
            opt: self.opt,
        };
        let reserved = closing.length();
        let pack = |changes: &[Change]| {
            let records = outgoing::ixfr(&soa, changes);
            let mut messages = outgoing::Messages::new(records, &self.head, limit, reserved);
            let (mut message, mut more) = (Vec::new(), Vec::new());
            let is_whole = messages.next_message(&mut message) == Ok(true)
                && messages.next_message(&mut more) == Ok(false)
                && message.len() + reserved <= limit;
            is_whole.then_some(message)
        };
        let message = changes.and_then(|changes| pack(&changes));
        let message = message.or_else(|| pack(&[]));
        let mut message = message.unwrap_or_else(|| truncated(&self.head));
        closing.close(&mut message);
        counting.count(message.len() as u64);
        message
    }
}

/// What answers over UDP where there is no room for the SOA record: come by TCP.
fn truncated(head: &[u8]) -> Vec<u8> {
    let asked = Header::read(head).unwrap_or_default();
    let mut header = Header::default();
    header.set_id(asked.id());
    header.set_qr(true);
    header.set_rd(asked.rd());
    header.set_tc(true);
    header.set_question_count(1);
    let mut message = head.to_vec();
    message[..HEADER_LENGTH].copy_from_slice(header.as_bytes());
    message
}

/// What is behind the records of every message.
struct Closing {
    session: Option<Session>,
    opt: Option<Opt>,
}

impl Closing {
    /// Octets of it.
    fn length(&self) -> usize {
        let signature = self.session.as_ref().map_or(0, Session::signature_length);
        signature + Opt::length(self.opt)
    }

    fn close(&mut self, message: &mut Vec<u8>) {
        if let Some(opt) = self.opt {
            opt.append(message, rcode::NOERROR, None);
        }
        if let Some(session) = &mut self.session {
            session.sign(message, clock::unix());
        }
    }
}

/// Counts a transfer when it has ended.
struct Counting {
    zone: Option<usize>,
    beside: Beside,
    config: Arc<Config>,
    shard: Arc<Shard>,
}

impl Counting {
    fn of(transfer: &Transfer, apex: Name<'_>) -> Counting {
        Counting {
            zone: transfer.config.local.zones().number_of(apex),
            beside: transfer.beside,
            config: Arc::clone(&transfer.config),
            shard: Arc::clone(&transfer.shard),
        }
    }

    fn count(self, octets: u64) {
        let beside = Beside {
            response_octets: octets,
            ..self.beside
        };
        let statistics = &self.config.authority.statistics;
        statistics.count_beside(self.zone, &beside, &self.shard);
        if octets > 0 {
            // The code of all messages is NOERROR.
            respond::count_from_zone(Header::default().as_bytes(), &self.shard);
        }
    }
}

/// Passes all messages on, which answer the query with this head; how many octets they have, and why they are not all there
/// are.
async fn pass<R: AsRecord>(
    records: impl Iterator<Item = R>,
    head: &[u8],
    closing: &mut Closing,
    sink: &Sink,
) -> (u64, Result<(), String>) {
    let reserved = closing.length();
    let mut messages = outgoing::Messages::new(records, head, MESSAGE_LENGTH, reserved);
    let mut octets = 0;
    loop {
        let mut message = Vec::with_capacity(MESSAGE_LENGTH);
        match messages.next_message(&mut message) {
            Ok(true) => {}
            Ok(false) => return (octets, Ok(())),
            Err(error) => {
                let reason = error.to_string();
                // Nobody takes it where the client is gone.
                let _ = sink.send(Err(reason.clone())).await;
                return (octets, Err(reason));
            }
        }
        closing.close(&mut message);
        octets += message.len() as u64;
        if sink.send(Ok(message)).await.is_err() {
            return (octets, Err("the client takes no more".to_owned()));
        }
    }
}
