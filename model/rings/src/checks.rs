// Included into each variant of the rings; `ring` is that variant's.

use loom::sync::Arc;
use loom::thread;
use ring::{Consumer, NEED_WAKEUP, Producer, Shared};

use crate::sys::{Memory, SIZE};

impl Shared for Arc<Memory> {
    type Slot = u64;

    fn size(&self) -> u32 {
        SIZE
    }

    fn producer(&self) -> &sync::AtomicU32 {
        &self.producer
    }

    fn consumer(&self) -> &sync::AtomicU32 {
        &self.consumer
    }

    fn flags(&self) -> &sync::AtomicU32 {
        &self.flags
    }

    fn read(&self, position: u32) -> u64 {
        Memory::read(self, position)
    }

    fn write(&self, position: u32, slot: u64) {
        Memory::write(self, position, slot);
    }
}

/// Slots come out once, whole and in order, and are not overwritten before they are released: one more than the ring has.
pub fn hand_over() {
    const COUNT: u64 = SIZE as u64 + 1;
    let memory = Arc::new(Memory::new());
    let (mut ours, mut theirs) = (Producer::new(memory.clone()), Consumer::new(memory));
    let producer = thread::spawn(move || {
        for value in 1..=COUNT {
            while !ours.push(value) {
                thread::yield_now();
            }
            ours.publish();
        }
        assert!(ours.pending() <= SIZE);
    });
    let consumer = thread::spawn(move || {
        for value in 1..=COUNT {
            let popped = loop {
                match theirs.pop() {
                    Some(popped) => break popped,
                    None => thread::yield_now(),
                }
            };
            assert_eq!(popped, value);
            theirs.release();
        }
        assert_eq!(theirs.waiting(), 0);
    });
    producer.join().unwrap();
    consumer.join().unwrap();
}

/// The same with as many at a time as there are.
pub fn hand_over_many() {
    const COUNT: u64 = SIZE as u64 + 1;
    let memory = Arc::new(Memory::new());
    let (mut ours, mut theirs) = (Producer::new(memory.clone()), Consumer::new(memory));
    let producer = thread::spawn(move || {
        let mut values = 1..=COUNT;
        while !values.is_empty() {
            let left = values.clone().count() as u32;
            if ours.push_each(left, || values.next()) == 0 {
                thread::yield_now();
            }
            ours.publish();
        }
    });
    let consumer = thread::spawn(move || {
        let mut popped = 0;
        while popped < COUNT {
            let each = |value| {
                popped += 1;
                assert_eq!(value, popped);
            };
            if theirs.pop_each(SIZE, each) == 0 {
                thread::yield_now();
            }
            theirs.release();
        }
    });
    producer.join().unwrap();
    consumer.join().unwrap();
}

/// A consumer goes to sleep as the kernel does: flag, barrier, one more look. It never sleeps on a filled ring unless the
/// producer has seen the flag.
pub fn fall_asleep() {
    use loom::sync::atomic::{Ordering, fence};

    let memory = Arc::new(Memory::new());
    let (mut ours, theirs) = (Producer::new(memory.clone()), Consumer::new(memory.clone()));
    let producer = thread::spawn(move || {
        assert!(ours.push(1));
        ours.publish();
        ours.needs_wakeup()
    });
    let consumer = thread::spawn(move || {
        memory.flags.store(NEED_WAKEUP, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        theirs.waiting() == 0
    });
    let (wakes, sleeps) = (producer.join().unwrap(), consumer.join().unwrap());
    assert!(wakes || !sleeps, "asleep with a filled ring, and nobody wakes it");
}
