//! `--ramp` against servers whose limit is known, and stopped on its way.

use crate::lab::{
    Deed, Responder, SERVER, Talking, end, lab, program_on, queries, quiet_port, start, summary,
};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use std::cell::Cell;
use std::time::Instant;
use testnet::lab::{Lab, TO_SERVER};

/// Answers a second that the server gives, and how many at once after it had nothing to do.
const LIMIT: f64 = 2000.0;
const AT_ONCE: f64 = 80.0;
/// How long each rate is held, in seconds: the server answers so many queries in it, and those at once.
const HELD: f64 = 0.2;
/// A machine that does something else at the wrong moment answers less, or asks less, so that one search proves nothing.
const ATTEMPTS: u32 = 10;

/// Answers so many queries a second, and none of the others.
fn limited() -> impl Fn(u64) -> Deed + Send + 'static {
    let saved = Cell::new((Instant::now(), AT_ONCE));
    move |_| {
        let ((then, saved_then), now) = (saved.get(), Instant::now());
        let earned = (now - then).as_secs_f64() * LIMIT;
        let left = (saved_then + earned).min(AT_ONCE);
        let (left, deed) = match left >= 1.0 {
            true => (left - 1.0, Deed::Answer),
            false => (left, Deed::Ignore),
        };
        saved.set((now, left));
        deed
    }
}

/// One search for both rates, once: its probes, and its result.
fn searched(lab: &Lab) -> (Vec<Value>, Value) {
    let file = queries(100);
    let line = format!(
        "xdp -j --ramp --repeat 1 -b 1 -t {HELD} -Q {LIMIT} --highest 9000 --patience 60 --late 0.25 -i {} {SERVER}",
        file.path().display()
    );
    let printed = end(start(&lab.client(), &line));
    let result = summary(&printed);
    let objects = printed.out.lines().map(serde_json::from_str::<Value>);
    let mut objects: Vec<Value> = objects.map(Result::unwrap).collect();
    objects.retain(|object| object["type"] == "probe");
    (objects, result)
}

/// What is not as the server's limit has it, if anything.
fn mistake(probes: &[Value], result: &Value) -> Option<&'static str> {
    let number = |name: &str| result[name].as_f64().unwrap_or_default();
    let (r99, loss_free, peak) = (number("r99"), number("loss_free"), number("peak"));
    // Whatever is at hand at the start of a rate is spread over the time that it is held; searches are precise to 3 %.
    let (least, most) = (LIMIT / 1.04, (LIMIT + AT_ONCE / HELD) * 1.02);
    let is_probed = |rate: f64| probes.iter().any(|probe| probe["rate"] == rate);
    [
        (
            result["generator_was_the_limit"] == false,
            "the generator was the limit",
        ),
        (
            (least..=most / 0.99).contains(&r99),
            "R99 is not the server's limit",
        ),
        (
            (least..=most).contains(&loss_free),
            "the rate without loss is not the server's limit",
        ),
        (loss_free <= r99, "there is more without loss than with"),
        (
            (least..=most).contains(&peak),
            "the peak is not the server's limit",
        ),
        (
            is_probed(r99) && is_probed(loss_free),
            "a rate was never tried",
        ),
    ]
    .into_iter()
    .find_map(|(holds, mistake)| (!holds).then_some(mistake))
}

#[test]
fn a_servers_limit_is_found_with_one_in_a_hundred_lost_and_without_loss() {
    let Some(lab) = lab() else { return };
    let _port = quiet_port(&lab, SERVER);
    let _responder = Responder::start(&lab, None, limited());
    let mut mistakes = Vec::new();
    for _ in 0..ATTEMPTS {
        let (probes, result) = searched(&lab);
        assert_eq!(result["type"], "ramp", "{result}");
        let runs = ["r99_runs", "loss_free_runs"].map(|name| result[name].clone());
        let medians = ["r99", "loss_free"].map(|name| json!([result[name]]));
        assert_eq!(runs, medians, "{result}");
        match mistake(&probes, &result) {
            None => return assert_eq!(program_on(&lab.client(), TO_SERVER), ""),
            Some(mistake) => mistakes.push(format!("{mistake}: {result}")),
        }
    }
    panic!("{ATTEMPTS} searches, and each wrong: {mistakes:#?}");
}

#[test]
fn r99_alone_is_searched_where_nothing_else_is_asked_for_and_a_bound_of_ours_is_told() {
    let Some(lab) = lab() else { return };
    let _port = quiet_port(&lab, SERVER);
    let _responder = Responder::start(&lab, None, |_| Deed::Answer);
    let file = queries(100);
    let line = format!(
        "--ramp=r99 --repeat 2 -t 0.1 -Q 500 --highest 500 --patience 60 --late 60 -i {} {SERVER}",
        file.path().display()
    );
    let result = summary(&end(start(&lab.client(), &format!("xdp -j {line}"))));
    assert_eq!(result["r99_runs"], json!([500.0, 500.0]), "{result}");
    assert_eq!(result["loss_free"], Value::Null, "{result}");
    assert_eq!(result["loss_free_runs"], json!([]), "{result}");
    assert_eq!(result["generator_was_the_limit"], true, "{result}");
    let printed = end(start(&lab.client(), &format!("xdp {line}")));
    for part in [
        "\noffered 500/s: sent 100.00%, right 100.000%, p99 ",
        "\nR99 (99% of what was offered answered right): 500/s, median of 500, 500\n",
        "\nThe generator itself or --highest was the limit: the server may do more.\n",
    ] {
        assert!(printed.out.contains(part), "{part}: {printed:?}");
    }
    assert!(!printed.out.contains("without loss"), "{printed:?}");
}

#[test]
fn an_interrupt_ends_a_ramp_with_what_was_found_so_far() {
    let Some(lab) = lab() else { return };
    let _port = quiet_port(&lab, SERVER);
    let _responder = Responder::start(&lab, None, |_| Deed::Answer);
    let file = queries(100);
    let options = format!(
        "--ramp --repeat 9 --patience 60 --late 60 -i {} {SERVER}",
        file.path().display()
    );
    // Before the first search has ended: no rate, but the probes and the best of them.
    let mut flood = Talking::start(
        &lab.client(),
        &format!("xdp -Q 400 --highest 200000 -t 0.5 {options}"),
    );
    let header = flood.line();
    assert!(header.starts_with("using interface "), "{header}");
    let probe = flood.line();
    assert!(
        probe.starts_with("offered 400/s: sent 100.00%, right 100.000%, "),
        "{probe}"
    );
    flood.signal(Signal::SIGINT);
    let (lines, code) = flood.end();
    assert_eq!(code, Some(0), "{lines:?}");
    let none = "R99 (99% of what was offered answered right): stopped before a rate was found";
    assert!(lines.iter().any(|line| line == none), "{lines:?}");
    let peak = lines.last().filter(|line| line.starts_with("peak:"));
    assert!(
        peak.is_some_and(|line| line.contains("/s answered right of ")),
        "{lines:?}"
    );
    // Between the two searches of a repeat: the first one's rate stands. The second one takes longer than the machine may keep us
    // from ending it.
    let line = format!("xdp -j -Q 300 --highest 300 -t 3 {options}");
    let mut flood = Talking::start(&lab.client(), &line);
    assert_eq!(flood.object()["type"], "header");
    let probe = flood.object();
    assert_eq!(
        (&probe["type"], &probe["rate"]),
        (&json!("probe"), &json!(300.0))
    );
    let result = flood.interrupt();
    assert_eq!(result["type"], "ramp", "{result}");
    assert_eq!(result["r99_runs"], json!([300.0]), "{result}");
    assert_eq!(result["loss_free"], Value::Null, "{result}");
    assert!(result["peak"].as_f64() > Some(0.0), "{result}");
    assert_eq!(program_on(&lab.client(), TO_SERVER), "");
}
