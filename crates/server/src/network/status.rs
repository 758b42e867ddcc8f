//! What is up of AF_XDP: programs, maps, sockets and heartbeats of the running instance.
//!
//! It is what the instance answers to `millrace xdp status`; what that prints is its `Display`:
//!
//! ```text
//! enp1s0 (index 4, 02:00:00:00:00:01, MTU 1500)
//!   program   attached in native mode
//!   serves    192.0.2.1:53, [2001:db8::1]:53
//!   backends  192.0.2.2:53 from 198.51.100.1; 1024 ports open
//!   verdicts  take-query 1200, pass-other 5
//!   queue  socket     polled  in the map  heartbeat  received      sent  frames of its worker
//!       0  zero-copy  no      yes               600      1200      1200  24 MiB in reserved huge pages, node 0
//! ```

use super::links::MacText;
use serde::{Deserialize, Serialize};
use std::fmt::{self, Display, Formatter};
use std::net::{IpAddr, SocketAddr};

/// All that one instance has of AF_XDP.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    pub devices: Vec<DeviceStatus>,
}

/// One interface with a program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceStatus {
    pub interface: String,
    pub index: u32,
    pub mac: [u8; 6],
    /// The longest IP packet, in bytes.
    pub mtu: u32,
    pub program: ProgramStatus,
    /// What the program takes from clients.
    pub destinations: Vec<SocketAddr>,
    /// Backends whose answers it takes, with our address that they are asked from.
    pub backends: Vec<(IpAddr, SocketAddr)>,
    /// Backend ports that it knows.
    pub open_ports: u32,
    /// What became of frames, by reason; those that never happened left out.
    pub verdicts: Vec<(String, u64)>,
    pub queues: Vec<QueueStatus>,
}

/// The program on an interface.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ProgramStatus {
    /// Ours: in the driver (native) or in the kernel's stack (generic), and what it found of newer kernels' features.
    Attached { native: bool, features: Vec<String> },
    /// Ours, but somebody has taken it off: the kernel's sockets serve.
    Detached,
    /// Somebody else's, whose pinned maps we use.
    Foreign { map_path: String },
}

/// One AF_XDP socket.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueStatus {
    pub number: u32,
    pub zero_copy: bool,
    /// Whether its worker has the kernel look at it (millrace.setBusyPoll).
    pub is_polled: bool,
    /// Whether the program hands frames to it.
    pub entered: bool,
    /// Signs of life of its worker; it stands still while nothing comes.
    pub heartbeat: u64,
    /// Frames.
    pub received: u64,
    /// Frames.
    pub sent: u64,
    /// What memory the frames of its worker lie in; it may have other queues, whose frames these are too.
    pub frames: String,
}

impl Display for Status {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        if self.devices.is_empty() {
            writeln!(
                out,
                "AF_XDP is not in use: kernel sockets serve everything."
            )?;
        }
        self.devices.iter().try_for_each(|device| device.fmt(out))
    }
}

impl Display for DeviceStatus {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        let DeviceStatus {
            interface,
            index,
            mtu,
            ..
        } = self;
        writeln!(
            out,
            "{interface} (index {index}, {}, MTU {mtu})",
            MacText(self.mac)
        )?;
        writeln!(out, "  program   {}", self.program)?;
        if !self.destinations.is_empty() {
            writeln!(out, "  serves    {}", listed(&self.destinations))?;
        }
        if !self.backends.is_empty() {
            let pairs = self
                .backends
                .iter()
                .map(|(source, backend)| format!("{backend} from {source}"));
            let pairs: Vec<String> = pairs.collect();
            writeln!(
                out,
                "  backends  {}; {} ports open",
                listed(&pairs),
                self.open_ports
            )?;
        }
        if !self.verdicts.is_empty() {
            let verdicts = self
                .verdicts
                .iter()
                .map(|(reason, frames)| format!("{reason} {frames}"));
            writeln!(out, "  verdicts  {}", listed(&verdicts.collect::<Vec<_>>()))?;
        }
        writeln!(
            out,
            "  queue  socket     polled  in the map  heartbeat  received      sent  frames of its worker"
        )?;
        self.queues.iter().try_for_each(|queue| queue.fmt(out))
    }
}

impl Display for ProgramStatus {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        match self {
            ProgramStatus::Attached { native, features } => {
                write!(
                    out,
                    "attached in {} mode",
                    if *native { "native" } else { "generic" }
                )?;
                features
                    .iter()
                    .try_for_each(|feature| write!(out, "; {feature}"))
            }
            ProgramStatus::Detached => write!(out, "taken off by somebody: kernel sockets serve"),
            ProgramStatus::Foreign { map_path } => {
                write!(out, "somebody else's, with the map {map_path}")
            }
        }
    }
}

impl Display for QueueStatus {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        let QueueStatus {
            number,
            heartbeat,
            received,
            sent,
            frames,
            ..
        } = self;
        let mode = if self.zero_copy { "zero-copy" } else { "copy" };
        let word = |yes| if yes { "yes" } else { "no" };
        let (entered, polled) = (word(self.entered), word(self.is_polled));
        writeln!(
            out,
            "  {number:>5}  {mode:<9}  {polled:<6}  {entered:<10}  {heartbeat:>9}  {received:>8}  {sent:>8}  {frames}"
        )
    }
}

fn listed<T: Display>(items: &[T]) -> String {
    let texts: Vec<String> = items.iter().map(ToString::to_string).collect();
    texts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status() -> Status {
        let queue = |number, entered: bool| QueueStatus {
            number,
            zero_copy: false,
            is_polled: !entered,
            entered,
            heartbeat: 600,
            received: 1_200,
            sent: 1_199,
            frames: "24 MiB in small pages".to_owned(),
        };
        let device = DeviceStatus {
            interface: "enp1s0".to_owned(),
            index: 4,
            mac: [2, 0, 0, 0, 0, 1],
            mtu: 1_500,
            program: ProgramStatus::Attached {
                native: true,
                features: vec!["xdp.frags: yes".to_owned()],
            },
            destinations: vec![
                "192.0.2.1:53".parse().expect("an address"),
                "[2001:db8::1]:53".parse().expect("an address"),
            ],
            backends: vec![(
                "198.51.100.1".parse().expect("an address"),
                "192.0.2.2:53".parse().expect("an address"),
            )],
            open_ports: 1_024,
            verdicts: vec![
                ("take-query".to_owned(), 1_200),
                ("pass-other".to_owned(), 5),
            ],
            queues: vec![queue(0, true), queue(1, false)],
        };
        Status {
            devices: vec![device],
        }
    }

    #[test]
    fn the_text() {
        let expected = "\
enp1s0 (index 4, 02:00:00:00:00:01, MTU 1500)
  program   attached in native mode; xdp.frags: yes
  serves    192.0.2.1:53, [2001:db8::1]:53
  backends  192.0.2.2:53 from 198.51.100.1; 1024 ports open
  verdicts  take-query 1200, pass-other 5
  queue  socket     polled  in the map  heartbeat  received      sent  frames of its worker
      0  copy       no      yes               600      1200      1199  24 MiB in small pages
      1  copy       yes     no                600      1200      1199  24 MiB in small pages
";
        assert_eq!(status().to_string(), expected);
        assert_eq!(
            Status::default().to_string(),
            "AF_XDP is not in use: kernel sockets serve everything.\n"
        );
    }

    #[test]
    fn it_survives_the_control_socket() {
        let line = serde_json::to_string(&status()).expect("JSON");
        assert_eq!(
            serde_json::from_str::<Status>(&line).expect("a status"),
            status()
        );
    }
}
