//! What workers hand over to the asynchronous runtime: queries that a frame cannot wait for, answers that outgrow theirs.
//!
//! ```text
//!  worker ─ copy ─▶ bounded queue ─▶ runtime: asks the backend over TCP ─▶ the listener's kernel socket ─▶ client
//!                   full: dropped, counted
//! ```

use crate::backend::tcp as backend;
use crate::clock::Now;
use crate::config::Config;
use crate::counters::Shard;
use crate::heap;
use crate::holder::Ticket;
use crate::local::answer::{self, Reply};
use crate::pipeline::carried::Carried;
use crate::pipeline::drop::DropReason;
use crate::pipeline::query::{Arrival, Found, OwnedQuery, Protocol, octets};
use crate::pipeline::suspended::{self, Suspended};
use crate::pipeline::{HandOver, HandOverReason};
use crate::runtime::{Asked, Decision, Shared};
use crate::stop::Stop;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::{JoinSet, spawn_blocking};

/// Queries and answers that may wait in the queue. It is emptied in microseconds unless the backends are slow; a second's
/// worth of 1,000 queries a second is then enough, and with messages of 4,096 bytes at most they take 4 MiB.
const QUEUE: usize = 1_024;

/// Queries that may be with backends at a time: as many as may have a connection.
const IN_FLIGHT: usize = 1_024;

/// The same with those that wait for a place among them; what comes beyond is dropped. They wait beside the queue, so that a
/// backend that hangs holds up none but its own clients.
const BEGUN: usize = IN_FLIGHT + QUEUE;

/// Answers that may wait for their time (DelayAction): with answers of 1,232 bytes 80 MB.
const DELAYED: usize = 65_536;

/// The longest payload of a UDP datagram over IPv4, in bytes; over IPv6 it is 20 longer, which nobody needs.
const DATAGRAM_MAX: usize = 65_507;

/// Sends answers to clients that came over UDP, and has their queries go on.
pub trait SendAnswer: Send + Sync {
    /// Sends `message` by the kernel socket of the listener that serves `destination`, from that address, to `client`.
    ///
    /// # Errors
    /// What the kernel says; the answer is lost.
    fn send(&self, destination: SocketAddr, client: SocketAddr, message: &[u8]) -> io::Result<()>;

    /// Has a worker take on what was suspended.
    fn go_on(&self, suspended: Box<Suspended>);
}

/// The workers' end.
#[derive(Clone)]
pub struct Sender(mpsc::Sender<Handed>);

/// The runtime's end.
pub struct Receiver(mpsc::Receiver<Handed>);

enum Handed {
    Query(Box<Asked>),
    Roomless(Box<Roomless>),
    Zone(Box<answer::Asked>),
    Answer(Parcel),
    Suspended(Ticket),
}

/// An answer for the listener's kernel socket.
struct Parcel {
    destination: SocketAddr,
    client: SocketAddr,
    message: Vec<u8>,
    /// How long it waits.
    delay: Duration,
}

/// A query whose answer in the cache its buffer had no room for, in one that has.
struct Roomless {
    config: Arc<Config>,
    query: OwnedQuery,
    found: Found,
    extras: Carried,
}

impl Roomless {
    /// `None`: there is no memory.
    fn copy(
        hand_over: &HandOver<'_>,
        arrival: &Arrival<'_>,
        config: &Arc<Config>,
    ) -> Option<Roomless> {
        let found = hand_over.found;
        let bytes = arrival.bytes(found.length.into());
        let ends = (*arrival.client, *arrival.destination);
        let door = (arrival.protocol, *arrival.way);
        Some(Roomless {
            config: Arc::clone(config),
            query: OwnedQuery::copy(bytes, found.limit.into(), ends, door)?,
            found,
            extras: hand_over.extras.clone(),
        })
    }
}

/// The queue between them.
pub fn queue() -> (Sender, Receiver) {
    let (sender, receiver) = mpsc::channel(QUEUE);
    (Sender(sender), Receiver(receiver))
}

impl Sender {
    /// Copies the query out of its buffer, with the configuration that it was judged by.
    ///
    /// # Errors
    /// The queue is full, or there is no memory: the query is dropped.
    pub fn push(
        &self,
        hand_over: &HandOver<'_>,
        arrival: &Arrival<'_>,
        config: &Arc<Config>,
    ) -> Result<(), DropReason> {
        let place = self.place()?;
        let handed = copied(hand_over, arrival, config).ok_or(DropReason::OutOfMemory)?;
        place.send(handed);
        Ok(())
    }

    /// A place in the queue, and memory for what takes no refusal: the boxes, and the queue itself.
    fn place(&self) -> Result<mpsc::Permit<'_, Handed>, DropReason> {
        let place = self.0.try_reserve();
        let place = place.map_err(|_| DropReason::HandOverFull)?;
        match heap::is_short() {
            true => Err(DropReason::OutOfMemory),
            false => Ok(place),
        }
    }

    /// Copies an answer that waits before it is sent; counted.
    ///
    /// # Errors
    /// The queue is full, or there is no memory: the answer is dropped.
    pub fn push_answer(
        &self,
        (destination, client): (SocketAddr, SocketAddr),
        message: &[u8],
        delay: Duration,
        shard: &Shard,
    ) -> Result<(), DropReason> {
        let place = self.place()?;
        let message = heap::copy(message).ok_or(DropReason::OutOfMemory)?;
        shard.count_hand_over(HandOverReason::Delayed);
        place.send(Handed::Answer(Parcel {
            destination,
            client,
            message,
            delay,
        }));
        Ok(())
    }

    /// Has somebody wait for what becomes of a response that a function has suspended.
    ///
    /// # Errors
    /// The queue is full, or there is no memory: the response is dropped.
    pub fn push_suspended(&self, ticket: Ticket) -> Result<(), DropReason> {
        self.place()?.send(Handed::Suspended(ticket));
        Ok(())
    }
}

/// What goes into the queue. `None`: there is no memory.
fn copied(hand_over: &HandOver<'_>, arrival: &Arrival<'_>, config: &Arc<Config>) -> Option<Handed> {
    if hand_over.reason == HandOverReason::Delayed {
        return Some(Handed::Answer(Parcel {
            destination: *arrival.destination,
            client: *arrival.client,
            message: heap::copy(arrival.bytes(hand_over.found.length.into()))?,
            delay: hand_over.delay(),
        }));
    }
    if hand_over.reason == HandOverReason::Suspended {
        return suspended::ticket(&hand_over.extras).map(Handed::Suspended);
    }
    if hand_over.reason == HandOverReason::Zone {
        let found = without_frame(hand_over.found, arrival.protocol);
        let asked = answer::Asked::copy(hand_over, found, arrival, config)?;
        return Some(Handed::Zone(Box::new(asked)));
    }
    let Some(server) = hand_over.server else {
        let roomless = Roomless::copy(hand_over, arrival, config)?;
        return Some(Handed::Roomless(Box::new(roomless)));
    };
    Some(Handed::Query(Box::new(Asked {
        config: Arc::clone(config),
        server: Arc::clone(server),
        query: heap::copy(arrival.bytes(hand_over.found.length.into()))?.into_boxed_slice(),
        found: without_frame(hand_over.found, arrival.protocol),
        extras: hand_over.extras.clone(),
        client: *arrival.client,
        destination: *arrival.destination,
        way: *arrival.way,
        since: Now::read(),
    })))
}

/// The kernel socket that sends the answer fragments it: only what the client takes limits it now.
fn without_frame(found: Found, protocol: Protocol) -> Found {
    match protocol {
        Protocol::Udp => Found {
            limit: found.parts.payload_size().min(octets(DATAGRAM_MAX)),
            ..found
        },
        Protocol::Tcp => found,
    }
}

impl Receiver {
    /// Takes what workers hand over until the stop is asked for, and finishes what has come until then. Workers should
    /// have stopped before.
    pub async fn serve(mut self, shared: Arc<Shared>, outlet: Arc<dyn SendAnswer>, mut stop: Stop) {
        let (zones, backends) = (Places::new(), Places::new());
        let mut asking = JoinSet::new();
        let late = Late::new(&shared, &outlet, &stop);
        loop {
            while asking.try_join_next().is_some() {}
            let handed = tokio::select! {
                biased;
                handed = self.0.recv() => handed,
                () = stop.requested() => None,
            };
            match handed {
                None => break,
                Some(Handed::Answer(parcel)) => late.send(parcel, &mut asking),
                Some(Handed::Roomless(roomless)) => {
                    answer_from_cache(*roomless, &late, &mut asking);
                }
                // A task takes no refusal.
                Some(Handed::Zone(_) | Handed::Query(_) | Handed::Suspended(_))
                    if heap::is_short() =>
                {
                    shared.shard.count_drop(DropReason::OutOfMemory);
                }
                Some(Handed::Zone(asked)) => {
                    let answering = answer_from_zone(asked, late.clone());
                    zones.begin(answering, &shared.shard, &mut asking);
                }
                Some(Handed::Suspended(ticket)) => late.await_outcome(ticket, &mut asking),
                Some(Handed::Query(asked)) => {
                    let answering = answer(asked, late.clone());
                    backends.begin(answering, &shared.shard, &mut asking);
                }
            }
        }
        while asking.join_next().await.is_some() {}
    }
}

/// Places for answers that take a while.
struct Places {
    in_flight: Arc<Semaphore>,
    begun: Arc<Semaphore>,
}

impl Places {
    fn new() -> Places {
        Places {
            in_flight: Arc::new(Semaphore::new(IN_FLIGHT)),
            begun: Arc::new(Semaphore::new(BEGUN)),
        }
    }

    /// Does it on a task of its own, as soon as there is a place. Where too many wait for one it is dropped, counted.
    fn begin(
        &self,
        answering: impl Future<Output = ()> + Send + 'static,
        shard: &Shard,
        tasks: &mut JoinSet<()>,
    ) {
        let Ok(begun) = Arc::clone(&self.begun).try_acquire_owned() else {
            return shard.count_drop(DropReason::HandOverFull);
        };
        let in_flight = Arc::clone(&self.in_flight);
        tasks.spawn(async move {
            // The semaphore is never closed.
            let place = in_flight.acquire_owned().await;
            answering.await;
            drop((place, begun));
        });
    }
}

/// The answer of a zone of our own.
async fn answer_from_zone(asked: Box<answer::Asked>, late: Late) {
    // A journal may have to be read.
    let answering = spawn_blocking(move || {
        if let Some(Reply::Message(message)) = asked.reply(&late.shared) {
            late.send_now(&Parcel {
                destination: asked.destination,
                client: asked.client,
                message,
                delay: Duration::ZERO,
            });
        }
    });
    // A fault of ours ends this answer alone.
    let _ = answering.await;
}

/// The answer to a query whose frame had no room for it.
fn answer_from_cache(roomless: Roomless, late: &Late, tasks: &mut JoinSet<()>) {
    let Roomless {
        config,
        mut query,
        found,
        extras,
    } = roomless;
    let (length, delay) = match late.shared.resume(&config, &mut query, &found, extras) {
        Decision::Answer(length, delay) => (length, delay),
        Decision::Suspended(ticket) => return late.await_outcome(ticket, tasks),
        _ => return,
    };
    let Some(message) = heap::copy(query.bytes(length)) else {
        return late.shared.shard.count_drop(DropReason::OutOfMemory);
    };
    let parcel = Parcel {
        destination: query.destination,
        client: query.client,
        message,
        delay,
    };
    late.send(parcel, tasks);
}

/// Asks the backend and sends the answer; without one the client hears nothing, as over UDP.
async fn answer(asked: Box<Asked>, late: Late) {
    let mut hold = late.shared.memory.hold();
    if let Ok(answer) = backend::ask(&late.shared, &asked, &mut hold).await {
        let parcel = Parcel {
            destination: asked.destination,
            client: asked.client,
            message: answer.message,
            delay: answer.delay,
        };
        if parcel.delay.is_zero() {
            late.send_now(&parcel);
        } else if let Some(place) = late.place() {
            late.send_in_time(parcel, place).await;
        }
    }
}

/// Sends answers when their time has come, or when we stop.
#[derive(Clone)]
struct Late {
    shared: Arc<Shared>,
    outlet: Arc<dyn SendAnswer>,
    places: Arc<Semaphore>,
    stop: Stop,
}

impl Late {
    fn new(shared: &Arc<Shared>, outlet: &Arc<dyn SendAnswer>, stop: &Stop) -> Late {
        Late {
            shared: Arc::clone(shared),
            outlet: Arc::clone(outlet),
            places: Arc::new(Semaphore::new(DELAYED)),
            stop: stop.clone(),
        }
    }

    fn send(&self, parcel: Parcel, tasks: &mut JoinSet<()>) {
        if parcel.delay.is_zero() {
            return self.send_now(&parcel);
        }
        if heap::is_short() {
            return self.shared.shard.count_drop(DropReason::OutOfMemory);
        }
        if let Some(place) = self.place() {
            let late = self.clone();
            tasks.spawn(async move { late.send_in_time(parcel, place).await });
        }
    }

    /// Waits for what becomes of something suspended, on a task of its own; the holder bounds how many there are. When we stop it
    /// goes on at once.
    fn await_outcome(&self, ticket: Ticket, tasks: &mut JoinSet<()>) {
        let late = self.clone();
        tasks.spawn(async move {
            let mut stop = late.stop.clone();
            let outcome = tokio::select! {
                outcome = ticket.outcome() => outcome,
                () = stop.requested() => ticket.take(),
            };
            match outcome {
                Some(suspended) => late.outlet.go_on(suspended),
                None => late.shared.shard.count_drop(DropReason::SuspendedDropped),
            }
        });
    }

    /// Room for one that waits; what finds none is dropped.
    fn place(&self) -> Option<OwnedSemaphorePermit> {
        let place = Arc::clone(&self.places).try_acquire_owned().ok();
        if place.is_none() {
            self.shared.shard.count_drop(DropReason::HandOverFull);
        }
        place
    }

    async fn send_in_time(&self, parcel: Parcel, _place: OwnedSemaphorePermit) {
        let mut stop = self.stop.clone();
        tokio::select! {
            () = tokio::time::sleep(parcel.delay) => {}
            () = stop.requested() => {}
        }
        self.send_now(&parcel);
    }

    fn send_now(&self, parcel: &Parcel) {
        let ends = (parcel.destination, parcel.client);
        send(&self.shared, &*self.outlet, ends, &parcel.message);
    }
}

fn send(
    shared: &Shared,
    outlet: &dyn SendAnswer,
    (destination, client): (SocketAddr, SocketAddr),
    message: &[u8],
) {
    match outlet.send(destination, client, message) {
        Ok(()) => shared.count_sent(destination),
        Err(_) => shared.shard.count_drop(DropReason::SendFailed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::server::ServerOptions;
    use crate::holder::Holder;
    use crate::holder::tests::{TIMEOUT, suspend};
    use crate::pipeline::proxy::InFront;
    use crate::pipeline::query::Way;
    use crate::pipeline::scene::{Scene, query_with_edns};
    use crate::runtime::fixture::{PATIENCE, answering, config, server, shared, until};
    use crate::stop::Stopper;
    use wire::codes::qtype;

    const CLIENT: &str = "192.0.2.9:4242";
    const DESTINATION: &str = "192.0.2.1:53";

    /// Remembers what was sent.
    struct Outlet(mpsc::UnboundedSender<(SocketAddr, SocketAddr, Vec<u8>)>);

    impl SendAnswer for Outlet {
        fn send(
            &self,
            destination: SocketAddr,
            client: SocketAddr,
            message: &[u8],
        ) -> io::Result<()> {
            if client.port() == 0 {
                return Err(io::ErrorKind::InvalidInput.into());
            }
            self.0
                .send((destination, client, message.to_vec()))
                .unwrap();
            Ok(())
        }

        fn go_on(&self, suspended: Box<Suspended>) {
            let (client, destination) = suspended.ends;
            self.0
                .send((destination, client, suspended.message))
                .unwrap();
        }
    }

    /// Hands a UDP query over that is to be asked from a `tcpOnly` server.
    fn push(sender: &Sender, shared: &Shared, payload_size: Option<u16>) -> Result<(), DropReason> {
        let mut message = query_with_edns("www.example.", qtype::A, payload_size);
        let length = message.len();
        let found = Scene::default().parse(&message, |query| query.found());
        let config = shared.config();
        let hand_over = HandOver {
            reason: HandOverReason::TcpOnlyBackend,
            server: Some(&config.servers[0]),
            found,
            extras: Carried::NOTHING,
        };
        let arrival = Arrival {
            room: length,
            message: &mut message,
            length,
            client: &CLIENT.parse().unwrap(),
            destination: &DESTINATION.parse().unwrap(),
            protocol: Protocol::Udp,
            way: &Way::Socket { listener: 0 },
            listener: 0,
            outgrown: &mut Vec::new(),
            in_front: InFront::Nothing,
        };
        sender.push(&hand_over, &arrival, &config)
    }

    async fn tcp_only(size: usize) -> Arc<Shared> {
        let options = ServerOptions {
            tcp_only: true,
            ..server(answering(size).await)
        };
        shared(config(vec![options]))
    }

    #[tokio::test]
    async fn a_query_handed_over_is_answered_from_where_it_was_asked() {
        let shared = tcp_only(4_000).await;
        let (sender, receiver) = queue();
        let (sent, mut seen) = mpsc::unbounded_channel();
        let stopper = Stopper::default();
        let outlet = Arc::new(Outlet(sent));
        assert_eq!(push(&sender, &shared, Some(4_096)), Ok(()));
        assert_eq!(push(&sender, &shared, Some(1_232)), Ok(()));
        let serving = receiver.serve(Arc::clone(&shared), outlet, stopper.watch());
        let serving = tokio::spawn(serving);
        let mut lengths = Vec::new();
        for _ in 0..2 {
            let (destination, client, message) = seen.recv().await.unwrap();
            assert_eq!(destination.to_string(), DESTINATION);
            assert_eq!(client.to_string(), CLIENT);
            assert_eq!(message[..2], [0x12, 0x34]);
            lengths.push((message.len(), message[2] & 2 == 2));
        }
        lengths.sort_unstable();
        let question = 12 + 13 + 4;
        assert_eq!(
            lengths,
            [(question, true), (4_000, false)],
            "TC where it does not fit"
        );
        stopper.stop();
        serving.await.unwrap();
    }

    #[tokio::test]
    async fn an_answer_that_waits_is_sent_when_we_stop() {
        let shared = shared(config(Vec::new()));
        let (sender, receiver) = queue();
        let (sent, mut seen) = mpsc::unbounded_channel();
        let stopper = Stopper::default();
        let destination = DESTINATION.parse().unwrap();
        for client in ["192.0.2.9:0", CLIENT] {
            let addresses = (destination, client.parse().unwrap());
            let delay = Duration::from_secs(3_600);
            let pushed = sender.push_answer(addresses, &[7; 3_000], delay, &shared.shard);
            assert_eq!(pushed, Ok(()));
        }
        stopper.stop();
        // What came before the stop is finished, however long it was to wait.
        receiver
            .serve(Arc::clone(&shared), Arc::new(Outlet(sent)), stopper.watch())
            .await;
        assert_eq!(seen.recv().await.unwrap().2, [7; 3_000]);
        assert_eq!(shared.shard.hand_overs(HandOverReason::Delayed), 2);
        assert_eq!(shared.shard.drops(DropReason::SendFailed), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_suspended_goes_on_when_its_time_is_over_or_we_stop() {
        let shared = shared(config(Vec::new()));
        let (sender, receiver) = queue();
        let (sent, mut seen) = mpsc::unbounded_channel();
        let (stopper, holder) = (Stopper::default(), Arc::<Holder>::default());
        let push = |id| {
            let ticket = suspend(&holder, (1, id)).unwrap();
            assert_eq!(sender.push_suspended(ticket), Ok(()));
        };
        push(1);
        push(2);
        assert!(holder.find((1, 2)).unwrap().discard());
        let outlet = Arc::new(Outlet(sent));
        let serving = receiver.serve(Arc::clone(&shared), outlet, stopper.watch());
        let serving = tokio::spawn(serving);
        let began = tokio::time::Instant::now();
        assert!(seen.recv().await.is_some());
        assert_eq!(began.elapsed(), TIMEOUT);
        assert_eq!(shared.shard.drops(DropReason::SuspendedDropped), 1);
        push(3);
        stopper.stop();
        serving.await.unwrap();
        assert!(seen.recv().await.is_some() && began.elapsed() == TIMEOUT);
        assert!(seen.recv().await.is_none() && holder.count() == 0);
    }

    /// A backend that hangs costs its own clients their answers, and nobody else.
    #[tokio::test]
    async fn what_waits_for_a_place_lets_others_pass() {
        let options = ServerOptions {
            tcp_only: true,
            tcp_connect_timeout: Duration::from_secs(3_600),
            ..server("127.0.0.1:9".parse().unwrap())
        };
        let shared = shared(config(vec![options]));
        // So nothing comes of any connection.
        let all = shared.backend_connections.available_permits() as u32;
        let _all = shared.backend_connections.acquire_many(all).await.unwrap();
        let (sender, receiver) = queue();
        let (sent, mut seen) = mpsc::unbounded_channel();
        let stopper = Stopper::default();
        let outlet = Arc::new(Outlet(sent));
        let serving = receiver.serve(Arc::clone(&shared), outlet, stopper.watch());
        let serving = tokio::spawn(serving);
        for _ in 0..=BEGUN {
            let pushed = || push(&sender, &shared, None).is_ok();
            until("there is room in the queue", pushed).await;
        }
        let addresses = (DESTINATION.parse().unwrap(), CLIENT.parse().unwrap());
        let delay = Duration::ZERO;
        let pushed = || sender.push_answer(addresses, &[7; 3_000], delay, &shared.shard);
        until("the others have left the queue", || pushed().is_ok()).await;
        let answer = tokio::time::timeout(PATIENCE, seen.recv()).await;
        assert_eq!(answer.expect("not held up").unwrap().2, [7; 3_000]);
        let drops = shared.shard.drops(DropReason::HandOverFull);
        assert_eq!(drops, 1, "one more than may wait");
        serving.abort();
    }

    #[tokio::test]
    async fn a_full_queue_takes_no_more() {
        let shared = tcp_only(0).await;
        let (sender, _receiver) = queue();
        for _ in 0..QUEUE {
            assert_eq!(push(&sender, &shared, None), Ok(()));
        }
        let full = Err(DropReason::HandOverFull);
        assert_eq!(push(&sender, &shared, None), full);
        let addresses = (DESTINATION.parse().unwrap(), CLIENT.parse().unwrap());
        let pushed = sender.push_answer(addresses, &[], Duration::ZERO, &shared.shard);
        assert_eq!(pushed, full);
    }
}
