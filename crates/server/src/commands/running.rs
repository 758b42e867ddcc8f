//! Commands that ask the running instance and print its reply: `millrace reload`, `restart`, `stats`, `explain`, `xdp
//! status`. The words of `millrace zone` and `millrace mirror` are beside this.

use super::{complain, kept, put};
use crate::control::client::{self, ClientError};
use crate::control::protocol::Request;
use crate::network::status::{ProgramStatus, Status};
use nix::net::if_::if_nameindex;
use serde_json::Value;
use std::fmt::Display;
use std::path::Path;
use std::process::ExitCode;

/// Asks the instance whose control socket is at `path`, and prints the result.
pub fn ask(path: &Path, request: &Request) -> ExitCode {
    match client::request(path, request) {
        Ok(result) => {
            put(text(request, &result));
            ExitCode::SUCCESS
        }
        Err(error) => fail(error),
    }
}

/// `millrace xdp status`: what the instance has, or has on one interface, and programs that are not its. Where no instance runs,
/// what is on the interface.
pub fn xdp_status(path: &Path, interface: Option<&str>) -> ExitCode {
    let reply = match (client::request(path, &Request::XdpStatus), interface) {
        (Err(ClientError::NotRunning(_)), Some(interface)) => return kept::status(interface),
        (Err(error), _) => return fail(error),
        (Ok(reply), _) => reply,
    };
    let Ok(status) = serde_json::from_value::<Status>(reply.clone()) else {
        // A newer instance knows more than this program: better its words than none.
        put(format_args!("{reply}\n"));
        return ExitCode::SUCCESS;
    };
    match interface {
        Some(interface) => xdp_status_of(&status, interface),
        None => {
            put(&status);
            let interfaces = if_nameindex().into_iter();
            let names = interfaces.flat_map(|all| {
                let names = all
                    .iter()
                    .map(|one| one.name().to_string_lossy().into_owned());
                names.collect::<Vec<_>>()
            });
            names.for_each(|name| put(beside(&status, &name)));
            ExitCode::SUCCESS
        }
    }
}

fn xdp_status_of(status: &Status, interface: &str) -> ExitCode {
    let mut devices = status.devices.iter();
    let device = devices.find(|device| device.interface == interface);
    let others = beside(status, interface);
    if device.is_none() && others.is_empty() {
        return fail(format_args!("AF_XDP is not in use on {interface}"));
    }
    device.into_iter().for_each(put);
    put(others);
    ExitCode::SUCCESS
}

/// A program on the interface that is not the instance's; nothing where there is none.
fn beside(status: &Status, interface: &str) -> String {
    let mut devices = status.devices.iter();
    let is_its = devices
        .any(|device| device.interface == interface && device.program != ProgramStatus::Detached);
    let told = kept::told_beside(interface).filter(|_| !is_its);
    told.map_or_else(String::new, |text| format!("{text}\n"))
}

fn fail(error: impl Display) -> ExitCode {
    complain(error);
    ExitCode::FAILURE
}

/// What is printed: lines, each with its line feed.
fn text(request: &Request, result: &Value) -> String {
    match (request, result) {
        (Request::Stats, Value::Object(statistics)) => {
            let lines = statistics.iter();
            lines.map(|(name, value)| statistic(name, value)).collect()
        }
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
    }
}
