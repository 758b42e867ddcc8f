//! Several legs for one query: one end for the client, whatever becomes of the legs.

use super::*;
use std::collections::HashSet;

/// A race as its test sees it.
#[derive(Debug, Clone)]
struct Opened {
    race: RaceId,
    /// ID and server, by leg.
    legs: Vec<(u16, usize)>,
}

impl Bench {
    /// Races the query of the client with port `number` between these servers.
    fn race(&mut self, number: u16, servers: &[usize]) -> Opened {
        let mut message = [0; 64];
        let client = client(number);
        let mut query = query(&mut message, &client);
        let Bench {
            exchanges,
            share,
            random,
            ..
        } = self;
        let departure = |server: &usize| Departure {
            server: &self.servers[*server],
            port: PORT,
            now: self.now,
            timeout: TIMEOUT,
            maximum_outstanding: u32::MAX,
        };
        let legs = servers.len() as u8;
        let (first, others) = servers.split_first().expect("a server");
        let race = exchanges
            .open_race(share, &mut query, &departure(first), random, legs)
            .expect("room");
        let mut opened = vec![(query.header().id(), *first)];
        for server in others {
            let id = exchanges.open_leg(share, race, &departure(server), random);
            opened.push((id.expect("room"), *server));
        }
        Opened { race, legs: opened }
    }

    fn answer_leg(&mut self, number: u16, (id, server): (u16, usize), code: u16) -> Taken {
        let remote = self.servers[server].options.address;
        let mut message = answer(id, number);
        message[3] |= code as u8;
        self.take(local(), remote, &message)
    }

    /// The ends of races by time: the client's port and the error that it gets.
    fn expire_races(&mut self) -> Vec<(u16, u8)> {
        let Bench {
            exchanges,
            share,
            shard,
            waiting,
            now,
            ..
        } = self;
        let mut ended = Vec::new();
        exchanges.expire(share, *now, shard, waiting, |waiting| {
            ended.push((waiting.client.port(), waiting.held_rcode));
        });
        ended
    }
}

use DropReason::{ResponseHeld, ResponseLate, ResponseLost};

#[test]
fn the_first_answer_wins_and_the_others_are_counted() {
    let mut bench = Bench::new(100, u16::MAX);
    let opened = bench.race(5, &[0, 1, 1]);
    assert_eq!(bench.outstanding(), [1, 2]);
    bench.now.0 += 1_000_000;
    assert_eq!(bench.answer_leg(5, opened.legs[1], 0), Ok(5));
    assert_eq!(
        (
            bench.waiting.sent,
            bench.waiting.message()[..2].to_vec(),
            bench.waiting.server
        ),
        (Now(SECOND), vec![0x12, 0x34], ServerId(1)),
    );
    // The losers' servers have the query until they answer.
    assert_eq!(bench.outstanding(), [1, 1]);
    assert_eq!(bench.answer_leg(5, opened.legs[0], 0), Err(ResponseLost));
    assert_eq!(bench.answer_leg(5, opened.legs[2], 2), Err(ResponseLost));
    for leg in opened.legs {
        assert_eq!(bench.answer_leg(5, leg, 0), Err(ResponseLate), "F16");
    }
    assert_eq!(bench.outstanding(), [0, 0]);
    let [one, other] = &bench.servers;
    assert_eq!((one.queries.sum(), other.queries.sum()), (1, 2));
    assert_eq!((one.responses.sum(), other.responses.sum()), (1, 2));
    assert_eq!((one.extra_queries.sum(), other.extra_queries.sum()), (0, 2));
}

/// F14, F15 with race on: junk that names one leg from where another was asked ends neither.
#[test]
fn junk_ends_no_leg() {
    let mut bench = Bench::new(100, u16::MAX);
    let Opened { legs, .. } = bench.race(5, &[0, 1]);
    for (id, server) in [(legs[0].0, 1), (legs[1].0, 0)] {
        let crossed = bench.answer_leg(5, (id, server), 0);
        assert_eq!(crossed, Err(DropReason::ResponseMismatch));
    }
    for leg in &legs {
        let other_question = bench.answer_leg(6, *leg, 0);
        assert_eq!(other_question, Err(DropReason::ResponseMismatch));
    }
    assert_eq!(bench.outstanding(), [1, 1]);
    assert_eq!(bench.answer_leg(5, legs[1], 0), Ok(5));
}

#[test]
fn an_error_waits_for_a_better_answer() {
    let mut bench = Bench::new(100, u16::MAX);
    let Opened { legs, .. } = bench.race(5, &[0, 1]);
    assert_eq!(bench.answer_leg(5, legs[0], 2), Err(ResponseHeld));
    assert_eq!(bench.answer_leg(5, legs[1], 3), Ok(5), "NXDOMAIN is good");
    let Opened { legs, .. } = bench.race(6, &[0, 1]);
    assert_eq!(bench.answer_leg(6, legs[1], 5), Err(ResponseHeld));
    assert_eq!(bench.answer_leg(6, legs[0], 2), Ok(6), "the last one");
}

#[test]
fn an_error_is_given_when_the_others_time_out() {
    let mut bench = Bench::new(100, u16::MAX);
    let Opened { legs, .. } = bench.race(5, &[0, 1]);
    assert_eq!(bench.answer_leg(5, legs[0], 5), Err(ResponseHeld));
    bench.race(6, &[0, 1]);
    bench.now.0 += 2 * SECOND;
    let mut ends = bench.expire_races();
    ends.sort_unstable();
    assert_eq!(ends, [(5, 5), (6, 0)]);
    assert_eq!(bench.outstanding(), [0, 0]);
    assert_eq!(
        bench.servers.each_ref().map(|server| server.timeouts.sum()),
        [1, 2]
    );
}

/// A leg that could not be sent is not waited for.
#[test]
fn a_cancelled_leg_leaves_the_race() {
    let mut bench = Bench::new(100, u16::MAX);
    let Opened { legs, .. } = bench.race(5, &[0, 1]);
    let (id, _) = legs[0];
    bench.exchanges.cancel(PORT, id, bench.now, &bench.shard);
    assert_eq!(bench.answer_leg(5, legs[1], 2), Ok(5), "the only one left");
    let Opened { legs, race } = bench.race(6, &[0]);
    assert!(bench.exchanges.join(race));
    assert_eq!(bench.answer_leg(6, legs[0], 2), Err(ResponseHeld));
    assert_eq!(bench.exchanges.give_up_leg(race), 2, "to be given now");
    assert_eq!(bench.outstanding(), [0, 0]);
}

/// hedge: a race of one, which a second leg joins while the first is out.
#[test]
fn a_late_query_is_joined_and_one_that_was_answered_is_not() {
    let mut bench = Bench::new(100, u16::MAX);
    let [answered, late] = [5, 6].map(|number| bench.race(number, &[0]));
    for race in [answered.race, late.race] {
        let due = Now(SECOND + 1_000);
        bench.exchanges.hedge(&mut bench.share, race, due);
    }
    let Bench {
        exchanges,
        share,
        waiting,
        ..
    } = &mut bench;
    assert_eq!(exchanges.next_hedge(share), Some(Now(SECOND + 1_000)));
    assert_eq!(exchanges.next_late(share, Now(SECOND), waiting), None);
    bench.now.0 += 2_000;
    assert_eq!(bench.answer_leg(5, answered.legs[0], 0), Ok(5));
    let Bench {
        exchanges,
        share,
        waiting,
        now,
        random,
        servers,
        ..
    } = &mut bench;
    assert_eq!(exchanges.next_late(share, *now, waiting), Some(late.race));
    assert_eq!(waiting.client.port(), 6);
    assert!(exchanges.join(late.race));
    let departure = Departure {
        server: &servers[1],
        port: PORT,
        now: *now,
        timeout: TIMEOUT,
        maximum_outstanding: u32::MAX,
    };
    let id = exchanges.open_leg(share, late.race, &departure, random);
    assert_eq!(exchanges.next_late(share, *now, waiting), None);
    assert!(!exchanges.join(answered.race));
    assert_eq!(bench.answer_leg(6, (id.unwrap(), 1), 0), Ok(6));
    assert_eq!(bench.waiting.sent, Now(SECOND), "since the client asked");
    assert_eq!(bench.answer_leg(6, late.legs[0], 0), Err(ResponseLost));
}

/// What a leg remembers is what the first one does: whatever the client, the door and the query are.
#[test]
fn every_leg_remembers_the_whole_query() {
    let mut bench = Bench::new(100, u16::MAX);
    let Opened { legs, .. } = bench.race(5, &[0, 1]);
    assert_eq!(bench.answer_leg(5, legs[0], 0), Ok(5));
    let first = bench.waiting.clone();
    let Opened { legs, .. } = bench.race(5, &[0, 1]);
    assert_eq!(bench.answer_leg(5, legs[1], 0), Ok(5));
    let second = Waiting {
        server: first.server,
        ..bench.waiting.clone()
    };
    assert_eq!(format!("{first:?}"), format!("{second:?}"));
}

#[derive(Debug, Clone)]
enum Step {
    Race(u8),
    /// An answer to a leg that was opened so many before the last, with this RCODE.
    Answer(usize, u16),
    Cancel(usize),
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (1..5_u8).prop_map(Step::Race),
        8 => (0..30_usize, prop_oneof![Just(0_u16), Just(2), Just(3), Just(5)])
            .prop_map(|(back, code)| Step::Answer(back, code)),
        1 => (0..30_usize).prop_map(Step::Cancel),
        1 => (0..1_500_u64).prop_map(Step::Wait),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// I1: every query ends once, and nothing is kept: no body, no count of a server's.
    #[test]
    fn every_race_ends_once(steps in proptest::collection::vec(step(), 1..200)) {
        let mut bench = Bench::new(100, 0x0fff);
        let mut legs: Vec<(u16, (u16, usize))> = Vec::new();
        let (mut ended, mut cancelled) = (HashSet::new(), HashSet::new());
        let mut number = 0;
        for step in steps {
            match step {
                Step::Race(count) => {
                    number += 1;
                    let servers: Vec<usize> = (0..count.into()).map(|leg: usize| leg % 2).collect();
                    let opened = bench.race(number, &servers);
                    legs.extend(opened.legs.into_iter().map(|leg| (number, leg)));
                }
                Step::Answer(back, code) => {
                    let Some(&(number, leg)) = legs.len().checked_sub(back + 1).map(|at| &legs[at]) else { continue };
                    if let Ok(taken) = bench.answer_leg(number, leg, code) {
                        prop_assert_eq!(taken, number);
                        prop_assert!(ended.insert(number), "two answers");
                    }
                }
                Step::Cancel(back) => {
                    let Some(&(number, (id, _))) = legs.len().checked_sub(back + 1).map(|at| &legs[at]) else { continue };
                    bench.exchanges.cancel(PORT, id, bench.now, &bench.shard);
                    cancelled.insert(number);
                }
                Step::Wait(milliseconds) => {
                    bench.now.0 += milliseconds * SECOND / 1_000;
                    for (number, _) in bench.expire_races() {
                        prop_assert!(ended.insert(number), "two ends");
                    }
                }
            }
        }
        bench.now.0 += 4 * SECOND;
        for (number, _) in bench.expire_races() {
            prop_assert!(ended.insert(number), "two ends");
        }
        let silent = (1..=number).filter(|number| !ended.contains(number) && !cancelled.contains(number)).count();
        prop_assert_eq!(silent, 0, "races without an end");
        prop_assert_eq!(bench.outstanding(), [0, 0]);
        let room = bench.exchanges.slots.count();
        let free = std::iter::from_fn(|| bench.exchanges.slots.take(0, &mut bench.share.hand)).count();
        prop_assert_eq!(free, room, "bodies are lost");
    }
}

/// Answers of all legs at the same moment, from two threads: one of them wins.
#[test]
fn legs_answered_at_once_have_one_winner() {
    let mut bench = Bench::new(1_000, u16::MAX);
    for round in 0..2_000_u16 {
        let Opened { legs, .. } = bench.race(round, &[0, 1]);
        let (exchanges, servers, now) = (&bench.exchanges, &bench.servers, bench.now);
        let take = |(id, server): (u16, usize)| {
            let shard = Shard::new(server + 1, Writers::One, Rings::default());
            let remote = servers[server].options.address;
            let message = answer(id, round);
            let mut waiting = Waiting::new();
            exchanges
                .take(local(), remote, &message, now, &shard, &mut waiting)
                .map(drop)
        };
        let results = std::thread::scope(|scope| {
            let other = scope.spawn(|| take(legs[1]));
            [take(legs[0]), other.join().expect("no panic")]
        });
        let won = results.iter().filter(|result| result.is_ok()).count();
        assert_eq!(won, 1, "{results:?}");
        assert!(results.contains(&Err(ResponseLost)));
        bench.now.0 += SECOND;
    }
    assert_eq!(bench.outstanding(), [0, 0]);
}
