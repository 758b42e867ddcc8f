//! What was counted: one tally per sending thread, added up for every line that is printed.

use crate::judge::{Answer, Fault};
use hdrhistogram::Histogram;

/// Response codes counted one by one; rarer ones share the last place.
const RCODES: usize = 32;

/// The longest latency that is told apart, in nanoseconds: as long as any run, or wait for an answer, may take (a million
/// seconds, `commands/values.rs`). With `-Q` beyond what a server does, latencies from the intended time grow with the run.
const LATENCY_MAX: u64 = 1_000_000 * 1_000_000_000;

/// An empty histogram of times in nanoseconds.
pub fn latencies() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LATENCY_MAX, 3)
        .expect("one to a million seconds in nanoseconds, three digits: constants that it takes")
}

/// Counts of queries and answers.
#[derive(Clone, Debug)]
pub struct Tally {
    /// Queries that the kernel took.
    pub sent: u64,
    /// Octets of their messages.
    pub sent_octets: u64,
    /// Queries that were due and were given up, because the generator was too far behind.
    pub skipped: u64,
    /// First answers that are right and in time.
    pub right: u64,
    /// Answers that are right but came after the time limit, or well-formed but so late that their query is forgotten.
    pub late: u64,
    /// Right answers to queries that had one already.
    pub duplicate: u64,
    /// Queries whose time-out was over before their answers came; only `floodgate sockets` gives queries up.
    pub given_up: u64,
    /// Everything else that came to our ports, by [`Fault::index`].
    pub wrong: [u64; Fault::COUNT],
    /// Right answers whose question came back in other upper and lower case.
    pub case_changed: u64,
    /// Right answers with TC set.
    pub truncated: u64,
    /// Octets of the messages of right answers.
    pub answer_octets: u64,
    /// Octets of the longest of them.
    pub answer_octets_max: u16,
    /// Right answers by response code; the last place gathers codes above 30.
    pub by_rcode: [u64; RCODES],
    /// From the time at which a query was meant to be sent to its right answer, in nanoseconds.
    pub latency: Histogram<u64>,
}

impl Default for Tally {
    fn default() -> Tally {
        Tally {
            sent: 0,
            sent_octets: 0,
            skipped: 0,
            right: 0,
            late: 0,
            duplicate: 0,
            given_up: 0,
            wrong: [0; Fault::COUNT],
            case_changed: 0,
            truncated: 0,
            answer_octets: 0,
            answer_octets_max: 0,
            by_rcode: [0; RCODES],
            latency: latencies(),
        }
    }
}

impl Tally {
    /// Counts a right answer that came `latency` nanoseconds after its query was meant to be sent.
    #[inline]
    pub fn count_right(&mut self, answer: &Answer, latency: u64) {
        self.right += 1;
        self.case_changed += u64::from(answer.case_changed);
        self.truncated += u64::from(answer.truncated);
        self.answer_octets += u64::from(answer.length);
        self.answer_octets_max = self.answer_octets_max.max(answer.length);
        self.by_rcode[usize::from(answer.rcode).min(RCODES - 1)] += 1;
        self.latency.saturating_record(latency);
    }

    /// Counts a wrong one.
    #[inline]
    pub fn count_wrong(&mut self, fault: Fault) {
        self.wrong[fault.index()] += 1;
    }

    /// All that is wrong.
    pub fn wrong_total(&self) -> u64 {
        self.wrong.iter().sum()
    }

    /// Queries that were due and are sent or given up.
    pub fn offered(&self) -> u64 {
        self.sent + self.skipped
    }

    /// Everything that came to our ports.
    pub fn answers(&self) -> u64 {
        self.right + self.late + self.duplicate + self.wrong_total()
    }

    /// Whether anything was counted at all.
    pub fn is_something(&self) -> bool {
        self.offered() + self.answers() + self.given_up > 0
    }

    /// Queries without a right answer, in time or late.
    pub fn unanswered(&self) -> u64 {
        self.sent.saturating_sub(self.right + self.late)
    }

    /// Right answers by response code, in ascending order; `None` gathers codes above 30.
    pub fn rcodes(&self) -> impl Iterator<Item = (Option<u16>, u64)> {
        let code = |number: usize| (number < RCODES - 1).then_some(number as u16);
        let counted = self.by_rcode.iter().enumerate();
        counted
            .filter(|(_, count)| **count > 0)
            .map(move |(number, count)| (code(number), *count))
    }

    /// What several threads have counted together.
    pub fn sum(tallies: &[Tally]) -> Tally {
        let mut sum = Tally::default();
        tallies.iter().for_each(|tally| sum.add(tally));
        sum
    }

    /// What was added since `before`, an earlier look at the same counts. The longest answer is that of the whole run.
    pub fn since(&self, before: &Tally) -> Tally {
        let mut since = self.clone();
        // A lane that ends takes back what never left its ring: there may be fewer now.
        since.sent = self.sent.saturating_sub(before.sent);
        since.sent_octets -= before.sent_octets;
        since.skipped -= before.skipped;
        since.right -= before.right;
        since.late -= before.late;
        since.duplicate -= before.duplicate;
        since.given_up -= before.given_up;
        since.case_changed -= before.case_changed;
        since.truncated -= before.truncated;
        since.answer_octets -= before.answer_octets;
        subtract_each(&mut since.wrong, &before.wrong);
        subtract_each(&mut since.by_rcode, &before.by_rcode);
        since
            .latency
            .subtract(&before.latency)
            .expect("counts only grow, and all histograms have the same bounds");
        since
    }

    /// Adds what another thread has counted.
    pub fn add(&mut self, other: &Tally) {
        self.sent += other.sent;
        self.sent_octets += other.sent_octets;
        self.skipped += other.skipped;
        self.right += other.right;
        self.late += other.late;
        self.duplicate += other.duplicate;
        self.given_up += other.given_up;
        self.case_changed += other.case_changed;
        self.truncated += other.truncated;
        self.answer_octets += other.answer_octets;
        self.answer_octets_max = self.answer_octets_max.max(other.answer_octets_max);
        add_each(&mut self.wrong, &other.wrong);
        add_each(&mut self.by_rcode, &other.by_rcode);
        self.latency
            .add(&other.latency)
            .expect("all histograms have the same bounds");
    }
}

fn add_each(to: &mut [u64], from: &[u64]) {
    for (to, from) in to.iter_mut().zip(from) {
        *to += from;
    }
}

fn subtract_each(from: &mut [u64], what: &[u64]) {
    for (from, what) in from.iter_mut().zip(what) {
        *from -= what;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(rcode: u16) -> Answer {
        Answer {
            rcode,
            truncated: rcode == 0,
            case_changed: false,
            length: 100 + rcode,
        }
    }

    #[test]
    fn what_a_period_added_is_told_apart() {
        let mut tally = Tally {
            sent: 1,
            ..Tally::default()
        };
        tally.count_right(&answer(5), 9_000);
        let before = tally.clone();
        tally.sent = 4;
        tally.count_right(&answer(0), 1_000);
        tally.count_wrong(Fault::NeverAsked);
        let since = tally.since(&before);
        assert_eq!((since.sent, since.right, since.wrong_total()), (3, 1, 1));
        assert_eq!(since.rcodes().collect::<Vec<_>>(), [(Some(0), 1)]);
        assert_eq!((since.latency.len(), since.latency.max()), (1, 1_000));
        assert_eq!(since.since(&since).answers(), 0);
        tally.sent = 0;
        assert_eq!(tally.since(&before).sent, 0, "taken back");
    }

    #[test]
    fn latencies_of_a_long_run_are_told_apart() {
        let mut tally = Tally::default();
        // A minute, three hours, eleven days.
        for seconds in [60, 10_800, 950_400] {
            let latency = seconds * 1_000_000_000;
            tally.count_right(&answer(0), latency);
            let told = tally.latency.max();
            // Three digits: a thousandth too much at most.
            let right = latency..=latency + latency / 1000;
            assert!(right.contains(&told), "{told}");
        }
    }

    #[test]
    fn tallies_add_up() {
        let mut one = Tally {
            sent: 5,
            late: 1,
            ..Tally::default()
        };
        one.count_right(&answer(0), 1_000);
        one.count_wrong(Fault::OtherQuestion);
        let mut other = Tally {
            sent: 2,
            ..Tally::default()
        };
        other.count_right(&answer(23), 3_000);
        other.count_right(&answer(4095), u64::MAX);
        one.add(&other);
        assert_eq!((one.sent, one.right, one.wrong_total()), (7, 3, 1));
        assert_eq!((one.answers(), one.unanswered()), (5, 3));
        assert_eq!((one.truncated, one.answer_octets_max), (1, 4195));
        assert_eq!(
            one.rcodes().collect::<Vec<_>>(),
            [(Some(0), 1), (Some(23), 1), (None, 1)]
        );
        assert_eq!(one.latency.len(), 3);
        assert!(
            one.latency.max() >= LATENCY_MAX,
            "too long counts as longest"
        );
    }
}
