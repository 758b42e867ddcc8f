//! Compares an answer with what a scenario expects, and with what every answer must be.

use super::client::Asked;
use super::model::{Expect, OptPattern};
use crate::dns::{
    Answer, HEADER_OCTETS, Record, RecordPattern, flag_words, hex_of_octets, question_of,
    rcode_name,
};
use crate::{Failure, Outcome};

const QR: u16 = 0x8000;

/// Checks an answer. Returns what must be the same on every door: the octets after the ID, or, where
/// the clock has a say in them, a text without TTLs.
pub(super) fn check(expect: &Expect, asked: &Asked, octets: &[u8]) -> Outcome<String> {
    let answer = Answer::read(octets).map_err(|failure| {
        Failure::new(format!(
            "{failure}; the answer is {}",
            hex_of_octets(octets)
        ))
    })?;
    let wrong = complaints(expect, asked, &answer, octets);
    if !wrong.is_empty() {
        let shown = describe(&answer);
        return Err(Failure::new(format!(
            "{}; the answer is {shown}",
            wrong.join("; ")
        )));
    }
    let ages = expect.ages
        || expect
            .sections
            .iter()
            .flatten()
            .flatten()
            .any(RecordPattern::ages);
    Ok(if ages {
        without_ttls(&answer)
    } else {
        hex_of_octets(&octets[2..])
    })
}

fn complaints(expect: &Expect, asked: &Asked, answer: &Answer, octets: &[u8]) -> Vec<String> {
    let mut wrong = must_hold_always(expect, asked, answer);
    if let Some((rcode, flags)) = expect.header {
        let is = (answer.rcode, answer.flags & !QR);
        if is != (rcode, flags) {
            wrong.push(format!(
                "{} [{}] was expected",
                rcode_name(rcode),
                flag_words(flags)
            ));
        }
    }
    if expect.size_octets.is_some_and(|size| size != octets.len()) {
        wrong.push(format!("it has {} octets", octets.len()));
    }
    if expect
        .octets
        .as_ref()
        .is_some_and(|expected| expected.as_slice() != &octets[2..])
    {
        wrong.push(format!(
            "its octets after the ID are {}",
            hex_of_octets(&octets[2..])
        ));
    }
    for (place, name) in ["answer", "authority", "additional"]
        .into_iter()
        .enumerate()
    {
        wrong.extend(
            expect.sections[place]
                .iter()
                .filter_map(|wanted| differs(name, wanted, &answer.sections[place])),
        );
    }
    wrong.extend(opt_differs(&expect.opt, answer));
    wrong
}

/// Invariant I2: ID, question with its case, opcode; and it is a response.
fn must_hold_always(expect: &Expect, asked: &Asked, answer: &Answer) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut hold = |holds: bool, text: &str| {
        if !holds {
            wrong.push(text.to_owned());
        }
    };
    hold(answer.flags & QR != 0, "QR is not set");
    hold(
        answer.id.to_be_bytes() == asked.octets[..2],
        "it has another ID",
    );
    if asked.octets.len() < HEADER_OCTETS {
        return wrong;
    }
    hold(
        answer.opcode == asked.octets[2] >> 3 & 15,
        "it has another opcode",
    );
    if expect.without_question {
        hold(answer.question.is_empty(), "it has a question section");
    } else if let Ok(question) = question_of(&asked.octets) {
        hold(
            answer.question == question,
            "its question is not the query's, octet by octet",
        );
    }
    wrong
}

fn differs(section: &str, wanted: &[RecordPattern], records: &[Record]) -> Option<String> {
    let same = wanted.len() == records.len()
        && wanted
            .iter()
            .zip(records)
            .all(|(one, other)| one.matches(other));
    let list: Vec<String> = wanted.iter().map(RecordPattern::to_string).collect();
    (!same).then(|| format!("its {section} section should hold [{}]", list.join(" | ")))
}

fn opt_differs(wanted: &OptPattern, answer: &Answer) -> Option<String> {
    match (wanted, &answer.opt) {
        (OptPattern::Any, _) | (OptPattern::Absent, None) => None,
        (OptPattern::Absent, Some(_)) => Some("it has an OPT record".to_owned()),
        (OptPattern::Is { .. }, None) => Some("it has no OPT record".to_owned()),
        (
            OptPattern::Is {
                size_octets,
                dnssec_ok,
                options,
            },
            Some(opt),
        ) => {
            let same = (opt.size_octets, opt.dnssec_ok, &opt.options)
                == (*size_octets, *dnssec_ok, options);
            (!same || opt.version != 0).then(|| format!("its OPT is {opt:?}"))
        }
    }
}

fn describe(answer: &Answer) -> String {
    let records: Vec<String> = answer
        .sections
        .iter()
        .flatten()
        .map(Record::to_string)
        .collect();
    format!("{}: [{}]", answer.summary(), records.join(" | "))
}

fn without_ttls(answer: &Answer) -> String {
    let record = |record: &Record| {
        let owner = hex_of_octets(&record.owner);
        format!(
            "{owner} {} {} {}",
            record.rtype,
            record.class,
            hex_of_octets(&record.data)
        )
    };
    let records: Vec<String> = answer.sections.iter().flatten().map(record).collect();
    format!(
        "{} {}: {}",
        answer.summary(),
        hex_of_octets(&answer.question),
        records.join(" | ")
    )
}
