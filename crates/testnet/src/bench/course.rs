//! What happened when during a run: what cores, programs and the kernel's threads did, and how many queries went and came.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::cpu::{KTHREADD, Snapshot, descendants};

/// Time between two looks. /proc counts in steps of 10 ms: shorter would show steps.
pub(super) const EVERY: Duration = Duration::from_millis(250);

/// Curves over a run; times in seconds since the first query, CPU in cores, rates a second.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Course {
    /// When each look at CPUs was.
    pub at: Vec<f64>,
    /// All cores and programs.
    pub user: Vec<f64>,
    pub system: Vec<f64>,
    pub softirq: Vec<f64>,
    /// The server's processes, and the generator's.
    pub server: Vec<f64>,
    pub generator: Vec<f64>,
    /// Threads of the kernel, ksoftirqd and the like; their time is in `system` and `softirq` as well.
    pub kernel_threads: Vec<f64>,
    /// When the generator told its counts.
    pub told_at: Vec<f64>,
    pub offered: Vec<f64>,
    pub sent: Vec<f64>,
    pub right: Vec<f64>,
}

impl Course {
    /// Adds the curves that the generator's lines tell, and lets times count from its first query.
    pub(super) fn tell(&mut self, lines: &[Value]) {
        let number = |value: &Value| value.as_f64().unwrap_or(0.0);
        let mut start = None;
        let periodic = lines.iter().filter(|line| line["type"] == "stats_periodic");
        for line in periodic {
            let (since, until) = (number(&line["since"]) / 1e9, number(&line["until"]) / 1e9);
            let start = *start.get_or_insert_with(|| {
                self.count_from(since);
                since
            });
            let own = &line["floodgate"];
            let counts = [&own["offered"], &line["queries"], &own["right"]].map(number);
            if until <= since {
                continue;
            }
            if counts[0] == 0.0 && !self.told_at.is_empty() {
                // Everything is sent: what follows is a wait for the last answers.
                break;
            }
            let rate = |which: usize| (counts[which] / (until - since)).round();
            self.told_at.push(thousandths(until - start));
            self.offered.push(rate(0));
            self.sent.push(rate(1));
            self.right.push(rate(2));
        }
        if let Some(end) = self.told_at.last() {
            let within = self
                .at
                .partition_point(|at| *at <= end + EVERY.as_secs_f64());
            for curve in self.seen() {
                curve.truncate(within);
            }
        }
    }

    /// All curves over [`at`](Course::at), and that itself.
    fn seen(&mut self) -> [&mut Vec<f64>; 7] {
        [
            &mut self.at,
            &mut self.user,
            &mut self.system,
            &mut self.softirq,
            &mut self.server,
            &mut self.generator,
            &mut self.kernel_threads,
        ]
    }

    /// Times that counted from 1970 count from `start`; what was before that goes.
    fn count_from(&mut self, start: f64) {
        let early = self.at.partition_point(|at| *at <= start);
        for curve in self.seen() {
            curve.drain(..early);
        }
        for at in &mut self.at {
            *at = thousandths(*at - start);
        }
    }
}

/// Looks at the CPUs until it is stopped.
pub(super) struct Sampler {
    stop: Sender<()>,
    thread: JoinHandle<Course>,
}

/// Whose time is told apart.
#[derive(Clone, Debug)]
struct Watched {
    server: Vec<u32>,
    generator: u32,
    kernel_threads: Vec<u32>,
}

impl Sampler {
    /// Starts one. `server`: its processes.
    pub(super) fn start(server: &[u32], generator: u32) -> Sampler {
        let watched = Watched {
            server: server.to_vec(),
            generator,
            // Those that start during a run are missed: the busy ones, one for each CPU, are always there.
            kernel_threads: descendants(KTHREADD),
        };
        let (stop, stopped) = channel();
        let thread = std::thread::spawn(move || {
            let mut course = Course::default();
            let mut before = watched.look();
            while stopped.recv_timeout(EVERY) == Err(RecvTimeoutError::Timeout) {
                let now = watched.look();
                if let (Some(now), Some(before)) = (&now, &before) {
                    watched.add(&mut course, now, before);
                }
                before = now;
            }
            course
        });
        Sampler { stop, thread }
    }

    /// Stops it. Times count from 1970 still.
    pub(super) fn stop(self) -> Course {
        // Fails only where the thread has ended already.
        let _ = self.stop.send(());
        self.thread.join().unwrap_or_default()
    }
}

impl Watched {
    fn look(&self) -> Option<Snapshot> {
        let mut all = self.kernel_threads.clone();
        all.extend(self.server.iter().chain([&self.generator]));
        Snapshot::take(&all).ok()
    }

    fn add(&self, course: &mut Course, now: &Snapshot, before: &Snapshot) {
        let used = now.since(before);
        let cores = |seconds: f64| thousandths(seconds / used.wall.max(0.001));
        let of = |process: &u32| used.processes.get(process).copied().unwrap_or(0.0);
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH);
        course
            .at
            .push(since_1970.map_or(0.0, |time| time.as_secs_f64()));
        course.user.push(cores(used.user));
        course.system.push(cores(used.system));
        course.softirq.push(cores(used.softirq));
        course
            .server
            .push(cores(self.server.iter().map(of).sum::<f64>()));
        course.generator.push(cores(of(&self.generator)));
        course
            .kernel_threads
            .push(cores(self.kernel_threads.iter().map(of).sum::<f64>()));
    }
}

fn thousandths(number: f64) -> f64 {
    (number * 1e3).round() / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_of_each_period_and_times_count_from_the_first_query() {
        let mut course = Course {
            at: vec![99.9, 100.4],
            user: vec![7.0, 1.0],
            system: vec![7.0, 0.5],
            softirq: vec![7.0, 0.25],
            server: vec![7.0, 0.9],
            generator: vec![7.0, 0.8],
            kernel_threads: vec![7.0, 0.1],
            ..Course::default()
        };
        let line = |until: f64, offered: u64| {
            serde_json::json!({"type": "stats_periodic", "since": (until - 0.5) * 1e9, "until": until * 1e9,
                "queries": offered, "floodgate": {"offered": offered, "right": offered / 2}})
        };
        course.tell(&[line(100.5, 100), line(101.0, 200), line(101.5, 0)]);
        assert_eq!((course.at, course.user), (vec![0.4], vec![1.0]));
        assert_eq!(course.told_at, [0.5, 1.0]);
        assert_eq!(course.offered, [200.0, 400.0]);
        assert_eq!(course.right, [100.0, 200.0]);
    }

    /// What a sampler sees of this process, which is busy meanwhile.
    fn sampled() -> Course {
        let sampler = Sampler::start(&[], std::process::id());
        let started = std::time::Instant::now();
        while started.elapsed() < EVERY * 2 + EVERY / 2 {
            std::hint::spin_loop();
        }
        sampler.stop()
    }

    #[test]
    fn a_sampler_sees_this_process() {
        // After a pause of the machine's it may be over before the sampler has looked twice.
        let mut courses = (0..20).map(|_| sampled());
        let course = courses.find(|course| !course.at.is_empty());
        let course = course.expect("a sampler that looks twice");
        assert_eq!(course.at.len(), course.generator.len());
    }
}
