//! File and line in error messages.

use crate::config::place::Place;
use mlua::chunk::ChunkMode;
use mlua::{Error, Lua, MultiValue, Value};

/// The line of Lua that called the running function of ours.
pub(super) fn caller(lua: &Lua) -> Place {
    // Level 0 is our function itself. One that Lua called by a tail call, or from C, has no line: the next one has.
    let found = (1..=MAXIMUM_DEPTH).find_map(|level| lua.inspect_stack(level, line_of)?);
    found.unwrap_or_else(|| Place::line_of("configuration", None))
}

/// How far up the stack a line is looked for.
const MAXIMUM_DEPTH: usize = 10;

fn line_of(frame: &mlua::debug::Debug<'_>) -> Option<Place> {
    let line = frame.current_line()?;
    let source = frame.source();
    let marked = source.source?;
    // Lua marks the name of a file with `@`; `=` marks a name that is none, such as the console's.
    let name = match marked.strip_prefix(['@', '=']) {
        Some(AROUND_CALLS) => return None,
        Some(name) if name.starts_with(AROUND_ATTRIBUTES) => return None,
        Some(name) => name,
        // The text that `loadstring` was given: its beginning is enough.
        None => source.short_src.as_deref()?,
    };
    Some(Place::line_of(name, Some(line)))
}

/// The name of what [`super::caught`] puts around Lua's own functions: nobody's file.
pub(super) const AROUND_CALLS: &str = "[millrace]";

/// How the names of what mlua puts around attributes begin: nobody's file either.
const AROUND_ATTRIBUTES: &str = "__mlua_";

/// `error` of our function `name` as one that tells where it was called.
pub(super) fn located(lua: &Lua, name: &str, error: &Error) -> Error {
    let text = match error {
        // It names the function itself.
        Error::ExternalError(error) => error.to_string(),
        error => format!("{name}: {}", text_of(error)),
    };
    Error::RuntimeError(format!("{}: {text}", caller(lua)))
}

/// Runs the text of the file `path`.
pub(super) fn run(lua: &Lua, path: &str, text: &[u8]) -> mlua::Result<()> {
    lua.load(text)
        .set_name(format!("@{path}"))
        .set_mode(ChunkMode::Text)
        .exec()
}

/// What people should read of an error of the file `path`: `FILE:LINE: text`, without the trace of the stack.
pub(super) fn readable(error: &Error, path: &str) -> String {
    let text = with_place(with_whole_path(text_of(error), path), path);
    if let Some(name) = quoted_in(&text, "attempt to call global '") {
        if let Some((_, now)) = FORMER.iter().find(|(former, _)| *former == name) {
            return format!("{text}: dnsdist has no '{name}' any more: {now} takes its place");
        }
        return format!(
            "{text}: neither dnsdist nor millrace has '{name}', and no line before this one defines it"
        );
    }
    if quoted_in(&text, "attempt to index global '") == Some("dnsdist") {
        return format!(
            "{text}: dnsdist has no such table any more: its constants are DNSQType.ANY, DNSRCode.REFUSED and their like"
        );
    }
    if text.ends_with("attempt to index a nil value") {
        return format!(
            "{text}: getServer, getPool(name):getCache and their like return nil for what is not there"
        );
    }
    if let Some(name) = quoted_in(&text, "attempt to call method '") {
        return format!("{text}: millrace has no method '{name}' yet, or it is a slip of the pen");
    }
    text
}

/// Functions that dnsdist had in its first versions and many files still have, and what its manual says instead.
const FORMER: [(&str, &str); 12] = [
    (
        "addAnyTCRule",
        "addAction(AndRule({QTypeRule(DNSQType.ANY), TCPRule(false)}), TCAction())",
    ),
    ("addDelay", "addAction(selector, DelayAction(milliseconds))"),
    (
        "addDisableValidationRule",
        "addAction(selector, SetDisableValidationAction())",
    ),
    ("addDomainBlock", "addAction(name, DropAction())"),
    (
        "addDomainCNAMESpoof",
        "addAction(name, SpoofCNAMEAction(target))",
    ),
    ("addDomainSpoof", "addAction(name, SpoofAction(addresses))"),
    ("addLuaAction", "addAction(selector, LuaAction(function))"),
    (
        "addLuaResponseAction",
        "addResponseAction(selector, LuaResponseAction(function))",
    ),
    (
        "addNoRecurseRule",
        "addAction(selector, SetNoRecurseAction())",
    ),
    ("addPoolRule", "addAction(selector, PoolAction(pool))"),
    ("addQPSLimit", "addAction(selector, QPSAction(limit))"),
    (
        "addQPSPoolRule",
        "addAction(selector, QPSPoolAction(limit, pool))",
    ),
];

/// The innermost message, without mlua's words around it and without the trace; what a method of ours says, with the line
/// that called it and its name.
pub(super) fn text_of(error: &Error) -> String {
    let text = match error {
        Error::CallbackError { traceback, cause } => return called(text_of(cause), traceback),
        Error::RuntimeError(text)
        | Error::SyntaxError { message: text, .. }
        | Error::MemoryError(text) => text.clone(),
        Error::BadArgument {
            to,
            pos,
            name,
            cause,
        } => argument(to.as_deref(), *pos, name.as_deref(), &text_of(cause)),
        Error::FromLuaConversionError { from, to, message } => {
            conversion(from, to, message.as_deref())
        }
        other => other.to_string(),
    };
    let end = text.find("\nstack traceback:").unwrap_or(text.len());
    let (text, traceback) = text.split_at(end);
    not_set(text, traceback).unwrap_or_else(|| text.to_owned())
}

/// What mlua says, without a line, where an attribute is set that is not there or can only be read.
fn not_set(text: &str, traceback: &str) -> Option<String> {
    let name = text.strip_prefix("attempt to set an unknown field '")?;
    let name = name.strip_suffix('\'')?;
    // The function that says so is mlua's, and was called by the line that sets the attribute.
    let (_, callers) = traceback.split_once("'__newindex'")?;
    let text =
        format!("'{name}' cannot be set: there is no such attribute, or it can only be read");
    Some(called(text, callers))
}

/// `text` of an error that Lua got from code of ours: the functions of the dialect say where they were called ([`located`]), of
/// a method the trace does.
fn called(text: String, traceback: &str) -> String {
    if tells_line(&text) {
        return text;
    }
    let mut method = None;
    for line in traceback.lines().map(str::trim_start) {
        // Ours: `[C]: in function 'addMask'`.
        if let Some(ours) = line.strip_prefix("[C]:") {
            method = method.or_else(|| ours.split('\'').nth(1));
            continue;
        }
        if line.starts_with(AROUND_CALLS) || line.starts_with(AROUND_ATTRIBUTES) {
            continue;
        }
        // Lua's: `test.conf:3: in main chunk`.
        let Some((place, _)) = line.split_once(": in ") else {
            continue;
        };
        // Attributes have names of Lua's and mlua's: `__newindex`, `field_setter`.
        let method = method.filter(|name| !name.starts_with("__") && *name != "field_setter");
        return match method.filter(|name| !text.starts_with(&format!("{name}: "))) {
            Some(method) => format!("{place}: {method}: {text}"),
            None => format!("{place}: {text}"),
        };
    }
    text
}

/// What is wrong with an argument. Of a method mlua knows class and name, and counts its object as the first argument.
fn argument(method: Option<&str>, place: usize, name: Option<&str>, text: &str) -> String {
    let Some((_, method)) = method.and_then(|method| method.rsplit_once('.')) else {
        return format!("argument {place}: {text}");
    };
    match name {
        Some("self") => format!("{method}: is a method, called with ':' of its object: {text}"),
        _ => format!("{method}: argument {}: {text}", place.saturating_sub(1)),
    }
}

fn conversion(from: &str, to: &str, message: Option<&str>) -> String {
    let wanted = match to {
        "String" | "string" | "&str" => "a string",
        "bool" => "true or false",
        "table" | "Table" => "a table",
        "function" => "a function",
        // A list of something.
        _ if message == Some("expected table") => "a table",
        _ => numbers(to).or(message).unwrap_or(to),
    };
    // Which one, mlua does not say: see with_number.
    let got = match message {
        Some(OUT_OF_RANGE) => "one out of this range",
        _ if from == "integer" => "number",
        _ => from,
    };
    format!("{wanted} expected, got {got}")
}

/// What mlua says of a number that its type does not have.
const OUT_OF_RANGE: &str = "out of range";

/// Numbers among the first arguments of a function of ours, by their places.
pub(super) type Numbers = [Option<f64>; 4];

pub(super) fn numbers_among(arguments: &MultiValue) -> Numbers {
    std::array::from_fn(|place| match arguments.get(place)? {
        Value::Integer(number) => Some(*number as f64),
        Value::Number(number) => Some(*number),
        _ => None,
    })
}

/// `error` with the number that it is about, where that is out of range.
pub(super) fn with_number(error: Error, given: &Numbers) -> Error {
    let Error::BadArgument { pos, cause, .. } = &error else {
        return error;
    };
    let Error::FromLuaConversionError { to, message, .. } = &**cause else {
        return error;
    };
    let is_out = message.as_deref() == Some(OUT_OF_RANGE);
    let wanted = numbers(to).filter(|_| is_out);
    let number = given.get(pos.saturating_sub(1)).copied().flatten();
    match wanted.zip(number) {
        Some((wanted, number)) => {
            Error::RuntimeError(format!("argument {pos}: {wanted} expected, got {number}"))
        }
        None => error,
    }
}

/// The numbers of a type of Rust's.
fn numbers(of: &str) -> Option<&'static str> {
    Some(match of {
        "u8" => "a number from 0 to 255",
        "u16" => "a number from 0 to 65535",
        "u32" => "a number from 0 to 4294967295",
        "u64" | "usize" => "a number from 0",
        "i32" => "a number from -2147483648 to 2147483647",
        "i8" | "i16" | "i64" | "isize" | "f32" | "f64" => "a number",
        _ => return None,
    })
}

/// Lua shortens long paths to `...` and their end.
fn with_whole_path(text: String, path: &str) -> String {
    let Some((shown, rest)) = text
        .strip_prefix("...")
        .and_then(|shortened| shortened.split_once(':'))
    else {
        return text;
    };
    if path.ends_with(shown) {
        format!("{path}:{rest}")
    } else {
        text
    }
}

/// What tells no line, such as `error({})`, tells the file.
fn with_place(text: String, path: &str) -> String {
    if tells_line(&text) {
        text
    } else {
        format!("{path}: {text}")
    }
}

fn tells_line(text: &str) -> bool {
    let place = text.split(": ").next();
    place
        .and_then(|place| place.rsplit_once(':'))
        .is_some_and(|(_, line)| line.parse::<u32>().is_ok())
}

/// The name in Lua's "attempt to call global 'x' (a nil value)".
fn quoted_in<'t>(text: &'t str, before: &str) -> Option<&'t str> {
    let (_, rest) = text.split_once(before)?;
    rest.strip_suffix("' (a nil value)")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_tells_line_and_method() {
        let of = |method: &str| {
            format!("stack traceback:\n\t[C]: in function '{method}'\n\ttest.conf:3: in main chunk")
        };
        for (text, trace, expected) in [
            ("no", of("addMask"), "test.conf:3: addMask: no"),
            ("addMask: no", of("addMask"), "test.conf:3: addMask: no"),
            ("test.conf:1: f: no", of("f"), "test.conf:1: f: no"),
            ("no", of("__newindex"), "test.conf:3: no"),
            ("no", "stack traceback:\n\t[C]: at 0x5".to_owned(), "no"),
            (
                "no",
                "[C]: in function 'pcall'\n\t[millrace]:9: in function 'pcall'\n\ttest.conf:3: in main chunk".to_owned(),
                "test.conf:3: pcall: no",
            ),
            (
                "skipCache: no",
                "[C]: in function 'field_setter'\n\t__mlua_newindex:8: in function '__newindex'\n\ttest.conf:3: in main chunk".to_owned(),
                "test.conf:3: skipCache: no",
            ),
        ] {
            assert_eq!(called(text.to_owned(), &trace), expected);
        }
    }
}
