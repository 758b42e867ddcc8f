//! The built-in web server: `webserver(address)` and `setWebserverConfig` of dnsdist's dialect.
//!
//! Connections from outside the ACL are closed unread. A connection carries one request (dnsdist says `Connection: close`
//! too) and lives for [`LIFETIME`] at most; there are `maxConcurrentConnections` at a time.
//!
//! ```text
//!  Door (ACL, places) ─▶ with_headers ─▶ admit (password, key) ─▶ a page
//! ```

mod admission;
mod api;
mod custom;
mod json;
mod objects;
mod pages;

use super::metrics::Metrics;
use super::socket::Commands;
use crate::config::{Config, Webserver};
use crate::control::listening::{Listening, Service};
use crate::control::news::News;
use crate::log;
use crate::stop::Stop;
use axum::extract::connect_info::Connected;
use axum::serve::{IncomingStream, Listener};
use pages::{Site, router};
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Sleep, sleep, timeout};

/// How long a connection may take for its request and the answer, however slowly it speaks.
const LIFETIME: Duration = Duration::from_secs(30);

/// How long accepting rests when the process is out of descriptors or memory.
const REST: Duration = Duration::from_millis(100);

/// How often those who wait for a place look whether a reload has made more.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Listens on `address`.
fn bind(address: SocketAddr) -> io::Result<std::net::TcpListener> {
    let listener = std::net::TcpListener::bind(address).map_err(|error| {
        let text = format!("web server: cannot listen on {address}: {error}");
        io::Error::new(error.kind(), text)
    })?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// What binds it, before privileges are dropped and when a reload moves it.
pub const SERVICE: Service = Service { name: "web", bind };

/// Serves where the configuration of the moment says, until the stop is asked for; then requests under way are finished.
/// Must run within the asynchronous runtime.
pub async fn serve(
    listening: Listening,
    metrics: Arc<Metrics>,
    commands: Arc<dyn Commands>,
    (stop, news): (Stop, News),
) {
    let site = Site { metrics, commands };
    let wanted = || address(&site.metrics.config());
    let accept = |listener| serve_at(listener, &site, stop.clone());
    let until = (stop.clone(), news);
    listening.serve(SERVICE, wanted, accept, until).await;
}

/// Where a configuration wants a web server.
pub fn address(config: &Config) -> Option<SocketAddr> {
    let webserver = config.webserver.as_ref();
    webserver.map(|webserver| webserver.address)
}

async fn serve_at(listener: std::net::TcpListener, site: &Site, mut stop: Stop) {
    let listener = match TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => return log::error!("web server: the runtime does not take it: {error}"),
    };
    let door = Door {
        listener,
        metrics: Arc::clone(&site.metrics),
        places: Places::default(),
    };
    let pages = router(site.clone()).into_make_service_with_connect_info::<Client>();
    let stopped = async move { stop.requested().await };
    // It ends with the stop and never with an error (axum's documentation of Serve).
    let _ = axum::serve(door, pages)
        .with_graceful_shutdown(stopped)
        .await;
}

// ---------------------------------------------------------------------------------------------- connections

/// The listening socket, with those turned away whom the ACL does not let in.
struct Door {
    listener: TcpListener,
    metrics: Arc<Metrics>,
    places: Places,
}

impl Door {
    /// A place for one more connection, as soon as there is one.
    async fn place(&mut self) -> OwnedSemaphorePermit {
        loop {
            let config = self.metrics.config();
            let webserver = config.webserver.as_ref();
            let wanted = webserver.map_or(0, |webserver| webserver.options.maximum_connections);
            self.places.resize(wanted);
            let place = Arc::clone(&self.places.free).acquire_owned();
            // All may be taken while a reload makes more of them.
            if let Ok(place) = timeout(LOOK_AGAIN, place).await {
                return place.expect("the semaphore is never closed");
            }
        }
    }

    fn lets_in(&self, client: IpAddr) -> bool {
        let config = self.metrics.config();
        let webserver = config.webserver.as_ref();
        webserver.is_some_and(|webserver| in_acl(webserver, client))
    }
}

/// Places for connections, whose number a reload may change.
struct Places {
    free: Arc<Semaphore>,
    /// Free ones and those that connections have.
    all: usize,
}

impl Default for Places {
    fn default() -> Places {
        Places {
            free: Arc::new(Semaphore::new(0)),
            all: 0,
        }
    }
}

impl Places {
    /// From now on there are `wanted`; 0 is no limit. Fewer only as connections end.
    fn resize(&mut self, wanted: usize) {
        let wanted = match wanted {
            0 => Semaphore::MAX_PERMITS,
            wanted => wanted.min(Semaphore::MAX_PERMITS),
        };
        if wanted > self.all {
            self.free.add_permits(wanted - self.all);
            self.all = wanted;
        } else {
            self.all -= self.free.forget_permits(self.all - wanted);
        }
    }
}

fn in_acl(webserver: &Webserver, client: IpAddr) -> bool {
    webserver.acl.contains(client.to_canonical())
}

impl Listener for Door {
    type Io = Connection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Connection, SocketAddr) {
        loop {
            let place = self.place().await;
            match self.listener.accept().await {
                Ok((stream, client)) if self.lets_in(client.ip()) => {
                    return (Connection::new(stream, place), client);
                }
                Ok(_) => {}
                Err(_) => sleep(REST).await,
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// The client's address, as the pages get it.
#[derive(Debug, Clone, Copy)]
struct Client(SocketAddr);

impl Connected<IncomingStream<'_, Door>> for Client {
    fn connect_info(stream: IncomingStream<'_, Door>) -> Client {
        Client(*stream.remote_addr())
    }
}

/// A stream that ends after [`LIFETIME`], so that slow clients cannot take all places for good.
struct Connection {
    stream: TcpStream,
    end: Pin<Box<Sleep>>,
    _place: OwnedSemaphorePermit,
}

impl Connection {
    fn new(stream: TcpStream, place: OwnedSemaphorePermit) -> Connection {
        Connection {
            stream,
            end: Box::pin(sleep(LIFETIME)),
            _place: place,
        }
    }

    /// Fails once the time is over; until then the task is woken when it is.
    fn check(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        match self.end.as_mut().poll(context) {
            Poll::Ready(()) => Err(io::ErrorKind::TimedOut.into()),
            Poll::Pending => Ok(()),
        }
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.check(context)?;
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.check(context)?;
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests;
