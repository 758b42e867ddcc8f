//! Ports come and go one by one: who watches us never knows them all for long.

use super::{Pools, PortPool, Ports};
use crate::clock::Now;
use crate::random::Random;
use std::io;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

/// A port of 1,024 every four seconds on average: all are new after a little more than an hour.
const INTERVAL: Duration = Duration::from_secs(4);

impl Ports {
    /// Opens a new port in the place of one chosen at random, which is read for `drain` more: as long as answers to what
    /// left from it are waited for. Closes those whose time is over.
    ///
    /// # Errors
    /// When no new port can be opened; then all stays as it is.
    pub fn rotate_one(&self, now: Now, drain: Duration, random: &mut Random) -> io::Result<()> {
        let _change = self.change.lock().unwrap_or_else(PoisonError::into_inner);
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

    /// Stops using the pools whose indices are not in `used`: no server is asked from their addresses any more. They are
    /// read for `drain` more.
    pub fn retire_all_but(&self, used: &[u16], now: Now, drain: Duration) {
        let _change = self.change.lock().unwrap_or_else(PoisonError::into_inner);
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

/// Exchanges ports at random intervals until the program ends; `drain` is asked each time for the longest time-out.
pub async fn rotate_for_ever(ports: Arc<Ports>, mut random: Random, drain: impl Fn() -> Duration) {
    loop {
        // Evenly from 0 to twice the interval.
        let share = random.below(1 << 20);
        tokio::time::sleep(INTERVAL * 2 * share / (1 << 20)).await;
        if let Err(error) = ports.rotate_one(Now::read(), drain(), &mut random) {
            crate::log::warn!(
                "No new backend port in the place of an old one, which stays: {error}"
            );
        }
    }
}
