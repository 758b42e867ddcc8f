//! `./dev bench`: servers and yardsticks measured in the lab, one after the other and over again; what an answer costs, by turns
//! of less than a second.
//!
//! In crate `testnet`, because it needs the lab and is development only; floodgate is run as the program that operators run.
//!
//! ```text
//!  scenario (bench/scenarios/*.toml)
//!   └ measure × repeat × contender:  backend, server (CPU 1), witness, generator (CPU 0) → record
//!   └ cost    × repeat:  backend, server of each; turn × contender:  witness, generator → a record of each
//!  bench/results/DATE/: results.json, results.csv, report.html, README.md with charts/
//! ```

mod client;
mod contest;
mod course;
mod cpu;
mod figure;
mod generator;
mod plan;
mod record;
mod report;
mod results;
mod stage;
mod witness;
mod zones;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use contest::{Contest, Settings};
pub(crate) use cpu::descendants;
use plan::{Library, Scenario};
use record::{Machine, Missing, Record};
use results::Results;
use stage::{Cpus, Places};

use crate::signals::Signals;
use crate::{Failure, Outcome};

const USAGE: &str = "usage: ./dev bench [OPTION]... [SCENARIO]...
  without a SCENARIO: all of bench/scenarios that --results has not whole yet; `list` shows them
  a SCENARIO is measured anew; what the folder has of others stays
  report PATH     makes the report of a folder of results anew, and measures nothing
  --repeats N     how often everything is measured (5)
  --search N      seconds that each rate of a search is held (5)
  --seconds N     seconds that cost, overload and the like take (10)
  --cpus G,S      CPUs of generator and server (0,1)
  --remote ADDRESS[@PORT]  no lab: a server that is there already, on another machine
  --as NAME       with --remote: which of the scenario's contenders it is; others add up in the folder, one after the other
  --server TEXT   with --remote: what the report says of it: version, commit, machine, kernel, mode
  --scale X       multiplies every rate: to try the bench out on a busy machine (1)
  --results PATH  where results go, and what is there is gone on with (bench/results/DATE)
  --built PATH    where cargo has built the programs
  --bench PATH    another folder of scenarios, servers and configurations than this tree's";

/// What the command line asks for.
struct Command {
    settings: Settings,
    scenarios: Vec<String>,
    results: PathBuf,
    /// Which contender a remote server is.
    contender: Option<String>,
}

/// Runs the bench.
pub fn run(prefix: &str, words: &[String]) -> ExitCode {
    if words.iter().any(|word| word == "-h" || word == "--help") {
        println!("{USAGE}");
        return ExitCode::SUCCESS;
    }
    match do_as_said(prefix, words) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("{failure}");
            ExitCode::FAILURE
        }
    }
}

/// Lists, reports, measures, or only checks whether these words could be measured: before a build of a quarter of an hour.
fn do_as_said(prefix: &str, words: &[String]) -> Outcome<()> {
    let (library, words) = library(words)?;
    let scenarios = library.scenarios()?;
    let (is_check, words) = match words.split_first() {
        Some((word, rest)) if word == "check" => (true, rest),
        _ => (false, &words[..]),
    };
    match words {
        [word] if word == "list" => {
            list(&scenarios);
            return Ok(());
        }
        [word, folder] if word == "report" => return report_again(folder, &scenarios),
        _ => {}
    }
    let command = Command::parse(prefix, &library, words)?;
    let mut chosen = choose(&command.scenarios, &scenarios)?;
    let left_out = command.leave_one(&mut chosen)?;
    if is_check {
        return command.check_place();
    }
    for line in left_out {
        println!("{line}");
    }
    measure(&command, &library, &chosen, &scenarios)
}

fn list(scenarios: &[Scenario]) {
    for scenario in scenarios {
        let when = match scenario.when_named {
            true => " (only when it is named)",
            false => "",
        };
        println!("{:<19} {}{when}", scenario.name, scenario.title);
    }
}

/// The scenarios that `--bench` names, or the project's own; and the words without it.
fn library(words: &[String]) -> Outcome<(Library, Vec<String>)> {
    let mut words = words.to_vec();
    let Some(place) = words.iter().position(|word| word == "--bench") else {
        return Ok((Library::ours(), words));
    };
    let option: Vec<String> = words.drain(place..words.len().min(place + 2)).collect();
    let [_, folder] = &option[..] else {
        return Err(Failure::new(USAGE));
    };
    Ok((Library::at(Path::new(folder))?, words))
}

impl Command {
    fn parse(prefix: &str, library: &Library, words: &[String]) -> Outcome<Command> {
        let built = std::env::current_exe().ok();
        let built = built.and_then(|path| path.parent().map(PathBuf::from));
        let target = target_of(library);
        let mut command = Command {
            settings: Settings {
                prefix: prefix.to_owned(),
                repeats: 5,
                search_seconds: 5,
                seconds: 10,
                scale: 1.0,
                cpus: Cpus {
                    generator: 0,
                    server: 1,
                },
                places: Places {
                    built: built.unwrap_or_else(|| target.join("release")),
                    yardsticks: target.join("yardsticks"),
                    zones: target.join("bench/zones"),
                },
                remote: None,
                server: String::new(),
            },
            scenarios: Vec::new(),
            contender: None,
            results: library.folder().join("results").join(record::today()),
        };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            if word.starts_with('-') {
                let value = words.next().ok_or_else(|| Failure::new(USAGE))?;
                command.set(word, value)?;
            } else {
                command.scenarios.push(word.clone());
            }
        }
        Ok(command)
    }

    fn set(&mut self, option: &str, value: &str) -> Outcome<()> {
        let wrong = || Failure::new(format!("{option} {value}: not understood\n{USAGE}"));
        let number = || match value.parse::<u32>() {
            Ok(number) if number > 0 => Ok(number),
            _ => Err(wrong()),
        };
        let settings = &mut self.settings;
        match option {
            "--repeats" => settings.repeats = number()?,
            "--search" => settings.search_seconds = number()?,
            "--seconds" => settings.seconds = number()?,
            "--scale" => {
                settings.scale = value.parse().map_err(|_| wrong())?;
                let is_factor = settings.scale.is_finite() && settings.scale > 0.0;
                if !is_factor {
                    return Err(wrong());
                }
            }
            "--results" => self.results = PathBuf::from(value),
            "--built" => {
                settings.places.built = std::fs::canonicalize(value).map_err(|_| wrong())?
            }
            "--cpus" => {
                let (generator, server) = value.split_once(',').ok_or_else(wrong)?;
                settings.cpus = Cpus {
                    generator: generator.parse().map_err(|_| wrong())?,
                    server: server.parse().map_err(|_| wrong())?,
                };
            }
            "--remote" => {
                let (address, port) = value.split_once('@').unwrap_or((value, "53"));
                let address = address.parse().map_err(|_| wrong())?;
                let port = port.parse().map_err(|_| wrong())?;
                settings.remote = Some(SocketAddr::new(address, port));
            }
            "--as" => self.contender = Some(value.to_owned()),
            "--server" => settings.server = value.to_owned(),
            _ => return Err(wrong()),
        }
        Ok(())
    }

    /// Whether what is told of the place can be.
    fn check_place(&self) -> Outcome<()> {
        let settings = &self.settings;
        if settings.remote.is_some() {
            return Ok(());
        }
        if self.contender.is_some() || !settings.server.is_empty() {
            return Err(Failure::new(
                "--as and --server tell of a server on another machine: give --remote ADDRESS with them, or leave them out",
            ));
        }
        // Where the kernel does not tell, taskset will.
        let online = std::fs::read_to_string("/sys/devices/system/cpu/online");
        check_cpus(settings.cpus, online.as_deref().unwrap_or("0-"))
    }

    /// Where and how it is measured.
    fn place(&self) -> String {
        match self.settings.remote {
            None => self.settings.cpus.to_string(),
            Some(server) => format!(
                "Server at {server}, on another machine; machine, kernel, commit and CPU time are those of the generator's alone."
            ),
        }
    }

    /// A remote server is one contender: the others are left out, and so are scenarios without it, unless they were named. A
    /// line for each of these.
    fn leave_one(&self, scenarios: &mut Vec<Scenario>) -> Outcome<Vec<String>> {
        if self.settings.remote.is_none() {
            return Ok(Vec::new());
        }
        let Some(wanted) = self.contender.as_deref() else {
            return Err(Failure::new(format!(
                "--remote tells nothing of the server there: --as NAME says which contender it is{}",
                scenarios
                    .first()
                    .map_or_else(String::new, |scenario| format!(
                        ", of {} one of {}",
                        scenario.name,
                        scenario.contender_names().join("; ")
                    ))
            )));
        };
        let (with, without): (Vec<_>, Vec<_>) = std::mem::take(scenarios)
            .into_iter()
            .partition(|scenario| scenario.contenders.iter().any(|one| one.name == wanted));
        if let Some(first) = without.first()
            && (with.is_empty() || !self.scenarios.is_empty())
        {
            return Err(Failure::new(format!(
                "scenario {} has no contender \"{wanted}\": --as takes one of {}",
                first.name,
                first.contender_names().join("; ")
            )));
        }
        *scenarios = with;
        for scenario in scenarios {
            scenario.contenders.retain(|one| one.name == wanted);
        }
        let left_out = without.iter().map(|scenario| {
            let name = &scenario.name;
            format!("{name}: left out, for it has no contender \"{wanted}\"")
        });
        Ok(left_out.collect())
    }
}

fn choose(names: &[String], all: &[Scenario]) -> Outcome<Vec<Scenario>> {
    if names.is_empty() {
        let all = all.iter().filter(|scenario| !scenario.when_named);
        return Ok(all.cloned().collect());
    }
    let known: Vec<&str> = all.iter().map(|scenario| scenario.name.as_str()).collect();
    if let Some(unknown) = names.iter().find(|name| !known.contains(&name.as_str())) {
        return Err(Failure::new(format!(
            "there is no scenario {unknown}: {}",
            known.join(", ")
        )));
    }
    let wanted = all.iter().filter(|scenario| names.contains(&scenario.name));
    Ok(wanted.cloned().collect())
}

/// Where yardsticks and zones are: beside a folder of another checkout that has them, else in this tree.
fn target_of(library: &Library) -> PathBuf {
    let own = library.folder().join("../target");
    match own.join("yardsticks").is_dir() {
        true => own,
        false => Library::ours().folder().join("../target"),
    }
}

/// Measures the scenarios, and writes what there is after each of them, in a report of `all`. What fails is in it. An earlier
/// run's results in the folder stay: whoever names no scenario goes on where that one ended.
///
/// # Errors
/// A signal stopped it, or all that was tried failed.
fn measure(
    command: &Command,
    library: &Library,
    scenarios: &[Scenario],
    all: &[Scenario],
) -> Outcome<()> {
    let settings = &command.settings;
    command.check_place()?;
    let fresh = Results {
        machine: Machine::here(&command.place()),
        search_seconds: settings.search_seconds,
        seconds: settings.seconds,
        scale: settings.scale,
        whole: BTreeMap::new(),
        records: Vec::new(),
        missing: Vec::new(),
    };
    let commit = fresh.machine.commit.clone();
    let mut results = fresh.going_on(&command.results)?;
    let is_named = !command.scenarios.is_empty();
    let signals = Signals::take()?;
    let (mut measured, mut failed) = (0_u32, 0_u32);
    for scenario in scenarios {
        println!("{}: {}", scenario.name, scenario.title);
        if !is_named && results.is_whole(&scenario.name, settings.repeats) {
            println!("  is there already; whoever names it measures it anew");
            continue;
        }
        let near = contest::near(&results.records, &scenario.name);
        results.begin(&scenario.name, is_named, command.contender.as_deref());
        let prepared = Contest::prepare(scenario, library, settings, &commit);
        let prepared = prepared.map(|contest| contest.behind(&results.records, near));
        let see = |outcome: Result<Record, Missing>| {
            match &outcome {
                Ok(_) => measured += 1,
                Err(_) => failed += 1,
            }
            results.keep(outcome, &command.results);
        };
        match prepared.map(|contest| contest.run(&signals, see)) {
            // Of a server on another machine one contender was measured: others may follow in the same folder.
            Ok(true) if settings.remote.is_some() => {}
            Ok(true) => {
                let name = scenario.name.clone();
                results.whole.insert(name, settings.repeats);
            }
            Ok(false) => {}
            Err(failure) => {
                failed += 1;
                results.see(Err(unprepared(scenario, &failure)));
            }
        }
        results.write(&command.results, all)?;
        for line in report::latency::summary(&results, scenario) {
            println!("  {line}");
        }
        if signals.came(Duration::ZERO) {
            return Err(Failure::new(format!(
                "stopped by a signal; what was measured before is in {0}: without SCENARIO, --results {0} goes on",
                command.results.display()
            )));
        }
    }
    println!("results are in {}", command.results.display());
    all_failed(measured, failed)
}

/// A scenario of which nothing could be tried.
fn unprepared(scenario: &Scenario, failure: &Failure) -> Missing {
    Missing {
        scenario: scenario.name.clone(),
        contender: String::new(),
        at: "before the first run".to_owned(),
        why: failure.to_string(),
    }
}

/// Some servers may not be installed here, and the report says so; where nothing is left, whoever asked has no results.
fn all_failed(measured: u32, failed: u32) -> Outcome<()> {
    match (measured, failed) {
        (0, 1..) => Err(Failure::new(format!(
            "nothing could be measured; failures, each with a line above: {failed}"
        ))),
        _ => Ok(()),
    }
}

/// Fails where there are no such CPUs among those `online`, in the kernel's words: `0-3,5`.
fn check_cpus(cpus: Cpus, online: &str) -> Outcome<()> {
    let has = |cpu: usize| {
        online.trim().split(',').any(|range| {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let last = last.parse().unwrap_or(usize::MAX);
            first.parse().is_ok_and(|first: usize| first <= cpu) && cpu <= last
        })
    };
    if has(cpus.generator) && has(cpus.server) {
        return Ok(());
    }
    Err(Failure::new(format!(
        "the CPUs of this machine are {}, and generator and server are to run on {} and {}: name two of them by --cpus G,S; \
         where there is one alone, --cpus 0,0 has both share it, and figures tell of both together",
        online.trim(),
        cpus.generator,
        cpus.server
    )))
}

/// Makes the report of results anew.
fn report_again(folder: &str, scenarios: &[Scenario]) -> Outcome<()> {
    let folder = Path::new(folder);
    Results::read(folder)?.write(folder, scenarios)
}

impl Results {
    /// The same as [`see`](Results::see), and saves it: a run of hours may be killed.
    fn keep(&mut self, outcome: Result<Record, Missing>, folder: &Path) {
        self.see(outcome);
        if let Err(failure) = self.save(folder) {
            eprintln!("{failure}");
        }
    }

    /// Keeps a record, or what is missing instead, and says it.
    fn see(&mut self, outcome: Result<Record, Missing>) {
        match outcome {
            Ok(record) => {
                let disturbed = record.disturbed.as_ref();
                println!(
                    "  {} {} #{}: {:.3} {}{}",
                    record.measure.word(),
                    record.contender,
                    record.repeat,
                    record.figure,
                    record.unit,
                    disturbed.map_or_else(String::new, |why| format!(" (disturbed: {why})"))
                );
                self.records.push(record);
            }
            Err(missing) => {
                println!("  {missing}");
                self.missing.push(missing);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Outcome<Command> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        Command::parse("test", &Library::ours(), &words)
    }

    #[test]
    fn a_folder_outside_of_a_checkout_has_this_trees_yardsticks() {
        let folder = tempfile::tempdir().unwrap();
        let bench = folder.path().join("bench");
        std::fs::create_dir(&bench).unwrap();
        let library = Library::at(&bench).unwrap();
        let ours = Library::ours().folder().join("../target");
        assert_eq!(target_of(&library), ours);
        std::fs::create_dir_all(folder.path().join("target/yardsticks")).unwrap();
        assert_eq!(target_of(&library), library.folder().join("../target"));
    }

    #[test]
    fn options_and_scenarios_are_told_apart() {
        let command = parsed("--repeats 3 refused --cpus 2,3 --scale 0.5 cache").unwrap();
        assert_eq!(command.scenarios, ["refused", "cache"]);
        assert_eq!(command.settings.repeats, 3);
        assert_eq!(command.settings.cpus.server, 3);
        assert!(parsed("--speed 3").is_err());
        assert!(parsed("--repeats").is_err());
        for nothing in ["--repeats 0", "--seconds 0", "--search 0", "--scale 0"] {
            assert!(parsed(nothing).is_err(), "{nothing}");
        }
        assert!(parsed("--scale inf").is_err() && parsed("--scale -1").is_err());
    }

    #[test]
    fn cpus_that_are_not_there_are_told_with_those_that_are() {
        let cpus = |generator, server| Cpus { generator, server };
        for (online, generator, server) in [("0-1\n", 0, 1), ("0", 0, 0), ("0-3,5,8-63", 5, 63)] {
            check_cpus(cpus(generator, server), online).unwrap();
        }
        check_cpus(cpus(70, 71), "0-").unwrap();
        let failure = check_cpus(cpus(0, 1), "0\n").unwrap_err().to_string();
        assert!(
            failure.contains("are 0, and") && failure.contains("--cpus 0,0"),
            "{failure}"
        );
        assert!(check_cpus(cpus(4, 5), "0-3,5").is_err());
    }

    #[test]
    fn a_remote_server_is_one_of_the_contenders() {
        let mut scenarios = Library::ours().scenarios().unwrap();
        scenarios.truncate(1);
        let mut command = parsed("--remote 192.0.2.9@5300").unwrap();
        assert_eq!(command.settings.remote, "192.0.2.9:5300".parse().ok());
        let failure = command.leave_one(&mut scenarios.clone()).unwrap_err();
        assert!(
            failure.to_string().contains("millrace, sockets"),
            "{failure}"
        );
        assert!(failure.to_string().contains("--as NAME"), "{failure}");
        command.contender = Some("millrace, sockets".to_owned());
        let lines = command.leave_one(&mut scenarios).unwrap();
        assert!(lines.is_empty(), "{lines:?}");
        assert_eq!(scenarios[0].contenders.len(), 1);
    }

    #[test]
    fn what_a_remote_server_is_can_be_told() {
        let command = parsed("--remote 192.0.2.9 --server knotd-3.5").unwrap();
        assert_eq!(command.settings.server, "knotd-3.5");
        assert!(
            command
                .place()
                .contains("kernel, commit and CPU time are those of the generator's")
        );
        let library = Library::ours();
        let failure = measure(&parsed("--server knotd-3.5").unwrap(), &library, &[], &[]);
        assert!(
            failure
                .unwrap_err()
                .to_string()
                .contains("give --remote ADDRESS")
        );
    }

    #[test]
    fn without_a_name_scenarios_that_lack_the_remote_contender_are_left_out() {
        let mut scenarios = Library::ours().scenarios().unwrap();
        scenarios.truncate(2);
        let name = "only here".to_owned();
        scenarios[1].contenders[0].name = name.clone();
        let mut command = parsed("--remote 192.0.2.9").unwrap();
        command.contender = Some(name);
        let mut chosen = scenarios.clone();
        let lines = command.leave_one(&mut chosen).unwrap();
        assert_eq!((chosen.len(), chosen[0].contenders.len()), (1, 1));
        assert_eq!(chosen[0].name, scenarios[1].name);
        assert_eq!(lines.len(), 1);
        assert!(lines[0].starts_with(&scenarios[0].name), "{lines:?}");
        // Whoever names one wants it measured.
        command.scenarios = vec![scenarios[0].name.clone()];
        assert!(command.leave_one(&mut scenarios).is_err());
    }

    #[test]
    fn words_can_be_checked_without_measuring() {
        let check = |line: &str| {
            let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
            do_as_said("test", &words)
        };
        assert_eq!(check("check --repeats 1 refused"), Ok(()));
        for (line, said) in [
            ("check refusd", "there is no scenario refusd"),
            ("check --as echo refused", "give --remote ADDRESS"),
            ("check --remote 192.0.2.1 refused", "--as NAME"),
            ("check --repeats 0", "--repeats 0: not understood"),
        ] {
            let failure = check(line).unwrap_err().to_string();
            assert!(failure.contains(said), "{line}: {failure}");
        }
    }

    #[test]
    fn a_bench_in_which_everything_failed_is_no_success() {
        assert_eq!(all_failed(0, 0), Ok(()), "all is there already");
        assert_eq!(all_failed(1, 7), Ok(()));
        let failure = all_failed(0, 7).unwrap_err().to_string();
        assert!(failure.ends_with("above: 7"), "{failure}");
    }

    #[test]
    fn scenarios_may_be_somewhere_else() {
        let words = ["list", "--bench", "/nonexistent"].map(str::to_owned);
        assert!(library(&words).is_err());
        assert!(library(&words[1..2]).is_err());
        let (library, rest) = library(&[words[0].clone()]).unwrap();
        assert_eq!(
            (library.folder(), rest.len()),
            (Library::ours().folder(), 1)
        );
    }

    #[test]
    fn an_unknown_scenario_is_named() {
        let failure = choose(&["nosuch".to_owned()], &[]).unwrap_err();
        assert!(failure.to_string().contains("nosuch"));
    }

    #[test]
    fn what_other_scenarios_tell_too_is_measured_when_it_is_named() {
        let all = Library::ours().scenarios().unwrap();
        let has = |chosen: &[Scenario]| chosen.iter().any(|one| one.name == "latency");
        assert!(!has(&choose(&[], &all).unwrap()));
        assert!(has(&choose(&["latency".to_owned()], &all).unwrap()));
    }
}
