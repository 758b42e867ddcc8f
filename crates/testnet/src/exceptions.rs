//! Watches for XDP_ABORTED (invariant I5) through the kernel's trace point `xdp:xdp_exception`.

use std::fs;
use std::path::PathBuf;

use crate::namespace::Namespace;
use crate::{During, Failure, Outcome};

const TRACING: &str = "/sys/kernel/tracing";

/// A trace instance of one lab that notes every exception on this machine, with the program's number.
pub struct Exceptions {
    instance: PathBuf,
}

impl Exceptions {
    /// Begins to watch.
    pub fn watch(prefix: &str) -> Outcome<Self> {
        let instance = PathBuf::from(TRACING)
            .join("instances")
            .join(format!("millrace-{prefix}"));
        if !PathBuf::from(TRACING).join("instances").exists() {
            let mounted = crate::namespace::run("mount", &["-t", "tracefs", "tracefs", TRACING]);
            // Another lab may have been faster.
            if !PathBuf::from(TRACING).join("instances").exists() {
                mounted?;
            }
        }
        fs::create_dir_all(&instance).during(format!("making {}", instance.display()))?;
        let exceptions = Self { instance };
        let switch = exceptions.instance.join("events/xdp/xdp_exception/enable");
        fs::write(&switch, "1").during(format!("writing {}", switch.display()))?;
        Ok(exceptions)
    }

    /// Fails if a program that is attached in `namespace` now has aborted.
    pub fn check(&self, namespace: &Namespace) -> Outcome<()> {
        let path = self.instance.join("trace");
        let trace = fs::read_to_string(&path).during(format!("reading {}", path.display()))?;
        let links = namespace.output("ip", &["-details", "link", "show"])?;
        match program_numbers(&links)
            .iter()
            .find_map(|number| aborted_by(&trace, number))
        {
            None => Ok(()),
            Some(line) => Err(Failure::new(format!("a frame was aborted: {line}"))),
        }
    }
}

impl Drop for Exceptions {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.instance);
    }
}

/// `prog/xdp id 123 name …` as `ip -details link` prints it.
fn program_numbers(links: &str) -> Vec<String> {
    let behind = links.split("prog/xdp id ").skip(1);
    behind
        .filter_map(|rest| rest.split_whitespace().next())
        .map(str::to_owned)
        .collect()
}

/// `… xdp_exception: prog_id=123 action=ABORTED ifindex=2`
fn aborted_by<'a>(trace: &'a str, number: &str) -> Option<&'a str> {
    let mark = format!("prog_id={number} ");
    trace
        .lines()
        .find(|line| line.contains(&mark) && line.contains("ABORTED"))
        .map(str::trim)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_programs_count() {
        let links = "2: enp1s0@if3: <UP> mtu 1500 xdp qdisc noqueue\n    prog/xdp id 21 name steer tag 0f jited\n";
        let trace = "  lab-1 [000] ..s1. 1.0: xdp_exception: prog_id=21 action=ABORTED ifindex=2\n";
        assert_eq!(program_numbers(links), ["21"]);
        assert!(aborted_by(trace, "21").is_some());
        assert!(aborted_by(trace, "2").is_none());
    }
}
