//! Reads a scenario file: header lines, then sections. Every failure names file and line.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use super::model::{BackendScript, Scenario};
use super::repeat::Repeat;
use super::{parse_backend, parse_steps};
use crate::lab::{SERVER_V4, Topology};
use crate::subject::{Door, StartedBy, SubjectKind};
use crate::sys::Denied;
use crate::{During, Failure, Outcome};

/// Reads and checks one file.
pub fn read(path: &Path) -> Outcome<Scenario> {
    let text = fs::read_to_string(path).during(format!("reading {}", path.display()))?;
    of_text(path, &text)
}

/// Reads a scenario from its text; `path` is for failures and for files that it names.
pub(super) fn of_text(path: &Path, text: &str) -> Outcome<Scenario> {
    let mut reader = Reader::new(path);
    for (place, line) in text.lines().enumerate() {
        reader
            .line(place + 1, line)
            .map_err(|failure| at_line(path, place + 1, &failure))?;
    }
    reader.end()
}

fn at_line(path: &Path, line: usize, failure: &Failure) -> Failure {
    Failure::new(format!("{}:{line}: {failure}", path.display()))
}

/// Where a line belongs.
enum Section {
    Header,
    Configuration,
    Backend,
    Steps,
}

struct Reader {
    scenario: Scenario,
    section: Section,
    repeat: Option<Repeat>,
}

impl Reader {
    fn new(path: &Path) -> Self {
        let scenario = Scenario {
            path: path.to_owned(),
            title: String::new(),
            faults: Vec::new(),
            topology: Topology::TwoInterfaces,
            subjects: vec![SubjectKind::Millrace, SubjectKind::Dnsdist],
            gaps: Vec::new(),
            listen: SocketAddr::new(SERVER_V4, 53),
            start: StartedBy::default(),
            offload: false,
            made: Vec::new(),
            mixed_paths: false,
            configurations: Vec::new(),
            backends: Vec::new(),
            steps: Vec::new(),
        };
        Self {
            scenario,
            section: Section::Header,
            repeat: None,
        }
    }

    fn line(&mut self, number: usize, line: &str) -> Outcome<()> {
        let bare = line.trim();
        if let Some(heading) = heading(bare) {
            return self.heading(heading);
        }
        if matches!(self.section, Section::Configuration) {
            // The configuration is Lua: its lines are kept as they are.
            let (_, text) = self
                .scenario
                .configurations
                .last_mut()
                .expect("the heading made one");
            *text += &format!("{line}\n");
            return Ok(());
        }
        if bare.is_empty() || bare.starts_with('#') {
            return Ok(());
        }
        match self.section {
            Section::Header => self.header(bare),
            Section::Configuration => unreachable!("handled above"),
            Section::Backend => {
                let backend = self
                    .scenario
                    .backends
                    .last_mut()
                    .expect("the heading made one");
                parse_backend::line(backend, bare)
            }
            Section::Steps => self.step(number, bare),
        }
    }

    fn step(&mut self, number: usize, line: &str) -> Outcome<()> {
        let steps = &mut self.scenario.steps;
        if line == "end" {
            let repeat = self.repeat.take();
            let repeat = repeat.ok_or_else(|| Failure::new("`end` of what? there is no `each`"))?;
            return repeat
                .unrolled()
                .try_for_each(|(number, line)| parse_steps::line(steps, number, &line));
        }
        match (&mut self.repeat, Repeat::of_line(line)?) {
            (Some(_), Some(_)) => Err(Failure::new("an `each` inside another")),
            (Some(repeat), None) => {
                repeat.push(number, line);
                Ok(())
            }
            (None, Some(repeat)) => {
                self.repeat = Some(repeat);
                Ok(())
            }
            (None, None) => parse_steps::line(steps, number, line),
        }
    }

    fn heading(&mut self, heading: &str) -> Outcome<()> {
        let words: Vec<&str> = heading.split_whitespace().collect();
        self.section = match words.as_slice() {
            ["config", rest @ ..] => {
                let configuration = self.configuration(rest)?;
                self.scenario.configurations.push(configuration);
                Section::Configuration
            }
            ["backend", name, address, how @ ..] if matches!(how, [] | ["proxied"]) => {
                let address = socket_address(address)?;
                let backend = BackendScript {
                    name: (*name).to_owned(),
                    address,
                    proxied: !how.is_empty(),
                    rules: Vec::new(),
                };
                self.scenario.backends.push(backend);
                Section::Backend
            }
            ["steps"] => Section::Steps,
            _ => return Err(Failure::new(format!("`[{heading}]` is no section"))),
        };
        Ok(())
    }

    /// `[config]`, `[config xdp]`, `[config xdp file=../../examples/d-xdp.lua]`
    fn configuration(&self, words: &[&str]) -> Outcome<(Option<Door>, String)> {
        let mut configuration = (None, String::new());
        for word in words {
            if let Some(file) = word.strip_prefix("file=") {
                let path = self
                    .scenario
                    .path
                    .parent()
                    .unwrap_or(Path::new("."))
                    .join(file);
                configuration.1 =
                    fs::read_to_string(&path).during(format!("reading {}", path.display()))?;
                continue;
            }
            let door =
                Door::of_word(word).ok_or_else(|| Failure::new(format!("`{word}` is no door")))?;
            configuration.0 = Some(door);
        }
        Ok(configuration)
    }

    fn header(&mut self, line: &str) -> Outcome<()> {
        let (key, value) = line
            .split_once(':')
            .ok_or_else(|| Failure::new("neither `key: value` nor a section"))?;
        let value = value.trim();
        let scenario = &mut self.scenario;
        match key.split_whitespace().collect::<Vec<_>>().as_slice() {
            ["title"] => scenario.title = value.to_owned(),
            ["rfc" | "issue" | "note"] => {}
            ["faults"] => {
                scenario.faults = value
                    .split_whitespace()
                    .map(fault)
                    .collect::<Outcome<_>>()?
            }
            ["topology"] => scenario.topology = topology(value)?,
            ["subjects"] => {
                scenario.subjects = value
                    .split_whitespace()
                    .map(subject)
                    .collect::<Outcome<_>>()?
            }
            ["gap", word] => scenario.gaps.push((subject(word)?, value.to_owned())),
            ["start"] => scenario.start = start(&scenario.path, value)?,
            ["made"] => scenario.made.push(crate::dns::octets_of_hex(value)?),
            ["offload"] => scenario.offload = word_is("on", value)?,
            ["paths"] => scenario.mixed_paths = word_is("mixed", value)?,
            ["listen"] => scenario.listen = socket_address(value)?,
            _ => return Err(Failure::new(format!("`{key}` is no header line"))),
        }
        Ok(())
    }

    fn end(self) -> Outcome<Scenario> {
        let Scenario {
            path,
            title,
            configurations,
            backends,
            steps,
            ..
        } = &self.scenario;
        let lacks = |what: &str| Err(Failure::new(format!("{}: {what}", path.display())));
        if self.repeat.is_some() {
            return lacks("an `each` has no `end`");
        }
        if title.is_empty() {
            return lacks("no `title:` says what it proves");
        }
        for door in [Door::Sockets, Door::Xdp] {
            if !configurations
                .iter()
                .any(|(only, _)| only.is_none_or(|only| only == door))
            {
                return lacks(&format!("no [config] for the door {}", door.word()));
            }
        }
        let known = |name: &str| backends.iter().any(|backend| backend.name == name);
        let held = |name: &str| backends.iter().any(|backend| backend.holds(name));
        for step in steps {
            parse_steps::check(step, known, held)
                .map_err(|failure| at_line(path, step.line, &failure))?;
        }
        parse_steps::check_order(steps).map_err(|(line, failure)| at_line(path, line, &failure))?;
        Ok(self.scenario)
    }
}

/// The words between the brackets of `[config …]`, `[backend …]`, `[steps]`; Lua never has such a line.
fn heading(line: &str) -> Option<&str> {
    let inner = line.strip_prefix('[')?.strip_suffix(']')?;
    let first = inner.split_whitespace().next()?;
    ["config", "backend", "steps"]
        .contains(&first)
        .then_some(inner)
}

fn socket_address(text: &str) -> Outcome<SocketAddr> {
    let with_port = text
        .parse()
        .or_else(|_| Ok(SocketAddr::new(text.parse()?, 53)));
    with_port.map_err(|_: std::net::AddrParseError| Failure::new(format!("`{text}` is no address")))
}

fn fault(word: &str) -> Outcome<u8> {
    let number = word
        .strip_prefix('F')
        .and_then(|digits| digits.parse().ok());
    number.ok_or_else(|| Failure::new(format!("`{word}` is no fault: F1, F2, …")))
}

/// `start: denied=bpf prlimit --memlock=65536`: words before the server's own; `$HERE` is the file's folder.
fn start(path: &Path, value: &str) -> Outcome<StartedBy> {
    let here = path.parent().unwrap_or(Path::new(".")).display();
    let value = value.replace("$HERE", &here.to_string());
    let mut start = StartedBy::default();
    for word in value.split_whitespace() {
        match word.strip_prefix("denied=") {
            Some(what) => start.denied.push(
                Denied::of_word(what)
                    .ok_or_else(|| Failure::new(format!("`{what}` cannot be denied")))?,
            ),
            None => start.command.push(word.to_owned()),
        }
    }
    Ok(start)
}

fn topology(word: &str) -> Outcome<Topology> {
    match word {
        "two-interfaces" => Ok(Topology::TwoInterfaces),
        "one-interface" => Ok(Topology::OneInterface),
        "four-queues" => Ok(Topology::FourQueues),
        "generic" => Ok(Topology::Generic),
        _ => Err(Failure::new(format!(
            "`{word}` is no topology: two-interfaces, one-interface, four-queues or generic"
        ))),
    }
}

/// True, for a line whose only value is this word.
fn word_is(word: &str, value: &str) -> Outcome<bool> {
    match value == word {
        true => Ok(true),
        false => Err(Failure::new(format!(
            "`{value}`: this line says `{word}` or is left out"
        ))),
    }
}

fn subject(word: &str) -> Outcome<SubjectKind> {
    SubjectKind::of_word(word)
        .ok_or_else(|| Failure::new(format!("`{word}` is no subject: millrace or dnsdist")))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: &str = "title: Small\n[config]\naddLocal('192.0.2.1')\n[steps]\nask example.com. A\nexpect REFUSED rd\n";

    fn failure(text: &str) -> String {
        of_text(Path::new("t.scenario"), text)
            .expect_err("it is wrong")
            .to_string()
    }

    #[test]
    fn a_small_scenario_is_read() {
        let scenario = of_text(Path::new("t.scenario"), SMALL).expect("good text");
        assert_eq!(
            (scenario.title.as_str(), scenario.steps.len()),
            ("Small", 2)
        );
        assert_eq!(
            scenario.configurations,
            vec![(None, "addLocal('192.0.2.1')\n".to_owned())]
        );
    }

    #[test]
    fn failures_name_file_and_line() {
        assert!(failure(&SMALL.replace("REFUSED", "REFUSE")).starts_with("t.scenario:6: `REFUSE`"));
        assert!(
            failure(&SMALL.replace("title: Small", "titel: Small"))
                .starts_with("t.scenario:1: `titel`")
        );
        assert!(
            failure(&SMALL.replace("[config]", "[config xdp]"))
                .contains("no [config] for the door sockets")
        );
        assert!(failure(&format!("{SMALL}seen auth 1\n")).starts_with("t.scenario:7: "));
        let released = failure(&format!("{SMALL}release late\n"));
        assert_eq!(released, "t.scenario:7: no backend has `hold late`");
        assert!(failure(&format!("{SMALL}[backend auth x]\n")).contains("`x` is no address"));
    }
}
