//! `/metrics`: dnsdist's families under dnsdist's names, then rows of our own, which start with `millrace_`.

pub mod averages;
pub mod custom;
mod lua;
pub mod rates;
pub mod rows;
pub mod statistics;
pub mod text;
pub mod zones;

use super::Running;
use super::process::Process;
use crate::backend::server::ServerId;
use crate::config::Config;
use crate::counters::{Counter, Shard};
use crate::pipeline::HandOverReason;
use crate::pipeline::drop::DropReason;
use averages::Averages;
use rates::{Rate, Rates};
use statistics::{OF_HISTOGRAM, STATISTICS};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;
use text::{Kind, Text, Value};

/// What is shown to whoever asks.
pub struct Metrics {
    running: Arc<dyn Running>,
    averages: Mutex<Latencies>,
    rates: Mutex<Rates>,
}

/// Average latencies, over all protocols and over TCP.
#[derive(Debug, Clone, Copy, Default)]
pub struct Latencies {
    pub all: Averages,
    pub tcp: Averages,
}

impl Metrics {
    pub fn new(running: Arc<dyn Running>) -> Metrics {
        Metrics {
            running,
            averages: Mutex::default(),
            rates: Mutex::default(),
        }
    }

    /// The configuration of this moment.
    pub fn config(&self) -> Arc<Config> {
        self.running.config()
    }

    /// The running instance.
    pub fn running(&self) -> &dyn Running {
        &*self.running
    }

    /// A server's queries and time-outs per second, as they were when [`Metrics::sample`] last looked.
    pub fn rate(&self, server: ServerId) -> Rate {
        let rates = self.rates.lock().unwrap_or_else(PoisonError::into_inner);
        rates.of(server)
    }

    /// Moves average latencies and rates on: to be called once a second.
    pub fn sample(&self) -> Latencies {
        self.rates
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take(&self.running.config().servers, Instant::now());
        let shards = self.running.shards();
        let sum = |counter| shards.iter().map(|shard| shard.get(counter)).sum();
        let mut averages = self.averages.lock().unwrap_or_else(PoisonError::into_inner);
        averages.all.take(
            sum(Counter::LatencyCount),
            sum(Counter::LatencySumMicroseconds),
        );
        averages.tcp.take(
            sum(Counter::LatencyTcpCount),
            sum(Counter::LatencyTcpSumMicroseconds),
        );
        *averages
    }

    /// All families in Prometheus' text format.
    pub fn text(&self) -> String {
        let look = self.look();
        let mut text = Text::of_instance(instance(&look.config));
        look.statistics(&mut text);
        look.latencies(&mut text);
        look.own(&mut text);
        zones::families(&mut text, &look.config);
        rows::servers(&mut text, &look.config);
        rows::pools(&mut text, &look.config);
        rows::rules(&mut text, &look.config);
        rows::frontends(&mut text, self.running.frontends());
        rows::without_rows(&mut text);
        rows::xsk(&mut text, &self.running.xsk());
        rows::frames(&mut text, &self.running.frames());
        rows::steer(&mut text, &self.running.steer_verdicts());
        rows::spreads(&mut text, &self.running.spreads());
        rows::network(
            &mut text,
            &self.running.network_changes(),
            self.running.helper(),
        );
        lua::rows(&mut text, &look.config);
        text.single(
            "millrace_log_lines_lost",
            Kind::Counter,
            "Lines of LogAction and LogResponseAction that found no room.",
            crate::querylog::lost_lines(),
        );
        text.single(
            "millrace_id_port_entropy_bits",
            Kind::Gauge,
            "Bits that a forger of responses must guess: query ID and source port.",
            Value::Real(self.running.entropy_bits()),
        );
        // Last: what is ours keeps its name.
        look.config.custom_metrics.write(&mut text);
        text.finish()
    }

    /// dnsdist's statistics by dnsdist's names, and those that the configuration declares.
    pub fn dialect_statistics(&self) -> Vec<(String, Value)> {
        self.look().dialect_statistics()
    }

    /// The same, then our drops and hand-overs, and what is counted of zones under Knot's names.
    pub fn statistics(&self) -> Vec<(String, Value)> {
        let look = self.look();
        let drops = DropReason::ALL.into_iter();
        let drops =
            drops.map(|reason| (format!("drop-{}", reason.name()), look.drops(reason).into()));
        let hand_overs = HandOverReason::ALL.into_iter().map(|reason| {
            let name = format!("hand-over-{}", reason.name());
            (name, look.hand_overs(reason).into())
        });
        let dialect = look.dialect_statistics().into_iter();
        let zones = zones::statistics(&look.config);
        dialect
            .chain(drops)
            .chain(hand_overs)
            .chain(zones)
            .collect()
    }

    fn look(&self) -> Look {
        Look {
            averages: self.sample(),
            shards: self.running.shards(),
            config: self.running.config(),
            process: Process::read(),
        }
    }
}

/// Families that are in no table.
const INFO: &str = "dnsdist_info";
const HISTOGRAM: &str = "dnsdist_latency";

/// Whether the family is ours in `/metrics`, whatever the configuration declares.
fn is_family(name: &str) -> bool {
    let statistic = name.strip_prefix("dnsdist_");
    let statistic = statistic.map(|rest| rest.replace('_', "-"));
    statistic.is_some_and(|name| statistics::is_dialects(&name))
        || name.starts_with("millrace_")
        || [INFO, HISTOGRAM].contains(&name)
        || rows::is_built_in(name)
}

/// What `prometheusAddInstanceLabel` asks for: the name of setServerID, else the machine's.
fn instance(config: &Config) -> Option<String> {
    let webserver = config.webserver.as_ref()?;
    webserver
        .options
        .add_instance_label
        .then(|| super::name_of(config))
}

/// One moment of the instance.
pub struct Look {
    shards: Vec<Arc<Shard>>,
    config: Arc<Config>,
    process: Process,
    averages: Latencies,
}

impl Look {
    fn sum(&self, counter: Counter) -> u64 {
        self.shards.iter().map(|shard| shard.get(counter)).sum()
    }

    fn drops(&self, reason: DropReason) -> u64 {
        self.shards.iter().map(|shard| shard.drops(reason)).sum()
    }

    fn hand_overs(&self, reason: HandOverReason) -> u64 {
        let shards = self.shards.iter();
        shards.map(|shard| shard.hand_overs(reason)).sum()
    }

    fn dialect_statistics(&self) -> Vec<(String, Value)> {
        let own = STATISTICS.iter();
        let own = own.map(|statistic| (statistic.name.to_owned(), statistic.source.value(self)));
        let of_histogram = OF_HISTOGRAM.map(str::to_owned).into_iter();
        let of_histogram = of_histogram.zip([
            self.latency_sum_milliseconds().into(),
            self.sum(Counter::LatencyCount).into(),
        ]);
        let custom = self.config.custom_metrics.statistics();
        own.chain(of_histogram).chain(custom).collect()
    }

    fn latency_sum_milliseconds(&self) -> u64 {
        self.sum(Counter::LatencySumMicroseconds) / 1_000
    }

    fn statistics(&self, text: &mut Text) {
        for statistic in STATISTICS {
            let name = format!("dnsdist_{}", statistic.name.replace('-', "_"));
            let value = statistic.source.value(self);
            text.single(&name, statistic.kind, statistic.help, value);
        }
        let help = "The version that answers; always 1.";
        let mut rows = text.family(INFO, Kind::Gauge, help);
        rows.row("", &[("version", env!("CARGO_PKG_VERSION"))], 1);
    }

    /// dnsdist_latency: cumulative buckets in milliseconds, as its name says le = less or equal.
    fn latencies(&self, text: &mut Text) {
        const BUCKETS: [(Counter, &str); 6] = [
            (Counter::Latency0To1, "1"),
            (Counter::Latency1To10, "10"),
            (Counter::Latency10To50, "50"),
            (Counter::Latency50To100, "100"),
            (Counter::Latency100To1000, "1000"),
            (Counter::LatencySlow, "+Inf"),
        ];
        let help = "Answers by latency, in milliseconds.";
        let mut rows = text.family(HISTOGRAM, Kind::Histogram, help);
        let mut below = 0;
        for (counter, limit) in BUCKETS {
            below += self.sum(counter);
            rows.row("_bucket", &[("le", limit)], below);
        }
        rows.row("_sum", &[], self.latency_sum_milliseconds());
        rows.row("_count", &[], below);
    }

    /// Drops and hand-overs by reason.
    fn own(&self, text: &mut Text) {
        let help = "Frames, queries and responses that went no further.";
        let mut rows = text.family("millrace_drops", Kind::Counter, help);
        for reason in DropReason::ALL {
            rows.row("", &[("reason", reason.name())], self.drops(reason));
        }
        let help = "Queries and answers handed to the asynchronous runtime.";
        let mut rows = text.family("millrace_handover", Kind::Counter, help);
        for reason in HandOverReason::ALL {
            rows.row("", &[("reason", reason.name())], self.hand_overs(reason));
        }
    }
}

#[cfg(test)]
mod tests;
