//! Kernel sockets of listeners, as a start and a reload bind them.

use super::failure::StartError;
use super::occupied;
use super::succession::Legacy;
use crate::config::{Config, Listener, UdpBuffers, Xdp};
use crate::frontend::inherited::Inherited;
use crate::frontend::listeners::{Listeners, Sockets};
use crate::log;
use crate::network::helper::Helper;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use xsk::Pulses;

pub(super) fn listeners(
    config: &Config,
    workers: usize,
    pulses: Option<&Pulses>,
    legacy: &mut Legacy,
) -> Result<Listeners, StartError> {
    let none = Helper::none();
    // Another process chooses among its sockets still.
    let pulses = pulses.filter(|_| legacy.predecessor.is_none());
    let mut all = Vec::with_capacity(config.listeners.len());
    for (number, listener) in config.listeners.iter().enumerate() {
        let place = (number as u16, listener);
        let sockets = bind_listener(place, workers, pulses, &none, &mut legacy.sockets);
        let sockets = sockets.map_err(|error| {
            StartError::System(occupied::cannot_serve(listener.address, &error))
        })?;
        all.push(Some(Arc::new(sockets)));
    }
    let all = Listeners::new(all);
    size_buffers(&all, config.tuning.udp_buffers);
    Ok(all)
}

/// All kernel sockets of one listener.
pub(super) fn bind_listener(
    (number, listener): (u16, &Listener),
    workers: usize,
    pulses: Option<&Pulses>,
    helper: &Helper,
    inherited: &mut Inherited,
) -> io::Result<Sockets> {
    let bind = |socket: &_, address| helper.bind(socket, address);
    let count = sockets_of(listener, workers);
    let sockets = if inherited.has_udp(listener.address, listener.interface.as_deref()) {
        let (sockets, shortfall) = Sockets::inherit(number, listener, count, inherited, &bind)?;
        if let Some(shortfall) = shortfall {
            log::warn!(
                "{}: some workers have no kernel socket, {shortfall}",
                listener.address
            );
        }
        sockets
    } else {
        Sockets::bind(number, listener, count, &bind)?
    };
    if let Some(pulses) = pulses.filter(|_| listener.xdp != Xdp::Off) {
        spread(&sockets, pulses, helper);
    }
    Ok(sockets)
}

/// Over AF_XDP every worker has a socket beside its ring, for what the kernel program passes on its queue.
fn sockets_of(listener: &Listener, workers: usize) -> usize {
    if listener.xdp == Xdp::Off {
        listener.sockets
    } else {
        workers
    }
}

/// While this process has its privileges no helper is needed.
pub(super) fn bind_directly(socket: &OwnedFd, address: SocketAddr) -> io::Result<()> {
    Helper::none().bind(socket, address)
}

/// setUDPSocketBufferSizes, of all listeners.
pub(super) fn size_buffers(listeners: &Listeners, wanted: UdpBuffers) {
    for sockets in listeners.all().iter().flatten() {
        match sockets.size_buffers(wanted) {
            Ok(None) => {}
            Ok(Some(shortfall)) => log::warn!("{}: {shortfall}", sockets.address),
            Err(error) => log::warn!("{}: setUDPSocketBufferSizes: {error}", sockets.address),
        }
    }
}

/// Needed where AF_XDP is, now or after a reload; `is_wanted`: now.
pub(super) fn pulses(is_wanted: bool) -> Option<Pulses> {
    match Pulses::new() {
        Ok(pulses) => Some(pulses),
        Err(error) => {
            if is_wanted {
                log::warn!("a stalled worker's kernel sockets are not passed by: {error}");
            }
            None
        }
    }
}

/// What the kernel program passes because a worker has stalled must not come to that worker's kernel socket.
pub(super) fn spread(sockets: &Sockets, pulses: &Pulses, helper: &Helper) {
    let count = sockets.udp.len() as u32;
    if count < 2 {
        return;
    }
    let loaded = helper
        .spread(pulses, count)
        .map_err(|error| error.to_string());
    let attached = loaded.and_then(|program| {
        let attached = sockets.spread_by(program);
        attached.map_err(|error| error.to_string())
    });
    if let Err(reason) = attached {
        log::warn!(
            "{}: queries for a stalled worker are lost that the kernel gives to its socket: {reason}",
            sockets.address
        );
    }
}
