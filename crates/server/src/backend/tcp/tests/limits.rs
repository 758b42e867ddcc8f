//! retries and maxConcurrentTCPConnections of newServer, and what lazy checks learn over TCP.

use super::*;
use crate::runtime::memory::Memory;

/// A backend that closes the first `closed` connections when it has read a query.
async fn closing(closed: usize) -> SocketAddr {
    let count = Arc::new(AtomicUsize::new(0));
    let serve = move |mut stream| {
        let number = count.fetch_add(1, Relaxed);
        async move {
            let Some(query) = read(&mut stream).await else {
                return;
            };
            if number >= closed {
                write(&mut stream, &response(&query, 0)).await;
            }
        }
    };
    backend(serve).await
}

#[tokio::test]
async fn a_query_is_tried_on_as_many_connections_as_retries_says() {
    for (retries, closed, succeeds) in [(3, 2, true), (2, 2, false), (1, 0, true), (0, 0, true)] {
        let scene = scene_with(ServerOptions {
            tcp_attempts: Some(retries),
            ..fixture::server(closing(closed).await)
        });
        assert_eq!(scene.ask().await.is_ok(), succeeds, "{retries} {closed}");
        let made = scene.server().tcp.new_connections.load(Relaxed);
        assert_eq!(made, u64::from(retries.max(1)));
        assert_eq!(
            scene.server().tcp.gave_up.load(Relaxed),
            u64::from(!succeeds)
        );
    }
}

/// The manual has no number for it; dnsdist sends one query for each of its clients'.
#[tokio::test]
async fn without_retries_a_new_connection_is_the_only_one() {
    for (closed, succeeds) in [(0, true), (1, false)] {
        let scene = scene_with(fixture::server(closing(closed).await));
        assert_eq!(scene.ask().await.is_ok(), succeeds, "{closed}");
        assert_eq!(scene.server().tcp.new_connections.load(Relaxed), 1);
    }
}

#[tokio::test]
async fn a_query_without_a_place_on_so_many_connections_is_dropped() {
    let (asked, mut seen) = tokio::sync::mpsc::channel(1);
    let address = backend(move |mut stream| {
        let asked = asked.clone();
        async move {
            read(&mut stream).await.unwrap();
            asked.send(()).await.unwrap();
            std::future::pending().await
        }
    });
    let scene = scene_with(ServerOptions {
        tcp_maximum_connections: 1,
        ..fixture::server(address.await)
    });
    let second = async {
        seen.recv().await.unwrap();
        let mut hold = scene.shared.memory.hold();
        let answer = ask(&scene.shared, &scene.asked, &mut hold).await;
        answer.map(|answer| answer.message)
    };
    let dropped = Failure::Dropped(DropReason::BackendConnections);
    tokio::select! {
        _ = scene.ask() => panic!("nobody answers"),
        answer = second => assert_eq!(answer, Err(dropped)),
    }
    let tcp = &scene.server().tcp;
    assert_eq!(tcp.too_many_connections.load(Relaxed), 1);
}

/// A client that takes whatever a transfer brings.
struct Taking;

impl transfer::Sink for Taking {
    async fn take(&mut self, _: Vec<u8>, _: Hold) -> bool {
        true
    }
}

#[tokio::test]
async fn transfers_count_among_so_many_connections() {
    let (address, mut seen) = silent().await;
    let options = ServerOptions {
        tcp_maximum_connections: 1,
        ..fixture::server(address)
    };
    let (shared, asked) = ask_for(config(vec![options]), "example.", qtype::AXFR);
    let (mut first, mut second) = (Taking, Taking);
    let refused = async {
        seen.recv().await.unwrap();
        transfer::pass(&shared, &asked, &mut second).await
    };
    let dropped = Failure::Dropped(DropReason::BackendConnections);
    tokio::select! {
        _ = transfer::pass(&shared, &asked, &mut first) => panic!("nobody answers"),
        passed = refused => assert_eq!(passed, Err(dropped)),
    }
    let server = &asked.server;
    assert_eq!(server.tcp.too_many_connections.load(Relaxed), 1);
    assert_eq!(server.tcp_pool.open(), 0);
}

/// tcpRecvTimeout is for the next message of a transfer, whatever else comes before it.
#[tokio::test]
async fn junk_buys_a_transfer_no_time() {
    let (asked_for, mut seen) = mpsc::channel(1);
    let go = Arc::new(Notify::new());
    let told = Arc::clone(&go);
    let address = backend(move |mut stream| {
        let (asked_for, told) = (asked_for.clone(), Arc::clone(&told));
        async move {
            let mut junk = response(&read(&mut stream).await.unwrap(), 0);
            junk[0] ^= 1;
            asked_for.send(()).await.unwrap();
            for _ in 0..4 {
                told.notified().await;
                write(&mut stream, &junk).await;
            }
            let _ = read(&mut stream).await;
        }
    });
    let options = ServerOptions {
        tcp_receive_timeout: 30 * MINUTE,
        ..fixture::server(address.await)
    };
    let (shared, asked) = ask_for(config(vec![options]), "example.", qtype::AXFR);
    let server = &asked.server;
    let has_ended = || server.timeouts.sum() > 0;
    let telling = async {
        seen.recv().await.unwrap();
        for turn in 1..=4 {
            jump(20 * MINUTE).await;
            go.notify_one();
            let is_seen = || server.nonmatching.sum() == turn || has_ended();
            until("the junk has come, or too late", is_seen).await;
        }
        until("its time is over", has_ended).await;
    };
    let mut taking = Taking;
    let (passed, ()) = tokio::join!(transfer::pass(&shared, &asked, &mut taking), telling);
    assert_eq!(passed, Err(Failure::Timeout));
    assert_eq!(server.tcp.read_timeouts.load(Relaxed), 1);
}

/// What is lost for want of room here is no connection that the server broke.
#[tokio::test]
async fn a_transfer_without_room_is_no_failure_of_the_server() {
    let server = fixture::server(fixture::answering(0).await);
    let (mut shared, asked) = ask_for(config(vec![server]), "example.", qtype::AXFR);
    let tight = Arc::get_mut(&mut shared).expect("nobody else has it");
    tight.memory = Memory::new(10);
    let passed = transfer::pass(&shared, &asked, &mut Taking).await;
    let dropped = DropReason::TcpMemoryFull;
    assert_eq!(passed, Err(Failure::Dropped(dropped)));
    assert_eq!(shared.shard.drops(dropped), 1);
    let server = &asked.server;
    let died = server.tcp.died_reading_response.load(Relaxed);
    assert_eq!((died, server.send_errors.sum()), (0, 0));
}

/// Connections to all backends together are limited too.
#[tokio::test]
async fn idle_connections_give_way_to_those_of_other_servers() {
    let first = fixture::server(fixture::answering(0).await);
    let second = fixture::server(fixture::answering(0).await);
    let config = config(vec![first, second]);
    let (shared, mut asked) = ask_for(config, "a.example.", qtype::A);
    let places = &shared.backend_connections;
    let others = places.available_permits() - 1;
    let _others = places.acquire_many(others as u32).await.unwrap();
    for number in [0_usize, 1, 0] {
        asked.server = Arc::clone(&asked.config.servers[number]);
        let mut hold = shared.memory.hold();
        let answer = ask(&shared, &asked, &mut hold).await;
        assert!(answer.is_ok(), "server {number}");
    }
}

/// They are ours: the server was not asked, and is as good as before.
#[tokio::test]
async fn connections_that_others_have_are_no_failure_of_the_server() {
    let mut options = fixture::server(fixture::answering(0).await);
    options.tcp_connect_timeout = Duration::from_millis(10);
    options.health.is_lazy = true;
    for kind in [qtype::A, qtype::AXFR] {
        let config = config(vec![options.clone()]);
        let (shared, asked) = ask_for(config, "example.", kind);
        let places = &shared.backend_connections;
        let all = places.available_permits();
        let _others = places.acquire_many(all as u32).await.unwrap();
        let mut hold = shared.memory.hold();
        let failure = match kind {
            qtype::A => ask(&shared, &asked, &mut hold).await.err(),
            _ => transfer::pass(&shared, &asked, &mut Taking).await.err(),
        };
        let dropped = DropReason::BackendConnections;
        assert_eq!(failure, Some(Failure::Dropped(dropped)));
        assert_eq!(shared.shard.drops(dropped), 1);
        let server = &asked.server;
        let timeouts = server.tcp.connect_timeouts.load(Relaxed);
        let gave_up = server.tcp.gave_up.load(Relaxed);
        assert_eq!((timeouts, gave_up, server.send_errors.sum()), (0, 0, 0));
        assert!(!server.sample.as_ref().unwrap().is_suspected());
    }
}

/// By a race, every query goes to it.
#[tokio::test]
async fn a_silent_server_does_not_take_the_connections_of_the_others() {
    let refused = Err(Failure::Dropped(DropReason::BackendConnections));
    for (servers, expected) in [(2, refused), (1, Ok(()))] {
        let (address, mut seen) = silent().await;
        let options = vec![fixture::server(address); servers];
        let (shared, asked) = ask_for(config(options), "example.", qtype::A);
        let places = &shared.backend_connections;
        let all = places.available_permits();
        let _others = places.acquire_many(all as u32 - 1).await.unwrap();
        assert_eq!(make_room(&shared, &asked.server), Ok(()));
        let mut hold = shared.memory.hold();
        let then = async {
            seen.recv().await.unwrap();
            make_room(&shared, &asked.server)
        };
        tokio::select! {
            _ = ask(&shared, &asked, &mut hold) => panic!("nobody answers"),
            room = then => assert_eq!(room, expected, "{servers}"),
        }
    }
}

#[tokio::test]
async fn failures_over_tcp_make_a_lazy_server_suspect() {
    for (closed, suspected) in [(0, false), (1, true)] {
        let mut options = fixture::server(closing(closed).await);
        options.health.is_lazy = true;
        let scene = scene_with(options);
        assert_eq!(scene.ask().await.is_err(), suspected);
        let sample = scene.server().sample.as_ref().unwrap();
        assert_eq!(sample.is_suspected(), suspected);
    }
}
