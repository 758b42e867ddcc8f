//! Interrupts that are held back while somebody polls: `napi_defer_hard_irqs` and `gro_flush_timeout` of an interface
//! (Documentation/networking/napi.rst, "IRQ suspension" and "Software IRQ coalescing"). Without them an interrupt comes with every
//! frame, and the soft interrupt takes the queue from whoever polls it.
//!
//! What was set before is written down first, in a note under /run/millrace/interrupts, which its owner keeps locked:
//!
//! | end of the daemon | who sets the interface as it was |
//! | --- | --- |
//! | stopped, or killed | the helper process, which outlives it for that (process.rs) |
//! | killed with its helper | the next start, or `millrace xdp unload`: the note is there, and nobody has it locked |

use std::ffi::OsStr;
use std::fs::{self, File, TryLockError};
use std::io::{self, Error, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use xsk::nic::Nic;

/// Where interfaces have their settings, a folder each.
const CLASS: &str = "/sys/class/net";

/// Where notes are.
const NOTES: &str = "/run/millrace/interrupts";

/// How often an interrupt is left out while polls find nothing, and after how many nanoseconds without a poll the queue is looked
/// at all the same: what the kernel's documentation of AF_XDP uses.
const HELD: [u64; 2] = [2, 200_000];

/// One interface's interrupts.
#[derive(Debug)]
pub struct Interrupts {
    class: PathBuf,
    /// Its index: its name may be another one by the time that it is set as it was.
    interface: u32,
    note: PathBuf,
}

/// The right to set an interface as it was, and the duty: done when dropped.
#[derive(Debug)]
pub struct Held {
    interrupts: Interrupts,
    /// The note, locked.
    note: File,
    before: [u64; 2],
}

impl Interrupts {
    /// Of the interface of this index in this process's network namespace.
    pub fn of(interface: u32) -> Interrupts {
        let note = format!("{}-{interface}", namespace());
        Interrupts {
            class: PathBuf::from(CLASS),
            interface,
            note: Path::new(NOTES).join(note),
        }
    }

    /// The indexes of all interfaces in this process's network namespace that there is a note of.
    pub fn noted() -> Vec<u32> {
        noted_in(Path::new(NOTES), namespace())
    }

    /// The name that the interface has now.
    ///
    /// # Errors
    /// It is gone.
    pub fn name(&self) -> io::Result<String> {
        Nic::name_of(self.interface).map_err(Error::other)
    }

    /// The two files of sysfs, where they are now.
    fn settings(&self) -> io::Result<[PathBuf; 2]> {
        let folder = self.class.join(self.name()?);
        Ok(["napi_defer_hard_irqs", "gro_flush_timeout"].map(|file| folder.join(file)))
    }

    /// Whether they are held back as [`hold`](Interrupts::hold) does it.
    pub fn are_held(&self) -> bool {
        self.read().is_ok_and(|now| now == HELD)
    }

    /// Holds them back.
    ///
    /// # Errors
    /// Another process has done so (`ErrorKind::WouldBlock`), or the kernel does not let this one.
    pub fn hold(self) -> io::Result<Held> {
        fs::create_dir_all(self.note.parent().unwrap_or(Path::new("/")))?;
        let mut note = self.claim()?;
        let mut text = String::new();
        note.read_to_string(&mut text)?;
        // Of somebody who could not set it back.
        let before = match numbers(&text) {
            Some(before) => before,
            None => {
                let before = self.read()?;
                writeln!(note, "{} {}", before[0], before[1])?;
                before
            }
        };
        let held = Held {
            interrupts: self,
            note,
            before,
        };
        held.interrupts.write(HELD)?;
        Ok(held)
    }

    /// Sets them as they were, if a process that is gone has left a note; whether it had. An interface that is gone has
    /// nothing to be set.
    ///
    /// # Errors
    /// Another process that runs holds them back (`ErrorKind::WouldBlock`), or the kernel does not let this one.
    pub fn restore(self) -> io::Result<bool> {
        if !self.note.exists() {
            return Ok(false);
        }
        let mut note = self.claim()?;
        let mut text = String::new();
        note.read_to_string(&mut text)?;
        if let Some(before) = numbers(&text).filter(|_| self.name().is_ok()) {
            self.write(before)?;
        }
        fs::remove_file(&self.note)?;
        Ok(true)
    }

    /// The note, locked; empty where there was none.
    fn claim(&self) -> io::Result<File> {
        loop {
            let mut options = File::options();
            options.read(true).append(true).create(true);
            let note = options.open(&self.note)?;
            match note.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => {
                    let reason = "another millrace that runs holds its interrupts back";
                    return Err(Error::new(io::ErrorKind::WouldBlock, reason));
                }
                Err(TryLockError::Error(error)) => return Err(error),
            }
            // Whoever had it locked may have removed it.
            let there = fs::metadata(&self.note).map(|found| found.ino());
            if there.ok() == Some(note.metadata()?.ino()) {
                return Ok(note);
            }
        }
    }

    fn read(&self) -> io::Result<[u64; 2]> {
        let number = |path: &PathBuf| {
            let text = fs::read_to_string(path).map_err(|error| at(path, &error))?;
            let number = text.trim().parse();
            number.map_err(|_| Error::other(format!("{}: {text:?}", path.display())))
        };
        let [times, nanoseconds] = self.settings()?;
        Ok([number(&times)?, number(&nanoseconds)?])
    }

    fn write(&self, numbers: [u64; 2]) -> io::Result<()> {
        for (path, number) in self.settings()?.iter().zip(numbers) {
            fs::write(path, number.to_string()).map_err(|error| at(path, &error))?;
        }
        Ok(())
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let Held {
            interrupts, before, ..
        } = self;
        // What cannot be set now is for the next one who reads the note; an interface that is gone has nothing to be set.
        let _ = interrupts.write(*before);
        let settings = interrupts.settings();
        let is_there = settings.is_ok_and(|[first, _]| first.exists());
        if !is_there || interrupts.read().is_ok_and(|now| now == *before) {
            let _ = fs::remove_file(&interrupts.note);
        }
        let _ = self.note.unlock();
    }
}

/// The number of this process's network namespace: indexes are the same in many.
fn namespace() -> u64 {
    fs::metadata("/proc/self/ns/net").map_or(0, |found| found.ino())
}

fn noted_in(folder: &Path, namespace: u64) -> Vec<u32> {
    let beginning = format!("{namespace}-");
    let index = |note: &OsStr| -> Option<u32> {
        let index = note.to_str()?.strip_prefix(&beginning)?;
        index.parse().ok()
    };
    let notes = fs::read_dir(folder).into_iter().flatten().flatten();
    notes.filter_map(|note| index(&note.file_name())).collect()
}

fn at(path: &Path, error: &Error) -> Error {
    Error::new(error.kind(), format!("{}: {error}", path.display()))
}

fn numbers(text: &str) -> Option<[u64; 2]> {
    let mut words = text.split_whitespace().map(str::parse);
    Some([words.next()?.ok()?, words.next()?.ok()?])
}

#[cfg(test)]
mod tests {
    use super::*;
    use tempfile::TempDir;

    /// An interface whose settings are these.
    fn interface(folder: &TempDir, settings: [u64; 2]) -> Interrupts {
        let interrupts = of(folder);
        fs::create_dir_all(folder.path().join("lo")).unwrap();
        interrupts.write(settings).unwrap();
        interrupts
    }

    /// The loopback interface has index 1 everywhere.
    fn of(folder: &TempDir) -> Interrupts {
        Interrupts {
            class: folder.path().to_owned(),
            interface: 1,
            note: folder.path().join("notes/7-1"),
        }
    }

    #[test]
    fn what_was_set_is_set_again() {
        let folder = TempDir::new().unwrap();
        let held = interface(&folder, [1, 700]).hold().unwrap();
        assert_eq!(of(&folder).read().unwrap(), HELD);
        assert!(of(&folder).are_held());
        let other = of(&folder).hold().unwrap_err();
        assert_eq!(other.kind(), io::ErrorKind::WouldBlock);
        let other = of(&folder).restore().unwrap_err();
        assert_eq!(other.kind(), io::ErrorKind::WouldBlock);
        drop(held);
        assert_eq!(of(&folder).read().unwrap(), [1, 700]);
        assert!(!of(&folder).note.exists());
        assert!(!of(&folder).restore().unwrap(), "nothing is left to do");
    }

    #[test]
    fn what_a_killed_process_left_is_set_by_the_next_one() {
        let folder = TempDir::new().unwrap();
        let leave = || {
            let held = interface(&folder, [1, 700]).hold().unwrap();
            held.note.unlock().unwrap();
            std::mem::forget(held);
        };
        leave();
        assert!(of(&folder).restore().unwrap());
        assert_eq!(of(&folder).read().unwrap(), [1, 700]);
        leave();
        // The next one that holds them back must not take these for what was before.
        drop(of(&folder).hold().unwrap());
        assert_eq!(of(&folder).read().unwrap(), [1, 700]);
    }

    #[test]
    fn notes_of_this_namespace_are_found_and_those_of_interfaces_that_are_gone_go() {
        let folder = TempDir::new().unwrap();
        assert!(noted_in(&folder.path().join("notes"), 7).is_empty());
        let gone = Interrupts {
            interface: 999_999,
            ..interface(&folder, [1, 700])
        };
        fs::create_dir_all(folder.path().join("notes")).unwrap();
        for name in ["7-1", "77-2", "7-x", "note"] {
            fs::write(folder.path().join("notes").join(name), "1 700\n").unwrap();
        }
        assert_eq!(noted_in(&folder.path().join("notes"), 7), [1]);
        assert!(gone.name().is_err());
        assert!(gone.restore().unwrap());
        assert!(noted_in(&folder.path().join("notes"), 7).is_empty());
    }

    #[test]
    fn an_interface_that_cannot_be_set_is_an_error_that_names_the_file() {
        let folder = TempDir::new().unwrap();
        let error = of(&folder).hold().unwrap_err();
        assert!(
            error.to_string().contains("napi_defer_hard_irqs"),
            "{error}"
        );
    }
}
