//! What must hold after each step, and at rest.

use super::clients::{FAMILIES, Kind, service};
use super::keys;
use super::network::{Network, QUEUES, Side};
use super::parties::RINGS;
use super::world::World;
use super::{Checked, Violation};
use crate::backend::lazy::Sample;
use crate::backend::server::Server;
use crate::network::plan::BackendPair;
use crate::pipeline::drop::DropReason;
use std::time::Duration;
use wire::frame::{Family, Packet};

/// I9: service is normal so long after the last fault is over, or so long where an interface is new, as after a reset.
const RECOVERY: Duration = Duration::from_secs(1);
const RECOVERY_AFTER_RESET: Duration = Duration::from_secs(5);

/// Why an accepted query has no answer, counted by workers.
const REASONS: [DropReason; 5] = [
    DropReason::Rule,
    DropReason::NoServer,
    DropReason::ExchangesFull,
    DropReason::SendFailed,
    DropReason::RingFull,
];

/// A key is kept back for 250 ms after an answer: so long is between the queries at rest, because keys are few.
const BETWEEN: Duration = Duration::from_millis(300);

/// What a missing answer breaks.
fn name(had_junk: bool) -> &'static str {
    match had_junk {
        true => "I7",
        false => "I1",
    }
}

impl World<'_> {
    /// I3: no frame has two owners or none.
    pub(super) fn check_frames(&self) -> Checked {
        for (number, party) in self.parties.iter().enumerate() {
            let devices = party.worker.devices();
            let (census, frames) = devices.census();
            let queues = party
                .ends
                .keys()
                .filter_map(|device| devices.queue(*device));
            let bad: u64 = queues
                .map(|queue| queue.socket.counters().bad_addresses)
                .sum();
            if census.total() != frames || census.pipeline > 0 || bad > 0 {
                let what =
                    format!("worker {number} of {frames}: {census:?}, {bad} given back twice");
                return Err(Violation::new("I3", what));
            }
        }
        Ok(())
    }

    /// I3, at rest: what no open queue can receive into is free, whatever queues there were before.
    pub(super) fn check_owners(&self) -> Checked {
        self.check_frames()?;
        for (number, party) in self.parties.iter().enumerate() {
            let (census, frames) = party.worker.devices().census();
            let open = party.ends.len() as u32;
            let is_right = census.fill <= open * RINGS.fill
                && census.rx == 0
                && census.tx == 0
                && census.quarantine == 0;
            if !is_right {
                let what =
                    format!("worker {number} of {frames} at rest, {open} queues open: {census:?}");
                return Err(Violation::new("I3", what));
            }
        }
        Ok(())
    }

    /// I4: what the program gives to the socket of `device` has one there, and is ours.
    pub(super) fn check_claim(
        &self,
        worker: usize,
        (device, queue): (u8, u32),
        packet: &Packet,
    ) -> Checked {
        let party = &self.parties[worker];
        let is_open = party.worker.devices().socket(device, queue).is_some();
        if !is_open || !party.ends.contains_key(&device) {
            let what = format!("queue {queue} of device {device} is closed and claims {packet:?}");
            return Err(Violation::new("I4", what));
        }
        // What has just changed the control thread may not know yet.
        let to = packet.destination;
        if self.follower.is_quiet() && !self.network.has_address(to.ip()) {
            return Err(Violation::new("I4", format!("{to} is not ours any more")));
        }
        Ok(())
    }

    /// How long service may take to be normal again.
    pub(super) fn recovery(&self) -> Duration {
        match self.network.is_new() {
            true => RECOVERY_AFTER_RESET,
            false => RECOVERY,
        }
    }

    /// I9: nothing is amiss any more: queries come by rings, and servers are reached by them.
    pub(super) fn check_recovered(&self) -> Checked {
        let clients = self.network.receiver(Side::Clients);
        let clients = clients.map_or(0, |(interface, _)| interface);
        for service in FAMILIES.map(service) {
            let is_served = |queue| self.programs.serves(clients, queue, service);
            if !(0..QUEUES).all(is_served) {
                let what = format!("not all queues take queries to {service}");
                return Err(Violation::new("I9", what));
            }
        }
        let config = self.instance.config.load();
        let mut servers = config.servers.iter();
        servers.try_for_each(|server| self.check_way(server))
    }

    fn check_way(&self, server: &Server) -> Checked {
        let backend = server.options.address;
        let family = Family::of(&backend);
        // That it was given up for a while is no fault of the network's.
        server.xsk.resume();
        let way = self.network.way_to_backends(family);
        let device = way.and_then(|(interface, mac)| {
            let device = self.programs.device_on(interface)?;
            Some((device, mac))
        });
        let pair = BackendPair {
            source: Network::source(family),
            backend,
        };
        let is_expected =
            way.is_some_and(|(interface, _)| self.programs.expects(interface, QUEUES, &pair));
        if device.is_none() || server.xsk.get() != device || !is_expected {
            let is = server.xsk.get();
            let what = format!(
                "{backend} is reached by {is:?} instead of {device:?}; its answers are expected: {is_expected}"
            );
            return Err(Violation::new("I9", what));
        }
        Ok(())
    }

    /// I1: what has no answer has a reason that was counted. I6: nothing is waited for any more.
    pub(super) fn check_counts(&self) -> Checked {
        let in_flight = self.instance.in_flight();
        if in_flight != 0 {
            return Err(Violation::new(
                "I6",
                format!("{in_flight} queries in flight at rest"),
            ));
        }
        let dropped: u64 = REASONS.map(|reason| self.drops(reason)).iter().sum();
        let [late, late_legs] = [false, true].map(|several| self.timeouts(several));
        let asked = self.clients.asked.iter();
        let silent = asked.filter(|asked| asked.accepted && asked.answers == 0);
        let (excused, silent): (Vec<_>, Vec<_>) = silent.partition(|asked| asked.excused);
        let had_junk = silent.iter().any(|asked| asked.heard.has_junk());
        let (silent, excused) = (silent.len() as u64, excused.len() as u64);
        // A leg that timed out says nothing of its query, and of the excused we do not know.
        let is_exact = excused == 0 && !self.has_asked_several();
        let is_right = match is_exact {
            true => silent == dropped + late,
            false => silent <= dropped + late + late_legs,
        };
        if !is_right {
            let what = format!(
                "{silent} queries without an answer ({excused} excused), {dropped} dropped, {late} and {late_legs} timed out"
            );
            return Err(Violation::new(name(had_junk), what));
        }
        self.check_races()
    }

    /// I7: no server is thought ill of for anything but queries that it did not get, or did not answer in time.
    pub(super) fn check_servers(&self) -> Checked {
        for server in &self.instance.config.load().servers {
            let unanswered = server.timeouts.sum() + server.send_errors.sum();
            let failures = server.sample.as_deref().map_or(0, Sample::failures);
            if failures > unanswered || !server.state.is_up() {
                let what = format!(
                    "{} is {}: {failures} queries are said to have failed, {unanswered} have",
                    server.options.address,
                    server.state.word()
                );
                return Err(Violation::new("I7", what));
            }
        }
        Ok(())
    }

    /// A good answer that comes in time is the client's (I1), whatever junk came before (I7); of queries that several servers
    /// were asked every other one is counted.
    fn check_races(&self) -> Checked {
        let is_full = self.drops(DropReason::RingFull) > 0;
        for (serial, asked) in self.clients.asked.iter().enumerate() {
            let is_owed = asked.answers == 0 && !asked.excused && !is_full;
            if is_owed && asked.heard.first_good().is_some() {
                let what = format!("number {serial} has a good answer and got none: {asked:?}");
                return Err(Violation::new(name(asked.heard.has_junk()), what));
            }
        }
        let losers: u64 = self
            .clients
            .asked
            .iter()
            .map(|asked| asked.heard.losers())
            .sum();
        let counted = self.drops(DropReason::ResponseLost) + self.drops(DropReason::ResponseHeld);
        if losers > counted {
            let what = format!("{losers} answers came too late to win, {counted} were counted");
            return Err(Violation::new("I1", what));
        }
        Ok(())
    }

    fn has_asked_several(&self) -> bool {
        let mut asked = self.clients.asked.iter();
        asked.any(|asked| asked.kind.asks_several())
    }

    fn drops(&self, reason: DropReason) -> u64 {
        let shards = self.instance.shards.iter();
        shards.map(|shard| shard.drops(reason)).sum()
    }

    /// Queries that timed out at servers which are asked alone, or with others.
    fn timeouts(&self, several: bool) -> u64 {
        let config = self.instance.config.load();
        let servers = config.servers.iter();
        let servers = servers
            .filter(|server| super::backend::is_one_of_several(server.options.address) == several);
        servers.map(|server| server.timeouts.sum()).sum()
    }

    /// I9: everything is answered once nothing is wrong any more.
    pub(super) fn check_service(&mut self) -> Checked {
        self.is_at_rest = true;
        for (kind, family) in Kind::ALL
            .into_iter()
            .flat_map(|kind| FAMILIES.map(|family| (kind, family)))
        {
            self.check_served(kind, family)?;
        }
        (0..keys::IN_A_ROW).try_for_each(|_| self.check_served(Kind::Fresh, Family::V4))?;
        self.check_owners()
    }

    fn check_served(&mut self, kind: Kind, family: Family) -> Checked {
        let frame = self.clients.ask_for(kind, family, &mut self.random);
        if !self.bring(&frame, 0)? {
            return Err(Violation::new("I9", "no ring takes a query at rest"));
        }
        self.settle()?;
        let answers = self.backend.answer_all();
        self.deliver(answers)?;
        self.settle()?;
        let asked = self.clients.asked.last().expect("it was just asked");
        if (asked.answers == 1) != (kind != Kind::Dropped) {
            return Err(Violation::new("I9", format!("{asked:?} at rest")));
        }
        self.pass(BETWEEN)
    }

    /// I2: what leaves comes from the interface's own Ethernet address, once its changes are known.
    pub(super) fn check_source(&self, interface: u32, packet: &Packet) -> Checked {
        let mac = self.network.mac(interface);
        if !self.is_at_rest || mac == Some(packet.source_mac) {
            return Ok(());
        }
        let what = format!("{packet:?} left by an interface with the address {mac:?}");
        Err(Violation::new("I2", what))
    }
}
