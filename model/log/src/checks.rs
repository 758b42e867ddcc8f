// Included into each variant of the log; `log` is that variant's.

use log::Log;
use loom::sync::Arc;
use loom::thread;
use sync::{AtomicU64, Ordering};

/// Where the newest record is: what the table is for.
type Slot = AtomicU64;

/// Writes a record of two words, both its position, if the log has room now.
fn write(log: &Log, slot: &Slot) {
    if let Some(room) = log.reserve(2) {
        room[0].store(room.position, Ordering::Relaxed);
        room[1].store(room.position, Ordering::Relaxed);
        slot.store(room.position, Ordering::Release);
    }
}

/// What the log says is not lost, is whole.
fn read(log: &Log, slot: &Slot) {
    let position = slot.load(Ordering::Acquire);
    assert!(log.head() > position);
    let words = log.at(position).expect("a segment that was written");
    let read = [&words[0], &words[1]].map(|word| word.load(Ordering::Relaxed));
    if log.distance(position) <= log.capacity() {
        assert_eq!(read, [position; 2], "a lost record was taken for whole");
    }
}

/// A log of two segments, each written once, and a slot for each writer.
fn filled() -> (Arc<Log>, [Arc<Slot>; 2]) {
    let log = Arc::new(Log::new(1));
    let slots = [(); 2].map(|()| Arc::new(Slot::new(0)));
    for slot in &slots {
        write(&log, slot);
    }
    (log, slots)
}

/// A writer goes round the log while a reader reads the record that it was told of.
pub fn read_while_overwritten() {
    let (log, [slot, _]) = filled();
    let (their_log, their_slot) = (log.clone(), slot.clone());
    let writer = thread::spawn(move || {
        write(&their_log, &their_slot);
        write(&their_log, &their_slot);
    });
    let reader = thread::spawn(move || read(&log, &slot));
    writer.join().expect("the writer ends");
    reader.join().expect("the reader ends");
}

/// One writer may be stopped while the other goes round; then both records are looked at.
pub fn writers_do_not_meet() {
    let (log, slots) = filled();
    let writers = [(0, 1), (1, 2)].map(|(number, records): (usize, u32)| {
        let (log, slot) = (log.clone(), slots[number].clone());
        thread::spawn(move || (0..records).for_each(|_| write(&log, &slot)))
    });
    for writer in writers {
        writer.join().expect("the writer ends");
    }
    for slot in &slots {
        read(&log, slot);
    }
}

/// The memory of a record is given back while a reader reads it; a writer comes behind.
pub fn read_while_given_back() {
    // Four segments, each written once, the oldest by itself.
    let log = Arc::new(Log::new(64));
    let [oldest, others] = [(); 2].map(|()| Arc::new(Slot::new(0)));
    write(&log, &oldest);
    (0..3).for_each(|_| write(&log, &others));
    let (their_log, their_slot) = (log.clone(), oldest.clone());
    let reader = thread::spawn(move || read(&their_log, &their_slot));
    assert!(log.give_back() > 0);
    write(&log, &others);
    reader.join().expect("the reader ends");
    read(&log, &others);
}
