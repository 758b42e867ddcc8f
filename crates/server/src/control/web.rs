//! The built-in web server: `webserver(address)` and `setWebserverConfig` of dnsdist's dialect. Serves `/metrics`.
//!
//! Connections from outside the ACL are closed unread. A connection carries one request (dnsdist says `Connection: close`
//! too) and lives for [`LIFETIME`] at most; there are [`CONNECTIONS`] at a time.

use super::credentials::may_read_statistics;
use super::metrics::Metrics;
use crate::config::Webserver;
use crate::log;
use crate::stop::Stop;
use axum::Router;
use axum::extract::connect_info::{ConnectInfo, Connected};
use axum::extract::{Request, State};
use axum::http::header::{CONNECTION, CONTENT_TYPE, HeaderName, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::serve::{IncomingStream, Listener};
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
use tokio::time::{MissedTickBehavior, Sleep, interval, sleep};

/// Connections at a time; dnsdist's default of maxConcurrentConnections.
const CONNECTIONS: usize = 100;

/// How long a connection may take for its request and the answer, however slowly it speaks.
const LIFETIME: Duration = Duration::from_secs(30);

/// How long accepting rests when the process is out of descriptors or memory.
const REST: Duration = Duration::from_millis(100);

/// Listens on `address`; to be called before privileges are dropped.
///
/// # Errors
/// What the kernel says, with the address.
pub fn bind(address: SocketAddr) -> io::Result<std::net::TcpListener> {
    let listener = std::net::TcpListener::bind(address).map_err(|error| {
        let text = format!("web server: cannot listen on {address}: {error}");
        io::Error::new(error.kind(), text)
    })?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Serves where the configuration of the moment says, until the stop is asked for; then requests under way are finished.
/// Begins with the listener that was bound while there were privileges for it. Must run within the asynchronous runtime.
pub async fn serve(mut listener: Option<std::net::TcpListener>, metrics: Arc<Metrics>, stop: Stop) {
    while !stop.is_requested() {
        let address = wanted(&metrics);
        let bound = match (listener.take(), address) {
            (Some(listener), _) => Ok(Some(listener)),
            (None, Some(address)) => bind(address).map(Some),
            (None, None) => Ok(None),
        };
        let serving = async {
            match bound {
                Ok(Some(listener)) => serve_at(listener, &metrics, stop.clone()).await,
                Ok(None) => stop.clone().requested().await,
                Err(error) => {
                    log::error!("{error}");
                    stop.clone().requested().await;
                }
            }
        };
        tokio::select! {
            () = serving => {}
            () = another(address, &metrics) => {}
        }
    }
}

/// Where the configuration wants a web server.
fn wanted(metrics: &Metrics) -> Option<SocketAddr> {
    let config = metrics.config();
    config.webserver.as_ref().map(|webserver| webserver.address)
}

async fn serve_at(listener: std::net::TcpListener, metrics: &Arc<Metrics>, mut stop: Stop) {
    let listener = match TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => return log::error!("web server: the runtime does not take it: {error}"),
    };
    let door = Door {
        listener,
        metrics: Arc::clone(metrics),
        places: Arc::new(Semaphore::new(CONNECTIONS)),
    };
    let pages = router(Arc::clone(metrics)).into_make_service_with_connect_info::<Client>();
    let stopped = async move { stop.requested().await };
    // It ends with the stop and never with an error (axum's documentation of Serve).
    let _ = axum::serve(door, pages)
        .with_graceful_shutdown(stopped)
        .await;
}

/// Waits until the configuration wants another address than `address`. Meanwhile moves average latencies on, once a
/// second.
async fn another(address: Option<SocketAddr>, metrics: &Metrics) {
    let mut seconds = interval(Duration::from_secs(1));
    seconds.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while wanted(metrics) == address {
        seconds.tick().await;
        metrics.sample();
    }
}

// ---------------------------------------------------------------------------------------------- pages

/// All that is served. `/jsonstat` and `/api/v1/servers/localhost` belong here.
fn router(metrics: Arc<Metrics>) -> Router {
    Router::new()
        .route("/metrics", get(show_metrics))
        .layer(middleware::from_fn(with_headers))
        .with_state(metrics)
}

async fn show_metrics(
    State(metrics): State<Arc<Metrics>>,
    ConnectInfo(Client(client)): ConnectInfo<Client>,
    headers: HeaderMap,
) -> Response {
    let config = metrics.config();
    let Some(webserver) = &config.webserver else {
        return StatusCode::NOT_FOUND.into_response();
    };
    if !may_read_statistics(webserver, client.ip(), &headers) {
        return unauthorized();
    }
    // Kind and version of the text, as scrapers ask for it.
    let kind = [(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")];
    (kind, metrics.text()).into_response()
}

fn unauthorized() -> Response {
    let challenge = [(WWW_AUTHENTICATE, "Basic realm=\"millrace\"")];
    (StatusCode::UNAUTHORIZED, challenge, "Unauthorized\n").into_response()
}

/// dnsdist's headers for browsers, on every page.
async fn with_headers(request: Request, next: Next) -> Response {
    const HEADERS: [(HeaderName, HeaderValue); 6] = [
        (
            HeaderName::from_static("content-security-policy"),
            HeaderValue::from_static("default-src 'self'; style-src 'self' 'unsafe-inline'"),
        ),
        (
            HeaderName::from_static("x-content-type-options"),
            HeaderValue::from_static("nosniff"),
        ),
        (
            HeaderName::from_static("x-frame-options"),
            HeaderValue::from_static("deny"),
        ),
        (
            HeaderName::from_static("x-permitted-cross-domain-policies"),
            HeaderValue::from_static("none"),
        ),
        (
            HeaderName::from_static("x-xss-protection"),
            HeaderValue::from_static("1; mode=block"),
        ),
        (CONNECTION, HeaderValue::from_static("close")),
    ];
    let mut response = next.run(request).await;
    response.headers_mut().extend(HEADERS);
    response
}

// ---------------------------------------------------------------------------------------------- connections

/// The listening socket, with those turned away whom the ACL does not let in.
struct Door {
    listener: TcpListener,
    metrics: Arc<Metrics>,
    places: Arc<Semaphore>,
}

impl Door {
    fn lets_in(&self, client: IpAddr) -> bool {
        let config = self.metrics.config();
        let webserver = config.webserver.as_ref();
        webserver.is_some_and(|webserver| in_acl(webserver, client))
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
            let Ok(place) = Arc::clone(&self.places).acquire_owned().await else {
                unreachable!("the semaphore is never closed");
            };
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
