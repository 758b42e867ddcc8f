//! Listeners at paths: clients of this host connect to their files. A file goes with its socket, unless another process has been
//! given it, or has given it to us for a time.

use super::tcp::Counters;
use crate::at_path::{PathError, PathSocket};
use crate::config::LocalAddress;
use arc_swap::ArcSwap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

/// Whose the file of a socket is that has come from elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    /// Ours, as soon as the process before this one lets go of it.
    Successor,
    /// Somebody else's for good: systemd's, of a socket unit.
    Other,
}

/// A listener at a path.
#[derive(Debug)]
pub struct NamedSocket {
    pub socket: PathSocket,
    /// What its connections did.
    pub connections: Arc<Counters>,
    /// Whose it is where it came from elsewhere.
    owner: Option<Owner>,
    /// The file goes with this.
    is_ours: AtomicBool,
}

impl NamedSocket {
    /// Listens at `path`, with so many connections that wait to be accepted.
    ///
    /// # Errors
    /// See [`PathError`]; nothing has changed then.
    pub fn bind(path: &Path, queue: u32) -> Result<NamedSocket, PathError> {
        PathSocket::bind(path, queue).map(|socket| NamedSocket::of(socket, None))
    }

    /// The socket that another process has bound to this path.
    ///
    /// # Errors
    /// See [`PathSocket::inherit`].
    pub fn inherit(path: &Path, listener: UnixListener, owner: Owner) -> io::Result<NamedSocket> {
        let socket = PathSocket::inherit(listener, path)?;
        Ok(NamedSocket::of(socket, Some(owner)))
    }

    fn of(socket: PathSocket, owner: Option<Owner>) -> NamedSocket {
        NamedSocket {
            socket,
            connections: Arc::default(),
            owner,
            is_ours: AtomicBool::new(owner.is_none()),
        }
    }

    pub fn address(&self) -> LocalAddress {
        LocalAddress::Path(Arc::clone(&self.socket.path))
    }

    /// Whether a process that succeeds this one has the file from then on.
    pub fn is_handed_on(&self) -> bool {
        self.owner != Some(Owner::Other)
    }

    /// The socket, for another process.
    ///
    /// # Errors
    /// No descriptors left.
    pub fn duplicate(&self) -> io::Result<OwnedFd> {
        self.socket.listener.as_fd().try_clone_to_owned()
    }
}

impl Drop for NamedSocket {
    fn drop(&mut self) {
        if self.is_ours.load(Relaxed) {
            self.socket.remove();
        }
    }
}

// ---------------------------------------------------------------------------------------------- all of them

/// All sockets at paths.
#[derive(Default)]
pub struct NamedSockets {
    serving: ArcSwap<Vec<Arc<NamedSocket>>>,
    /// Those of the process before this one that nobody is served at any more: their files go when it has ended.
    leaving: Mutex<Vec<NamedSocket>>,
}

impl NamedSockets {
    pub fn all(&self) -> Arc<Vec<Arc<NamedSocket>>> {
        self.serving.load_full()
    }

    /// The one at `path`.
    pub fn at(&self, path: &Path) -> Option<Arc<NamedSocket>> {
        let all = self.serving.load();
        all.iter()
            .find(|named| *named.socket.path == *path)
            .cloned()
    }

    pub fn replace(&self, sockets: Vec<Arc<NamedSocket>>) {
        self.serving.store(Arc::new(sockets));
    }

    /// Nobody is served at this one any more, once its process has ended.
    pub fn leave(&self, socket: NamedSocket) {
        self.leaving().push(socket);
    }

    /// From now on the files are another process's.
    pub fn give(&self) {
        for socket in self.all().iter() {
            socket.is_ours.store(false, Relaxed);
        }
    }

    /// The process before this one has let go: its files are ours, and those of sockets that do not serve any more go.
    pub fn take(&self) {
        let leaving = std::mem::take(&mut *self.leaving());
        let all = self.all();
        for socket in all.iter().map(|socket| &**socket).chain(&leaving) {
            if socket.is_handed_on() {
                socket.is_ours.store(true, Relaxed);
            }
        }
    }

    /// Nobody is served any more: files that are ours go.
    pub fn close(&self) {
        self.replace(Vec::new());
    }

    fn leaving(&self) -> std::sync::MutexGuard<'_, Vec<NamedSocket>> {
        self.leaving.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::{UnixDatagram, UnixStream};

    const QUEUE: u32 = 16;

    fn folder() -> (tempfile::TempDir, Arc<Path>) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("dns.sock").into();
        (folder, path)
    }

    fn refusal(path: &Arc<Path>) -> String {
        NamedSocket::bind(path, QUEUE).unwrap_err().to_string()
    }

    #[test]
    fn a_socket_is_for_owner_and_group_and_its_file_goes_with_it() {
        let (_folder, path) = folder();
        let socket = NamedSocket::bind(&path, QUEUE).unwrap();
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o660);
        assert!(UnixStream::connect(&path).is_ok());
        drop(socket);
        assert!(!path.exists());
    }

    #[test]
    fn where_somebody_listens_nothing_is_touched() {
        let (_folder, path) = folder();
        let _first = NamedSocket::bind(&path, QUEUE).unwrap();
        assert_eq!(refusal(&path), "another process listens there");
        assert!(UnixStream::connect(&path).is_ok());
    }

    #[test]
    fn what_nobody_listens_at_is_replaced() {
        let (_folder, path) = folder();
        drop(UnixListener::bind(&path).unwrap());
        assert!(path.exists(), "std leaves the file");
        let _socket = NamedSocket::bind(&path, QUEUE).unwrap();
        assert!(UnixStream::connect(&path).is_ok());
    }

    #[test]
    fn other_files_and_sockets_are_left_alone() {
        let (folder, path) = folder();
        fs::write(&path, "of value").unwrap();
        assert!(refusal(&path).starts_with("there is a file that is no socket: "));
        assert_eq!(fs::read(&path).unwrap(), b"of value");
        let path: Arc<Path> = folder.path().join("datagrams").into();
        let _datagrams = UnixDatagram::bind(&path).unwrap();
        let refusal = refusal(&path);
        assert!(
            refusal.starts_with("cannot tell whether somebody listens: "),
            "{refusal}"
        );
        assert!(path.exists());
    }

    #[test]
    fn what_is_not_there_is_named() {
        let (folder, _) = folder();
        let missing = folder.path().join("missing");
        let expected = format!("there is no folder {}: ", missing.display());
        let refusal = refusal(&missing.join("dns.sock").into());
        assert!(refusal.starts_with(&expected), "{refusal}");
        assert!(!missing.exists());
    }

    #[test]
    fn what_somebody_else_has_put_there_stays() {
        let (_folder, path) = folder();
        let socket = NamedSocket::bind(&path, QUEUE).unwrap();
        fs::remove_file(&path).unwrap();
        fs::write(&path, "somebody else's").unwrap();
        drop(socket);
        assert!(path.exists());
    }

    #[test]
    fn a_socket_that_is_handed_on_keeps_its_file_until_the_last_process_ends() {
        let (_folder, path) = folder();
        let (old, new) = (NamedSockets::default(), NamedSockets::default());
        old.replace(vec![Arc::new(NamedSocket::bind(&path, QUEUE).unwrap())]);
        let socket = old.at(&path).unwrap().duplicate().unwrap();
        let inherited = NamedSocket::inherit(&path, socket.into(), Owner::Successor).unwrap();
        new.replace(vec![Arc::new(inherited)]);
        // A successor that fails takes nothing with it.
        let copy = old.at(&path).unwrap().duplicate().unwrap();
        drop(NamedSocket::inherit(&path, copy.into(), Owner::Successor).unwrap());
        assert!(path.exists());
        old.give();
        new.take();
        old.close();
        assert!(path.exists());
        new.close();
        assert!(!path.exists());
    }

    #[test]
    fn a_path_that_is_not_served_any_more_goes_with_the_process_that_did() {
        let (_folder, path) = folder();
        let (old, new) = (NamedSockets::default(), NamedSockets::default());
        old.replace(vec![Arc::new(NamedSocket::bind(&path, QUEUE).unwrap())]);
        let socket = old.at(&path).unwrap().duplicate().unwrap();
        new.leave(NamedSocket::inherit(&path, socket.into(), Owner::Successor).unwrap());
        old.give();
        old.close();
        assert!(path.exists());
        new.take();
        assert!(!path.exists());
    }

    #[test]
    fn the_file_of_a_socket_unit_stays() {
        let (_folder, path) = folder();
        let listener = UnixListener::bind(&path).unwrap();
        let sockets = NamedSockets::default();
        let inherited = NamedSocket::inherit(&path, listener, Owner::Other).unwrap();
        sockets.replace(vec![Arc::new(inherited)]);
        sockets.take();
        sockets.close();
        assert!(path.exists());
    }
}
