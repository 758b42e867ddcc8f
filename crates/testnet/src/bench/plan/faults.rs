//! What is wrong with a scenario that can be read: names of nothing, and what would never be measured, each told in one line
//! with what would be right. Whoever writes a scenario learns it before the lab is built, not from a table that lacks a row.

use std::collections::BTreeSet;
use std::path::Path;

use super::{Contender, Library, Measure, Scenario, Server};
use crate::{Failure, Outcome};

/// Fails at the first fault of a scenario, which is the file at `path`.
pub(super) fn check(library: &Library, path: &Path, scenario: &Scenario) -> Outcome<()> {
    let faults = [
        of_lists(scenario),
        of_queues(scenario),
        of_names(scenario),
        of_yardsticks(scenario),
        of_measures(scenario),
        of_files(library, scenario),
    ];
    match faults.into_iter().flatten().next() {
        Some(fault) => Err(Failure::new(format!("{}: {fault}", path.display()))),
        None => Ok(()),
    }
}

/// What is wrong with a server that can be read: there is one way to start it.
pub(super) fn of_server(server: &Server) -> Option<String> {
    let ways = [
        server.program.is_some(),
        server.attach.is_some(),
        server.words,
    ];
    let count = ways.into_iter().filter(|way| *way).count();
    if count != 1 {
        return Some(format!(
            "{count} of `program`, `attach` and `words = true` are given: one says how the server is started"
        ));
    }
    let is_nowhere = server.words && server.environment.is_none();
    is_nowhere.then(|| {
        "`words` without `environment`, the variable that names the program and its arguments"
            .to_owned()
    })
}

fn of_lists(scenario: &Scenario) -> Option<String> {
    if scenario.contenders.is_empty() {
        return Some(
            "no contenders: at least one [[contenders]] with `name` and `server`".to_owned(),
        );
    }
    if scenario.measures.is_empty() {
        return Some(
            "`measures` is empty, so nothing is measured: at least one, `\"r99\"` for example"
                .to_owned(),
        );
    }
    let zone = scenario.zone.as_ref();
    zone.filter(|zone| zone.names.is_empty())
        .map(|_| "`names` of [zone] is empty: at least one number of names".to_owned())
}

fn of_queues(scenario: &Scenario) -> Option<String> {
    let contenders = scenario.contenders.iter();
    let all = contenders.map(|one| scenario.queues_of(one));
    let has_none = scenario.queues == 0 || all.into_iter().any(|queues| queues == 0);
    has_none.then(|| "`queues` is 0: an interface has at least 1".to_owned())
}

fn of_names(scenario: &Scenario) -> Option<String> {
    let mut names = BTreeSet::new();
    let mut contenders = scenario.contenders.iter();
    let twice = contenders.find(|one| !names.insert(&one.name))?;
    Some(format!(
        "two contenders are called \"{}\": figures are told apart by the name",
        twice.name
    ))
}

fn of_yardsticks(scenario: &Scenario) -> Option<String> {
    let names = || scenario.contenders.iter().map(|one| one.name.as_str());
    let own = scenario.contenders.iter();
    let own = own.filter_map(|one| one.beside.as_ref());
    let mut yardsticks = scenario.yardsticks.iter().chain(own);
    let unknown = yardsticks.find(|yardstick| !names().any(|name| name == *yardstick))?;
    Some(format!(
        "the yardstick \"{unknown}\" is none of its contenders: {}",
        listed(names(), "; ")
    ))
}

/// What a contender alone names is never measured: the scenario's list has the order.
fn of_measures(scenario: &Scenario) -> Option<String> {
    let unknown = |one: &Contender| -> Option<Measure> {
        let mut measures = one.measures.iter().flatten();
        measures
            .find(|measure| !scenario.measures.contains(measure))
            .copied()
    };
    let mut faults = scenario.contenders.iter().filter_map(|one| {
        let measure = unknown(one)?.word();
        let all = scenario.measures.iter().map(|measure| measure.word());
        Some(format!(
            "contender \"{}\" has the measure `{measure}`, which is none of the scenario's `measures`: {}",
            one.name,
            listed(all, ", ")
        ))
    });
    faults.next()
}

fn of_files(library: &Library, scenario: &Scenario) -> Option<String> {
    let has = |kind: &str, file: &str| library.folder().join(kind).join(file).is_file();
    let missing = |who: &str, kind: &str, file: &str, name: &str| {
        (!has(kind, file)).then(|| {
            let there = files(&library.folder().join(kind), file);
            format!("{who} \"{name}\", and {kind}/{file} is not there: {there}")
        })
    };
    let of = |one: &Contender| {
        let server = format!("contender \"{}\" has the server", one.name);
        let configuration = format!("contender \"{}\" has the configuration", one.name);
        missing(
            &server,
            "servers",
            &format!("{}.toml", one.server),
            &one.server,
        )
        .or_else(|| {
            let name = one.configuration.as_deref()?;
            missing(&configuration, "configurations", name, name)
        })
    };
    let backend = scenario.backend.as_deref();
    let backend = backend.and_then(|name| {
        missing(
            "it has the backend",
            "servers",
            &format!("{name}.toml"),
            name,
        )
    });
    backend.or_else(|| scenario.contenders.iter().find_map(of))
}

/// What a folder has of the kind of a file: `dnsdist, echo`.
fn files(folder: &Path, like: &str) -> String {
    let is_server = like.ends_with(".toml");
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let names: BTreeSet<String> = entries
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .map(|name| match is_server {
            true => name.trim_end_matches(".toml").to_owned(),
            false => name,
        })
        .collect();
    match names.is_empty() {
        true => format!("{} has none", folder.display()),
        false => format!(
            "there are {}",
            listed(names.iter().map(String::as_str), ", ")
        ),
    }
}

fn listed<'n>(names: impl Iterator<Item = &'n str>, between: &str) -> String {
    names.collect::<Vec<&str>>().join(between)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// What reading a scenario of these lines says, in a folder that has one server and one configuration.
    fn said(lines: &str) -> String {
        let folder = tempfile::tempdir().unwrap();
        for (kind, file, text) in [
            ("scenarios", "x.toml", lines),
            ("servers", "knotd.toml", "program = \"knotd\"\n"),
            ("configurations", "one.conf", ""),
        ] {
            fs::create_dir_all(folder.path().join(kind)).unwrap();
            fs::write(folder.path().join(kind).join(file), text).unwrap();
        }
        match Library::at(folder.path()).unwrap().scenarios() {
            Ok(_) => String::new(),
            Err(failure) => failure.to_string(),
        }
    }

    #[test]
    fn a_server_is_started_in_one_way() {
        let fault = |text: &str| of_server(&toml::from_str(text).unwrap()).unwrap_or_default();
        assert!(fault("").starts_with("0 of `program`, `attach`"));
        assert!(fault("program = \"a\"\nattach = \"b\"").starts_with("2 of"));
        assert!(fault("words = true").starts_with("`words` without `environment`"));
        assert_eq!(fault("program = \"a\""), "");
    }

    const HEAD: &str = "title = \"x\"\nqueries = []\nmeasures = [\"r99\"]\n";
    const ONE: &str = "[[contenders]]\nname = \"a\"\nserver = \"knotd\"\n";

    #[test]
    fn a_fault_is_one_line_that_says_where_and_what_would_be_right() {
        let cases = [
            (
                "mesures = []",
                "",
                "x.toml, line 4: unknown field `mesures`, expected one of `title`",
            ),
            (
                "",
                "door = \"tcp\"",
                "x.toml, line 8: unknown variant `tcp`, expected `xdp` or `sockets`",
            ),
            (
                "yardstick = 5",
                "",
                "expected the name of a contender, or a list of such names",
            ),
            ("queues = 0", "", "x.toml: `queues` is 0"),
            ("", ONE, "two contenders are called \"a\""),
            (
                "",
                "beside = \"nobody\"",
                "the yardstick \"nobody\" is none of its contenders: a",
            ),
            (
                "yardstick = [\"a\", \"b\"]",
                "",
                "the yardstick \"b\" is none of",
            ),
            (
                "",
                "measures = [\"cost\"]",
                "the measure `cost`, which is none of the scenario's `measures`: r99",
            ),
            (
                "backend = \"bind\"",
                "",
                "the backend \"bind\", and servers/bind.toml is not there: there are knotd",
            ),
            (
                "",
                "configuration = \"two.conf\"",
                "configurations/two.conf is not there: there are one.conf",
            ),
            ("[zone]\nnames = []", "", "`names` of [zone] is empty"),
        ];
        for (of_scenario, of_contender, expected) in cases {
            let said = said(&format!("{HEAD}{of_scenario}\n{ONE}{of_contender}\n"));
            assert!(said.contains(expected), "{expected}: {said}");
            assert_eq!(said.lines().count(), 1, "{said}");
        }
        let other = ONE.replace("knotd", "bind");
        let told = said(&format!("{HEAD}{other}"));
        assert!(
            told.contains("contender \"a\" has the server \"bind\", and servers/bind.toml"),
            "{told}"
        );
        let none = said(&format!("{HEAD}contenders = []\n"));
        assert!(none.contains("no contenders"), "{none}");
        assert_eq!(said(&format!("{HEAD}yardstick = [\"a\"]\n{ONE}")), "");
    }
}
