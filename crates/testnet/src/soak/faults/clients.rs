//! Clients that want too much: floods of random names from forged sources (F30), connections that dawdle (F31).

use std::fmt::{self, Display, Formatter};
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use super::frames::send;
use super::{Fault, Harm, Kind};
use crate::dns::Query;
use crate::frame::Shape;
use crate::lab::SERVER_V4;
use crate::soak::ground::Ground;
use crate::soak::random::Random;
use crate::{During, Failure, Outcome, again_if_interrupted};

pub(super) const KINDS: [Kind; 4] = [
    Kind {
        name: "clients-forged",
        draw: |random| {
            Box::new(Forged {
                seed: random.next(),
                count: random.between(1_000, 5_000),
            })
        },
    },
    Kind {
        name: "clients-idle",
        draw: |random| Box::new(Connections::draw(random, Manner::Idle)),
    },
    Kind {
        name: "clients-slow",
        draw: |random| Box::new(Connections::draw(random, Manner::Dripping)),
    },
    Kind {
        name: "clients-pipelined",
        draw: |random| Box::new(Pipelined(random.between(100, 1_000) as u16)),
    },
];

/// Random subdomains of what backends know, each asked by another address.
#[derive(Debug)]
struct Forged {
    seed: u64,
    count: u64,
}

impl Display for Forged {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "{} random names from forged sources, of seed {}",
            self.count, self.seed
        )
    }
}

impl Fault for Forged {
    fn harm(&self) -> Harm {
        Harm::None
    }

    fn begin(&mut self, ground: &mut Ground) -> Outcome<()> {
        let mut random = Random::new(self.seed);
        let frames: Vec<Vec<u8>> = (0..self.count).flat_map(|_| forged(&mut random)).collect();
        // In portions, as long as a real flood takes: what lies in between is not lost to rings that are full.
        for portion in frames.chunks(100) {
            send(&ground.lab, portion)?;
            ground.daemon.watch_for(Duration::from_millis(5))?;
        }
        Ok(())
    }
}

fn forged(random: &mut Random) -> Vec<Vec<u8>> {
    let source = Ipv4Addr::from(0xc633_6400 | (random.next() as u32 & 0xff));
    let source = SocketAddr::from((source, random.between(1_024, 65_535) as u16));
    let name = format!("x{:x}.cached.example.", random.next());
    let query = Query::new(&name, "A").expect("a good name").octets();
    Shape::default().frames(source, (SERVER_V4, 53).into(), &query)
}

#[derive(Debug, Clone, Copy)]
enum Manner {
    /// Not a word.
    Idle,
    /// An octet of a query now and then.
    Dripping,
}

/// Connections that are open and do not come to an end.
#[derive(Debug)]
struct Connections {
    manner: Manner,
    count: u64,
    open: Vec<TcpStream>,
}

impl Connections {
    fn draw(random: &mut Random, manner: Manner) -> Self {
        Self {
            manner,
            count: random.between(20, 200),
            open: Vec::new(),
        }
    }
}

impl Display for Connections {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        let manner = format!("{:?}", self.manner).to_lowercase();
        write!(formatter, "{} {manner} connections", self.count)
    }
}

impl Fault for Connections {
    fn harm(&self) -> Harm {
        Harm::None
    }

    fn begin(&mut self, ground: &mut Ground) -> Outcome<()> {
        let open = || {
            let address = SocketAddr::new(SERVER_V4, 53);
            (0..self.count)
                .map(|_| TcpStream::connect_timeout(&address, Duration::from_secs(1)))
                .collect::<std::io::Result<Vec<_>>>()
        };
        self.open = ground.lab.client().run(open)?.during("connecting")?;
        if matches!(self.manner, Manner::Dripping) {
            for octet in [0, 60, 1, 2, 3] {
                // The server may have closed some.
                self.open
                    .iter_mut()
                    .for_each(|stream| drop(stream.write_all(&[octet])));
                ground.daemon.watch_for(Duration::from_millis(50))?;
            }
        }
        Ok(())
    }

    fn clear(&mut self, _ground: &mut Ground) -> Outcome<()> {
        self.open.clear();
        Ok(())
    }
}

/// So many queries on one connection before the first answer is read. All are answered.
#[derive(Debug)]
struct Pipelined(u16);

impl Display for Pipelined {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} queries on one connection at once", self.0)
    }
}

impl Fault for Pipelined {
    fn harm(&self) -> Harm {
        Harm::None
    }

    fn begin(&mut self, ground: &mut Ground) -> Outcome<()> {
        let count = self.0;
        let answered = ground.lab.client().run(|| pipeline(count))?;
        let answered = answered.during("asking over one connection")?;
        match answered == usize::from(count) {
            true => Ok(()),
            false => Err(Failure::new(format!(
                "{answered} of {count} queries on one connection were answered"
            ))),
        }
    }
}

fn pipeline(count: u16) -> std::io::Result<usize> {
    let mut stream = TcpStream::connect_timeout(&(SERVER_V4, 53).into(), Duration::from_secs(1))?;
    stream.set_read_timeout(Some(Duration::from_millis(500)))?;
    let mut query = Query::new("p.refused.example.", "A").expect("a good name");
    let mut octets = Vec::new();
    for id in 0..count {
        query.id = id;
        let message = query.octets();
        octets.extend((message.len() as u16).to_be_bytes());
        octets.extend(message);
    }
    stream.write_all(&octets)?;
    // Each answer is as long as its query.
    let mut answers: Vec<u8> = Vec::new();
    let until = Instant::now() + Duration::from_secs(5);
    let mut room = [0; 4_096];
    while answers.len() < octets.len() && Instant::now() < until {
        match again_if_interrupted(|| stream.read(&mut room)) {
            Ok(0) => break,
            Ok(length) => answers.extend(&room[..length]),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(answers.len() * usize::from(count) / octets.len())
}
