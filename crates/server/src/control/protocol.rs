//! What is said over the control socket: one JSON line a request, one JSON line a reply, then the connection ends.
//!
//! ```text
//!  > {"command":"stats"}
//!  < {"result":{"queries":12,"responses":11, …}}
//!  > {"command":"reload"}
//!  < {"error":"/etc/dnsdist/dnsdist.conf:3: addLocl: no such function"}
//! ```

use crate::local::BackupOrder;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Where the instance listens unless `--control` says otherwise.
pub const DEFAULT_PATH: &str = "/run/millrace/control";

/// The longest request, its line feed included, in bytes.
pub const REQUEST_MAX: usize = 65_536;

/// The longest reply, in bytes: what there is to say of a million zones takes less than half.
pub const REPLY_MAX: u64 = 1 << 30;

/// How long a request may take to come, and a reply to be read.
pub const TRANSFER: Duration = Duration::from_secs(5);

/// How long the process of a restart may take to read its configuration and zones.
pub const READY_WITHIN: Duration = Duration::from_secs(55);

/// How long it may take to get the queues, while kernel sockets serve.
pub const SERVING_WITHIN: Duration = Duration::from_secs(10);

/// What else a restart takes: the process is started, workers close their queues, and time is looked at once a second.
const RESTARTING: Duration = Duration::from_secs(10);

/// How long a client waits for a reply: longer than a restart can take, so that it hears why there is none. A reload of a large
/// configuration takes seconds.
pub const REPLY_WITHIN: Duration = READY_WITHIN
    .saturating_add(SERVING_WITHIN)
    .saturating_add(RESTARTING);

/// What can be asked of a running instance; each is a command of the program by the same words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "command")]
pub enum Request {
    /// The text of `--version`.
    #[serde(rename = "version")]
    Version,
    /// All statistics by name.
    #[serde(rename = "stats")]
    Stats,
    /// Reads the configuration anew; the lines to print.
    #[serde(rename = "reload")]
    Reload,
    /// A new process of the program on the disk takes over; the lines to print.
    #[serde(rename = "restart")]
    Restart,
    /// [`crate::network::status::Status`].
    #[serde(rename = "xdp status")]
    XdpStatus,
    /// What would happen to a query; the lines to print.
    #[serde(rename = "explain")]
    Explain(ExplainRequest),
    /// What AF_XDP receives and sends; the reply is followed by a pcapng stream that ends with the connection.
    #[serde(rename = "mirror")]
    Mirror(MirrorRequest),
    /// One [`crate::local::ZoneStatus`] each, of these zones or of all; the same of the others.
    #[serde(rename = "zone status")]
    ZoneStatus {
        #[serde(default)]
        zones: Vec<String>,
    },
    /// Begins to read files that have changed, and to ask primaries; one [`crate::local::Begun`] each.
    #[serde(rename = "zone reload")]
    ZoneReload {
        #[serde(default)]
        zones: Vec<String>,
    },
    /// Begins to ask primaries.
    #[serde(rename = "zone refresh")]
    ZoneRefresh {
        #[serde(default)]
        zones: Vec<String>,
    },
    /// Begins to transfer whole zones, whatever their serial.
    #[serde(rename = "zone retransfer")]
    ZoneRetransfer {
        #[serde(default)]
        zones: Vec<String>,
    },
    /// Begins to tell secondaries.
    #[serde(rename = "zone notify")]
    ZoneNotify {
        #[serde(default)]
        zones: Vec<String>,
    },
    /// Zones stay as they are, until they are thawed.
    #[serde(rename = "zone freeze")]
    ZoneFreeze {
        #[serde(default)]
        zones: Vec<String>,
    },
    #[serde(rename = "zone thaw")]
    ZoneThaw {
        #[serde(default)]
        zones: Vec<String>,
    },
    /// Zones are transferred to nobody, until that is ended.
    #[serde(rename = "zone xfr-freeze")]
    ZoneXfrFreeze {
        #[serde(default)]
        zones: Vec<String>,
    },
    #[serde(rename = "zone xfr-thaw")]
    ZoneXfrThaw {
        #[serde(default)]
        zones: Vec<String>,
    },
    /// Begins to write zones into their files, or copies into the folder `to`.
    #[serde(rename = "zone flush")]
    ZoneFlush {
        #[serde(default)]
        zones: Vec<String>,
        #[serde(default)]
        to: Option<PathBuf>,
    },
    /// Begins to copy zones into a folder.
    #[serde(rename = "zone backup")]
    ZoneBackup {
        #[serde(default)]
        zones: Vec<String>,
        backup: BackupOrder,
    },
    /// Begins to restore zones from there.
    #[serde(rename = "zone restore")]
    ZoneRestore {
        #[serde(default)]
        zones: Vec<String>,
        backup: BackupOrder,
    },
    /// Has a secondary forget a zone.
    #[serde(rename = "zone purge")]
    ZonePurge { zone: String },
    /// Records that are served; the reply is followed by a line each, and by an empty one.
    #[serde(rename = "zone read")]
    ZoneRead(ReadRequest),
}

/// Which records are wanted: see [`crate::local::Reading`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadRequest {
    pub zone: String,
    /// Of one owner, `@` being the zone's own name.
    #[serde(default)]
    pub name: Option<String>,
    /// A type's name, or TYPE28.
    #[serde(default)]
    pub rtype: Option<String>,
}

/// A query that nobody has sent: see [`crate::pipeline::explain`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExplainRequest {
    /// In presentation format.
    pub name: String,
    /// A name (AAAA) or TYPE28.
    pub qtype: String,
    pub from: IpAddr,
    #[serde(default)]
    pub to: Option<SocketAddr>,
    #[serde(default)]
    pub tcp: bool,
}

/// Which packets are wanted, and how many at most: see [`super::mirror`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MirrorRequest {
    pub interface: String,
    /// Words of [`super::mirror::filter`].
    #[serde(default)]
    pub filter: Vec<String>,
    /// Packets a second.
    pub rate: u32,
}

/// The commands, as an error names them.
pub const COMMANDS: &str = "version, stats, reload, restart, xdp status, explain, mirror, zone status, zone reload, zone refresh, zone retransfer, zone notify, zone freeze, zone thaw, zone xfr-freeze, zone xfr-thaw, zone flush, zone backup, zone restore, zone purge, zone read";

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Reply {
    Result(Value),
    /// Why not, for a human.
    Error(String),
}

impl Reply {
    /// A reply with what `result` is in JSON.
    pub fn of(result: impl Serialize) -> Reply {
        match serde_json::to_value(result) {
            Ok(value) => Reply::Result(value),
            Err(error) => Reply::Error(format!("the result cannot be written as JSON: {error}")),
        }
    }

    /// The line that is sent.
    pub fn line(&self) -> String {
        let mut line = serde_json::to_string(self).expect("a value of JSON's is JSON");
        line.push('\n');
        line
    }
}

/// The request in a line.
///
/// # Errors
/// What is wrong with it.
pub fn parse(line: &str) -> Result<Request, String> {
    let value: Value = serde_json::from_str(line)
        .map_err(|error| format!("the request is not JSON on one line: {error}"))?;
    let command = value
        .get("command")
        .and_then(Value::as_str)
        .map(str::to_owned);
    serde_json::from_value(value).map_err(|error| match command {
        Some(command) if COMMANDS.split(", ").any(|known| known == command) => {
            format!("{command}: {error}")
        }
        Some(command) => format!("unknown command '{command}': one of {COMMANDS} expected"),
        None => {
            format!(r#"a request looks like {{"command":"stats"}}: one of {COMMANDS} expected"#)
        }
    })
}

/// How an error names the socket.
pub(super) fn named(path: &Path) -> String {
    format!("control socket {}", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_the_words_of_the_command_line() {
        for (line, request) in [
            (r#"{"command":"version"}"#, Request::Version),
            (r#"{"command":"stats"}"#, Request::Stats),
            (r#"{"command":"reload"}"#, Request::Reload),
            (r#"{"command":"restart"}"#, Request::Restart),
            (r#"{"command":"xdp status"}"#, Request::XdpStatus),
        ] {
            assert_eq!(serde_json::to_string(&request).unwrap(), line);
            assert_eq!(parse(line), Ok(request));
        }
    }

    #[test]
    fn whoever_asks_for_a_restart_hears_that_it_has_taken_too_long() {
        let given_up = READY_WITHIN + SERVING_WITHIN;
        assert!(REPLY_WITHIN > given_up, "{REPLY_WITHIN:?}");
    }

    #[test]
    fn bad_requests_are_told_what_would_be_right() {
        assert!(
            parse("stats")
                .unwrap_err()
                .starts_with("the request is not JSON on one line: ")
        );
        let expected = format!("unknown command 'begin': one of {COMMANDS} expected");
        assert_eq!(parse(r#"{"command":"begin"}"#).unwrap_err(), expected);
        let form =
            format!(r#"a request looks like {{"command":"stats"}}: one of {COMMANDS} expected"#);
        assert_eq!(parse("[1]").unwrap_err(), form);
    }

    #[test]
    fn zones_are_named_or_all_are_meant() {
        let zones = vec!["a.".to_owned()];
        for (line, request) in [
            (
                r#"{"command":"zone status"}"#,
                Request::ZoneStatus { zones: Vec::new() },
            ),
            (
                r#"{"command":"zone reload","zones":["a."]}"#,
                Request::ZoneReload { zones },
            ),
        ] {
            assert_eq!(parse(line), Ok(request));
        }
        // Nobody forgets all zones by leaving a word out.
        let reason = parse(r#"{"command":"zone purge"}"#).unwrap_err();
        assert_eq!(reason, "zone purge: missing field `zone`");
    }

    #[test]
    fn what_is_known_is_what_an_error_names() {
        for command in COMMANDS.split(", ") {
            let line = format!(r#"{{"command":"{command}"}}"#);
            let reason = parse(&line).err().unwrap_or_default();
            assert!(!reason.contains("unknown"), "{reason}");
        }
    }
}
