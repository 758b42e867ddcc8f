//! What a lab owns on this machine, written down where the next start finds it: a lock that its
//! owner holds while it lives, and the processes it started. A killed run is cleaned up from this,
//! and never is a process ended that is not written here with its start time.

use std::fs::{self, File, Metadata, OpenOptions, TryLockError};
use std::io::{ErrorKind, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::bench::descendants;
use crate::{During, Failure, Outcome, again_if_interrupted, sys};

/// So often a lock is opened that its owner removes at that moment.
const ATTEMPTS: u8 = 100;

/// Where a lab's processes are written down, for whoever starts one and has not the lab itself.
#[derive(Debug, Clone)]
pub struct Book {
    path: PathBuf,
}

impl Book {
    /// Writes down a process that belongs to the lab.
    pub fn add(&self, id: u32, name: &str) -> Outcome<()> {
        let Some(start) = start_time_ticks(id) else {
            return Ok(());
        };
        let path = &self.path;
        let mut file = OpenOptions::new()
            .append(true)
            .create(true)
            .open(path)
            .during(format!("opening {}", path.display()))?;
        // As one piece: several threads may write.
        let line = format!("{id} {start} {name}\n");
        file.write_all(line.as_bytes())
            .during(format!("writing {}", path.display()))
    }

    /// Writes down what a process has started itself, and what that has started: it outlives a process that is killed.
    pub fn add_descendants(&self, of: u32) -> Outcome<()> {
        descendants(of).into_iter().try_for_each(|id| {
            let called = fs::read_to_string(format!("/proc/{id}/comm")).unwrap_or_default();
            self.add(id, called.trim())
        })
    }
}

/// The folder of one lab, `/run/millrace-lab/PREFIX`, and the lock on it.
#[derive(Debug)]
pub struct Ledger {
    folder: PathBuf,
    lock: File,
}

impl Ledger {
    /// Takes the lock of the lab `prefix`. Fails, naming the owner, while another process holds it.
    pub fn open(prefix: &str) -> Outcome<Self> {
        let owner = || fs::read_to_string(folder(prefix).join("lock")).unwrap_or_default();
        Self::try_open(prefix)?.ok_or_else(|| {
            Failure::new(format!(
                "the lab {prefix} is in use by process {}: stop that one first (Ctrl-C in its terminal)",
                owner().trim()
            ))
        })
    }

    /// Takes the lock of the lab `prefix`, or nothing while another process holds it.
    pub fn try_open(prefix: &str) -> Outcome<Option<Self>> {
        let folder = folder(prefix);
        let path = folder.join("lock");
        for _ in 0..ATTEMPTS {
            let Some(lock) = open_lock(&folder, &path)? else {
                continue;
            };
            match lock.try_lock() {
                Ok(()) if is_at(&lock, &path) => return Self::own(folder, lock).map(Some),
                // Its owner has removed it meanwhile.
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => return Ok(None),
                Err(TryLockError::Error(error)) => {
                    return Err(error).during(format!("locking {}", path.display()));
                }
            }
        }
        Err(Failure::new(format!(
            "{} was removed {ATTEMPTS} times while it was being locked: is {} a folder?",
            path.display(),
            folder.display()
        )))
    }

    fn own(folder: PathBuf, mut lock: File) -> Outcome<Self> {
        lock.set_len(0).during("writing the lab's lock")?;
        write!(lock, "{}", std::process::id()).during("writing the lab's lock")?;
        Ok(Self { folder, lock })
    }

    /// Where this lab keeps its files.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// This file exists while the lab is meant to stay though nobody holds the lock.
    pub fn kept_mark(&self) -> PathBuf {
        self.folder.join("kept")
    }

    /// Writes down a process that this lab started.
    pub fn add(&self, id: u32, name: &str) -> Outcome<()> {
        self.book().add(id, name)
    }

    /// Where its processes are written down.
    pub fn book(&self) -> Book {
        let path = self.processes();
        Book { path }
    }

    /// Ends what is written down and still is the same process, awaits its end, and says which it was.
    pub fn end_processes(&self) -> Vec<String> {
        let text = fs::read_to_string(self.processes()).unwrap_or_default();
        let ended = text.lines().filter_map(end_line).collect();
        let _ = fs::remove_file(self.processes());
        ended
    }

    /// Removes the files that an earlier owner left: a pid file among them stops whoever believes it.
    pub fn empty(&self) -> Outcome<()> {
        let what = || format!("emptying {}", self.folder.display());
        for entry in fs::read_dir(&self.folder).during(what())? {
            let path = entry.during(what())?.path();
            if path.is_dir() {
                fs::remove_dir_all(&path).during(what())?;
            } else if path != self.folder.join("lock") {
                fs::remove_file(&path).during(what())?;
            }
        }
        Ok(())
    }

    /// Removes the folder; the lab is gone.
    pub fn remove(self) {
        // The lock is the last of our files: without it the folder is anybody's, and stays if somebody has it already.
        let _ = self.empty();
        let _ = fs::remove_file(self.folder.join("lock"));
        let _ = fs::remove_dir(&self.folder);
        drop(self.lock);
        if let Some(own) = temporary_folder() {
            // Another lab may have something in there.
            let _ = fs::remove_dir(base_folder());
            let _ = fs::remove_dir(own);
        }
    }

    fn processes(&self) -> PathBuf {
        self.folder.join("processes")
    }
}

/// Opens the file at `path`, and makes it and `folder` before; nothing if the folder is removed meanwhile.
fn open_lock(folder: &Path, path: &Path) -> Outcome<Option<File>> {
    let mut options = OpenOptions::new();
    let options = options.write(true).create(true).truncate(false);
    match fs::create_dir_all(folder).and_then(|()| options.open(path)) {
        // Found by mkdir(2), and gone when it was looked at; or gone when the file was to be made in it.
        Err(error) if matches!(error.kind(), ErrorKind::AlreadyExists | ErrorKind::NotFound) => {
            Ok(None)
        }
        opened => opened
            .during(format!("opening {}", path.display()))
            .map(Some),
    }
}

/// Whether it is this file that is found at `path`.
fn is_at(file: &File, path: &Path) -> bool {
    let identity = |metadata: Metadata| (metadata.dev(), metadata.ino());
    let at_path = fs::metadata(path).map(identity);
    let ours = file.metadata().map(identity);
    matches!((ours, at_path), (Ok(ours), Ok(at_path)) if ours == at_path)
}

/// Where the lab `prefix` keeps its files.
pub fn folder(prefix: &str) -> PathBuf {
    base_folder().join(prefix)
}

/// Numbers of the labs `PREFIX-1`, `PREFIX-2`, … that have a folder here, whether somebody has them or not.
pub fn numbers_of(prefix: &str) -> Vec<u32> {
    let entries = fs::read_dir(base_folder()).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let number = |name: String| {
        let number: u32 = name.strip_prefix(prefix)?.strip_prefix('-')?.parse().ok()?;
        (name == numbered(prefix, number)).then_some(number)
    };
    names.filter_map(number).collect()
}

/// The prefix of one of the labs that somebody has several of.
pub fn numbered(prefix: &str, number: u32) -> String {
    format!("{prefix}-{number}")
}

/// `/run/millrace-lab` for root, a folder under the user's run-time directory for others.
fn base_folder() -> PathBuf {
    if nix::unistd::geteuid().is_root() {
        return PathBuf::from("/run/millrace-lab");
    }
    let own = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let own = own.or_else(temporary_folder).unwrap_or_default();
    own.join("millrace-lab")
}

/// Of a user who has no run-time directory.
fn temporary_folder() -> Option<PathBuf> {
    let user = nix::unistd::geteuid();
    let has_one = user.is_root() || std::env::var_os("XDG_RUNTIME_DIR").is_some();
    (!has_one).then(|| format!("/tmp/millrace-lab-{user}").into())
}

fn end_line(line: &str) -> Option<String> {
    let mut words = line.split_whitespace();
    let id: u32 = words.next()?.parse().ok()?;
    let start: u64 = words.next()?.parse().ok()?;
    if start_time_ticks(id) != Some(start) {
        return None;
    }
    let descriptor = sys::process_descriptor(id).ok()?;
    kill(Pid::from_raw(id as i32), Signal::SIGKILL).ok()?;
    // What it had open is free only when it is gone.
    let mut gone = [PollFd::new(descriptor.as_fd(), PollFlags::POLLIN)];
    again_if_interrupted(|| Ok(poll(&mut gone, PollTimeout::from(5000_u16))?)).ok()?;
    Some(format!("{} (process {id})", words.next().unwrap_or("?")))
}

/// When the process started, in clock ticks since boot: with the id this names one process for ever.
fn start_time_ticks(id: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    // proc(5): the second field is the name in parentheses and may hold anything; starttime is field 22.
    text.rsplit_once(')')?
        .1
        .split_whitespace()
        .nth(19)?
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn a_second_owner_is_told_who_has_the_lab() {
        let prefix = format!("ledger-test-{}", std::process::id());
        let first = Ledger::open(&prefix).expect("nobody else uses this prefix");
        let error = Ledger::open(&prefix).expect_err("it is taken").to_string();
        assert!(error.contains(&std::process::id().to_string()), "{error}");
        first.remove();
    }

    #[test]
    fn a_lab_has_one_owner_however_often_it_is_removed() {
        let prefix = format!("ledger-owners-test-{}", std::process::id());
        let owners = AtomicUsize::new(0);
        let own_it = || {
            for _ in 0..2000 {
                if let Some(ledger) = Ledger::try_open(&prefix).expect("no error") {
                    assert_eq!(owners.fetch_add(1, Ordering::SeqCst), 0);
                    ledger.add(std::process::id(), "owner").expect("written");
                    assert!(ledger.processes().exists(), "nobody else removed it");
                    owners.fetch_sub(1, Ordering::SeqCst);
                    ledger.remove();
                }
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(own_it);
            }
        });
    }

    #[test]
    fn only_the_process_that_was_written_down_is_ended() {
        let prefix = format!("ledger-end-test-{}", std::process::id());
        let ledger = Ledger::open(&prefix).expect("nobody else uses this prefix");
        let mut child = std::process::Command::new("cat")
            .stdin(std::process::Stdio::piped())
            .spawn()
            .expect("cat");
        fs::write(
            ledger.processes(),
            format!("{} 1 somebody-else\n", child.id()),
        )
        .expect("written");
        assert!(
            ledger.end_processes().is_empty(),
            "another start time is another process"
        );
        ledger.add(child.id(), "cat").expect("written");
        assert_eq!(
            ledger.end_processes(),
            vec![format!("cat (process {})", child.id())]
        );
        assert!(!child.wait().expect("it ended").success());
        ledger.remove();
    }

    #[test]
    fn labs_of_a_number_are_found_and_others_are_not() {
        let prefix = format!("ledger-numbers-test-{}", std::process::id());
        let others = [format!("{prefix}-remote"), format!("{prefix}-07")];
        let prefixes = [1, 12].map(|number| numbered(&prefix, number));
        let all = prefixes.iter().chain(&others);
        let ledgers: Vec<Ledger> = all.map(|one| Ledger::open(one).expect("free")).collect();
        let mut numbers = numbers_of(&prefix);
        numbers.sort_unstable();
        assert_eq!(numbers, [1, 12]);
        ledgers.into_iter().for_each(Ledger::remove);
        assert!(numbers_of(&prefix).is_empty());
    }

    #[test]
    fn what_a_killed_process_had_started_is_ended_too() {
        let prefix = format!("ledger-children-test-{}", std::process::id());
        let ledger = Ledger::open(&prefix).expect("nobody else uses this prefix");
        let mut parent = std::process::Command::new("sh")
            .args(["-c", "sleep 600 >/dev/null & echo $!; wait"])
            .stdout(std::process::Stdio::piped())
            .spawn()
            .expect("sh");
        let mut said = BufReader::new(parent.stdout.take().expect("stdout is piped"));
        let mut child = String::new();
        said.read_line(&mut child).expect("the child's number");
        let book = ledger.book();
        book.add_descendants(parent.id()).expect("written");
        parent.kill().expect("killed");
        parent.wait().expect("it ended");
        let ended = ledger.end_processes();
        assert_eq!(ended.len(), 1, "{ended:?}");
        assert!(
            ended[0].ends_with(&format!("(process {})", child.trim())),
            "{ended:?}"
        );
        ledger.remove();
    }
}
