//! Queries in flight: what was asked under which port and ID, and when it was meant to leave.
//!
//! A lane (one sending thread) numbers its queries. The number is the key on the wire and the place in the table:
//!
//! ```text
//!  number      … │        ID, 16 bits          │ port, p bits │      ports vary fastest: RSS spreads them over queues
//!  cell          number modulo the table's size                     so cells are used in turn, and mostly in the cache
//!  tag           question 32 bits │ number modulo 2^30 │ state 2    tells this life of the cell from all others
//! ```
//!
//! The ID on the wire is the number's, exclusive or a value that each run draws anew: an answer to a run before, which had the same
//! ports, is told from this run's.
//!
//! One thread departs; any thread may land, because the network card decides which queue an answer comes to. A cell is one
//! compare-and-swap to land, and nothing is ever freed: the next lap overwrites it.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

/// Bits of a number that a tag holds.
const NUMBER_BITS: u32 = 30;
/// Bits of a DNS message ID.
const ID_BITS: u32 = 16;
/// Most ports of a lane, as a power of two: with the ID they fill a tag's number.
pub const PORT_BITS_MAX: u32 = NUMBER_BITS - ID_BITS;

const STATE: u64 = 3;
const IN_FLIGHT: u64 = 1;
const LANDED: u64 = 2;

/// The table of one lane.
pub struct Flights {
    cells: Box<[Cell]>,
    port_bits: u32,
    /// What IDs differ by from bits of the number.
    mask: u16,
    departed: AtomicU64,
}

#[derive(Default)]
struct Cell {
    tag: AtomicU64,
    /// When the query was meant to leave, in nanoseconds since the epoch of the run.
    intended: AtomicU64,
}

/// What a key finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// Asked and not answered yet.
    InFlight(Flight),
    /// Answered already; the number of its question.
    Landed { question: u32 },
    /// Asked so long ago that its cell has another life now.
    Past,
    /// Never asked.
    Never,
}

/// A query in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flight {
    /// Number of its question.
    pub question: u32,
    /// When it was meant to leave, in nanoseconds since the epoch of the run.
    pub intended: u64,
    cell: usize,
    tag: u64,
}

impl Flights {
    /// A table that remembers at least `capacity` queries, over `2^port_bits` ports.
    ///
    /// # Panics
    /// Where `port_bits` is above [`PORT_BITS_MAX`].
    pub fn new(capacity: u64, port_bits: u32) -> Flights {
        assert!(
            port_bits <= PORT_BITS_MAX,
            "{port_bits} bits of ports: at most {PORT_BITS_MAX}"
        );
        // No more than there are keys: a cell must tell its lives apart.
        let cells = capacity
            .max(1)
            .next_power_of_two()
            .min(1 << (ID_BITS + port_bits));
        Flights {
            cells: (0..cells).map(|_| Cell::default()).collect(),
            port_bits,
            mask: 0,
            departed: AtomicU64::new(0),
        }
    }

    /// The same, with IDs that no other run has in this order.
    #[must_use]
    pub fn with_ids_of_its_own(mut self) -> Flights {
        self.mask = RandomState::new().hash_one(0) as u16;
        self
    }

    /// Queries that have departed: the number of the next one.
    pub fn departed(&self) -> u64 {
        self.departed.load(Ordering::Acquire)
    }

    /// The port (counted from the lane's first) and ID of a query by its number.
    #[inline]
    pub fn key(&self, number: u64) -> (u16, u16) {
        let port = number & ((1 << self.port_bits) - 1);
        (port as u16, (number >> self.port_bits) as u16 ^ self.mask)
    }

    /// The number, modulo all keys, of a port and ID: the inverse of [`key`](Flights::key).
    #[inline]
    pub fn number_of(&self, port: u16, id: u16) -> u64 {
        u64::from(id ^ self.mask) << self.port_bits | u64::from(port)
    }

    /// Enters the next query; returns its number. Only the thread that owns the lane may call this.
    #[inline]
    pub fn depart(&self, question: u32, intended: u64) -> u64 {
        let number = self.departed.load(Ordering::Relaxed);
        let cell = &self.cells[self.place(number)];
        // The former life ends before the new time is written: whoever reads the new time cannot land the old query.
        cell.tag.store(0, Ordering::Relaxed);
        cell.intended.store(intended, Ordering::Release);
        cell.tag
            .store(tag(question, number) | IN_FLIGHT, Ordering::Release);
        self.departed.store(number + 1, Ordering::Release);
        number
    }

    /// What was asked under this port (counted from the lane's first) and ID.
    #[inline]
    pub fn find(&self, port: u16, id: u16) -> Found {
        let number = self.number_of(port, id);
        if number >= self.departed.load(Ordering::Acquire) {
            return Found::Never;
        }
        let place = self.place(number);
        let cell = &self.cells[place];
        let found = cell.tag.load(Ordering::Acquire);
        let keys = (1 << (ID_BITS + self.port_bits)) - 1;
        if found >> 2 & keys != number & keys {
            return Found::Past;
        }
        let question = (found >> 32) as u32;
        match found & STATE {
            IN_FLIGHT => Found::InFlight(Flight {
                question,
                intended: cell.intended.load(Ordering::Acquire),
                cell: place,
                tag: found,
            }),
            LANDED => Found::Landed { question },
            _ => Found::Past,
        }
    }

    /// Marks a flight as answered. `false`: another thread was faster, or its cell has another life now.
    #[inline]
    pub fn land(&self, flight: &Flight) -> bool {
        let landed = flight.tag & !STATE | LANDED;
        self.cells[flight.cell]
            .tag
            .compare_exchange(flight.tag, landed, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }

    #[inline]
    fn place(&self, number: u64) -> usize {
        number as usize & (self.cells.len() - 1)
    }
}

#[inline]
fn tag(question: u32, number: u64) -> u64 {
    u64::from(question) << 32 | (number & ((1 << NUMBER_BITS) - 1)) << 2
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn in_flight(flights: &Flights, number: u64) -> Flight {
        let (port, id) = flights.key(number);
        match flights.find(port, id) {
            Found::InFlight(flight) => flight,
            other => panic!("number {number} is {other:?}"),
        }
    }

    #[test]
    fn a_query_lands_once() {
        let flights = Flights::new(16, 2);
        let number = flights.depart(7, 1000);
        let (port, id) = flights.key(number);
        let flight = in_flight(&flights, number);
        assert_eq!((flight.question, flight.intended), (7, 1000));
        assert!(flights.land(&flight));
        assert!(!flights.land(&flight));
        assert_eq!(flights.find(port, id), Found::Landed { question: 7 });
    }

    /// A run that begins where another ended, on the same ports: of 256 answers to that one, each would find a query of this one.
    #[test]
    fn answers_to_another_run_find_nothing() {
        let run = || Flights::new(1 << 16, 0).with_ids_of_its_own();
        let strays = |one: &Flights, other: &Flights| {
            let keys = (0..256).map(|number| one.key(number));
            let found = keys.filter(|&(port, id)| other.find(port, id) != Found::Never);
            found.count()
        };
        let runs: Vec<Flights> = (0..20).map(|_| run()).collect();
        for flights in &runs {
            (0..256).for_each(|number| assert_eq!(flights.depart(0, 0), number));
            assert_eq!(strays(flights, flights), 256);
        }
        let all: usize = runs.windows(2).map(|two| strays(&two[0], &two[1])).sum();
        // One pair in 256 has its IDs in the same block.
        assert!(all <= 5 * 256, "{all} of {} answers", 19 * 256);
    }

    #[test]
    fn what_was_never_asked_is_told_from_what_was_long_ago() {
        let flights = Flights::new(4, 1);
        assert_eq!(flights.find(0, 0), Found::Never);
        for question in 0..6 {
            flights.depart(question, 0);
        }
        assert_eq!(
            flights.find(0, 0),
            Found::Past,
            "number 0, overwritten by 4"
        );
        assert_eq!(in_flight(&flights, 4).question, 4);
        assert_eq!(flights.find(0, 3), Found::Never, "number 6 comes next");
    }

    #[test]
    fn a_flight_of_a_former_life_does_not_land() {
        let flights = Flights::new(2, 0);
        let first = flights.depart(1, 1);
        let flight = in_flight(&flights, first);
        flights.depart(2, 2);
        flights.depart(3, 3);
        assert!(!flights.land(&flight));
        assert!(flights.land(&in_flight(&flights, 2)));
    }

    #[test]
    fn keys_repeat_only_after_all_of_them() {
        let flights = Flights::new(1 << 20, 0);
        for _ in 0..(1 << 16) + 1 {
            flights.depart(0, 0);
        }
        assert_eq!(flights.cells.len(), 1 << 16, "no more cells than keys");
        assert_eq!(flights.key(0), flights.key(1 << 16));
        assert_eq!(in_flight(&flights, 1 << 16).question, 0);
    }

    #[test]
    fn each_query_lands_once_whichever_thread_takes_it() {
        const QUERIES: u64 = 20_000;
        let flights = Flights::new(64, 4);
        let landed = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let mut at = 0;
                    while at < QUERIES {
                        at = flights.departed();
                        for number in at.saturating_sub(64)..at {
                            let (port, id) = flights.key(number);
                            if let Found::InFlight(flight) = flights.find(port, id)
                                && flights.land(&flight)
                            {
                                assert_eq!(u64::from(flight.question), flight.intended);
                                landed.fetch_add(1, Ordering::Relaxed);
                            }
                        }
                    }
                });
            }
            scope.spawn(|| {
                (0..QUERIES).for_each(|number| {
                    flights.depart(number as u32, number);
                })
            });
        });
        let landed = landed.load(Ordering::Relaxed);
        assert!((64..=QUERIES).contains(&landed), "{landed} landed");
    }

    proptest! {
        #[test]
        fn a_number_comes_back_from_its_key(number in any::<u64>(), port_bits in 0..=PORT_BITS_MAX) {
            let flights = Flights::new(1, port_bits);
            let (port, id) = flights.key(number);
            prop_assert!(u32::from(port) < 1 << port_bits);
            prop_assert_eq!(flights.number_of(port, id), number & ((1 << (16 + port_bits)) - 1));
        }
    }
}
