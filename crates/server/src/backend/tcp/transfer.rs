//! Zone transfers passed through (RFC 5936, RFC 1995): one query, as many messages as the backend has.
//!
//! A transfer has a connection of its own, which ends with it. Each message is the client's as it is, but for the ID and
//! what answers EDNS of ours. The end is known by the SOA record that began it; whatever is no transfer (REFUSED, say) is
//! passed on and is the end. What is in the zone is between the backend and its client: where records are none that we would
//! take, the backend's end is the end.

use super::connection::{Counted, open, place};
use super::{Attempt, Failure, InFlight, count, count_failure, make_room};
use crate::backend::server::Server;
use crate::heap;
use crate::pipeline::drop::DropReason;
use crate::pipeline::extras::Marks;
use crate::pipeline::respond;
use crate::runtime::memory::Hold;
use crate::runtime::{Asked, Shared};
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout, timeout_at};
use wire::codes::qtype;
use wire::message::{Header, parse_response, question_matches};
use zone::transfer::incoming::{Bounds, Incoming, Progress, TransferError};
use zone::transfer::query::stated_serial;

/// Takes the messages of a transfer to its client.
pub trait Sink {
    /// Waits until the client has room for it; false: he is gone.
    fn take(&mut self, message: Vec<u8>, hold: Hold) -> impl Future<Output = bool> + Send;
}

/// Whether the answer to this query may be more than one message.
pub fn is_transfer(asked: &Asked) -> bool {
    matches!(asked.found.parts.qtype, qtype::AXFR | qtype::IXFR)
}

/// Passes the backend's messages to `sink`, one at a time, until the transfer is whole or the client is gone.
///
/// # Errors
/// Why it ended before; everything is counted.
pub async fn pass(
    shared: &Arc<Shared>,
    asked: &Asked,
    sink: &mut impl Sink,
) -> Result<(), Failure> {
    let server = &asked.server;
    let _in_flight = InFlight::enter(server);
    server.queries.count(shared.shard.lane);
    let passed = pass_all(shared, asked, sink).await;
    passed.map_err(|failure| count_failure(shared, server, failure))
}

async fn pass_all(
    shared: &Arc<Shared>,
    asked: &Asked,
    sink: &mut impl Sink,
) -> Result<(), Failure> {
    // What leads there takes no refusal.
    if heap::is_short() {
        return Err(Failure::Dropped(DropReason::OutOfMemory));
    }
    let server = &asked.server;
    make_room(shared, server)?;
    let _transfer = server.tcp_pool.transfer();
    let unconnected = |broken| Attempt::Broken(broken).failure(server);
    let _place = place(shared, &server.options).await.map_err(unconnected)?;
    let mut stream = open(&server.options).await.map_err(unconnected)?;
    let _counted = Counted::new(server);
    let id = shared.random_u16();
    let begin = match server.options.proxy_protocol {
        true => asked.proxy_header().ok_or(Failure::Connection)?,
        false => Vec::new(),
    };
    send(&mut stream, server, begin, (id, &asked.query)).await?;
    let mut progress = Following::new(asked, id);
    let mut is_first = true;
    // The time is for a message of the transfer: what is none buys no more of it.
    let mut due = Instant::now() + server.options.tcp_receive_timeout;
    loop {
        let received = timeout_at(due, receive(&mut stream, shared)).await;
        let (mut message, hold) = match received.unwrap_or(Err(Failure::Timeout)) {
            Ok(received) => received,
            // Only the client knows whether it has all.
            Err(Failure::Connection | Failure::Timeout) if progress.is_lost => return Ok(()),
            Err(failure) => return Err(not_received(failure, server)),
        };
        if let Err(reason) = progress.check(&message, asked) {
            // Junk ends nothing (I7).
            server.count_junk(reason, shared.shard.lane);
            shared.shard.count_drop(reason);
            continue;
        }
        let is_last = progress.is_last(&message);
        let code = super::code_of(&message);
        server.responses.count(shared.shard.lane);
        server.note_answer(code);
        if is_first {
            respond::count_transfer(code, &shared.shard);
        }
        message[..2].copy_from_slice(&asked.query[..2]);
        if !asked.config.chains.xfr.is_empty() || asked.found.marks != Marks::default() {
            let judged = shared.transferred(asked, server, &mut message);
            judged.map_err(Failure::Dropped)?;
        }
        if is_first {
            shared.count_transfer_passed(asked, &message);
        }
        is_first = false;
        if !sink.take(message, hold).await || is_last {
            return Ok(());
        }
        due = Instant::now() + server.options.tcp_receive_timeout;
    }
}

/// Counts why a message did not come, where that is the server's.
fn not_received(failure: Failure, server: &Server) -> Failure {
    match failure {
        Failure::Connection => count(&server.tcp.died_reading_response),
        Failure::Timeout => count(&server.tcp.read_timeouts),
        Failure::Dropped(_) => {}
    }
    failure
}

async fn send(
    stream: &mut TcpStream,
    server: &Server,
    begin: Vec<u8>,
    (id, query): (u16, &[u8]),
) -> Result<(), Failure> {
    let mut bytes = begin;
    bytes.extend_from_slice(&(query.len() as u16).to_be_bytes());
    bytes.extend_from_slice(&id.to_be_bytes());
    bytes.extend_from_slice(&query[2..]);
    let sending = timeout(server.options.tcp_send_timeout, stream.write_all(&bytes));
    match sending.await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(_)) => {
            count(&server.tcp.died_sending_query);
            Err(Failure::Connection)
        }
        Err(_) => {
            count(&server.tcp.write_timeouts);
            Err(Failure::Connection)
        }
    }
}

async fn receive(stream: &mut TcpStream, shared: &Shared) -> Result<(Vec<u8>, Hold), Failure> {
    let length = stream.read_u16().await.map_err(|_| Failure::Connection)?;
    let mut hold = shared.memory.hold();
    hold.set(length.into())
        .map_err(|_| Failure::Dropped(DropReason::TcpMemoryFull))?;
    let message = heap::zeroed(length.into());
    let mut message = message.ok_or(Failure::Dropped(DropReason::OutOfMemory))?;
    let read = stream.read_exact(&mut message).await;
    read.map_err(|_| Failure::Connection)?;
    Ok((message, hold))
}

/// How far a transfer is.
struct Following {
    id: u16,
    incoming: Incoming,
    /// There was a record that we would not take: what follows is not looked at, and has no end that we know.
    is_lost: bool,
}

impl Following {
    fn new(asked: &Asked, id: u16) -> Following {
        let parts = &asked.found.parts;
        let name = parts.qname(&asked.query);
        let bounds = Bounds::default();
        let held = stated_serial(&asked.query, parts);
        let incoming = match held.filter(|_| parts.qtype == qtype::IXFR) {
            Some(held) => Incoming::ixfr(name, id, held, bounds),
            None => Incoming::axfr(name, id, bounds),
        };
        Following {
            id,
            incoming,
            is_lost: false,
        }
    }

    /// Whether a message belongs to the transfer. RFC 5936 section 2.2.1: the question is copied in the first message, and
    /// "MAY be empty" in the others.
    fn check(&self, message: &[u8], asked: &Asked) -> Result<(), DropReason> {
        let header = Header::read(message).ok_or(DropReason::ResponseMalformed)?;
        if header.id() != self.id {
            return Err(DropReason::ResponseUnexpected);
        }
        let parts = parse_response(message).map_err(|_| DropReason::ResponseMalformed)?;
        match parts.question {
            Some(_) if !question_matches(message, asked.question()) => {
                Err(DropReason::ResponseMismatch)
            }
            Some(_) | None => Ok(()),
        }
    }

    fn is_last(&mut self, message: &[u8]) -> bool {
        if self.is_lost {
            return false;
        }
        match self.incoming.message(message, |_| {}) {
            Ok(progress) => progress != Progress::More,
            Err(TransferError::Record(_)) => {
                self.is_lost = true;
                false
            }
            Err(_) => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::tcp::tests::scene_for;
    use crate::counters::Counter;
    use crate::pipeline::rules::actions::response::{
        DropResponseAction, SetReducedTTLResponseAction,
    };
    use crate::pipeline::rules::response::ResponseRule;
    use crate::pipeline::rules::selectors::logic::AllRule;
    use crate::pipeline::rules::selectors::message::{CountedSection, RecordsCountRule};
    use crate::runtime::fixture::{backend, read, response, write};
    use std::net::SocketAddr;
    use wire::name::NameBuf;

    struct Gathered(Vec<Vec<u8>>);

    impl Sink for Gathered {
        async fn take(&mut self, message: Vec<u8>, _: Hold) -> bool {
            self.0.push(message);
            true
        }
    }

    /// A message of a transfer of `example.`: the records that are named.
    fn message(query: &[u8], records: &[&str], with_question: bool) -> Vec<u8> {
        let mut message = match with_question {
            true => response(query, 0),
            false => {
                let mut header = query[..12].to_vec();
                header[2] |= 0x80;
                header[4..12].fill(0);
                header
            }
        };
        message[7] = records.len() as u8;
        for record in records {
            let owner: &[u8] = match *record {
                "OUT" => b"\x05other\x00",
                _ => b"\x07example\x00",
            };
            message.extend_from_slice(owner);
            let (kind, data): (u8, Vec<u8>) = match *record {
                "SOA" => {
                    let names = b"\x02ns\x00\x02ns\x00".to_vec();
                    (6, [names, vec![0; 20]].concat())
                }
                _ => (1, vec![192, 0, 2, 1]),
            };
            let class = if *record == "OUT" { 3 } else { 1 };
            message.extend_from_slice(&[0, kind, 0, class, 0, 0, 0, 60, 0, data.len() as u8]);
            message.extend_from_slice(&data);
        }
        message
    }

    type Script = &'static [(&'static [&'static str], bool)];

    async fn transfer(messages: Script) -> (Vec<usize>, bool) {
        transfer_by(messages, Vec::new()).await
    }

    async fn transfer_by(messages: Script, rules: Vec<ResponseRule>) -> (Vec<usize>, bool) {
        let address = backend(move |mut stream| async move {
            let query = read(&mut stream).await.unwrap();
            for (records, with_question) in messages {
                write(&mut stream, &message(&query, records, *with_question)).await;
            }
            // It stays open: the end must be known by what was sent.
            let _ = read(&mut stream).await;
        });
        passed_by(address.await, rules).await
    }

    /// The manual's relation of queries and responses.
    #[tokio::test]
    async fn a_transfer_is_one_response() {
        let address = backend(move |mut stream| async move {
            let query = read(&mut stream).await.unwrap();
            for records in [&["SOA", "A"][..], &["A", "SOA"]] {
                write(&mut stream, &message(&query, records, true)).await;
            }
            let _ = read(&mut stream).await;
        });
        let (shared, asked) = scene_for(address.await, "example.", qtype::AXFR);
        let mut gathered = Gathered(Vec::new());
        assert!(pass(&shared, &asked, &mut gathered).await.is_ok());
        assert_eq!(gathered.0.len(), 2);
        for counter in [
            Counter::Responses,
            Counter::FrontendNoerror,
            Counter::LatencyCount,
            Counter::LatencyTcpCount,
        ] {
            assert_eq!(shared.shard.get(counter), 1, "{counter:?}");
        }
        assert_eq!(shared.shard.get(Counter::ServfailResponses), 0);
    }

    async fn passed_by(address: SocketAddr, rules: Vec<ResponseRule>) -> (Vec<usize>, bool) {
        let name: NameBuf = "example.".parse().unwrap();
        let (shared, mut asked) = scene_for(address, &name.to_string(), qtype::AXFR);
        Arc::make_mut(&mut asked.config).chains.xfr = rules;
        let mut gathered = Gathered(Vec::new());
        let passed = pass(&shared, &asked, &mut gathered).await;
        assert_eq!(asked.server.outstanding.get(), 0);
        for message in &gathered.0 {
            assert_eq!(message[..2], asked.query[..2], "the client's ID");
        }
        let counts = gathered.0.iter().map(|message| message[7].into());
        (counts.collect(), passed.is_ok())
    }

    #[tokio::test]
    async fn all_messages_are_passed_and_the_last_one_is_known() {
        let whole = transfer(&[
            (&["SOA", "A"], true),
            (&["A", "A", "A"], false),
            (&["A", "SOA"], false),
        ]);
        assert_eq!(whole.await, (vec![2, 3, 2], true));
    }

    #[tokio::test]
    async fn rules_see_each_message_and_may_end_the_transfer() {
        let script: Script = &[
            (&["SOA", "A"], true),
            (&["A", "A", "A"], false),
            (&["A", "SOA"], false),
        ];
        let three = || RecordsCountRule {
            section: CountedSection::from_number(1).unwrap(),
            minimum: 3,
            maximum: 3,
        };
        let count = ResponseRule::new(AllRule, SetReducedTTLResponseAction { percentage: 50 });
        let matches = Arc::clone(&count.matches);
        assert_eq!(
            transfer_by(script, vec![count]).await,
            (vec![2, 3, 2], true)
        );
        assert_eq!(matches.sum(), 3);
        let ends = ResponseRule::new(three(), DropResponseAction);
        assert_eq!(transfer_by(script, vec![ends]).await, (vec![2], false));
    }

    /// Of another class, where a secondary of ours would end it.
    #[tokio::test]
    async fn records_that_we_would_not_take_are_passed_until_the_backend_closes() {
        let script: Script = &[
            (&["SOA", "OUT"], true),
            (&["A", "A", "A"], false),
            (&["SOA"], false),
        ];
        let address = backend(move |mut stream| async move {
            let query = read(&mut stream).await.unwrap();
            for (records, with_question) in script {
                write(&mut stream, &message(&query, records, *with_question)).await;
            }
        });
        let passed = passed_by(address.await, Vec::new()).await;
        assert_eq!(passed, (vec![2, 3, 1], true));
    }

    #[tokio::test]
    async fn what_is_no_transfer_is_passed_and_is_the_end() {
        assert_eq!(transfer(&[(&[], true)]).await, (vec![0], true));
    }
}
