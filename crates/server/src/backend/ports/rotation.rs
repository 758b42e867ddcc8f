//! Ports come and go one by one: who watches us never knows them all for long.

use super::{Pools, PortPool, Ports};
use crate::backend::server::Server;
use crate::clock::Now;
use crate::random::Random;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// A port of 1,024 every four turns of a second each, on average: all are new after a little more than an hour.
const TURNS: u32 = 4;

impl Ports {
    /// Opens a new port in the place of one chosen at random, which is read for `drain` more: as long as answers to what
    /// left from it are waited for. Closes those whose time is over.
    ///
    /// # Errors
    /// When no new port can be opened; then all stays as it is.
    pub fn rotate_one(&self, now: Now, drain: Duration, random: &mut Random) -> io::Result<()> {
        let _change = self.lock();
        let mut pools = Pools::clone(&self.pools.load());
        self.close_drained(&mut pools, now);
        let open: Vec<usize> = (0..pools.len())
            .filter(|&number| !pools[number].ports.is_empty())
            .collect();
        if open.is_empty() {
            self.pools.store(Arc::new(pools));
            return Ok(());
        }
        let number = open[random.below(open.len() as u32) as usize];
        let pool = Arc::make_mut(&mut pools[number]);
        let index = random.below(pool.ports.len() as u32) as usize;
        let new = self.bind(number as u16, index, &pool.leaving)?;
        let old = std::mem::replace(&mut pool.ports[index], new);
        let until = Now(now.0 + drain.as_nanos() as u64);
        pool.draining.push((until, old));
        pool.sort();
        self.pools.store(Arc::new(pools));
        Ok(())
    }

    /// Stops using the pools that none of `servers` is asked from, which are all that there are. They are read for `drain`
    /// more.
    pub fn retire_unused<'s>(
        &self,
        servers: impl Iterator<Item = &'s Server>,
        now: Now,
        drain: Duration,
    ) {
        let _change = self.lock();
        let used: Vec<u16> = servers.filter_map(|server| server.ports.get()).collect();
        let mut pools = Pools::clone(&self.pools.load());
        let until = Now(now.0 + drain.as_nanos() as u64);
        for (number, pool) in pools.iter_mut().enumerate() {
            if !pool.ports.is_empty() && !used.iter().any(|&used| usize::from(used) == number) {
                let pool = Arc::make_mut(pool);
                let ports = std::mem::take(&mut pool.ports);
                pool.draining
                    .extend(ports.into_iter().map(|port| (until, port)));
            }
        }
        self.pools.store(Arc::new(pools));
    }

    /// Takes ports whose time is over out of `pools`. Their sockets close with the last snapshot that has them.
    fn close_drained(&self, pools: &mut Pools, now: Now) {
        for pool in pools {
            if pool.draining.iter().any(|(until, _)| *until <= now) {
                let pool: &mut PortPool = Arc::make_mut(pool);
                pool.draining.retain(|(until, port)| {
                    let over = *until <= now;
                    if over {
                        self.watch.closing(port.local());
                    }
                    !over
                });
                pool.sort();
            }
        }
    }
}

/// Exchanges ports at moments that nobody can tell before.
pub struct Rotation(Random);

impl Rotation {
    pub fn new(random: Random) -> Rotation {
        Rotation(random)
    }

    /// To be called once a second, by whoever is awake then anyway: a timer of its own would wake an idle process. The lot
    /// decides each time, whatever it decided before. `drain` is asked for the longest time-out.
    pub fn turn(&mut self, ports: &Ports, now: Now, drain: impl FnOnce() -> Duration) {
        if self.0.below(TURNS) != 0 {
            return;
        }
        if let Err(error) = ports.rotate_one(now, drain(), &mut self.0) {
            crate::log::warn!(
                "No new backend port in the place of an old one, which stays: {error}"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::PortWatch;
    use super::*;
    use crate::backend::fixture;
    use std::net::SocketAddr;
    use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

    /// Counts the ports that were opened.
    struct Opened(Arc<AtomicU32>);

    impl PortWatch for Opened {
        fn opened(&self, _: SocketAddr) {
            self.0.fetch_add(1, Relaxed);
        }

        fn closing(&self, _: SocketAddr) {}
    }

    #[test]
    fn every_fourth_turn_or_so_exchanges_a_port() {
        let opened = Arc::new(AtomicU32::new(0));
        let watch = Opened(Arc::clone(&opened));
        let ports = Ports::new(1, 1, Box::new(watch)).expect("epoll");
        let server = fixture::server(0, fixture::options("127.0.0.1:53"));
        ports.prepare(&server).expect("loopback");
        let mut rotation = Rotation::new(Random::from_seed(1));
        let (mut gaps, mut last) = (Vec::new(), 0);
        for second in 0..400 {
            let before = opened.load(Relaxed);
            rotation.turn(&ports, Now(second * 1_000_000_000), || Duration::ZERO);
            if opened.load(Relaxed) > before {
                gaps.push(second - last);
                last = second;
            }
        }
        // 100 are expected, 9 is the standard deviation.
        assert!((60..=140).contains(&gaps.len()), "{gaps:?}");
        assert!(gaps.contains(&1) && gaps.iter().any(|gap| *gap > 8));
    }
}
