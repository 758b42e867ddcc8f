//! What carries DNS as TCP does: its own connections, and those to UNIX stream sockets.

use crate::config::{LocalAddress, named};
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite};
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
