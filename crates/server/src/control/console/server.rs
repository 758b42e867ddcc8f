//! The console's door: who may come in, how long somebody may take, and what is said to whom.
//!
//! Whoever has no key, comes from outside the ACL or is one too many is closed without a word, as dnsdist does. Until the
//! first message was opened a connection lives for [`GREETING`]; from then on it may be silent for as long as it likes, but
//! what was begun, either way, must end within [`TRANSFER`].

use super::wire::{self, Cipher, NONCE_LENGTH, OVERHEAD};
use crate::config::Config;
use crate::config::console::Console;
use crate::control::listening::{Listening, Service};
use crate::control::news::News;
use crate::log;
use crate::stop::Stop;
use nix::sys::socket::{setsockopt, sockopt};
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};

/// How long nonces and the first message may take.
const GREETING: Duration = Duration::from_secs(5);

/// How long one message may take.
const TRANSFER: Duration = Duration::from_secs(60);

/// How long a connection is silent before the kernel asks whether its other end is there still, then how often, seconds, and
/// how many times in vain: a client that is gone without a word has its place for two minutes.
const KEEP_ALIVE_IDLE: u32 = 60;
const KEEP_ALIVE_EVERY: u32 = 10;
const KEEP_ALIVE_TIMES: u32 = 6;

/// How long accepting rests when the process is out of descriptors or memory.
const REST: Duration = Duration::from_millis(100);

/// The running instance, as the console sees it.
pub trait Commands: Send + Sync + 'static {
    /// The configuration of this moment.
    fn config(&self) -> Arc<Config>;

    /// Runs a command; what it printed and returned. It may take its time: never called on the threads that serve TCP.
    fn run(&self, command: &str) -> String;
}

/// Listens on `address`.
fn bind(address: SocketAddr) -> io::Result<std::net::TcpListener> {
    let listener = std::net::TcpListener::bind(address).map_err(|error| {
        let text = format!("console: cannot listen on {address}: {error}");
        io::Error::new(error.kind(), text)
    })?;
    listener.set_nonblocking(true)?;
    keep_alive(&listener)?;
    Ok(listener)
}

/// Connections have what their listener has (tcp(7): options that are set on a listening socket are those of what it accepts).
fn keep_alive(listener: &std::net::TcpListener) -> io::Result<()> {
    setsockopt(listener, sockopt::KeepAlive, &true)?;
    setsockopt(listener, sockopt::TcpKeepIdle, &KEEP_ALIVE_IDLE)?;
    setsockopt(listener, sockopt::TcpKeepInterval, &KEEP_ALIVE_EVERY)?;
    setsockopt(listener, sockopt::TcpKeepCount, &KEEP_ALIVE_TIMES)?;
    Ok(())
}

/// What binds it, before privileges are dropped and when a reload moves it.
pub const SERVICE: Service = Service {
    name: "console",
    bind,
};

/// Serves where the configuration of the moment says, until the stop is asked for. Must run within the asynchronous runtime.
pub async fn serve<C: Commands>(
    listening: Listening,
    commands: Arc<C>,
    (stop, news): (Stop, News),
) {
    let wanted = || commands.config().console.address;
    let accept = |listener| accept(listener, &commands, stop.clone());
    let until = (stop.clone(), news);
    listening.serve(SERVICE, wanted, accept, until).await;
}

async fn accept<C: Commands>(listener: std::net::TcpListener, commands: &Arc<C>, mut stop: Stop) {
    let listener = match TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => return log::error!("console: the runtime does not take it: {error}"),
    };
    let open = Arc::new(AtomicUsize::new(0));
    loop {
        let accepted = tokio::select! {
            () = stop.requested() => return,
            accepted = listener.accept() => accepted,
        };
        let Ok((stream, client)) = accepted else {
            sleep(REST).await;
            continue;
        };
        let config = commands.config();
        let place = match admit(&config.console, client, &open) {
            Ok(place) => place,
            Err(reason) => {
                log::warn!("Console connection refused"; client = client, reason = reason);
                continue;
            }
        };
        let (commands, stop) = (Arc::clone(commands), stop.clone());
        tokio::spawn(async move {
            talk(stream, client, commands, stop).await;
            drop(place);
        });
    }
}

/// One of the connections at a time.
struct Place(Arc<AtomicUsize>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

/// A place for the client, or why there is none.
fn admit(
    console: &Console,
    client: SocketAddr,
    open: &Arc<AtomicUsize>,
) -> Result<Place, &'static str> {
    if console.key.is_none() {
        return Err("there is no setKey");
    }
    if !console.acl.contains(client.ip().to_canonical()) {
        return Err("not in the ACL of the console");
    }
    let place = Place(Arc::clone(open));
    let before = open.fetch_add(1, Relaxed);
    match console.maximum_connections {
        0 => Ok(place),
        maximum if before < maximum => Ok(place),
        _ => Err("setConsoleMaximumConcurrentConnections"),
    }
}

async fn talk<C: Commands>(
    stream: TcpStream,
    client: SocketAddr,
    commands: Arc<C>,
    mut stop: Stop,
) {
    let logs = commands.config().console.log_connections;
    if logs {
        log::info!("Got console connection"; client = client);
    }
    let conversation = async {
        let mut talk = Talk::greet(stream, commands).await?;
        talk.go_on().await
    };
    let ended: io::Result<()> = tokio::select! {
        () = stop.requested() => Ok(()),
        ended = conversation => ended,
    };
    if !logs {
        return;
    }
    match ended {
        Err(error) if error.kind() != ErrorKind::UnexpectedEof => {
            log::info!("Closed console connection"; client = client, reason = error)
        }
        _ => log::info!("Closed console connection"; client = client),
    }
}

/// A conversation with a client that has shown that it knows the key.
struct Talk<C> {
    stream: TcpStream,
    cipher: Cipher,
    commands: Arc<C>,
}

impl<C: Commands> Talk<C> {
    /// Exchanges nonces and answers the first message.
    ///
    /// # Errors
    /// A connection to close, and why.
    async fn greet(mut stream: TcpStream, commands: Arc<C>) -> io::Result<Talk<C>> {
        // An answer is one write; it should not wait for the client's acknowledgement of the last one.
        stream.set_nodelay(true)?;
        let config = commands.config();
        let key = config.console.key.as_ref();
        let key = key.ok_or_else(|| closing("there is no setKey any more"))?;
        let own = wire::nonce()?;
        let greeting = async {
            stream.write_all(&own).await?;
            let mut theirs = [0; NONCE_LENGTH];
            stream.read_exact(&mut theirs).await?;
            let mut cipher = Cipher::new(key, &own, &theirs);
            let length = stream.read_u32().await?;
            let command = message(&mut stream, &mut cipher, length, &config.console).await?;
            Ok::<_, io::Error>((cipher, command))
        };
        let (cipher, command) = within(GREETING, greeting).await?;
        let mut talk = Talk {
            stream,
            cipher,
            commands,
        };
        talk.answer(command).await?;
        Ok(talk)
    }

    /// Until the client goes.
    async fn go_on(&mut self) -> io::Result<()> {
        loop {
            let length = self.stream.read_u32().await?;
            let config = self.commands.config();
            let reading = message(&mut self.stream, &mut self.cipher, length, &config.console);
            let command = within(TRANSFER, reading).await?;
            self.answer(command).await?;
        }
    }

    async fn answer(&mut self, command: Vec<u8>) -> io::Result<()> {
        let commands = Arc::clone(&self.commands);
        let run = move || commands.run(&String::from_utf8_lossy(&command));
        let answer = tokio::task::spawn_blocking(run).await;
        let answer =
            answer.unwrap_or_else(|_| "Error: the command has failed: see the log\n".to_owned());
        let maximum = self.commands.config().console.maximum_message_size as usize;
        let answer = if answer.len() + OVERHEAD > maximum {
            too_long(answer.len() + OVERHEAD, maximum)
        } else {
            answer
        };
        let message = self.cipher.seal(answer.as_bytes());
        within(TRANSFER, self.stream.write_all(&message)).await
    }
}

/// What is answered in place of an answer of so many bytes, which is too long.
pub fn too_long(length: usize, maximum: usize) -> String {
    format!(
        "Error: the answer takes {length} bytes, more than the {maximum} of setConsoleOutputMaxMsgSize\n"
    )
}

/// The text of a message of which the length has come.
async fn message(
    stream: &mut TcpStream,
    cipher: &mut Cipher,
    length: u32,
    console: &Console,
) -> io::Result<Vec<u8>> {
    let maximum = console.maximum_message_size;
    let smallest = OVERHEAD as u32;
    if !(smallest..=maximum.max(smallest)).contains(&length) {
        return Err(closing(&format!(
            "a message of {length} bytes, {smallest} to {maximum} expected"
        )));
    }
    // Grows with what has come, not with what was said to come.
    let mut sealed = Vec::new();
    let whole = stream.take(length.into()).read_to_end(&mut sealed).await?;
    if whole < length as usize {
        return Err(ErrorKind::UnexpectedEof.into());
    }
    let opened = cipher.open(&sealed);
    opened.map_err(|_| closing("a message that was not sealed with our key"))
}

async fn within<T>(time: Duration, work: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    let done = timeout(time, work).await;
    done.unwrap_or_else(|_| {
        Err(closing(&format!(
            "nothing whole came or went within {} s",
            time.as_secs()
        )))
    })
}

fn closing(reason: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, reason)
}

#[cfg(test)]
mod tests;
