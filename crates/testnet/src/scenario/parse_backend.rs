//! Lines of `[backend …]`: rules, what they do, and the records of their answers.

use std::net::SocketAddr;
use std::time::Duration;

use super::model::{BackendAction, BackendRule, BackendScript, NamePattern, Reply, Transport};
use super::parse_queries::edns;
use super::words::{Words, parse};
use crate::dns::{FLAGS, Query, Record, octets_of_hex, rcode_number};
use crate::{Failure, Outcome};

/// Reads one line into the backend.
pub(super) fn line(backend: &mut BackendScript, line: &str) -> Outcome<()> {
    let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    if word == "on" {
        backend.rules.push(rule(rest)?);
        return Ok(());
    }
    let rule = backend
        .rules
        .last_mut()
        .ok_or_else(|| Failure::new(format!("`{word}` stands before any `on`")))?;
    let section = ["answer", "authority", "additional"]
        .iter()
        .position(|section| *section == word);
    if let Some(section) = section {
        let record = Record::from_text(rest)?;
        last_reply(rule, word)?.sections[section].push(record);
        return Ok(());
    }
    let mut words = Words::of(rest);
    match word {
        "opt" => last_reply(rule, word)?.opt = Some(edns(&mut words)?.unwrap_or_default()),
        "reply" => rule
            .actions
            .push(BackendAction::Reply(Box::new(reply(&mut words)?))),
        "raw" => rule.actions.push(raw(&mut words)?),
        "wait" => rule
            .actions
            .push(BackendAction::Wait(milliseconds(words.next("a time")?)?)),
        "hold" => {
            let name = words.next("a name for `release`")?.to_owned();
            rule.actions.push(BackendAction::Hold(name));
        }
        "close" => rule.actions.push(BackendAction::Close),
        "half-close" => rule.actions.push(BackendAction::HalfClose),
        "reset" => rule.actions.push(BackendAction::Reset),
        "hang" => rule.actions.push(BackendAction::Hang),
        _ => {
            return Err(Failure::new(format!(
                "`{word}` is nothing that a backend does"
            )));
        }
    }
    words.end()
}

/// A time written `200ms` or `2s`.
pub(super) fn milliseconds(word: &str) -> Outcome<Duration> {
    let number = |digits: &str, unit| {
        digits
            .parse::<u64>()
            .ok()
            .map(|count| Duration::from_millis(count * unit))
    };
    let time = match word.strip_suffix("ms") {
        Some(digits) => number(digits, 1),
        None => word
            .strip_suffix('s')
            .and_then(|digits| number(digits, 1000)),
    };
    time.ok_or_else(|| Failure::new(format!("`{word}` is no time: 200ms, 2s")))
}

fn rule(rest: &str) -> Outcome<BackendRule> {
    let mut words = Words::of(rest);
    let name = words.next("a name")?;
    let rtype = words.next("a type")?;
    let rule = BackendRule {
        name: name_pattern(name)?,
        rtype: if rtype == "*" {
            None
        } else {
            Some(Query::new(".", rtype)?.rtype)
        },
        transport: transport(&mut words),
        times: words.parsed("times")?,
        probe: words.flag("probe"),
        actions: Vec::new(),
    };
    words.end()?;
    Ok(rule)
}

/// Takes `udp` or `tcp`.
pub(super) fn transport(words: &mut Words<'_>) -> Option<Transport> {
    match (words.flag("udp"), words.flag("tcp")) {
        (true, false) => Some(Transport::Udp),
        (false, true) => Some(Transport::Tcp),
        _ => None,
    }
}

fn name_pattern(name: &str) -> Outcome<NamePattern> {
    let octets = |name: &str| Ok(Query::new(name, "A")?.name.to_ascii_lowercase());
    match name.strip_prefix("*.") {
        _ if name == "*" => Ok(NamePattern::Any),
        Some(suffix) => Ok(NamePattern::Below(octets(suffix)?)),
        None => Ok(NamePattern::Exactly(octets(name)?)),
    }
}

fn last_reply<'a>(rule: &'a mut BackendRule, word: &str) -> Outcome<&'a mut Reply> {
    match rule.actions.last_mut() {
        Some(BackendAction::Reply(reply)) => Ok(reply),
        _ => Err(Failure::new(format!("`{word}` belongs behind a `reply`"))),
    }
}

fn reply(words: &mut Words<'_>) -> Outcome<Reply> {
    let mut reply = Reply {
        times: words.parsed("times")?.unwrap_or(1),
        id: words.number("id")?,
        id_offset: words.number("id-offset")?.unwrap_or(0),
        cut_octets: words.parsed("cut")?,
        size_octets: words.parsed("size")?,
        source: words
            .value("from")
            .map(|address| parse::<SocketAddr>("from", address))
            .transpose()?,
        trailing: words
            .value("trailing")
            .map(octets_of_hex)
            .transpose()?
            .unwrap_or_default(),
        drip: words.value("drip").map(milliseconds).transpose()?,
        without_question: words.flag("no-question"),
        as_query: words.flag("as-query"),
        without_opt: words.flag("no-opt"),
        ..Reply::default()
    };
    if let Some(question) = words.value("question") {
        let (name, rtype) = question
            .split_once('/')
            .ok_or_else(|| Failure::new("question=NAME/TYPE"))?;
        let query = Query::new(name, rtype)?;
        reply.question = Some((query.name, query.rtype));
    }
    if let Some(class) = words.value("class") {
        let mut query = Query::new(".", "A")?;
        query.set_class(class)?;
        reply.class = Some(query.class);
    }
    for (word, bit) in FLAGS {
        reply.flags |= if words.flag(word) { bit } else { 0 };
    }
    if !words.is_empty() {
        let word = words.next("a response code")?;
        reply.rcode = rcode_number(word)
            .ok_or_else(|| Failure::new(format!("`{word}` means nothing in a reply")))?;
    }
    Ok(reply)
}

fn raw(words: &mut Words<'_>) -> Outcome<BackendAction> {
    let with_id = words.flag("id");
    let octets = octets_of_hex(&words.take_all(|_| true).concat())?;
    Ok(BackendAction::Raw { with_id, octets })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(lines: &[&str]) -> Outcome<BackendScript> {
        let address = "198.51.100.2:53".parse().expect("an address");
        let mut backend = BackendScript {
            name: "auth".to_owned(),
            address,
            proxied: false,
            rules: Vec::new(),
        };
        lines.iter().try_for_each(|text| line(&mut backend, text))?;
        Ok(backend)
    }

    #[test]
    fn rules_actions_and_records_belong_to_what_stands_before_them() {
        let backend = read(&[
            "on www.example.com. A udp times=2",
            "wait 200ms",
            "reply SERVFAIL aa id-offset=1 question=evil.example./TXT",
            "answer www.example.com. 60 A 192.0.2.77",
            "on * *",
            "raw id 8180",
        ])
        .expect("good lines");
        assert_eq!(backend.rules.len(), 2);
        let [BackendAction::Wait(time), BackendAction::Reply(reply)] =
            backend.rules[0].actions.as_slice()
        else {
            panic!("{:?}", backend.rules[0].actions)
        };
        assert_eq!(
            (time.as_millis(), reply.rcode, reply.flags, reply.id_offset),
            (200, 2, 0x0400, 1)
        );
        assert_eq!(reply.sections[0].len(), 1);
        assert!(matches!(
            &backend.rules[1].actions[..],
            [BackendAction::Raw { with_id: true, .. }]
        ));
    }

    #[test]
    fn what_is_held_has_a_name() {
        let backend = read(&["on late.example. A", "hold late", "reply aa"]).expect("good lines");
        assert!(backend.holds("late") && !backend.holds("never"));
        assert!(read(&["on late.example. A", "hold"]).is_err());
        assert!(read(&["hold late"]).is_err());
    }

    #[test]
    fn what_stands_in_the_wrong_place_is_a_failure() {
        assert!(read(&["reply"]).is_err());
        assert!(read(&["on * *", "answer a. 60 A 192.0.2.1"]).is_err());
        assert!(
            read(&["on * *", "reply shiny"])
                .expect_err("no word")
                .to_string()
                .contains("shiny")
        );
        assert!(read(&["on * *", "wait 2"]).is_err());
    }
}
