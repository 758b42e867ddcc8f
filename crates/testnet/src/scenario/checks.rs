//! What every run checks, unasked: the invariants that hold in each scenario.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use super::backend::Backend;
use super::client::Asked;
use super::model::{Action, Scenario, Step, Transport};
use super::run::Run;
use crate::kernel_counters::KernelCounters;
use crate::lab::{Lab, SERVER_BACKENDS, SERVER_CLIENTS, Topology};
use crate::metrics::Metrics;
use crate::subject::Door;
use crate::{During, Failure, Outcome, dns};

/// How long frames may be under way after the last answer.
const AT_REST_WITHIN: Duration = Duration::from_secs(10);

impl Run<'_> {
    /// All of them.
    pub(super) fn check_all(&mut self) -> Outcome<()> {
        self.check_answers()?;
        self.check_backends()?;
        if self.door == Door::Xdp {
            self.check_xdp()?;
            self.await_frames_at_rest()?;
        }
        Ok(())
    }

    /// I3: at rest no worker holds a frame, and the owners' frames add up to all there are.
    fn await_frames_at_rest(&mut self) -> Outcome<()> {
        let namespace = self.ground.lab.server();
        let mut lost = None;
        let outcome = self.until(AT_REST_WITHIN, "frames to add up", || {
            lost = lost_frames(&Metrics::of(&namespace)?);
            Ok(lost.is_none())
        });
        outcome.map_err(|failure| Failure::new(format!("{}: {failure}", lost.unwrap_or_default())))
    }

    /// I1 and I2: no answer but the expected ones, each a sound packet.
    fn check_answers(&mut self) -> Outcome<()> {
        let allowed = self.clients.check_nothing_left()?;
        KernelCounters::of(&self.ground.lab.client())?
            .check_unchanged_since(&self.kernel_before)?;
        self.watch()?;
        let asked = self.clients.asked();
        let from: HashSet<_> = asked.iter().map(|asked| asked.destination).collect();
        let sightings = self.sightings.iter();
        let answers: Vec<_> = sightings
            .filter(|sighting| from.contains(&sighting.source))
            .collect();
        if let Some((answer, fault)) = answers
            .iter()
            .find_map(|answer| Some((answer, answer.fault?)))
        {
            let text = format!(
                "an answer to {} is no sound packet: {fault}",
                answer.destination
            );
            return Err(Failure::new(text));
        }
        let expected = allowed
            + self
                .scenario
                .expected_datagrams(|step| self.is_for_us(step));
        if answers.len() == expected {
            return Ok(());
        }
        Err(Failure::new(format!(
            "the server sent {} UDP answers where {expected} were expected",
            answers.len()
        )))
    }

    /// I7: what the rules saw is what the backend gets, octet by octet after the ID.
    fn check_backends(&self) -> Outcome<()> {
        let asked = self.clients.asked();
        let mut made_seen = HashSet::new();
        for backend in &self.backends {
            backend.check_all_expected()?;
            for seen in backend.seen() {
                let same = |octets: &[u8]| octets.get(2..) == seen.octets.get(2..);
                let made = self
                    .scenario
                    .made
                    .iter()
                    .position(|made| seen.octets.get(2..) == Some(made));
                if let Some(made) = made {
                    made_seen.insert(made);
                } else if !asked.iter().any(|asked| same(&asked.octets)) {
                    let hex = dns::hex_of_octets(&seen.octets);
                    let text =
                        format!("backend {} got {hex}, which no client sent", backend.name());
                    return Err(Failure::new(text));
                }
            }
        }
        match (0..self.scenario.made.len()).find(|made| !made_seen.contains(made)) {
            None => Ok(()),
            Some(made) => Err(Failure::new(format!(
                "no backend got {}",
                dns::hex_of_octets(&self.scenario.made[made])
            ))),
        }
    }

    /// The run's queries really came by AF_XDP, as many as clients sent over UDP, and went on by it to
    /// backends that are to be asked so; nothing was aborted, no ring entry was wrong.
    fn check_xdp(&self) -> Outcome<()> {
        self.ground.exceptions.check(&self.ground.lab.server())?;
        let now = Metrics::of(&self.ground.lab.server())?;
        let grown = |name: &str, interface: &str| {
            let labels = [("interface".to_owned(), interface.to_owned())];
            let sum = |metrics: &Metrics| metrics.sum(name, &labels).unwrap_or(0.0);
            sum(&now) - sum(&self.before)
        };
        let by_xdp = |asked: &&Asked| asked.transport == Transport::Udp && !asked.kernel;
        let sent = self.clients.asked()[self.asked_before..]
            .iter()
            .filter(by_xdp)
            .count();
        let received = grown("millrace_xsk_received", SERVER_CLIENTS);
        let stalled = grown("millrace_xsk_heartbeat_passes", SERVER_CLIENTS);
        if !came_by_xdp(sent, received, stalled) && !self.scenario.mixed_paths {
            let verdicts = verdicts(&self.before, &now);
            return Err(Failure::new(format!(
                "AF_XDP received {received} frames from clients who sent {sent} queries; {stalled} were passed to the kernel \
                 because a worker stood still (all verdicts there: {verdicts})"
            )));
        }
        let seen = self.seen_over_udp();
        let forwarded = grown("millrace_xsk_sent", SERVER_BACKENDS);
        // After a link was down kernel sockets ask until the next hop is known again.
        let always = self.scenario.servers_by_xdp() > 0
            && !self.scenario.changes_lab()
            && !self.scenario.mixed_paths;
        if forwarded + stalled < seen as f64 && always {
            return Err(Failure::new(format!(
                "AF_XDP sent {forwarded} frames to backends who saw {seen} queries"
            )));
        }
        sound_rings(&now)
    }

    fn seen_over_udp(&self) -> usize {
        let seen = self.backends.iter().flat_map(Backend::seen);
        seen.filter(|seen| seen.transport == Transport::Udp).count()
    }
}

/// What the kernel program has made of the clients' frames between two moments: `query 3, socket 1`.
fn verdicts(before: &Metrics, now: &Metrics) -> String {
    let of = |metrics: &Metrics, labels: &[(String, String)]| {
        let sum = metrics.sum("millrace_steer_verdicts", labels);
        sum.unwrap_or(0.0)
    };
    let clients = [("interface".to_owned(), SERVER_CLIENTS.to_owned())];
    let rows = now.rows("millrace_steer_verdicts", &clients);
    let grown = rows.filter_map(|row| {
        let grown = row.value - of(before, &row.labels);
        let (_, reason) = row.labels.iter().find(|(name, _)| name == "reason")?;
        (grown > 0.0).then(|| format!("{reason} {grown}"))
    });
    grown.collect::<Vec<_>>().join(", ")
}

/// Whether so many queries were taken by AF_XDP. Where the machine stands still between two queries, the program rightly
/// passes what follows to the kernel (I4) and counts it; something must have come by AF_XDP all the same.
fn came_by_xdp(sent: usize, received: f64, stalled: f64) -> bool {
    sent == 0 || (received > 0.0 && received + stalled >= sent as f64)
}

/// The server is gone, and its program and pins with it (an ephemeral link).
pub(super) fn nothing_left(lab: &Lab) -> Outcome<()> {
    no_program(lab)?;
    let what = || format!("reading {}", lab.bpffs().display());
    for entry in std::fs::read_dir(lab.bpffs()).during(what())? {
        let name = entry.during(what())?.file_name();
        // The kernel's own two files.
        if name != "maps.debug" && name != "progs.debug" {
            return Err(Failure::new(format!(
                "the server is gone, its pin {} is not",
                name.display()
            )));
        }
    }
    Ok(())
}

/// No interface of the server's has a program.
pub(crate) fn no_program(lab: &Lab) -> Outcome<()> {
    let links = lab.server().output("ip", &["-details", "link", "show"])?;
    match links.contains("prog/xdp") {
        false => Ok(()),
        true => Err(Failure::new(
            "the server is gone, its XDP program is still attached",
        )),
    }
}

/// Which worker's frames are not all where they are at rest; `None`: none.
pub(crate) fn lost_frames(metrics: &Metrics) -> Option<String> {
    let workers: Vec<_> = metrics.rows("millrace_xsk_umem_frames", &[]).collect();
    if workers.is_empty() {
        return Some("no worker has counted its frames".to_owned());
    }
    workers.into_iter().find_map(|all| {
        let sum = metrics.sum("millrace_xsk_frames", &all.labels);
        let mut held = all.labels.clone();
        held.push(("owner".to_owned(), "pipeline".to_owned()));
        let held = metrics.sum("millrace_xsk_frames", &held);
        let at_rest = sum == Some(all.value) && held == Some(0.0);
        (!at_rest).then(|| format!("{all}, its owners have {sum:?}, its pipeline {held:?}"))
    })
}

/// What the two sides of a ring can only get wrong by a mistake of ours.
pub(crate) fn sound_rings(metrics: &Metrics) -> Outcome<()> {
    for row in [
        "millrace_xsk_rx_invalid",
        "millrace_xsk_tx_invalid",
        "millrace_xsk_bad_addresses",
    ] {
        if metrics.sum(row, &[]).is_some_and(|count| count > 0.0) {
            return Err(Failure::new(format!("{row} is not 0")));
        }
    }
    Ok(())
}

impl Scenario {
    /// How many servers have `$BACKEND` in the configuration, if all have, and an interface of their own.
    pub(super) fn servers_by_xdp(&self) -> usize {
        let restarts = self
            .steps
            .iter()
            .any(|step| matches!(step.action, Action::Restart { .. }));
        let (_, text) = &self.configurations[0];
        let servers = text.matches("newServer").count();
        let all = text.matches("$BACKEND").count() == servers;
        if all && !restarts && self.topology != Topology::OneInterface {
            servers
        } else {
            0
        }
    }

    /// How many answers clients await over UDP.
    fn expected_datagrams(&self, is_for_us: impl Fn(&Step) -> bool) -> usize {
        let mut transports = HashMap::new();
        let mut last = Transport::Udp;
        let mut count = 0;
        for step in self.steps.iter().filter(|step| is_for_us(step)) {
            match &step.action {
                Action::Ask(ask) => {
                    last = ask.transport;
                    transports.extend(ask.label.clone().map(|label| (label, last)));
                }
                Action::Expect(expect) => {
                    let transport = expect
                        .label
                        .as_ref()
                        .and_then(|label| transports.get(label))
                        .unwrap_or(&last);
                    count += usize::from(*transport == Transport::Udp);
                }
                _ => {}
            }
        }
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_passed_for_a_worker_that_stood_still_may_be_missing() {
        assert!(came_by_xdp(0, 0.0, 0.0));
        assert!(came_by_xdp(10, 10.0, 0.0) && came_by_xdp(10, 11.0, 0.0));
        assert!(came_by_xdp(10, 2.0, 8.0));
        assert!(!came_by_xdp(10, 9.0, 0.0), "one went another way");
        assert!(!came_by_xdp(10, 0.0, 10.0), "nobody ever took a frame");
    }

    #[test]
    fn a_frame_that_is_held_or_gone_is_found() {
        let text = |held: u32, free: u32| {
            format!(
                "millrace_xsk_umem_frames{{worker=\"0\"}} 8\n\
                 millrace_xsk_frames{{worker=\"0\",owner=\"free\"}} {free}\n\
                 millrace_xsk_frames{{worker=\"0\",owner=\"pipeline\"}} {held}\n"
            )
        };
        let lost = |text: &str| lost_frames(&Metrics::read(text).expect("good text"));
        assert_eq!(lost(&text(0, 8)), None);
        assert!(lost(&text(1, 7)).is_some(), "somebody holds one");
        assert!(lost(&text(0, 7)).is_some(), "nobody has one");
        assert!(lost("").is_some());
    }
}
