//! Servers that are told who asks.

use super::*;
use tokio::io::AsyncReadExt;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use wire::proxy;

/// A server with useProxyProtocol that answers everything, and the clients' ports that its connections begin with.
async fn told() -> (ServerOptions, UnboundedReceiver<u16>) {
    let (began, headers) = unbounded_channel();
    let address = backend(move |mut stream| {
        let began = began.clone();
        async move {
            let mut header = [0; 28];
            stream.read_exact(&mut header).await.unwrap();
            let ends = proxy::parse(&header, 512).unwrap().ends.unwrap();
            began.send(ends.source.port()).unwrap();
            while let Some(query) = read(&mut stream).await {
                write(&mut stream, &response(&query, 0)).await;
            }
        }
    });
    let options = ServerOptions {
        proxy_protocol: true,
        ..fixture::server(address.await)
    };
    (options, headers)
}

#[tokio::test]
async fn a_connection_begins_with_its_header_and_is_for_that_client_alone() {
    let (options, mut headers) = told().await;
    let mut scene = scene_with(options);
    for port in [1, 1, 2, 1] {
        scene.asked.client.set_port(port);
        scene.ask().await.unwrap();
    }
    assert_eq!(
        (headers.recv().await, headers.recv().await),
        (Some(1), Some(2))
    );
    assert!(headers.try_recv().is_err(), "two connections");
}

#[tokio::test]
async fn connections_of_clients_that_are_gone_give_way_to_those_of_others() {
    let (options, mut headers) = told().await;
    let mut config = config(vec![options]);
    config.tuning.tcp.maximum_cached_connections = 2;
    let (shared, mut asked) = ask_for(config, "a.example.", qtype::A);
    for port in [1, 2, 3, 3] {
        asked.client.set_port(port);
        let mut hold = shared.memory.hold();
        assert!(ask(&shared, &asked, &mut hold).await.is_ok(), "{port}");
    }
    for port in 1..=3 {
        assert_eq!(headers.recv().await, Some(port));
    }
    assert!(headers.try_recv().is_err(), "the third one is used again");
}

#[tokio::test]
async fn connections_of_others_give_way_where_their_number_is_limited() {
    let (options, _headers) = told().await;
    let mut scene = scene_with(ServerOptions {
        tcp_maximum_connections: 1,
        ..options
    });
    for port in [1, 2] {
        scene.asked.client.set_port(port);
        scene.ask().await.unwrap();
    }
}
