//! Which processors a worker may run on: `cpus=` of addLocal.
//!
//! In dnsdist each addLocal is a thread of its own, which may run on any of its processors. So is here the first worker of the
//! first line for an address, the second of the second. Over AF_XDP it is the queue that a worker is known by: it has the
//! line whose newXsk names its queue, and where the queues are found by themselves (`xdp=true`) the worker of queue i has the
//! i-th processor.

use super::spec::ListenerSpec;
use super::{Listener, Xdp};

/// What one line says.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Pinning {
    /// That of the line's newXsk.
    pub(super) queue: Option<u32>,
    pub(super) processors: Vec<usize>,
}

impl Pinning {
    pub(super) fn of(line: &ListenerSpec) -> Pinning {
        let queue = match &line.xdp {
            Xdp::Queues(queues) => queues.first().map(|queue| queue.queue),
            _ => None,
        };
        Pinning {
            queue,
            processors: line.cpus.clone(),
        }
    }
}

/// The processors of worker `number`, by the first listener that says some; none: any.
pub fn processors_of(listeners: &[Listener], number: usize) -> Vec<usize> {
    let all = listeners
        .iter()
        .map(|listener| processors(listener, number));
    let mut said = all.filter(|processors| !processors.is_empty());
    said.next().unwrap_or_default()
}

fn processors(listener: &Listener, number: usize) -> Vec<usize> {
    let lines = &listener.pinning;
    let line = match listener.xdp {
        Xdp::Off => lines.get(number),
        Xdp::Queues(_) => lines.iter().find(|line| line.queue == Some(number as u32)),
        Xdp::Auto | Xdp::Interfaces(_) => {
            let all: Vec<usize> = lines
                .iter()
                .flat_map(|line| line.processors.iter().copied())
                .collect();
            let place = number.checked_rem(all.len());
            return place.map(|place| vec![all[place]]).unwrap_or_default();
        }
    };
    line.map(|line| line.processors.clone()).unwrap_or_default()
}
