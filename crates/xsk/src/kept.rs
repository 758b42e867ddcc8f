//! Links that outlive their process: pinned in bpffs, so that a restart does not touch the interface. Many drivers reset their
//! rings, or the link itself, when a program is attached or taken off.
//!
//! ```text
//!  /sys/fs/bpf/millrace/enp1s0/      locked (flock) by the process whose program it is
//!  └── link                          keeps the last program attached; without a socket in its map it passes everything
//! ```
//!
//! Whoever starts gives the link a program and maps of its own (bpf_link_update, nothing is lost), so that no layout of maps
//! is ever shared by two versions.

use std::fs::{self, File, TryLockError};
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use crate::attach::{AttachMode, Attached, Attachment};
use crate::dnsdist;
use crate::error::{Error, Result};
use crate::nic::Nic;
use crate::sys::bpf;

/// Where links are kept.
const FOLDER: &str = "/sys/fs/bpf/millrace";

/// In the folder of an interface: the link of our program.
const LINK: &str = "link";

/// The place of one interface's link, and the right to it.
pub(crate) struct Kept {
    folder: PathBuf,
    /// The folder, locked as long as somebody has it open.
    lock: OwnedFd,
}

impl Kept {
    /// What another process has locked.
    pub(crate) fn of(folder: PathBuf, lock: OwnedFd) -> Kept {
        Kept { folder, lock }
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(crate) fn lock(&self) -> &OwnedFd {
        &self.lock
    }

    /// From now on the link ends with whoever has it open.
    pub(crate) fn let_go(&self) {
        // Whoever runs as somebody else than root may not; `millrace xdp unload` may.
        let _ = fs::remove_file(self.folder.join(LINK));
    }

    /// Makes and locks the folder of an interface for another program than ours, where none is kept yet.
    pub(crate) fn claim_empty(name: &str) -> Result<Kept> {
        let kept = Kept::claim(folder_of(name))?;
        let pins = LINKS.map(|link| kept.folder.join(link));
        match pins.into_iter().find(|pin| pin.exists()) {
            None => Ok(kept),
            Some(pin) => Err(Error::Invalid(format!(
                "{} keeps a program on {name} already: `millrace xdp unload --interface {name}` takes it off",
                pin.display()
            ))),
        }
    }

    /// Makes and locks the folder of an interface.
    fn claim(folder: PathBuf) -> Result<Kept> {
        let failed = |what: &str| {
            let doing = format!("{what} {} (is bpffs mounted there?)", folder.display());
            move |error| Error::system(doing, error)
        };
        fs::create_dir_all(&folder).map_err(failed("making"))?;
        let lock = File::open(&folder).map_err(failed("opening"))?;
        match lock.try_lock() {
            Ok(()) => Ok(Kept::of(folder, lock.into())),
            Err(TryLockError::WouldBlock) => Err(Error::Invalid(format!(
                "the link kept in {} belongs to another millrace that runs",
                folder.display()
            ))),
            Err(TryLockError::Error(error)) => Err(failed("locking")(error)),
        }
    }
}

/// Where the link of an interface is kept. A name of bpffs holds no dot.
pub(crate) fn folder_of(name: &str) -> PathBuf {
    Path::new(FOLDER).join(name.replace('.', "_"))
}

/// The links that may be kept in the folder of an interface.
const LINKS: [&str; 2] = [LINK, dnsdist::LINK];

/// Where the link of our program on this interface is pinned, and that of the one for dnsdist.
pub(crate) fn links_of(name: &str) -> [PathBuf; 2] {
    LINKS.map(|link| folder_of(name).join(link))
}

/// Whether the link that is pinned there keeps this program on this interface.
fn keeps(pin: &Path, interface: u32, program: u32) -> bool {
    let facts = bpf::pinned(pin).and_then(|link| bpf::describe_link(&link));
    facts.is_ok_and(|facts| facts == (interface, program))
}

/// Attaches a program by a link that stays when the process ends. A link that was kept before gets the program.
pub(crate) fn attach(
    program: &OwnedFd,
    interface: u32,
    mode: AttachMode,
) -> Result<(Attached, Attachment)> {
    let kept = Kept::claim(folder_of(&Nic::by_index(interface)?.name))?;
    let pin = kept.folder.join(LINK);
    bring_along(interface, &pin)?;
    let (attached, attachment) = match take_up(program, interface, &pin)? {
        Some(link) => {
            let native = bpf::is_native(interface).unwrap_or(true);
            Attached::of(link, interface, native).with(None)
        }
        None => {
            let (attached, attachment) = Attached::attach(program, interface, mode)?;
            bpf::pin(attached.descriptor(), &pin)
                .map_err(|error| Error::system(format!("pinning {}", pin.display()), error))?;
            (attached, attachment)
        }
    };
    Ok((attached.kept_in(kept), attachment))
}

/// An interface that was renamed has its link where its former name says: it is pinned where the new one does.
fn bring_along(interface: u32, pin: &Path) -> Result<()> {
    let Ok(Some(program)) = bpf::attached_program(interface) else {
        return Ok(());
    };
    // What is pinned there already may be on another interface.
    if pin.exists() {
        return Ok(());
    }
    let folders = fs::read_dir(FOLDER).into_iter().flatten().flatten();
    for folder in folders.map(|entry| entry.path()) {
        let old = folder.join(LINK);
        if keeps(&old, interface, program) {
            let former = Kept::claim(folder)?;
            fs::rename(&old, pin)
                .map_err(|error| Error::system(format!("moving {}", old.display()), error))?;
            // Pins for dnsdist stay where they are.
            let _ = fs::remove_dir(former.folder());
        }
    }
    Ok(())
}

/// Gives a kept link the program. `None`: there is none, or none that is on an interface any more.
fn take_up(program: &OwnedFd, interface: u32, pin: &Path) -> Result<Option<OwnedFd>> {
    let failed = |error| Error::system(format!("taking up {}", pin.display()), error);
    let link = match bpf::pinned(pin) {
        Ok(link) => link,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    let (found, id) = bpf::describe_link(&link).map_err(failed)?;
    if found == 0 {
        fs::remove_file(pin).map_err(failed)?;
        return Ok(None);
    }
    // An interface of this number may be another one in another network namespace: its program tells.
    if found != interface || bpf::attached_program(interface).map_err(failed)? != Some(id) {
        return Err(Error::Invalid(format!(
            "{} keeps a link on another interface (index {found}): remove it with `millrace xdp unload` there",
            pin.display()
        )));
    }
    bpf::update_link(&link, program).map_err(failed)?;
    Ok(Some(link))
}

/// Gives the program to the link that a process has kept which is gone, and keeps it no longer. `None`: what is on the interface is
/// no such link's, or a living process's, or this one has no right to it.
pub(crate) fn take_back(program: &OwnedFd, interface: u32) -> Option<Attached> {
    let kept = Kept::claim(folder_that_keeps(interface, &[LINK])?).ok()?;
    let pin = kept.folder.join(LINK);
    let link = take_up(program, interface, &pin).ok()??;
    let attached = Attached::of(link, interface, bpf::is_native(interface).unwrap_or(true));
    kept.let_go();
    if pin.exists() {
        // What may not be removed is kept, and this process's as long as it lives.
        return Some(attached.kept_in(kept));
    }
    // Pins for dnsdist stay where they are.
    let _ = fs::remove_dir(&kept.folder);
    Some(attached)
}

/// Where the link is kept of the interface that has this name now and had another one then.
fn former_folder(name: &str) -> Option<PathBuf> {
    folder_that_keeps(Nic::by_name(name).ok()?.index, &LINKS)
}

/// Where one of these links keeps what is on an interface.
fn folder_that_keeps(interface: u32, links: &[&str]) -> Option<PathBuf> {
    let program = bpf::attached_program(interface).ok()??;
    let folders = fs::read_dir(FOLDER).ok()?.flatten();
    let is_it = |folder: &PathBuf| {
        let mut pins = links.iter().map(|link| folder.join(link));
        pins.any(|pin| keeps(&pin, interface, program))
    };
    folders.map(|entry| entry.path()).find(is_it)
}

/// Takes a kept link off the interface of this name, whatever its name was when it was kept, and the pins of
/// [`load_dnsdist`](crate::load_dnsdist); whether there was one.
///
/// # Errors
/// It belongs to a process that runs, or may not be removed.
pub fn unload(name: &str) -> Result<bool> {
    let mut folder = folder_of(name);
    if !folder.exists() {
        let Some(former) = former_folder(name) else {
            return Ok(false);
        };
        folder = former;
    }
    let kept = Kept::claim(folder)?;
    let pin = kept.folder.join(LINK);
    let was_there = pin.exists();
    let failed = |error| Error::system(format!("removing {}", pin.display()), error);
    if was_there {
        // Whoever is told that it was taken off finds nothing there. What cannot be detached goes with its pin.
        let _ = bpf::pinned(&pin).and_then(|link| bpf::detach_link(&link));
        fs::remove_file(&pin).map_err(failed)?;
    }
    let was_theirs = dnsdist::remove(&kept.folder)?;
    fs::remove_dir(&kept.folder).map_err(failed)?;
    Ok(was_there || was_theirs)
}
