//! The control socket: where `millrace reload` and its sisters reach the running instance. See [`super::protocol`].
//!
//! Root and the group of the service may write to it (mode 0660). A second start on the same path is refused and touches
//! nothing of the first (invariant I12); a file that a killed instance left is replaced.

use super::metrics::Metrics;
use super::mirror;
use super::protocol::{ExplainRequest, REQUEST_MAX, Reply, Request, TRANSFER, named, parse};
use super::reading;
use crate::at_path::{PathError, PathSocket};
use crate::clock::Now;
use crate::frontend::tap::Tap;
use crate::local::{Local, Order};
use crate::network::status::Status;
use crate::pipeline::acl::Netmask;
use crate::pipeline::explain::{Supposed, explain};
use crate::random::Random;
use crate::stop::Stop;
use nix::unistd::Gid;
use serde::Serialize;
use serde_json::{Map, Value as Json};
use std::fs;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixListener as Listener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};
use tokio::time::timeout;
use wire::codes::parse_qtype;

/// Requests under way at a time; operators send them by hand.
const CONNECTIONS: usize = 16;

/// Mirrors at a time. They stay open for as long as somebody looks, and have none of the places of requests that come and go.
const MIRRORS: usize = 16;

/// Readings of zones at a time, which take as long as their clients do.
const READINGS: usize = 16;

/// What the instance does when it is asked.
pub trait Commands: Send + Sync {
    /// Reads the configuration anew and serves by it; the lines to print. May take its time.
    ///
    /// # Errors
    /// Why nothing was changed.
    fn reload(&self) -> Result<Vec<String>, String>;

    /// Has a new process of the program take over; the lines to print, once it serves.
    ///
    /// # Errors
    /// Why this one serves on.
    fn restart(&self) -> Result<Vec<String>, String>;

    fn xdp_status(&self) -> Status;

    /// From now on these may ask, until the next reload.
    ///
    /// # Errors
    /// Why nothing was changed.
    fn set_acl(&self, acl: Vec<Netmask>) -> Result<(), String>;

    /// From now on workers copy packets of this interface into the tap, until its other end is closed.
    ///
    /// # Errors
    /// AF_XDP is not in use there.
    fn tap(&self, interface: &str, tap: Tap) -> Result<(), String>;

    /// A tap's other end was closed.
    fn untap(&self);
}

/// Why there is no control socket.
#[derive(Debug)]
pub enum SocketError {
    /// Somebody listens there.
    InUse(PathBuf),
    /// There is a file that is no socket: it is not ours to remove.
    NotASocket(PathBuf),
    /// What was tried, where, and the kernel's reason.
    System(&'static str, PathBuf, io::Error),
}

impl std::fmt::Display for SocketError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            SocketError::InUse(path) => write!(
                f,
                "{}: another instance listens there; --control PATH names another place",
                named(path)
            ),
            SocketError::NotASocket(path) => write!(
                f,
                "{}: there is a file that is no socket; remove it, or name another place with --control PATH",
                named(path)
            ),
            SocketError::System(what, path, error) => write!(f, "{}: {what}: {error}", named(path)),
        }
    }
}

impl std::error::Error for SocketError {}

impl SocketError {
    fn of(path: &Path, error: PathError) -> SocketError {
        let path = path.to_owned();
        match error {
            PathError::InUse => SocketError::InUse(path),
            PathError::NotASocket => SocketError::NotASocket(path),
            PathError::NoFolder(_) => {
                SocketError::System("it has no folder", path, ErrorKind::NotFound.into())
            }
            PathError::Locked(_) => {
                SocketError::System("cannot listen", path, io::Error::other(error))
            }
            PathError::System(what, error) => SocketError::System(what, path, error),
        }
    }
}

/// The bound socket, whose file goes with it.
#[derive(Debug)]
pub struct ControlSocket {
    socket: PathSocket,
    estate: Estate,
}

/// The control socket for a process that succeeds this one, which listens there for as long as both run.
#[derive(Debug, Clone)]
pub struct Estate {
    listener: Arc<Listener>,
    path: Arc<Path>,
    is_given: Arc<AtomicBool>,
}

impl Estate {
    /// The listener, and where it is.
    pub fn parts(&self) -> (BorrowedFd<'_>, &Path) {
        (self.listener.as_fd(), &self.path)
    }

    /// From now on the file is another process's.
    pub fn give(&self) {
        self.is_given.store(true, Relaxed);
    }

    /// From now on the file is ours, and goes with us.
    pub fn take(&self) {
        self.is_given.store(false, Relaxed);
    }
}

impl ControlSocket {
    fn of(socket: PathSocket) -> io::Result<ControlSocket> {
        let estate = Estate {
            listener: Arc::new(socket.listener.try_clone()?),
            path: Arc::clone(&socket.path),
            is_given: Arc::default(),
        };
        Ok(ControlSocket { socket, estate })
    }

    /// The socket that another process has bound to this path, and listens at still: the file is its own until
    /// [`Estate::take`].
    ///
    /// # Errors
    /// The file is gone.
    pub fn inherit(listener: OwnedFd, path: &Path) -> io::Result<ControlSocket> {
        let socket = ControlSocket::of(PathSocket::inherit(listener.into(), path)?)?;
        socket.estate.give();
        Ok(socket)
    }

    /// What it takes to leave it to another process.
    pub fn estate(&self) -> Estate {
        self.estate.clone()
    }

    /// Lets the group of the service use it too.
    ///
    /// # Errors
    /// What the kernel says: only root and members may give it away.
    pub fn give_to(&self, group: Gid) -> Result<(), SocketError> {
        let given = self.socket.give_to(group);
        given.map_err(|error| SocketError::of(&self.socket.path, error))
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        if !self.estate.is_given.load(Relaxed) {
            self.socket.remove();
        }
    }
}

// ---------------------------------------------------------------------------------------------- bind

/// Listens at `path`; to be called before privileges are dropped.
///
/// # Errors
/// See [`SocketError`]; nothing has changed then.
pub fn bind(path: &Path) -> Result<ControlSocket, SocketError> {
    let system = |what| move |error| SocketError::System(what, path.to_owned(), error);
    if let Some(folder) = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty())
        && !folder.exists()
    {
        fs::create_dir(folder).map_err(system("cannot make its folder"))?;
    }
    let socket = PathSocket::bind(path, CONNECTIONS as u32);
    let socket = socket.map_err(|error| SocketError::of(path, error))?;
    ControlSocket::of(socket).map_err(system("cannot share it"))
}

// ---------------------------------------------------------------------------------------------- serve

/// What answers.
struct Desk {
    commands: Arc<dyn Commands>,
    metrics: Arc<Metrics>,
    mirrors: Semaphore,
    readings: Semaphore,
}

/// Answers requests until the stop is asked for; those under way are finished. Must run within the asynchronous runtime.
///
/// # Errors
/// When the runtime does not take the listener.
pub async fn serve(
    socket: ControlSocket,
    commands: Arc<dyn Commands>,
    metrics: Arc<Metrics>,
    mut stop: Stop,
) -> io::Result<()> {
    let listener = UnixListener::from_std(socket.socket.listener.try_clone()?)?;
    let desk = Arc::new(Desk::new(commands, metrics));
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    accept(&listener, &desk, &places, &mut stop).await;
    Ok(())
}

async fn accept(
    listener: &UnixListener,
    desk: &Arc<Desk>,
    places: &Arc<Semaphore>,
    stop: &mut Stop,
) {
    loop {
        let (stream, place) = tokio::select! {
            () = stop.requested() => return,
            accepted = next(listener, places) => accepted,
        };
        let (desk, mut stop) = (Arc::clone(desk), stop.clone());
        tokio::spawn(async move {
            answer(stream, place, &desk, &mut stop).await;
            drop(stop);
        });
    }
}

/// The next connection, as soon as there is a place for it.
async fn next(
    listener: &UnixListener,
    places: &Arc<Semaphore>,
) -> (UnixStream, OwnedSemaphorePermit) {
    let place = Arc::clone(places).acquire_owned().await;
    let place = place.expect("the semaphore is never closed");
    loop {
        match listener.accept().await {
            Ok((stream, _)) => return (stream, place),
            // Out of descriptors or memory: others end meanwhile.
            Err(_) => tokio::time::sleep(TRANSFER / 50).await,
        }
    }
}

/// Answers one request in its `place`, which what is streamed leaves to others. A stream that finds no room is answered like
/// any other request: by [`Desk::act`].
async fn answer(
    stream: UnixStream,
    place: OwnedSemaphorePermit,
    desk: &Arc<Desk>,
    stop: &mut Stop,
) {
    let (reader, mut writer) = stream.into_split();
    let mut reader = BufReader::new(reader).take(REQUEST_MAX as u64);
    let mut line = String::new();
    let read = timeout(TRANSFER, reader.read_line(&mut line)).await;
    let asked = parse(&line).ok().filter(|_| matches!(read, Ok(Ok(_))));
    let room = asked.as_ref().and_then(|asked| desk.room_for(asked));
    match (asked, room) {
        (Some(Request::Mirror(asked)), Some(_room)) => {
            drop(place);
            let connection = (reader.into_inner().into_inner(), writer);
            return mirror::serve(asked, connection, &*desk.commands, stop).await;
        }
        (Some(Request::ZoneRead(asked)), Some(_room)) => {
            drop(place);
            return reading::serve(&asked, writer, &desk.local()).await;
        }
        _ => {}
    }
    let reply = match read {
        Ok(Ok(0)) => return,
        Ok(Ok(_)) if line.ends_with('\n') => desk.reply(&line).await,
        Ok(Ok(REQUEST_MAX)) => {
            Reply::Error(format!("the request is longer than {REQUEST_MAX} bytes"))
        }
        Ok(Ok(_)) => Reply::Error("the request does not end with a line feed".to_owned()),
        Ok(Err(error)) => Reply::Error(format!("the request cannot be read: {error}")),
        Err(_) => Reply::Error(format!("no request came within {} s", TRANSFER.as_secs())),
    };
    // Whoever does not read the reply has gone.
    let _ = timeout(TRANSFER, async {
        writer.write_all(reply.line().as_bytes()).await?;
        writer.shutdown().await?;
        // Closing with something unread would take the reply back.
        reader.set_limit(REQUEST_MAX as u64);
        tokio::io::copy(&mut reader, &mut tokio::io::sink()).await
    })
    .await;
}

impl Desk {
    fn new(commands: Arc<dyn Commands>, metrics: Arc<Metrics>) -> Desk {
        Desk {
            commands,
            metrics,
            mirrors: Semaphore::new(MIRRORS),
            readings: Semaphore::new(READINGS),
        }
    }

    /// Room for what is streamed; `None`: there is none left, or the request is answered at once.
    fn room_for(&self, asked: &Request) -> Option<SemaphorePermit<'_>> {
        match asked {
            Request::Mirror(_) => self.mirrors.try_acquire().ok(),
            Request::ZoneRead(_) => self.readings.try_acquire().ok(),
            _ => None,
        }
    }

    async fn reply(self: &Arc<Desk>, line: &str) -> Reply {
        let request = match parse(line) {
            Ok(request) => request,
            Err(reason) => return Reply::Error(reason),
        };
        // A reload runs Lua, the others read files: not on the threads that serve TCP.
        let desk = Arc::clone(self);
        let done = tokio::task::spawn_blocking(move || desk.act(request)).await;
        done.unwrap_or_else(|_| Reply::Error("the command has failed: see the log".to_owned()))
    }

    fn act(&self, request: Request) -> Reply {
        match request {
            Request::Version => Reply::of(crate::version()),
            Request::Stats => Reply::of(self.statistics()),
            Request::XdpStatus => Reply::of(self.commands.xdp_status()),
            Request::Reload => lines(self.commands.reload()),
            Request::Restart => lines(self.commands.restart()),
            Request::Explain(asked) => lines(self.explain(&asked)),
            Request::ZoneStatus { zones } => lines(self.local().status(&zones)),
            Request::ZoneReload { zones } => self.begin(&zones, &Order::Reload),
            Request::ZoneRefresh { zones } => self.begin(&zones, &Order::Refresh),
            Request::ZoneRetransfer { zones } => self.begin(&zones, &Order::Retransfer),
            Request::ZoneNotify { zones } => self.begin(&zones, &Order::Notify),
            Request::ZoneFreeze { zones } => self.begin(&zones, &Order::Freeze),
            Request::ZoneThaw { zones } => self.begin(&zones, &Order::Thaw),
            Request::ZoneXfrFreeze { zones } => self.begin(&zones, &Order::Withhold(true)),
            Request::ZoneXfrThaw { zones } => self.begin(&zones, &Order::Withhold(false)),
            Request::ZoneFlush { zones, to } => self.begin(&zones, &Order::Flush(to)),
            Request::ZoneBackup { zones, backup } => self.begin(&zones, &Order::Backup(backup)),
            Request::ZoneRestore { zones, backup } => self.begin(&zones, &Order::Restore(backup)),
            Request::ZonePurge { zone } => self.begin(&[zone], &Order::Purge),
            // Answered by streams, where there is room: see `answer`.
            Request::Mirror(_) => Reply::Error(format!(
                "{MIRRORS} mirrors are open, and no more at a time: end another `millrace mirror` first"
            )),
            Request::ZoneRead(_) => Reply::Error(format!(
                "{READINGS} zones are being read, and no more at a time: try again when another `millrace zone read` has ended"
            )),
        }
    }

    fn begin(&self, zones: &[String], order: &Order) -> Reply {
        lines(self.local().begin(zones, order))
    }

    fn explain(&self, asked: &ExplainRequest) -> Result<Vec<String>, String> {
        let supposed = Supposed {
            name: asked
                .name
                .parse()
                .map_err(|error| format!("{}: {error}", asked.name))?,
            qtype: parse_qtype(&asked.qtype)
                .ok_or_else(|| format!("{}: a type (AAAA, TYPE28) expected", asked.qtype))?,
            from: asked.from,
            to: asked.to,
            over_tcp: asked.tcp,
        };
        let mut random = Random::from_kernel().map_err(|error| error.to_string())?;
        explain(&self.metrics.config(), &supposed, Now::read(), &mut random)
    }

    fn local(&self) -> Arc<Local> {
        Arc::clone(&self.metrics.config().local)
    }

    fn statistics(&self) -> Map<String, Json> {
        let statistics = self.metrics.statistics().into_iter();
        statistics
            .map(|(name, value)| (name, value.into()))
            .collect()
    }
}

fn lines<T: Serialize>(outcome: Result<Vec<T>, String>) -> Reply {
    match outcome {
        Ok(lines) => Reply::of(lines),
        Err(reason) => Reply::Error(reason),
    }
}

#[cfg(test)]
mod tests;
