//! floodgate's readers on files of any octets: captured traffic, zone files, query files, what answers must say. Nothing
//! panics, what is written of queries is read again as so many, and an answer is compared with whatever is expected of it.

#![no_main]

use floodgate::expected::Expectations;
use floodgate::failure::Outcome;
use floodgate::queries::{Writer, capture, zone};
use floodgate::questions::{Style, text};
use libfuzzer_sys::fuzz_target;
use wire::message::{HEADER_LENGTH, parse_response};

/// The port whose queries are taken from captures.
const PORT: u16 = 53;

fuzz_target!(|octets: &[u8]| {
    let _ = written(|writer| capture::queries(octets, PORT, writer));
    asked(octets);
    compared(octets);
    let Ok(readable) = std::str::from_utf8(octets) else {
        return;
    };
    for origin in [None, Some("example.com.")] {
        let _ = written(|writer| zone::queries(readable, origin, writer));
    }
});

/// What `read` writes, if that goes well; it is read again.
fn written(read: impl Fn(&mut Writer<&mut Vec<u8>>) -> Outcome<()>) -> Outcome<()> {
    let mut lines = Vec::new();
    read(&mut Writer::new(&mut lines, false))?;
    let mut messages = Vec::new();
    read(&mut Writer::new(&mut messages, true))?;
    let questions = text::parse(&lines, Style::default()).expect("lines of our own");
    let ends = lines.iter().filter(|octet| **octet == b'\n');
    assert_eq!(questions.len(), ends.count(), "a query a line");
    assert_eq!(
        questions.len(),
        count(&messages),
        "the same, in wire format"
    );
    Ok(())
}

/// Messages behind their lengths.
fn count(mut octets: &[u8]) -> usize {
    let mut messages = 0;
    while let Some((length, behind)) = octets.split_first_chunk() {
        octets = &behind[usize::from(u16::from_be_bytes(*length))..];
        messages += 1;
    }
    messages
}

/// Queries of a text file are messages with the questions that they show.
fn asked(octets: &[u8]) {
    let Ok(questions) = text::parse(octets, Style::default()) else {
        return;
    };
    for number in 0..questions.len() {
        let question = questions.get(number);
        let end = HEADER_LENGTH + question.question.len();
        assert_eq!(&question.message[HEADER_LENGTH..end], question.question);
        assert_eq!(questions.get_summed(number).0, question.message);
    }
}

/// What stands before an empty line says what answers must say; what stands behind it is an answer to every question.
fn compared(octets: &[u8]) {
    let middle = octets.windows(2).position(|pair| pair == b"\n\n");
    let (front, answer) = octets.split_at(middle.unwrap_or(octets.len()));
    let Ok(front) = std::str::from_utf8(front) else {
        return;
    };
    let Ok(expectations) = Expectations::parse(front) else {
        return;
    };
    let lines: Vec<String> = front.lines().map(question_of).collect();
    let Ok(mut questions) = text::parse(lines.join("\n").as_bytes(), Style::default()) else {
        return;
    };
    let _ = questions.expect(&expectations);
    let mut answer = answer.get(2..).unwrap_or_default().to_vec();
    if let Some(flags) = answer.get_mut(2) {
        *flags |= 0x80;
    }
    let Ok(parts) = parse_response(&answer) else {
        return;
    };
    for number in 0..questions.len() {
        let question = questions.get(number);
        if let Some(expected) = question.expected {
            let _ = expected.is_met(&answer, &parts, question.question);
        }
    }
}

/// The first two words of a line: the name and the type.
fn question_of(line: &str) -> String {
    let words: Vec<&str> = line.split_whitespace().take(2).collect();
    words.join(" ")
}
