//! What a backend does with a query: the actions of a rule, one after the other.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use nix::sys::socket::{setsockopt, sockopt};

use super::backend::{Shared, State};
use super::model::{BackendAction, BackendRule, Reply};

/// Where an answer goes.
pub(super) enum Way<'a> {
    Udp(SocketAddr),
    Tcp(&'a TcpStream),
}

impl Shared {
    /// Does what the rule says, in order. `None` means that the connection is at its end.
    pub(super) fn act(&self, rule: &BackendRule, query: &[u8], way: &Way<'_>) -> Option<()> {
        for action in &rule.actions {
            match (action, way) {
                (BackendAction::Reply(reply), _) => {
                    self.reply(reply, query, way)?;
                    self.count_sent(rule, reply.times.into());
                }
                (BackendAction::Raw { with_id, octets }, _) => {
                    let id = if *with_id { &query[..2] } else { &[] };
                    self.send(&[id, octets].concat(), way, None)?;
                    self.count_sent(rule, 1);
                }
                (BackendAction::Wait(time), _) => self.wait(*time),
                (BackendAction::Hold(name), _) => self.hold(name),
                (BackendAction::Close, Way::Tcp(stream)) => {
                    let _ = stream.shutdown(Shutdown::Both);
                    return None;
                }
                (BackendAction::HalfClose, Way::Tcp(stream)) => {
                    stream.shutdown(Shutdown::Write).ok()?;
                }
                (BackendAction::Reset, Way::Tcp(stream)) => return reset(stream),
                (
                    BackendAction::Close | BackendAction::HalfClose | BackendAction::Reset,
                    Way::Udp(_),
                ) => {}
                (BackendAction::Hang, _) => self.wait(Duration::from_secs(3600)),
            }
        }
        Some(())
    }

    fn reply(&self, reply: &Reply, query: &[u8], way: &Way<'_>) -> Option<()> {
        let octets = reply.octets(query);
        for _ in 0..reply.times {
            match (reply.drip, way) {
                (Some(pause), Way::Tcp(stream)) => self.drip(&octets, stream, pause)?,
                _ => self.send(&octets, way, reply.source)?,
            }
        }
        Some(())
    }

    fn send(&self, octets: &[u8], way: &Way<'_>, source: Option<SocketAddr>) -> Option<()> {
        match way {
            Way::Udp(peer) => {
                let socket = source
                    .and_then(|source| self.others.get(&source))
                    .unwrap_or(&self.udp);
                socket.send_to(octets, peer).ok().map(drop)
            }
            Way::Tcp(stream) => write_message(stream, octets),
        }
    }

    fn drip(&self, octets: &[u8], mut stream: &TcpStream, pause: Duration) -> Option<()> {
        let length = (octets.len() as u16).to_be_bytes();
        for octet in length.iter().chain(octets) {
            stream.write_all(&[*octet]).ok()?;
            self.wait(pause);
        }
        Some(())
    }

    /// Lets time pass, but not beyond the backend's own end.
    fn wait(&self, time: Duration) {
        let state = self.lock();
        drop(
            self.changed
                .wait_timeout_while(state, time, |state| !state.stopping)
                .expect("no backend panics"),
        );
    }

    /// Awaits the step that releases what is held under this name, but not beyond the backend's own end.
    fn hold(&self, name: &str) {
        let is_held = |state: &mut State| !state.stopping && !state.released.contains(name);
        let waited = self.changed.wait_while(self.lock(), is_held);
        drop(waited.expect("no backend panics"));
    }

    fn count_sent(&self, rule: &BackendRule, times: usize) {
        if !rule.probe {
            self.lock().sent += times;
            self.changed.notify_all();
        }
    }
}

/// Reads one message after its two octets of length (RFC 1035 section 4.2.2).
pub(super) fn read_message(mut stream: &TcpStream) -> Option<Vec<u8>> {
    let mut length = [0; 2];
    stream.read_exact(&mut length).ok()?;
    let mut octets = vec![0; usize::from(u16::from_be_bytes(length))];
    stream.read_exact(&mut octets).ok()?;
    Some(octets)
}

/// The header of the PROXY protocol that a connection begins with; `None`: it begins otherwise.
pub(super) fn read_front(mut stream: &TcpStream) -> Option<Vec<u8>> {
    let mut front = vec![0; 16];
    stream.read_exact(&mut front).ok()?;
    let rest = u16::from_be_bytes([front[14], front[15]]);
    front.resize(16 + usize::from(rest), 0);
    stream.read_exact(&mut front[16..]).ok()?;
    front.starts_with(PROXY_SIGNATURE).then_some(front)
}

/// Where the message begins behind the header of the PROXY protocol; `None`: there is none.
pub(super) fn front_length(octets: &[u8]) -> Option<usize> {
    let fixed: &[u8; 16] = octets.first_chunk()?;
    let length = 16 + usize::from(u16::from_be_bytes([fixed[14], fixed[15]]));
    (fixed.starts_with(PROXY_SIGNATURE) && length <= octets.len()).then_some(length)
}

/// "The PROXY protocol", section 2.2.
const PROXY_SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";

/// What stands in front of a health check: the command LOCAL, and no address.
pub(super) const PROXY_LOCAL: &[u8] = b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0";

fn write_message(mut stream: &TcpStream, octets: &[u8]) -> Option<()> {
    let length = (octets.len() as u16).to_be_bytes();
    stream.write_all(&[length.as_slice(), octets].concat()).ok()
}

/// Closes with a reset: nothing lingers, so the kernel sends RST instead of FIN.
fn reset(stream: &TcpStream) -> Option<()> {
    let none = nix::libc::linger {
        l_onoff: 1,
        l_linger: 0,
    };
    let _ = setsockopt(stream, sockopt::Linger, &none);
    None
}
