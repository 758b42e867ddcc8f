//! The kernel program `bpf/dnsdist.bpf.c`: what dnsdist's own loader would leave behind, for a dnsdist that is started then, or
//! for a millrace whose newXsk names the map.
//!
//! ```text
//!  /sys/fs/bpf/dnsdist/              dnsdist's, or a folder named by hand
//!  ├── xskmap                        queue → AF_XDP socket
//!  ├── xsk-destinations-v4           addresses and ports that are taken
//!  └── xsk-destinations-v6
//!  /sys/fs/bpf/millrace/enp1s0/      locked while it is changed (`kept`)
//!  ├── dnsdist                       the link
//!  └── pins                          symbolic link to the folder above
//! ```

use std::fs::{self, Permissions};
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};

use libbpf_rs::Object;

use crate::attach::{AttachMode, Attached, Attachment};
use crate::error::{Error, Result};
use crate::kept::Kept;
use crate::nic::Nic;
use crate::object;
use crate::sys::bpf;

static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/dnsdist.bpf.o"));

/// Where dnsdist looks for the maps; of the destinations it can be told no other place.
pub const DNSDIST_PINS: &str = "/sys/fs/bpf/dnsdist";

/// The maps: name in the program, name of the pin, octets of key and value.
const MAPS: [(&str, &str, usize, usize); 3] = [
    ("xsk_map", "xskmap", 4, 4),
    ("xskDestinationsV4", "xsk-destinations-v4", 8, 1),
    ("xskDestinationsV6", "xsk-destinations-v6", 20, 1),
];

/// In the folder of an interface: the link, and where the maps are pinned.
pub(crate) const LINK: &str = "dnsdist";
const POINTER: &str = "pins";

/// Who is to open the maps: user and group, by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    pub user: u32,
    pub group: u32,
}

/// Attaches the program to the interface of this name, pins its maps in the folder `pins` for `owner` (`None`: for root alone),
/// and keeps it there: without a socket it passes everything. [`unload`](crate::unload) takes it off and the pins away.
///
/// # Errors
/// Another program is there, or other pins; needs CAP_SYS_ADMIN.
pub fn load_dnsdist(name: &str, pins: &Path, owner: Option<Owner>) -> Result<Attachment> {
    let nic = Nic::by_name(name)?;
    let pins = std::path::absolute(pins).map_err(failed("finding", pins))?;
    check_free(&pins)?;
    let object = object::load(OBJECT, &[], false, &[])?;
    let program = object::program_of(&object, "dnsdist")?;
    let kept = Kept::claim_empty(name)?;
    let (attached, attachment) = Attached::attach(&program, nic.index, AttachMode::Auto)?;
    let done = pin_maps(&object, &pins, owner).and_then(|()| keep(&attached, kept.folder(), &pins));
    if let Err(error) = done {
        // Half of it serves nobody. The first reason is the one to tell.
        let _ = unpin(&program, &pins);
        let _ = fs::remove_file(kept.folder().join(POINTER));
        return Err(error);
    }
    Ok(attachment)
}

fn check_free(pins: &Path) -> Result<()> {
    let paths = MAPS.map(|(_, file, ..)| pins.join(file));
    match paths.into_iter().find(|path| path.exists()) {
        None => Ok(()),
        Some(path) => Err(Error::Invalid(format!(
            "{} is there already, for another interface or from another loader: take that off first, or name another \
             folder for the pins",
            path.display()
        ))),
    }
}

fn pin_maps(object: &Object, pins: &Path, owner: Option<Owner>) -> Result<()> {
    fs::create_dir_all(pins).map_err(failed("making", pins))?;
    for (name, file, key, value) in MAPS {
        let map = object::map_of(object, name, key, value)?;
        let path = pins.join(file);
        bpf::pin(map.descriptor(), &path).map_err(failed("pinning", &path))?;
        give(&path, owner)?;
    }
    give(pins, owner)?;
    match (owner, pins.parent()) {
        (Some(_), Some(parent)) => let_through(parent),
        _ => Ok(()),
    }
}

/// "to read the BPF maps themselves, they need to be readable by the dnsdist user: chown -R dnsdist:dnsdist
/// /sys/fs/bpf/dnsdist/" (dnsdist's manual, AF_XDP under systemd).
fn give(path: &Path, owner: Option<Owner>) -> Result<()> {
    match owner {
        Some(Owner { user, group }) => {
            chown(path, Some(user), Some(group)).map_err(failed("giving away", path))
        }
        None => Ok(()),
    }
}

/// "it needs to be able to go into the /sys/fs/bpf directory: one option is to chmod o+x /sys/fs/bpf" (there).
fn let_through(folder: &Path) -> Result<()> {
    let facts = fs::metadata(folder).map_err(failed("looking at", folder))?;
    let mode = facts.permissions().mode() | 0o001;
    fs::set_permissions(folder, Permissions::from_mode(mode)).map_err(failed("opening", folder))
}

fn keep(attached: &Attached, folder: &Path, pins: &Path) -> Result<()> {
    let (pointer, pin) = (folder.join(POINTER), folder.join(LINK));
    // Of a start that was killed.
    let _ = fs::remove_file(&pointer);
    symlink(pins, &pointer).map_err(failed("making", &pointer))?;
    bpf::pin(attached.descriptor(), &pin).map_err(failed("pinning", &pin))
}

/// Takes the program off that is kept in the folder of an interface, and its maps' pins away; whether there was one.
pub(crate) fn remove(folder: &Path) -> Result<bool> {
    let (pointer, pin) = (folder.join(POINTER), folder.join(LINK));
    let was_there = match bpf::pinned(&pin) {
        Ok(link) => {
            let program = bpf::describe_link(&link).and_then(|(_, id)| bpf::program_by_id(id));
            let program = program.map_err(failed("looking at", &pin))?;
            // The program is off the interface before its maps go. What cannot be detached goes with its pin.
            let _ = bpf::detach_link(&link);
            fs::remove_file(&pin).map_err(failed("removing", &pin))?;
            drop(link);
            if let Ok(pins) = fs::read_link(&pointer) {
                unpin(&program, &pins)?;
            }
            true
        }
        Err(error) if error.kind() == ErrorKind::NotFound => false,
        Err(error) => return Err(failed("opening", &pin)(error)),
    };
    match fs::remove_file(&pointer) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(failed("removing", &pointer)(error))
        }
        _ => Ok(was_there),
    }
}

/// Removes the pins of a program's maps. What else is pinned there is somebody else's and stays, and the folder with it.
fn unpin(program: &OwnedFd, pins: &Path) -> Result<()> {
    let used = bpf::program_maps(program).map_err(failed("looking for the maps in", pins))?;
    for path in pins_of(pins, &used) {
        fs::remove_file(&path).map_err(failed("removing", &path))?;
    }
    let _ = fs::remove_dir(pins);
    Ok(())
}

/// The pins of an interface's program in dnsdist's way, whose loader put them there: `folder` is the interface's own, `used` the
/// ids of the program's maps.
pub(crate) fn pins_on(folder: &Path, used: &[u32]) -> Vec<PathBuf> {
    let pins = fs::read_link(folder.join(POINTER));
    pins_of(&pins.unwrap_or_else(|_| PathBuf::from(DNSDIST_PINS)), used)
}

/// Those of dnsdist's pins in a folder that are maps of these ids.
fn pins_of(pins: &Path, used: &[u32]) -> Vec<PathBuf> {
    let is_used = |path: &PathBuf| {
        let facts = bpf::pinned(path).and_then(|map| bpf::describe_map(&map));
        facts.is_ok_and(|facts| used.contains(&facts.id))
    };
    let paths = MAPS.into_iter().map(|(_, file, ..)| pins.join(file));
    paths.filter(is_used).collect()
}

fn failed(what: &str, path: &Path) -> impl FnOnce(io::Error) -> Error + use<> {
    let doing = format!("{what} {}", path.display());
    move |error| Error::system(doing, error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::{ROOM, foreign_destination};
    use crate::program::enter;
    use crate::socket::Socket;
    use std::net::{IpAddr, SocketAddr};
    use std::os::fd::AsFd;

    const SOURCE: &str = include_str!("../../../bpf/dnsdist.bpf.c");

    const XDP_PASS: u32 = 2;
    const XDP_REDIRECT: u32 = 4;

    #[test]
    fn the_program_has_the_maps_that_are_pinned() {
        for (name, ..) in MAPS {
            let end = format!("}} {name} SEC(\".maps\");");
            assert!(SOURCE.contains(&end), "no map {name}");
        }
    }

    #[test]
    fn keys_are_as_long_as_those_that_are_entered() {
        let octets = |served: &str| foreign_destination(served.parse().expect("an address")).len();
        assert_eq!(octets("192.0.2.1:53"), MAPS[1].2);
        assert_eq!(octets("[2001:db8::1]:53"), MAPS[2].2);
    }

    fn address(text: &str) -> SocketAddr {
        text.parse().expect("an address")
    }

    /// So many octets of DNS to this address and port. The program looks at no checksum and no MAC address.
    fn frame(to: SocketAddr, dns: usize) -> Vec<u8> {
        let udp_length = 8 + dns as u16;
        let mut frame = vec![0; 12];
        match to.ip() {
            IpAddr::V4(destination) => {
                frame.extend([8, 0, 0x45, 0]);
                frame.extend((20 + udp_length).to_be_bytes());
                frame.extend([0, 0, 0, 0, 64, 17, 0, 0, 192, 0, 2, 9]);
                frame.extend(destination.octets());
            }
            IpAddr::V6(destination) => {
                frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
                frame.extend(udp_length.to_be_bytes());
                frame.extend([17, 64]);
                frame.extend([0; 16]);
                frame.extend(destination.octets());
            }
        }
        frame.extend([0x9c, 0x40]);
        frame.extend(to.port().to_be_bytes());
        frame.extend(udp_length.to_be_bytes());
        frame.resize(frame.len() + 2 + dns, 0);
        frame
    }

    fn changed(mut frame: Vec<u8>, at: usize, octets: &[u8]) -> Vec<u8> {
        frame[at..at + octets.len()].copy_from_slice(octets);
        frame
    }

    /// Of the table in bpf/README.md.
    #[test]
    fn each_row_of_the_table_has_its_verdict() {
        if !nix::unistd::geteuid().is_root() {
            println!("SKIP: loading the kernel program needs root");
            return;
        }
        let object = object::load(OBJECT, &[], false, &[]).expect("the program");
        let program = object::program_of(&object, "dnsdist").expect("a program");
        let map = |at: usize| {
            let (name, _, key, value) = MAPS[at];
            object::map_of(&object, name, key, value).expect("a map")
        };
        let (v4, v6) = (address("192.0.2.1:53"), address("[2001:db8::1]:53"));
        for (at, served) in [(1, v4), (2, v6)] {
            let entered = map(at).update(&foreign_destination(served), &[1]);
            entered.expect("a destination");
        }
        let verdict = |frame: &[u8]| bpf::test_run(&program, frame, None).expect("a run").0;
        for served in [v4, v6] {
            let query = frame(served, 12);
            assert_eq!(verdict(&query), XDP_PASS, "{served} without a socket");
        }
        let socket = Socket::open().expect("a socket");
        enter(&map(0), 0, socket.as_fd()).expect("a queue");
        for (served, longest) in [(v4, ROOM - 42), (v6, ROOM - 62)] {
            for taken in [12, longest] {
                let query = frame(served, taken);
                assert_eq!(verdict(&query), XDP_REDIRECT, "{taken} to {served}");
            }
            for passed in [11, longest + 1] {
                let query = frame(served, passed);
                assert_eq!(verdict(&query), XDP_PASS, "{passed} to {served}");
            }
        }
        for other in ["192.0.2.2:53", "192.0.2.1:54", "[2001:db8::2]:53"] {
            let query = frame(address(other), 12);
            assert_eq!(verdict(&query), XDP_PASS, "to {other}");
        }
        let query = frame(v4, 12);
        for (what, at, octets) in [
            ("a VLAN tag", 12, &[0x81, 0][..]),
            ("options", 14, &[0x46]),
            ("a length that differs", 17, &[41]),
            ("a fragment", 20, &[0x20]),
            ("TCP", 23, &[6]),
        ] {
            let frame = changed(query.clone(), at, octets);
            assert_eq!(verdict(&frame), XDP_PASS, "{what}");
        }
    }
}
