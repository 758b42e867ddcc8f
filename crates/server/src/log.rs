//! Log lines in dnsdist's shapes (its manual, "Structured logging dictionary"). Never called on the packet path.
//!
//! | shape | where | a line |
//! | --- | --- | --- |
//! | structured, the default | standard error | `msg="Up" subsystem="backend" level="0" prio="Notice" ts="2026-11-21T18:45:00+0000" address="192.0.2.2:53"` |
//! | JSON | standard error | `{"address": "192.0.2.2:53", "level": "0", "msg": "Up", "priority": "5", …}` |
//! | plain | standard output | `Up (address 192.0.2.2:53)`, with `--log-timestamps` `Nov 21 18:45:00 ` before it |
//! | journal | systemd's journal, or as structured where there is none | the same keys in capitals |
//!
//! Structured and plain lines go to syslog too, unless `--disable-syslog` is given.
//!
//! ```text
//! log::info!("Listening"; address = address, xdp = mode);      the same words every time, what differs in fields
//! log::warn!("queue {number} of {device} is not served: {error}");
//! ```

mod sinks;

pub use sinks::Facility;

use std::borrow::Cow;
use std::fmt::{Display, Write as _};
use std::io::Write as _;
use std::path::PathBuf;
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

/// How lines look, and where they go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    pub shape: Shape,
    pub times: Times,
    /// `levelPrefix`: the key of the priority in structured lines.
    pub priority_key: Cow<'static, str>,
    /// `setInstanceFromServerID`: structured lines say whose they are.
    pub instance: Option<String>,
    /// `--log-timestamps`: plain lines begin with their time.
    pub timestamps: bool,
    /// `-v`, `setVerbose(true)`.
    pub verbose: bool,
    pub outlets: Outlets,
}

/// Where lines go beside standard output and error.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outlets {
    /// `None`: `--disable-syslog`.
    pub syslog: Option<Facility>,
    /// `setVerboseLogDestination`: what only `-v` says goes there, and nowhere else.
    pub verbose_file: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// `--structured-logging false`.
    Plain,
    /// `--structured-logging-backend default`.
    Structured,
    /// `--structured-logging-backend json`.
    Json,
    /// `--structured-logging-backend systemd-journal`.
    Journal,
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
        priority_key: Cow::Borrowed("prio"),
        instance: None,
        timestamps: false,
        verbose: false,
        outlets: Outlets {
            syslog: None,
            verbose_file: None,
        },
    };
}

static SETTINGS: RwLock<Settings> = RwLock::new(Settings::DEFAULT);

/// From now on lines look so; a file that they go to is opened anew, for it may have been moved away.
pub fn set(settings: Settings) {
    sinks::reopen(&settings);
    *SETTINGS.write().unwrap_or_else(PoisonError::into_inner) = settings;
}

pub fn settings() -> Settings {
    let settings = SETTINGS.read().unwrap_or_else(PoisonError::into_inner);
    settings.clone()
}

/// A key and its value.
pub type Field<'f> = (&'f str, &'f dyn Display);

/// Writes one line. The macros of this module find `subsystem` by themselves.
pub fn write(priority: Priority, subsystem: &str, message: &str, fields: &[Field<'_>]) {
    let settings = settings();
    if priority == Priority::Debug && !settings.verbose {
        return;
    }
    let (milliseconds, mut fields) = (since_1970(), fields.to_vec());
    if let Some(instance) = settings
        .instance
        .as_ref()
        .filter(|_| settings.shape != Shape::Plain)
    {
        fields.push(("instance", instance));
    }
    let time = settings.times.text(milliseconds);
    let entry = Entry {
        priority,
        priority_key: &settings.priority_key,
        subsystem,
        message,
        fields: &fields,
        time: &time,
    };
    if settings.shape == Shape::Journal
        && sinks::to_journal(priority, subsystem, message, &fields, &time)
    {
        return;
    }
    let line = match settings.shape {
        Shape::Plain => plain(message, &fields),
        Shape::Structured | Shape::Journal => entry.structured(),
        Shape::Json => entry.json(),
    };
    let stamp = match settings.shape {
        Shape::Plain if settings.timestamps => month_and_day(milliseconds / 1_000),
        _ => String::new(),
    };
    if priority == Priority::Debug && sinks::to_verbose_file(&settings, &format!("{stamp}{line}")) {
        return;
    }
    sinks::to_syslog(&settings, priority, &line);
    let line = format!("{stamp}{line}");
    // Whoever closed our standard output or error does not want to read this.
    let _ = match settings.shape {
        Shape::Plain => std::io::stdout().lock().write_all(line.as_bytes()),
        _ => std::io::stderr().lock().write_all(line.as_bytes()),
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

    /// syslog's severity.
    fn number(self) -> u8 {
        match self {
            Priority::Error => 3,
            Priority::Warning => 4,
            Priority::Notice => 5,
            Priority::Info => 6,
            Priority::Debug => 7,
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

/// A line with keys and values.
struct Entry<'e> {
    priority: Priority,
    priority_key: &'e str,
    subsystem: &'e str,
    message: &'e str,
    fields: &'e [Field<'e>],
    time: &'e str,
}

impl Entry<'_> {
    fn structured(&self) -> String {
        let mut line = String::new();
        quoted(&mut line, "msg", self.message);
        quoted(&mut line, "subsystem", self.subsystem);
        quoted(&mut line, "level", LEVEL);
        quoted(&mut line, self.priority_key, self.priority.word());
        quoted(&mut line, "ts", self.time);
        for (key, value) in self.fields {
            quoted(&mut line, key, &value.to_string());
        }
        line.push('\n');
        line
    }

    /// Keys in the order of the alphabet, every value a string: as dnsdist's JSON has them.
    fn json(&self) -> String {
        let mut pairs = vec![
            ("level", LEVEL.to_owned()),
            ("msg", self.message.to_owned()),
            ("priority", self.priority.number().to_string()),
            ("subsystem", self.subsystem.to_owned()),
            ("ts", self.time.to_owned()),
        ];
        pairs.extend(
            self.fields
                .iter()
                .map(|(key, value)| (*key, value.to_string())),
        );
        pairs.sort_by_key(|(key, _)| *key);
        let pairs: Vec<String> = pairs
            .iter()
            .map(|(key, value)| format!("{}: {}", json_string(key), json_string(value)))
            .collect();
        format!("{{{}}}\n", pairs.join(", "))
    }
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

/// The same in words: `Sat Nov 21 2026 18:45:00 UTC`.
pub fn utc_in_words(time: SystemTime) -> String {
    // 1 January 1970 was a Thursday.
    const WEEKDAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (days, of_day) = (since.as_secs() / 86_400, since.as_secs() % 86_400);
    let (year, month, day) = civil(days);
    let (weekday, month) = (WEEKDAYS[(days % 7) as usize], MONTHS[month as usize - 1]);
    let (hour, minute, second) = (of_day / 3_600, of_day / 60 % 60, of_day % 60);
    format!("{weekday} {month} {day:02} {year} {hour:02}:{minute:02}:{second:02} UTC")
}

const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];

fn iso8601(seconds: u64) -> String {
    let (days, of_day) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = civil(days);
    let (hour, minute, second) = (of_day / 3_600, of_day / 60 % 60, of_day % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}+0000")
}

/// `Nov 21 18:45:00 `, as syslog writes times; always UTC.
fn month_and_day(seconds: u64) -> String {
    let (days, of_day) = (seconds / 86_400, seconds % 86_400);
    let (_, month, day) = civil(days);
    let month = MONTHS[month as usize - 1];
    let (hour, minute, second) = (of_day / 3_600, of_day / 60 % 60, of_day % 60);
    format!("{month} {day:02} {hour:02}:{minute:02}:{second:02} ")
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

    fn entry<'e>(message: &'e str, fields: &'e [Field<'e>], time: &'e str) -> Entry<'e> {
        Entry {
            priority: Priority::Info,
            priority_key: "prio",
            subsystem: "setup",
            message,
            fields,
            time,
        }
    }

    #[test]
    fn a_structured_line_is_as_in_the_manual() {
        let fields: [Field<'_>; 2] = [
            ("frontend.address", &"127.0.0.1:8053"),
            ("network.send_buffer_size", &4_194_304),
        ];
        let mut entry = entry(
            "Raised send buffer size",
            &fields,
            "2025-12-29T16:16:17+0000",
        );
        let expected = "msg=\"Raised send buffer size\" subsystem=\"setup\" level=\"0\" prio=\"Info\" \
             ts=\"2025-12-29T16:16:17+0000\" frontend.address=\"127.0.0.1:8053\" \
             network.send_buffer_size=\"4194304\"\n";
        assert_eq!(entry.structured(), expected);
        entry.priority_key = "severity";
        assert_eq!(entry.structured(), expected.replace("prio=", "severity="));
    }

    #[test]
    fn plain_lines_may_begin_with_their_time() {
        assert_eq!(month_and_day(1_795_286_700), "Nov 21 18:45:00 ");
        assert_eq!(month_and_day(0), "Jan 01 00:00:00 ");
        for (seconds, expected) in [
            (0, "Thu Jan 01 1970 00:00:00 UTC"),
            (1_487_763_104, "Wed Feb 22 2017 11:31:44 UTC"),
            (1_795_286_700, "Sat Nov 21 2026 18:45:00 UTC"),
        ] {
            let time = UNIX_EPOCH + std::time::Duration::from_secs(seconds);
            assert_eq!(utc_in_words(time), expected);
        }
    }

    #[test]
    fn a_value_cannot_end_its_quotes_or_its_line() {
        let mut line = String::new();
        quoted(&mut line, "error", "a \"b\" \\ c\nd");
        assert_eq!(line, r#"error="a \"b\" \\ c\nd""#);
    }

    #[test]
    fn json_begins_as_the_reference_says() {
        assert_eq!(
            entry("Configuration OK", &[("path", &"/etc/x")], "1").json(),
            "{\"level\": \"0\", \"msg\": \"Configuration OK\", \"path\": \"/etc/x\", \"priority\": \"6\", \
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
