//! What has been done about interfaces after an event of the network, told in one line for each.
//!
//! A line waits until the queues that are being bound are there: it says what has changed, and what serves then. It also rests
//! for a moment, for one event often comes in parts: an interface that is deleted loses its addresses first.

use crate::network::Device;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// How long after the last thing that was noted lines are told. From an interface's addresses to the interface itself the kernel
/// takes tens of milliseconds.
const REST: Duration = Duration::from_millis(300);

/// What was done about one interface.
#[derive(Debug, Default)]
struct Interface {
    name: String,
    /// What its link is now, if that is another thing: of one that flaps, the last.
    link: Option<&'static str>,
    /// What has changed, in order.
    changes: Vec<String>,
    /// Queues that are served now, and how.
    queues: Vec<(u32, String)>,
    /// The queries that come over AF_XDP now.
    arrival: Option<String>,
}

/// Everything that was done, and has not been told.
#[derive(Debug, Default)]
pub(super) struct Account {
    /// By device number.
    interfaces: BTreeMap<u8, Interface>,
    /// Whole lines, of no device that is open.
    lines: Vec<String>,
    /// When it is time to tell; `None`: nothing is new.
    due: Option<Instant>,
}

impl Account {
    /// A line of its own.
    pub(super) fn line(&mut self, line: String) {
        self.lines.push(line);
        self.rest();
    }

    /// Something about a device has changed.
    pub(super) fn change(&mut self, device: &Device, what: impl Into<String>) {
        self.of(device).changes.push(what.into());
    }

    /// The device's link has gone or come, whatever was said of that before.
    pub(super) fn link(&mut self, device: &Device, what: &'static str) {
        self.of(device).link = Some(what);
    }

    /// A queue is served from now on.
    pub(super) fn queue(&mut self, device: &Device, queue: u32, how: String) {
        self.of(device).queues.push((queue, how));
    }

    /// These queries come over AF_XDP from now on, whatever was said of that before.
    pub(super) fn arrival(&mut self, device: &Device, what: String) {
        self.of(device).arrival = Some(what);
    }

    /// The device is gone, which says it all.
    pub(super) fn forget(&mut self, device: u8) {
        self.interfaces.remove(&device);
    }

    /// When to look what can be told.
    pub(super) fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Something is new, or not under way any more.
    pub(super) fn rest(&mut self) {
        self.due = Some(Instant::now() + REST);
    }

    fn of(&mut self, device: &Device) -> &mut Interface {
        self.rest();
        let interface = self.interfaces.entry(device.number).or_default();
        interface.name.clone_from(&device.name);
        interface
    }

    /// The lines for the operator, but of devices that something is still being done about.
    pub(super) fn take(&mut self, is_under_way: impl Fn(u8) -> bool) -> Vec<String> {
        self.due = None;
        let told = |number: &u8, _: &mut Interface| !is_under_way(*number);
        let interfaces = self.interfaces.extract_if(.., told);
        let lines: Vec<String> = interfaces.map(|(_, interface)| interface.text()).collect();
        let mut all = std::mem::take(&mut self.lines);
        all.extend(lines);
        all
    }

    /// All lines.
    pub(super) fn take_all(&mut self) -> Vec<String> {
        self.take(|_| false)
    }
}

impl Interface {
    fn text(mut self) -> String {
        let queues = std::mem::take(&mut self.queues);
        let mut parts: Vec<String> = self.link.map(str::to_owned).into_iter().collect();
        parts.extend(self.changes);
        parts.extend(by_how(queues).iter().map(|(how, numbers)| {
            let (word, is) = match numbers.len() {
                1 => ("queue", "is"),
                _ => ("queues", "are"),
            };
            format!("{word} {} {is} {how}", numbers.join(", "))
        }));
        parts.extend(self.arrival);
        format!("{}: {}", self.name, parts.join("; "))
    }
}

/// The queues that are served alike.
fn by_how(mut queues: Vec<(u32, String)>) -> Vec<(String, Vec<String>)> {
    queues.sort();
    let mut all: Vec<(String, Vec<String>)> = Vec::new();
    for (number, how) in queues {
        match all.iter_mut().find(|(known, _)| *known == how) {
            Some((_, numbers)) => numbers.push(number.to_string()),
            None => all.push((how, vec![number.to_string()])),
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(number: u8, name: &str) -> Device {
        Device {
            number,
            interface: 2,
            name: name.to_owned(),
            mac: [2, 0, 0, 0, 0, 1],
            mtu: 1_500,
            queues: 2,
            partial_checksums: true,
        }
    }

    #[test]
    fn what_an_event_has_led_to_is_one_line_when_all_of_it_is_there() {
        let mut account = Account::default();
        let (one, other) = (device(0, "enp1s0"), device(1, "enp2s0"));
        account.change(&one, "AF_XDP program attached in native mode");
        account.arrival(&one, "queries to 192.0.2.1:53 come over AF_XDP".to_owned());
        account.change(&other, "its MTU is 1280, was 1500");
        assert_eq!(
            account.take(|number| number == 0),
            ["enp2s0: its MTU is 1280, was 1500"]
        );
        for queue in [1, 0] {
            account.queue(&one, queue, "served over AF_XDP, copy mode".to_owned());
            account.arrival(
                &one,
                "queries to 192.0.2.1:53, 192.0.2.9:53 come over AF_XDP".to_owned(),
            );
        }
        let line = "enp1s0: AF_XDP program attached in native mode; queues 0, 1 are served over AF_XDP, copy mode; queries to 192.0.2.1:53, 192.0.2.9:53 come over AF_XDP";
        assert_eq!(account.take_all(), [line]);
        assert!(account.take_all().is_empty());
        account.queue(&one, 2, "served over AF_XDP, copy mode".to_owned());
        let line = "enp1s0: queue 2 is served over AF_XDP, copy mode";
        assert_eq!(account.take_all(), [line]);
    }

    #[test]
    fn f22_of_a_link_that_flaps_the_last_is_told() {
        let mut account = Account::default();
        let one = device(0, "enp1s0");
        for what in ["it is down", "it is up"].repeat(50) {
            account.link(&one, what);
        }
        account.change(&one, "its MTU is 1280, was 1500");
        let line = "enp1s0: it is up; its MTU is 1280, was 1500";
        assert_eq!(account.take_all(), [line]);
    }

    #[test]
    fn lines_rest_for_a_moment_and_what_is_gone_has_none() {
        let mut account = Account::default();
        assert_eq!(account.due(), None);
        let before = Instant::now();
        account.change(&device(0, "enp1s0"), "all queries go to kernel sockets");
        assert!(account.due() >= Some(before + REST));
        account.forget(0);
        assert!(account.take_all().is_empty());
        assert_eq!(account.due(), None);
    }
}
