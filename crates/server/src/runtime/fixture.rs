//! For tests of tasks: what they share, backends by script on loopback, messages on streams.

use super::Shared;
use crate::backend::fixture;
use crate::backend::server::{Server, ServerOptions};
use crate::config::Config;
use crate::counters::{Shard, Writers};
use crate::pipeline::acl::{Netmask, Netmasks};
use crate::pipeline::rings::Rings;
use crate::pipeline::rules::Rule;
use crate::pipeline::rules::actions::answer::RCodeAction;
use crate::pipeline::rules::actions::limit::DropAction;
use crate::pipeline::rules::selectors::name::QNameRule;
use arc_swap::ArcSwap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// What is awaited comes sooner, also on a machine that has much else to do.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Loopback may ask, and is waited for with [`PATIENCE`]. `refused.example.` is refused, `dropped.example.` dropped, all else
/// asked from `servers`.
pub(crate) fn config(servers: Vec<ServerOptions>) -> Config {
    let numbered = (0..).zip(servers);
    let servers: Vec<Arc<Server>> = numbered
        .map(|(number, options)| Arc::new(fixture::server(number, options)))
        .collect();
    let pool = fixture::pool("", &servers);
    let named = |name: &str| QNameRule(name.parse().expect("a name"));
    let mut config = Config {
        acl: Netmasks::from_iter(["127.0.0.0/8".parse::<Netmask>().expect("a netmask")]),
        rules: vec![
            Rule::new(named("refused.example."), RCodeAction::new(5)),
            Rule::new(named("dropped.example."), DropAction),
        ],
        pools: vec![Some(pool)],
        servers,
        ..Config::default()
    };
    config.tuning.tcp.receive_timeout = PATIENCE;
    config.tuning.tcp.send_timeout = PATIENCE;
    config
}

pub(crate) fn shared(config: Config) -> Arc<Shared> {
    let shard = Arc::new(Shard::new(
        0,
        Writers::Many,
        Rings::new(16, 16, Writers::Many),
    ));
    Arc::new(Shared::new(Arc::new(ArcSwap::from_pointee(config)), shard))
}

/// Waits until `what` is so, with [`PATIENCE`]: a counter gives nothing to await, so whoever else can run does.
pub(crate) async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let so = async {
        while !is_so() {
            tokio::task::yield_now().await;
        }
    };
    let waited = tokio::time::timeout(PATIENCE, so).await;
    assert!(waited.is_ok(), "not in {PATIENCE:?}: {what}");
}

/// The clock jumps ahead: what waited for a moment until then goes on. A clock that stands still (`start_paused`) jumps by
/// itself whenever nothing can run, also while octets are between two sockets, where a busy kernel leaves them for a while.
pub(crate) async fn jump(ahead: Duration) {
    tokio::time::pause();
    tokio::time::advance(ahead).await;
    tokio::time::resume();
}

/// A backend on loopback: `serve` gets each connection.
pub(crate) async fn backend<F>(serve: impl Fn(TcpStream) -> F + Send + 'static) -> SocketAddr
where
    F: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream));
        }
    });
    address
}

/// A backend that answers each query with [`response`] of `size` bytes.
pub(crate) async fn answering(size: usize) -> SocketAddr {
    backend(move |mut stream| async move {
        while let Some(query) = read(&mut stream).await {
            write(&mut stream, &response(&query, size)).await;
        }
    })
    .await
}

/// `newServer(address)` with this backend.
pub(crate) fn server(address: SocketAddr) -> ServerOptions {
    fixture::options(&address.to_string())
}

/// The question with QR, and records of a type that nobody knows up to `size` bytes, if that is more.
pub(crate) fn response(query: &[u8], size: usize) -> Vec<u8> {
    let parts = wire::message::parse_query(query).expect("a query");
    let mut message = query[..parts.question_end.into()].to_vec();
    message[2] |= 0x80;
    message[10..12].fill(0);
    let mut records = 0u16;
    while size >= message.len() + RECORD {
        let length = (size - message.len() - RECORD).min(60_000) as u16;
        message.extend_from_slice(&[0xc0, 12, 0xff, 0x00, 0, 1, 0, 0, 0, 60]);
        message.extend_from_slice(&length.to_be_bytes());
        message.resize(message.len() + usize::from(length), 0);
        records += 1;
    }
    message[6..8].copy_from_slice(&records.to_be_bytes());
    message
}

/// Bytes of a record without its data.
const RECORD: usize = 12;

/// The next message; `None` at the end of the stream.
pub(crate) async fn read(stream: &mut TcpStream) -> Option<Vec<u8>> {
    let length = stream.read_u16().await.ok()?;
    let mut message = vec![0; length.into()];
    stream.read_exact(&mut message).await.ok()?;
    Some(message)
}

pub(crate) async fn write(stream: &mut TcpStream, message: &[u8]) {
    // Whoever went away is not the subject of a test that writes to him.
    let _ = stream.write_all(&framed(message)).await;
}

/// Length and message.
pub(crate) fn framed(message: &[u8]) -> Vec<u8> {
    let mut bytes = (message.len() as u16).to_be_bytes().to_vec();
    bytes.extend_from_slice(message);
    bytes
}
