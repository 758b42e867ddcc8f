//! The steps, as somebody sees them who has no kernel.

use super::super::interfaces::QueueWish;
use super::*;

/// Has what it is told to have, and writes down what it does.
#[derive(Default)]
struct Script {
    keeping: Keeping,
    /// What a plan would be now.
    next: Option<Plan>,
    is_watching: bool,
    programs: Vec<Device>,
    /// By device and number.
    bound: Vec<(u8, u32)>,
    /// Queues of each interface, where they are to be known.
    queues: Option<u32>,
    taken_off: Vec<u32>,
    /// Not to be had, and not to be tried again yet.
    refused: Vec<Need>,
    /// Opening this queue ends everything.
    fatal: Option<u32>,
    steps: Vec<String>,
}

impl Script {
    /// With everything there that these devices need.
    fn with(devices: &[PlannedDevice]) -> Script {
        let mut script = Script {
            next: Some(plan(devices)),
            is_watching: true,
            ..Script::default()
        };
        replan(&mut script).expect("no step is fatal");
        script.steps.clear();
        script
    }

    fn replan(&mut self, devices: &[PlannedDevice]) -> Vec<String> {
        self.next = Some(plan(devices));
        replan(self).expect("no step is fatal");
        self.take_steps()
    }

    fn take_steps(&mut self) -> Vec<String> {
        std::mem::take(&mut self.steps)
    }

    fn note(&mut self, step: String) {
        self.steps.push(step);
    }
}

impl Hands for Script {
    type Error = u32;

    fn keeping(&self) -> &Keeping {
        &self.keeping
    }

    fn keeping_mut(&mut self) -> &mut Keeping {
        &mut self.keeping
    }

    fn plan(&mut self) -> Option<Plan> {
        self.next.clone()
    }

    fn is_watching(&self) -> bool {
        self.is_watching
    }

    fn device(&self, number: u8) -> Option<Device> {
        let mut programs = self.programs.iter();
        programs.find(|device| device.number == number).cloned()
    }

    fn devices(&self) -> Vec<Device> {
        self.programs.clone()
    }

    fn bound(&self, device: u8) -> Vec<u32> {
        let mine = self.bound.iter().filter(|(number, _)| *number == device);
        mine.map(|(_, queue)| *queue).collect()
    }

    fn queues_of(&self, _: &Device) -> Option<u32> {
        self.queues
    }

    fn taken_off(&self) -> Vec<u32> {
        self.taken_off.clone()
    }

    fn is_due(&self, need: Need) -> bool {
        !self.refused.contains(&need)
    }

    fn attach(&mut self, planned: &PlannedDevice) {
        self.programs.push(planned.device.clone());
        self.note(format!("attach {}", planned.device.number));
    }

    fn change(&mut self, old: &Device, new: &Device) {
        self.programs.retain(|device| device != old);
        self.programs.push(new.clone());
        self.note(format!("change {}: {}, {}", new.number, old.mtu, new.mtu));
    }

    fn link(&mut self, device: &Device, is_up: bool) {
        self.note(format!("link {}: {is_up}", device.number));
    }

    fn close(&mut self, device: &Device, queue: u32) {
        let gone = (device.number, queue);
        self.bound.retain(|bound| *bound != gone);
        self.note(format!("close {}/{queue}", device.number));
    }

    fn open(&mut self, device: &Device, queue: u32) -> Result<(), u32> {
        if self.fatal == Some(queue) {
            return Err(queue);
        }
        self.bound.push((device.number, queue));
        self.note(format!("open {}/{queue}", device.number));
        Ok(())
    }

    fn apply(&mut self, planned: &PlannedDevice) {
        self.note(format!("apply {}", planned.device.number));
    }

    fn clear_all_but(&mut self, plan: &Plan) {
        self.note(format!("clear all but {}", plan.devices.len()));
    }

    fn detach(&mut self, device: &Device, why: Change) {
        self.programs.retain(|known| known != device);
        self.bound.retain(|(number, _)| *number != device.number);
        self.note(format!("detach {}: {}", device.number, why.name()));
    }

    fn watch(&mut self) -> Result<(), u32> {
        self.note(format!("watch {}", self.keeping.plan.devices.len()));
        Ok(())
    }
}

fn device(number: u8, queues: &[u32]) -> PlannedDevice {
    let wish = |number: &u32| QueueWish {
        number: *number,
        map_path: None,
    };
    PlannedDevice {
        device: Device {
            number,
            interface: u32::from(number) + 10,
            name: format!("enp{number}s0"),
            mac: [2, 0, 0, 0, 0, number],
            mtu: 1_500,
            queues: 2,
            partial_checksums: false,
        },
        queues: queues.iter().map(wish).collect(),
        destinations: Vec::new(),
        backends: Vec::new(),
    }
}

fn plan(devices: &[PlannedDevice]) -> Plan {
    Plan {
        devices: devices.to_vec(),
        ..Plan::default()
    }
}

#[test]
fn a_first_plan_is_carried_out_a_device_at_a_time_and_then_watched() {
    let mut script = Script::default();
    let steps = script.replan(&[device(0, &[0, 1]), device(1, &[0])]);
    let expected = [
        "attach 0",
        "open 0/0",
        "open 0/1",
        "apply 0",
        "attach 1",
        "open 1/0",
        "apply 1",
        "clear all but 2",
        // By the new plan.
        "watch 2",
    ];
    assert_eq!(steps, expected);
}

#[test]
fn what_is_not_planned_is_closed_before_others_are_opened() {
    let mut script = Script::with(&[device(0, &[0, 1])]);
    let mut changed = device(0, &[1, 2]);
    changed.device.mtu = 9_000;
    let steps = script.replan(&[changed]);
    let expected = [
        "change 0: 1500, 9000",
        "close 0/0",
        "open 0/2",
        "apply 0",
        "clear all but 1",
        "watch 1",
    ];
    assert_eq!(steps, expected);
}

#[test]
fn the_same_plan_is_no_reason_to_do_anything_but_to_watch() {
    let devices = [device(0, &[0])];
    let mut script = Script::with(&devices);
    assert!(script.replan(&devices).is_empty());
    script.is_watching = false;
    let expected = ["apply 0", "clear all but 1", "watch 1"];
    assert_eq!(script.replan(&devices), expected);
}

/// A plan of these devices, whose links are all down.
fn silent(devices: &[PlannedDevice], is_named: bool) -> Plan {
    let interfaces = devices.iter().map(|planned| planned.device.interface);
    Plan {
        silent: interfaces.collect(),
        ..plan(if is_named { devices } else { &[] })
    }
}

/// Without a carrier a device stays in the plan; one that is down is in none.
#[test]
fn f22_a_link_that_goes_and_comes_is_told_once_each() {
    let devices = [device(0, &[0])];
    for is_named in [true, false] {
        let mut script = Script::with(&devices);
        for _ in 0..2 {
            script.next = Some(silent(&devices, is_named));
            assert_eq!(replan(&mut script), Ok(()));
        }
        assert_eq!(script.take_steps()[0], "link 0: false", "{is_named}");
        assert_eq!(script.replan(&devices)[0], "link 0: true", "{is_named}");
        assert!(script.replan(&devices).is_empty());
    }
}

/// It was down, and is deleted before it is up: nobody is told of a link that is up.
#[test]
fn a_link_that_is_gone_is_not_up_again() {
    let mut script = Script::with(&[device(0, &[0])]);
    script.next = Some(silent(&[device(0, &[0])], false));
    assert_eq!(replan(&mut script), Ok(()));
    script.take_steps();
    assert_eq!(script.replan(&[]), ["clear all but 0", "watch 0"]);
}

/// What was created down, and is up when it gets its program, has had no link before.
#[test]
fn a_device_that_is_new_has_no_link_that_is_up_again() {
    let mut script = Script::with(&[]);
    script.next = Some(silent(&[device(0, &[0])], false));
    assert_eq!(replan(&mut script), Ok(()));
    script.take_steps();
    assert_eq!(script.replan(&[device(0, &[0])])[0], "attach 0");
}

#[test]
fn without_a_plan_everything_stays() {
    let mut script = Script::with(&[device(0, &[0])]);
    (script.next, script.is_watching) = (None, false);
    assert_eq!(replan(&mut script), Ok(()));
    assert!(script.steps.is_empty());
    assert_eq!(script.keeping.plan.devices.len(), 1);
}

#[test]
fn a_program_that_was_refused_is_tried_again_when_it_is_due_and_no_queue_before() {
    let mut script = Script {
        refused: vec![Need::Program(0)],
        ..Script::default()
    };
    let steps = script.replan(&[device(0, &[0])]);
    assert_eq!(steps, ["apply 0", "clear all but 1", "watch 1"]);
    assert_eq!(look(&script), Look::AsPlanned);
    script.refused.clear();
    assert_eq!(look(&script), Look::Lacking);
    assert_eq!(steer_again(&mut script), Ok(()));
    assert_eq!(script.steps[..2], ["attach 0", "open 0/0"]);
    assert_eq!(look(&script), Look::AsPlanned);
}

#[test]
fn a_queue_that_was_refused_is_tried_again_alone() {
    let mut script = Script {
        refused: vec![Need::Queue(0, 1)],
        ..Script::default()
    };
    script.replan(&[device(0, &[0, 1])]);
    assert_eq!(look(&script), Look::AsPlanned);
    script.refused.clear();
    assert_eq!(look(&script), Look::Lacking);
    assert_eq!(steer_again(&mut script), Ok(()));
    let expected = ["open 0/1", "apply 0", "clear all but 1", "watch 1"];
    assert_eq!(script.steps, expected);
}

#[test]
fn another_number_of_queues_calls_for_a_plan_before_anything_is_tried_again() {
    let mut script = Script::with(&[device(0, &[0, 1])]);
    script.queues = Some(2);
    assert_eq!(look(&script), Look::AsPlanned);
    script.bound.clear();
    assert_eq!(look(&script), Look::Lacking);
    script.queues = Some(4);
    assert_eq!(look(&script), Look::Changed);
}

#[test]
fn an_interface_that_has_gone_is_planned_no_more() {
    let mut script = Script::with(&[device(0, &[0]), device(1, &[0])]);
    assert_eq!(lose(&mut script, 10, Change::InterfaceGone), Ok(()));
    let steps = script.take_steps();
    assert_eq!(steps, ["detach 0: interface-gone", "watch 1"]);
    // Once more, or one that was never ours.
    for interface in [10, 99] {
        assert_eq!(lose(&mut script, interface, Change::InterfaceGone), Ok(()));
        assert!(script.steps.is_empty(), "{interface}");
    }
    // It is there again before anybody has planned.
    let steps = script.replan(&[device(0, &[0]), device(1, &[0])]);
    assert_eq!(steps[..2], ["attach 0", "open 0/0"]);
}

#[test]
fn a_program_that_was_taken_off_is_planned_still() {
    let mut script = Script::with(&[device(0, &[0])]);
    script.taken_off = vec![10];
    assert_eq!(lose_taken_off(&mut script), Ok(()));
    assert_eq!(script.steps, ["detach 0: program-gone", "watch 1"]);
    assert_eq!(look(&script), Look::Lacking);
    script.refused = vec![Need::Program(0)];
    assert_eq!(look(&script), Look::AsPlanned);
}

#[test]
fn an_interface_that_goes_after_its_program_is_planned_no_more_either() {
    let mut script = Script::with(&[device(0, &[0]), device(1, &[0])]);
    assert_eq!(lose(&mut script, 10, Change::ProgramGone), Ok(()));
    let steps = script.take_steps();
    assert_eq!(steps, ["detach 0: program-gone", "watch 2"]);
    assert_eq!(lose(&mut script, 10, Change::InterfaceGone), Ok(()));
    assert!(script.steps.is_empty());
    assert_eq!(script.keeping.plan, plan(&[device(1, &[0])]));
    // Nothing is tried where there is nothing, and what comes back is planned for at once.
    assert_eq!(look(&script), Look::AsPlanned);
    let steps = script.replan(&[device(0, &[0]), device(1, &[0])]);
    assert_eq!(steps[..2], ["attach 0", "open 0/0"]);
}

#[test]
fn the_number_of_an_interface_that_went_without_a_word_is_of_use_to_another_one() {
    let mut script = Script::with(&[device(0, &[0])]);
    let mut other = device(0, &[0]);
    other.device.interface = 20;
    let steps = script.replan(&[other]);
    let expected = ["detach 0: interface-gone", "attach 0", "open 0/0"];
    assert_eq!(steps[..3], expected);
}

#[test]
fn what_no_plan_names_is_taken_off_when_that_is_asked_for() {
    let mut script = Script::with(&[device(0, &[0]), device(1, &[0])]);
    detach_unplanned(&mut script);
    assert!(script.steps.is_empty());
    let steps = script.replan(&[device(1, &[0])]);
    assert_eq!(steps, ["apply 1", "clear all but 1", "watch 1"]);
    detach_unplanned(&mut script);
    assert_eq!(script.steps, ["detach 0: detached"]);
}

#[test]
fn a_plan_that_could_not_be_had_is_asked_for_again() {
    let mut script = Script::with(&[device(0, &[0])]);
    script.next = None;
    assert_eq!(replan(&mut script), Ok(()));
    assert_eq!(look(&script), Look::Changed);
    let steps = script.replan(&[device(0, &[0, 1])]);
    assert_eq!(steps[0], "open 0/1");
    assert_eq!(look(&script), Look::AsPlanned);
}

#[test]
fn a_step_that_ends_everything_leaves_the_old_plan() {
    let mut script = Script::with(&[device(0, &[0])]);
    script.fatal = Some(1);
    script.next = Some(plan(&[device(0, &[0, 1]), device(1, &[0])]));
    assert_eq!(replan(&mut script), Err(1));
    assert!(script.steps.is_empty());
    assert_eq!(script.keeping.plan.devices.len(), 1);
}

#[test]
fn a_need_is_in_the_plans_that_name_it() {
    let plan = plan(&[device(1, &[0])]);
    for named in [Need::Program(1), Need::Queue(1, 0)] {
        assert!(named.is_in(&plan), "{named:?}");
    }
    for other in [Need::Program(0), Need::Queue(0, 0), Need::Queue(1, 1)] {
        assert!(!other.is_in(&plan), "{other:?}");
    }
}
