//! UNIX stream sockets that are bound to paths: that of our own commands, and those of listeners.
//!
//! A file outlives the process that bound it. One that nobody listens at is replaced; where somebody listens, or where there is
//! something else than a socket, nothing is touched (invariant I12).

use nix::sys::socket::{self, AddressFamily, Backlog, SockFlag, SockType, UnixAddr};
use nix::unistd::Gid;
use std::fmt;
use std::fs::{self, File, Permissions, TryLockError};
use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// Only the owner and the group may connect: connect(2) asks for "write permission on the socket file".
pub(crate) const MODE: u32 = 0o660;

/// How long a folder may be locked by whoever binds a socket there at the same time.
const PATIENCE: Duration = Duration::from_secs(5);

/// How often it is tried: flock(2) knows no time limit.
const AGAIN: Duration = Duration::from_millis(5);

/// Why nobody can be served at a path.
#[derive(Debug)]
pub enum PathError {
    /// Somebody listens there.
    InUse,
    /// There is a file that is no socket: it is not ours to remove.
    NotASocket,
    NoFolder(PathBuf),
    /// Somebody has locked it, and does not let go.
    Locked(PathBuf),
    /// What was tried, and the kernel's reason.
    System(&'static str, io::Error),
}

impl fmt::Display for PathError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PathError::InUse => f.write_str("another process listens there"),
            PathError::NotASocket => {
                f.write_str("there is a file that is no socket: remove it, or name another path")
            }
            PathError::NoFolder(folder) => write!(
                f,
                "there is no folder {}: make it, for the user that millrace runs as to write to",
                folder.display()
            ),
            PathError::Locked(folder) => write!(
                f,
                "its folder {} is locked by a process, as one is that keeps zones (millrace.setStateDirectory): name a path in \
                 another folder",
                folder.display()
            ),
            PathError::System(what, error) => write!(f, "{what}: {error}"),
        }
    }
}

impl std::error::Error for PathError {}

fn system(what: &'static str) -> impl FnOnce(io::Error) -> PathError {
    move |error| PathError::System(what, error)
}

/// A socket that listens at a path, and does not wait.
#[derive(Debug)]
pub struct PathSocket {
    pub listener: UnixListener,
    pub path: Arc<Path>,
    /// Device and inode of the file: what somebody else has put there since is not ours to remove.
    file: (u64, u64),
}

impl PathSocket {
    /// Listens at `path`, with so many connections that wait to be accepted.
    ///
    /// # Errors
    /// See [`PathError`]; nothing has changed then.
    pub fn bind(path: &Path, queue: u32) -> Result<PathSocket, PathError> {
        let folder = match path.parent() {
            Some(parent) if parent != Path::new("") => parent,
            _ => Path::new("."),
        };
        if !folder.is_dir() {
            return Err(PathError::NoFolder(folder.to_owned()));
        }
        // Of two that start at once the second looks when the first has bound.
        let _lock = locked(folder, PATIENCE)?;
        clear(path)?;
        let listener = listen(path, queue).map_err(system("cannot listen"))?;
        PathSocket::of(listener, path).map_err(system("cannot look at it"))
    }

    /// The socket that another process has bound to this path.
    ///
    /// # Errors
    /// The file is gone, or is no socket: nobody can connect to it.
    pub fn inherit(listener: UnixListener, path: &Path) -> io::Result<PathSocket> {
        if !fs::symlink_metadata(path)?.file_type().is_socket() {
            return Err(io::Error::other("its file is no socket any more"));
        }
        listener.set_nonblocking(true)?;
        PathSocket::of(listener, path)
    }

    fn of(listener: UnixListener, path: &Path) -> io::Result<PathSocket> {
        Ok(PathSocket {
            file: identity(path)?,
            listener,
            path: path.into(),
        })
    }

    /// Whether its file is at the path still: else nobody can connect.
    pub fn is_there(&self) -> bool {
        identity(&self.path).is_ok_and(|file| file == self.file)
    }

    /// Lets the group of the service connect too.
    ///
    /// # Errors
    /// What the kernel says: only root and members may give it away.
    pub fn give_to(&self, group: Gid) -> Result<(), PathError> {
        let given = nix::unistd::chown(&*self.path, None, Some(group));
        given.map_err(|error| system("cannot give it to the group")(error.into()))
    }

    /// Takes its file away, if it is at the path still.
    pub fn remove(&self) {
        if self.is_there() {
            // It may be in a folder that we can no longer write to: the next one to listen there removes it.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// The folder, locked as long as it is open.
fn locked(folder: &Path, patience: Duration) -> Result<File, PathError> {
    let file = File::open(folder).map_err(system("cannot open its folder"))?;
    let began = Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::Error(error)) => return Err(system("cannot lock its folder")(error)),
            Err(TryLockError::WouldBlock) if began.elapsed() < patience => thread::sleep(AGAIN),
            Err(TryLockError::WouldBlock) => return Err(PathError::Locked(folder.to_owned())),
        }
    }
}

/// Device and inode of the file at a path.
pub(crate) fn identity(path: &Path) -> io::Result<(u64, u64)> {
    fs::symlink_metadata(path).map(|file| (file.dev(), file.ino()))
}

/// bind(2), chmod(2), listen(2), in this order: nobody can connect before listen, so nobody is faster than the mode.
fn listen(path: &Path, queue: u32) -> io::Result<UnixListener> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let socket = socket::socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
    socket::bind(socket.as_raw_fd(), &UnixAddr::new(path)?)?;
    fs::set_permissions(path, Permissions::from_mode(MODE))?;
    let backlog = i32::try_from(queue).unwrap_or(i32::MAX);
    socket::listen(&socket, Backlog::new(backlog).unwrap_or(Backlog::MAXCONN))?;
    Ok(UnixListener::from(socket))
}

/// Removes the socket of a process that is no more.
fn clear(path: &Path) -> Result<(), PathError> {
    let file = match fs::symlink_metadata(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(system("cannot look at it")(error)),
    };
    if !file.file_type().is_socket() {
        return Err(PathError::NotASocket);
    }
    match probe(path) {
        // connect(2) on a socket file: refused when nobody listens.
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
            fs::remove_file(path).map_err(system("cannot remove what a former process left"))
        }
        Err(error) if error.kind() != ErrorKind::WouldBlock => {
            Err(system("cannot tell whether somebody listens")(error))
        }
        _ => Err(PathError::InUse),
    }
}

/// Without waiting: a queue that is full is somebody's.
fn probe(path: &Path) -> io::Result<()> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let socket = socket::socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
    Ok(socket::connect(socket.as_raw_fd(), &UnixAddr::new(path)?)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As a state directory is, for as long as its process runs.
    #[test]
    fn a_folder_that_stays_locked_is_an_error_and_not_waited_for() {
        let folder = tempfile::tempdir().expect("a folder");
        let held = File::open(folder.path()).expect("it is there");
        held.lock().expect("nobody has it");
        let refused = locked(folder.path(), Duration::from_millis(20));
        let error = refused.expect_err("it is held").to_string();
        assert!(error.contains("is locked by a process"), "{error}");
        drop(held);
        let socket = PathSocket::bind(&folder.path().join("dns.sock"), 1);
        assert!(socket.expect("it is free").is_there());
    }
}
