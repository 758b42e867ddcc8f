//! Recent queries and responses: grepq, and the rings as tables.

use super::super::objects::list_of;
use super::super::options::{Options, shown};
use super::super::{define, wrong};
use super::{rings, say, serving, top};
use crate::clock::Now;
use crate::pipeline::acl::{Netmask, Netmasks};
use crate::pipeline::query::Protocol;
use crate::pipeline::rings::Entry;
use mlua::{FromLua, Lua, Table, Value};
use std::collections::HashMap;
use std::fs::File;
use std::io::Write;
use wire::codes::qtype;
use wire::name::NameBuf;

pub(super) fn register(lua: &Lua) -> mlua::Result<()> {
    top::register(lua)?;
    define(
        lua,
        "grepq",
        |lua, (selectors, most, options): (Selectors, Option<i64>, Option<Table>)| {
            let mut options = Options::new(lua, "grepq", options);
            let file: Option<String> = options.get("outputFile")?;
            options.finish()?;
            // 0 and what is below are no limit, as in dnsdist.
            let most = most.filter(|most| *most > 0).map(|most| most as usize);
            let lines = grep(lua, &selectors, most.unwrap_or(usize::MAX));
            match file {
                Some(path) => write(&path, &lines),
                None => {
                    lines.iter().for_each(|line| say(lua, line));
                    Ok(())
                }
            }
        },
    )?;
    define(lua, "getRespRing", |lua, ()| {
        let rows = rings::responses(lua).into_iter().map(|entry| {
            let row = lua.create_table()?;
            row.raw_set("qname", entry.name.to_string())?;
            row.raw_set("rcode", entry.flags & 15)?;
            Ok(row)
        });
        rows.collect::<mlua::Result<Vec<Table>>>()
    })?;
    define(lua, "getResponseRing", |lua, ()| {
        let rows = rings::responses(lua).into_iter();
        rows.map(|entry| response(lua, &entry))
            .collect::<mlua::Result<Vec<Table>>>()
    })
}

fn response(lua: &Lua, entry: &Entry) -> mlua::Result<Table> {
    let row = lua.create_table()?;
    row.raw_set("name", entry.name.to_string())?;
    row.raw_set("qtype", entry.qtype)?;
    row.raw_set("rcode", entry.flags & 15)?;
    let latency = entry
        .answered
        .map_or(0, |answered| answered.latency_microseconds);
    row.raw_set("usec", latency)?;
    Ok(row)
}

// ---------------------------------------------------------------------------------------------- grepq

/// What an entry has to be like.
#[derive(Default)]
struct Selectors {
    clients: Vec<Netmasks>,
    /// The name or one above it.
    names: Vec<NameBuf>,
    /// Responses that took longer, in microseconds.
    slower_than: Option<u32>,
}

impl FromLua for Selectors {
    fn from_lua(value: Value, _: &Lua) -> mlua::Result<Selectors> {
        let mut selectors = Selectors::default();
        match value {
            Value::Table(table) => {
                for text in list_of::<String>(&table)? {
                    selectors.add(&text)?;
                }
            }
            Value::String(text) => selectors.add(&text.to_string_lossy())?,
            other => return Err(unclear(&shown(&other))),
        }
        Ok(selectors)
    }
}

fn unclear(text: &str) -> mlua::Error {
    wrong(format!(
        "'{text}' selects nothing: a netmask (192.0.2.0/24), a name (example.com), a time (100ms), or a table of these expected"
    ))
}

/// A time in milliseconds (`100`, `0.5`) in microseconds.
fn microseconds(text: &str) -> Option<u32> {
    let is_number = |octet: u8| octet.is_ascii_digit() || octet == b'.';
    let text = Some(text.trim()).filter(|text| text.bytes().all(is_number));
    // A float that is too large for the type becomes its largest number.
    Some((text?.parse::<f64>().ok()? * 1_000.0) as u32)
}

impl Selectors {
    fn add(&mut self, text: &str) -> mlua::Result<()> {
        // `grepq("")` is what people write for all there is: every name is below the root.
        let text = if text.is_empty() { "." } else { text };
        if let Some(limit) = text.strip_suffix("ms").and_then(microseconds) {
            // All must match: of several times the longest counts.
            self.slower_than = self.slower_than.max(Some(limit));
        } else if let Ok(netmask) = text.parse::<Netmask>() {
            self.clients.push([netmask].into_iter().collect());
        } else {
            self.names.push(text.parse().map_err(|_| unclear(text))?);
        }
        Ok(())
    }

    fn match_entry(&self, entry: &Entry) -> bool {
        let name = entry.name.as_name();
        let is_slower = |limit: u32| {
            let latency = entry.answered.map(|answered| answered.latency_microseconds);
            latency.is_some_and(|latency| latency > limit)
        };
        self.clients
            .iter()
            .all(|clients| clients.contains(entry.client.ip()))
            && self
                .names
                .iter()
                .all(|suffix| name.is_within(&suffix.as_name()))
            && self.slower_than.is_none_or(is_slower)
    }

    /// The last `most` of the entries that match.
    fn last(&self, mut entries: Vec<Entry>, most: usize) -> Vec<Entry> {
        entries.retain(|entry| self.match_entry(entry));
        entries.split_off(entries.len().saturating_sub(most))
    }
}

/// dnsdist's columns; queries, responses and timeouts by their time.
fn grep(lua: &Lua, selectors: &Selectors, most: usize) -> Vec<String> {
    let mut entries = selectors.last(rings::queries(lua), most);
    entries.extend(selectors.last(rings::outcomes(lua), most));
    entries.sort_by_key(|entry| entry.time);
    let servers = server_names(lua);
    let now = Now::read();
    let head = row(
        ["Time", "Client", "Protocol", "Server", "ID"],
        ["Name", "Type", "Lat.", "TC RD AA Rcode"],
    );
    let lines = entries.iter().map(|entry| line(entry, now, &servers));
    [head].into_iter().chain(lines).collect()
}

fn row(first: [&str; 5], second: [&str; 4]) -> String {
    let [time, client, protocol, server, id] = first;
    let [name, qtype, latency, rest] = second;
    let row = format!(
        "{time:<7} {client:<47} {protocol:<12} {server:<12} {id:<5} {name:<25} {qtype:<5} {latency:<6} {rest}"
    );
    row.trim_end().to_owned()
}

fn line(entry: &Entry, now: Now, servers: &HashMap<u32, String>) -> String {
    let time = format!("-{:.1}", now.since(entry.time).as_secs_f64());
    let protocol = match entry.protocol {
        Protocol::Udp => "DoUDP",
        Protocol::Tcp => "DoTCP",
    };
    let server = entry.answered.map(|answered| answered.server.0);
    let server = server.and_then(|server| servers.get(&server));
    let latency = match entry.answered {
        None => String::new(),
        Some(_) if entry.is_timeout() => "T.O".to_owned(),
        Some(answered) => format!("{:.1}", f64::from(answered.latency_microseconds) / 1_000.0),
    };
    let flag = |mask: u16, word: &'static str| match entry.flags & mask {
        0 => "  ",
        _ => word,
    };
    let outcome = match entry.answered {
        None => "Question".to_owned(),
        Some(_) if entry.is_timeout() => String::new(),
        Some(_) => outcome(entry),
    };
    // RFC 1035 section 4.1.1: AA, TC and RD in the header's second word.
    let (tc, rd, aa) = (flag(0x0200, "TC"), flag(0x0100, "RD"), flag(0x0400, "AA"));
    row(
        [
            &time,
            &entry.client.to_string(),
            protocol,
            server.map_or("", String::as_str),
            &entry.id.to_string(),
        ],
        [
            &entry.name.to_string(),
            &type_name(entry.qtype),
            &latency,
            &format!("{tc} {rd} {aa} {outcome}"),
        ],
    )
}

fn type_name(number: u16) -> String {
    let name = qtype::name(number).map(str::to_owned);
    name.unwrap_or_else(|| format!("TYPE{number}"))
}

/// What a response says: its response code, and of a good one how much it answers.
fn outcome(entry: &Entry) -> String {
    let words = rcode_words(entry.flags & 15);
    match entry.flags & 15 {
        0 => format!("{words}. {} answers", entry.answers),
        _ => words,
    }
}

/// The registry's words (IANA, "DNS RCODEs") as dnsdist shows them.
fn rcode_words(rcode: u16) -> String {
    let words = match rcode {
        0 => "No Error",
        1 => "Form Error",
        2 => "Server Failure",
        3 => "Non-Existent domain",
        4 => "Not Implemented",
        5 => "Query Refused",
        other => return format!("Err#{other}"),
    };
    words.to_owned()
}

/// Addresses by server number.
fn server_names(lua: &Lua) -> HashMap<u32, String> {
    let config = serving(lua).map(|metrics| metrics.config());
    let servers = config.iter().flat_map(|config| &config.servers);
    servers
        .map(|server| (server.number.0, server.options.address.to_string()))
        .collect()
}

/// Into a new file: what is there is not overwritten.
fn write(path: &str, lines: &[String]) -> mlua::Result<()> {
    let written = File::create_new(path)
        .and_then(|mut file| lines.iter().try_for_each(|line| writeln!(file, "{line}")));
    written.map_err(|error| wrong(format!("{path}: cannot be written: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipeline::rings::Answered;

    fn entry(client: &str, name: &str, latency_milliseconds: Option<u32>) -> Entry {
        Entry {
            time: Now(5_000_000_000),
            client: client.parse().unwrap(),
            protocol: Protocol::Udp,
            name: name.parse().unwrap(),
            qtype: qtype::A,
            id: 4_711,
            flags: 0x0100,
            size: 40,
            answers: 2,
            answered: latency_milliseconds.map(|milliseconds| Answered {
                server: crate::backend::server::ServerId(3),
                latency_microseconds: milliseconds * 1_000,
            }),
        }
    }

    #[test]
    fn selectors_are_addresses_names_and_times_and_all_must_match() {
        let query = entry("192.0.2.7:1", "www.example.com.", None);
        let slow = entry("192.0.2.7:1", "www.example.com.", Some(150));
        for (texts, matches) in [
            (&["192.0.2.0/24"][..], [true, true]),
            (&["192.0.2.8"], [false, false]),
            (&["example.com"], [true, true]),
            (&["xample.com"], [false, false]),
            (&[""], [true, true]),
            (&["100ms"], [false, true]),
            (&["150ms"], [false, false]),
            (&["150ms", "100ms"], [false, false]),
            (&["149.9 ms"], [false, true]),
            (&["150.5ms"], [false, false]),
            (&["99999999999ms"], [false, false]),
            (&["1e2ms"], [false, false]),
            (&["example.com", "192.0.2.7", "100ms"], [false, true]),
            (&["example.com", "example.net"], [false, false]),
        ] {
            let mut selectors = Selectors::default();
            texts.iter().for_each(|text| selectors.add(text).unwrap());
            let found = [&query, &slow].map(|entry| selectors.match_entry(entry));
            assert_eq!(found, matches, "{texts:?}");
        }
        assert!(Selectors::default().add("no name at all: ..").is_err());
    }

    /// dnsdist 1.7 shows them among the responses, with these letters for the time.
    #[test]
    fn what_nobody_answered_in_time_is_shown_and_is_slow() {
        let mut late = entry("192.0.2.7:4242", "www.example.com.", Some(0));
        late.answered = late.answered.map(|answered| Answered {
            latency_microseconds: u32::MAX,
            ..answered
        });
        let servers = HashMap::from([(3, "192.0.2.53:53".to_owned())]);
        assert_eq!(
            line(&late, Now(6_500_000_000), &servers),
            "-1.5    192.0.2.7:4242                                  DoUDP        192.0.2.53:53 4711  www.example.com.          A     T.O       RD"
        );
        let mut selectors = Selectors::default();
        selectors.add("5000ms").unwrap();
        assert!(selectors.match_entry(&late));
    }

    #[test]
    fn lines_have_dnsdists_columns() {
        let servers = HashMap::from([(3, "192.0.2.53:53".to_owned())]);
        let query = entry("192.0.2.7:4242", "www.example.com.", None);
        assert_eq!(
            line(&query, Now(6_500_000_000), &servers),
            "-1.5    192.0.2.7:4242                                  DoUDP                     4711  www.example.com.          A               RD    Question"
        );
        let mut answer = entry("192.0.2.7:4242", "www.example.com.", Some(2));
        assert_eq!(
            line(&answer, Now(6_500_000_000), &servers),
            "-1.5    192.0.2.7:4242                                  DoUDP        192.0.2.53:53 4711  www.example.com.          A     2.0       RD    No Error. 2 answers"
        );
        answer.flags |= 3;
        assert_eq!(
            line(&answer, Now(6_500_000_000), &servers),
            "-1.5    192.0.2.7:4242                                  DoUDP        192.0.2.53:53 4711  www.example.com.          A     2.0       RD    Non-Existent domain"
        );
    }
}
