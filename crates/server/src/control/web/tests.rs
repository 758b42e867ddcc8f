//! Real connections on loopback.

use super::*;
use crate::config::Config;
use crate::control::fixture::{Standing, webserver};
use crate::pipeline::acl::{Netmask, Netmasks};
use crate::stop::Stopper;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

struct Server {
    standing: Arc<Standing>,
    address: SocketAddr,
    stopper: Stopper,
    task: tokio::task::JoinHandle<()>,
}

/// Serves under this configuration, on a port of its own.
async fn start(webserver: Webserver) -> Server {
    let standing = Arc::new(Standing::with(config(webserver)));
    let listener = bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = listener.local_addr().unwrap();
    let stopper = Stopper::default();
    let metrics = Arc::new(Metrics::new(Arc::clone(&standing) as Arc<_>));
    let task = tokio::spawn(serve(Some(listener), metrics, stopper.watch()));
    Server {
        standing,
        address,
        stopper,
        task,
    }
}

fn config(webserver: Webserver) -> Config {
    Config {
        webserver: Some(webserver),
        ..Config::default()
    }
}

impl Server {
    /// The whole answer to a request; empty when the connection is closed without one.
    async fn ask(&self, request: &str) -> String {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        let mut answer = String::new();
        let _ = stream.write_all(request.as_bytes()).await;
        let _ = stream.read_to_string(&mut answer).await;
        answer
    }

    async fn stop(self) {
        self.stopper.stop();
        self.stopper.finished().await;
        self.task.await.unwrap();
    }
}

const REQUEST: &str = "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";

#[tokio::test]
async fn metrics_are_served() {
    let server = start(webserver()).await;
    let answer = server.ask(REQUEST).await;
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert!(answer.contains("\r\ncontent-type: text/plain; version=0.0.4; charset=utf-8\r\n"));
    assert!(answer.contains("\r\nconnection: close\r\n"), "{answer}");
    assert!(answer.contains("\r\nx-frame-options: deny\r\n"));
    assert!(answer.contains("\n# TYPE dnsdist_queries counter\ndnsdist_queries 0\n"));
    server.stop().await;
}

#[tokio::test]
async fn other_pages_methods_and_passwords_are_refused() {
    let server = start(Webserver {
        password: Some("secret".to_owned()),
        ..webserver()
    })
    .await;
    for (request, status) in [
        (REQUEST.to_owned(), "401 Unauthorized"),
        (REQUEST.replace("/metrics", "/nothing"), "404 Not Found"),
        (REQUEST.replace("GET", "POST"), "405 Method Not Allowed"),
        (
            REQUEST.replace("\r\n\r\n", "\r\nAuthorization: Basic eDpzZWNyZXQ=\r\n\r\n"),
            "200 OK",
        ),
    ] {
        let answer = server.ask(&request).await;
        let line = answer.lines().next().unwrap_or_default();
        assert_eq!(line, format!("HTTP/1.1 {status}"), "{request}");
    }
    server.stop().await;
}

#[tokio::test]
async fn clients_outside_the_acl_are_not_heard() {
    let server = start(Webserver {
        acl: Netmasks::from_iter(["192.0.2.0/24".parse::<Netmask>().unwrap()]),
        ..webserver()
    })
    .await;
    assert_eq!(server.ask(REQUEST).await, "");
    server.stop().await;
}

#[tokio::test]
async fn an_address_in_use_is_an_error_that_names_it() {
    let first = bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = first.local_addr().unwrap();
    let error = bind(address).unwrap_err().to_string();
    let expected = format!("web server: cannot listen on {address}: ");
    assert!(error.starts_with(&expected), "{error}");
}

/// A client that never ends its request is cut off, and its place is free again.
#[tokio::test(start_paused = true)]
async fn slow_clients_are_cut_off() {
    let server = start(webserver()).await;
    let mut slow = TcpStream::connect(server.address).await.unwrap();
    slow.write_all(b"GET /metrics HTTP/1.1\r\nX-Slow: ")
        .await
        .unwrap();
    let mut rest = Vec::new();
    let began = tokio::time::Instant::now();
    let _ = slow.read_to_end(&mut rest).await;
    assert!(began.elapsed() >= LIFETIME, "{:?}", began.elapsed());
    server.stop().await;
}

/// A reload may move it, and take it away.
#[tokio::test(start_paused = true)]
async fn the_server_follows_its_configuration() {
    let mut server = start(webserver()).await;
    assert!(server.ask(REQUEST).await.starts_with("HTTP/1.1 200 OK"));
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, former) = (free.local_addr().unwrap(), server.address);
    drop(free);
    server.standing.config.store(Arc::new(config(Webserver {
        address,
        ..webserver()
    })));
    // The clock jumps: the server looks once a second.
    while TcpStream::connect(address).await.is_err() {
        sleep(Duration::from_secs(1)).await;
    }
    server.address = address;
    assert!(server.ask(REQUEST).await.starts_with("HTTP/1.1 200 OK"));
    assert!(TcpStream::connect(former).await.is_err());
    server.standing.config.store(Arc::default());
    while TcpStream::connect(address).await.is_ok() {
        sleep(Duration::from_secs(1)).await;
    }
    server.stop().await;
}
