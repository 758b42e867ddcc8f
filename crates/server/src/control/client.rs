//! The other end of the control socket: what `millrace reload` and its sisters use.

use super::protocol::{REPLY_MAX, REPLY_WITHIN, Reply, Request, TRANSFER, named};
use nix::sys::socket::{self, AddressFamily, SockFlag, SockType, UnixAddr, setsockopt, sockopt};
use nix::sys::time::{TimeVal, TimeValLike};
use serde_json::Value;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fmt, io};

/// Why there is no result.
#[derive(Debug)]
pub enum ClientError {
    /// Nobody listens at the path.
    NotRunning(PathBuf),
    /// The path is there, but not for us.
    Denied(PathBuf),
    /// What was tried, where, and the kernel's reason.
    System(&'static str, PathBuf, io::Error),
    /// What has not come to its end in this time, and where.
    Late(&'static str, PathBuf, Duration),
    /// Nobody has accepted the connection in this time.
    Full(PathBuf, Duration),
    /// What came is no reply: another version, or something else listens there.
    Malformed(PathBuf),
    /// The reply takes more octets than this.
    TooLong(PathBuf, u64),
    /// The instance's own words.
    Refused(String),
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClientError::NotRunning(path) => write!(
                f,
                "{}: no instance listens there; is it running, or with another --control PATH?",
                named(path)
            ),
            ClientError::Denied(path) => write!(
                f,
                "{}: permission denied: root and the group of the service may use it",
                named(path)
            ),
            ClientError::System(what, path, error) => write!(f, "{}: {what}: {error}", named(path)),
            ClientError::Late(what, path, limit) => write!(
                f,
                "{}: {what} within {} s: the instance is busy (a reload reads its zones?) or hangs: its log says what it does \
                 (journalctl -u millrace), `systemctl status millrace` how it is; what was asked for may be done later all the same",
                named(path),
                limit.as_secs()
            ),
            ClientError::Full(path, limit) => write!(
                f,
                "{}: no place within {} s, nothing was asked for: as many commands as it takes are under way or wait \
                 (`ss -xp` shows whose), or the instance hangs: its log says what it does (journalctl -u millrace)",
                named(path),
                limit.as_secs()
            ),
            ClientError::TooLong(path, most) => write!(
                f,
                "{}: the reply takes more than {most} bytes: ask for fewer things at a time (`millrace zone status ZONE`)",
                named(path)
            ),
            ClientError::Malformed(path) => {
                write!(f, "{}: what came is not a reply", named(path))
            }
            ClientError::Refused(reason) => f.write_str(reason),
        }
    }
}

impl std::error::Error for ClientError {}

impl ClientError {
    /// What reading or writing has failed with; `limit` is the time that it had. A time-out of a socket is EAGAIN (socket(7),
    /// SO_RCVTIMEO).
    fn of_transfer(what: &'static str, path: &Path, limit: Duration, error: io::Error) -> Self {
        match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => {
                ClientError::Late(what, path.to_owned(), limit)
            }
            _ => ClientError::System(what, path.to_owned(), error),
        }
    }
}

/// Asks the instance that listens at `path`.
///
/// # Errors
/// Why there is no result.
pub fn request(path: &Path, request: &Request) -> Result<Value, ClientError> {
    open(path, request).map(|(value, _)| value)
}

/// Asks the instance that listens at `path`, and gives what follows its reply.
///
/// # Errors
/// Why there is no result.
pub fn open(path: &Path, request: &Request) -> Result<(Value, BufReader<UnixStream>), ClientError> {
    let system = |what| move |error| ClientError::System(what, path.to_owned(), error);
    let mut stream = connect(path, REPLY_WITHIN).map_err(|error| match error.kind() {
        ErrorKind::NotFound | ErrorKind::ConnectionRefused => {
            ClientError::NotRunning(path.to_owned())
        }
        ErrorKind::PermissionDenied => ClientError::Denied(path.to_owned()),
        ErrorKind::WouldBlock => ClientError::Full(path.to_owned(), REPLY_WITHIN),
        _ => ClientError::System("cannot connect", path.to_owned(), error),
    })?;
    let limits = stream.set_read_timeout(Some(REPLY_WITHIN));
    limits
        .and_then(|()| stream.set_write_timeout(Some(TRANSFER)))
        .map_err(system("cannot set time-outs"))?;
    let mut line = serde_json::to_string(request).expect("a request is JSON");
    line.push('\n');
    stream.write_all(line.as_bytes()).map_err(|error| {
        ClientError::of_transfer("cannot send the request", path, TRANSFER, error)
    })?;
    let mut reader = BufReader::new(stream);
    let value = reply(&mut reader, path, REPLY_MAX)?;
    Ok((value, reader))
}

/// Connects, if there is a place within `limit`: an instance that accepts nobody has a queue, and who comes when that is full
/// waits for as long as SO_SNDTIMEO says (socket(7)).
fn connect(path: &Path, limit: Duration) -> io::Result<UnixStream> {
    let flags = SockFlag::SOCK_CLOEXEC;
    let socket = socket::socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
    let limit = TimeVal::microseconds(limit.as_micros() as i64);
    setsockopt(&socket, sockopt::SendTimeout, &limit)?;
    socket::connect(socket.as_raw_fd(), &UnixAddr::new(path)?)?;
    Ok(UnixStream::from(socket))
}

/// The reply that comes, of fewer than `most` octets.
fn reply(reader: &mut impl BufRead, path: &Path, most: u64) -> Result<Value, ClientError> {
    let mut line = String::new();
    let late = |error| ClientError::of_transfer("no reply", path, REPLY_WITHIN, error);
    let length = reader.take(most).read_line(&mut line).map_err(late)?;
    match serde_json::from_str(&line) {
        Ok(Reply::Result(value)) => Ok(value),
        Ok(Reply::Error(reason)) => Err(ClientError::Refused(reason)),
        Err(_) if length as u64 == most => Err(ClientError::TooLong(path.to_owned(), most)),
        Err(_) => Err(ClientError::Malformed(path.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::at_path::PathSocket;

    #[test]
    fn a_queue_that_is_full_is_not_waited_for_without_end() {
        let directory = tempfile::TempDir::new().unwrap();
        let path = directory.path().join("control");
        let _socket = PathSocket::bind(&path, 0).unwrap();
        let mut waiting = Vec::new();
        let error = loop {
            match connect(&path, Duration::from_millis(1)) {
                Ok(stream) => waiting.push(stream),
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind(), ErrorKind::WouldBlock, "{error}");
        let said = ClientError::Full(path, REPLY_WITHIN).to_string();
        assert!(said.contains("no place within 75 s"), "{said}");
    }

    #[test]
    fn a_reply_that_is_too_long_is_told_apart_from_what_is_none() {
        let path = Path::new("/run/millrace/control");
        let read = |text: &str, most| reply(&mut text.as_bytes(), path, most);
        let text = "{\"result\":7}\n";
        assert_eq!(read(text, 13).unwrap(), 7);
        let long = read(text, 5).unwrap_err();
        assert!(matches!(long, ClientError::TooLong(_, 5)), "{long}");
        let none = read("HTTP/1.1 400\n", 50).unwrap_err();
        assert!(matches!(none, ClientError::Malformed(_)), "{none}");
    }

    #[test]
    fn a_reply_that_does_not_come_is_told_with_its_time() {
        let (mut ours, _theirs) = UnixStream::pair().unwrap();
        let limit = Duration::from_millis(1);
        ours.set_read_timeout(Some(limit)).unwrap();
        let error = ours.read(&mut [0]).unwrap_err();
        let path = Path::new("/run/millrace/control");
        let said = ClientError::of_transfer("no reply", path, REPLY_WITHIN, error).to_string();
        assert!(said.contains("no reply within 75 s: "), "{said}");
        assert!(said.contains("journalctl"), "{said}");
        let gone = ErrorKind::ConnectionReset.into();
        let other = ClientError::of_transfer("no reply", path, REPLY_WITHIN, gone);
        assert!(matches!(other, ClientError::System(..)), "{other}");
    }
}
