//! What is measured: files under `bench/scenarios`, `bench/servers` and `bench/configurations`.
//!
//! A scenario names contenders, each a server with a configuration; a server is a file that says how it is started. Adding
//! either is one file. A field that nobody knows is an error that shows it.

mod faults;

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use serde::de::{DeserializeOwned, SeqAccess, Visitor, value::SeqAccessDeserializer};
use serde::{Deserialize, Deserializer, Serialize};

use crate::subject::Door;
use crate::{During, Failure, Outcome, tree};

/// One file under `bench/scenarios`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Scenario {
    /// Its file's name without `.toml`.
    #[serde(skip)]
    pub name: String,
    /// The headline of its tables.
    pub title: String,
    /// Its place among the scenarios; those without one come last.
    #[serde(default = "last")]
    pub order: u32,
    /// Measured only when it is named: what it tells is in other scenarios too.
    #[serde(default)]
    pub when_named: bool,
    /// RX and TX queues of every interface, but while a contender is measured that has its own number.
    #[serde(default = "one")]
    pub queues: u32,
    /// Options of `floodgate queries`, which makes the file of queries.
    pub queries: Vec<String>,
    /// The server in the backend's namespace, if there is one.
    pub backend: Option<String>,
    /// The zone that its servers have; several numbers of names make as many scenarios of one file.
    pub zone: Option<ZonePlan>,
    /// What every answer must be, of servers too.
    pub answers: Option<Answers>,
    /// What is measured of every contender, in this order.
    pub measures: Vec<Measure>,
    /// The contender that the others are compared with; of several the one whose median is best.
    #[serde(default, rename = "yardstick", deserialize_with = "one_or_several")]
    pub yardsticks: Vec<String>,
    /// Queries a second while cost is measured.
    #[serde(default = "cost_rate")]
    pub cost_rate: u32,
    /// Queries a second that searches start from.
    #[serde(default = "cost_rate")]
    pub start_rate: u32,
    /// Queries a second offered when overloaded, where it is not twice the contender's peak: the most that it answered at any
    /// rate of its searches, which is more than its R99.
    pub overload_rate: Option<u32>,
    /// Who takes part, in the order of the tables.
    pub contenders: Vec<Contender>,
}

/// A zone that is made for a scenario: see [`super::zones`].
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ZonePlan {
    /// How many names have an address. `$NAMES` stands for it in the options that make queries.
    pub names: Vec<u64>,
    /// With ECDSA P-256 and NSEC3, iterations 0, no salt.
    #[serde(default)]
    pub signed: bool,
}

/// What every answer must be.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Answers {
    /// As floodgate's `--expect` writes it. A yardstick's is not looked at.
    pub rcode: String,
    /// Octets of the message.
    pub octets: u32,
}

/// A name, or a list of names.
fn one_or_several<'d, D: Deserializer<'d>>(from: D) -> Result<Vec<String>, D::Error> {
    struct Names;
    impl<'d> Visitor<'d> for Names {
        type Value = Vec<String>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("the name of a contender, or a list of such names")
        }

        fn visit_str<E>(self, name: &str) -> Result<Vec<String>, E> {
            Ok(vec![name.to_owned()])
        }

        fn visit_seq<A: SeqAccess<'d>>(self, names: A) -> Result<Vec<String>, A::Error> {
            Deserialize::deserialize(SeqAccessDeserializer::new(names))
        }
    }
    from.deserialize_any(Names)
}

fn last() -> u32 {
    u32::MAX
}

fn one() -> u32 {
    1
}

fn cost_rate() -> u32 {
    100_000
}

/// A way to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Measure {
    /// The highest offered rate of which 99 % was answered right.
    R99,
    /// CPU time of both cores for an answer, at a fixed rate.
    Cost,
    /// The same, of the server's core alone: what the server does beyond another one is not lost in what the generator does.
    ServerCost,
    /// Answers when twice the contender's peak, or the scenario's own rate, is really sent; answers are dropped unread.
    Overload,
    /// What the generator itself can send; contenders differ in their generators.
    Send,
    /// Closed loop over kernel sockets: answers a second.
    ClosedLoop,
    /// The same, once through the file of queries: how long it takes.
    OnceThrough,
    /// A rate that rises steadily beyond the highest R99: answers and CPU time over time.
    OverTime,
    /// Latency when idle, at 10 % of the contender's R99, and up to beyond it.
    Latency,
    /// How evenly answers come from the queues.
    Evenness,
    /// Seconds from the start of the server to its first right answer: what it takes to load its zones.
    Start,
    /// Resident memory of the server then.
    Memory,
}

impl Measure {
    /// How often it is made where all are to be made so often. Rising rates are for a picture: three show which is the
    /// middle one.
    pub(super) fn repeats(self, wanted: u32) -> u32 {
        match self {
            Measure::OverTime => wanted.min(3),
            _ => wanted,
        }
    }

    /// Whether less of it is better: costs and times.
    pub(super) fn is_better_when_less(self) -> bool {
        matches!(
            self,
            Measure::Cost
                | Measure::ServerCost
                | Measure::Latency
                | Measure::Start
                | Measure::Memory
        )
    }

    /// Its word in files and tables.
    pub(super) fn word(self) -> &'static str {
        match self {
            Measure::R99 => "r99",
            Measure::Cost => "cost",
            Measure::ServerCost => "server-cost",
            Measure::Overload => "overload",
            Measure::Send => "send",
            Measure::ClosedLoop => "closed-loop",
            Measure::OnceThrough => "once-through",
            Measure::OverTime => "over-time",
            Measure::Latency => "latency",
            Measure::Evenness => "evenness",
            Measure::Start => "start",
            Measure::Memory => "memory",
        }
    }
}

/// One that takes part.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Contender {
    pub name: String,
    /// A file under `bench/servers`, without `.toml`.
    pub server: String,
    /// A file under `bench/configurations`, if the server has one.
    pub configuration: Option<String>,
    /// What stands for `$LISTEN` and `$BACKEND` in it: `sockets` or `xdp`.
    #[serde(default)]
    pub door: DoorWord,
    /// Server's interfaces with a program that passes everything: what a backend sends by XDP needs one where the server
    /// has none of its own.
    #[serde(default)]
    pub pass: Vec<String>,
    #[serde(default)]
    pub generator: GeneratorWord,
    /// More options of the generator.
    #[serde(default)]
    pub options: Vec<String>,
    /// More arguments of the server.
    #[serde(default)]
    pub arguments: Vec<String>,
    /// RX and TX queues of every interface while it is measured, where they are not as many as the scenario says.
    pub queues: Option<u32>,
    /// The contender that this one is compared with, where it is not the scenario's yardstick.
    pub beside: Option<String>,
    /// Which of the scenario's measures are made of it, where not all are.
    pub measures: Option<Vec<Measure>>,
    /// Whether its server says that it is no DNS server but a limit.
    #[serde(skip)]
    pub yardstick: bool,
}

/// By which way queries go into the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum DoorWord {
    #[default]
    Xdp,
    Sockets,
}

impl DoorWord {
    /// The door of scenarios and configurations.
    pub(super) fn door(self) -> Door {
        match self {
            DoorWord::Xdp => Door::Xdp,
            DoorWord::Sockets => Door::Sockets,
        }
    }
}

/// Who asks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum GeneratorWord {
    #[default]
    Floodgate,
    FloodgateSockets,
    Kxdpgun,
    Dnsperf,
}

/// One file under `bench/servers`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Server {
    /// The program; `$BUILT` is where cargo builds, `$YARDSTICKS` where `bench/yardsticks` is built.
    pub program: Option<String>,
    /// The environment variable that names another program.
    pub environment: Option<String>,
    /// Its value is a program with its arguments, between spaces.
    #[serde(default)]
    pub words: bool,
    #[serde(default)]
    pub arguments: Vec<String>,
    /// Arguments that make it print its version.
    #[serde(default)]
    pub version: Vec<String>,
    /// Instead of a program: a BPF object that is attached to the interface.
    pub attach: Option<String>,
    /// No DNS server but a limit of one.
    #[serde(default)]
    pub yardstick: bool,
}

/// All of `bench/`.
#[derive(Clone, Debug)]
pub(super) struct Library {
    folder: PathBuf,
}

impl Scenario {
    /// What charts call the contenders.
    pub(super) fn contender_names(&self) -> Vec<&str> {
        let names = self.contenders.iter().map(|one| one.name.as_str());
        names.collect()
    }

    /// RX and TX queues of every interface while a contender is measured.
    pub(super) fn queues_of(&self, contender: &Contender) -> u32 {
        contender.queues.unwrap_or(self.queues)
    }

    /// The most of them: what the lab must have.
    pub(super) fn queues_max(&self) -> u32 {
        let contenders = self.contenders.iter();
        let most = contenders.map(|contender| self.queues_of(contender)).max();
        most.unwrap_or(self.queues)
    }

    /// As many scenarios as its zone has sizes.
    fn of_each_size(self) -> Vec<Scenario> {
        let Some(zone) = &self.zone else {
            return vec![self];
        };
        let of_size = |&names: &u64| {
            let mut one = self.clone();
            one.name = format!("{}-{}", self.name, short(names));
            one.title = format!("{}, {} names", self.title, grouped(names));
            for option in &mut one.queries {
                *option = option.replace("$NAMES", &names.to_string());
            }
            one.zone = Some(ZonePlan {
                names: vec![names],
                ..zone.clone()
            });
            one
        };
        zone.names.iter().map(of_size).collect()
    }
}

/// 10000: 10k.
fn short(number: u64) -> String {
    match number {
        number if number > 0 && number % 1_000_000 == 0 => format!("{}m", number / 1_000_000),
        number if number > 0 && number % 1_000 == 0 => format!("{}k", number / 1_000),
        number => number.to_string(),
    }
}

/// 10000: 10,000.
fn grouped(number: u64) -> String {
    match number {
        0..1_000 => number.to_string(),
        number => format!("{},{:03}", grouped(number / 1_000), number % 1_000),
    }
}

impl Contender {
    /// Whether a measure is made of it.
    pub(super) fn takes_part_in(&self, measure: Measure) -> bool {
        let measures = self.measures.as_ref();
        measures.is_none_or(|measures| measures.contains(&measure))
    }
}

impl Library {
    /// The project's own.
    pub(super) fn ours() -> Library {
        Library {
            folder: tree::top().join("bench"),
        }
    }

    /// Another one.
    pub(super) fn at(folder: &Path) -> Outcome<Library> {
        let folder = folder.canonicalize().during(folder.display())?;
        Ok(Library { folder })
    }

    /// Where it is.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// All scenarios in their order.
    pub(super) fn scenarios(&self) -> Outcome<Vec<Scenario>> {
        let folder = self.folder.join("scenarios");
        let entries = fs::read_dir(&folder).during(format!("reading {}", folder.display()))?;
        let mut scenarios = Vec::new();
        for entry in entries {
            let path = entry.during("reading scenarios")?.path();
            if path
                .extension()
                .is_some_and(|extension| extension == "toml")
            {
                scenarios.extend(self.scenario(&path)?.of_each_size());
            }
        }
        scenarios.sort_by(|a, b| (a.order, &a.name).cmp(&(b.order, &b.name)));
        Ok(scenarios)
    }

    fn scenario(&self, path: &Path) -> Outcome<Scenario> {
        let mut scenario: Scenario = read(path)?;
        scenario.name = path
            .file_stem()
            .map(|stem| stem.to_string_lossy().into_owned())
            .unwrap_or_default();
        faults::check(self, path, &scenario)?;
        for contender in &mut scenario.contenders {
            contender.yardstick = self.server(&contender.server)?.yardstick;
        }
        Ok(scenario)
    }

    /// A server by its file's name.
    pub(super) fn server(&self, name: &str) -> Outcome<Server> {
        let path = self.folder.join("servers").join(format!("{name}.toml"));
        let server = read(&path)?;
        match faults::of_server(&server) {
            Some(fault) => Err(Failure::new(format!("{}: {fault}", path.display()))),
            None => Ok(server),
        }
    }

    /// The text of a configuration.
    pub(super) fn configuration(&self, name: &str) -> Outcome<String> {
        let path = self.folder.join("configurations").join(name);
        fs::read_to_string(&path).during(format!("reading {}", path.display()))
    }
}

/// Reads a file, whose error is one line: what is wrong, and in which line.
fn read<T: DeserializeOwned>(path: &Path) -> Outcome<T> {
    let text = fs::read_to_string(path).during(format!("reading {}", path.display()))?;
    toml::from_str(&text).map_err(|error| {
        let before = error.span().and_then(|span| text.get(..span.start));
        let line = before.map_or(0, |before| before.matches('\n').count()) + 1;
        let message = error.message().trim().replace('\n', "; ");
        Failure::new(format!("{}, line {line}: {message}", path.display()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_of_the_project_is_understood() {
        let library = Library::ours();
        let scenarios = library.scenarios().unwrap();
        assert_eq!(scenarios[0].name, "refused");
        for entry in fs::read_dir(library.folder().join("servers")).unwrap() {
            let name = entry.unwrap().path();
            let name = name.file_stem().unwrap().to_string_lossy().into_owned();
            assert!(library.server(&name).is_ok(), "{name}");
        }
    }

    #[test]
    fn a_zone_of_two_sizes_makes_two_scenarios() {
        let text = "title = \"Zone\"\nqueries = [\"--random\", \"$NAMES\"]\nmeasures = []\ncontenders = []\n\
            [zone]\nnames = [10000, 1000000]\nsigned = true\n";
        let mut scenario: Scenario = toml::from_str(text).unwrap();
        scenario.name = "zone".to_owned();
        let both = scenario.of_each_size();
        let names: Vec<&str> = both.iter().map(|one| one.name.as_str()).collect();
        assert_eq!(names, ["zone-10k", "zone-1m"]);
        assert_eq!(both[1].title, "Zone, 1,000,000 names");
        assert_eq!(both[0].queries, ["--random", "10000"]);
    }

    #[test]
    fn a_picture_needs_no_more_than_three_repeats() {
        assert_eq!(
            [1, 5].map(|wanted| Measure::OverTime.repeats(wanted)),
            [1, 3]
        );
        assert_eq!(Measure::R99.repeats(5), 5);
    }

    #[test]
    fn the_environments_server_is_measured_wherever_servers_compete() {
        let scenarios = Library::ours().scenarios().unwrap();
        let compete = |one: &&Scenario| {
            one.name.starts_with("zone-") || ["refused", "cache", "forward"].contains(&&*one.name)
        };
        let competing: Vec<&Scenario> = scenarios.iter().filter(compete).collect();
        assert_eq!(competing.len(), 10);
        for scenario in competing {
            let mut contenders = scenario.contenders.iter();
            let named = contenders.find(|one| one.server == "named");
            let door = named.map(|one| one.door);
            assert_eq!(door, Some(DoorWord::Sockets), "{}", scenario.name);
        }
    }

    #[test]
    fn dnsdist_comes_behind_the_three_of_dnsperfs_test() {
        use DoorWord::{Sockets, Xdp};
        let scenarios = Library::ours().scenarios().unwrap();
        for name in ["dnsperf-defaults", "dnsperf-500"] {
            let scenario = scenarios.iter().find(|one| one.name == name).unwrap();
            let contenders = &scenario.contenders;
            let order: Vec<(&str, DoorWord)> = contenders
                .iter()
                .map(|one| (one.server.as_str(), one.door))
                .collect();
            assert_eq!(
                order,
                [
                    ("millrace", Xdp),
                    ("millrace", Sockets),
                    ("millrace", Xdp),
                    ("dnsdist", Sockets)
                ]
            );
            // All are asked alike.
            for one in contenders {
                assert_eq!(one.options, contenders[0].options, "{name}");
                assert_eq!(one.generator, contenders[0].generator, "{name}");
                assert_eq!(one.configuration, contenders[0].configuration, "{name}");
            }
        }
    }

    #[test]
    fn rules_are_measured_by_the_servers_core_and_by_what_they_take_at_the_start() {
        let scenarios = Library::ours().scenarios().unwrap();
        let mut scenarios = scenarios.iter();
        let rules = scenarios.find(|one| one.name == "million-rules").unwrap();
        for measure in [Measure::ServerCost, Measure::Start, Measure::Memory] {
            assert!(rules.measures.contains(&measure), "{}", measure.word());
        }
    }

    #[test]
    fn one_queue_and_two_take_turns() {
        let scenarios = Library::ours().scenarios().unwrap();
        let of = |name: &str| scenarios.iter().find(|one| one.name == name).unwrap();
        let forward = of("forward-queues");
        let contenders = forward.contenders.iter();
        let queues: Vec<u32> = contenders.map(|one| forward.queues_of(one)).collect();
        assert_eq!((queues, forward.queues_max()), (vec![1, 2], 2));
        // But for that they are the same, and the second is compared with the first.
        let [first, second] = &forward.contenders[..] else {
            panic!("two contenders");
        };
        assert_eq!(first.configuration, second.configuration);
        assert_eq!(forward.yardsticks, [first.name.as_str()]);
        assert_eq!(of("evenness-4q").queues_max(), 4);
    }

    #[test]
    fn an_unknown_field_is_shown() {
        let text = "title = \"x\"\nqueries = []\nmeasures = []\ncontenders = []\nspeed = 3\n";
        let error = toml::from_str::<Scenario>(text).unwrap_err().to_string();
        assert!(error.contains("speed"), "{error}");
    }
}
