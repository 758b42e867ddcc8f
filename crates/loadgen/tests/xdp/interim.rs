//! SIGUSR1: statistics of the run so far, and the run goes on.

use crate::lab::{Deed, Responder, SERVER, Talking, lab, queries, quiet_port};
use nix::sys::signal::Signal;
use serde_json::Value;

/// Asks for statistics until they tell of so many queries.
fn asked_until(flood: &mut Talking, queries: u64) -> Value {
    for _ in 0..10_000 {
        flood.signal(Signal::SIGUSR1);
        let told = flood.object();
        assert_eq!(told["type"], "stats_periodic", "{told}");
        if told["queries"].as_u64() >= Some(queries) {
            return told;
        }
    }
    panic!("fewer than {queries} queries, however often it is asked");
}

#[test]
fn statistics_that_are_asked_for_are_those_of_the_run_so_far() {
    let Some(lab) = lab() else { return };
    let _port = quiet_port(&lab, SERVER);
    let _responder = Responder::start(&lab, None, |_| Deed::Answer);
    let file = queries(100);
    let path = file.path().display();
    let line = format!("xdp -j -t 600 -Q 1000 --patience 60 --late 60 -i {path} {SERVER}");
    let mut flood = Talking::start(&lab.client(), &line);
    let header = flood.object();
    assert_eq!(header["type"], "header", "{header}");
    assert_eq!(header["stats_interval"], 0.0, "{header}");
    let first = asked_until(&mut flood, 100);
    let second = asked_until(&mut flood, 200);
    let number = |told: &Value, name: &str| told[name].as_u64().unwrap();
    assert_eq!(first["runid"], header["runid"]);
    // The second covers what the first has told of.
    assert!(
        number(&second, "since") < number(&first, "until"),
        "{first} {second}"
    );
    assert!(number(&second, "until") > number(&first, "until"));
    assert!(second["floodgate"]["right"].as_u64() > Some(0), "{second}");
    let result = flood.interrupt();
    assert_eq!(result["type"], "stats_sum", "{result:#}");
    assert!(number(&result, "queries") >= number(&second, "queries"));
    assert_eq!(result["floodgate"]["right"], result["queries"]);
}

#[test]
fn as_text_they_are_a_line_from_the_start_and_do_not_disturb_those_of_a_period() {
    let Some(lab) = lab() else { return };
    let _port = quiet_port(&lab, SERVER);
    let _responder = Responder::start(&lab, None, |_| Deed::Answer);
    let file = queries(100);
    let path = file.path().display();
    let line = format!("xdp -S 200 -t 600 -Q 1000 --patience 60 --late 60 -i {path} {SERVER}");
    let mut flood = Talking::start(&lab.client(), &line);
    assert!(flood.line().starts_with("using interface "));
    // `0.000 to 0.201 s: sent …`
    let ends = |line: &str| {
        let (since, rest) = line.split_once(" to ")?;
        let (until, _) = rest.split_once(" s: sent ")?;
        Some((since.to_owned(), until.to_owned()))
    };
    let first = flood.line();
    let (since, until) = ends(&first).unwrap_or_else(|| panic!("{first}"));
    assert_eq!(since, "0.000");
    flood.signal(Signal::SIGUSR1);
    let (mut asked, mut period) = (None, None);
    for _ in 0..100 {
        let line = flood.line();
        match ends(&line) {
            Some((since, _)) if since == "0.000" => asked = Some(line),
            // The period goes on where the one before has ended.
            Some((since, _)) if since == until => period = Some(line),
            _ => {}
        }
        if asked.is_some() && period.is_some() {
            break;
        }
    }
    assert!(asked.is_some() && period.is_some(), "{asked:?} {period:?}");
    flood.signal(Signal::SIGINT);
    let (lines, code) = flood.end();
    assert_eq!(code, Some(0), "{lines:?}");
    assert!(
        lines.iter().any(|line| line.starts_with("total queries: ")),
        "{lines:?}"
    );
}
