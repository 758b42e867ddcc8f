//! What a run comes to: the figure of its measure, a point of a curve, and whether others disturbed it.

use std::time::Duration;

use serde_json::{Value, json};

use super::generator::Shot;
use super::plan::Measure;
use super::record::field;
use crate::{Failure, Outcome};

/// A run is disturbed when others used more than this part of one core.
const OTHERS: f64 = 0.03;
/// Or the hypervisor gave this part of a core away.
const STEAL: f64 = 0.02;
/// Seconds of a core that must be seen for it: the kernel counts in steps of 0.01, and one or two of them in a run of a tenth
/// of a second tell nothing.
const SEEN: f64 = 0.025;

/// Which point of the curve of latencies the figure is: p99 at 10 %.
pub(super) const AT_TENTH: usize = 1;

/// The number that a measure is about, with its unit.
///
/// # Errors
/// A search that has found no rate. One that has found 0 did measure: not even the lowest rate was answered. No answers where
/// less is better.
pub(super) fn figure(measure: Measure, shot: &Shot) -> Outcome<(f64, &'static str)> {
    let per = |count: f64, whole: f64| if whole > 0.0 { count / whole } else { 0.0 };
    Ok(match measure {
        Measure::R99 => (found(&shot.details["r99"])?, "queries/s"),
        Measure::Cost => {
            answered(shot.right)?;
            (per(shot.used.busy() * 1e6, shot.right), "core-us/answer")
        }
        Measure::ServerCost => {
            answered(shot.right)?;
            let seconds = shot.details["server"]["core_seconds"].as_f64();
            let microseconds = seconds.unwrap_or(0.0) * 1e6;
            (per(microseconds, shot.right), "server-core-us/answer")
        }
        Measure::Overload => (per(shot.unwanted, shot.seconds), "answers/s"),
        Measure::Send => (per(shot.sent, shot.seconds), "queries/s"),
        Measure::ClosedLoop | Measure::OnceThrough | Measure::OverTime => {
            (per(shot.right, shot.seconds), "answers/s")
        }
        Measure::Latency => {
            let at_tenth = &shot.details["points"][AT_TENTH];
            answered(at_tenth["right"].as_f64().unwrap_or(0.0))?;
            let p99 = at_tenth["p99"].as_f64().unwrap_or(0.0);
            (p99 / 1e3, "us (p99 at 10 %)")
        }
        Measure::Evenness => (evenness(&shot.details), "% of an even share"),
        Measure::Start => {
            let seconds = &shot.details["server"]["start_seconds"];
            (seconds.as_f64().unwrap_or(0.0), "s to the first answer")
        }
        Measure::Memory => {
            let resident = &shot.details["server"]["resident_mib"];
            (resident.as_f64().unwrap_or(0.0), "MiB resident")
        }
    })
}

/// Fails where nothing was answered right: what answers took would be 0, the best figure of all.
fn answered(right: f64) -> Outcome<()> {
    match right > 0.0 {
        true => Ok(()),
        false => Err(Failure::new(
            "nothing was answered right, so there is nothing to say of what an answer took",
        )),
    }
}

/// The rate that a search tells; null is none.
fn found(rate: &Value) -> Outcome<f64> {
    rate.as_f64().ok_or_else(|| {
        Failure::new(
            "the search for R99 has found no rate: the generator was stopped before it had one, or is none that searches \
             (`generator`: floodgate does)",
        )
    })
}

/// What is told of a server that took so long to start: also the memory that its processes have, and had at the most.
pub(super) fn started(start: Duration, processes: &[u32]) -> Outcome<Value> {
    if processes.is_empty() {
        let why = "no process was started here whose start and memory could be told";
        return Err(Failure::new(why));
    }
    let of_all = |name: &str| -> f64 {
        let kibibytes = processes.iter().map(|process| {
            let status = std::fs::read_to_string(format!("/proc/{process}/status"));
            let status = status.unwrap_or_default();
            let value = field(&status, name).trim_end_matches(" kB");
            value.parse::<f64>().unwrap_or(0.0)
        });
        kibibytes.sum::<f64>() / 1024.0
    };
    Ok(json!({
        "start_seconds": start.as_secs_f64(),
        "resident_mib": of_all("VmRSS"),
        "resident_peak_mib": of_all("VmHWM"),
    }))
}

/// What the queue with the fewest answers gave, in per cent of its even share.
fn evenness(details: &Value) -> f64 {
    let queues = details["floodgate"]["threads"].as_array();
    let received: Vec<f64> = queues
        .into_iter()
        .flatten()
        .filter_map(|queue| queue["received"].as_f64())
        .collect();
    let all: f64 = received.iter().sum();
    let least = received.iter().copied().reduce(f64::min).unwrap_or(0.0);
    if all > 0.0 {
        least * received.len() as f64 / all * 100.0
    } else {
        0.0
    }
}

/// A point of the curve of latencies, which are in nanoseconds.
pub(super) fn point(load: &str, rate: u32, shot: &Shot) -> Value {
    let latency = &shot.details["floodgate"]["latency_from_intended_time"];
    json!({
        "load": load,
        "rate": rate,
        "offered": shot.offered,
        "sent": shot.sent,
        "right": shot.right,
        "p50": latency["p50"],
        "p90": latency["p90"],
        "p99": latency["p99"],
        "p99.9": latency["p99.9"],
        "max": latency["max"],
        // Null where it was not.
        "disturbed": disturbance(shot),
    })
}

/// Why a run is not to be trusted, if it is not.
pub(super) fn disturbance(shot: &Shot) -> Option<String> {
    let wall = shot.used.wall.max(0.001);
    let part = |seconds: f64| match seconds < SEEN {
        true => 0.0,
        false => seconds / wall,
    };
    let (others, steal) = (part(shot.used.others), part(shot.used.steal));
    if others > OTHERS {
        return Some(format!(
            "other programs used {:.0}% of a core",
            others * 100.0
        ));
    }
    (steal > STEAL).then(|| format!("the hypervisor took {:.0}% of a core", steal * 100.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn a_run_is_disturbed_by_what_other_programs_used_whatever_ours_did() {
        let told = |wall: f64, others: f64, steal: f64| {
            let mut shot = Shot::default();
            shot.used.wall = wall;
            // Time of a process holds softirqs, that of user and system does not: ours alone is more than both.
            shot.used.processes = BTreeMap::from([(7, 1.9 * wall)]);
            (shot.used.user, shot.used.others, shot.used.steal) = (wall, others, steal);
            disturbance(&shot)
        };
        let others = "other programs used 20% of a core";
        assert_eq!(told(10.0, 2.0, 0.0).as_deref(), Some(others));
        let steal = "the hypervisor took 5% of a core";
        assert_eq!(told(10.0, 0.2, 0.5).as_deref(), Some(steal));
        assert_eq!(told(10.0, 0.2, 0.1), None);
        // Two steps of /proc in a run of a tenth of a second.
        assert_eq!(told(0.1, 0.02, 0.02), None);
    }

    #[test]
    fn a_point_tells_whether_its_own_run_was_disturbed() {
        let mut shot = Shot::default();
        (shot.used.wall, shot.used.others) = (5.0, 1.0);
        let others = "other programs used 20% of a core";
        assert_eq!(point("10 %", 500, &shot)["disturbed"], others);
        shot.used.others = 0.0;
        assert!(point("10 %", 500, &shot)["disturbed"].is_null());
    }

    #[test]
    fn one_that_answers_nothing_has_no_figure_of_which_less_is_better() {
        let mut shot = Shot::default();
        shot.used.cores = vec![0.25, 0.75];
        shot.details = json!({"points": [{}, {"right": 0, "p99": 0}]});
        for measure in [Measure::Cost, Measure::Latency] {
            let failure = figure(measure, &shot).unwrap_err().to_string();
            assert!(failure.contains("nothing was answered right"), "{failure}");
        }
        assert!(figure(Measure::ServerCost, &shot).is_err());
        shot.right = 2.0;
        shot.details = json!({"server": {"core_seconds": 0.75}});
        assert_eq!(
            figure(Measure::ServerCost, &shot).unwrap(),
            (375_000.0, "server-core-us/answer")
        );
        shot.details = json!({"points": [{}, {"right": 9, "p99": 4_000}]});
        assert_eq!(
            figure(Measure::Cost, &shot).unwrap(),
            (500_000.0, "core-us/answer")
        );
        assert_eq!(
            figure(Measure::Latency, &shot).unwrap(),
            (4.0, "us (p99 at 10 %)")
        );
    }

    #[test]
    fn a_start_tells_its_time_and_the_memory_of_all_processes() {
        let own = std::process::id();
        let once = started(Duration::from_millis(2_500), &[own]).unwrap();
        let twice = started(Duration::ZERO, &[own, own]).unwrap();
        let mut shot = Shot::default();
        shot.details["server"] = once;
        assert_eq!(
            figure(Measure::Start, &shot).unwrap(),
            (2.5, "s to the first answer")
        );
        let (one, unit) = figure(Measure::Memory, &shot).unwrap();
        assert!(one > 1.0 && unit == "MiB resident", "{one} {unit}");
        assert!(twice["resident_mib"].as_f64().unwrap() > 1.5 * one);
        assert!(started(Duration::ZERO, &[]).is_err());
    }

    #[test]
    fn the_queue_with_the_fewest_answers_decides_evenness() {
        let details = json!({"floodgate": {"threads": [{"received": 90}, {"received": 110}]}});
        assert_eq!(evenness(&details), 90.0);
        assert_eq!(evenness(&Value::Null), 0.0);
    }
}
