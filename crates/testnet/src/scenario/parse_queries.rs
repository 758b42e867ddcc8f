//! Lines `ask` and `send` of `[steps]`: queries, and the words that both sides use for EDNS.

use std::net::{IpAddr, SocketAddr};

use super::model::{Ask, Flood, Payload, Transport};
use super::parse_backend::transport;
use super::parse_steps::counter;
use super::words::{Words, parse};
use crate::dns::{Edns, FLAGS, Query, octets_of_hex};
use crate::frame::Shape;
use crate::lab::{CLIENT_V4, CLIENT_V6, SERVER_V4, SERVER_V6};
use crate::{Failure, Outcome};

/// `ask [LABEL:] NAME TYPE …`
pub(super) fn ask(words: &mut Words<'_>) -> Outcome<Ask> {
    let label = words.label().map(str::to_owned);
    let mut query = Query::new(words.next("a name")?, words.next("a type")?)?;
    for (word, bit) in FLAGS {
        query.flags |= if words.flag(word) { bit } else { 0 };
        query.flags &= if words.flag(&format!("-{word}")) {
            !bit
        } else {
            !0
        };
    }
    if let Some(opcode) = words.number("opcode")? {
        query.flags = (query.flags & !0x7800) | opcode << 11;
    }
    if let Some(class) = words.value("class") {
        query.set_class(class)?;
    }
    query.edns = edns(words)?;
    query.trailing = words
        .value("trailing")
        .map(octets_of_hex)
        .transpose()?
        .unwrap_or_default();
    let id = words.number("id")?;
    let counts = words.value("counts").map(counts).transpose()?;
    way(words, label, Payload::Query { query, id, counts })
}

/// `send [LABEL:] HEX …`
pub(super) fn send(words: &mut Words<'_>) -> Outcome<Ask> {
    let label = words.label().map(str::to_owned);
    let octets = octets(words)?;
    way(words, label, Payload::Octets(octets))
}

/// `flood HEX … times=N`, and `until NAME{label="value"} +>=1` behind it
pub(super) fn flood(words: &mut Words<'_>) -> Outcome<Flood> {
    let octets = octets(words)?;
    let server = if words.flag("v6") {
        SERVER_V6
    } else {
        SERVER_V4
    };
    let times = parse("times", words.value("times").unwrap_or("1"))?;
    let until = match words.flag("until") {
        true => Some(counter(words)?),
        false => None,
    };
    Ok(Flood {
        octets,
        destination: SocketAddr::new(server, 53),
        times,
        until,
    })
}

/// All words of hexadecimal digits, each repeated where `*N` follows it: `4d01_0100 00*28`.
fn octets(words: &mut Words<'_>) -> Outcome<Vec<u8>> {
    let is_hex = |word: &str| {
        word.bytes()
            .all(|octet| octet.is_ascii_hexdigit() || octet == b'_' || octet == b'*')
    };
    let pieces = words.take_all(is_hex).into_iter().map(repeated);
    Ok(pieces.collect::<Outcome<Vec<_>>>()?.concat())
}

/// Where a message goes and how.
fn way(words: &mut Words<'_>, label: Option<String>, payload: Payload) -> Outcome<Ask> {
    let source: Option<IpAddr> = words.parsed("from")?;
    let v6 = words.flag("v6") || source.is_some_and(|source| source.is_ipv6());
    let server = if v6 { SERVER_V6 } else { SERVER_V4 };
    let destination = match words.value("to") {
        Some(text) => text
            .parse::<SocketAddr>()
            .or_else(|_| Ok(SocketAddr::new(parse("to", text)?, 53)))?,
        None => SocketAddr::new(server, 53),
    };
    let client = if destination.is_ipv6() {
        CLIENT_V6
    } else {
        CLIENT_V4
    };
    let source = source.unwrap_or(client);
    if source.is_ipv6() != destination.is_ipv6() {
        return Err(Failure::new(format!(
            "{source} cannot send to {destination}"
        )));
    }
    Ok(Ask {
        label,
        payload,
        transport: transport(words).unwrap_or(Transport::Udp),
        source,
        source_port: words.number("port")?.unwrap_or(0),
        destination,
        via: words.value("via").map(str::to_owned),
        kernel: words.flag("kernel"),
        split: words.flag("split"),
        front: front(words)?,
        frame: Shape::from_words(words)?,
    })
}

/// Takes `front=HEX+HEX*N`: what stands in front of the message.
fn front(words: &mut Words<'_>) -> Outcome<Vec<u8>> {
    let text = words.value("front").unwrap_or_default();
    let pieces = text.split('+').map(repeated);
    Ok(pieces.collect::<Outcome<Vec<_>>>()?.concat())
}

/// Takes the words that make an OPT record: `edns size= version= do option=CODE:HEX opts=`.
pub(super) fn edns(words: &mut Words<'_>) -> Outcome<Option<Edns>> {
    let mut edns = Edns::default();
    let mut there = words.flag("edns");
    if let Some(size) = words.number("size")? {
        (edns.size_octets, there) = (size, true);
    }
    if let Some(version) = words.parsed("version")? {
        (edns.version, there) = (version, true);
    }
    if words.flag("do") {
        (edns.dnssec_ok, there) = (true, true);
    }
    if let Some(count) = words.number("opts")? {
        (edns.count, there) = (count, true);
    }
    while let Some(option) = words.value("option") {
        let (code, octets) = option
            .split_once(':')
            .ok_or_else(|| Failure::new("option=CODE:HEX"))?;
        edns.options
            .push((parse("option", code)?, repeated(octets)?));
        there = true;
    }
    Ok(there.then_some(edns))
}

/// Octets by their digits, repeated where `*N` follows: `00*1600`.
fn repeated(text: &str) -> Outcome<Vec<u8>> {
    match text.split_once('*') {
        Some((octets, times)) => Ok(octets_of_hex(octets)?.repeat(parse("option", times)?)),
        None => octets_of_hex(text),
    }
}

fn counts(text: &str) -> Outcome<[u16; 4]> {
    let numbers: Vec<u16> = text
        .split('/')
        .map(|count| parse("counts", count))
        .collect::<Outcome<_>>()?;
    numbers
        .try_into()
        .map_err(|_| Failure::new("counts=QUESTIONS/ANSWERS/AUTHORITY/ADDITIONAL"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(text: &str) -> Outcome<Ask> {
        let mut words = Words::of(text);
        let ask = ask(&mut words)?;
        words.end().map(|()| ask)
    }

    #[test]
    fn a_query_takes_its_words() {
        let text = "q1: www.example.com. A v6 tcp -rd cd do size=4096 option=10:0102 opcode=4 id=7 via=c1 split";
        let ask = asked(text).expect("good words");
        let Payload::Query { query, id, .. } = &ask.payload else {
            panic!("not a query")
        };
        assert_eq!((query.flags, *id), (0x2010, Some(7)));
        let edns = query.edns.as_ref().expect("it has EDNS");
        assert_eq!(
            (edns.size_octets, edns.dnssec_ok, edns.options.len()),
            (4096, true, 1)
        );
        assert_eq!((ask.source, ask.destination.port()), (CLIENT_V6, 53));
        assert!(ask.split && ask.transport == Transport::Tcp && ask.via.as_deref() == Some("c1"));
    }

    #[test]
    fn a_flood_ends_after_its_times_or_goes_on_until_a_counter_says_so() {
        let flooded = |text: &str| {
            let mut words = Words::of(text);
            let flood = flood(&mut words)?;
            words.end().map(|()| flood)
        };
        let once = flooded("4c01_0100 00*28 times=20").expect("good words");
        assert_eq!(
            (once.octets.len(), once.times, once.until.is_none()),
            (32, 20, true)
        );
        let text = "4c01 times=5 v6 until millrace_x{outcome=\"slipped\"} +>=900 within=30s";
        let until = flooded(text).expect("good words");
        assert_eq!((until.destination.ip(), until.times), (SERVER_V6, 5));
        let counter = until.until.expect("it has one");
        assert_eq!(counter.name, "millrace_x");
        assert_eq!((counter.value, counter.within.as_secs()), (900.0, 30));
        assert!(flooded("4c01 times=5 until").is_err());
        assert!(flooded("4c01 times=5 millrace_x +>=900").is_err());
    }

    #[test]
    fn the_client_has_the_family_of_its_destination() {
        let ask = asked("a. A to=[2001:db8::2]:5353").expect("good words");
        assert_eq!((ask.source, ask.destination.port()), (CLIENT_V6, 5353));
        assert!(asked("a. A v6 from=192.0.2.100").is_err());
    }
}
