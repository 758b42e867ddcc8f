//! What can do with less takes no more when a limit of this process's memory cgroup is near: packet caches do not grow, and give
//! memory back when others take what is left; queues get fewer frames or are left to kernel sockets.

use crate::log;
use crate::memory::{Cgroups, Left};
use crate::words;
use std::path::PathBuf;
use xsk::{CHUNK, RingSizes};

/// A queue gets its usual frames, or this part of them where memory is tight, but not fewer.
const FRAMES_PARTS: u32 = 8;

/// How near the limits are.
#[derive(Debug, Default)]
pub(super) struct Memory(Cgroups);

/// So little memory is left that a queue's frames would not fit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TooLittle {
    limit: PathBuf,
    /// Bytes that could be taken.
    left: u64,
}

impl TooLittle {
    /// For the log: always the same words for the same limit.
    pub(super) fn reason(&self) -> String {
        format!(
            "the limit of {} leaves too little memory for its frames",
            self.limit.display()
        )
    }
}

impl Memory {
    pub(super) fn find() -> Memory {
        Memory(Cgroups::find())
    }

    /// Looks, and lets caches grow or not; how many bytes they should give back.
    pub(super) fn look(&self) -> u64 {
        let near = self.0.near();
        if words::let_grow(near.is_none()) {
            match near {
                None => log::notice!("memory: there is room again, packet caches may grow"),
                Some(limit) => log::warn!(
                    "memory: near the limit of {}: packet caches grow no more, new entries take the place of old ones",
                    limit.display()
                ),
            }
        }
        near.map_or(0, |_| self.0.too_much())
    }

    /// How many frames each of so many more queues may have; 0 for none of them at all.
    ///
    /// # Errors
    /// Not even the least.
    pub(super) fn frames(&self, queues: u64) -> Result<u32, TooLittle> {
        match self.0.left() {
            None => Ok(RingSizes::default().frames()),
            Some(Left { limit, octets, .. }) => {
                let too_little = TooLittle {
                    limit,
                    left: octets,
                };
                frames_within(octets, queues).ok_or(too_little)
            }
        }
    }

    /// The same at the start, where it is said in one line.
    pub(super) fn frames_at_start(&self, queues: u64) -> Result<u32, TooLittle> {
        let usual = RingSizes::default().frames();
        let frames = self.frames(queues);
        let all = queues * u64::from(usual) * CHUNK as u64;
        match &frames {
            Ok(frames) if *frames < usual => log::warn!(
                "memory is tight: each of {queues} queues gets {frames} frames, usual are {usual} ({all} bytes for all)"
            ),
            Ok(_) => {}
            Err(short) => log::warn!(
                "no AF_XDP for now, kernel sockets serve: the frames of {queues} queues take {all} bytes, and the limit of {} leaves {}",
                short.limit.display(),
                short.left
            ),
        }
        frames
    }
}

/// The usual number of frames, or half of it so often that the queues' frames fit.
fn frames_within(left: u64, queues: u64) -> Option<u32> {
    let usual = RingSizes::default().frames();
    let mut parts = std::iter::successors(Some(1), |parts| Some(parts * 2));
    let mut sizes = parts
        .by_ref()
        .take_while(|parts| *parts <= FRAMES_PARTS)
        .map(|parts| usual / parts);
    sizes.find(|&frames| queues * u64::from(frames) * CHUNK as u64 <= left)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f28_queues_get_fewer_frames_and_at_last_none() {
        let usual = RingSizes::default().frames();
        let bytes = |frames: u32| 4 * u64::from(frames) * CHUNK as u64;
        assert_eq!(frames_within(bytes(usual), 4), Some(usual));
        assert_eq!(frames_within(bytes(usual) - 1, 4), Some(usual / 2));
        assert_eq!(frames_within(bytes(usual / 8), 4), Some(usual / 8));
        assert_eq!(frames_within(bytes(usual / 8) - 1, 4), None);
        assert_eq!(frames_within(0, 0), Some(usual));
    }
}
