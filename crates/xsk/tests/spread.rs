//! Datagrams go past a worker that shows no life. On the loopback interface; needs root.

use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, SockaddrIn, bind, setsockopt, socket, sockopt::ReusePort,
};
use xsk::{Chosen, Heartbeat, Pulses, Spread};

/// What is awaited comes sooner, also on a machine that has much else to do.
const PATIENCE: Duration = Duration::from_secs(60);

/// Three workers with a kernel socket each on one address.
struct Group {
    spread: Spread,
    sockets: Vec<UdpSocket>,
    heartbeats: Vec<Heartbeat>,
    address: SocketAddr,
    taken: [usize; 3],
}

impl Group {
    fn new() -> Option<Group> {
        if !nix::unistd::geteuid().is_root() {
            println!("SKIP: loading a kernel program needs root");
            return None;
        }
        let pulses = Pulses::new().unwrap();
        let spread = Spread::load(&pulses, 3).unwrap();
        let first = reusing("127.0.0.1:0".parse().unwrap());
        let address = first.local_addr().unwrap();
        let sockets = vec![first, reusing(address), reusing(address)];
        for (worker, socket) in sockets.iter().enumerate() {
            spread.enter(worker as u32, socket).unwrap();
        }
        spread.attach(&sockets[0]).unwrap();
        let heartbeats = (0..3)
            .map(|worker| pulses.heartbeat(worker).unwrap())
            .collect();
        Some(Group {
            spread,
            sockets,
            heartbeats,
            address,
            taken: [0; 3],
        })
    }

    /// One datagram from a new source port.
    fn send(&self) {
        UdpSocket::bind("127.0.0.1:0")
            .unwrap()
            .send_to(b"query", self.address)
            .unwrap();
    }

    /// Turns of all workers until so many datagrams have been taken.
    fn turn_until(&mut self, total: usize) {
        let started = Instant::now();
        while self.taken.iter().sum::<usize>() < total {
            assert!(started.elapsed() < PATIENCE, "{:?} of {total}", self.taken);
            self.turn(&[0, 1, 2]);
        }
    }

    /// A turn of these workers.
    fn turn(&mut self, workers: &[usize]) {
        for &worker in workers {
            let Some(socket) = self.sockets.get(worker) else {
                continue;
            };
            let mut buffer = [0; 16];
            let before = self.taken[worker];
            while socket.recv(&mut buffer).is_ok() {
                self.taken[worker] += 1;
            }
            if self.taken[worker] > before {
                self.heartbeats[worker].beat();
            }
        }
    }
}

fn reusing(address: SocketAddr) -> UdpSocket {
    let SocketAddr::V4(address) = address else {
        panic!("{address} is not IPv4")
    };
    let descriptor = socket(
        AddressFamily::Inet,
        SockType::Datagram,
        SockFlag::SOCK_NONBLOCK,
        None,
    )
    .unwrap();
    setsockopt(&descriptor, ReusePort, &true).unwrap();
    bind(
        std::os::fd::AsRawFd::as_raw_fd(&descriptor.as_fd()),
        &SockaddrIn::from(address),
    )
    .unwrap();
    UdpSocket::from(descriptor)
}

#[test]
fn living_workers_share_datagrams_by_hash() {
    let Some(mut group) = Group::new() else {
        return;
    };
    // Each is taken before the next one: a worker that a frozen machine keeps from its datagram must not count as stalled.
    for sent in 1..=300 {
        group.send();
        group.turn_until(sent);
    }
    assert!(
        group.taken.iter().all(|&taken| taken > 50),
        "{:?}",
        group.taken
    );
    assert_eq!(group.spread.counts().unwrap(), [300, 0, 0]);
}

#[test]
fn a_stalled_worker_is_passed_by_until_it_goes_on() {
    let Some(mut group) = Group::new() else {
        return;
    };
    let stalled = Instant::now();
    // Until the program has noticed: from the first datagram that worker 1 does not take.
    while group.spread.counts().unwrap()[Chosen::PastStalled as usize] == 0 {
        assert!(stalled.elapsed() < PATIENCE, "not noticed");
        group.send();
        group.turn(&[0, 2]);
    }
    assert!(
        stalled.elapsed() >= Duration::from_millis(90),
        "noticed after {:?}",
        stalled.elapsed()
    );
    let before = group.taken;
    for _ in 0..300 {
        group.send();
        group.turn(&[0, 2]);
    }
    // One a second goes to worker 1, to see whether it lives again.
    let sent = Instant::now();
    let mut lost = 300;
    while lost > 1 + stalled.elapsed().as_secs() as usize {
        assert!(sent.elapsed() < PATIENCE, "{lost} of 300 lost");
        group.turn(&[0, 2]);
        lost = 300 - (group.taken[0] + group.taken[2] - before[0] - before[2]);
    }
    group.turn(&[1]);
    let before = group.taken[1];
    for _ in 0..100 {
        group.send();
        group.turn(&[0, 1, 2]);
    }
    assert!(group.taken[1] > before, "worker 1 gets its share again");
}

#[test]
fn the_kernel_chooses_when_all_are_stalled() {
    let Some(group) = Group::new() else { return };
    let started = Instant::now();
    while group.spread.counts().unwrap()[Chosen::ByKernel as usize] == 0 {
        assert!(started.elapsed() < PATIENCE, "not in time");
        group.send();
    }
}

#[test]
fn a_closed_socket_is_passed_by() {
    let Some(mut group) = Group::new() else {
        return;
    };
    group.sockets.pop();
    for _ in 0..100 {
        group.send();
        group.turn(&[0, 1]);
    }
    group.turn_until(100);
}
