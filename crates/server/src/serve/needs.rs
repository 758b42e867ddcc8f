//! What is planned and not there: what was refused, and when it is tried again; queues that workers are binding.

use super::memory::TooLittle;
use crate::frontend::devices::{Opened, QueueRows};
use crate::network::interfaces::QueueWish;
use crate::network::keeping::Need;
use crate::network::{Change, Changes, Plan, PlannedDevice};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long to wait before something that was refused is tried again.
pub(super) const AGAIN: Duration = Duration::from_secs(2);

/// What became of a queue that a worker was to bind.
pub struct OpenedQueue {
    pub(super) device: u8,
    pub(super) queue: u32,
    pub(super) ticket: u64,
    pub(super) rows: Arc<QueueRows>,
    pub(super) outcome: xsk::Result<Opened>,
}

/// What is planned and not there.
#[derive(Default)]
pub(super) struct Needs {
    /// What was refused: not to be tried before this moment, and why, so that a reason is said once.
    refused: HashMap<Need, (Instant, String)>,
    /// Queues that workers bind now. Each has its ticket: what comes back with another one is out of date.
    opening: HashMap<(u8, u32), u64>,
    tickets: u64,
}

impl Needs {
    /// What was refused until now, a line for each reason.
    pub(super) fn lines(&self, plan: &Plan) -> Vec<String> {
        let mut places: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for planned in &plan.devices {
            let name = &planned.device.name;
            if let Some(reason) = self.reason(Need::Program(planned.device.number)) {
                places.entry(reason).or_default().push(name.clone());
            }
            for (reason, queues) in self.refused_queues(planned) {
                let plural = if queues.len() > 1 { "s" } else { "" };
                let queues = format!("queue{plural} {} of {name}", queues.join(", "));
                places.entry(reason).or_default().push(queues);
            }
        }
        let line = |(reason, places): (&str, Vec<String>)| {
            let places = places.join(", ");
            format!("no AF_XDP on {places}, kernel sockets serve: {reason}")
        };
        places.into_iter().map(line).collect()
    }

    /// Which queues of a device were refused, by the reason.
    fn refused_queues(&self, planned: &PlannedDevice) -> BTreeMap<&str, Vec<String>> {
        let mut queues: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for QueueWish { number, .. } in &planned.queues {
            let need = Need::Queue(planned.device.number, *number);
            if let Some(reason) = self.reason(need) {
                queues.entry(reason).or_default().push(number.to_string());
            }
        }
        queues
    }

    fn reason(&self, need: Need) -> Option<&str> {
        self.refused.get(&need).map(|(_, reason)| reason.as_str())
    }

    /// At the start there was no memory for the frames of these queues, which has been said.
    pub(super) fn lack_memory(&mut self, plan: &Plan, too_little: &TooLittle) {
        self.refuse_workers(0, plan, &too_little.reason());
    }

    /// At the start neither this worker nor those after it get the queues of their numbers.
    pub(super) fn refuse_workers(&mut self, first: usize, plan: &Plan, reason: &str) {
        for planned in &plan.devices {
            for wish in planned
                .queues
                .iter()
                .filter(|wish| wish.number as usize >= first)
            {
                let need = Need::Queue(planned.device.number, wish.number);
                self.refuse(need, AGAIN, reason);
            }
        }
    }

    /// What the start was refused is counted as what is refused later.
    pub(super) fn changes(&self) -> Changes {
        let changes = Changes::default();
        for need in self.refused.keys() {
            changes.count(match need {
                Need::Program(_) => Change::AttachRefused,
                Need::Queue(..) => Change::QueueRefused,
            });
        }
        changes
    }

    /// Whether it is to be tried now.
    pub(super) fn is_due(&self, need: Need) -> bool {
        let is_opening = matches!(need, Need::Queue(device, queue) if self.opening.contains_key(&(device, queue)));
        let refused = self.refused.get(&need);
        !is_opening && refused.is_none_or(|(until, _)| *until <= Instant::now())
    }

    /// It was refused; whether that is for a new reason.
    pub(super) fn refuse(&mut self, need: Need, again: Duration, reason: &str) -> bool {
        let entry = (Instant::now() + again, reason.to_owned());
        let old = self.refused.insert(need, entry);
        old.is_none_or(|(_, known)| known != reason)
    }

    /// A worker is told to bind this queue; the ticket for what comes back.
    pub(super) fn open(&mut self, device: u8, queue: u32) -> u64 {
        self.tickets += 1;
        self.opening.insert((device, queue), self.tickets);
        self.tickets
    }

    /// Whether any queue is being bound.
    pub(super) fn is_opening(&self) -> bool {
        !self.opening.is_empty()
    }

    /// The numbers of the queues that are being bound, of whatever device.
    pub(super) fn opening_numbers(&self) -> impl Iterator<Item = u32> {
        self.opening.keys().map(|(_, number)| *number)
    }

    /// The queues of a device that are being bound.
    pub(super) fn opening_of(&self, device: u8) -> impl Iterator<Item = u32> {
        let keys = self.opening.keys();
        let mine = keys.filter(move |(number, _)| *number == device);
        mine.map(|(_, queue)| *queue)
    }

    /// Whether this is what is waited for.
    pub(super) fn takes(&mut self, opened: &OpenedQueue) -> bool {
        let key = (opened.device, opened.queue);
        let current = self.opening.get(&key) == Some(&opened.ticket);
        if current {
            self.opening.remove(&key);
        }
        current
    }

    /// The device is gone, and all that was to be had of it.
    pub(super) fn forget(&mut self, device: u8) {
        self.refused.retain(|need, _| need.device() != device);
        self.opening.retain(|(number, _), _| *number != device);
    }

    /// The queue is closed, or will be.
    pub(super) fn forget_queue(&mut self, device: u8, queue: u32) -> bool {
        self.refused.remove(&Need::Queue(device, queue));
        self.opening.remove(&(device, queue)).is_some()
    }

    /// What this plan does not name is wanted no more.
    pub(super) fn keep_those_of(&mut self, plan: &Plan) {
        self.refused.retain(|need, _| need.is_in(plan));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::Device;

    #[test]
    fn a_refusal_is_news_once_and_waits() {
        let mut needs = Needs::default();
        let need = Need::Program(1);
        assert!(needs.is_due(need));
        assert!(needs.refuse(need, Duration::from_secs(60), "busy"));
        assert!(!needs.refuse(need, Duration::from_secs(60), "busy"));
        assert!(!needs.is_due(need));
        assert!(needs.refuse(need, Duration::ZERO, "gone"));
        assert!(needs.is_due(need));
        needs.keep_those_of(&Plan::default());
        assert!(needs.refused.is_empty());
    }

    #[test]
    fn what_was_refused_is_a_line_for_each_reason() {
        let devices = [(0, "enp1s0"), (1, "enp2s0"), (2, "enp3s0")];
        let devices = devices.map(|(number, name)| planned(number, name, &[0, 1]));
        let plan = Plan {
            devices: devices.into(),
            ..Plan::default()
        };
        let mut needs = Needs::default();
        assert!(needs.lines(&plan).is_empty());
        for (need, reason) in [
            (Need::Program(0), "no"),
            (Need::Program(1), "no"),
            (Need::Queue(2, 0), "busy"),
        ] {
            needs.refuse(need, AGAIN, reason);
        }
        let busy = "no AF_XDP on queue 0 of enp3s0, kernel sockets serve: busy";
        let no = "no AF_XDP on enp1s0, enp2s0, kernel sockets serve: no";
        assert_eq!(needs.lines(&plan), [busy, no]);
        needs.refuse_workers(0, &plan, "no memory");
        let none = "no AF_XDP on queues 0, 1 of enp1s0, queues 0, 1 of enp2s0, queues 0, 1 of enp3s0, \
            kernel sockets serve: no memory";
        assert_eq!(needs.lines(&plan), [no, none]);
    }

    fn planned(number: u8, name: &str, queues: &[u32]) -> PlannedDevice {
        let wish = |number: &u32| QueueWish {
            number: *number,
            map_path: None,
        };
        PlannedDevice {
            device: Device {
                number,
                interface: u32::from(number) + 2,
                name: name.to_owned(),
                mac: [2, 0, 0, 0, 0, 1],
                mtu: 1_500,
                queues: 2,
                partial_checksums: true,
            },
            queues: queues.iter().map(wish).collect(),
            destinations: Vec::new(),
            backends: Vec::new(),
        }
    }

    #[test]
    fn what_comes_back_with_an_old_ticket_is_not_taken() {
        let mut needs = Needs::default();
        let opened = |ticket| OpenedQueue {
            device: 1,
            queue: 0,
            ticket,
            rows: Arc::default(),
            outcome: Err(xsk::Error::Invalid(String::new())),
        };
        let first = needs.open(1, 0);
        assert!(!needs.is_due(Need::Queue(1, 0)));
        needs.forget(1);
        let second = needs.open(1, 0);
        assert!(!needs.takes(&opened(first)));
        assert!(needs.takes(&opened(second)));
        assert!(needs.is_due(Need::Queue(1, 0)));
    }

    #[test]
    fn a_queue_that_is_being_bound_can_be_closed_like_one_that_is() {
        let mut needs = Needs::default();
        needs.open(1, 3);
        needs.open(2, 0);
        let opening = |needs: &Needs| needs.opening_of(1).collect::<Vec<u32>>();
        assert_eq!(opening(&needs), [3]);
        assert!(needs.forget_queue(1, 3));
        assert!(opening(&needs).is_empty());
    }
}
