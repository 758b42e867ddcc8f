//! Lines of `[steps]`.

use std::str::FromStr;
use std::time::Duration;

use nix::sys::signal::Signal;

use super::model::{Action, Answering, Comparison, Counter, Expect, OptPattern, Restart, Step};
use super::parse_backend::{milliseconds, transport};
use super::parse_queries::{ask, edns, flood, send};
use super::words::{Words, parse};
use crate::dns::{FLAGS, RecordPattern, octets_of_hex, rcode_number};
use crate::lab::End;
use crate::metrics::labels_of;
use crate::subject::{Door, SubjectKind};
use crate::{Failure, Outcome};

/// How long an answer or a counter may take, where nothing else is said: a loaded machine needs more than the server does.
const PATIENCE: Duration = Duration::from_secs(10);

/// Reads one line, which is a step or belongs to the `expect` before it.
pub(super) fn line(steps: &mut Vec<Step>, number: usize, line: &str) -> Outcome<()> {
    let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let section = ["answer", "authority", "additional", "opt"]
        .iter()
        .position(|section| *section == word);
    if let Some(section) = section {
        let Some(Action::Expect(expect)) = steps.last_mut().map(|step| &mut step.action) else {
            return Err(Failure::new(format!("`{word}` belongs behind an `expect`")));
        };
        return expectation(expect, section, rest);
    }
    if let Some(only) = word.strip_suffix(':') {
        let mut step = step(number, rest.trim())?;
        step.door = Door::of_word(only);
        step.subject = SubjectKind::of_word(only);
        if step.door.is_none() && step.subject.is_none() {
            return Err(Failure::new(format!(
                "`{word}` is neither a door nor a subject"
            )));
        }
        steps.push(step);
        return Ok(());
    }
    steps.push(step(number, line)?);
    Ok(())
}

fn step(line: usize, text: &str) -> Outcome<Step> {
    let (word, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    let mut words = Words::of(rest);
    let action = match word {
        "ask" => Action::Ask(Box::new(ask(&mut words)?)),
        "send" => Action::Ask(Box::new(send(&mut words)?)),
        "expect" => expect(&mut words)?,
        "counter" => Action::Counter(Box::new(counter(&mut words)?)),
        "seen" => seen(&mut words)?,
        "sent" => sent(&mut words)?,
        "told" => Action::Told {
            backend: words.next("a backend")?.to_owned(),
            front: octets_of_hex(words.next("octets")?)?,
        },
        "backend" => turn(&mut words)?,
        "release" => Action::Release(words.next("what is held")?.to_owned()),
        "log" => return Ok(plain(line, Action::Log(quoted(rest)?))),
        "logged" => return Ok(plain(line, logged(rest)?)),
        "pass" => Action::Pass(milliseconds(words.next("a time")?)?),
        "close" => Action::Close(words.next("a connection")?.to_owned()),
        "half-close" => Action::HalfClose(words.next("a connection")?.to_owned()),
        "link" => link(&mut words)?,
        "mtu" => Action::Mtu {
            end: end(&mut words)?,
            octets: parse("mtu", words.next("a size")?)?,
        },
        "restart" => restart(&mut words)?,
        "flood" => Action::Flood(Box::new(flood(&mut words)?)),
        "inject" => Action::Inject {
            end: end(&mut words)?,
            frame: octets_of_hex(&words.take_all(|_| true).concat())?,
        },
        "signal" => Action::Signal(signal(words.next("a signal")?)?),
        _ => return Err(Failure::new(format!("`{word}` is no step"))),
    };
    words.end()?;
    Ok(plain(line, action))
}

fn plain(line: usize, action: Action) -> Step {
    Step {
        line,
        door: None,
        subject: None,
        action,
    }
}

/// Fails if a step names a backend that the file does not have, or releases what none holds.
pub(super) fn check(
    step: &Step,
    known: impl Fn(&str) -> bool,
    held: impl Fn(&str) -> bool,
) -> Outcome<()> {
    match &step.action {
        Action::Seen { backend, .. }
        | Action::Sent { backend, .. }
        | Action::Told { backend, .. }
        | Action::Turn { backend, .. }
            if !known(backend) =>
        {
            Err(Failure::new(format!("there is no [backend {backend} …]")))
        }
        Action::Release(name) if !held(name) => {
            Err(Failure::new(format!("no backend has `hold {name}`")))
        }
        _ => Ok(()),
    }
}

/// Fails if an `expect none` is followed by no step that awaits something: nothing would bound it.
pub(super) fn check_order(steps: &[Step]) -> Result<(), (usize, Failure)> {
    let awaits = |step: &Step| {
        !matches!(
            step.action,
            Action::ExpectNone(_) | Action::Ask(_) | Action::Turn { .. } | Action::Release(_)
        )
    };
    for (place, step) in steps.iter().enumerate() {
        if matches!(step.action, Action::ExpectNone(_)) && !steps[place..].iter().any(awaits) {
            let text = "nothing after this `expect none` awaits anything: add a counter or an answered query";
            return Err((step.line, Failure::new(text)));
        }
    }
    Ok(())
}

// ---------------------------------------------------------------------------------------------
// Answers

fn expect(words: &mut Words<'_>) -> Outcome<Action> {
    let label = words.label().map(str::to_owned);
    if words.flag("none") {
        return Ok(Action::ExpectNone(label));
    }
    if words.flag("maybe") {
        return Ok(Action::ExpectMaybe(label));
    }
    if words.flag("closed") {
        return Ok(Action::ExpectClosed(words.next("a connection")?.to_owned()));
    }
    let within = patience(words)?;
    let octets = words.value("octets").map(octets_of_hex).transpose()?;
    let mut expect = Expect {
        label,
        within,
        header: None,
        without_question: words.flag("no-question"),
        size_octets: words.parsed("size")?,
        ages: words.flag("ages"),
        octets,
        sections: Default::default(),
        opt: OptPattern::Any,
    };
    if words.flag("anything") {
        return Ok(Action::Expect(Box::new(expect)));
    }
    let mut flags = 0;
    for (word, bit) in FLAGS {
        flags |= if words.flag(word) { bit } else { 0 };
    }
    let word = words.next("a response code, or `anything`, or `none`")?;
    let rcode = rcode_number(word)
        .ok_or_else(|| Failure::new(format!("`{word}` is no response code and no flag")))?;
    expect.header = Some((rcode, flags));
    expect.sections = [const { Some(Vec::new()) }; 3];
    expect.opt = OptPattern::Absent;
    Ok(Action::Expect(Box::new(expect)))
}

fn expectation(expect: &mut Expect, section: usize, text: &str) -> Outcome<()> {
    if let Some(records) = expect.sections.get_mut(section) {
        match text {
            "*" => *records = None,
            _ => records
                .get_or_insert_default()
                .push(RecordPattern::from_text(text)?),
        }
        return Ok(());
    }
    if text == "*" {
        expect.opt = OptPattern::Any;
        return Ok(());
    }
    let mut words = Words::of(text);
    let edns = edns(&mut words)?.unwrap_or_default();
    words.end()?;
    let mut octets = Vec::new();
    edns.append_to(&mut octets);
    let options = octets.split_off(11);
    expect.opt = OptPattern::Is {
        size_octets: edns.size_octets,
        dnssec_ok: edns.dnssec_ok,
        options,
    };
    Ok(())
}

// ---------------------------------------------------------------------------------------------
// Everything else

/// `NAME{label="value"} +1`; the label part has no blanks.
pub(super) fn counter(words: &mut Words<'_>) -> Outcome<Counter> {
    let series = words.next("a counter")?;
    let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
    let labels = labels.strip_suffix('}').and_then(labels_of);
    let labels =
        labels.ok_or_else(|| Failure::new(format!("`{series}` is not NAME{{label=\"value\"}}")))?;
    let word = words.next("a value: +1, +>=1, +<1 or =1")?;
    let known = [
        ("+>=", Comparison::GrownByAtLeast),
        ("+<", Comparison::GrownByLess),
        ("+", Comparison::GrownBy),
        ("=", Comparison::Is),
    ];
    let found = known
        .iter()
        .find_map(|(mark, comparison)| Some((*comparison, word.strip_prefix(mark)?)));
    let (comparison, digits) =
        found.ok_or_else(|| Failure::new(format!("`{word}`: +1, +>=1, +<1 or =1")))?;
    let within = patience(words)?;
    Ok(Counter {
        name: name.to_owned(),
        labels,
        comparison,
        value: parse("counter", digits)?,
        within,
    })
}

fn seen(words: &mut Words<'_>) -> Outcome<Action> {
    let backend = words.next("a backend")?.to_owned();
    let transport = transport(words);
    Ok(Action::Seen {
        backend,
        transport,
        count: parse("seen", words.next("a number of queries")?)?,
    })
}

fn sent(words: &mut Words<'_>) -> Outcome<Action> {
    let backend = words.next("a backend")?.to_owned();
    let within = patience(words)?;
    Ok(Action::Sent {
        backend,
        count: parse("sent", words.next("a number of answers")?)?,
        within,
    })
}

/// Takes `within=TIME`.
fn patience(words: &mut Words<'_>) -> Outcome<Duration> {
    Ok(words
        .value("within")
        .map(milliseconds)
        .transpose()?
        .unwrap_or(PATIENCE))
}

fn turn(words: &mut Words<'_>) -> Outcome<Action> {
    let backend = words.next("a backend")?.to_owned();
    let answering = match words.next("`silent`, `lossy` or `answering`")? {
        "silent" => Answering::Nothing,
        "lossy" => Answering::Half,
        "answering" => Answering::All,
        word => {
            return Err(Failure::new(format!(
                "a backend can be `silent`, `lossy` or `answering`, not `{word}`"
            )));
        }
    };
    Ok(Action::Turn { backend, answering })
}

fn restart(words: &mut Words<'_>) -> Outcome<Action> {
    let known = [
        ("killed", Restart::Killed),
        ("early", Restart::Early),
        ("overlapping", Restart::Overlapping),
    ];
    let found = known.into_iter().find(|(word, _)| words.flag(word));
    Ok(Action::Restart {
        how: found.map_or(Restart::Terminated, |(_, how)| how),
        times: words.parsed("times")?.unwrap_or(1),
    })
}

fn link(words: &mut Words<'_>) -> Outcome<Action> {
    let end = end(words)?;
    match words.next("`up` or `down`")? {
        "up" => Ok(Action::Link { end, up: true }),
        "down" => Ok(Action::Link { end, up: false }),
        "flaps" => Ok(Action::Flap {
            end,
            times: words.parsed("times")?.unwrap_or(1),
        }),
        word => Err(Failure::new(format!(
            "a link goes `up` or `down` or `flaps`, not `{word}`"
        ))),
    }
}

fn end(words: &mut Words<'_>) -> Outcome<End> {
    let word = words.next("a link")?;
    let text = || {
        Failure::new(format!(
            "`{word}` is no link: clients, backends, enp1s0, enp2s0"
        ))
    };
    End::of_word(word).ok_or_else(text)
}

fn logged(rest: &str) -> Outcome<Action> {
    let (lines, text) = rest.split_once(' ').unwrap_or((rest, ""));
    Ok(Action::Logged {
        text: quoted(text)?,
        lines: parse("logged", lines)?,
    })
}

fn quoted(text: &str) -> Outcome<String> {
    let inner = text
        .trim()
        .strip_prefix('"')
        .and_then(|text| text.strip_suffix('"'));
    inner
        .map(str::to_owned)
        .ok_or_else(|| Failure::new("the text stands in \"quotes\""))
}

fn signal(word: &str) -> Outcome<Signal> {
    Signal::from_str(&format!("SIG{word}"))
        .map_err(|_| Failure::new(format!("`{word}` is no signal: HUP, STOP, CONT")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(text: &str) -> Outcome<Action> {
        let mut steps = Vec::new();
        line(&mut steps, 1, text)?;
        Ok(steps.remove(0).action)
    }

    #[test]
    fn counters_are_compared_in_three_ways() {
        for (text, comparison) in [
            ("+2", Comparison::GrownBy),
            ("+>=2", Comparison::GrownByAtLeast),
            ("=2", Comparison::Is),
        ] {
            let step = one(&format!("counter dnsdist_x{{server=\"a\"}} {text}"));
            let Action::Counter(counter) = step.expect("good words") else {
                panic!("not a counter")
            };
            assert_eq!((counter.comparison, counter.value), (comparison, 2.0));
            assert_eq!(counter.labels, vec![("server".to_owned(), "a".to_owned())]);
        }
        assert!(one("counter dnsdist_x 2").is_err());
    }

    #[test]
    fn an_answer_has_no_records_but_those_written() {
        let mut steps = Vec::new();
        line(&mut steps, 1, "expect NOERROR rd ra within=500ms").expect("good words");
        line(&mut steps, 2, "answer www.example.com. 60 A 192.0.2.77").expect("good words");
        line(&mut steps, 3, "additional *").expect("good words");
        line(&mut steps, 4, "opt size=512 do").expect("good words");
        let Action::Expect(expect) = &steps[0].action else {
            panic!("not an expect")
        };
        let counts = expect
            .sections
            .each_ref()
            .map(|records| records.as_ref().map(Vec::len));
        assert_eq!(counts, [Some(1), Some(0), None]);
        assert_eq!(
            expect.opt,
            OptPattern::Is {
                size_octets: 512,
                dnssec_ok: true,
                options: Vec::new()
            }
        );
    }

    #[test]
    fn an_unbounded_none_is_refused() {
        let mut steps = vec![plain(1, one("ask a. A").expect("good"))];
        steps.push(plain(2, one("expect none").expect("good")));
        steps.push(plain(2, one("release late").expect("good")));
        assert_eq!(check_order(&steps).expect_err("unbounded").0, 2);
        steps.push(plain(3, one("counter dnsdist_rule_drop +1").expect("good")));
        assert!(check_order(&steps).is_ok());
    }
}
