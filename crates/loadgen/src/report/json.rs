//! Results as JSON lines, in the shape that kxdpgun uses: DNS-OARC's dns-metrics, each object with our
//! own findings under `floodgate` beside what the schema knows.

use super::{QUANTILES, Transport, Way, longest_answer, quantile, rcode_text};
use crate::judge::Fault;
use crate::ramp::Ramp;
use crate::search::{Found, Probe};
use crate::tally::Tally;
use crate::watch::Part;
use crate::xdp::Measurement;
use serde_json::{Map, Value, json};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The schema's date, as its examples have it (github.com/DNS-OARC/dns-metrics).
const SCHEMA: u32 = 20_221_207;

/// Times are told in nanoseconds.
const TIME_UNITS_PER_SECOND: u64 = 1_000_000_000;

/// The lines of one run belong together by this.
#[derive(Clone, Debug)]
pub struct RunId {
    id: String,
    transport: Transport,
}

impl RunId {
    /// From the clock and the process number: two runs at once differ.
    pub fn new(transport: Transport) -> RunId {
        let now = nanoseconds(SystemTime::now());
        RunId {
            id: format!("{now}-{}", std::process::id()),
            transport,
        }
    }

    /// The line before a run. `limit`: when an answer is late. `period`: time between statistics.
    pub fn header(&self, way: &Way, limit: Duration, period: Option<Duration>) -> String {
        let arguments: Vec<String> = std::env::args().skip(1).collect();
        line(&json!({
            "runid": self.id,
            "type": "header",
            "schema_version": SCHEMA,
            "generator": "floodgate",
            "generator_version": env!("CARGO_PKG_VERSION"),
            "generator_params": arguments,
            "time_units_per_sec": TIME_UNITS_PER_SECOND,
            "stats_interval": period.unwrap_or_default().as_secs_f64(),
            "timeout": limit.as_secs_f64(),
            "additional_info": info(way),
        }))
    }

    /// Statistics in between, of a part of the run that ends now. `unread`: nobody looks at answers.
    pub fn periodic(&self, tally: &Tally, part: Part, unread: bool) -> String {
        let until = SystemTime::now();
        let times = (until - part.length(), until);
        let mut object = self.statistics("stats_periodic", (tally, unread), times);
        object["floodgate"]["offered"] = json!(part.offered.unwrap_or(tally.offered()));
        line(&object)
    }

    /// The result of a run that has just ended.
    pub fn summary(&self, measurement: &Measurement) -> String {
        // The wait for the last answers is behind these times.
        let times = (measurement.began, measurement.began + measurement.sending);
        let counted = (&measurement.tally, measurement.unread);
        let mut object = self.statistics("stats_sum", counted, times);
        // A late answer does not undo the time-out of its query: dnsperf counts that as lost, too. One that was thrown away
        // unread (-r) has come.
        let unread = measurement.losses.unwanted;
        let answered = measurement.tally.right + measurement.interrupted + unread;
        object["timeouts"] = json!(measurement.tally.sent.saturating_sub(answered));
        object["interrupted"] = json!(measurement.interrupted);
        if measurement.unread {
            object["discarded"] = json!({"responses": unread});
        }
        let own = object["floodgate"].as_object_mut().expect("just made one");
        own.insert("seconds".into(), json!(measurement.sending.as_secs_f64()));
        own.insert("limits".into(), json!(measurement.limits));
        own.insert("lost_here".into(), lost_here(measurement));
        if let Some(remark) = &measurement.remark {
            own.insert("remark".into(), json!(remark));
        }
        if let Some(failure) = &measurement.failure {
            own.insert("failure".into(), json!(failure.to_string()));
        }
        let lanes = measurement.lanes.iter().map(|lane| {
            let received = (!measurement.unread).then_some(lane.received);
            json!({"sent": lane.sent, "received": received})
        });
        own.insert("threads".into(), lanes.collect());
        line(&object)
    }

    /// A probe of a ramp.
    pub fn probe(&self, probe: &Probe, measurement: &Measurement) -> String {
        line(&json!({
            "runid": self.id,
            "type": "probe",
            "rate": probe.rate,
            "seconds": probe.seconds,
            "floodgate": own(&measurement.tally, false),
        }))
    }

    /// The result of a ramp: [`ramp_object`], with the run's number.
    pub fn ramp(&self, ramp: &Ramp) -> String {
        let mut object = ramp_object(ramp);
        object["runid"] = json!(self.id);
        line(&object)
    }

    /// What was counted in a time. Of answers that are `unread`, members of the schema are left out, which has no null.
    fn statistics(
        &self,
        kind: &str,
        (tally, unread): (&Tally, bool),
        (since, until): (SystemTime, SystemTime),
    ) -> Value {
        let mut object = json!({
            "runid": self.id,
            "type": kind,
            "since": nanoseconds(since),
            "until": nanoseconds(until),
            "queries": tally.sent,
            "conn_info": {
                "type": match self.transport {
                    Transport::Udp => "udp",
                    Transport::Tcp => "tcp",
                },
            },
            "floodgate": own(tally, unread),
        });
        // Over TCP nobody counts packets, of which a message may have several, or a part of one.
        let is_packets = self.transport == Transport::Udp;
        if is_packets {
            object["conn_info"]["packets_sent"] = json!(tally.sent);
        }
        if is_packets && !unread {
            object["conn_info"]["packets_received"] = json!(tally.answers());
        }
        if !unread {
            object["responses"] = json!(tally.answers());
            object["unexpected"] = json!(tally.wrong_total());
            object["response_rcodes"] = rcodes(tally);
            object["response_latency"] = latency(tally);
        }
        object
    }
}

/// What is known of the way onto the wire.
fn info(way: &Way) -> Value {
    let (attached, bound) = way.mode();
    match way {
        Way::Xdp(description) => json!({
            "interface": description.interface,
            "threads": description.lanes,
            "attached": attached,
            "bound": bound,
        }),
        Way::KernelSockets { threads, .. } => {
            json!({"threads": threads, "attached": attached, "bound": bound})
        }
    }
}

/// What a ramp came to: rates in queries a second, null where it was stopped before one was found, 0 where it is below the least
/// that is tried.
pub fn ramp_object(ramp: &Ramp) -> Value {
    let rates = |found: &[Found]| found.iter().map(|found| found.rate).collect::<Vec<_>>();
    json!({
        "type": "ramp",
        "r99": ramp.r99_median(),
        "r99_runs": rates(&ramp.r99),
        "loss_free": ramp.loss_free_median(),
        "loss_free_runs": rates(&ramp.loss_free),
        "least": ramp.least,
        "peak": ramp.peak.map(|peak| peak.answers_per_second()),
        "peak_offered": ramp.peak.map(|peak| peak.rate),
        "generator_was_the_limit": ramp.generator_was_the_limit(),
        "limit": ramp.limit(),
        "failure": ramp.failure.as_ref().map(ToString::to_string),
    })
}

/// What was lost or went elsewhere on our side; without the interface's drops where nobody looked at them. Null: nobody looks
/// at answers.
fn lost_here(measurement: &Measurement) -> Value {
    let losses = &measurement.losses;
    let seen = |count: u64| (!measurement.unread).then_some(count);
    let mut object = json!({
        "unwanted": losses.unwanted,
        "rings_full": seen(losses.rings_full),
        "too_long": seen(losses.large),
        "other_queues": seen(losses.elsewhere),
    });
    if let Some((received, to_be_sent)) = losses.interface {
        object["interface_dropped_in"] = json!(received);
        object["interface_dropped_out"] = json!(to_be_sent);
    }
    object
}

/// What the schema does not know. Null: it was not measured, of answers that are `unread` nothing was.
fn own(tally: &Tally, unread: bool) -> Value {
    let seen = |count: u64| (!unread).then_some(count);
    let quantiles = QUANTILES.map(|(name, part)| (name.to_owned(), json!(quantile(tally, part))));
    let faults = Fault::all().filter(|fault| tally.wrong[fault.index()] > 0);
    let wrong = faults.map(|fault| (fault.name().to_owned(), json!(tally.wrong[fault.index()])));
    json!({
        "offered": tally.offered(),
        "not_sent": tally.skipped,
        "right": seen(tally.right),
        "wrong": (!unread).then(|| wrong.collect::<Map<_, _>>()),
        "duplicate": seen(tally.duplicate),
        "late": seen(tally.late),
        "truncated": seen(tally.truncated),
        "case_changed": seen(tally.case_changed),
        "query_octets": tally.sent_octets,
        "answer_octets": seen(tally.answer_octets),
        "answer_octets_max": longest_answer(tally),
        "latency_from_intended_time": quantiles.into_iter().collect::<Map<_, _>>(),
    })
}

fn rcodes(tally: &Tally) -> Value {
    let rcodes = tally
        .rcodes()
        .map(|(rcode, count)| (rcode_text(rcode), json!(count)));
    rcodes.collect::<Map<_, _>>().into()
}

/// An object without members where there was no answer: the schema has no null.
fn latency(tally: &Tally) -> Value {
    let latency = &tally.latency;
    if latency.is_empty() {
        return json!({});
    }
    json!({
        "avg": latency.mean() as u64,
        "min": latency.min(),
        "max": latency.max(),
        "stddev": latency.stdev() as u64,
    })
}

fn nanoseconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH)
        .map_or(0, |time| time.as_nanos() as u64)
}

fn line(object: &Value) -> String {
    format!("{object}\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::Failure;
    use crate::judge::Answer;
    use crate::xdp::Losses;

    #[test]
    fn a_summary_tells_what_was_interrupted_and_in_words_what_the_limit_was() {
        let measurement = Measurement {
            began: UNIX_EPOCH,
            sending: Duration::from_secs(1),
            tally: Tally {
                sent: 7,
                right: 1,
                late: 1,
                ..Tally::default()
            },
            lanes: Vec::new(),
            losses: Default::default(),
            interrupted: 3,
            limits: vec!["The generator itself was the limit.".to_owned()],
            unread: false,
            failure: None,
            remark: None,
        };
        let text = RunId::new(Transport::Tcp).summary(&measurement);
        let object: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(object["floodgate"]["limits"], json!(measurement.limits));
        // However long the last answers were waited for.
        let times = (&object["since"], &object["until"]);
        assert_eq!(times, (&json!(0), &json!(1_000_000_000)));
        let counts = (&object["timeouts"], &object["interrupted"]);
        assert_eq!(counts, (&json!(3), &json!(3)));
        let unread = Measurement {
            losses: Losses {
                unwanted: 2,
                ..Losses::default()
            },
            ..measurement
        };
        let text = RunId::new(Transport::Udp).summary(&unread);
        let object: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(object["timeouts"], 1);
    }

    #[test]
    fn what_was_not_measured_is_no_zero() {
        let mut measurement = Measurement {
            began: UNIX_EPOCH,
            sending: Duration::from_secs(1),
            tally: Tally {
                sent: 7,
                ..Tally::default()
            },
            lanes: Vec::new(),
            losses: Losses::default(),
            interrupted: 0,
            limits: Vec::new(),
            unread: false,
            failure: Some(Failure::new("the interface is gone")),
            remark: None,
        };
        let told = |measurement: &Measurement| -> Value {
            serde_json::from_str(&RunId::new(Transport::Udp).summary(measurement)).unwrap()
        };
        let object = told(&measurement);
        assert_eq!(object["response_latency"], json!({}));
        assert_eq!(object["responses"], 0, "that was measured");
        let own = &object["floodgate"];
        assert_eq!(own["failure"], "the interface is gone");
        let quantiles = own["latency_from_intended_time"].as_object().unwrap();
        assert!(quantiles.len() == 5 && quantiles.values().all(Value::is_null));
        assert!(own["answer_octets_max"].is_null() && own["right"] == 0);
        assert_eq!(
            object["conn_info"],
            json!({"type": "udp", "packets_sent": 7, "packets_received": 0})
        );
        assert!(object.get("discarded").is_none());
        measurement.unread = true;
        measurement.losses.unwanted = 6;
        let object = told(&measurement);
        assert_eq!(
            object["conn_info"],
            json!({"type": "udp", "packets_sent": 7})
        );
        assert_eq!(object["discarded"], json!({"responses": 6}));
        let over_tcp = RunId::new(Transport::Tcp).summary(&measurement);
        let over_tcp: Value = serde_json::from_str(&over_tcp).unwrap();
        assert_eq!(over_tcp["conn_info"], json!({"type": "tcp"}));
        for member in [
            "responses",
            "unexpected",
            "response_latency",
            "response_rcodes",
        ] {
            assert!(object.get(member).is_none(), "{member}");
        }
        let own = &object["floodgate"];
        assert!(own["right"].is_null() && own["wrong"].is_null());
        assert!(own["lost_here"]["rings_full"].is_null());
        assert_eq!(
            (&own["offered"], &object["queries"]),
            (&json!(7), &json!(7))
        );
    }

    #[test]
    fn drops_that_nobody_looked_at_are_left_out() {
        let mut measurement = Measurement::new(
            (UNIX_EPOCH, Duration::from_secs(1)),
            vec![Tally::default()],
            Losses::default(),
        );
        let unseen = lost_here(&measurement);
        assert!(unseen["interface_dropped_in"].is_null());
        assert_eq!(unseen.as_object().unwrap().len(), 4);
        measurement.losses.interface = Some((3, 4));
        let object = lost_here(&measurement);
        let drops = ["interface_dropped_in", "interface_dropped_out"].map(|name| &object[name]);
        assert_eq!(drops, [&json!(3), &json!(4)]);
    }

    #[test]
    fn a_ramp_tells_every_search_and_nothing_where_none_has_ended() {
        let probe = Probe {
            rate: 3e3,
            offered: 3_000,
            sent: 3_000,
            right: 2_500,
            lost_here: 0,
            seconds: 1.0,
        };
        let found = |rate| Found {
            rate,
            generator_was_the_limit: true,
        };
        let told = |ramp: &Ramp| -> Value {
            serde_json::from_str(&RunId::new(Transport::Udp).ramp(ramp)).unwrap()
        };
        let mut ramp = Ramp {
            peak: Some(probe),
            least: 20.0,
            ..Ramp::default()
        };
        let stopped = told(&ramp);
        assert!(stopped["r99"].is_null() && stopped["loss_free"].is_null());
        assert_eq!(stopped["r99_runs"], json!([]));
        assert_eq!(stopped["generator_was_the_limit"], false);
        assert!(stopped["limit"].is_null());
        assert_eq!(stopped["peak"], 2_500.0);
        ramp.r99 = vec![found(2e3), found(1e3)];
        ramp.loss_free = vec![found(0.0)];
        let told = told(&ramp);
        assert_eq!(told["type"], "ramp");
        assert_eq!(told["r99"], 1_500.0);
        assert_eq!(told["r99_runs"], json!([2_000.0, 1_000.0]));
        assert_eq!(told["loss_free"], 0.0);
        assert_eq!(told["least"], 20.0);
        assert!(told["failure"].is_null());
        assert_eq!(told["peak_offered"], 3_000.0);
        assert_eq!(told["generator_was_the_limit"], true);
        assert_eq!(told["limit"], ramp.limit().unwrap());
    }

    #[test]
    fn a_line_of_statistics_has_the_schemas_members_and_ours() {
        let mut tally = Tally {
            sent: 3,
            skipped: 1,
            ..Tally::default()
        };
        let answer = Answer {
            rcode: 5,
            truncated: false,
            case_changed: false,
            length: 40,
        };
        tally.count_right(&answer, 1_000);
        tally.count_wrong(Fault::OtherQuestion);
        let part = Part {
            since: Duration::from_secs(2),
            until: Duration::from_secs(3),
            offered: None,
        };
        let text = RunId::new(Transport::Udp).periodic(&tally, part, false);
        assert_eq!(text.lines().count(), 1);
        let object: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(object["type"], "stats_periodic");
        assert_eq!(
            object["until"].as_u64().unwrap() - object["since"].as_u64().unwrap(),
            1_000_000_000
        );
        assert_eq!(
            (&object["queries"], &object["responses"]),
            (&json!(3), &json!(2))
        );
        assert_eq!(object["response_rcodes"], json!({"REFUSED": 1}));
        assert_eq!(object["floodgate"]["offered"], 4);
        // The schedule knows better what was due by then.
        let part = Part {
            offered: Some(6),
            ..part
        };
        let text = RunId::new(Transport::Udp).periodic(&tally, part, false);
        let later: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(later["floodgate"]["offered"], 6);
        assert_eq!(object["floodgate"]["wrong"], json!({"other-question": 1}));
    }
}
