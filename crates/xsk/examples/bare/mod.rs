//! What the yardsticks `echo` and `forward` share: the least kernel program that leads DNS into AF_XDP sockets
//! (bench/yardsticks/steer.bpf.c), with neither exact destinations nor heartbeat, so that nothing stands before the limit.

use std::error::Error;
use std::os::fd::{AsFd, AsRawFd};

use libbpf_rs::{Link, MapCore, MapFlags, MapHandle, ObjectBuilder};
use xsk::{Options, RingSizes, Socket, Umem};

/// Frames of each socket.
pub(crate) const FRAMES: u32 = 4096;

/// Slots of the RX ring and of the TX ring, and frames that the fill ring holds: more than the RX ring takes would be of no use.
/// They are used in turn, so that the fewer there are, the more of them are still in the processors' caches.
const READY: u32 = 2048;

/// Binds a socket to a queue, with the rings of a plain AF_XDP program.
pub(crate) fn bind(umem: &mut Umem, interface: u32, queue: u32) -> xsk::Result<Socket> {
    let rings = RingSizes {
        fill: FRAMES,
        rx: READY,
        tx: READY,
        completion: FRAMES,
    };
    let options = Options {
        rings,
        ..Options::default()
    };
    let mut socket = Socket::bind(umem, interface, queue, options)?;
    socket.keep_ready(READY);
    Ok(socket)
}

/// The program on one interface; it leaves with the value, or with the process.
pub(crate) struct Bare {
    sockets: MapHandle,
    _link: Link,
}

impl Bare {
    /// Loads `object`, the path of a compiled steer.bpf.c, and attaches it: in the driver where that can.
    pub(crate) fn attach(object: &str, interface: u32) -> Result<Bare, Box<dyn Error>> {
        let object = ObjectBuilder::default().open_file(object)?.load()?;
        let program = object.progs_mut().find(|program| program.name() == "steer");
        let sockets = object.maps().find(|map| map.name() == "sockets");
        let (Some(program), Some(sockets)) = (program, sockets) else {
            return Err("the object has no program `steer` with a map `sockets`".into());
        };
        Ok(Bare {
            sockets: MapHandle::try_from(&sockets)?,
            _link: program.attach_xdp(interface.cast_signed())?,
        })
    }

    /// From now on the socket gets what comes in on its queue.
    pub(crate) fn enter(&self, queue: u32, socket: &Socket) -> Result<(), Box<dyn Error>> {
        let descriptor = socket.as_fd().as_raw_fd();
        let slot = (queue.to_ne_bytes(), descriptor.to_ne_bytes());
        Ok(self.sockets.update(&slot.0, &slot.1, MapFlags::ANY)?)
    }
}
