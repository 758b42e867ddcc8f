//! Commands that ask the running instance and print its reply: `millrace reload`, `restart`, `stats`, `explain`, `xdp
//! status`. The words of `millrace zone` and `millrace mirror` are beside this.

use super::{complain, kept, put};
use crate::control::client::{self, ClientError};
use crate::control::protocol::Request;
use crate::network::status::Status;
use serde_json::Value;
use std::path::Path;
use std::process::ExitCode;

/// Asks the instance whose control socket is at `path`, and prints the result.
pub fn ask(path: &Path, request: &Request) -> ExitCode {
    match client::request(path, request) {
        Ok(result) => {
            put(text(request, &result));
            ExitCode::SUCCESS
        }
        Err(error) => {
            complain(error);
            ExitCode::FAILURE
        }
    }
}

/// `millrace xdp status --interface`: of one interface, and by that alone where no instance runs.
pub fn xdp_status(path: &Path, interface: &str) -> ExitCode {
    let answered = match client::request(path, &Request::XdpStatus) {
        Err(ClientError::NotRunning(_)) => return kept::status(interface),
        answered => answered.map_err(|error| error.to_string()),
    };
    let status = answered.and_then(|status| {
        serde_json::from_value::<Status>(status).map_err(|error| error.to_string())
    });
    let device = status.and_then(|status| {
        let mut devices = status.devices.into_iter();
        let found = devices.find(|device| device.interface == interface);
        found.ok_or_else(|| format!("AF_XDP is not in use on {interface}"))
    });
    match device {
        Ok(device) => {
            put(device);
            ExitCode::SUCCESS
        }
        Err(reason) => {
            complain(reason);
            ExitCode::FAILURE
        }
    }
}

/// What is printed: lines, each with its line feed.
fn text(request: &Request, result: &Value) -> String {
    match (request, result) {
        (Request::Stats, Value::Object(statistics)) => {
            let lines = statistics.iter();
            lines.map(|(name, value)| statistic(name, value)).collect()
        }
        (Request::XdpStatus, status) => match serde_json::from_value::<Status>(status.clone()) {
            Ok(status) => status.to_string(),
            // A newer instance knows more than this program: better its words than none.
            Err(_) => format!("{status}\n"),
        },
        (_, Value::Array(lines)) => lines.iter().map(line).collect(),
        (_, other) => line(other),
    }
}

/// A statistic as whoever named it prints it: those of zones are Knot's, whose names have dots and brackets.
fn statistic(name: &str, value: &Value) -> String {
    let equals = if name.contains(['.', '[']) { "= " } else { "" };
    format!("{name} {equals}{value}\n")
}

fn line(value: &Value) -> String {
    match value {
        Value::String(text) => format!("{text}\n"),
        other => format!("{other}\n"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn results_are_printed_as_lines() {
        let zone = "mod-stats.request-protocol[udp4-xdp]";
        let statistics = json!({"queries": 12, "latency-avg100": 0.5, zone: 228_091_218});
        assert_eq!(
            text(&Request::Stats, &statistics),
            "latency-avg100 0.5\nmod-stats.request-protocol[udp4-xdp] = 228091218\nqueries 12\n"
        );
        let lines = json!(["reloaded", "1 rule dropped"]);
        assert_eq!(text(&Request::Reload, &lines), "reloaded\n1 rule dropped\n");
        assert_eq!(
            text(&Request::Version, &json!("dnsdist (millrace 1)")),
            "dnsdist (millrace 1)\n"
        );
        let status = serde_json::to_value(Status::default()).unwrap();
        assert_eq!(
            text(&Request::XdpStatus, &status),
            Status::default().to_string()
        );
        assert_eq!(
            text(&Request::XdpStatus, &json!({"new": 1})),
            "{\"new\":1}\n"
        );
    }
}
