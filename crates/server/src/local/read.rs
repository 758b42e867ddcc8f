//! Reads a zone file and those it includes.

use super::placed::placed;
use super::room::Room;
use super::{Progress, Stamp};
use std::cell::RefCell;
use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use wire::name::Name;
use zone::file::{Reader, Settings};
use zone::zone::{Warning, Zone, ZoneBuilder, ZoneError};

/// Errors of one file that are told: the rest is most often their consequence.
const ERRORS_MAX: usize = 20;

/// A zone that was read.
pub struct ReadZone {
    pub zone: Zone,
    pub warnings: Vec<Warning>,
    /// The files it was made of.
    pub stamps: Vec<Stamp>,
}

/// Reads the zone `apex` from `file`; `progress` counts the octets of that file and of those it includes.
///
/// # Errors
/// What is wrong with it, each line with its place; where that is much, the last line says that there may be more.
pub fn read(apex: Name<'_>, file: &Path, progress: &Progress) -> Result<ReadZone, Vec<String>> {
    let read = read_within(apex, file, progress, &Room::WHOLE)?;
    Ok(read.expect("there is room for everything"))
}

/// The same; nothing where it does not fit in `room`.
pub(super) fn read_within(
    apex: Name<'_>,
    file: &Path,
    progress: &Progress,
    room: &Room,
) -> Result<Option<ReadZone>, Vec<String>> {
    let path = file.display().to_string();
    let unreadable = |error: io::Error| vec![format!("{path}: cannot be read: {error}")];
    let stamps = Rc::default();
    let mut reader = reader(apex, file, &stamps, progress).map_err(unreadable)?;
    let length = stamps.borrow().iter().map(Stamp::octets).sum();
    if !room.holds_octets(length) {
        return Ok(None);
    }
    progress.begin(length);
    let Some(builder) = gather(apex, &mut reader, (room, progress))? else {
        return Ok(None);
    };
    drop(reader);
    let built = builder.finish_or_tell(ERRORS_MAX);
    let (zone, warnings) = built.map_err(|errors| wrong(apex, file, &errors))?;
    let mut stamps = stamps.take();
    // It is kept as long as the zone, and most are made of one file.
    stamps.shrink_to_fit();
    Ok(Some(ReadZone {
        zone,
        warnings,
        stamps,
    }))
}

/// The files that a zone is read from, as they were opened.
pub(super) type Stamps = Rc<RefCell<Vec<Stamp>>>;

/// A reader of `file` and those it includes.
pub(super) fn reader<'p>(
    apex: Name<'_>,
    file: &Path,
    stamps: &Stamps,
    progress: &'p Progress,
) -> io::Result<Reader<'p>> {
    let octets = open(file, stamps)?;
    let octets = Counted { octets, progress };
    let folder = file.parent().unwrap_or(Path::new("")).to_owned();
    let seen = Rc::clone(stamps);
    let opener = Box::new(move |name: &str| {
        let octets = open(&within(&folder, name)?, &seen)?;
        Ok(Box::new(Counted { octets, progress }) as Box<dyn Read>)
    });
    let path = file.display().to_string();
    Ok(Reader::new(&path, octets, opener, Settings::new(apex)))
}

/// What is wrong with records that are good each by itself.
fn wrong(apex: Name<'_>, file: &Path, errors: &[ZoneError]) -> Vec<String> {
    let told = errors
        .iter()
        .map(|error| (error.about(), error.to_string()))
        .collect();
    let mut texts = placed(apex, file, told);
    if errors.len() == ERRORS_MAX {
        let path = file.display();
        texts.push(format!(
            "{path}: after {ERRORS_MAX} errors the rest is not looked at: there may be more"
        ));
    }
    texts
}

/// A file whose octets are counted as they are read.
struct Counted<'p> {
    octets: File,
    progress: &'p Progress,
}

impl Read for Counted<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.octets.read(buffer)?;
        self.progress.add(count);
        Ok(count)
    }
}

/// All records; nothing where they do not fit in `room`.
fn gather(
    apex: Name<'_>,
    reader: &mut Reader<'_>,
    (room, progress): (&Room, &Progress),
) -> Result<Option<ZoneBuilder>, Vec<String>> {
    let mut builder = ZoneBuilder::new(apex);
    let mut errors = Vec::new();
    for taken in 1.. {
        let pushed = match reader.read() {
            None => break,
            Some(Err(error)) => {
                errors.push(error.to_string());
                Ok(())
            }
            Some(Ok(_)) if !room.take() => {
                room.give(taken);
                return Ok(None);
            }
            Some(Ok(record)) => builder.push(record),
        };
        if let Err(error) = pushed {
            errors.push(reader.error(error.to_string()).to_string());
        }
        progress.have(taken.unsigned_abs());
        if errors.len() == ERRORS_MAX {
            let end = format!("after {ERRORS_MAX} errors the rest is not read: there may be more");
            errors.push(reader.error(end).to_string());
            return Err(errors);
        }
    }
    if !errors.is_empty() {
        return Err(errors);
    }
    Ok(Some(builder))
}

fn open(path: &Path, stamps: &RefCell<Vec<Stamp>>) -> io::Result<File> {
    let file = File::open(path)?;
    stamps
        .borrow_mut()
        .push(Stamp::new(path, &file.metadata()?));
    Ok(file)
}

/// The file `name` in `folder`; no symbolic link may lead out of it. What is no file might keep who opens it waiting for ever
/// (a named pipe), or never end.
fn within(folder: &Path, name: &str) -> io::Result<PathBuf> {
    let path = folder.join(name);
    let folder = if folder.as_os_str().is_empty() {
        Path::new(".")
    } else {
        folder
    };
    let refused = |text| Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
    if !path.canonicalize()?.starts_with(folder.canonicalize()?) {
        return refused(
            "it is outside the folder of the zone's file: only files in there can be included",
        );
    }
    if !path.metadata()?.is_file() {
        return refused("it is no regular file");
    }
    Ok(path)
}

impl Stamp {
    fn octets(&self) -> u64 {
        self.length
    }

    fn new(path: &Path, metadata: &Metadata) -> Stamp {
        Stamp {
            path: path.to_owned(),
            modified: metadata.modified().ok(),
            length: metadata.len(),
            inode: metadata.ino(),
        }
    }

    /// How the file is now; `None` where it cannot be looked at.
    pub(super) fn of(path: &Path) -> Option<Stamp> {
        let metadata = std::fs::metadata(path).ok()?;
        Some(Stamp::new(path, &metadata))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::name::NameBuf;

    const APEX: &str = "@ 60 SOA ns host 1 2 3 4 5\n@ 60 NS ns.example.net.\n";

    fn errors(folder: &Path, zone: &str) -> Vec<String> {
        let file = folder.join("zone");
        std::fs::write(&file, [APEX, zone].concat()).unwrap();
        let apex: NameBuf = "example.com".parse().unwrap();
        let read = read(apex.as_name(), &file, &Progress::default());
        let errors = read.err().unwrap_or_default();
        let place = format!("{}:", file.display());
        let without_place = |line: String| line.strip_prefix(&place).unwrap_or(&line).to_owned();
        errors.into_iter().map(without_place).collect()
    }

    #[test]
    fn who_sees_twenty_errors_is_told_that_there_may_be_more() {
        let folder = tempfile::tempdir().unwrap();
        let lines = |count| "x 60 A 192.0.2\n".repeat(count);
        assert_eq!(
            errors(folder.path(), &lines(ERRORS_MAX - 1)).len(),
            ERRORS_MAX - 1
        );
        let many = errors(folder.path(), &lines(ERRORS_MAX + 1));
        assert_eq!(many.len(), ERRORS_MAX + 1);
        let end = "22:1: after 20 errors the rest is not read: there may be more";
        assert_eq!(many.last().map(String::as_str), Some(end));
    }

    /// Each name's, and where it is.
    #[test]
    fn all_names_whose_records_cannot_stand_together_are_told() {
        let folder = tempfile::tempdir().unwrap();
        let zone = "b 60 CNAME a\nb 60 A 192.0.2.1\na 60 CNAME c\na 60 CNAME d\nok 60 A 192.0.2.1\n@ 60 SOA ns host 2 2 3 4 5\n";
        let found = errors(folder.path(), zone);
        let starts = [
            "8:1: example.com. has 2 SOA records",
            "6:1: a.example.com. has 2 CNAME records",
            "4:1: b.example.com. has a CNAME record and A",
        ];
        assert_eq!(found.len(), starts.len(), "{found:?}");
        for (line, start) in found.iter().zip(starts) {
            assert!(line.starts_with(start), "{found:?}");
        }
        let lines = |count| (0..count).map(|n| format!("n{n} 60 CNAME a\nn{n} 60 CNAME b\n"));
        let many = errors(folder.path(), &lines(ERRORS_MAX + 1).collect::<String>());
        assert_eq!(many.len(), ERRORS_MAX + 1);
        assert!(
            many[ERRORS_MAX]
                .ends_with("after 20 errors the rest is not looked at: there may be more")
        );
    }

    /// A named pipe that nobody writes to holds up who opens it.
    #[test]
    fn only_regular_files_are_included() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("folder")).unwrap();
        let pipe = folder.path().join("pipe");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRUSR).unwrap();
        let found = errors(
            folder.path(),
            "$INCLUDE folder\n$INCLUDE pipe\nx 60 A 192.0.2\n",
        );
        assert_eq!(found.len(), 3, "{found:?}");
        for (line, name) in [(3, "folder"), (4, "pipe")] {
            let start = format!("{line}:1: '{name}' cannot be opened: it is no regular file;");
            assert!(found[line - 3].starts_with(&start), "{found:?}");
        }
    }
}
