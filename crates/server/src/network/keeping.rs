//! Keeps programs, queues and tables as planned: which steps that takes, and in which order. No I/O: [`Hands`] do the steps,
//! those of the daemon with the kernel, those of the simulation without one.
//!
//! ```text
//!  netlink, reload ─▶ replan ─┐
//!  once a second ───▶ look ───┴▶ steer ─▶ each device: attach or change, close what is not planned,
//!                                         open what is missing, apply; then clear the rest, watch
//!  gone, taken off ─▶ lose ─────────────▶ detach, watch
//!  reload ──────────▶ detach_unplanned ─▶ detach
//! ```

use super::changes::Change;
use super::devices::{Device, Devices};
use super::plan::{Plan, PlannedDevice};
use std::time::Instant;

/// What is kept.
#[derive(Debug, Default)]
pub struct Keeping {
    /// What everything was brought in line with last, as far as it could be had.
    pub plan: Plan,
    /// The numbers that devices have, in this plan and the next ones.
    pub devices: Devices,
    /// A plan was due and could not be had: it is asked for again, for nobody may tell of anything more.
    pub is_overdue: bool,
}

impl Keeping {
    pub fn new(plan: Plan, devices: Devices) -> Keeping {
        Keeping {
            plan,
            devices,
            is_overdue: false,
        }
    }
}

/// Something that a plan names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Need {
    /// The program of the device with this number.
    Program(u8),
    /// A queue of a device, by their numbers.
    Queue(u8, u32),
}

impl Need {
    /// The number of the device.
    pub fn device(self) -> u8 {
        match self {
            Need::Program(device) | Need::Queue(device, _) => device,
        }
    }

    /// Whether a plan names it.
    pub fn is_in(self, plan: &Plan) -> bool {
        plan.devices.iter().any(|planned| match self {
            Need::Program(device) => planned.device.number == device,
            Need::Queue(device, number) => {
                planned.device.number == device
                    && planned.queues.iter().any(|wish| wish.number == number)
            }
        })
    }
}

/// What a look at what nobody tells of calls for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Look {
    /// Nothing: all is as planned, or not to be tried again yet.
    AsPlanned,
    /// The next plan may be another one: [`replan`].
    Changed,
    /// Something is not there and is to be tried again: [`steer_again`].
    Lacking,
}

/// Whoever has the programs, the queues and the tables: tells what there is, and does one step at a time.
pub trait Hands {
    /// Why a step ends all that is being done. What is only refused is none: it is looked for again.
    type Error;

    /// What is kept.
    fn keeping(&self) -> &Keeping;

    /// The same, to be changed.
    fn keeping_mut(&mut self) -> &mut Keeping;

    /// A plan for the network as it is now. `None`: it cannot be known, and everything stays as it is.
    fn plan(&mut self) -> Option<Plan>;

    /// Whether the ways to servers are followed ([`Hands::watch`]).
    fn is_watching(&self) -> bool;

    /// What is known of the device with this number; only if it has a program.
    fn device(&self, number: u8) -> Option<Device>;

    /// What is known of the devices that have a program.
    fn devices(&self) -> Vec<Device>;

    /// The queues of the device with this number that have a socket, or are about to.
    fn bound(&self, device: u8) -> Vec<u32>;

    /// How many queues the device's interface has now, where that can be known.
    fn queues_of(&self, device: &Device) -> Option<u32>;

    /// The interfaces (by index) whose program is there no more.
    fn taken_off(&self) -> Vec<u32>;

    /// Whether something that is not there is to be tried now: it is not under way, nor was it refused just now.
    fn is_due(&self, need: Need) -> bool;

    /// Gets a device its program.
    fn attach(&mut self, planned: &PlannedDevice);

    /// A device's own address, name, largest packet or number of queues is another one.
    fn change(&mut self, old: &Device, new: &Device);

    /// A device's link is up again, or it is down or has no carrier: nothing comes by it, and all that is there stays.
    fn link(&mut self, device: &Device, is_up: bool);

    /// Closes a queue. It need not be closed when this returns.
    fn close(&mut self, device: &Device, queue: u32);

    /// Has a queue bound. It need not be when this returns.
    ///
    /// # Errors
    /// Everything ends.
    fn open(&mut self, device: &Device, queue: u32) -> Result<(), Self::Error>;

    /// Tells a device's program, if it has one, what is ours.
    fn apply(&mut self, planned: &PlannedDevice);

    /// All devices that `plan` names are as it says: the others take nothing any more, but for those that are down; and nothing
    /// is believed that says to come from the plan's impossible sources.
    fn clear_all_but(&mut self, plan: &Plan);

    /// A device has gone, its program was taken off it, or is not needed there any more: closes its queues and forgets it.
    fn detach(&mut self, device: &Device, why: Change);

    /// Has the ways to servers followed, as planned, over the devices that have a program.
    ///
    /// # Errors
    /// Everything ends.
    fn watch(&mut self) -> Result<(), Self::Error>;
}

/// Plans for the network as it is now, and does what is new.
///
/// # Errors
/// Those of a step; the old plan is kept.
pub fn replan<H: Hands>(hands: &mut H) -> Result<(), H::Error> {
    let plan = hands.plan();
    hands.keeping_mut().is_overdue = plan.is_none();
    match plan {
        Some(plan) if plan != hands.keeping().plan || !hands.is_watching() => steer(hands, plan),
        _ => Ok(()),
    }
}

/// Has the plan carried out that is kept: what could not be had may be there now.
///
/// # Errors
/// Those of a step.
pub fn steer_again<H: Hands>(hands: &mut H) -> Result<(), H::Error> {
    let plan = hands.keeping().plan.clone();
    steer(hands, plan)
}

/// Brings everything in line with `plan`.
fn steer<H: Hands>(hands: &mut H, plan: Plan) -> Result<(), H::Error> {
    tell_of_links(hands, &plan);
    for planned in &plan.devices {
        attach_or_change(hands, planned);
        close_unplanned(hands, planned);
        open_missing(hands, planned)?;
        hands.apply(planned);
    }
    hands.clear_all_but(&plan);
    hands.keeping_mut().plan = plan;
    hands.watch()
}

/// Of those that have a program already: whoever gets one now has no link that was another.
fn tell_of_links<H: Hands>(hands: &mut H, plan: &Plan) {
    for device in hands.devices() {
        let was_silent = hands.keeping().plan.silent.contains(&device.interface);
        let is_silent = plan.silent.contains(&device.interface);
        // One that is not named may be gone, which is told as such.
        let is_named = Need::Program(device.number).is_in(plan);
        if is_silent != was_silent && (is_silent || is_named) {
            hands.link(&device, !is_silent);
        }
    }
}

fn attach_or_change<H: Hands>(hands: &mut H, planned: &PlannedDevice) {
    let device = &planned.device;
    let known = hands.device(device.number);
    // Nobody has told of the end of the interface that had this number before.
    if let Some(gone) = known.filter(|known| known.interface != device.interface) {
        hands.detach(&gone, Change::InterfaceGone);
    }
    match hands.device(device.number) {
        None if hands.is_due(Need::Program(device.number)) => hands.attach(planned),
        Some(known) if known != *device => hands.change(&known, device),
        _ => {}
    }
}

/// Closes queues that the device has no more, or that nobody wants.
fn close_unplanned<H: Hands>(hands: &mut H, planned: &PlannedDevice) {
    let device = &planned.device;
    for queue in hands.bound(device.number) {
        if planned.queues.iter().all(|wish| wish.number != queue) {
            hands.close(device, queue);
        }
    }
}

fn open_missing<H: Hands>(hands: &mut H, planned: &PlannedDevice) -> Result<(), H::Error> {
    let device = &planned.device;
    if hands.device(device.number).is_none() {
        return Ok(());
    }
    missing(hands, planned)
        .into_iter()
        .try_for_each(|queue| hands.open(device, queue))
}

/// Queues that are planned, not there, and to be tried now.
fn missing<H: Hands>(hands: &H, planned: &PlannedDevice) -> Vec<u32> {
    let device = planned.device.number;
    let bound = hands.bound(device);
    let queues = planned.queues.iter().map(|wish| wish.number);
    queues
        .filter(|queue| !bound.contains(queue) && hands.is_due(Need::Queue(device, *queue)))
        .collect()
}

/// Takes programs off devices that the plan does not name. [`Hands::watch`] is due after that.
pub fn detach_unplanned<H: Hands>(hands: &mut H) {
    for device in hands.devices() {
        if !Need::Program(device.number).is_in(&hands.keeping().plan) {
            hands.detach(&device, Change::Detached);
        }
    }
}

/// Looks at what nobody tells of: a plan that could not be had, interfaces with another number of queues than planned, and
/// what may be had by now.
pub fn look<H: Hands>(hands: &H) -> Look {
    let keeping = hands.keeping();
    let devices = &keeping.plan.devices;
    let has_other_queues = |planned: &PlannedDevice| {
        let queues = hands.queues_of(&planned.device);
        queues.is_some_and(|queues| queues != planned.device.queues)
    };
    if keeping.is_overdue || devices.iter().any(has_other_queues) {
        return Look::Changed;
    }
    match devices.iter().any(|planned| is_lacking(hands, planned)) {
        true => Look::Lacking,
        false => Look::AsPlanned,
    }
}

/// Whether something of a device is to be tried again.
fn is_lacking<H: Hands>(hands: &H, planned: &PlannedDevice) -> bool {
    let device = planned.device.number;
    match hands.device(device) {
        None => hands.is_due(Need::Program(device)),
        Some(_) => !missing(hands, planned).is_empty(),
    }
}

/// Gives up the devices whose program is there no more, which nobody tells of either.
///
/// # Errors
/// Those of a step.
pub fn lose_taken_off<H: Hands>(hands: &mut H) -> Result<(), H::Error> {
    for interface in hands.taken_off() {
        lose(hands, interface, Change::ProgramGone)?;
    }
    Ok(())
}

/// The interface with this index was deleted, or its program was taken off it: nothing comes by its sockets any more. Both may
/// be noticed, one after the other.
///
/// # Errors
/// Those of a step.
pub fn lose<H: Hands>(hands: &mut H, interface: u32, why: Change) -> Result<(), H::Error> {
    let is_it = |device: &Device| device.interface == interface;
    let device = hands.devices().into_iter().find(is_it);
    if let Some(device) = &device {
        hands.detach(device, why);
    }
    if why != Change::ProgramGone {
        // The next plan must be another one, even if the interface comes back at once.
        let Keeping { plan, devices, .. } = hands.keeping_mut();
        devices.retire(interface, Instant::now());
        plan.devices.retain(|planned| !is_it(&planned.device));
    }
    // One without a program was not watched.
    device.map_or(Ok(()), |_| hands.watch())
}

#[cfg(test)]
mod tests;
