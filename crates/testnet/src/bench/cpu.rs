//! CPU time: what the cores did, what a process used, and whether somebody else disturbed.
//!
//! Cores and other programs are counted in steps of 10 ms (proc_stat(5), proc_pid_stat(5)); a process that was asked for in
//! nanoseconds, by its clock (clock_getcpuclockid(3)), which has the threads that have ended too, and the softirqs that came
//! into it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::{Duration, Instant};

use nix::time::clock_getcpuclockid;
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

use crate::{During, Outcome};

/// Ticks of /proc a second: USER_HZ, which is 100 on every architecture that Linux knows today.
const TICKS_PER_SECOND: f64 = 100.0;

/// The process number of the one that starts the kernel's threads.
pub(super) const KTHREADD: u32 = 2;

/// What cores and processes had used at one moment.
#[derive(Clone, Debug)]
pub(super) struct Snapshot {
    at: Instant,
    /// In ticks.
    cores: Vec<[u64; 8]>,
    processes: BTreeMap<u32, Duration>,
    /// Of all other programs together, in ticks; 0 where nobody asked.
    others: u64,
}

/// What was used between two moments, in seconds of one core.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Used {
    /// Time that passed.
    pub(super) wall: f64,
    /// Work of programs, over all cores.
    pub(super) user: f64,
    /// The kernel's, for programs.
    pub system: f64,
    /// The kernel's, for packets and timers.
    pub softirq: f64,
    /// Given to other machines by the hypervisor.
    pub steal: f64,
    /// Busy, by core.
    pub cores: Vec<f64>,
    /// By process that was asked for.
    pub processes: BTreeMap<u32, f64>,
    /// By programs that are neither these nor started by them. Not what user and system leave over: time of a process holds
    /// the softirqs that came into it, and theirs does not.
    #[serde(default)]
    pub(super) others: f64,
}

impl Snapshot {
    /// Looks now; `processes` by their numbers, all threads of each. One that is gone has used nothing.
    pub(super) fn take(processes: &[u32]) -> Outcome<Snapshot> {
        let text = fs::read_to_string("/proc/stat").during("reading /proc/stat")?;
        let times = processes
            .iter()
            .map(|process| (*process, time_of(*process)));
        Ok(Snapshot {
            at: Instant::now(),
            cores: cores_in(&text),
            processes: times.collect(),
            others: 0,
        })
    }

    /// The same, and then what all other programs used: that is a look at every process there is, which takes milliseconds.
    pub(super) fn take_with_others(processes: &[u32]) -> Outcome<Snapshot> {
        let own = Snapshot::take(processes)?;
        Ok(Snapshot {
            others: ticks_of_others(&all_processes(), processes),
            ..own
        })
    }

    /// What was used since an earlier look.
    pub(super) fn since(&self, before: &Snapshot) -> Used {
        let mut used = Used {
            wall: (self.at - before.at).as_secs_f64(),
            others: self.others.saturating_sub(before.others) as f64 / TICKS_PER_SECOND,
            ..Used::default()
        };
        for (now, then) in self.cores.iter().zip(&before.cores) {
            let spent =
                |field: usize| (now[field] - then[field].min(now[field])) as f64 / TICKS_PER_SECOND;
            // user nice system idle iowait irq softirq steal
            used.user += spent(0) + spent(1);
            used.system += spent(2);
            used.softirq += spent(5) + spent(6);
            used.steal += spent(7);
            let idle = spent(3) + spent(4);
            used.cores.push((used.wall - idle - spent(7)).max(0.0));
        }
        for (process, now) in &self.processes {
            let then = before.processes.get(process).copied().unwrap_or_default();
            used.processes
                .insert(*process, now.saturating_sub(then).as_secs_f64());
        }
        used
    }
}

impl Used {
    /// Busy time of all cores.
    pub(super) fn busy(&self) -> f64 {
        self.cores.iter().sum()
    }

    /// Of some processes together; one that nobody asked for has used nothing.
    pub(super) fn of(&self, processes: &[u32]) -> f64 {
        let times = processes.iter().map(|process| self.processes.get(process));
        times.flatten().sum()
    }

    /// Adds what was used at another time.
    pub(super) fn add(&mut self, other: &Used) {
        self.wall += other.wall;
        self.user += other.user;
        self.system += other.system;
        self.softirq += other.softirq;
        self.steal += other.steal;
        self.others += other.others;
        let cores = self.cores.len().max(other.cores.len());
        self.cores.resize(cores, 0.0);
        for (core, more) in self.cores.iter_mut().zip(&other.cores) {
            *core += more;
        }
        for (process, more) in &other.processes {
            *self.processes.entry(*process).or_default() += more;
        }
    }
}

/// What all threads of a process have used. It can be asked until somebody has waited for the process.
fn time_of(process: u32) -> Duration {
    // 0, and what is no number of a process, would name this one.
    let number = i32::try_from(process).ok().filter(|number| *number > 0);
    let clock = number.and_then(|number| clock_getcpuclockid(Pid::from_raw(number)).ok());
    let time = clock.and_then(|clock| clock.now().ok());
    time.map_or(Duration::ZERO, Duration::from)
}

/// The lines `cpuN user nice system idle iowait irq softirq steal …`.
fn cores_in(text: &str) -> Vec<[u64; 8]> {
    let core = |line: &str| {
        let rest = line.strip_prefix("cpu")?;
        let (number, fields) = rest.split_once(' ')?;
        number.parse::<u32>().ok()?;
        let mut ticks = [0; 8];
        for (tick, field) in ticks.iter_mut().zip(fields.split_whitespace()) {
            *tick = field.parse().ok()?;
        }
        Some(ticks)
    };
    text.lines().filter_map(core).collect()
}

/// A process: its number, its parent's, and the ticks of itself and of the children that it has waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    number: u32,
    parent: u32,
    ticks: u64,
}

/// Every process that can be seen.
fn all_processes() -> Vec<Entry> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let entry = |number: u32| {
        let stat = fs::read_to_string(format!("/proc/{number}/stat")).ok()?;
        Some(Entry {
            number,
            parent: parent_in(&stat)?,
            ticks: ticks_with_children_in(&stat)?,
        })
    };
    numbers.filter_map(entry).collect()
}

/// Ticks of all processes but `ours`, what these started, and the kernel's threads. One that ends meanwhile is in its parent's
/// ticks from then on.
fn ticks_of_others(all: &[Entry], ours: &[u32]) -> u64 {
    let mut left_out: BTreeSet<u32> = ours.iter().copied().chain([KTHREADD]).collect();
    loop {
        let known = left_out.len();
        let children = all.iter().filter(|one| left_out.contains(&one.parent));
        let children: Vec<u32> = children.map(|one| one.number).collect();
        left_out.extend(children);
        if left_out.len() == known {
            break;
        }
    }
    let others = all.iter().filter(|one| !left_out.contains(&one.number));
    others.map(|one| one.ticks).sum()
}

/// utime, stime, cutime and cstime: the fields 14 to 17, counted behind the name, which may hold anything in its parentheses.
fn ticks_with_children_in(stat: &str) -> Option<u64> {
    let (_, behind_name) = stat.rsplit_once(')')?;
    let fields = behind_name.split_whitespace().skip(11).take(4);
    let ticks: Option<Vec<u64>> = fields.map(|field| field.parse().ok()).collect();
    Some(ticks?.iter().sum())
}

/// A process's children, their children and so on, as they are now; without itself.
pub(crate) fn descendants(process: u32) -> Vec<u32> {
    let all = all_processes();
    let mut found = Vec::new();
    let mut wanted = vec![process];
    while let Some(parent) = wanted.pop() {
        let children = all.iter().filter(|one| one.parent == parent);
        let children: Vec<u32> = children.map(|one| one.number).collect();
        wanted.extend(&children);
        found.extend(children);
    }
    found
}

/// The fourth field, counted behind the name.
fn parent_in(stat: &str) -> Option<u32> {
    let (_, behind_name) = stat.rsplit_once(')')?;
    behind_name.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use nix::time::ClockId;

    use super::*;

    #[test]
    fn cores_are_read_and_subtracted() {
        let then = "cpu  9 9 9 9\ncpu0 100 0 50 1000 0 0 10 0 0 0\ncpu1 0 0 0 0 0 0 0 0\nintr 5\n";
        let now =
            "cpu  9 9 9 9\ncpu0 300 0 150 1080 10 5 15 20 0 0\ncpu1 0 100 0 300 0 0 0 0\nintr 5\n";
        let start = Instant::now();
        let snapshot = |text, milliseconds: u64, at| Snapshot {
            at,
            cores: cores_in(text),
            processes: BTreeMap::from([(7, Duration::from_millis(milliseconds))]),
            others: milliseconds / 50,
        };
        let end = start + Duration::from_millis(4_200);
        let used = snapshot(now, 2_503, end).since(&snapshot(then, 1_000, start));
        assert_eq!((used.user, used.system), (3.0, 1.0));
        assert!((used.softirq - 0.1).abs() < 1e-9 && (used.steal - 0.2).abs() < 1e-9);
        assert!((used.cores[0] - 3.1).abs() < 1e-9 && used.cores.len() == 2);
        // Ticks saw one second of it; the idle time tells of more.
        assert!((used.cores[1] - 1.2).abs() < 1e-9);
        assert!((used.processes[&7] - 1.503).abs() < 1e-9);
        assert_eq!(used.others, 0.3);
    }

    #[test]
    fn others_are_neither_ours_nor_started_by_us_nor_the_kernels_threads() {
        let entry = |(number, parent, ticks): (u32, u32, u64)| Entry {
            number,
            parent,
            ticks,
        };
        // init, the kernel's threads, a shell with the bench, whose server has a child; and a compiler.
        let all = [
            (1, 0, 1),
            (2, 0, 20),
            (15, 2, 300),
            (40, 1, 4_000),
            (50, 40, 50_000),
            (51, 50, 600_000),
            (52, 51, 7_000_000),
            (60, 1, 80_000_000),
        ];
        assert_eq!(ticks_of_others(&all.map(entry), &[50]), 80_004_001);
        assert_eq!(ticks_of_others(&[], &[50]), 0);
    }

    #[test]
    fn a_program_that_ended_counts_where_its_parent_does() {
        let stat = "7 (a) b (c) S 1 7 7 0 -1 4194304 100 0 0 0 12 34 500 6000 20 0 1 0 5";
        assert_eq!(ticks_with_children_in(stat), Some(6_546));
        let own = std::process::id();
        assert!(all_processes().iter().any(|one| one.number == own));
    }

    #[test]
    fn a_childs_child_is_a_descendant() {
        assert_eq!(parent_in("7 (a) b) S 2 0 0"), Some(2));
        let mut child = std::process::Command::new("sh")
            .args(["-c", "sleep 60 & echo; wait"])
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        // It prints when its own child runs.
        let mut octet = [0];
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut octet).unwrap();
        let all = descendants(std::process::id());
        let grandchildren = descendants(child.id());
        for process in &grandchildren {
            let process = nix::unistd::Pid::from_raw(*process as i32);
            nix::sys::signal::kill(process, nix::sys::signal::Signal::SIGKILL).unwrap();
        }
        child.wait().unwrap();
        assert_eq!(grandchildren.len(), 1);
        assert!(all.contains(&child.id()) && all.contains(&grandchildren[0]));
    }

    #[test]
    fn this_machine_has_cores_and_this_process_has_a_time() {
        let own = std::process::id();
        let snapshot = Snapshot::take(&[own, 0, u32::MAX]).unwrap();
        assert!(!snapshot.cores.is_empty());
        for none in [0, u32::MAX] {
            assert_eq!(snapshot.processes[&none], Duration::ZERO);
        }
        assert!(snapshot.processes[&own] > Duration::ZERO);
    }

    #[test]
    fn a_process_that_has_ended_tells_of_all_its_threads_until_it_is_waited_for() {
        let mut child = std::process::Command::new("sh")
            .args(["-c", "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done"])
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        // Its output ends with it.
        let mut said = child.stdout.take().unwrap();
        std::io::Read::read_to_end(&mut said, &mut Vec::new()).unwrap();
        let time = time_of(child.id());
        child.wait().unwrap();
        assert!(time > Duration::ZERO);
        assert_eq!(time_of(child.id()), Duration::ZERO);
        // A thread that is gone counts where its process does.
        let wanted = Duration::from_millis(5);
        let before = time_of(std::process::id());
        let used = || ClockId::CLOCK_THREAD_CPUTIME_ID.now().map(Duration::from);
        let is_busy = move || while used().unwrap() < wanted {};
        std::thread::spawn(is_busy).join().unwrap();
        assert!(time_of(std::process::id()) - before >= wanted);
    }

    #[test]
    fn what_was_used_at_several_times_adds_up() {
        let used = |cores: &[f64], process: u32| Used {
            wall: 2.0,
            user: 0.5,
            system: 0.25,
            softirq: 0.125,
            steal: 0.5,
            cores: cores.to_vec(),
            processes: BTreeMap::from([(7, 0.25), (process, 0.5)]),
            others: 0.75,
        };
        let mut sum = Used::default();
        sum.add(&used(&[0.5, 0.25], 8));
        sum.add(&used(&[0.5, 0.75], 9));
        assert_eq!((sum.wall, sum.user, sum.system), (4.0, 1.0, 0.5));
        assert_eq!((sum.softirq, sum.steal, sum.others), (0.25, 1.0, 1.5));
        assert_eq!((sum.cores.clone(), sum.busy()), (vec![1.0, 1.0], 2.0));
        assert_eq!(
            sum.processes,
            BTreeMap::from([(7, 0.5), (8, 0.5), (9, 0.5)])
        );
        assert_eq!(sum.of(&[7, 9, 10]), 1.0);
    }
}
