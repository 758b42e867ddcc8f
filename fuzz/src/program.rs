//! Configurations out of octets: calls of the dialect's functions and methods with arguments of every kind, one after the
//! other, each with the results of those before. No loops, nothing of Lua's own library: what is fuzzed is ours.

use crate::input::Input;
use std::fmt::Write;
use std::sync::LazyLock;

/// The functions of the dialect but those that read files.
static FUNCTIONS: LazyLock<Vec<&str>> = LazyLock::new(|| {
    words(include_str!(
        "../../crates/server/src/config/lua/dialect.txt"
    ))
    .filter(|name| {
        !["File", "include", "getResolvers", "load"]
            .iter()
            .any(|word| name.contains(word))
    })
    .collect()
});

static LISTS: LazyLock<[Vec<&str>; 3]> = LazyLock::new(|| {
    ["methods: ", "options: ", "texts: "].map(|list| {
        let file = include_str!("../fixtures/words.txt");
        let line = file.lines().find_map(|line| line.strip_prefix(list));
        line.into_iter().flat_map(str::split_whitespace).collect()
    })
});

/// Constants that arguments may be.
const CONSTANTS: [&str; 16] = [
    "DNSRCode.REFUSED",
    "DNSQType.ANY",
    "DNSClass.IN",
    "DNSOpcode.Query",
    "leastOutstanding",
    "roundrobin",
    "-1",
    "0/0",
    "1/0",
    "2^31",
    "2^32",
    "2^53",
    "-2^63",
    "1e308",
    "65535",
    "65536",
];

/// So many calls at most.
const CALLS: usize = 40;

/// How deep tables may lie in tables.
const DEPTH: usize = 3;

fn words(text: &'static str) -> impl Iterator<Item = &'static str> {
    text.lines()
        .filter(|line| !line.starts_with('#'))
        .flat_map(str::split_whitespace)
}

/// Reads calls until nothing is left. Each is tried: an error of one is no end of the others. One address is served anyway.
pub fn write(octets: &[u8]) -> String {
    let mut input = Input::new(octets);
    let mut program = String::from("local v = {} addLocal('192.0.2.1:53', {reusePort=true})\n");
    for number in 1..=CALLS {
        let Some(call) = call(&mut input, number) else {
            break;
        };
        // What writes to a String does not fail.
        let _ = writeln!(program, "pcall(function() v[{number}] = {call} end)");
    }
    program
}

fn call(input: &mut Input<'_>, number: usize) -> Option<String> {
    let choice = input.number()?;
    let count = usize::from(choice >> 13) % 5;
    let index = usize::from(choice & 0x0fff);
    let callee = if choice & 0x1000 != 0 {
        let methods = &LISTS[0];
        let object = usize::from(input.octet()?) % number;
        format!("v[{object}]:{}", methods[index % methods.len()])
    } else {
        FUNCTIONS[index % FUNCTIONS.len()].to_owned()
    };
    let arguments: Vec<String> = (0..count)
        .map(|_| argument(input, number, DEPTH).unwrap_or_else(|| "nil".to_owned()))
        .collect();
    Some(format!("{callee}({})", arguments.join(", ")))
}

fn argument(input: &mut Input<'_>, number: usize, depth: usize) -> Option<String> {
    let [_, options, texts] = &*LISTS;
    let kind = input.octet()?;
    let choice = usize::from(kind) / 10;
    Some(match kind % 10 {
        0 => ["nil", "true", "false"][choice % 3].to_owned(),
        1 => input.octet()?.to_string(),
        2 => input.number()?.to_string(),
        3 => CONSTANTS[choice % CONSTANTS.len()].to_owned(),
        4 => quoted(texts[usize::from(input.octet()?) % texts.len()].as_bytes()),
        5 => quoted(input.octets(choice * 4)),
        6 | 7 => format!("v[{}]", usize::from(input.octet()?) % number),
        _ if depth == 0 => "{}".to_owned(),
        8 => {
            let items = (0..choice % 6).map_while(|_| argument(input, number, depth - 1));
            format!("{{{}}}", items.collect::<Vec<_>>().join(", "))
        }
        _ => {
            let items = (0..choice % 6).map_while(|_| {
                let option = options[usize::from(input.octet()?) % options.len()];
                Some(format!("{option}={}", argument(input, number, depth - 1)?))
            });
            format!("{{{}}}", items.collect::<Vec<_>>().join(", "))
        }
    })
}

/// Any octets as a Lua string.
fn quoted(octets: &[u8]) -> String {
    let mut text = String::from('"');
    for octet in octets {
        match octet {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'.' | b':' | b'/' | b'-' => {
                text.push(char::from(*octet));
            }
            _ => {
                let _ = write!(text, "\\{octet:03}");
            }
        }
    }
    text.push('"');
    text
}
