//! Log lines in dnsdist's shapes (its manual, "Structured logging dictionary"). Never called on the packet path.
//!
//! | shape | where | a line |
//! | --- | --- | --- |
//! | structured, the default | standard error | `msg="Up" subsystem="backend" level="0" prio="Notice" ts="2026-11-21T18:45:00+0000" address="192.0.2.2:53"` |
//! | JSON | standard error | `{"address": "192.0.2.2:53", "level": "0", "msg": "Up", "prio": "Notice", …}` |
//! | plain | standard output | `Up (address 192.0.2.2:53)` |
//!
//! ```text
//! log::info!("Listening"; address = address, xdp = mode);      the same words every time, what differs in fields
//! log::warn!("queue {number} of {device} is not served: {error}");
//! ```

use std::fmt::{Display, Write as _};
use std::io::Write as _;
use std::sync::{PoisonError, RwLock};
use std::time::{SystemTime, UNIX_EPOCH};

/// How bad it is: syslog's severities and dnsdist's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Priority {
    Error,
    Warning,
    Notice,
    Info,
    /// Only with `-v` or `setVerbose(true)`.
    Debug,
}

/// How lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    pub shape: Shape,
    pub times: Times,
    /// `-v`, `setVerbose(true)`.
    pub verbose: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// `--structured-logging false`.
    Plain,
    /// `--structured-logging-backend default`.
    Structured,
    /// `--structured-logging-backend json`.
    Json,
}

/// `setStructuredLogging(true, {timeFormat=…})`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Times {
    /// `2026-11-21T18:45:00+0000`, always UTC.
    Iso8601,
    /// `1795286700.123`: seconds since 1970.
    Numeric,
}

impl Settings {
    pub const DEFAULT: Settings = Settings {
        shape: Shape::Structured,
        times: Times::Iso8601,
        verbose: false,
    };
}

static SETTINGS: RwLock<Settings> = RwLock::new(Settings::DEFAULT);

/// From now on lines look so.
pub fn set(settings: Settings) {
    *SETTINGS.write().unwrap_or_else(PoisonError::into_inner) = settings;
}

pub fn settings() -> Settings {
    *SETTINGS.read().unwrap_or_else(PoisonError::into_inner)
}

/// A key and its value.
pub type Field<'f> = (&'f str, &'f dyn Display);

/// Writes one line. The macros of this module find `subsystem` by themselves.
pub fn write(priority: Priority, subsystem: &str, message: &str, fields: &[Field<'_>]) {
    let settings = settings();
    if priority == Priority::Debug && !settings.verbose {
        return;
    }
    let time = since_1970();
    let line = match settings.shape {
        Shape::Plain => plain(message, fields),
        Shape::Structured => structured(
            priority,
            subsystem,
            message,
            fields,
            &settings.times.text(time),
        ),
        Shape::Json => json(
            priority,
            subsystem,
            message,
            fields,
            &settings.times.text(time),
        ),
    };
    // Whoever closed our standard output or error does not want to read this.
    let _ = match settings.shape {
        Shape::Plain => std::io::stdout().lock().write_all(line.as_bytes()),
        Shape::Structured | Shape::Json => std::io::stderr().lock().write_all(line.as_bytes()),
    };
}

/// The folder of the source that logs: `backend` for `millrace::backend::health`.
pub fn subsystem(module_path: &str) -> &str {
    let path = module_path
        .split_once("::")
        .map_or(module_path, |(_, path)| path);
    path.split("::").next().unwrap_or(path)
}

/// The part that all macros share.
#[macro_export]
macro_rules! log_line {
    ($priority:ident, $message:literal; $($key:ident = $value:expr),+ $(,)?) => {
        $crate::log::write(
            $crate::log::Priority::$priority,
            $crate::log::subsystem(module_path!()),
            $message,
            &[$((stringify!($key), &$value)),+],
        )
    };
    ($priority:ident, $($message:tt)+) => {
        $crate::log::write(
            $crate::log::Priority::$priority,
            $crate::log::subsystem(module_path!()),
            &format!($($message)+),
            &[],
        )
    };
}

/// `log::error!`: something does not work.
#[macro_export]
macro_rules! log_error { ($($line:tt)+) => { $crate::log_line!(Error, $($line)+) }; }

/// `log::warn!`: something works less well than it was asked to.
#[macro_export]
macro_rules! log_warn { ($($line:tt)+) => { $crate::log_line!(Warning, $($line)+) }; }

/// `log::notice!`: something changed that the operator wants to know.
#[macro_export]
macro_rules! log_notice { ($($line:tt)+) => { $crate::log_line!(Notice, $($line)+) }; }

/// `log::info!`: what was set up.
#[macro_export]
macro_rules! log_info { ($($line:tt)+) => { $crate::log_line!(Info, $($line)+) }; }

/// `log::verbose!`: with `-v` only.
#[macro_export]
macro_rules! log_verbose { ($($line:tt)+) => { $crate::log_line!(Debug, $($line)+) }; }

pub use crate::{
    log_error as error, log_info as info, log_notice as notice, log_verbose as verbose,
    log_warn as warn,
};

impl Priority {
    fn word(self) -> &'static str {
        match self {
            Priority::Error => "Error",
            Priority::Warning => "Warning",
            Priority::Notice => "Notice",
            Priority::Info => "Info",
            Priority::Debug => "Debug",
        }
    }
}

// ------------------------------------------------------------------------------------------------------------- shapes

fn plain(message: &str, fields: &[Field<'_>]) -> String {
    let mut line = message.to_owned();
    for (number, (key, value)) in fields.iter().enumerate() {
        let before = if number == 0 { " (" } else { ", " };
        let _ = write!(line, "{before}{key} {value}");
    }
    line.push_str(if fields.is_empty() { "\n" } else { ")\n" });
    line
}

/// The level is not in use by dnsdist: always 0.
const LEVEL: &str = "0";

fn structured(
    priority: Priority,
    subsystem: &str,
    message: &str,
    fields: &[Field<'_>],
    time: &str,
) -> String {
    let mut line = String::new();
    quoted(&mut line, "msg", message);
    quoted(&mut line, "subsystem", subsystem);
    quoted(&mut line, "level", LEVEL);
    quoted(&mut line, "prio", priority.word());
    quoted(&mut line, "ts", time);
    for (key, value) in fields {
        quoted(&mut line, key, &value.to_string());
    }
    line.push('\n');
    line
}

/// `key="value"`: quotes and backslashes get a backslash; a line break would begin another line, and does too.
fn quoted(line: &mut String, key: &str, value: &str) {
    if !line.is_empty() {
        line.push(' ');
    }
    line.push_str(key);
    line.push_str("=\"");
    for character in value.chars() {
        match character {
            '"' | '\\' => line.extend(['\\', character]),
            '\n' => line.push_str("\\n"),
            _ => line.push(character),
        }
    }
    line.push('"');
}

/// Keys in the order of the alphabet, every value a string: as dnsdist's JSON has them.
fn json(
    priority: Priority,
    subsystem: &str,
    message: &str,
    fields: &[Field<'_>],
    time: &str,
) -> String {
    let mut pairs = vec![
        ("level", LEVEL.to_owned()),
        ("msg", message.to_owned()),
        ("priority", priority.word().to_owned()),
        ("subsystem", subsystem.to_owned()),
        ("ts", time.to_owned()),
    ];
    pairs.extend(fields.iter().map(|(key, value)| (*key, value.to_string())));
    pairs.sort_by_key(|(key, _)| *key);
    let pairs: Vec<String> = pairs
        .iter()
        .map(|(key, value)| format!("{}: {}", json_string(key), json_string(value)))
        .collect();
    format!("{{{}}}\n", pairs.join(", "))
}

fn json_string(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

// -------------------------------------------------------------------------------------------------------------- times

/// Milliseconds since 1970; 0 before it.
fn since_1970() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_millis() as u64)
}

impl Times {
    fn text(self, milliseconds: u64) -> String {
        let (seconds, rest) = (milliseconds / 1_000, milliseconds % 1_000);
        match self {
            Times::Numeric => format!("{seconds}.{rest:03}"),
            Times::Iso8601 => iso8601(seconds),
        }
    }
}

/// A moment as log lines show it: `2026-11-21T18:45:00+0000`.
pub fn utc(time: SystemTime) -> String {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    iso8601(since.as_secs())
}

fn iso8601(seconds: u64) -> String {
    let (days, of_day) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = civil(days);
    let (hour, minute, second) = (of_day / 3_600, of_day / 60 % 60, of_day % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}+0000")
}

/// Year, month and day of a day since 1970, by counting the days of 400-year eras that begin on 1 March: so the leap
/// day is the last of its year.
fn civil(days_since_1970: u64) -> (u64, u64, u64) {
    /// From 1 March of year 0 to 1 January 1970.
    const DAYS_BEFORE_1970: u64 = 719_468;
    const DAYS_PER_ERA: u64 = 146_097;
    let days = days_since_1970 + DAYS_BEFORE_1970;
    let (era, day_of_era) = (days / DAYS_PER_ERA, days % DAYS_PER_ERA);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    // 153 days are five months of 31, 30, 31, 30, 31 days, as March to July and August to December are.
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 {
        month_from_march + 3
    } else {
        month_from_march - 9
    };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_structured_line_is_as_in_the_manual() {
        let line = structured(
            Priority::Info,
            "setup",
            "Raised send buffer size",
            &[
                ("frontend.address", &"127.0.0.1:8053"),
                ("network.send_buffer_size", &4_194_304),
            ],
            "2025-12-29T16:16:17+0000",
        );
        assert_eq!(
            line,
            "msg=\"Raised send buffer size\" subsystem=\"setup\" level=\"0\" prio=\"Info\" \
             ts=\"2025-12-29T16:16:17+0000\" frontend.address=\"127.0.0.1:8053\" \
             network.send_buffer_size=\"4194304\"\n"
        );
    }

    #[test]
    fn a_value_cannot_end_its_quotes_or_its_line() {
        let mut line = String::new();
        quoted(&mut line, "error", "a \"b\" \\ c\nd");
        assert_eq!(line, r#"error="a \"b\" \\ c\nd""#);
    }

    #[test]
    fn json_begins_as_the_reference_says() {
        let line = json(
            Priority::Info,
            "setup",
            "Configuration OK",
            &[("path", &"/etc/x")],
            "1",
        );
        assert_eq!(
            line,
            "{\"level\": \"0\", \"msg\": \"Configuration OK\", \"path\": \"/etc/x\", \"priority\": \"Info\", \
             \"subsystem\": \"setup\", \"ts\": \"1\"}\n"
        );
    }

    #[test]
    fn plain_lines_hold_their_fields() {
        assert_eq!(plain("Up", &[]), "Up\n");
        assert_eq!(plain("Up", &[("a", &1), ("b", &2)]), "Up (a 1, b 2)\n");
    }

    #[test]
    fn dates() {
        for (seconds, expected) in [
            (0, "1970-01-01T00:00:00+0000"),
            (951_782_400, "2000-02-29T00:00:00+0000"),
            (1_709_251_199, "2024-02-29T23:59:59+0000"),
            (1_795_286_700, "2026-11-21T18:45:00+0000"),
            (4_107_542_400, "2100-03-01T00:00:00+0000"),
        ] {
            assert_eq!(iso8601(seconds), expected);
        }
    }

    #[test]
    fn the_subsystem_is_the_folder() {
        assert_eq!(subsystem("millrace::backend::health"), "backend");
        assert_eq!(subsystem("millrace"), "millrace");
    }
}
