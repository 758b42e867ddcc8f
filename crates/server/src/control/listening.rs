//! What listens beside DNS: the web server and the console, which a reload may move, and whose sockets a process that
//! succeeds this one takes over.
//!
//! ```text
//!  start, reload: bind ─▶ give ─▶ [opened] ─▶ serve: accept until another address is wanted ─▶ [serving] ─▶ duplicates
//! ```

use super::news::News;
use crate::log;
use crate::stop::Stop;
use std::collections::HashMap;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Who listens.
#[derive(Debug, Clone, Copy)]
pub struct Service {
    pub name: &'static str,
    /// Listens on an address; the error tells it.
    pub bind: fn(SocketAddr) -> io::Result<TcpListener>,
}

impl Service {
    /// The socket for `new`, where `old` is something else; none where the old one must be closed first, and
    /// [`Listening::serve`] binds it then.
    ///
    /// # Errors
    /// What the kernel says, with the address.
    pub fn open(
        self,
        old: Option<SocketAddr>,
        new: Option<SocketAddr>,
    ) -> io::Result<Option<TcpListener>> {
        let Some(new) = new.filter(|_| old != new) else {
            return Ok(None);
        };
        match old {
            Some(old) if are_in_each_others_way(old, new) => Ok(None),
            _ => (self.bind)(new).map(Some),
        }
    }
}

fn are_in_each_others_way(old: SocketAddr, new: SocketAddr) -> bool {
    let is_any = old.ip().is_unspecified() || new.ip().is_unspecified();
    old.port() == new.port() && (is_any || old.ip() == new.ip())
}

/// The sockets of all of them, by their names.
#[derive(Debug, Clone, Default)]
pub struct Listening(Arc<Mutex<Sockets>>);

#[derive(Debug, Default)]
struct Sockets {
    /// Bound while there were privileges for it, or before a reload took effect.
    opened: HashMap<&'static str, TcpListener>,
    /// What listens now.
    serving: HashMap<&'static str, OwnedFd>,
}

impl Listening {
    /// The socket that `service` goes on with when it looks next.
    pub fn give(&self, service: Service, listener: Option<TcpListener>) {
        match listener {
            Some(listener) => self.all().opened.insert(service.name, listener),
            None => self.all().opened.remove(service.name),
        };
    }

    /// Has `accept` serve where the configuration of the moment wants it, until the stop is asked for.
    pub async fn serve<F: Future<Output = ()>>(
        &self,
        service: Service,
        wanted: impl Fn() -> Option<SocketAddr>,
        accept: impl Fn(TcpListener) -> F,
        (stop, mut news): (Stop, News),
    ) {
        // Why there is no listener: said once.
        let mut said: Option<String> = None;
        while !stop.is_requested() {
            let address = wanted();
            let opened = self.all().opened.remove(service.name);
            let bound = match (opened, address) {
                (Some(listener), _) => Ok(Some(listener)),
                (None, address) => address.map(service.bind).transpose(),
            };
            self.set(service, bound.as_ref().ok().and_then(Option::as_ref));
            let failure = bound.as_ref().err().map(ToString::to_string);
            if let Some(error) = failure.as_ref().filter(|_| failure != said) {
                log::error!("{error}");
            }
            said = failure;
            let serving = async {
                match bound {
                    Ok(Some(listener)) => accept(listener).await,
                    Ok(None) | Err(_) => stop.clone().requested().await,
                }
            };
            let unchanged = said.is_none().then_some(address);
            tokio::select! {
                () = serving => {}
                () = another(unchanged, &wanted, &mut news) => {}
            }
        }
    }

    /// From now on `service` listens by this socket, or by none.
    fn set(&self, service: Service, listener: Option<&impl AsFd>) {
        // Without a duplicate the next process finds the address in use, and says so.
        let duplicate = listener.and_then(|listener| listener.as_fd().try_clone_to_owned().ok());
        match duplicate {
            Some(duplicate) => self.all().serving.insert(service.name, duplicate),
            None => self.all().serving.remove(service.name),
        };
    }

    /// Duplicates of all that listen.
    ///
    /// # Errors
    /// No descriptors left.
    pub fn duplicates(&self) -> io::Result<Vec<OwnedFd>> {
        let all = self.all();
        all.serving.values().map(OwnedFd::try_clone).collect()
    }

    fn all(&self) -> MutexGuard<'_, Sockets> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Waits until the configuration wants another address than `unchanged`; where that could not be had (`None`), until there is
/// any other configuration: it is tried again then.
async fn another(
    unchanged: Option<Option<SocketAddr>>,
    wanted: &impl Fn() -> Option<SocketAddr>,
    news: &mut News,
) {
    let Some(address) = unchanged else {
        return news.heard().await;
    };
    while wanted() == address {
        news.heard().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVICE: Service = Service {
        name: "test",
        bind: |address| TcpListener::bind(address),
    };

    #[test]
    fn what_is_new_is_opened_before_it_is_wanted() {
        // An address that other tests take no ports of.
        let taken = TcpListener::bind("127.0.0.79:0").unwrap();
        let new = taken.local_addr().unwrap();
        let old = SocketAddr::new("127.0.0.80".parse().unwrap(), new.port());
        assert!(SERVICE.open(Some(old), Some(new)).is_err());
        assert!(SERVICE.open(None, Some(new)).is_err());
        // The same, nothing, and what the old one keeps from it until it has closed.
        let any = SocketAddr::new("0.0.0.0".parse().unwrap(), new.port());
        for (old, new) in [
            (Some(new), Some(new)),
            (Some(new), None),
            (Some(new), Some(any)),
            (Some(any), Some(new)),
        ] {
            assert!(SERVICE.open(old, new).unwrap().is_none());
        }
        drop(taken);
        let opened = SERVICE.open(Some(old), Some(new)).unwrap().unwrap();
        assert_eq!(opened.local_addr().unwrap(), new);
    }
}
