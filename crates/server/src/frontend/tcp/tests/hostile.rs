//! Clients that want too much (F31): what they take is bounded, and the next one is served.

use super::*;
use crate::config::zones::ZoneSpecs;
use crate::local::Local;
use crate::pipeline::rules::actions::response::DropResponseAction;
use crate::pipeline::rules::response::ResponseRule;
use crate::pipeline::rules::selectors::logic::AllRule;
use tokio::io::{DuplexStream, ReadHalf, WriteHalf};

/// More connections than may be: those there are stay, the others are closed; when they have been idle for long, there is
/// room again.
#[tokio::test]
async fn a_thousand_idle_connections_leave_room_again() {
    let scene = start_tuned(|tuning| {
        tuning.maximum_connections = 400;
        tuning.overload_threshold = 0;
    })
    .await;
    let mut idle = Vec::new();
    for _ in 0..1_000 {
        idle.push(scene.connect().await);
    }
    let figures = || scene.counters.figures();
    until("600 of them find no place", || figures().refused >= 600).await;
    assert_eq!(scene.counters.figures().connections_maximum, 400);
    jump(PATIENCE).await;
    let silent = "the others are closed for their silence";
    until(silent, || figures().connections == 0).await;
    let mut client = scene.connect().await;
    write(&mut client, &asking("refused.example.", 7)).await;
    assert_eq!(read(&mut client).await.map(|answer| id(&answer)), Some(7));
    drop((idle, client));
    scene.stop().await;
}

/// Near the limit a connection is closed after one query, so that others come to their turn.
#[tokio::test]
async fn connections_are_short_where_there_are_many() {
    let scene = start_tuned(|tuning| tuning.maximum_connections = 10).await;
    let mut others = Vec::new();
    for _ in 0..8 {
        let mut other = scene.connect().await;
        write(&mut other, &asking("refused.example.", 1)).await;
        assert!(read(&mut other).await.is_some());
        others.push(other);
    }
    let mut crowded = scene.connect().await;
    for expected in [Some(1), None] {
        write(&mut crowded, &asking("refused.example.", 1)).await;
        let answer = read(&mut crowded).await;
        assert_eq!(answer.map(|answer| id(&answer)), expected);
    }
    write(&mut others[0], &asking("refused.example.", 2)).await;
    assert!(read(&mut others[0]).await.is_some(), "it was there before");
    drop((others, crowded));
    scene.stop().await;
}

/// All are answered; no more are worked on at a time than may be.
#[tokio::test]
async fn sixty_five_thousand_queries_in_one_go_are_answered() {
    const QUERIES: usize = 65_000;
    let scene = start().await;
    let (mut reader, mut writer) = scene.connect().await.into_split();
    let query = framed(&asking("refused.example.", 1));
    let writing = tokio::spawn(async move {
        writer.write_all(&query.repeat(QUERIES)).await.unwrap();
        writer
    });
    let mut held = 0;
    for _ in 0..QUERIES {
        let length = reader.read_u16().await.unwrap();
        reader
            .read_exact(&mut vec![0; length.into()])
            .await
            .unwrap();
        held = held.max(scene.frontend.shared.memory.used());
    }
    assert!(held < 1 << 20, "{held} bytes held");
    drop((reader, writing.await.unwrap()));
    scene.stop().await;
}

/// A zone's first record, but for its numbers, which are 20 bytes.
const SOA: &[u8] = b"\x07example\x00\x00\x06\x00\x01\x00\x00\x00\x3c\x00\x1c\x02ns\x00\x02ns\x00";

/// A backend that sends a zone without end.
async fn endless() -> ServerOptions {
    let address = backend(|mut stream| async move {
        let query = read(&mut stream).await.unwrap();
        let mut first = response(&query, 0);
        first[7] = 1;
        first.extend_from_slice(SOA);
        first.extend_from_slice(&[0; 20]);
        write(&mut stream, &first).await;
        let mut records = response(&query, 0);
        for _ in 0..2_000 {
            records.extend_from_slice(&[0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 192, 0, 2, 1]);
        }
        records[6..8].copy_from_slice(&2_000_u16.to_be_bytes());
        while stream.write_all(&framed(&records)).await.is_ok() {}
    });
    server(address.await)
}

fn transfer(id: u16) -> Vec<u8> {
    let mut message = query("example.", qtype::AXFR);
    message[..2].copy_from_slice(&id.to_be_bytes());
    message
}

/// Who does not read his zone holds a few messages, for as long as answers may take to be sent, and the backend waits.
#[tokio::test]
async fn a_transfer_that_nobody_reads_is_cut_off() {
    let mut config = config(vec![endless().await]);
    config.tuning.tcp.send_timeout = Duration::from_millis(500);
    let scene = start_with(config).await;
    let mut client = scene.connect().await;
    write(&mut client, &transfer(1)).await;
    let mut held = 0;
    until("it is cut off", || {
        held = held.max(scene.frontend.shared.memory.used());
        scene.counters.figures().died_sending_response > 0
    })
    .await;
    assert!(held < 400_000, "{held} bytes held for one slow reader");
    let mut other = scene.connect().await;
    write(&mut other, &asking("refused.example.", 2)).await;
    assert!(read(&mut other).await.is_some());
    drop((client, other));
    let shared = Arc::clone(&scene.frontend.shared);
    scene.stop().await;
    assert_eq!(shared.config().servers[0].outstanding.get(), 0);
}

/// setMaxTCPConnectionDuration is of transfers, too, though they could go on for ever.
#[tokio::test]
async fn a_transfer_ends_when_its_connection_has_lasted_long_enough() {
    let mut config = config(vec![ServerOptions {
        tcp_receive_timeout: 60 * MINUTE,
        ..endless().await
    }]);
    config.tuning.tcp.maximum_connection_duration = 5 * MINUTE;
    config.tuning.tcp.receive_timeout = 60 * MINUTE;
    config.tuning.tcp.send_timeout = 60 * MINUTE;
    let scene = start_with(config).await;
    let mut client = scene.connect().await;
    write(&mut client, &transfer(1)).await;
    assert!(read(&mut client).await.is_some());
    jump(6 * MINUTE).await;
    // What is in the buffers of two sockets still comes.
    let mut messages = 0;
    while messages < 5_000 && read(&mut client).await.is_some() {
        messages += 1;
    }
    assert!(messages < 5_000);
    let figures = scene.counters.figures();
    assert_eq!((figures.gave_up, figures.backend_timeouts), (0, 0));
    drop(client);
    scene.stop().await;
}

/// Nor does a query outlast its connection that has begun and does not end, whatever time there is for queries.
#[tokio::test]
async fn a_query_without_end_ends_when_its_connection_has_lasted_long_enough() {
    let scene = start_tuned(|tuning| {
        tuning.maximum_connection_duration = 5 * MINUTE;
        tuning.receive_timeout = Duration::ZERO;
    })
    .await;
    let mut client = scene.connect().await;
    client.write_all(&[0, 50, 1]).await.unwrap();
    let held = || scene.frontend.shared.memory.used();
    until("the query has begun", || held() > 0).await;
    jump(6 * MINUTE).await;
    let ended = tokio::time::timeout(PATIENCE, read(&mut client)).await;
    assert_eq!(ended, Ok(None));
    assert_eq!(scene.counters.client_timeouts.load(Relaxed), 0);
    drop(client);
    scene.stop().await;
}

/// A part of a zone is of no use: whoever waits for the rest is told, and not taken for a silent client.
#[tokio::test]
async fn a_transfer_that_a_rule_ends_closes_its_connection() {
    let mut config = config(vec![endless().await]);
    config.chains.xfr = vec![ResponseRule::new(AllRule, DropResponseAction)];
    let scene = start_with(config).await;
    let mut client = scene.connect().await;
    write(&mut client, &transfer(1)).await;
    assert_eq!(read(&mut client).await, None);
    assert_eq!(scene.drops(DropReason::ResponseRule), 1);
    assert_eq!(scene.counters.figures().client_timeouts, 0);
    drop(client);
    scene.stop().await;
}

/// A stream that holds little: who does not read is waited for at once.
struct Narrow(DuplexStream);

impl Stream for Narrow {
    type Reader = ReadHalf<DuplexStream>;
    type Writer = WriteHalf<DuplexStream>;

    fn halves(self) -> (Self::Reader, Self::Writer) {
        tokio::io::split(self.0)
    }
}

/// The next message's ID.
async fn next_id(client: &mut DuplexStream) -> Option<u16> {
    let length = client.read_u16().await.ok()?;
    let mut message = vec![0; length.into()];
    client.read_exact(&mut message).await.ok()?;
    Some(id(&message))
}

/// A backend with a zone of three records, in one message.
async fn small() -> ServerOptions {
    let address = backend(|mut stream| async move {
        let query = read(&mut stream).await.unwrap();
        let mut soa = SOA.to_vec();
        soa.resize(soa.len() + 20, 0);
        let mut zone = response(&query, 0);
        zone[7] = 3;
        zone.extend_from_slice(&soa);
        zone.extend_from_slice(&[0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 192, 0, 2, 1]);
        zone.extend_from_slice(&soa);
        write(&mut stream, &zone).await;
        let _ = read(&mut stream).await;
    });
    server(address.await)
}

/// The backend has sent all, and the client takes its time over it.
#[tokio::test]
async fn a_client_that_still_reads_a_transfer_may_be_silent() {
    let mut config = config(vec![small().await]);
    config.tuning.tcp.receive_timeout = 2 * MINUTE;
    config.tuning.tcp.send_timeout = 60 * MINUTE;
    let scene = start_with(config).await;
    let (mut client, stream) = tokio::io::duplex(64);
    let ends = Ends {
        client: "127.0.0.1:5353".parse().unwrap(),
        address: scene.address.into(),
    };
    let stop = scene.stopper.watch();
    let (frontend, counters) = (&scene.frontend, &scene.counters);
    begin(Narrow(stream), ends, frontend, counters, &stop);
    drop(stop);
    client.write_all(&framed(&transfer(1))).await.unwrap();
    let config = frontend.shared.config();
    let asked = &config.servers[0];
    let is_passed = || asked.responses.sum() == 1 && asked.outstanding.get() == 0;
    until("all of it waits for its client", is_passed).await;
    // The second one is for a time that began with the first.
    jump(9 * MINUTE).await;
    jump(9 * MINUTE).await;
    assert_eq!(next_id(&mut client).await, Some(1));
    let query = framed(&asking("refused.example.", 2));
    client.write_all(&query).await.unwrap();
    assert_eq!(next_id(&mut client).await, Some(2));
    assert_eq!(counters.figures().client_timeouts, 0);
    drop(client);
    scene.stop().await;
}

/// A stream that shows a fault of ours.
struct Faulty;

impl Stream for Faulty {
    type Reader = tokio::io::Empty;
    type Writer = tokio::io::Sink;

    fn halves(self) -> (Self::Reader, Self::Writer) {
        panic!("as a fault of ours would")
    }
}

#[tokio::test]
async fn a_connection_that_a_fault_ends_is_no_longer_counted() {
    let scene = start().await;
    let ends = Ends {
        client: "127.0.0.1:5353".parse().unwrap(),
        address: scene.address.into(),
    };
    let stop = scene.stopper.watch();
    begin(Faulty, ends, &scene.frontend, &scene.counters, &stop);
    drop(stop);
    let figures = || scene.counters.figures();
    until("its task has ended", || figures().connections == 0).await;
    assert_eq!(figures().connections_maximum, 1);
    scene.stop().await;
}

/// A transfer, or a refusal of one, that there is no room for.
#[tokio::test]
async fn a_transfer_out_that_finds_no_room_is_counted() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("zone");
    let text = "@ 60 SOA ns host 5 60 60 60 60\n@ 60 NS ns\nns 60 A 192.0.2.1\n";
    std::fs::write(&file, text).unwrap();
    let specs = ZoneSpecs::of_file("example.", &file);
    let mut config = config(Vec::new());
    config.local = Arc::new(Local::load(&specs, &Local::default()).0);
    let mut tight = Shared::new(
        Arc::new(arc_swap::ArcSwap::from_pointee(config)),
        Arc::clone(&shared(Config::default()).shard),
    );
    tight.memory = Memory::new(10_000);
    let scene = start_sharing(Arc::new(tight)).await;
    let mut client = scene.connect().await;
    write(&mut client, &transfer(1)).await;
    assert_eq!(read(&mut client).await, None);
    assert_eq!(scene.drops(DropReason::TcpMemoryFull), 1);
    drop(client);
    scene.stop().await;
}

/// A slow reader who does read is served, message by message.
#[tokio::test]
async fn a_transfer_is_passed_as_fast_as_it_is_read() {
    let scene = start_with(config(vec![endless().await])).await;
    let mut client = scene.connect().await;
    write(&mut client, &transfer(9)).await;
    for number in 0..40 {
        let message = read(&mut client).await.unwrap();
        assert_eq!(id(&message), 9);
        let records = u16::from_be_bytes([message[6], message[7]]);
        assert_eq!(records, if number == 0 { 1 } else { 2_000 });
        if number % 10 == 0 {
            // tidy: how slowly it reads is what is tested
            sleep(Duration::from_millis(50)).await;
        }
    }
    drop(client);
    scene.stop().await;
}

/// One octet a second does not hold a query's place for longer than a query may take, however many do it.
#[tokio::test]
async fn slow_writers_are_closed_and_others_served_meanwhile() {
    let mut config = config(vec![server(answering(0).await)]);
    config.tuning.tcp.receive_timeout = 10 * MINUTE;
    let scene = start_with(config).await;
    let mut slow = Vec::new();
    for _ in 0..50 {
        let mut client = scene.connect().await;
        client.write_all(&[0]).await.unwrap();
        slow.push(client);
    }
    let figures = || scene.counters.figures();
    until("they are let in", || figures().connections == 50).await;
    jump(5 * MINUTE).await;
    let mut other = scene.connect().await;
    write(&mut other, &asking("www.example.", 7)).await;
    assert_eq!(read(&mut other).await.map(|answer| id(&answer)), Some(7));
    assert_eq!(figures().client_timeouts, 0);
    drop(other);
    // Their time is for the whole query, from its first octet on.
    jump(10 * MINUTE).await;
    for mut client in slow {
        assert_eq!(read(&mut client).await, None);
    }
    assert_eq!(figures().client_timeouts, 50, "setTCPRecvTimeout");
    scene.stop().await;
}

/// maxConcurrentTCPConnections of the scene's listener.
fn listen(scene: &Scene, maximum_tcp_connections: usize, tune: impl FnOnce(&mut TcpTuning)) {
    let mut config = config(Vec::new());
    tune(&mut config.tuning.tcp);
    let maximum = |listener: &mut crate::config::Listener| {
        listener.maximum_tcp_connections = maximum_tcp_connections
    };
    scene.listen(config, maximum);
}

/// The threshold holds for a listener's own limit too.
#[tokio::test]
async fn connections_are_short_where_a_listener_has_many() {
    let scene = start().await;
    listen(&scene, 2, |_| ());
    let mut first = scene.connect().await;
    for id in 1..=2 {
        write(&mut first, &asking("refused.example.", id)).await;
        assert!(read(&mut first).await.is_some());
    }
    let mut crowded = scene.connect().await;
    write(&mut crowded, &asking("refused.example.", 3)).await;
    assert!(read(&mut crowded).await.is_some());
    assert_eq!(read(&mut crowded).await, None);
    let timeouts = scene.counters.figures().client_timeouts;
    assert_eq!(timeouts, 0, "after one query, at once");
    drop((first, crowded));
    scene.stop().await;
}

/// Those of one listener, though all together may have fewer when nobody says how many.
#[tokio::test]
async fn a_listener_takes_as_many_connections_as_it_may() {
    let scene = start().await;
    listen(&scene, 2, |tuning| {
        tuning.maximum_connections = 1;
        tuning.overload_threshold = 0;
    });
    let mut clients = Vec::new();
    for expected in [true, true, false] {
        let mut client = scene.connect().await;
        write(&mut client, &asking("refused.example.", 1)).await;
        assert_eq!(read(&mut client).await.is_some(), expected);
        clients.push(client);
    }
    assert_eq!(scene.counters.figures().refused, 1);
    drop(clients);
    scene.stop().await;
}

// ---------------------------------------------------------------------------------------------- stop

/// A client whose octets are there as soon as it has written them, with room for many queries.
fn at_hand(scene: &Scene) -> DuplexStream {
    at_hand_with(scene, 4_096)
}

/// The same with room for so many octets, which is as many as a read gets.
fn at_hand_with(scene: &Scene, room: usize) -> DuplexStream {
    let (client, stream) = tokio::io::duplex(room);
    let ends = Ends {
        client: "127.0.0.1:5353".parse().unwrap(),
        address: scene.address.into(),
    };
    let (frontend, counters) = (&scene.frontend, &scene.counters);
    let stop = scene.stopper.watch();
    begin(Narrow(stream), ends, frontend, counters, &stop);
    client
}

#[tokio::test(start_paused = true)]
async fn what_has_come_before_a_stop_is_answered() {
    let scene = start().await;
    let mut client = at_hand(&scene);
    for id in 1..=3 {
        let query = framed(&asking("refused.example.", id));
        client.write_all(&query).await.unwrap();
    }
    scene.stopper.stop();
    for expected in 1..=3 {
        assert_eq!(next_id(&mut client).await, Some(expected));
    }
    let answered = Instant::now();
    assert_eq!(next_id(&mut client).await, None);
    assert!(answered.elapsed() < Duration::from_millis(100));
    drop(client);
    scene.stop().await;
}

/// Whoever always has another query does not keep the process from its end.
#[tokio::test(start_paused = true)]
async fn a_client_that_is_never_silent_is_not_heard_for_long_after_a_stop() {
    let scene = start().await;
    let mut client = at_hand(&scene);
    scene.stopper.stop();
    let stopped = Instant::now();
    let query = framed(&asking("refused.example.", 7));
    let mut answered = 0;
    while client.write_all(&query).await.is_ok() && next_id(&mut client).await == Some(7) {
        answered += 1;
        tokio::time::advance(Duration::from_millis(10)).await;
    }
    assert!(answered > 10, "{answered}");
    assert!(stopped.elapsed() < Duration::from_millis(500));
    drop(client);
    scene.stop().await;
}

// ---------------------------------------------------------------------------------------------- reads

#[tokio::test]
async fn who_sends_a_query_in_too_many_pieces_is_banned_for_a_while() {
    let query = framed(&asking("refused.example.", 7));
    for (limit, is_answered) in [(0, true), (10, false)] {
        let scene = start_tuned(|tuning| tuning.maximum_reads_per_query = limit).await;
        let mut whole = at_hand(&scene);
        for _ in 0..20 {
            whole.write_all(&query).await.unwrap();
            assert_eq!(next_id(&mut whole).await, Some(7), "a read or two each");
        }
        let answer = is_answered.then_some(7);
        let mut octets = at_hand_with(&scene, 1);
        // Who is not heard to the end cannot write to it.
        let _ = octets.write_all(&query).await;
        assert_eq!(next_id(&mut octets).await, answer, "{limit}");
        let mut again = scene.connect().await;
        write(&mut again, &asking("refused.example.", 7)).await;
        let answered = read(&mut again).await;
        assert_eq!(answered.map(|message| id(&message)), answer, "{limit}");
        let refused = scene.counters.figures().refused;
        assert_eq!(refused, u64::from(!is_answered), "{limit}");
        drop((whole, octets, again));
        scene.stop().await;
    }
}
