//! Unit tests of `ring.rs`: both halves on one memory, by one thread: positions anywhere, also where they wrap; the other side may be broken.

use std::cell::Cell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;

use proptest::prelude::*;

use crate::ring::{Consumer, NEED_WAKEUP, Producer, Shared};
use crate::sync::AtomicU32;

const SIZE: u32 = 8;

struct Memory {
    producer: AtomicU32,
    consumer: AtomicU32,
    flags: AtomicU32,
    slots: [Cell<u64>; SIZE as usize],
}

impl Memory {
    /// Empty, both positions here.
    fn at(position: u32) -> Rc<Memory> {
        Rc::new(Memory {
            producer: AtomicU32::new(position),
            consumer: AtomicU32::new(position),
            flags: AtomicU32::new(0),
            slots: Default::default(),
        })
    }
}

impl Shared for Rc<Memory> {
    type Slot = u64;

    fn size(&self) -> u32 {
        SIZE
    }

    fn producer(&self) -> &AtomicU32 {
        &self.producer
    }

    fn consumer(&self) -> &AtomicU32 {
        &self.consumer
    }

    fn flags(&self) -> &AtomicU32 {
        &self.flags
    }

    fn read(&self, position: u32) -> u64 {
        self.slots[(position % SIZE) as usize].get()
    }

    fn write(&self, position: u32, slot: u64) {
        self.slots[(position % SIZE) as usize].set(slot);
    }
}

#[derive(Clone, Debug)]
enum Step {
    Push(u32),
    /// So many at once, at most.
    PushEach(u32),
    Publish,
    Pop(u32),
    PopEach(u32),
    Release,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        (1..SIZE + 3).prop_map(Step::Push),
        (0..SIZE + 3).prop_map(Step::PushEach),
        Just(Step::Publish),
        (1..SIZE + 3).prop_map(Step::Pop),
        (0..SIZE + 3).prop_map(Step::PopEach),
        Just(Step::Release),
    ];
    prop::collection::vec(step, 1..200)
}

/// Where the rings start: anywhere, and most often just before they wrap.
fn positions() -> impl Strategy<Value = u32> {
    prop_oneof![any::<u32>(), (u32::MAX - 2 * SIZE)..=u32::MAX]
}

/// What a ring should do, told with queues.
#[derive(Default)]
struct Expected {
    written: VecDeque<u64>,
    published: VecDeque<u64>,
    /// Popped and not yet released: still in the way of the producer.
    held: u32,
    next: u64,
}

impl Expected {
    fn occupied(&self) -> u32 {
        self.written.len() as u32 + self.published.len() as u32 + self.held
    }
}

fn take(
    step: &Step,
    expected: &mut Expected,
    ours: &mut Producer<Rc<Memory>>,
    theirs: &mut Consumer<Rc<Memory>>,
) {
    match step {
        Step::Push(count) => {
            for _ in 0..*count {
                let room = expected.occupied() < SIZE;
                assert_eq!(ours.push(expected.next), room);
                if room {
                    expected.written.push_back(expected.next);
                    expected.next += 1;
                }
            }
        }
        Step::PushEach(count) => {
            // Room for three more than there are slots to write, or for as many fewer.
            let given = count + 3;
            for (asked, given) in [(given, *count), (*count, given)] {
                let end = expected.next + u64::from(given);
                let mut slots = expected.next..end;
                let written = ours.push_each(asked, || slots.next());
                let room = SIZE - expected.occupied();
                assert_eq!(written, asked.min(given).min(room));
                let next = expected.next + u64::from(written);
                expected.written.extend(expected.next..next);
                expected.next = next;
            }
        }
        Step::Publish => {
            assert_eq!(ours.publish(), expected.written.len() as u32);
            expected.published.append(&mut expected.written);
        }
        Step::Pop(count) => {
            assert_eq!(theirs.waiting(), expected.published.len() as u32);
            for _ in 0..*count {
                let popped = expected.published.pop_front();
                assert_eq!(theirs.pop(), popped);
                expected.held += u32::from(popped.is_some());
            }
        }
        Step::PopEach(count) => {
            let mut popped = Vec::new();
            let told = theirs.pop_each(*count, |slot| popped.push(slot));
            let there = expected.published.len().min(*count as usize);
            let front: Vec<u64> = expected.published.drain(..there).collect();
            assert_eq!((told as usize, popped), (there, front));
            expected.held += told;
        }
        Step::Release => {
            assert_eq!(theirs.release(), expected.held);
            expected.held = 0;
        }
    }
    assert_eq!(ours.room(SIZE), SIZE - expected.occupied());
    assert_eq!(
        ours.pending(),
        expected.published.len() as u32 + expected.held
    );
}

proptest! {
    #[test]
    fn what_is_pushed_is_popped_once_and_in_order_wherever_positions_wrap(start in positions(), steps in steps()) {
        let memory = Memory::at(start);
        let (mut ours, mut theirs) = (Producer::new(memory.clone()), Consumer::new(memory));
        let mut expected = Expected::default();
        for step in steps {
            take(&step, &mut expected, &mut ours, &mut theirs);
        }
    }

    #[test]
    fn a_broken_consumer_gets_nothing_overwritten(start in positions(), claimed in any::<u32>()) {
        let memory = Memory::at(start);
        let mut ours = Producer::new(memory.clone());
        memory.consumer.store(claimed, Relaxed);
        let pushed = (0..2 * SIZE).filter(|&slot| ours.push(u64::from(slot))).count() as u32;
        prop_assert_eq!(pushed, SIZE);
        ours.publish();
        // Now only a position at most the ring's size behind can be true.
        memory.consumer.store(claimed, Relaxed);
        let filled = start.wrapping_add(SIZE).wrapping_sub(claimed);
        prop_assert_eq!(ours.room(SIZE), SIZE.saturating_sub(filled));
    }

    #[test]
    fn a_broken_producer_is_not_believed(start in positions(), claimed in any::<u32>()) {
        let memory = Memory::at(start);
        let (mut ours, mut others) = (Consumer::new(memory.clone()), Consumer::new(memory.clone()));
        memory.producer.store(claimed, Relaxed);
        let popped = (0..2 * SIZE).filter(|_| ours.pop().is_some()).count() as u32;
        let filled = claimed.wrapping_sub(start);
        prop_assert_eq!(popped, if filled <= SIZE { filled } else { 0 });
        prop_assert_eq!(others.pop_each(u32::MAX, |_| ()), popped);
    }
}

#[test]
fn a_wake_up_is_asked_for_while_the_flag_is_set() {
    let memory = Memory::at(0);
    let ours = Producer::new(memory.clone());
    assert!(!ours.needs_wakeup());
    memory.flags.store(NEED_WAKEUP, Relaxed);
    assert!(ours.needs_wakeup());
}
