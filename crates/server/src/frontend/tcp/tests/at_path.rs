//! The same over a UNIX stream socket.

use super::*;
use crate::config::{LocalAddress, NamedListener, named};
use crate::counters::Passage;
use tokio::net::UnixStream;

/// Where the socket is, and what serves there.
struct AtPath {
    scene: Scene,
    path: Arc<Path>,
    _folder: tempfile::TempDir,
}

/// `tune`: how the path is served.
async fn start_at_path(tune: impl FnOnce(&mut Config, &mut NamedListener)) -> AtPath {
    let folder = tempfile::tempdir().unwrap();
    let path: Arc<Path> = folder.path().join("dns.sock").into();
    let mut config = config(Vec::new());
    let mut listener = NamedListener::plain(Arc::clone(&path));
    tune(&mut config, &mut listener);
    config.named = vec![listener];
    config.count_traffic(1, None);
    let frontend = Arc::new(Frontend::new(shared(config)));
    let (counters, stopper) = (Arc::new(Counters::default()), Stopper::default());
    let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let accepting = tokio::spawn(serve_at(
        (Arc::clone(&path), listener),
        Arc::clone(&frontend),
        Arc::clone(&counters),
        stopper.watch(),
    ));
    let scene = Scene {
        frontend,
        counters,
        address: named::END,
        stopper,
        accepting,
    };
    AtPath {
        scene,
        path,
        _folder: folder,
    }
}

impl AtPath {
    async fn connect(&self) -> UnixStream {
        UnixStream::connect(&self.path).await.unwrap()
    }
}

/// The next message; `None` at the end of the stream.
async fn next(client: &mut UnixStream) -> Option<Vec<u8>> {
    let length = client.read_u16().await.ok()?;
    let mut message = vec![0; length.into()];
    client.read_exact(&mut message).await.ok()?;
    Some(message)
}

#[tokio::test]
async fn pipelined_queries_by_a_path_are_answered_and_counted_for_it() {
    let at_path = start_at_path(|_, _| {}).await;
    let mut client = at_path.connect().await;
    let mut bytes = framed(&asking("refused.example.", 1));
    bytes.extend(framed(&asking("reFUSED.example.", 2)));
    client.write_all(&bytes).await.unwrap();
    for octet in framed(&asking("refused.example.", 3)) {
        client.write_all(&[octet]).await.unwrap();
    }
    for expected in 1..=3 {
        let answer = next(&mut client).await.unwrap();
        assert_eq!((id(&answer), rcode(&answer)), (expected, 5));
    }
    drop(client);
    let shared = Arc::clone(&at_path.scene.frontend.shared);
    let counters = Arc::clone(&at_path.scene.counters);
    at_path.scene.stop().await;
    assert_eq!(counters.queries.load(Relaxed), 3);
    let config = shared.config();
    let address = LocalAddress::Path(at_path.path);
    let place = config.place_of(&address).unwrap();
    let [_, streams] = &config.traffic[usize::from(place)];
    assert_eq!(streams.get(Passage::Query, 0), 3);
}

#[tokio::test]
async fn the_client_at_a_path_is_the_local_host_to_the_acl() {
    let none = |config: &mut Config, _: &mut NamedListener| config.acl = Default::default();
    let at_path = start_at_path(none).await;
    let mut client = at_path.connect().await;
    assert_eq!(next(&mut client).await, None);
    assert_eq!(at_path.scene.drops(DropReason::Acl), 1);
    at_path.scene.stop().await;
}

#[tokio::test]
async fn a_path_takes_as_many_connections_as_it_may() {
    let two = |config: &mut Config, listener: &mut NamedListener| {
        config.tuning.tcp.overload_threshold = 0;
        listener.maximum_tcp_connections = 2;
    };
    let at_path = start_at_path(two).await;
    let mut clients = Vec::new();
    for expected in [true, true, false] {
        let mut client = at_path.connect().await;
        let query = framed(&asking("refused.example.", 1));
        // One that is not taken may be closed before this is written.
        let _ = client.write_all(&query).await;
        assert_eq!(next(&mut client).await.is_some(), expected);
        clients.push(client);
    }
    assert_eq!(at_path.scene.counters.figures().refused, 1);
    drop(clients);
    at_path.scene.stop().await;
}
