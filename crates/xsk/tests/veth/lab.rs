//! What the tests over veth share: a lab of its own per test, a forgetful worker, an ordinary client, and a kernel socket
//! that answers differently.

use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use testnet::lab::{Lab, Plan, TO_SERVER, Topology};
use testnet::namespace::{Namespace, run};
use testnet::{Outcome, again_if_interrupted};
use xsk::nic::Nic;
use xsk::{
    AttachMode, Batch, BindMode, Heartbeat, Options, Program, Received, RingSizes, Socket, Umem,
    UmemOptions,
};

pub(crate) const SERVED: [&str; 2] = ["192.0.2.1:53", "[2001:db8::1]:53"];
/// The sources that clients use.
pub(crate) const CLIENTS: [&str; 2] = ["192.0.2.100:0", "[2001:db8::100]:0"];

/// Who answered: the worker leaves RCODE alone, the kernel socket sets REFUSED.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Path {
    Xsk,
    Kernel,
}

/// A lab named after the test, whose clients and backends send to queue 0 alone; `None` and a line where there cannot
/// be one.
pub(crate) fn lab(name: &str) -> Option<Lab> {
    let lab = lab_of_two_queues(name)?;
    for peer in [lab.client(), lab.backend()] {
        let outcome = inside(&peer, || run("ethtool", &["-L", TO_SERVER, "tx", "1"]));
        outcome.unwrap_or_else(|failure| panic!("{failure}"));
    }
    Some(lab)
}

/// The same where the source port decides the queue.
pub(crate) fn lab_of_two_queues(name: &str) -> Option<Lab> {
    if !nix::unistd::geteuid().is_root() {
        println!("SKIP: network namespaces need root");
        return None;
    }
    let plan = Plan {
        prefix: format!("xsk-{name}"),
        topology: Topology::TwoInterfaces,
    };
    Some(Lab::up(plan).unwrap_or_else(|failure| panic!("{failure}")))
}

pub(crate) fn inside<T: Send>(namespace: &Namespace, work: impl FnOnce() -> T + Send) -> T {
    namespace
        .run(work)
        .unwrap_or_else(|failure| panic!("{failure}"))
}

/// Whether this kernel has the module that `tried` needs; a line where it has not. What failed otherwise fails the test.
pub(crate) fn has_module(module: &str, tried: Outcome<()>) -> bool {
    // The kernel's words for a type of link, and for a queueing discipline, that it does not know.
    const UNKNOWN: [&str; 2] = ["Unknown device type", "Specified qdisc"];
    let Err(failure) = tried else { return true };
    let text = failure.to_string();
    assert!(UNKNOWN.iter().any(|words| text.contains(words)), "{text}");
    println!("SKIP: this kernel lacks a module: {module}");
    false
}

/// Small rings, so that they wrap and fill within a test.
pub(crate) const RINGS: RingSizes = RingSizes {
    fill: 64,
    rx: 64,
    tx: 64,
    completion: 64,
};

/// What is awaited comes sooner, also on a machine that has much else to do.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) const COPY: Options = Options {
    rings: RINGS,
    mode: BindMode::Copy,
    patience: PATIENCE,
};

/// The program on an interface of the calling thread's namespace, serving what the lab serves.
pub(crate) fn attached(interface: &str, mode: AttachMode) -> (Program, Nic) {
    let nic = Nic::by_name(interface).unwrap();
    let mut program = Program::load().unwrap();
    assert_eq!(
        program
            .attach(nic.index, mode)
            .unwrap()
            .native_refused
            .map(|error| error.to_string()),
        None
    );
    for served in SERVED {
        program.serve(served.parse().unwrap()).unwrap();
    }
    (program, nic)
}

/// A worker with one queue that answers everything with itself.
pub(crate) struct Echo {
    pub(crate) program: Program,
    pub(crate) umem: Umem,
    pub(crate) socket: Socket,
    pub(crate) heartbeat: Heartbeat,
    batch: Batch,
}

impl Echo {
    /// On queue 0 of an interface of the calling thread's namespace.
    pub(crate) fn start(interface: &str, mode: AttachMode) -> Echo {
        let (program, nic) = attached(interface, mode);
        let mut umem = Umem::new(RINGS.frames(), UmemOptions::default()).unwrap();
        let socket = Socket::bind(&mut umem, nic.index, 0, COPY).unwrap();
        program.enter(0, &socket).unwrap();
        let heartbeat = program.heartbeat(0).unwrap();
        Echo {
            program,
            umem,
            socket,
            heartbeat,
            batch: Batch::new(),
        }
    }

    /// One turn of the worker's loop; returns how many frames it took.
    pub(crate) fn turn(&mut self) -> usize {
        let (taken, was_empty) = turn(&mut self.umem, &mut self.socket, &mut self.batch);
        if taken > 0 || was_empty {
            self.heartbeat.beat();
        }
        taken
    }

    /// Waits for frames, then takes a turn, for ever.
    pub(crate) fn run(mut self) -> ! {
        loop {
            let _ = poll(
                &mut [PollFd::new(self.socket.as_fd(), PollFlags::POLLIN)],
                PollTimeout::from(10u8),
            );
            self.turn();
        }
    }
}

/// One turn of a worker's loop; returns how many frames it took, and whether the fill ring had been empty.
pub(crate) fn turn(umem: &mut Umem, socket: &mut Socket, batch: &mut Batch) -> (usize, bool) {
    socket.complete(umem);
    let refilled = socket.refill(umem);
    let taken = socket.receive(umem, batch);
    for Received {
        frame,
        start,
        length,
    } in batch.drain()
    {
        answer(&mut umem.chunk_mut(&frame)[start as usize..(start + length) as usize]);
        if let Err(frame) = socket.send(frame, start, length) {
            umem.give(frame);
        }
    }
    socket.flush();
    assert_eq!(umem.census([&*socket]).total(), umem.frames());
    (taken, refilled.was_empty)
}

/// Turns a query into its answer in place. The sum over swapped words stays the same; QR is added to it.
pub(crate) fn answer(frame: &mut [u8]) {
    let (addresses, length) = if frame[12..14] == [0x86, 0xdd] {
        (22, 16)
    } else {
        (26, 4)
    };
    let udp = addresses + 2 * length;
    for (at, length) in [(0, 6), (addresses, length), (udp, 2)] {
        let (one, other) = frame[at..at + 2 * length].split_at_mut(length);
        one.swap_with_slice(other);
    }
    add_to_word(frame, udp + 6, udp + 10, 0x8000);
}

/// Adds to a word of the datagram and, by RFC 1624, to the UDP checksum at `sum`.
pub(crate) fn add_to_word(frame: &mut [u8], sum: usize, at: usize, difference: u16) {
    let word = |octets: &[u8], at: usize| u16::from_be_bytes([octets[at], octets[at + 1]]);
    let new = word(frame, at).wrapping_add(difference);
    replace_word(frame, sum, at, new);
}

/// Replaces a word of the frame and adjusts the UDP checksum (RFC 1624, equation 3).
pub(crate) fn replace_word(frame: &mut [u8], sum: usize, at: usize, new: u16) {
    let word = |octets: &[u8], at: usize| u16::from_be_bytes([octets[at], octets[at + 1]]);
    let mut total = u32::from(!word(frame, sum)) + u32::from(!word(frame, at)) + u32::from(new);
    total = (total & 0xffff) + (total >> 16);
    total = (total & 0xffff) + (total >> 16);
    frame[at..at + 2].copy_from_slice(&new.to_be_bytes());
    // 0 would say that there is none, which IPv6 forbids.
    let complement = if total == 0xffff {
        0xffff
    } else {
        !(total as u16)
    };
    frame[sum..sum + 2].copy_from_slice(&complement.to_be_bytes());
}

/// An ordinary client with a kernel socket.
pub(crate) struct Client {
    socket: UdpSocket,
    next: u16,
}

impl Client {
    /// In the lab's client namespace; `version` 0 is IPv4, 1 is IPv6.
    pub(crate) fn new(lab: &Lab, version: usize) -> Client {
        Client::between(&lab.client(), CLIENTS[version], SERVED[version])
    }

    /// The same from and to other addresses.
    pub(crate) fn between(namespace: &Namespace, from: &str, to: &str) -> Client {
        let socket = inside(namespace, || UdpSocket::bind(from).unwrap());
        socket.connect(to.parse::<SocketAddr>().unwrap()).unwrap();
        Client { socket, next: 0 }
    }

    pub(crate) fn send(&mut self) -> u16 {
        self.next = self.next.wrapping_add(1);
        self.socket.send(&query(self.next)).unwrap();
        self.next
    }

    /// The same with so many octets of nothing behind it.
    pub(crate) fn send_padded(&mut self, padding: usize) -> u16 {
        self.next = self.next.wrapping_add(1);
        let mut message = query(self.next);
        message.resize(message.len() + padding, 0);
        self.socket.send(&message).unwrap();
        self.next
    }

    /// The next answer that has come, checked: its ID and path. Waits at most so long.
    pub(crate) fn receive(&self, limit: Duration) -> Option<(u16, Path)> {
        let mut buffer = [0; 4096];
        self.socket.set_nonblocking(limit.is_zero()).unwrap();
        if !limit.is_zero() {
            self.socket.set_read_timeout(Some(limit)).unwrap();
        }
        let length = match again_if_interrupted(|| self.socket.recv(&mut buffer)) {
            Ok(length) => length,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                return None;
            }
            Err(error) => panic!("receiving: {error}"),
        };
        let id = u16::from_be_bytes([buffer[0], buffer[1]]);
        let asked = query(id);
        assert_eq!(buffer[2], 0x81, "QR and RD");
        assert_eq!(
            buffer[4..asked.len()],
            asked[4..],
            "counts, question and EDNS"
        );
        assert!(
            buffer[asked.len()..length].iter().all(|&octet| octet == 0),
            "padding"
        );
        Some((
            id,
            if buffer[3] == 5 {
                Path::Kernel
            } else {
                Path::Xsk
            },
        ))
    }

    /// Asks a worker of this process and waits for the answer to this question alone.
    pub(crate) fn ask_of(&mut self, echo: &mut Echo) -> Option<Path> {
        let id = self.send();
        let mut path = None;
        until("the answer to this question", || {
            echo.turn();
            path = self
                .receive(Duration::ZERO)
                .filter(|(answered, _)| *answered == id)
                .map(|(_, path)| path);
            path.is_some()
        });
        path
    }

    /// Asks again and again: a link that has just come up may lose the first questions. At the end none is under way to
    /// the server.
    pub(crate) fn reach(&mut self, echo: &mut Echo) {
        until("a first answer", || {
            self.send();
            let sent = Instant::now();
            let mut answered = false;
            while !answered && sent.elapsed() < Duration::from_millis(200) {
                echo.turn();
                answered = self.receive(Duration::ZERO).is_some();
            }
            answered
        });
        self.ask_of(echo);
    }

    /// Asks and waits for the answer to this question alone.
    pub(crate) fn ask(&mut self, limit: Duration) -> Option<Path> {
        let id = self.send();
        let started = Instant::now();
        while let Some(left) = limit
            .checked_sub(started.elapsed())
            .filter(|left| !left.is_zero())
        {
            match self.receive(left) {
                Some((answered, path)) if answered == id => return Some(path),
                _ => {}
            }
        }
        None
    }
}

/// A query for `example. A` with an EDNS record, 36 octets.
pub(crate) fn query(id: u16) -> Vec<u8> {
    let mut message = id.to_be_bytes().to_vec();
    message.extend([0x01, 0x00, 0, 1, 0, 0, 0, 0, 0, 1]);
    message.extend(b"\x07example\x00\x00\x01\x00\x01\0\0\x29\x04\xd0\0\0\0\0\0\0");
    message
}

/// A kernel socket that answers REFUSED, as the second process on an address would.
pub(crate) struct Witness {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Witness {
    pub(crate) fn start(namespace: &Namespace, addresses: &[&str]) -> Witness {
        let stop = Arc::new(AtomicBool::new(false));
        let threads = addresses.iter().map(|address| {
            let socket = inside(namespace, || UdpSocket::bind(address).unwrap());
            let stop = stop.clone();
            std::thread::spawn(move || refuse(&socket, &stop))
        });
        Witness {
            threads: threads.collect(),
            stop,
        }
    }
}

impl Drop for Witness {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn refuse(socket: &UdpSocket, stop: &AtomicBool) {
    socket
        .set_read_timeout(Some(Duration::from_millis(20)))
        .unwrap();
    let mut buffer = [0; 4096];
    while !stop.load(Ordering::Relaxed) {
        if let Ok((length, client)) = socket.recv_from(&mut buffer) {
            buffer[2] |= 0x80;
            buffer[3] = 5;
            socket.send_to(&buffer[..length], client).unwrap();
        }
    }
}

/// Repeats until it is true, with [`PATIENCE`].
pub(crate) fn until(what: &str, mut done: impl FnMut() -> bool) {
    let started = Instant::now();
    while !done() {
        assert!(
            started.elapsed() < PATIENCE,
            "not within {PATIENCE:?}: {what}"
        );
    }
}
