//! In which order the queries of a connection are answered: one after the other, or with `maxInFlight` as they are ready.

use super::*;

/// A query for a zone.
fn transfer(id: u16) -> Vec<u8> {
    let mut message = query("example.", qtype::AXFR);
    message[..2].copy_from_slice(&id.to_be_bytes());
    message
}

/// Writes a query for the backend and one that needs none, and waits until both have been read.
async fn ask_both(
    scene: &Scene,
    client: &mut TcpStream,
    first: &[u8],
    seen: &mut mpsc::Receiver<()>,
) {
    let second = asking("refused.example.", 2);
    write(client, first).await;
    seen.recv().await.unwrap();
    write(client, &second).await;
    let memory = &scene.frontend.shared.memory;
    let both = first.len() + second.len();
    until("both have been read", || memory.used() >= both).await;
}

/// The manual (Out-of-order): queries are processed out of order "as long as the maxInFlight parameter has been set".
#[tokio::test]
async fn answers_come_in_the_order_of_their_queries() {
    for in_flight in [0, 1] {
        for first in [asking("www.example.", 1), transfer(1)] {
            let (address, mut seen, go) = told().await;
            let scene = start().await;
            let servers = vec![server(address)];
            scene.listen(config(servers), |listener| {
                listener.tcp_in_flight = in_flight
            });
            let mut client = scene.connect().await;
            ask_both(&scene, &mut client, &first, &mut seen).await;
            assert_eq!(
                scene.counters.queries.load(Relaxed),
                1,
                "the other one has to wait"
            );
            go.notify_one();
            for expected in 1..=2 {
                let answer = read(&mut client).await;
                assert_eq!(answer.map(|answer| id(&answer)), Some(expected));
            }
            drop(client);
            scene.stop().await;
        }
    }
}

#[tokio::test]
async fn with_max_in_flight_answers_come_as_they_are_ready() {
    let slow_and_fast = backend(|mut stream| async move {
        let query = read(&mut stream).await.unwrap();
        if query[12..].starts_with(b"\x04slow") {
            std::future::pending::<()>().await;
        }
        write(&mut stream, &response(&query, 0)).await;
    });
    let scene = start().await;
    let servers = vec![server(slow_and_fast.await)];
    scene.listen(config(servers), |listener| listener.tcp_in_flight = 3);
    let mut client = scene.connect().await;
    for (name, id) in [
        ("slow.example.", 1),
        ("fast.example.", 2),
        ("refused.example.", 3),
    ] {
        write(&mut client, &asking(name, id)).await;
    }
    let mut ids = Vec::new();
    for _ in 0..2 {
        ids.push(id(&read(&mut client).await.unwrap()));
    }
    ids.sort_unstable();
    assert_eq!(ids, [2, 3]);
    // The client goes away with a query under way: the connection ends with the wait.
    drop(client);
    jump(PATIENCE).await;
    scene.stop().await;
}

/// Who waits behind a query that gets no answer is not asked: the connection is closed.
#[tokio::test]
async fn a_query_behind_one_that_fails_is_not_asked() {
    let (asked, mut seen) = mpsc::channel(1);
    let go = Arc::new(Notify::new());
    let waiting = Arc::clone(&go);
    let address = backend(move |mut stream| {
        let (asked, waiting) = (asked.clone(), Arc::clone(&waiting));
        async move {
            let _ = read(&mut stream).await;
            asked.send(()).await.unwrap();
            waiting.notified().await;
        }
    });
    let scene = start_with(config(vec![server(address.await)])).await;
    let mut client = scene.connect().await;
    ask_both(&scene, &mut client, &asking("www.example.", 1), &mut seen).await;
    go.notify_one();
    assert_eq!(read(&mut client).await, None);
    assert_eq!(scene.counters.queries.load(Relaxed), 1);
    drop(client);
    scene.stop().await;
}

#[tokio::test]
async fn a_query_that_waits_for_its_turn_does_not_outlast_its_connection() {
    let (address, mut seen, go) = told().await;
    let mut config = config(vec![ServerOptions {
        tcp_receive_timeout: 30 * MINUTE,
        ..server(address)
    }]);
    config.tuning.tcp.maximum_connection_duration = 5 * MINUTE;
    let scene = start_with(config).await;
    let mut client = scene.connect().await;
    ask_both(&scene, &mut client, &asking("www.example.", 1), &mut seen).await;
    jump(6 * MINUTE).await;
    let held = || scene.frontend.shared.memory.used();
    let first = asking("www.example.", 1).len();
    until("the second one is given up", || held() <= first).await;
    go.notify_one();
    assert_eq!(read(&mut client).await.map(|answer| id(&answer)), Some(1));
    assert_eq!(read(&mut client).await, None);
    drop(client);
    scene.stop().await;
}

/// What has come before a stop is answered, also behind a query that takes its time.
#[tokio::test]
async fn a_query_that_waits_for_its_turn_at_a_stop_is_answered() {
    let (address, mut seen, go) = told().await;
    let scene = start_with(config(vec![server(address)])).await;
    let mut client = scene.connect().await;
    ask_both(&scene, &mut client, &asking("www.example.", 1), &mut seen).await;
    scene.stopper.stop();
    go.notify_one();
    for expected in 1..=2 {
        let answer = read(&mut client).await;
        assert_eq!(answer.map(|answer| id(&answer)), Some(expected));
    }
    assert_eq!(read(&mut client).await, None);
    drop(client);
    scene.stop().await;
}
