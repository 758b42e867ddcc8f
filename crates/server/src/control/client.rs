//! The other end of the control socket: what `millrace reload` and its sisters use.

use super::protocol::{REPLY_MAX, REPLY_WITHIN, Reply, Request, TRANSFER, named};
use serde_json::Value;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
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
    /// What came is no reply: another version, or something else listens there.
    Malformed(PathBuf),
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
    let mut stream = UnixStream::connect(path).map_err(|error| match error.kind() {
        ErrorKind::NotFound | ErrorKind::ConnectionRefused => {
            ClientError::NotRunning(path.to_owned())
        }
        ErrorKind::PermissionDenied => ClientError::Denied(path.to_owned()),
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
    let mut reply = String::new();
    let mut reader = BufReader::new(stream);
    let mut line = reader.by_ref().take(REPLY_MAX);
    line.read_line(&mut reply)
        .map_err(|error| ClientError::of_transfer("no reply", path, REPLY_WITHIN, error))?;
    match serde_json::from_str(&reply) {
        Ok(Reply::Result(value)) => Ok((value, reader)),
        Ok(Reply::Error(reason)) => Err(ClientError::Refused(reason)),
        Err(_) => Err(ClientError::Malformed(path.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
