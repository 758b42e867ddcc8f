//! Backends by script on loopback (F17, F20).

use super::*;
use crate::backend::server::ServerOptions;
use crate::counters::Counter;
use crate::pipeline::query::{OwnedQuery, Protocol, Way};
use crate::pipeline::scene::query;
use crate::runtime::Decision;
use crate::runtime::fixture::{self, backend, config, framed, read, response, shared, write};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::sleep;
use wire::codes::qtype;

struct Scene {
    shared: Arc<Shared>,
    asked: Box<Asked>,
}

/// A TCP client's query that is to be asked from the backend at `address`.
fn scene(address: SocketAddr) -> Scene {
    scene_with(fixture::server(address))
}

fn scene_with(server: ServerOptions) -> Scene {
    let shared = shared(config(vec![server]));
    let client = "127.0.0.1:5353".parse().unwrap();
    let destination = "127.0.0.1:53".parse().unwrap();
    let mut query = OwnedQuery::copy(
        &query("wWw.example.", qtype::A),
        65_535,
        (client, destination),
        (Protocol::Tcp, Way::Stream),
    );
    let Decision::Ask(asked) = shared.decide(&mut query) else {
        panic!("the backend is to be asked");
    };
    Scene { shared, asked }
}

impl Scene {
    async fn ask(&self) -> Result<Vec<u8>, Failure> {
        let mut hold = self.shared.memory.hold();
        let answer = ask(&self.shared, &self.asked, &mut hold).await;
        assert_eq!(self.server().outstanding.get(), 0);
        answer.map(|answer| answer.message)
    }

    fn server(&self) -> &Server {
        &self.asked.server
    }
}

#[tokio::test]
async fn the_answer_has_the_clients_id_and_case() {
    let address = backend(|mut stream| async move {
        let query = read(&mut stream).await.unwrap();
        let mut message = response(&query, 0);
        message[12..24].make_ascii_lowercase();
        write(&mut stream, &message).await;
    });
    let scene = scene(address.await);
    let answer = scene.ask().await.unwrap();
    assert_eq!(answer[..2], scene.asked.query[..2]);
    assert_eq!(answer[12..], scene.asked.query[12..]);
    assert_eq!(scene.server().responses.sum(), 1);
    assert_eq!(scene.server().tcp.new_connections.load(Relaxed), 1);
    assert_eq!(scene.server().tcp.connections.load(Relaxed), 0);
}

/// Wrong ID, another question, no response, no message at all, and then the answer (invariant I7).
#[tokio::test]
async fn junk_does_not_end_the_wait() {
    let address = backend(|mut stream| async move {
        let query = read(&mut stream).await.unwrap();
        let good = response(&query, 0);
        let mut wrong_id = good.clone();
        wrong_id[0] ^= 1;
        let mut wrong_question = good.clone();
        wrong_question[13] = b'x';
        let mut cut = good.clone();
        cut[7] = 1;
        for message in [&wrong_id, &wrong_question, &cut, &query, &Vec::new(), &good] {
            write(&mut stream, message).await;
        }
    });
    let scene = scene(address.await);
    assert!(scene.ask().await.is_ok());
    assert_eq!(scene.server().nonmatching.sum(), 5);
    let drops = |reason| scene.shared.shard.drops(reason);
    assert_eq!(drops(DropReason::ResponseUnexpected), 1);
    assert_eq!(drops(DropReason::ResponseMismatch), 1);
    assert_eq!(drops(DropReason::ResponseMalformed), 3);
}

#[tokio::test]
async fn an_error_without_question_is_an_answer() {
    let address = backend(|mut stream| async move {
        let mut message = read(&mut stream).await.unwrap();
        message.truncate(12);
        message[2..].copy_from_slice(&[0x80, 5, 0, 0, 0, 0, 0, 0, 0, 0]);
        write(&mut stream, &message).await;
    });
    let scene = scene(address.await);
    let answer = scene.ask().await.unwrap();
    assert_eq!(answer[3], 5);
    assert_eq!(answer[12..], scene.asked.query[12..], "with the question");
}

/// TC over TCP means nothing that asking again would change.
#[tokio::test]
async fn a_truncated_response_is_passed_on() {
    let address = backend(|mut stream| async move {
        let query = read(&mut stream).await.unwrap();
        let mut message = response(&query, 0);
        message[2] |= 2;
        write(&mut stream, &message).await;
        assert_eq!(read(&mut stream).await, None, "asked once");
    });
    let answer = scene(address.await).ask().await.unwrap();
    assert_eq!(answer[2] & 2, 2);
}

#[tokio::test]
async fn a_backend_that_closes_is_not_asked_again() {
    let (connected, mut connections) = tokio::sync::mpsc::unbounded_channel();
    let address = backend(move |mut stream| {
        connected.send(()).unwrap();
        async move {
            let query = read(&mut stream).await.unwrap();
            // The length and half of the message.
            let _ = stream.write_all(&framed(&query)[..10]).await;
        }
    });
    let scene = scene(address.await);
    assert_eq!(scene.ask().await, Err(Failure::Connection));
    assert_eq!(scene.server().tcp.died_reading_response.load(Relaxed), 1);
    assert_eq!(scene.server().tcp.gave_up.load(Relaxed), 1);
    assert_eq!(scene.shared.shard.get(Counter::DownstreamSendErrors), 1);
    connections.recv().await.unwrap();
    assert!(connections.try_recv().is_err(), "one connection");
}

#[tokio::test]
async fn a_backend_that_resets_is_a_failure() {
    let address = backend(|stream| async move {
        // Closed with the query unread, the kernel sends RST.
        stream.readable().await.unwrap();
    });
    let scene = scene(address.await);
    assert_eq!(scene.ask().await, Err(Failure::Connection));
}

#[tokio::test(start_paused = true)]
async fn a_backend_that_hangs_costs_its_time_out() {
    let address = backend(|stream| async move {
        let _open = stream;
        std::future::pending().await
    });
    let scene = scene_with(ServerOptions {
        tcp_receive_timeout: Duration::from_secs(3),
        ..fixture::server(address.await)
    });
    let began = tokio::time::Instant::now();
    assert_eq!(scene.ask().await, Err(Failure::Timeout));
    assert_eq!(began.elapsed().as_secs(), 3);
    assert_eq!(scene.server().timeouts.sum(), 1);
    assert_eq!(scene.server().tcp.read_timeouts.load(Relaxed), 1);
    assert_eq!(scene.shared.shard.get(Counter::DownstreamTimeouts), 1);
}

/// The time-out is for the whole answer: dripping buys none.
#[tokio::test(start_paused = true)]
async fn a_backend_that_drips_costs_its_time_out() {
    let address = backend(|mut stream| async move {
        let query = read(&mut stream).await.unwrap();
        for octet in framed(&response(&query, 1_000)) {
            sleep(Duration::from_secs(1)).await;
            if stream.write_all(&[octet]).await.is_err() {
                return;
            }
        }
    });
    let scene = scene(address.await);
    let began = tokio::time::Instant::now();
    assert_eq!(scene.ask().await, Err(Failure::Timeout));
    assert_eq!(began.elapsed().as_secs(), 30);
}

/// A client that goes away takes its query with it.
#[tokio::test]
async fn a_query_that_is_dropped_is_no_longer_outstanding() {
    let (asked, mut seen) = tokio::sync::mpsc::channel(1);
    let address = backend(move |mut stream| {
        let asked = asked.clone();
        async move {
            read(&mut stream).await.unwrap();
            asked.send(()).await.unwrap();
            std::future::pending().await
        }
    });
    let scene = scene(address.await);
    tokio::select! {
        _ = scene.ask() => panic!("nobody answers"),
        _ = seen.recv() => {}
    }
    assert_eq!(scene.server().outstanding.get(), 0);
    assert_eq!(scene.server().tcp.connections.load(Relaxed), 0);
}

#[tokio::test]
async fn the_source_address_is_the_servers() {
    let (seen, mut source) = tokio::sync::mpsc::channel(1);
    let address = backend(move |mut stream| {
        let seen = seen.clone();
        async move {
            seen.send(stream.peer_addr().unwrap().ip()).await.unwrap();
            let query = read(&mut stream).await.unwrap();
            write(&mut stream, &response(&query, 65_535)).await;
        }
    });
    let scene = scene_with(ServerOptions {
        source: Some("127.0.0.9".parse().unwrap()),
        ..fixture::server(address.await)
    });
    assert_eq!(scene.ask().await.map(|answer| answer.len()), Ok(65_535));
    assert_eq!(source.recv().await.unwrap().to_string(), "127.0.0.9");
}
