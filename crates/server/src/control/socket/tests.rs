//! Real sockets in directories that go away.

use super::*;
use crate::at_path::{MODE, identity};
use crate::config::Config;
use crate::control::client::{self, ClientError};
use crate::control::fixture::Standing;
use crate::stop::Stopper;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::time::Duration;
use tempfile::TempDir;

struct Scene {
    directory: TempDir,
    path: PathBuf,
    stopper: Stopper,
}

/// An instance that listens in a directory of its own.
fn start() -> Scene {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("millrace/control");
    let stopper = Stopper::default();
    let standing = Arc::new(Standing::with(Config::default()));
    let metrics = Arc::new(Metrics::new(Arc::clone(&standing) as Arc<_>));
    let socket = bind(&path).unwrap();
    tokio::spawn(serve(socket, standing, metrics, stopper.watch()));
    Scene {
        directory,
        path,
        stopper,
    }
}

impl Scene {
    async fn request(&self, request: Request) -> Result<Json, ClientError> {
        let path = self.path.clone();
        let asking = tokio::task::spawn_blocking(move || client::request(&path, &request));
        asking.await.unwrap()
    }

    /// The reply to these bytes.
    async fn send(&self, bytes: &[u8]) -> String {
        let mut stream = UnixStream::connect(&self.path).await.unwrap();
        stream.write_all(bytes).await.unwrap();
        let _ = stream.shutdown().await;
        let mut reply = String::new();
        let _ = stream.read_to_string(&mut reply).await;
        reply
    }
}

#[tokio::test]
async fn requests_are_answered() {
    let scene = start();
    let version = scene.request(Request::Version).await.unwrap();
    assert_eq!(version, crate::version());
    let statistics = scene.request(Request::Stats).await.unwrap();
    assert_eq!(statistics["queries"], 0);
    assert_eq!(statistics["drop-rule"], 0);
    let status = scene.request(Request::XdpStatus).await.unwrap();
    assert_eq!(status, serde_json::to_value(Status::default()).unwrap());
    let error = scene.request(Request::Reload).await.unwrap_err();
    assert_eq!(error.to_string(), "test.conf:3: no");
}

#[tokio::test]
async fn bad_requests_get_a_clear_error() {
    let scene = start();
    for (bytes, expected) in [
        (&b"{\"command\":\"dance\"}\n"[..], "unknown command 'dance'"),
        (b"{\"command\":\"stats\"}", "does not end with a line feed"),
        (b"\xff\n", "cannot be read"),
        (&[b'x'; REQUEST_MAX + 1], "longer than 65536 bytes"),
    ] {
        let reply = scene.send(bytes).await;
        assert!(reply.starts_with("{\"error\":\""), "{reply}");
        assert!(reply.contains(expected), "{reply}");
    }
    assert_eq!(scene.send(b"").await, "");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_says_nothing_is_told_so() {
    let scene = start();
    let mut stream = UnixStream::connect(&scene.path).await.unwrap();
    stream.write_all(b"{").await.unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).await.unwrap();
    assert!(reply.contains("within 5 s"), "{reply}");
}

/// Longer than anything here takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A connection that has asked for a mirror, and the first letters of its reply.
async fn ask_for_mirror(scene: &Scene) -> (UnixStream, String) {
    let mut stream = UnixStream::connect(&scene.path).await.unwrap();
    let request = b"{\"command\":\"mirror\",\"interface\":\"veth0\",\"rate\":10}\n";
    stream.write_all(request).await.unwrap();
    let mut reply = [0; 16];
    stream.read_exact(&mut reply).await.unwrap();
    (stream, String::from_utf8(reply.to_vec()).unwrap())
}

#[tokio::test]
async fn mirrors_have_none_of_the_places_of_requests_that_come_and_go() {
    let scene = start();
    let mut mirrors = Vec::new();
    for _ in 0..MIRRORS {
        let (stream, reply) = ask_for_mirror(&scene).await;
        assert_eq!(reply, "{\"result\":\"mirro");
        mirrors.push(stream);
    }
    for _ in 0..CONNECTIONS {
        assert!(scene.request(Request::Version).await.is_ok());
    }
    let (_, refused) = ask_for_mirror(&scene).await;
    assert_eq!(refused, "{\"error\":\"16 mir");
    // Room that is left is given again.
    drop(mirrors.pop());
    let begun = async {
        let mut reply = refused.clone();
        while reply == refused {
            (_, reply) = ask_for_mirror(&scene).await;
        }
    };
    timeout(PATIENCE, begun).await.unwrap();
}

#[tokio::test]
async fn a_stop_waits_for_nobodys_place() {
    let directory = TempDir::new().unwrap();
    let listener = UnixListener::bind(directory.path().join("control")).unwrap();
    let standing = Arc::new(Standing::with(Config::default()));
    let metrics = Arc::new(Metrics::new(Arc::clone(&standing) as Arc<_>));
    let desk = Arc::new(Desk::new(standing, metrics));
    let (no_place, stopper) = (Arc::new(Semaphore::new(0)), Stopper::default());
    let mut stop = stopper.watch();
    stopper.stop();
    let accepting = accept(&listener, &desk, &no_place, &mut stop);
    timeout(PATIENCE, accepting).await.unwrap();
}

/// I12.
#[tokio::test]
async fn a_second_start_is_refused_and_touches_nothing() {
    let scene = start();
    let before = identity(&scene.path).unwrap();
    let error = bind(&scene.path).unwrap_err();
    assert!(matches!(error, SocketError::InUse(_)), "{error}");
    assert_eq!(identity(&scene.path).unwrap(), before);
    assert!(scene.request(Request::Version).await.is_ok());
}

#[tokio::test]
async fn the_file_has_its_mode_and_goes_with_the_instance() {
    let scene = start();
    let mode = fs::metadata(&scene.path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, MODE);
    scene.stopper.stop();
    scene.stopper.finished().await;
    let error = scene.request(Request::Version).await.unwrap_err();
    assert!(matches!(error, ClientError::NotRunning(_)), "{error}");
    assert!(!scene.path.exists());
    assert!(scene.directory.path().exists());
}

#[tokio::test]
async fn what_a_killed_instance_left_is_replaced() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("control");
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    assert!(path.exists());
    let first = bind(&path).unwrap();
    // A file that somebody else has put there is not removed.
    fs::remove_file(&path).unwrap();
    fs::write(&path, "mine").unwrap();
    drop(first);
    assert_eq!(fs::read_to_string(&path).unwrap(), "mine");
    let error = bind(&path).unwrap_err();
    assert!(matches!(error, SocketError::NotASocket(_)), "{error}");
    assert_eq!(fs::read_to_string(&path).unwrap(), "mine");
}

#[test]
fn the_group_of_the_service_may_use_it() {
    if !nix::unistd::geteuid().is_root() {
        println!("SKIP: only root may give a file to any group");
        return;
    }
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("control");
    let socket = bind(&path).unwrap();
    socket.give_to(Gid::from_raw(65_534)).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().gid(), 65_534);
}
