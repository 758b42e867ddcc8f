//! Zones are loaded several at a time, and it is said how far that has come.

use super::room::Room;
use super::{Line, Live, Local, ZoneSettings};
use crate::log;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// Zones that are loaded at a time: beyond it the disk and the memory's bandwidth are what is waited for.
const THREADS_MAX: usize = 8;

/// How often it is said how far loading has come. What is faster says nothing.
pub(super) const SAY_AFTER: Duration = Duration::from_secs(3);

/// Loads all zones that need it, as far as there is room, files that are short first; what they say, in that order.
pub(super) fn all(local: &Local, room: &Room) -> Vec<Line> {
    let mut needed: Vec<_> = local
        .iter()
        .filter(|(live, settings)| live.needs_load(settings))
        .collect();
    needed.sort_by_cached_key(|(_, settings)| {
        let file = settings.file.as_deref().map(std::fs::metadata);
        file.and_then(Result::ok).map_or(0, |file| file.len())
    });
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let threads = needed.len().min(cores).min(THREADS_MAX);
    if threads == 0 {
        return Vec::new();
    }
    let next = AtomicUsize::new(0);
    let said: Vec<Mutex<Vec<Line>>> = needed.iter().map(|_| Mutex::default()).collect();
    let finished = (Mutex::new(0), Condvar::new());
    let load = || {
        loop {
            let place = next.fetch_add(1, Relaxed);
            let Some((live, settings)) = needed.get(place) else {
                break;
            };
            let lines = live.load(settings, local.state(), room);
            *said[place].lock().unwrap_or_else(PoisonError::into_inner) = lines;
            *finished.0.lock().unwrap_or_else(PoisonError::into_inner) += 1;
            finished.1.notify_all();
        }
    };
    thread::scope(|scope| {
        let loading: Vec<_> = (0..threads).map(|_| scope.spawn(load)).collect();
        say_progress(&needed, &finished);
        for thread in loading {
            // What panics while a zone is loaded does not get here: see Live::guarded.
            let _ = thread.join();
        }
    });
    let lines = said
        .into_iter()
        .flat_map(|lines| lines.into_inner().unwrap_or_else(PoisonError::into_inner));
    lines.collect()
}

/// Says how far it has come until all is done.
fn say_progress(
    needed: &[(&Arc<Live>, &Arc<ZoneSettings>)],
    (count, changed): &(Mutex<usize>, Condvar),
) {
    let mut finished = count.lock().unwrap_or_else(PoisonError::into_inner);
    while *finished < needed.len() {
        let waiting = |finished: &mut usize| *finished < needed.len();
        let (now, waited) = changed
            .wait_timeout_while(finished, SAY_AFTER, waiting)
            .unwrap_or_else(PoisonError::into_inner);
        finished = now;
        if waited.timed_out() {
            let (done, total) = needed
                .iter()
                .map(|(live, _)| live.progress.read())
                .fold((0, 0), |(done, total), zone| {
                    (done + zone.0, total + zone.1)
                });
            log::info!(
                "{} of {} zones loaded; {} of {} MB read of those begun",
                *finished,
                needed.len(),
                done / 1_000_000,
                total / 1_000_000
            );
        }
    }
}
