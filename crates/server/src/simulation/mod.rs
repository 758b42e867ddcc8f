//! Workers, rings, exchanges and reloads in a world without a kernel: time, frames, backends and the network do what a seed says.
//!
//! ```text
//!  clients ─▶ network ─▶ programs ─▶ rings ─▶ worker ─▶ rings ─▶ network ─▶ backend ─▶ network ─▶ …
//!                │           ▲                   ▲
//!                └─▶ steering (due, keeping) ────┘ orders
//! ```
//!
//! Real here: [`Worker`](crate::worker::Worker) with its devices, rings and orders, the pipeline, the exchange table with races
//! and hedging, the cache, reloads, what follows from the network and when ([`Due`](crate::network::due::Due) with its
//! [`Paths`](crate::network::paths::Paths), [`plan`](crate::network::plan())), which steps that takes
//! ([`keeping`](crate::network::keeping)). Simulated: the kernel's end of the rings ([`xsk::simulated`]), the clock, the
//! clients, the backends, interfaces, addresses, routes and neighbours, what netlink tells of them, the tables of the kernel
//! program, somebody who takes it off, programs and queues that are refused. A seed gives the same run every time: a failure
//! names it.
//!
//! Not here: TCP itself (queries of streams enter the pipeline, and a backend answers them; races over TCP need sockets), what
//! goes by kernel sockets, and the helper.
//!
//! Checked by name: I1 to I9. Of I4 and I5 what the tables and the fallback make of a frame ([`programs`]); the verdicts of the
//! kernel program itself are those of crates/xsk/tests/verdicts. Of I7 that junk ends no wait and speaks against no server, and
//! that ports and IDs are not to be guessed ([`keys`]). Faults that were planted ([`Fault`]) must be found: they show that the
//! checks see.

mod backend;
mod checks;
mod clients;
mod ground;
mod keys;
mod network;
mod parties;
mod programs;
mod races;
mod steering;
mod streams;
mod world;

use ground::Ground;
use std::fmt;
use world::World;

/// An invariant that does not hold.
#[derive(Debug)]
struct Violation {
    invariant: &'static str,
    what: String,
}

impl Violation {
    fn new(invariant: &'static str, what: impl Into<String>) -> Violation {
        let what = what.into();
        Violation { invariant, what }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.invariant, self.what)
    }
}

type Checked = Result<(), Violation>;

/// What is wrong on purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    None,
    /// A frame that nobody gives back.
    LostFrame,
    /// A chunk that the kernel gives back twice.
    DoubleFree,
    /// A port and ID are used again at once, so that a late answer finds another query.
    NoQuarantine,
    /// Who has lost a race answers as well.
    LosersAnswer,
    /// A queue is closed, and what it had is not taken back.
    LeakedQueue,
    /// The program is not told of addresses that are gone.
    StaleTables,
    /// Nobody hears of next hops that have another address, or are there again.
    DeafToNeighbours,
    /// A route that moves to another interface is no reason to tell the programs.
    NoPlanForRoutes,
    /// Nobody looks whether programs are still there.
    BlindToPrograms,
    /// What was refused is not tried again.
    NoSecondTry,
    /// The program has no verdict for frames of a queue that has no socket.
    NoFallback,
    /// Junk ends the wait for the true answer.
    JunkEndsWaits,
    /// Junk says that its server is not well.
    JunkIsFailure,
    /// IDs count up.
    CountedIds,
    /// All queries leave from one port.
    OnePort,
}

/// Things that happen in a run, before it comes to rest.
const STEPS: usize = 80;

/// Seeds beside the other unit tests; `SIMULATION_SEEDS` says otherwise (10,000 in `./dev test`), `SIMULATION_FIRST` where to
/// start.
const SEEDS: u64 = 100;

fn number(name: &str, otherwise: u64) -> u64 {
    let text = std::env::var(name).ok();
    text.map_or(otherwise, |text| text.parse().expect("a number"))
}

/// Runs seeds until one fails; that one, and what it broke.
fn first_violation(seeds: std::ops::Range<u64>, fault: Fault) -> Option<(u64, Violation)> {
    ground::with(|ground: &Ground| {
        seeds.into_iter().find_map(|seed| {
            let violation = World::new(ground, seed, fault).run(STEPS).err()?;
            Some((seed, violation))
        })
    })
    .flatten()
}

/// The same over all processors, every one with seeds of its own.
fn first_violation_of_all(seeds: std::ops::Range<u64>) -> Option<(u64, Violation)> {
    let processors = std::thread::available_parallelism().map_or(1, usize::from) as u64;
    let share = (seeds.end - seeds.start).div_ceil(processors);
    std::thread::scope(|scope| {
        let starts = seeds.clone().step_by(share.max(1) as usize);
        let threads: Vec<_> = starts
            .map(|start| start..seeds.end.min(start + share))
            .map(|part| scope.spawn(|| first_violation(part, Fault::None)))
            .collect();
        let violations = threads.into_iter().map(|thread| thread.join());
        violations
            .filter_map(|found| found.expect("no panic"))
            .next()
    })
}

#[test]
fn no_seed_breaks_an_invariant() {
    let first = number("SIMULATION_FIRST", 0);
    let seeds = first..first + number("SIMULATION_SEEDS", SEEDS);
    if let Some((seed, violation)) = first_violation_of_all(seeds) {
        panic!("SIMULATION_FIRST={seed} SIMULATION_SEEDS=1 shows it: {violation}");
    }
}

/// The invariant that a planted fault breaks.
fn found(fault: Fault) -> Option<&'static str> {
    if !ground::can_be() {
        return None;
    }
    let (_, violation) =
        first_violation(0..500, fault).unwrap_or_else(|| panic!("500 seeds do not see {fault:?}"));
    Some(violation.invariant)
}

#[test]
fn a_lost_frame_is_found() {
    assert!(matches!(found(Fault::LostFrame), None | Some("I3")));
}

#[test]
fn a_double_free_is_found() {
    assert!(matches!(found(Fault::DoubleFree), None | Some("I3")));
}

#[test]
fn a_late_answer_in_a_slot_that_is_used_again_is_found() {
    assert!(matches!(found(Fault::NoQuarantine), None | Some("I1")));
}

#[test]
fn a_second_answer_by_who_lost_a_race_is_found() {
    assert!(matches!(found(Fault::LosersAnswer), None | Some("I1")));
}

#[test]
fn frames_lost_with_a_queue_that_is_closed_are_found() {
    assert!(matches!(found(Fault::LeakedQueue), None | Some("I3")));
}

#[test]
fn a_removed_address_that_is_still_claimed_is_found() {
    assert!(matches!(found(Fault::StaleTables), None | Some("I4")));
}

#[test]
fn a_next_hop_that_is_not_followed_is_found() {
    assert!(matches!(found(Fault::DeafToNeighbours), None | Some("I9")));
}

#[test]
fn a_program_that_is_taken_off_and_not_missed_is_found() {
    assert!(matches!(found(Fault::BlindToPrograms), None | Some("I9")));
}

#[test]
fn what_was_refused_and_is_not_tried_again_is_found() {
    assert!(matches!(found(Fault::NoSecondTry), None | Some("I9")));
}

#[test]
fn a_frame_that_is_aborted_is_found() {
    assert!(matches!(found(Fault::NoFallback), None | Some("I5")));
}

#[test]
fn junk_that_ends_a_wait_is_found() {
    assert!(matches!(found(Fault::JunkEndsWaits), None | Some("I7")));
}

#[test]
fn junk_that_speaks_against_a_server_is_found() {
    assert!(matches!(found(Fault::JunkIsFailure), None | Some("I7")));
}

#[test]
fn ids_that_can_be_predicted_are_found() {
    assert!(matches!(found(Fault::CountedIds), None | Some("I7")));
}

#[test]
fn a_port_that_can_be_predicted_is_found() {
    assert!(matches!(found(Fault::OnePort), None | Some("I7")));
}

#[test]
fn a_route_that_moves_without_the_programs_is_found() {
    assert!(matches!(found(Fault::NoPlanForRoutes), None | Some("I9")));
}
