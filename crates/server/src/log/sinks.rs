//! Where lines go beside standard output and error: syslog, systemd's journal, a file for what `-v` says.
//!
//! Each is opened when it is first needed, and again after it was gone: a line that cannot be delivered is dropped, for
//! nobody waits for a log.

use super::{Field, Priority, Settings};
use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// syslog(3): where the system's logger listens.
const SYSLOG: &str = "/dev/log";

/// systemd's "Native Journal Protocol".
const JOURNAL: &str = "/run/systemd/journal/socket";

/// The open ones.
#[derive(Debug)]
struct Sinks {
    syslog: Option<UnixDatagram>,
    journal: Option<UnixDatagram>,
    verbose: Option<(PathBuf, File)>,
}

static SINKS: Mutex<Sinks> = Mutex::new(Sinks {
    syslog: None,
    journal: None,
    verbose: None,
});

fn sinks() -> MutexGuard<'static, Sinks> {
    SINKS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sends a line to syslog, as far as the settings want it there.
pub(super) fn to_syslog(settings: &Settings, priority: Priority, line: &str) {
    if let Some(facility) = settings.outlets.syslog {
        let message = syslog_message(facility, priority, std::process::id(), line);
        send(&mut sinks().syslog, SYSLOG, message.as_bytes());
    }
}

/// RFC 3164, sections 4.1.1 and 4.1.3; the local logger adds time and host.
fn syslog_message(facility: Facility, priority: Priority, process: u32, line: &str) -> String {
    let value = facility.0 * 8 + priority.number();
    format!("<{value}>millrace[{process}]: {}", line.trim_end())
}

/// Sends an entry to the journal; whether it went out.
pub(super) fn to_journal(
    priority: Priority,
    subsystem: &str,
    message: &str,
    fields: &[Field<'_>],
    time: &str,
) -> bool {
    let entry = journal_entry(priority, subsystem, message, fields, time);
    send(&mut sinks().journal, JOURNAL, &entry)
}

/// A line that only `-v` asks for, where a file of its own takes those; whether it does.
pub(super) fn to_verbose_file(settings: &Settings, line: &str) -> bool {
    let Some(path) = &settings.outlets.verbose_file else {
        return false;
    };
    let mut sinks = sinks();
    if sinks.verbose.as_ref().is_none_or(|(open, _)| open != path) {
        sinks.verbose = open_verbose(path).ok().map(|file| (path.clone(), file));
    }
    let Some((_, file)) = &mut sinks.verbose else {
        return false;
    };
    file.write_all(line.as_bytes()).is_ok()
}

/// Opens the file of verbose lines anew where it stays the same. The open one goes on where that fails: it may have been
/// opened with more privileges than there are now.
pub(super) fn reopen(settings: &Settings) {
    let mut sinks = sinks();
    let Some((path, file)) = &mut sinks.verbose else {
        return;
    };
    if settings.outlets.verbose_file.as_ref() == Some(&*path)
        && let Ok(anew) = open_verbose(path)
    {
        *file = anew;
    }
}

/// Opens the file of setVerboseLogDestination: lines are added to what is there.
fn open_verbose(path: &Path) -> std::io::Result<File> {
    OpenOptions::new().append(true).create(true).open(path)
}

fn send(sink: &mut Option<UnixDatagram>, path: &str, message: &[u8]) -> bool {
    if let Some(socket) = sink
        && socket.send(message).is_ok()
    {
        return true;
    }
    // It was never there, or whoever listens has started anew.
    *sink = connected(path);
    sink.as_ref()
        .is_some_and(|socket| socket.send(message).is_ok())
}

fn connected(path: &str) -> Option<UnixDatagram> {
    let socket = UnixDatagram::unbound().ok()?;
    socket.set_nonblocking(true).ok()?;
    socket.connect(path).ok()?;
    Some(socket)
}

// -------------------------------------------------------------------------------------------------------- facilities

/// A facility of syslog, by its number without the shift: 3 is LOG_DAEMON.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Facility(u8);

impl Facility {
    pub const DAEMON: Facility = Facility(3);

    /// In the order of their numbers (<syslog.h>).
    const NAMES: [&'static str; 24] = [
        "kern", "user", "mail", "daemon", "auth", "syslog", "lpr", "news", "uucp", "cron",
        "authpriv", "ftp", "ntp", "audit", "alert", "clock", "local0", "local1", "local2",
        "local3", "local4", "local5", "local6", "local7",
    ];

    /// `daemon`, `LOCAL0`, `LOG_LOCAL0`.
    pub fn by_name(name: &str) -> Option<Facility> {
        let name = name.to_ascii_lowercase();
        let name = name.strip_prefix("log_").unwrap_or(&name);
        let number = Facility::NAMES.iter().position(|known| *known == name);
        number.map(|number| Facility(number as u8))
    }

    /// "raw value as defined in syslog.h": shifted by three bits; small ones are taken as they are.
    pub fn by_number(number: u32) -> Option<Facility> {
        let number = if number >= 24 { number / 8 } else { number };
        (number < 24).then_some(Facility(number as u8))
    }
}

// ----------------------------------------------------------------------------------------------------------- journal

/// Keys that mean something to the journal ("The systemd-journal backend" of dnsdist's manual).
const SPECIAL: [&str; 19] = [
    "message",
    "message_id",
    "priority",
    "code_file",
    "code_line",
    "code_func",
    "errno",
    "invocation_id",
    "user_invocation_id",
    "syslog_facility",
    "syslog_identifier",
    "syslog_pid",
    "syslog_timestamp",
    "syslog_raw",
    "documentation",
    "tid",
    "unit",
    "user_unit",
    "object_pid",
];

fn journal_entry(
    priority: Priority,
    subsystem: &str,
    message: &str,
    fields: &[Field<'_>],
    time: &str,
) -> Vec<u8> {
    let mut entry = Vec::new();
    let number = priority.number().to_string();
    for (key, value) in [
        ("MESSAGE", message),
        ("PRIORITY", &number),
        ("SUBSYSTEM", subsystem),
        ("LEVEL", super::LEVEL),
        ("TIMESTAMP", time),
    ] {
        journal_field(&mut entry, key, value);
    }
    for (key, value) in fields {
        journal_field(&mut entry, &journal_key(key), &value.to_string());
    }
    entry
}

/// Capital letters, digits and underscores are what the journal takes.
fn journal_key(key: &str) -> String {
    let mut name = String::new();
    if SPECIAL.contains(&key) {
        name.push_str("PDNS_");
    }
    for character in key.chars() {
        let usual = character.is_ascii_alphanumeric();
        // A string takes any formatting.
        let _ = name.write_char(if usual {
            character.to_ascii_uppercase()
        } else {
            '_'
        });
    }
    name
}

/// `KEY=value` and a line feed; a value of several lines has its length as 64 bits, little end first, before it.
fn journal_field(entry: &mut Vec<u8>, key: &str, value: &str) {
    entry.extend(key.as_bytes());
    if value.contains('\n') {
        entry.push(b'\n');
        entry.extend((value.len() as u64).to_le_bytes());
    } else {
        entry.push(b'=');
    }
    entry.extend(value.as_bytes());
    entry.push(b'\n');
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::Outlets;

    #[test]
    fn facilities_have_names_and_numbers() {
        for (found, expected) in [
            (Facility::by_name("DAEMON"), Some(Facility::DAEMON)),
            (Facility::by_name("log_local7"), Some(Facility(23))),
            (Facility::by_name("nonsense"), None),
            (Facility::by_number(3), Some(Facility::DAEMON)),
            (Facility::by_number(16 << 3), Some(Facility(16))),
            (Facility::by_number(24 << 3), None),
        ] {
            assert_eq!(found, expected);
        }
    }

    #[test]
    fn a_message_to_syslog_begins_with_facility_and_severity() {
        let message = syslog_message(Facility::DAEMON, Priority::Warning, 42, "no way\n");
        assert_eq!(message, "<28>millrace[42]: no way");
    }

    #[test]
    fn the_journal_gets_keys_in_capitals_and_lengths_of_lines() {
        let fields: [Field<'_>; 3] = [
            ("backend.address", &"192.0.2.2:53"),
            ("errno", &5),
            ("text", &"a\nb"),
        ];
        let entry = journal_entry(Priority::Info, "backend", "Up", &fields, "1");
        let expected = b"MESSAGE=Up\nPRIORITY=6\nSUBSYSTEM=backend\nLEVEL=0\nTIMESTAMP=1\n\
              BACKEND_ADDRESS=192.0.2.2:53\nPDNS_ERRNO=5\nTEXT\n\x03\0\0\0\0\0\0\0a\nb\n";
        assert_eq!(entry, expected);
    }

    #[test]
    fn datagrams_reach_whoever_listens_and_again_after_a_restart() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        let path = path.to_str().unwrap();
        let mut sink = None;
        assert!(!send(&mut sink, path, b"lost"));
        for _ in 0..2 {
            let listener = UnixDatagram::bind(path).unwrap();
            assert!(send(&mut sink, path, b"a line"));
            let mut buffer = [0; 16];
            assert_eq!(listener.recv(&mut buffer).unwrap(), 6);
            std::fs::remove_file(path).unwrap();
        }
    }

    #[test]
    fn what_is_verbose_goes_to_its_file_only() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("verbose.log");
        let mut settings = Settings::DEFAULT;
        assert!(!to_verbose_file(&settings, "a\n"));
        settings.outlets = Outlets {
            verbose_file: Some(path.clone()),
            ..Outlets::default()
        };
        assert!(to_verbose_file(&settings, "a\n") && to_verbose_file(&settings, "b\n"));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "a\nb\n");
        // As logrotate does, and then a reload.
        std::fs::rename(&path, directory.path().join("verbose.log.1")).unwrap();
        reopen(&settings);
        assert!(to_verbose_file(&settings, "c\n"));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "c\n");
        settings.outlets.verbose_file = Some(directory.path().join("none/verbose.log"));
        assert!(
            !to_verbose_file(&settings, "d\n"),
            "standard output has it then"
        );
    }
}
