//! What of memory a turn of a worker touches, which instructions do not show.
//!
//! How many cache lines, of code and of data: a worker that has slept finds most of them cold, and each then takes as long as twenty
//! instructions.
//!
//! Loads that a processor waits for: of bytes that were stored a moment ago, in other pieces than they are loaded in. What one
//! store wrote is taken from it before it is in the cache ("store forwarding"); what several wrote, or one and what was there
//! before, is not: the load waits until all that was stored before it is in the cache, 5 ns, and 60 behind a ring of recent
//! queries. A compiler makes such loads where it copies a value as a whole that was written field by field.
//!
//! valgrind's lackey tells all loads and stores of examples/stages.

use std::collections::{HashSet, VecDeque};
use std::io::{BufRead, BufReader};
use std::ops::Range;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::thread;

/// So many stores may be on their way to the cache when a load comes: a third of what an Intel processor of 2021 has room for,
/// for the others have had time.
const RECENT: usize = 30;

/// The stores of a moment, the newest first.
#[derive(Default)]
struct Stores(VecDeque<Range<u64>>);

impl Stores {
    fn note(&mut self, stored: Range<u64>) {
        self.0.truncate(RECENT - 1);
        self.0.push_front(stored);
    }

    /// Whether bytes of a load are of a store that has not all of them.
    fn make_wait(&self, loaded: &Range<u64>) -> bool {
        let meets = |stored: &&Range<u64>| stored.start < loaded.end && loaded.start < stored.end;
        let has_all =
            |stored: &Range<u64>| stored.start <= loaded.start && loaded.end <= stored.end;
        self.0
            .iter()
            .find(meets)
            .is_some_and(|stored| !has_all(stored))
    }
}

#[test]
fn loads_wait_for_stores_that_have_not_all_of_their_bytes() {
    let mut stores = Stores::default();
    stores.note(100..108);
    stores.note(104..106);
    assert!(stores.make_wait(&(104..108)) && stores.make_wait(&(96..104)));
    assert!(!stores.make_wait(&(104..106)) && !stores.make_wait(&(100..104)));
    assert!(!stores.make_wait(&(108..116)));
    for other in 0..RECENT as u64 {
        stores.note(other..other + 1);
    }
    assert!(!stores.make_wait(&(104..108)));
}

/// What lackey tells of one access: ` S 1ffeffe5b8,8` or ` L …`, ` M …` for a load and a store; `I  …` is an instruction.
fn access(line: &str) -> Option<(&str, Range<u64>)> {
    let (kind, place) = line.trim_start().split_once(' ')?;
    let (address, octets) = place.trim_start().split_once(',')?;
    let address = u64::from_str_radix(address, 16).ok()?;
    let octets: u64 = octets.trim().parse().ok()?;
    Some((kind, address..address + octets))
}

/// What is seen of turns of ten queries.
pub(super) struct Seen {
    /// The instructions at which a load waited, and how often.
    pub(super) late: Vec<(u64, usize)>,
    /// Cache lines of code and of data, of the turn with the fewest.
    pub(super) lines: [usize; 2],
}

/// Looks at turns of a scene.
pub(super) fn look(program: &Path, scene: &str) -> Seen {
    let mut child = Command::new("valgrind")
        .args(["--tool=lackey", "--trace-mem=yes", "--log-fd=1"])
        .arg(program)
        .args([scene, "50"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("valgrind runs");
    let errors = BufReader::new(child.stderr.take().expect("it is piped"));
    let mut told = BufReader::new(child.stdout.take().expect("it is piped"));
    let mark = OnceLock::new();
    let mut trace = Trace::default();
    thread::scope(|scope| {
        // Beside the reading: before the program can say it, lackey has told more than a pipe holds.
        scope.spawn(|| mark_in(errors).map(|line| mark.set(line)));
        let mut line = String::new();
        while told.read_line(&mut line).expect("what lackey tells") > 0 {
            trace.read(line.trim_end(), mark.get());
            line.clear();
        }
    });
    let ended = child.wait().expect("it was started");
    assert!(ended.success() && trace.turns > 0, "{scene}: {ended}");
    Seen {
        late: trace.late,
        lines: trace.fewest.unwrap_or_default(),
    }
}

/// How lackey tells of the store that a turn begins and ends with, whose place the program says first of all.
fn mark_in(mut errors: impl BufRead) -> Option<String> {
    let mut said = String::new();
    errors.read_line(&mut said).ok()?;
    let (_, address) = said.trim().rsplit_once("0x")?;
    let address = u64::from_str_radix(address, 16).ok()?;
    Some(format!(" S {address:08x},1"))
}

#[derive(Default)]
struct Trace {
    stores: Stores,
    /// Of the instruction that is carried out.
    address: u64,
    is_turn: bool,
    turns: usize,
    late: Vec<(u64, usize)>,
    /// Of this turn, by number.
    code: HashSet<u64>,
    data: HashSet<u64>,
    fewest: Option<[usize; 2]>,
}

/// Octets of a cache line.
const LINE: u64 = 64;

/// The numbers of the cache lines that bytes lie in.
fn lines_of(bytes: &Range<u64>) -> Range<u64> {
    bytes.start / LINE..bytes.end.div_ceil(LINE)
}

impl Trace {
    fn read(&mut self, line: &str, mark: Option<&String>) {
        if mark.is_some_and(|mark| mark == line) {
            self.is_turn = !self.is_turn;
            self.turns += 1;
            self.count_lines();
        } else if self.is_turn {
            self.read_in_turn(line);
        }
    }

    /// At a turn's beginning there are none.
    fn count_lines(&mut self) {
        let counted = [self.code.drain().count(), self.data.drain().count()];
        let sum = |lines: [usize; 2]| lines.iter().sum::<usize>();
        if sum(counted) > 0 && self.fewest.is_none_or(|fewest| sum(counted) < sum(fewest)) {
            self.fewest = Some(counted);
        }
    }

    fn read_in_turn(&mut self, line: &str) {
        let Some((kind, bytes)) = access(line) else {
            return;
        };
        if kind == "I" {
            self.address = bytes.start;
            self.code.extend(lines_of(&bytes));
        } else {
            self.data.extend(lines_of(&bytes));
            if kind != "S" && self.stores.make_wait(&bytes) {
                self.note_late();
            }
            if kind != "L" {
                self.stores.note(bytes);
            }
        }
    }

    fn note_late(&mut self) {
        match self.late.iter_mut().find(|(at, _)| *at == self.address) {
            Some((_, times)) => *times += 1,
            None => self.late.push((self.address, 1)),
        }
    }
}
