//! Addresses that another process has when the service starts: who has them is said, and for how long they are waited for.
//!
//! It is looked for before anything else is touched. A service manager starts what has failed anew, ten times a second by the
//! package's unit: programs would be attached and detached as often, which resets the rings of many network cards.

use super::listeners::bind_directly;
use crate::config::Config;
use crate::frontend::inherited::Inherited;
use crate::frontend::listeners;
use crate::log;
use crate::network::holders;
use crate::notify;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::time::{Duration, Instant};

/// How long all addresses together are waited for. Whoever was told to end for this process has ended by then: dnsdist ends
/// within 5 s of SIGTERM, this program within 4.5 s.
const PATIENCE: Duration = Duration::from_secs(10);

/// How often an address is tried: it is served so soon after the other process has let go.
const EVERY: Duration = Duration::from_millis(100);

/// Awaits that listeners, web server and console can have their addresses; those of `inherited` sockets are ours already, and
/// sockets that no listener can use are closed. Only under a service manager does it wait at all: who starts the program by hand
/// is told at once, and so is a process that this one is to succeed.
///
/// # Errors
/// Which address is in use, by whom, and how long it was tried. Whatever else is wrong with an address is left to the start.
pub(super) fn await_free(
    config: &Config,
    inherited: &mut Inherited,
    succeeds: bool,
) -> Result<(), String> {
    let patience = match notify::is_heard() && !succeeds {
        true => PATIENCE,
        false => Duration::ZERO,
    };
    let wait = Wait::of(patience);
    for listener in &config.listeners {
        let address = listener.address;
        if !inherited.has_udp(address, listener.interface.as_deref()) {
            if inherited.close(address) {
                log::notice!("{address}: kept sockets of another interface, or of TCP alone, go");
            }
            wait.until_free(address, || listeners::probe(listener, &bind_directly))?;
        }
    }
    let web = config.webserver.as_ref().map(|web| web.address);
    let ours = inherited.left();
    for address in web.into_iter().chain(config.console.address) {
        if !ours.contains(&address) {
            wait.until_free(address, || TcpListener::bind(address).map(drop))?;
        }
    }
    Ok(())
}

struct Wait {
    patience: Duration,
    until: Instant,
}

impl Wait {
    fn of(patience: Duration) -> Wait {
        Wait {
            patience,
            until: Instant::now() + patience,
        }
    }

    fn until_free(
        &self,
        address: SocketAddr,
        mut probe: impl FnMut() -> io::Result<()>,
    ) -> Result<(), String> {
        let mut has_waited = false;
        while let Err(error) = probe() {
            if error.kind() != io::ErrorKind::AddrInUse {
                break;
            }
            if self.until <= Instant::now() {
                return Err(self.refusal(address, &error));
            }
            if !has_waited {
                self.say(address);
            }
            has_waited = true;
            std::thread::sleep(EVERY);
        }
        if has_waited {
            log::notice!("{address} is free: the start goes on");
        }
        Ok(())
    }

    fn refusal(&self, address: SocketAddr, error: &io::Error) -> String {
        let holders = holders::of(address);
        let tried = match self.patience.as_secs() {
            0 => String::new(),
            seconds => format!("; tried for {seconds} s"),
        };
        format!("cannot serve {address}: {error}: {holders}{tried}")
    }

    /// To the log, and to whoever asks for the status of the service.
    fn say(&self, address: SocketAddr) {
        let holders = holders::of(address);
        let seconds = self.patience.as_secs();
        let line = format!(
            "{address} is in use, by {holders}: it is tried for {seconds} s, then this start fails"
        );
        log::warn!("{line}");
        notify::status(&line);
    }
}

/// Why an address is not served, and what that takes: a privilege, or the address itself.
pub(super) fn cannot_serve(address: SocketAddr, error: &io::Error) -> String {
    let needs = match error.kind() {
        io::ErrorKind::PermissionDenied if address.port() < 1_024 => {
            ": ports below 1,024 take root, or CAP_NET_BIND_SERVICE"
        }
        io::ErrorKind::AddrNotAvailable => {
            ": no interface has this address; `ip address` shows those there are"
        }
        _ => "",
    };
    format!("cannot serve {address}: {error}{needs}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;
    use testnet::loopback::own_port;

    fn somebody() -> (SocketAddr, UdpSocket) {
        let address = SocketAddr::from(([127, 0, 0, 1], own_port()));
        (address, UdpSocket::bind(address).expect("a socket"))
    }

    fn bound(address: SocketAddr) -> io::Result<()> {
        UdpSocket::bind(address).map(drop)
    }

    #[test]
    fn who_may_not_have_a_low_port_is_told_what_it_takes() {
        let said = |error: i32, port: u16| {
            let address = SocketAddr::from(([127, 0, 0, 1], port));
            cannot_serve(address, &io::Error::from_raw_os_error(error))
        };
        let (denied, in_use) = (13, 98);
        assert_eq!(
            said(denied, 53),
            "cannot serve 127.0.0.1:53: Permission denied (os error 13): \
             ports below 1,024 take root, or CAP_NET_BIND_SERVICE"
        );
        assert!(said(denied, 1_024).ends_with("(os error 13)"));
        assert!(said(in_use, 53).ends_with("(os error 98)"));
    }

    #[test]
    fn an_address_that_no_interface_has_is_said_to_be_one() {
        // Of a network for documentation (RFC 5737).
        let address = SocketAddr::from(([203, 0, 113, 77], 5_300));
        let error = bound(address).expect_err("an address that is not here");
        let said = cannot_serve(address, &error);
        assert!(
            said.contains("(os error 99): no interface has this address"),
            "{said}"
        );
    }

    #[test]
    fn without_patience_it_is_refused_at_once_and_says_by_whom() {
        let (address, _socket) = somebody();
        let wait = Wait::of(Duration::ZERO);
        let refusal = wait.until_free(address, || bound(address)).unwrap_err();
        let beginning = format!("cannot serve {address}: Address already in use (os error 98): ");
        assert!(refusal.starts_with(&beginning), "{refusal}");
        assert!(refusal.contains(&format!("UDP {address} of ")), "{refusal}");
        assert!(!refusal.contains("tried for"), "{refusal}");
    }

    #[test]
    fn patience_ends_and_the_refusal_says_how_long_it_was() {
        let (address, _socket) = somebody();
        let wait = Wait {
            patience: PATIENCE,
            until: Instant::now() + EVERY,
        };
        let mut tries = 0;
        let refused = wait.until_free(address, || {
            tries += 1;
            bound(address)
        });
        let refusal = refused.unwrap_err();
        assert!(refusal.ends_with("; tried for 10 s"), "{refusal}");
        assert!(tries >= 2, "it was tried again");
    }

    #[test]
    fn an_address_that_becomes_free_is_had_and_other_errors_are_the_starts() {
        let (address, socket) = somebody();
        let mut socket = Some(socket);
        let wait = Wait::of(PATIENCE);
        let mut tries = 0;
        let freed = wait.until_free(address, || {
            tries += 1;
            if tries == 3 {
                socket = None;
            }
            bound(address)
        });
        assert_eq!((freed, tries), (Ok(()), 3));
        drop(socket);
        let elsewhere = wait.until_free(address, || {
            let error = io::ErrorKind::AddrNotAvailable;
            Err(error.into())
        });
        assert_eq!(elsewhere, Ok(()));
    }
}
