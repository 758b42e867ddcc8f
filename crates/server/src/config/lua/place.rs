//! File and line in error messages.

use crate::config::place::Place;
use mlua::chunk::ChunkMode;
use mlua::{Error, Lua};

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
    let source = frame.source().source?.into_owned();
    Some(Place::line_of(file_name(&source), Some(line)))
}

/// Lua marks the name of a file with `@`; `=` marks a name that is none, such as the console's.
fn file_name(source: &str) -> &str {
    source.trim_start_matches(['@', '='])
}

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
        return format!(
            "{text}: neither dnsdist nor millrace has '{name}', and no line before this one defines it"
        );
    }
    if let Some(name) = quoted_in(&text, "attempt to call method '") {
        return format!("{text}: millrace has no method '{name}' yet, or it is a slip of the pen");
    }
    text
}

/// The innermost message, without mlua's words around it and without the trace.
pub(super) fn text_of(error: &Error) -> String {
    let text = match error {
        Error::CallbackError { cause, .. } => return text_of(cause),
        Error::RuntimeError(text)
        | Error::SyntaxError { message: text, .. }
        | Error::MemoryError(text) => text.clone(),
        Error::BadArgument { pos, cause, .. } => format!("argument {pos}: {}", text_of(cause)),
        Error::FromLuaConversionError { from, to, message } => {
            conversion(from, to, message.as_deref())
        }
        other => other.to_string(),
    };
    let end = text.find("\nstack traceback:").unwrap_or(text.len());
    text[..end].to_owned()
}

fn conversion(from: &str, to: &str, message: Option<&str>) -> String {
    let wanted = match to {
        "String" | "string" | "&str" => "a string",
        "bool" => "true or false",
        "table" | "Table" => "a table",
        _ => message.unwrap_or(to),
    };
    format!("{wanted} expected, got {from}")
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
    let tells_line = text
        .split(": ")
        .next()
        .and_then(|place| place.rsplit_once(':'))
        .is_some_and(|(_, line)| line.parse::<u32>().is_ok());
    if tells_line {
        text
    } else {
        format!("{path}: {text}")
    }
}

/// The name in Lua's "attempt to call global 'x' (a nil value)".
fn quoted_in<'t>(text: &'t str, before: &str) -> Option<&'t str> {
    let (_, rest) = text.split_once(before)?;
    rest.strip_suffix("' (a nil value)")
}
