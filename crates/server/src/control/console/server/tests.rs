//! Real connections over loopback, honest and hostile.

use super::super::client::{ClientError, Connection};
use super::super::wire::{Key, Nonce};
use super::*;
use crate::config::console::ConsoleSpec;
use crate::control::news::Herald;
use crate::stop::Stopper;
use std::io::{Read, Write};
use std::sync::Mutex;

/// Says back what it was told; remembers it.
struct Echo {
    config: Arc<Config>,
    commands: Mutex<Vec<String>>,
}

impl Commands for Echo {
    fn config(&self) -> Arc<Config> {
        Arc::clone(&self.config)
    }

    fn run(&self, command: &str) -> String {
        let mut commands = self.commands.lock().unwrap();
        commands.push(command.to_owned());
        match command.strip_prefix("repeat ") {
            Some(times) => "x".repeat(times.parse().unwrap()),
            None => format!("you said {command}\n"),
        }
    }
}

struct Scene {
    address: SocketAddr,
    key: Key,
    echo: Arc<Echo>,
    stopper: Stopper,
    serving: tokio::task::JoinHandle<()>,
}

/// A console with a key, changed by `change`.
fn start(change: impl FnOnce(&mut ConsoleSpec)) -> Scene {
    let listener = bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = listener.local_addr().unwrap();
    let key = Key::random().unwrap();
    let mut spec = ConsoleSpec {
        address: Some(address),
        key: Some(key.clone()),
        log_connections: false,
        ..ConsoleSpec::default()
    };
    change(&mut spec);
    let echo = Arc::new(Echo {
        config: Arc::new(Config {
            console: spec.derive(),
            ..Config::default()
        }),
        commands: Mutex::default(),
    });
    let stopper = Stopper::default();
    let listening = Listening::default();
    listening.give(SERVICE, Some(listener));
    let serving = tokio::spawn(serve(
        listening,
        Arc::clone(&echo),
        (stopper.watch(), Herald::default().watch()),
    ));
    Scene {
        address,
        key,
        echo,
        stopper,
        serving,
    }
}

impl Scene {
    /// What `work` does on a thread of its own: clients block.
    async fn client<R: Send + 'static>(
        &self,
        work: impl FnOnce(SocketAddr, Key) -> R + Send + 'static,
    ) -> R {
        let (address, key) = (self.address, self.key.clone());
        tokio::task::spawn_blocking(move || work(address, key))
            .await
            .unwrap()
    }

    async fn ask(&self, command: &'static str) -> Result<String, ClientError> {
        self.client(move |address, key| Connection::open(address, &key, 10_000_000)?.ask(command))
            .await
    }

    fn said(&self) -> Vec<String> {
        self.echo.commands.lock().unwrap().clone()
    }
}

/// Connects, sends `bytes`, and reads until the other side closes; how many bytes came.
fn send(address: SocketAddr, bytes: &[u8]) -> usize {
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    let limit = Some(Duration::from_secs(60));
    stream.set_read_timeout(limit).unwrap();
    // It may be closed already.
    let _ = stream.write_all(bytes);
    let mut came = Vec::new();
    match stream.read_to_end(&mut came) {
        Err(error) if error.kind() == ErrorKind::WouldBlock => panic!("still open"),
        // A reset closes as well.
        _ => came.len(),
    }
}

#[tokio::test]
async fn commands_come_through_one_after_the_other() {
    let scene = start(|_| {});
    let answers = scene.client(|address, key| {
        let mut connection = Connection::open(address, &key, 10_000_000).unwrap();
        ["", "one", "two"].map(|command| connection.ask(command).unwrap())
    });
    let expected = ["you said \n", "you said one\n", "you said two\n"];
    assert_eq!(answers.await, expected);
    assert_eq!(scene.said(), ["", "one", "two"]);
}

#[tokio::test]
async fn nobody_gets_in_without_the_key() {
    let scene = start(|_| {});
    let other = scene.client(|address, _| {
        let key = Key::random().unwrap();
        Connection::open(address, &key, 10_000_000)?.ask("shutdown()")
    });
    assert!(matches!(other.await, Err(ClientError::Refused(_))));
    assert_eq!(scene.said(), Vec::<String>::new());

    let keyless = start(|spec| spec.key = None);
    assert!(matches!(
        keyless.ask("x").await,
        Err(ClientError::Refused(_))
    ));
}

#[tokio::test]
async fn nobody_gets_in_from_outside_the_acl() {
    let scene = start(|spec| spec.acl = vec!["192.0.2.0/24".parse().unwrap()]);
    assert!(matches!(scene.ask("x").await, Err(ClientError::Refused(_))));
}

#[tokio::test]
async fn one_too_many_is_closed_and_a_place_that_is_left_is_given_again() {
    let scene = start(|spec| spec.maximum_connections = 1);
    let (address, key) = (scene.address, scene.key.clone());
    let first = scene.client(move |_, _| {
        let mut connection = Connection::open(address, &key, 1_000).unwrap();
        connection.ask("first").unwrap();
        connection
    });
    let first = first.await;
    assert!(matches!(scene.ask("x").await, Err(ClientError::Refused(_))));
    drop(first);
    let until = std::time::Instant::now() + Duration::from_secs(60);
    while scene.ask("second").await.is_err() {
        assert!(std::time::Instant::now() < until, "the place stays taken");
    }
    assert_eq!(scene.said(), ["first", "second"]);
}

#[tokio::test]
async fn many_connections_that_say_nothing_keep_nobody_out() {
    let scene = start(|_| {});
    let silent = scene.client(|address, _| {
        (0..90)
            .map(|_| std::net::TcpStream::connect(address).unwrap())
            .collect::<Vec<_>>()
    });
    let silent = silent.await;
    assert_eq!(scene.ask("here").await.unwrap(), "you said here\n");
    drop(silent);
}

#[tokio::test]
async fn hostile_bytes_close_the_connection_and_nothing_else() {
    let scene = start(|_| {});
    let nonce: Nonce = [7; NONCE_LENGTH];
    let with = |length: u32, bytes: &[u8]| [&nonce[..], &length.to_be_bytes(), bytes].concat();
    let cases = [
        ("oversize", with(u32::MAX, b"")),
        ("one more than allowed", with(10_000_001, b"")),
        ("no tag", with(3, b"abc")),
        ("no length", with(0, b"")),
        ("garbage", with(64, &[0xa5; 64])),
        (
            "HTTP",
            b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(3),
        ),
    ];
    for (name, bytes) in cases {
        // The server's nonce, and not a byte more.
        let came = scene.client(move |address, _| send(address, &bytes)).await;
        assert!(came <= NONCE_LENGTH, "{name}: {came} bytes");
    }
    assert_eq!(scene.said(), Vec::<String>::new());
    assert_eq!(scene.ask("alive").await.unwrap(), "you said alive\n");
}

#[tokio::test]
async fn half_messages_are_closed_after_a_while() {
    let scene = start(|_| {});
    let nonce: Nonce = [7; NONCE_LENGTH];
    for bytes in [
        Vec::new(),
        nonce[..5].to_vec(),
        [&nonce[..], &[0, 0]].concat(),
        [&nonce[..], &[0, 0, 0, 99], b"half"].concat(),
    ] {
        let mut stream = std::net::TcpStream::connect(scene.address).unwrap();
        stream.write_all(&bytes).unwrap();
        drop(stream);
    }
    let silent = scene.client(move |address, _| send(address, &[1; 10]));
    assert_eq!(silent.await, NONCE_LENGTH);
    assert_eq!(scene.said(), Vec::<String>::new());
}

#[tokio::test]
async fn long_answers_are_told_apart_from_broken_ones() {
    let scene = start(|spec| spec.maximum_message_size = 1_000);
    let answer = scene.ask("repeat 985").await.unwrap();
    let expected =
        "Error: the answer takes 1001 bytes, more than the 1000 of setConsoleOutputMaxMsgSize\n";
    assert_eq!(answer, expected);
    assert_eq!(scene.ask("repeat 984").await.unwrap().len(), 984);
    let small =
        scene.client(|address, key| Connection::open(address, &key, 100)?.ask("repeat 200"));
    assert!(matches!(small.await, Err(ClientError::TooLong(216, 100))));
}

#[tokio::test]
async fn the_stop_ends_connections_that_are_silent() {
    let scene = start(|_| {});
    let connection = scene.client(|address, key| {
        let mut connection = Connection::open(address, &key, 1_000).unwrap();
        connection.ask("x").unwrap();
        connection
    });
    let _connection = connection.await;
    scene.stopper.stop();
    let finished = timeout(Duration::from_secs(30), scene.stopper.finished());
    finished.await.expect("all tasks end");
    scene.serving.await.unwrap();
}

#[test]
fn a_client_that_is_gone_does_not_keep_its_place() {
    use nix::sys::socket::{getsockopt, sockopt};
    let listener = bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let _client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    listener.set_nonblocking(false).unwrap();
    let (accepted, _) = listener.accept().unwrap();
    assert_eq!(getsockopt(&accepted, sockopt::KeepAlive), Ok(true));
    assert_eq!(getsockopt(&accepted, sockopt::TcpKeepIdle), Ok(60));
}
