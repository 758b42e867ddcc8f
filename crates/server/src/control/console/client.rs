//! The other end: what `millrace -c` and `-e` use. It speaks with dnsdist's console as well.

use super::wire::{self, Cipher, Key, NONCE_LENGTH, OVERHEAD};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;
use std::{error, fmt};

/// How long a connection may take to come about.
const CONNECT: Duration = Duration::from_secs(5);

/// How long the other end may take for its nonce: who sends none is stopped, or no console.
const SILENCE: Duration = Duration::from_secs(30);

/// Why there is no answer.
#[derive(Debug)]
pub enum ClientError {
    /// Nobody listens there, or nobody answers.
    NotReached(SocketAddr, io::Error),
    /// The connection ended before the first answer.
    Refused(SocketAddr),
    /// It ended, or broke, later.
    Broken(io::Error),
    /// A message that our key does not open.
    NotOurKey,
    /// So many bytes, more than setConsoleOutputMaxMsgSize.
    TooLong(u32, u32),
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClientError::NotReached(address, error) => {
                write!(f, "no console at {address}: {error}")
            }
            ClientError::Refused(address) => write!(
                f,
                "the console at {address} closed the connection: another key (setKey) than ours, an address outside its ACL (setConsoleACL), or too many connections"
            ),
            ClientError::Broken(error) => write!(f, "the connection to the console ended: {error}"),
            ClientError::NotOurKey => f.write_str(
                "the answer was sealed with another key: setKey must be the same on both sides",
            ),
            ClientError::TooLong(length, maximum) => write!(
                f,
                "the answer takes {length} bytes, more than the {maximum} of setConsoleOutputMaxMsgSize"
            ),
        }
    }
}

impl error::Error for ClientError {}

/// A connection to a console.
pub struct Connection {
    address: SocketAddr,
    stream: TcpStream,
    cipher: Cipher,
    /// The longest answer, in bytes.
    maximum: u32,
    has_answered: bool,
}

impl Connection {
    /// Connects and exchanges nonces. Whether the key is right the first answer tells.
    ///
    /// # Errors
    /// Why there is no connection.
    pub fn open(address: SocketAddr, key: &Key, maximum: u32) -> Result<Connection, ClientError> {
        let mut stream = TcpStream::connect_timeout(&address, CONNECT)
            .map_err(|error| ClientError::NotReached(address, error))?;
        let cipher = greet(&mut stream, key, SILENCE);
        let cipher = cipher.map_err(|error| ended(error, Some(address)))?;
        Ok(Connection {
            address,
            stream,
            cipher,
            maximum,
            has_answered: false,
        })
    }

    /// Runs a command there; what it printed and returned.
    ///
    /// # Errors
    /// Why there is no answer; the connection is of no use any more.
    pub fn ask(&mut self, command: &str) -> Result<String, ClientError> {
        let first = (!self.has_answered).then_some(self.address);
        let message = self.cipher.seal(command.as_bytes());
        let sent = self.stream.write_all(&message);
        sent.map_err(|error| ended(error, first))?;
        let sealed = self.read(first)?;
        let text = self.cipher.open(&sealed);
        let text = text.map_err(|_| ClientError::NotOurKey)?;
        self.has_answered = true;
        Ok(String::from_utf8_lossy(&text).into_owned())
    }

    fn read(&mut self, first: Option<SocketAddr>) -> Result<Vec<u8>, ClientError> {
        let mut length = [0; 4];
        let read = self.stream.read_exact(&mut length);
        read.map_err(|error| ended(error, first))?;
        let length = u32::from_be_bytes(length);
        if length > self.maximum.max(OVERHEAD as u32) {
            return Err(ClientError::TooLong(length, self.maximum));
        }
        let mut sealed = Vec::new();
        let read = (&mut self.stream)
            .take(length.into())
            .read_to_end(&mut sealed);
        match read {
            Ok(whole) if whole == length as usize => Ok(sealed),
            Ok(_) => Err(ClientError::Broken(ErrorKind::UnexpectedEof.into())),
            Err(error) => Err(ClientError::Broken(error)),
        }
    }
}

/// Exchanges nonces; the other end's must come within `patience`.
fn greet(stream: &mut TcpStream, key: &Key, patience: Duration) -> io::Result<Cipher> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(patience))?;
    let own = wire::nonce()?;
    stream.write_all(&own)?;
    let mut theirs = [0; NONCE_LENGTH];
    stream.read_exact(&mut theirs)?;
    // An answer comes when its command has ended, and those before it.
    stream.set_read_timeout(None)?;
    Ok(Cipher::new(key, &own, &theirs))
}

/// Who is closed before the first answer was not let in; where no nonce came there is no console.
fn ended(error: io::Error, first: Option<SocketAddr>) -> ClientError {
    match (error.kind(), first) {
        (ErrorKind::WouldBlock, Some(address)) => {
            let text = format!("nothing came within {} s", SILENCE.as_secs());
            let error = io::Error::new(ErrorKind::TimedOut, text);
            ClientError::NotReached(address, error)
        }
        (
            ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe,
            Some(address),
        ) => ClientError::Refused(address),
        _ => ClientError::Broken(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    /// The kernel makes the connection for a process that was stopped, and for any other server.
    #[test]
    fn who_sends_no_nonce_is_no_console() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let mut stream = TcpStream::connect(address).unwrap();
        let key = Key::random().unwrap();
        let Err(error) = greet(&mut stream, &key, Duration::from_millis(10)) else {
            panic!("nobody has greeted");
        };
        let text = ended(error, Some(address)).to_string();
        let expected = format!("no console at {address}: nothing came within 30 s");
        assert_eq!(text, expected);
    }
}
