//! The kernel programs on our devices: what each takes from clients and backends, and which queues have a socket.
//!
//! Owned by the control thread. A program ends with its entry here, or with the process however that ends; then every
//! frame goes to the kernel.

use super::attached::Attached;
use super::devices::Device;
use super::plan::{BackendPair, Plan, PlannedDevice};
use super::status::{DeviceStatus, ProgramStatus, QueueStatus, Status};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use xsk::Heartbeat;

/// One device with its program.
pub struct Steered {
    pub device: Device,
    pub attached: Attached,
    entered: BTreeSet<u32>,
    /// Queues that are to have a socket.
    planned: BTreeSet<u32>,
    /// What is to be taken from clients.
    wanted: HashSet<SocketAddr>,
    /// What the program takes from them: all of that or nothing ([`Steered::may_take`]).
    destinations: HashSet<SocketAddr>,
    backends: HashSet<BackendPair>,
}

/// All devices with a program of ours, by number.
#[derive(Default)]
pub struct Steering {
    devices: BTreeMap<u8, Steered>,
    /// The backend ports in use: each must be known on every device where its address is asked from.
    ports: HashSet<(IpAddr, u16)>,
}

impl Steering {
    /// From now on a device has this program, with empty tables.
    pub fn insert(&mut self, device: &Device, attached: Attached) {
        let steered = Steered {
            device: device.clone(),
            attached,
            entered: BTreeSet::new(),
            planned: BTreeSet::new(),
            wanted: HashSet::new(),
            destinations: HashSet::new(),
            backends: HashSet::new(),
        };
        self.devices.insert(device.number, steered);
    }

    /// What is known of a device whose program we steer.
    pub fn device(&self, number: u8) -> Option<&Device> {
        self.devices.get(&number).map(|steered| &steered.device)
    }

    /// Whether the program on a device is our own, not one whose maps we use.
    pub fn is_ours(&self, number: u8) -> bool {
        let steered = self.devices.get(&number);
        steered.is_some_and(|steered| matches!(steered.attached, Attached::Ours(_)))
    }

    /// The device on an interface (index), if its program is ours to steer.
    pub fn device_on(&self, interface: u32) -> Option<&Device> {
        let mut devices = self.devices.values().map(|steered| &steered.device);
        devices.find(|device| device.interface == interface)
    }

    /// A device has another address of its own, name or largest packet.
    pub fn change(&mut self, device: &Device) {
        if let Some(steered) = self.devices.get_mut(&device.number) {
            steered.attached.set_mac(device.mac);
            steered.device = device.clone();
        }
    }

    /// What is needed to put a device's program on its link once more; see [`Attached::ends`].
    pub fn ends(&self, device: u8) -> xsk::Result<Option<Vec<OwnedFd>>> {
        let steered = self.devices.get(&device);
        steered.map_or(Ok(None), |steered| steered.attached.ends())
    }

    pub fn devices(&self) -> impl Iterator<Item = &Steered> {
        self.devices.values()
    }

    /// What this kernel can and cannot do for our program, a line each.
    pub fn features(&self) -> Vec<String> {
        let ours = self
            .devices
            .values()
            .find_map(|steered| match &steered.attached {
                Attached::Ours(program) => Some(program.features().to_vec()),
                Attached::Theirs(..) => None,
            });
        ours.unwrap_or_default()
    }

    /// The interfaces whose program somebody has taken off.
    pub fn taken_off(&self) -> Vec<u32> {
        let devices = self
            .devices
            .values()
            .filter(|steered| !steered.attached.is_there());
        devices.map(|steered| steered.device.interface).collect()
    }

    /// What there is, for `millrace xdp status`; `queues` tells of a device's sockets.
    pub fn status(&self, queues: impl Fn(&Steered) -> Vec<QueueStatus>) -> Status {
        let devices = self.devices.values().map(|steered| {
            let asked = |(source, _): &&(IpAddr, u16)| steered.asks_from(*source);
            let open_ports = self.ports.iter().filter(asked).count() as u32;
            steered.status(open_ports, queues(steered))
        });
        Status {
            devices: devices.collect(),
        }
    }

    /// The cell that the worker of a queue beats in.
    ///
    /// # Errors
    /// A device without a program of ours.
    pub fn heartbeat(&self, device: u8, queue: u32) -> xsk::Result<Option<Heartbeat>> {
        let steered = self.devices.get(&device);
        let steered =
            steered.ok_or_else(|| xsk::Error::Invalid(format!("no program on device {device}")))?;
        steered.attached.heartbeat(queue)
    }

    /// Takes what `planned` says from clients and backends, and no longer what it does not say; whether that is another
    /// thing for clients than before.
    pub fn apply(&mut self, planned: &PlannedDevice) -> xsk::Result<bool> {
        let Some(steered) = self.devices.get_mut(&planned.device.number) else {
            return Ok(false);
        };
        steered.planned = planned.queues.iter().map(|wish| wish.number).collect();
        steered.wanted = planned.destinations.iter().copied().collect();
        let changed = steered.settle_destinations()?;
        let backends = planned.backends.iter().copied().collect();
        steered.set_backends(backends, &self.ports)?;
        Ok(changed)
    }

    /// Devices that `plan` does not name take nothing any more; those that took something until now. Nothing comes by one that
    /// is down, and when it is up again it serves at once.
    pub fn clear_all_but(&mut self, plan: &Plan) -> Vec<Device> {
        let mut cleared = Vec::new();
        let named = |number| {
            plan.devices
                .iter()
                .any(|planned| planned.device.number == number)
        };
        for (&number, steered) in &mut self.devices {
            let sleeps = plan.down.contains(&steered.device.interface);
            if !named(number) && !sleeps {
                if !steered.destinations.is_empty() || !steered.backends.is_empty() {
                    cleared.push(steered.device.clone());
                }
                steered.wanted.clear();
                // The device may be gone, and its maps with it.
                let _ = steered.settle_destinations();
                let _ = steered.set_backends(HashSet::new(), &self.ports);
            }
        }
        cleared
    }

    /// Takes answers to this port of ours, on every device where its address is asked from. The kernel socket that holds
    /// the port is bound already.
    pub fn open_port(&mut self, source: IpAddr, port: u16) -> xsk::Result<()> {
        self.ports.insert((source, port));
        self.devices
            .values_mut()
            .try_for_each(|steered| steered.open_port(source, port))
    }

    /// Leaves answers to this port to the kernel socket that holds it.
    pub fn close_port(&mut self, source: IpAddr, port: u16) {
        self.ports.remove(&(source, port));
        for steered in self
            .devices
            .values_mut()
            .filter(|steered| steered.asks_from(source))
        {
            steered.attached.close_port(source, port);
        }
    }

    /// Last of all that is done to start: from now on the queue's frames come to the socket; whether other addresses and ports
    /// are taken from clients than before.
    pub fn enter(&mut self, device: u8, queue: u32, socket: &impl AsFd) -> xsk::Result<bool> {
        let Some(steered) = self.devices.get_mut(&device) else {
            return Ok(false);
        };
        steered.attached.enter(queue, socket)?;
        steered.entered.insert(queue);
        steered.sockets_changed()
    }

    /// The addresses and ports that a device's program takes from clients, in their order.
    pub fn taken(&self, device: u8) -> Vec<SocketAddr> {
        let steered = self.devices.get(&device);
        steered.map_or_else(Vec::new, Steered::taken)
    }

    /// From now on the queue's frames go to the kernel's sockets.
    pub fn leave(&mut self, device: u8, queue: u32) {
        if let Some(steered) = self.devices.get_mut(&device)
            && steered.entered.remove(&queue)
        {
            // The device may be gone, and its map entries with it.
            let _ = steered.sockets_changed();
            let _ = steered.attached.leave(queue);
        }
    }

    /// First of all that is done to stop: from now on all frames go to the kernel's sockets.
    pub fn leave_all(&mut self) {
        for steered in self.devices.values_mut() {
            let entered = std::mem::take(&mut steered.entered);
            // The device may be gone, and its map entries with it.
            let _ = steered.sockets_changed();
            for queue in entered {
                let _ = steered.attached.leave(queue);
            }
        }
    }

    /// Takes the program off a device that is needed no more.
    pub fn detach(&mut self, device: u8) {
        if let Some(steered) = self.devices.remove(&device) {
            steered.attached.let_go();
        }
    }
}

impl Steered {
    /// Whether the program hands frames of this queue to a socket.
    pub fn is_entered(&self, queue: u32) -> bool {
        self.entered.contains(&queue)
    }

    fn status(&self, open_ports: u32, mut queues: Vec<QueueStatus>) -> DeviceStatus {
        queues.sort_unstable_by_key(|queue| queue.number);
        let destinations = self.taken();
        let pairs = self.backends.iter();
        let mut backends: Vec<_> = pairs.map(|pair| (pair.source, pair.backend)).collect();
        backends.sort_unstable();
        let verdicts = self.attached.verdicts();
        DeviceStatus {
            interface: self.device.name.clone(),
            index: self.device.interface,
            mac: self.device.mac,
            mtu: self.device.mtu,
            program: self.program_status(),
            destinations,
            backends,
            open_ports,
            verdicts: verdicts
                .filter(|(_, frames)| *frames > 0)
                .map(|(reason, frames)| (reason.name().to_owned(), frames))
                .collect(),
            queues,
        }
    }

    fn taken(&self) -> Vec<SocketAddr> {
        let mut destinations: Vec<_> = self.destinations.iter().copied().collect();
        destinations.sort_unstable();
        destinations
    }

    fn program_status(&self) -> ProgramStatus {
        match &self.attached {
            Attached::Theirs(_, map_path) => ProgramStatus::Foreign {
                map_path: map_path.clone(),
            },
            Attached::Ours(program) if !program.is_attached() => ProgramStatus::Detached,
            Attached::Ours(program) => ProgramStatus::Attached {
                native: self.attached.is_native(),
                features: program.features().to_vec(),
            },
        }
    }

    /// Queues whose frames come to a socket of ours.
    pub fn queues(&self) -> impl Iterator<Item = u32> {
        self.entered.iter().copied()
    }

    fn asks_from(&self, source: IpAddr) -> bool {
        self.backends.iter().any(|pair| pair.source == source)
    }

    fn open_port(&mut self, source: IpAddr, port: u16) -> xsk::Result<()> {
        if !self.asks_from(source) {
            return Ok(());
        }
        self.attached.open_port(source, port)
    }

    /// Has the ports open whose address is asked from, and no others: an address that is asked from no more leaves its bitmap
    /// to the next one.
    fn settle_ports(&mut self, ports: &HashSet<(IpAddr, u16)>) -> xsk::Result<()> {
        for &(source, port) in ports {
            match self.asks_from(source) {
                true => self.attached.open_port(source, port)?,
                false => self.attached.close_port(source, port),
            }
        }
        Ok(())
    }

    /// Whether nothing is lost by what the program takes: somebody else's loses it on a queue without a socket, so it takes
    /// nothing before all have one, and nothing any more before the first of them goes.
    fn may_take(&self) -> bool {
        self.attached.passes_without_socket() || all_have_sockets(&self.planned, &self.entered)
    }

    /// A queue has a socket now, or is to lose it: what somebody else's program may take is another thing then; whether it is.
    fn sockets_changed(&mut self) -> xsk::Result<bool> {
        if self.attached.passes_without_socket() {
            return Ok(false);
        }
        let has_changed = self.settle_destinations()?;
        if has_changed && self.destinations.is_empty() {
            // What the program has found in its map already is to find a socket too.
            xsk::settle();
        }
        Ok(has_changed)
    }

    /// Has the program take what is wanted from clients, when it may; whether that is another thing than before.
    fn settle_destinations(&mut self) -> xsk::Result<bool> {
        let wanted = match self.may_take() {
            true => self.wanted.clone(),
            false => HashSet::new(),
        };
        let changed = wanted != self.destinations;
        let gone: Vec<_> = self.destinations.difference(&wanted).copied().collect();
        for gone in gone {
            self.attached.unserve(gone)?;
            self.destinations.remove(&gone);
        }
        // Each is noted when it is there: where the map has no room for all, those that are there go again.
        for new in wanted {
            if !self.destinations.contains(&new) {
                self.attached.serve(new)?;
                self.destinations.insert(new);
            }
        }
        Ok(changed)
    }

    /// Has the program take answers from these and no others, to those of `ports` that they are for. Where there is no room for
    /// all, the others are taken.
    fn set_backends(
        &mut self,
        wanted: HashSet<BackendPair>,
        ports: &HashSet<(IpAddr, u16)>,
    ) -> xsk::Result<()> {
        let gone: Vec<_> = self.backends.difference(&wanted).copied().collect();
        for gone in gone {
            self.attached.remove_backend(&gone)?;
            self.backends.remove(&gone);
        }
        // Addresses that are asked from no more make room before others need it.
        self.settle_ports(ports)?;
        let mut outcome = Ok(());
        for new in wanted {
            outcome = outcome.and(self.add_backend(new));
        }
        self.settle_ports(ports)?;
        outcome
    }

    /// Each is noted when it is there, so that it goes again.
    fn add_backend(&mut self, pair: BackendPair) -> xsk::Result<()> {
        if !self.backends.contains(&pair) {
            self.attached.add_backend(&pair)?;
            self.backends.insert(pair);
        }
        Ok(())
    }
}

/// Whether a frame on any of these queues finds a socket.
fn all_have_sockets(planned: &BTreeSet<u32>, entered: &BTreeSet<u32>) -> bool {
    !entered.is_empty() && planned.is_subset(entered)
}

#[cfg(test)]
mod tests {
    use super::super::devices::Devices;
    use super::super::fixtures::{ip, lab};
    use super::*;
    use xsk::Program;

    #[test]
    fn a_queue_without_a_socket_keeps_somebody_elses_program_from_taking_anything() {
        let queues = |numbers: &[u32]| numbers.iter().copied().collect::<BTreeSet<u32>>();
        let both = queues(&[0, 1]);
        let too_few: [&[u32]; 4] = [&[], &[0], &[1], &[2]];
        for entered in too_few {
            assert!(!all_have_sockets(&both, &queues(entered)), "{entered:?}");
        }
        assert!(all_have_sockets(&both, &both));
        // One more, which the plan has no longer, until it is closed.
        assert!(all_have_sockets(&both, &queues(&[0, 1, 2])));
        assert!(!all_have_sockets(&queues(&[]), &queues(&[])), "nothing yet");
    }

    /// A device with our program. `None`: this needs root.
    fn with_program() -> Option<(Device, Steering)> {
        if !nix::unistd::geteuid().is_root() {
            println!("SKIP: loading the kernel program needs root");
            return None;
        }
        let device = Devices::default().device(&lab().links[2]);
        let device = device.expect("an Ethernet interface");
        let mut steering = Steering::default();
        let program = Program::load().expect("the kernel takes it");
        steering.insert(&device, Attached::Ours(program));
        Some((device, steering))
    }

    /// The program's map has room for 4,096.
    #[test]
    fn destinations_that_were_too_many_go_again() {
        let Some((device, mut steering)) = with_program() else {
            return;
        };
        let served = |count: u16| PlannedDevice {
            device: device.clone(),
            queues: Vec::new(),
            destinations: (1..=count)
                .map(|port| SocketAddr::new(ip("192.0.2.1"), port))
                .collect(),
            backends: Vec::new(),
        };
        let error = steering.apply(&served(4_097));
        let reason = error.expect_err("no room for all").to_string();
        assert!(reason.contains("room for 4096 addresses"), "{reason}");
        for count in [1, 4_096] {
            assert!(steering.apply(&served(count)).expect("room"), "{count}");
            let status = steering.status(|_| Vec::new());
            assert_eq!(status.devices[0].destinations.len(), usize::from(count));
        }
    }

    /// A program has room for 16 addresses of ours. Routes that move may name more in turn, whose ports are read for a while.
    #[test]
    fn an_address_that_is_asked_from_no_more_makes_room_for_another() {
        let Some((device, mut steering)) = with_program() else {
            return;
        };
        let ports = 20_000..20_003;
        for number in 1..=40 {
            let source = IpAddr::from([198, 51, 100, number]);
            let pair = BackendPair {
                source,
                backend: SocketAddr::new(ip("192.0.2.2"), 53),
            };
            let planned = PlannedDevice {
                device: device.clone(),
                queues: Vec::new(),
                destinations: Vec::new(),
                backends: vec![pair],
            };
            let applied = steering.apply(&planned);
            assert!(!applied.expect("room"), "nothing is new for clients");
            for port in ports.clone() {
                steering.open_port(source, port).expect("room");
            }
        }
        assert_eq!(steering.ports.len(), 40 * ports.len());
        let nothing = Plan::default();
        assert_eq!(steering.clear_all_but(&nothing), [device]);
    }

    #[test]
    fn all_addresses_may_move_at_once_and_too_many_go_again() {
        let Some((device, mut steering)) = with_program() else {
            return;
        };
        let source = |number: u8| IpAddr::from([198, 51, 100, number]);
        for number in 1..100 {
            let opened = steering.open_port(source(number), 20_000);
            opened.expect("nobody is asked yet");
        }
        let pair = |number: u8| BackendPair {
            source: source(number),
            backend: SocketAddr::new(ip("192.0.2.2"), 53),
        };
        let planned = |numbers: std::ops::Range<u8>| PlannedDevice {
            device: device.clone(),
            queues: Vec::new(),
            destinations: Vec::new(),
            backends: numbers.map(pair).collect(),
        };
        let taken = |steering: &Steering| {
            let status = steering.status(|_| Vec::new());
            status.devices[0].backends.len()
        };
        for numbers in [1..17, 21..37] {
            steering.apply(&planned(numbers)).expect("room");
            assert_eq!(taken(&steering), 16);
        }
        let error = steering.apply(&planned(41..58));
        let reason = error.expect_err("no room for all").to_string();
        assert!(reason.contains("one source address too many"), "{reason}");
        assert_eq!(taken(&steering), 16);
        steering.apply(&planned(61..77)).expect("room");
        assert_eq!(taken(&steering), 16);
    }

    #[test]
    fn queues_are_listed_by_number_whichever_came_first() {
        let Some((_, steering)) = with_program() else {
            return;
        };
        let queue = |number| QueueStatus {
            number,
            zero_copy: false,
            is_polled: false,
            entered: true,
            heartbeat: 0,
            received: 0,
            sent: 0,
            frames: String::new(),
        };
        let status = steering.status(|_| [1, 10, 0].map(queue).into());
        let numbers = status.devices[0].queues.iter().map(|queue| queue.number);
        assert_eq!(numbers.collect::<Vec<u32>>(), [0, 1, 10]);
    }
}
