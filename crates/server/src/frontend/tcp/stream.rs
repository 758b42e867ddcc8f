//! What carries DNS as TCP does: its own connections, and those to UNIX stream sockets.

use crate::config::{LocalAddress, named};
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

/// Who asks by a connection, and what he came by.
pub(super) struct Ends {
    pub(super) client: SocketAddr,
    pub(super) address: LocalAddress,
}

/// Where connections come from.
pub(super) trait Listener: Send + Sync + 'static {
    type Stream: Stream;

    /// The next one.
    fn next(&self) -> impl Future<Output = io::Result<(Self::Stream, Ends)>> + Send;
}

/// A connection.
pub(super) trait Stream: Send + 'static {
    type Reader: AsyncRead + Unpin + Send + 'static;
    type Writer: AsyncWrite + Unpin + Send + 'static;

    /// Its two halves, ready for short messages; whoever drops the second one has said all.
    fn halves(self) -> (Self::Reader, Self::Writer);
}

impl Listener for TcpListener {
    type Stream = TcpStream;

    async fn next(&self) -> io::Result<(TcpStream, Ends)> {
        let (stream, client) = self.accept().await?;
        // A stream whose client is gone already has no local address.
        let gone = |_| io::ErrorKind::ConnectionAborted;
        let address = LocalAddress::Ip(stream.local_addr().map_err(gone)?);
        Ok((stream, Ends { client, address }))
    }
}

impl Stream for TcpStream {
    type Reader = tokio::net::tcp::OwnedReadHalf;
    type Writer = tokio::net::tcp::OwnedWriteHalf;

    fn halves(self) -> (Self::Reader, Self::Writer) {
        // Small answers must not wait for acknowledgements of others.
        let _ = self.set_nodelay(true);
        self.into_split()
    }
}

/// A UNIX stream socket that was bound to a path.
pub(super) struct AtPath {
    pub(super) listener: UnixListener,
    pub(super) path: Arc<Path>,
}

impl Listener for AtPath {
    type Stream = UnixStream;

    async fn next(&self) -> io::Result<(UnixStream, Ends)> {
        let (stream, _) = self.listener.accept().await?;
        let ends = Ends {
            client: named::END,
            address: LocalAddress::Path(Arc::clone(&self.path)),
        };
        Ok((stream, ends))
    }
}

impl Stream for UnixStream {
    type Reader = tokio::net::unix::OwnedReadHalf;
    type Writer = tokio::net::unix::OwnedWriteHalf;

    fn halves(self) -> (Self::Reader, Self::Writer) {
        self.into_split()
    }
}

/// A reader whose reads are counted: setMaxTCPReadIOsPerQuery.
pub(super) struct Counted<R> {
    reader: R,
    /// Since the query before this one was there as a whole.
    reads: u32,
    /// How many there may be; 0 is no limit.
    maximum: u32,
}

impl<R> Counted<R> {
    pub(super) fn new(reader: R, maximum: u32) -> Counted<R> {
        Counted {
            reader,
            reads: 0,
            maximum,
        }
    }

    /// A query is there: what is read from now on is of the next one.
    pub(super) fn begin(&mut self) {
        self.reads = 0;
    }

    /// No query is waited for any more.
    pub(super) fn count_no_more(&mut self) {
        self.maximum = 0;
    }

    /// Whether a query took more reads than it may.
    pub(super) fn is_exhausted(&self) -> bool {
        self.maximum > 0 && self.reads > self.maximum
    }
}

impl<R: AsyncRead + Unpin> AsyncRead for Counted<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.reader).poll_read(context, buffer);
        if read.is_ready() && buffer.filled().len() > before {
            self.reads = self.reads.saturating_add(1);
        }
        if self.is_exhausted() {
            let text = "the query came in too many pieces";
            return Poll::Ready(Err(io::Error::other(text)));
        }
        read
    }
}
