//! Queries that go to more than one server: the policies `race` and `hedge`, of our own.
//!
//! `race` asks several servers at once and takes the first good answer. `hedge` asks one; a second only when that takes
//! longer than 95 of 100 of its answers do, and no more than one query in twenty. How the answers meet is in
//! [`super::exchange`]; who is asked is here.

use super::Forwarder;
use super::exchange::{Departure, LEGS_MAX, Leg, OpenError, Port, RaceId, Waiting};
use super::policy::Policy;
use super::pool::Pool;
use super::server::Server;
use crate::clock::Now;
use crate::config::{Config, Tuning};
use crate::pipeline::query::{Protocol, Query};
use crate::random::Random;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::time::Duration;

/// What opening an exchange needs beside the query.
pub struct Opening<'o> {
    pub tuning: &'o Tuning,
    pub now: Now,
    pub random: &'o mut Random,
}

/// Servers to ask, the one that is likely to answer first in front.
#[derive(Clone, Copy)]
pub struct Contenders<'p> {
    servers: [Option<&'p Arc<Server>>; LEGS_MAX],
    count: usize,
}

impl<'p> Contenders<'p> {
    /// The servers of `pool` that are up, `width` at most (0: [`LEGS_MAX`]): those with the fewest queries in flight, then
    /// by order, then by latency. Over UDP without those that take TCP only.
    pub fn of(pool: &'p Pool, width: u8, over_tcp: bool) -> Contenders<'p> {
        let width = match usize::from(width) {
            0 => LEGS_MAX,
            width => width.min(LEGS_MAX),
        };
        let mut contenders = Contenders {
            servers: [None; LEGS_MAX],
            count: 0,
        };
        let up = pool.servers.iter().filter(|server| server.state.is_up());
        for server in up.filter(|server| over_tcp || !server.options.tcp_only) {
            contenders.insert(server, width);
        }
        contenders
    }

    /// Puts `server` in its place among the best `width`.
    fn insert(&mut self, server: &'p Arc<Server>, width: usize) {
        let rank = |server: &Server| {
            (
                server.outstanding.get(),
                server.options.order,
                server.latency(),
            )
        };
        let own = rank(server);
        let place = self
            .iter()
            .position(|other| own < rank(other))
            .unwrap_or(self.count);
        if place == width {
            return;
        }
        let end = (self.count + 1).min(width);
        self.servers[place..end].rotate_right(1);
        self.servers[place] = Some(server);
        self.count = end;
    }

    pub fn iter(&self) -> impl Iterator<Item = &'p Arc<Server>> {
        self.servers[..self.count].iter().copied().flatten()
    }

    pub fn len(&self) -> usize {
        self.count
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }
}

/// When a query is late to a server of which 95 of 100 answers take less than `slowest`: a little later than that, so that
/// fewer than one in twenty is, and the allowance lasts for them.
pub fn late_after(slowest: Duration) -> Duration {
    slowest + slowest / 8
}

/// A pool's allowance of second queries: lives on over a reload.
///
/// Each query earns a twentieth of one. A query that is late costs a whole one, and half of one where it is not granted:
/// when more than one in ten is late, no single server is slow but all are, and more queries would make it worse. Then
/// nothing is granted until fewer are.
#[derive(Debug, Default)]
pub struct Hedging(AtomicI64);

/// Queries that earn one more.
const EARNINGS_OF_ONE: i64 = 20;

/// What may be saved up, or owed: in twentieths, as the count is.
const BALANCE_MAX: i64 = 16 * EARNINGS_OF_ONE;

impl Hedging {
    /// A query was sent to its first server.
    pub fn earn(&self) {
        // A lost bound costs nothing: whoever comes next sees it.
        if self.0.load(Relaxed) < BALANCE_MAX {
            self.0.fetch_add(1, Relaxed);
        }
    }

    /// A query is late: whether a second server may be asked.
    pub fn spend(&self) -> bool {
        let charge = |balance: i64| {
            let cost = match balance >= EARNINGS_OF_ONE {
                true => EARNINGS_OF_ONE,
                false => EARNINGS_OF_ONE / 2,
            };
            Some((balance - cost).max(-BALANCE_MAX))
        };
        let before = self.0.fetch_update(Relaxed, Relaxed, charge);
        before.unwrap_or_else(|balance| balance) >= EARNINGS_OF_ONE
    }
}

/// The server that a late query is asked from as well: the least busy of the others, if it has less than half of the
/// queries in flight that it may have.
pub fn second<'p>(
    pool: &'p Pool,
    first: super::server::ServerId,
    tuning: &Tuning,
    over_tcp: bool,
) -> Option<&'p Arc<Server>> {
    let contenders = Contenders::of(pool, 0, over_tcp);
    let other = contenders.iter().find(|server| server.number != first)?;
    let half = i64::from(tuning.maximum_udp_outstanding / 2);
    (other.outstanding.get() < half.max(1)).then_some(other)
}

impl Forwarder<'_> {
    /// Opens the exchanges of a query whose pool asks several servers; the query then has the ID for the first, and
    /// [`super::exchange::Share::legs`] the others.
    ///
    /// # Errors
    /// No server could be asked, and the last one's reason; the query is as it was.
    #[inline(never)]
    pub fn forward_to_several<'p>(
        &mut self,
        query: &mut Query<'_>,
        pool: &'p Pool,
        first: &'p Arc<Server>,
        mut opening: Opening<'_>,
    ) -> Result<(&'p Arc<Server>, Port), OpenError> {
        if wants_header(pool) {
            self.announce(query)?;
        }
        let Policy::Race { width } = pool.policy else {
            return self.forward_hedged(query, pool, first, &mut opening);
        };
        let contenders = Contenders::of(pool, width, false);
        let mut error = OpenError::NoPort;
        let mut servers = contenders.iter().enumerate();
        while let Some((index, server)) = servers.next() {
            let legs = (contenders.len() - index) as u8;
            match self.open_race(query, server, legs, &mut opening) {
                Ok((race, port)) => {
                    for (_, other) in servers {
                        self.open_leg(race, other, &mut opening);
                    }
                    return Ok((server, port));
                }
                Err(OpenError::QueryTooLong) => return Err(OpenError::QueryTooLong),
                Err(reason) => error = reason,
            }
        }
        Err(error)
    }

    fn forward_hedged<'p>(
        &mut self,
        query: &mut Query<'_>,
        pool: &Pool,
        first: &'p Arc<Server>,
        opening: &mut Opening<'_>,
    ) -> Result<(&'p Arc<Server>, Port), OpenError> {
        let (race, port) = self.open_race(query, first, 1, opening)?;
        pool.hedging.earn();
        if let Some(patience) = first.slowest.get() {
            let due = Now(opening.now.0 + late_after(patience).as_nanos() as u64);
            self.exchanges.hedge(self.share, race, due);
        }
        Ok((first, port))
    }

    fn open_race(
        &mut self,
        query: &mut Query<'_>,
        server: &Server,
        legs: u8,
        opening: &mut Opening<'_>,
    ) -> Result<(RaceId, Port), OpenError> {
        let port = self.departures.pick(self.ports, server, opening.random);
        let departure = departure(server, port.ok_or(OpenError::NoPort)?, opening);
        let Forwarder {
            exchanges, share, ..
        } = self;
        let race = exchanges.open_race(share, query, &departure, opening.random, legs)?;
        Ok((race, departure.port))
    }

    /// One of the legs that the race counts: to be sent, or given up. The RCODE of an error to give now, because this was the
    /// last one; 0 is none.
    fn open_leg(&mut self, race: RaceId, server: &Server, opening: &mut Opening<'_>) -> u8 {
        let Forwarder {
            exchanges, share, ..
        } = self;
        let opened = self
            .departures
            .pick(self.ports, server, opening.random)
            .and_then(|port| {
                let departure = departure(server, port, opening);
                let id = exchanges.open_leg(share, race, &departure, opening.random);
                id.ok().map(|id| (port, id))
            });
        let Some((port, id)) = opened else {
            return exchanges.give_up_leg(race);
        };
        share.legs.push(Leg {
            server: server.number,
            port,
            id,
        });
        0
    }

    /// Writes what a second server is told of the query of `race`, which `waiting` holds.
    fn announce_late(
        &mut self,
        server: &Server,
        race: RaceId,
        waiting: &Waiting,
    ) -> Result<(), OpenError> {
        if !server.options.proxy_protocol {
            return Ok(());
        }
        let extras = self.exchanges.extras_of(race);
        let ends = (waiting.client, waiting.destination);
        // What came by a stream is never sent from here.
        self.tell(ends, Protocol::Udp, extras.as_deref())
    }

    /// Asks a second server about the next query that is late, if one may be: [`super::exchange::Share::legs`] has it then.
    /// `waiting` holds the query; false when none is late.
    pub fn hedge_next(
        &mut self,
        config: &Config,
        waiting: &mut Waiting,
        mut opening: Opening<'_>,
    ) -> bool {
        let late = self.exchanges.next_late(self.share, opening.now, waiting);
        let Some(race) = late else { return false };
        waiting.held_rcode = 0;
        let pool = config
            .pool(waiting.pool)
            .filter(|pool| pool.policy == Policy::Hedge);
        if let Some(pool) = pool
            && pool.hedging.spend()
            && let Some(server) = second(pool, waiting.server, opening.tuning, false)
            && self.announce_late(server, race, waiting).is_ok()
            && self.exchanges.join(race)
        {
            waiting.held_rcode = self.open_leg(race, server, &mut opening);
        }
        true
    }
}

/// Whether a server of the pool is to be told who asks.
fn wants_header(pool: &Pool) -> bool {
    let mut servers = pool.servers.iter();
    servers.any(|server| server.options.proxy_protocol)
}

fn departure<'s>(server: &'s Server, port: Port, opening: &Opening<'_>) -> Departure<'s> {
    let tuning = opening.tuning;
    Departure {
        server,
        port,
        now: opening.now,
        timeout: server.options.udp_timeout.unwrap_or(tuning.udp_timeout),
        maximum_outstanding: tuning.maximum_udp_outstanding,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::fixture;

    fn numbers(contenders: &Contenders<'_>) -> Vec<u32> {
        contenders.iter().map(|server| server.number.0).collect()
    }

    fn pool(count: u32) -> Arc<Pool> {
        let servers: Vec<Arc<Server>> = (0..count)
            .map(|number| {
                let options = fixture::options(&format!("192.0.2.{number}:53"));
                Arc::new(fixture::server(number, options))
            })
            .collect();
        fixture::pool("", &servers)
    }

    #[test]
    fn the_least_busy_that_are_up_race() {
        let pool = pool(5);
        for (server, queries) in [(0, 3), (1, 1), (3, 2)] {
            (0..queries).for_each(|_| assert!(pool.servers[server].outstanding.enter(9)));
        }
        pool.servers[4]
            .state
            .set_mode(crate::backend::server::HealthMode::Down);
        assert_eq!(numbers(&Contenders::of(&pool, 0, false)), [2, 1, 3, 0]);
        assert_eq!(numbers(&Contenders::of(&pool, 2, false)), [2, 1]);
        assert_eq!(numbers(&Contenders::of(&pool, 200, false)).len(), 4);
    }

    #[test]
    fn a_hundred_servers_are_not_asked_at_once() {
        assert_eq!(Contenders::of(&pool(100), 0, false).len(), LEGS_MAX);
    }

    #[test]
    fn servers_that_take_tcp_only_race_over_tcp() {
        let mut options = fixture::options("192.0.2.1:53");
        options.tcp_only = true;
        let servers = [
            Arc::new(fixture::server(0, options)),
            Arc::new(fixture::server(1, fixture::options("192.0.2.2:53"))),
        ];
        let pool = fixture::pool("", &servers);
        assert_eq!(numbers(&Contenders::of(&pool, 0, false)), [1]);
        assert_eq!(numbers(&Contenders::of(&pool, 0, true)), [0, 1]);
    }

    /// At most 5 % more queries, whatever is late.
    #[test]
    fn one_query_in_twenty_is_hedged_at_most() {
        let hedging = Hedging::default();
        let mut granted = 0;
        for query in 1..=10_000 {
            hedging.earn();
            granted += u32::from(query % 25 == 0 && hedging.spend());
            assert!(granted * 20 <= query);
        }
        assert!(granted >= 395, "4 % are late: {granted} of 400 granted");
    }

    /// "off by itself under overload": when many are late, hardly anything is granted; and it comes back.
    #[test]
    fn when_many_are_late_there_is_no_hedging() {
        let hedging = Hedging::default();
        (0..400).for_each(|_| hedging.earn());
        let ask = |queries: u32, late_every: u32| {
            (1..=queries).fold(0, |granted, query| {
                hedging.earn();
                granted + u32::from(query % late_every == 0 && hedging.spend())
            })
        };
        assert!(ask(1_000, 2) <= 17, "what was saved up, and no more");
        assert_eq!(ask(1_000, 2), 0);
        let later = ask(2_000, 40);
        assert!((30..50).contains(&later), "owed first: {later} of 50");
    }

    /// F19: the first server's answers take 1 ms, then 400, then 1 again. hedge learns it, and never asks more than one in
    /// twenty twice.
    #[test]
    fn a_step_of_the_latency_is_learnt() {
        let (slowest, hedging) = (
            crate::backend::quantile::Percentile95::default(),
            Hedging::default(),
        );
        let mut random = Random::from_seed(3);
        let (mut queries, mut granted) = (0, 0);
        let mut serve = |count: u32, milliseconds: u64| {
            let mut late = 0;
            for _ in 0..count {
                let jitter = u64::from(random.below(milliseconds as u32 * 500));
                let latency = Duration::from_micros(milliseconds * 1_000 + jitter);
                hedging.earn();
                queries += 1;
                if slowest
                    .get()
                    .is_some_and(|slowest| latency > late_after(slowest))
                {
                    late += 1;
                    granted += u32::from(hedging.spend());
                }
                slowest.note(latency);
                assert!(granted * 20 <= queries, "{granted} of {queries}");
            }
            late
        };
        assert!(serve(10_000, 1) < 500);
        assert!(serve(200, 400) < 120, "then it is the usual thing");
        assert!(serve(10_000, 400) < 500);
        serve(3_000, 1);
        assert!(
            slowest
                .get()
                .is_some_and(|slowest| slowest < Duration::from_millis(2))
        );
    }

    #[test]
    fn the_second_server_is_another_and_not_a_busy_one() {
        let pool = pool(3);
        let tuning = Tuning {
            maximum_udp_outstanding: 4,
            ..Tuning::default()
        };
        assert!(pool.servers[1].outstanding.enter(9));
        let first = pool.servers[2].number;
        let of = |first| second(&pool, first, &tuning, false).map(|server| server.number.0);
        assert_eq!(of(first), Some(0));
        for server in &pool.servers {
            assert!(server.outstanding.enter(9) && server.outstanding.enter(9));
        }
        assert_eq!(of(first), None);
    }
}
