//! What is due when the network has changed: when the kernel is asked for ways, when a new plan is called for, when next hops
//! are knocked at again. No I/O and no clock: time and events come in, decisions go out. [`super::follow`] carries them out
//! with the kernel while serving, the simulation without one.
//!
//! ```text
//!  start, hear, read, watch ─▶ Due (Paths) ─▶ decisions: servers' ways, knocks, notices
//!                               │     ▲
//!       next_task: ask, remind ─┘     └─ routed, remind
//! ```
//!
//! After links, addresses or routes have moved, the kernel is asked anew for every way that matters: it tells of a route
//! that came, but not of those that a link took with it when it went down, nor which of two routes is the better one now.

use super::devices::Open;
use super::events::NetworkEvent;
use super::links::Link;
use super::neighbours::Neighbour;
use super::paths::{Change, Paths, Watched};
use super::routes::{Destination, Route};
use crate::clock::Now;
use std::time::Duration;

/// How long after a change the kernel is asked for ways, at least: changes come in flocks.
const FLOCK: Duration = Duration::from_millis(20);

/// Asking may take this fraction of the time, however many changes there are.
const REST: u32 = 10;

/// How often an unresolved next hop is knocked at, so that one that comes back is known within a second (I9).
const AGAIN: Duration = Duration::from_millis(500);

/// What the rest of the daemon is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notice {
    /// Links, addresses or routes have changed: a new plan may differ from the last one.
    Replan,
    /// The interface with this index is gone, and with it every socket bound to it.
    LinkGone(u32),
    /// A server is reached another way than until now.
    PathChanged,
}

/// What is to be done now. Several are carried out in the order in which they come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// A server's way is another one, or something is to be found out about it.
    Change(Change),
    /// The rest of the daemon is to be told.
    Tell(Notice),
}

/// What follows from an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Heard {
    /// These are to be carried out; often none.
    Decisions(Vec<Decision>),
    /// Events were lost: everything is to be read anew, for [`Due::read`].
    TooMuch,
}

/// What is to be done later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Task {
    /// Ask the kernel for ways: [`Due::begin_asking`].
    Ask,
    /// Knock again: [`Due::remind`].
    Remind,
}

/// The kernel is being asked for ways.
#[derive(Debug)]
pub struct Asking {
    /// Where to, each once. The kernel's answers are for [`Due::routed`].
    pub destinations: Vec<Destination>,
    began: Now,
    /// Some next hop was not known before either.
    waited: bool,
    /// The plan may have changed too.
    replan: bool,
}

/// What is known of the network, and what changes since the kernel was last asked call for.
#[derive(Debug, Default)]
pub struct Due {
    paths: Paths,
    /// When to ask for the ways.
    ask: Option<Now>,
    /// Whether the plan may have changed too.
    replan: bool,
    /// How long the last asking took.
    took: Duration,
    /// When to knock again, where next hops are not known.
    remind: Now,
}

impl Due {
    /// Events are heard from now on, for the first time or again: these are all links and neighbours. Servers that are
    /// watched stay so. What changed before nobody has heard: the last plan may be out of date.
    pub fn start(
        &mut self,
        links: Vec<Link>,
        neighbours: Vec<Neighbour>,
        now: Now,
    ) -> Vec<Decision> {
        *self = Due {
            paths: std::mem::take(&mut self.paths),
            replan: true,
            remind: later(now, AGAIN),
            ..Due::default()
        };
        self.read(links, neighbours, now)
    }

    /// Everything anew, after events were lost ([`Heard::TooMuch`]): these are all links and neighbours.
    pub fn read(
        &mut self,
        links: Vec<Link>,
        neighbours: Vec<Neighbour>,
        now: Now,
    ) -> Vec<Decision> {
        self.ask_after_change(now);
        decisions(self.paths.reset(links, neighbours))
    }

    /// From now on the ways to these servers are followed, over these devices.
    pub fn watch(&mut self, servers: Vec<Watched>, open: Open, now: Now) -> Vec<Decision> {
        // Nothing has changed that could go on changing.
        self.ask = Some(now);
        decisions(self.paths.watch(servers, open))
    }

    /// One event.
    pub fn hear(&mut self, event: NetworkEvent, now: Now) -> Heard {
        let mut all = Vec::new();
        match &event {
            // Counters and states that we do not look at change as well.
            NetworkEvent::LinkChanged(link) if self.paths.knows(link) => {
                return Heard::Decisions(all);
            }
            NetworkEvent::LinkGone(index) => {
                all.push(Decision::Tell(Notice::LinkGone(*index)));
                self.replan_after_change(now);
            }
            NetworkEvent::LinkChanged(_) | NetworkEvent::AddressChanged(_) => {
                self.replan_after_change(now);
            }
            NetworkEvent::RouteChanged => self.ask_after_change(now),
            NetworkEvent::NeighbourChanged(_) | NetworkEvent::NeighbourGone(_) => {}
            NetworkEvent::Lost => {
                self.replan = true;
                return Heard::TooMuch;
            }
        }
        all.extend(decisions(self.paths.event(event)));
        Heard::Decisions(all)
    }

    /// What is to be done next, unless something is heard before, and when. `None`: nothing.
    pub fn next_task(&self) -> Option<(Now, Task)> {
        let is_waiting = self.paths.is_waiting();
        let ask = self.ask.map(|at| (at, Task::Ask));
        let remind = is_waiting.then_some((self.remind, Task::Remind));
        let tasks = ask.into_iter().chain(remind);
        tasks.min_by_key(|(at, _)| *at)
    }

    /// The kernel is asked for the ways to the destinations that this names; [`Due::end_asking`] when it has answered.
    pub fn begin_asking(&mut self, now: Now) -> Asking {
        self.ask = None;
        let mut destinations = self.paths.destinations();
        destinations.sort_by_key(|to| (to.address, to.source, to.interface));
        Asking {
            destinations,
            began: now,
            waited: self.paths.is_waiting(),
            replan: std::mem::take(&mut self.replan),
        }
    }

    /// The kernel's answer for a destination.
    pub fn routed(
        &mut self,
        destination: &Destination,
        route: &Result<Route, String>,
    ) -> Vec<Decision> {
        decisions(self.paths.routed(destination, route))
    }

    /// The kernel has answered for all destinations.
    pub fn end_asking(&mut self, asking: Asking, now: Now) -> Vec<Decision> {
        self.took = now.since(asking.began);
        // Who waits already is reminded when it was to be, whatever changes meanwhile.
        if !asking.waited {
            self.remind = later(now, AGAIN);
        }
        let notice = asking.replan.then_some(Decision::Tell(Notice::Replan));
        notice.into_iter().collect()
    }

    /// Knocks again at next hops that the kernel does not know.
    pub fn remind(&mut self, now: Now) -> Vec<Decision> {
        self.remind = later(now, AGAIN);
        decisions(self.paths.remind())
    }

    /// The name of a device's interface.
    pub fn device_name(&self, number: u8) -> &str {
        self.paths.device_name(number)
    }

    /// Whether all that was heard has been taken into account.
    #[cfg(test)]
    pub(crate) fn is_quiet(&self) -> bool {
        self.ask.is_none() && !self.replan
    }

    fn replan_after_change(&mut self, now: Now) {
        self.replan = true;
        self.ask_after_change(now);
    }

    fn ask_after_change(&mut self, now: Now) {
        let wait = FLOCK.max(self.took * REST);
        self.ask.get_or_insert(later(now, wait));
    }
}

fn decisions(changes: Vec<Change>) -> Vec<Decision> {
    changes.into_iter().map(Decision::Change).collect()
}

fn later(now: Now, by: Duration) -> Now {
    Now(now.0 + by.as_nanos() as u64)
}

#[cfg(test)]
mod tests {
    use super::super::devices::{Device, Devices};
    use super::super::fixtures::{ip, lab};
    use super::*;
    use crate::backend::server::ServerId;
    use wire::frame::Mac;

    const BACKEND_MAC: Mac = [2, 0, 0, 0, 0, 0x99];

    /// A moment, in milliseconds.
    fn at(milliseconds: u64) -> Now {
        Now(1_000_000_000_000 + milliseconds * 1_000_000)
    }

    /// After a start with the links of the lab, at 0 ms, the kernel was asked, at 20 ms. Nothing is due.
    fn idle() -> Due {
        let mut due = Due::default();
        assert_eq!(due.start(lab().links, Vec::new(), at(0)), []);
        assert_eq!(due.next_task(), Some((at(20), Task::Ask)));
        assert_eq!(ask(&mut due, 20, 20), [replan()]);
        assert_eq!(due.next_task(), None);
        due
    }

    /// The kernel is asked from one moment to another and has nothing new to say.
    fn ask(due: &mut Due, from: u64, to: u64) -> Vec<Decision> {
        let asking = due.begin_asking(at(from));
        due.end_asking(asking, at(to))
    }

    fn devices() -> Vec<Device> {
        let mut devices = Devices::default();
        let links = lab().links;
        let links = links[1..].iter();
        links.filter_map(|link| devices.device(link)).collect()
    }

    fn destination(address: &str) -> Destination {
        Destination {
            address: ip(address),
            source: None,
            interface: 0,
        }
    }

    fn watched(number: u32, address: &str) -> Watched {
        Watched {
            server: ServerId(number),
            destination: destination(address),
            wish: destination(address),
            mac: None,
            planned: true,
        }
    }

    /// One server, on the link of `enp2s0`, and nobody there has answered yet; the kernel was asked from 30 to 31 ms.
    fn waiting() -> Due {
        let mut due = idle();
        let servers = vec![watched(1, "198.51.100.2")];
        assert_eq!(due.watch(servers, devices().into(), at(30)), []);
        let asking = due.begin_asking(at(30));
        let route = Route {
            interface: 3,
            source: ip("198.51.100.1"),
            next_hop: ip("198.51.100.2"),
        };
        assert_eq!(asking.destinations, [destination("198.51.100.2")]);
        let decisions = due.routed(&asking.destinations[0], &Ok(route));
        assert_eq!(decisions, [knock()]);
        assert_eq!(due.end_asking(asking, at(31)), []);
        due
    }

    fn knock() -> Decision {
        Decision::Change(Change::Knock {
            next_hop: ip("198.51.100.2"),
            interface: 3,
        })
    }

    fn replan() -> Decision {
        Decision::Tell(Notice::Replan)
    }

    #[test]
    fn a_flock_of_changes_is_one_reason_to_ask() {
        let mut due = idle();
        for moment in [100, 110, 119] {
            due.hear(NetworkEvent::RouteChanged, at(moment));
            assert_eq!(due.next_task(), Some((at(120), Task::Ask)));
        }
        assert!(!due.is_quiet());
        assert_eq!(ask(&mut due, 120, 120), []);
        assert_eq!(due.next_task(), None);
        assert!(due.is_quiet());
    }

    #[test]
    fn asking_takes_a_tenth_of_the_time_at_most() {
        let mut due = idle();
        assert_eq!(ask(&mut due, 100, 400), []);
        due.hear(NetworkEvent::RouteChanged, at(401));
        assert_eq!(due.next_task(), Some((at(3_401), Task::Ask)));
        // A new start knows nothing of it.
        due.start(lab().links, Vec::new(), at(500));
        assert_eq!(due.next_task(), Some((at(520), Task::Ask)));
    }

    #[test]
    fn links_and_addresses_call_for_a_plan_and_routes_for_ways_only() {
        let link = Link {
            mtu: 9_000,
            ..lab().links[1].clone()
        };
        for (event, calls) in [
            (NetworkEvent::LinkChanged(link), true),
            (NetworkEvent::AddressChanged(lab().addresses[0]), true),
            (NetworkEvent::LinkGone(2), true),
            (NetworkEvent::RouteChanged, false),
        ] {
            let mut due = idle();
            let name = format!("{event:?}");
            due.hear(event, at(100));
            assert_eq!(due.next_task(), Some((at(120), Task::Ask)), "{name}");
            let decisions = ask(&mut due, 120, 120);
            assert_eq!(decisions.contains(&replan()), calls, "{name}");
            assert_eq!(ask(&mut due, 130, 130), [], "once is enough: {name}");
        }
    }

    #[test]
    fn what_changed_before_anybody_listened_is_planned_for() {
        let mut due = idle();
        // Netlink has failed and is there again; an address that came meanwhile nobody tells of.
        assert_eq!(due.start(lab().links, Vec::new(), at(600)), []);
        assert!(!due.is_quiet());
        assert_eq!(due.next_task(), Some((at(620), Task::Ask)));
        assert_eq!(ask(&mut due, 620, 621), [replan()]);
        assert_eq!(ask(&mut due, 630, 631), [], "once is enough");
        assert!(due.is_quiet());
    }

    #[test]
    fn a_link_as_it_was_is_no_news() {
        let mut due = idle();
        let link = NetworkEvent::LinkChanged(lab().links[1].clone());
        assert_eq!(due.hear(link, at(100)), Heard::Decisions(Vec::new()));
        assert_eq!(due.next_task(), None);
    }

    #[test]
    fn an_interface_that_goes_is_told_at_once_and_before_what_it_takes_along() {
        let mut due = waiting();
        let told = Decision::Tell(Notice::LinkGone(3));
        let lost = Decision::Change(Change::KernelSockets {
            server: ServerId(1),
            reason: "the interface of the route (index 3) is gone".to_owned(),
        });
        let heard = due.hear(NetworkEvent::LinkGone(3), at(100));
        assert_eq!(heard, Heard::Decisions(vec![told, lost]));
    }

    #[test]
    fn lost_events_have_everything_read_and_planned_anew() {
        let mut due = waiting();
        assert_eq!(due.hear(NetworkEvent::Lost, at(100)), Heard::TooMuch);
        due.read(lab().links, Vec::new(), at(105));
        assert_eq!(due.next_task(), Some((at(125), Task::Ask)));
        assert_eq!(ask(&mut due, 125, 125), [replan()]);
    }

    #[test]
    fn new_servers_are_asked_for_at_once_and_in_one_order() {
        let mut due = idle();
        due.hear(NetworkEvent::RouteChanged, at(100));
        let servers = [(1, "192.0.2.9"), (2, "2001:db8::9"), (3, "192.0.2.2")];
        let servers = servers.map(|(number, address)| watched(number, address));
        assert_eq!(due.watch(servers.into(), devices().into(), at(101)), []);
        assert_eq!(due.next_task(), Some((at(101), Task::Ask)));
        let sorted = ["192.0.2.2", "192.0.2.9", "2001:db8::9"].map(destination);
        assert_eq!(due.begin_asking(at(101)).destinations, sorted);
    }

    #[test]
    fn a_next_hop_that_is_not_known_is_knocked_at_twice_a_second_whatever_changes() {
        let mut due = waiting();
        assert_eq!(due.next_task(), Some((at(531), Task::Remind)));
        due.hear(NetworkEvent::RouteChanged, at(520));
        assert_eq!(due.next_task(), Some((at(531), Task::Remind)));
        assert_eq!(due.remind(at(531))[0], knock());
        assert_eq!(due.next_task(), Some((at(540), Task::Ask)));
        assert_eq!(ask(&mut due, 540, 541), []);
        assert_eq!(due.next_task(), Some((at(1_031), Task::Remind)));
    }

    #[test]
    fn a_next_hop_that_answers_is_used_and_nothing_more_is_due() {
        let mut due = waiting();
        let event = NetworkEvent::NeighbourChanged(Neighbour {
            interface: 3,
            address: ip("198.51.100.2"),
            mac: Some(BACKEND_MAC),
            stale: false,
        });
        let frames = Decision::Change(Change::Frames {
            server: ServerId(1),
            device: devices()[1].number,
            mac: BACKEND_MAC,
        });
        assert_eq!(due.hear(event, at(40)), Heard::Decisions(vec![frames]));
        assert_eq!(due.next_task(), None);
    }
}
