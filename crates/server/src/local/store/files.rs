//! Files that are there whole or not at all, and how they are called.

use super::{BufWriter, File, Metadata, StoreError, Write, fs, io, unable};
use sha2::{Digest, Sha256};
use std::fmt::Write as _;
use std::os::unix::fs::{MetadataExt, fchown};
use std::path::{Path, PathBuf};
use wire::name::Name;

/// The longest stem: a file name has 255 octets (NAME_MAX), and an ending.
const STEM_MAX: usize = 200;

/// How the files of a zone are called: its name without the dot at its end; what is neither letter, digit, hyphen,
/// underscore nor dot as `%2f`. Names that get too long so go by their SHA-256.
pub(super) fn stem(apex: Name<'_>) -> String {
    let text = apex.to_string().to_ascii_lowercase();
    let mut stem = String::new();
    for octet in text.trim_end_matches('.').bytes() {
        match octet {
            b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' => stem.push(octet.into()),
            // Nothing can fail when a String is written to.
            _ => drop(write!(stem, "%{octet:02x}")),
        }
    }
    if stem.is_empty() {
        return "%root".to_owned();
    }
    if stem.len() > STEM_MAX {
        let digest = Sha256::digest(text.as_bytes());
        return format!("%{}", data_encoding::HEXLOWER.encode(&digest));
    }
    stem
}

/// A folder, made when the first file is written to it.
pub(super) struct Directory(PathBuf);

impl Directory {
    pub(super) fn new(path: &Path) -> Directory {
        Directory(path.to_owned())
    }

    /// What `open` gives, after the folder was made where it was missing.
    pub(super) fn made(&self, open: impl Fn() -> io::Result<File>) -> io::Result<File> {
        match open() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                fs::create_dir_all(&self.0)?;
                open()
            }
            opened => opened,
        }
    }

    /// Names that were made, changed or removed stay so.
    pub(super) fn sync(&self) -> io::Result<()> {
        File::open(&self.0)?.sync_all()
    }
}

/// A file that is being written beside the one that it will replace.
pub(super) struct Fresh {
    file: BufWriter<File>,
    written: Written,
}

/// A file whose octets are on the disk, under another name than it will have. Dropped, it is removed.
pub(super) struct Written {
    beside: PathBuf,
    path: PathBuf,
    is_renamed: bool,
}

impl Fresh {
    pub(super) fn create(path: &Path, directory: &Directory) -> Result<Fresh, StoreError> {
        let mut beside = path.as_os_str().to_owned();
        beside.push(".new");
        let beside = PathBuf::from(beside);
        let file = directory
            .made(|| File::create(&beside))
            .map_err(unable("written", &beside))?;
        Ok(Fresh {
            file: BufWriter::new(file),
            written: Written {
                beside,
                path: path.to_owned(),
                is_renamed: false,
            },
        })
    }

    /// Gives the file the mode of the one that it will replace, and where that is allowed the owner: before anything that not
    /// everybody may read is in it.
    pub(super) fn resemble(&self, replaced: &Metadata) -> Result<(), StoreError> {
        let file = self.file.get_ref();
        let group = Some(replaced.gid());
        // chown(2): "The owner of a file may change the group of the file to any group of which that owner is a member." The
        // mode comes after, since "the S_ISUID and S_ISGID mode bits are cleared" with that.
        if fchown(file, Some(replaced.uid()), group).is_err() {
            // Where that is not allowed either, it is the daemon's own.
            let _ = fchown(file, None, group);
        }
        file.set_permissions(replaced.permissions())
            .map_err(unable("written", &self.written.beside))
    }

    pub(super) fn write(&mut self, octets: &[u8]) -> Result<(), StoreError> {
        self.file
            .write_all(octets)
            .map_err(unable("written", &self.written.beside))
    }

    pub(super) fn finish(mut self) -> Result<Written, StoreError> {
        let flushed = self.file.flush();
        flushed
            .and_then(|()| self.file.get_ref().sync_all())
            .map_err(unable("written", &self.written.beside))?;
        Ok(self.written)
    }
}

impl Written {
    /// Puts the file in its place.
    pub(super) fn rename(mut self, directory: &Directory) -> Result<(), StoreError> {
        fs::rename(&self.beside, &self.path)
            .and_then(|()| directory.sync())
            .map_err(unable("written", &self.path))?;
        self.is_renamed = true;
        Ok(())
    }
}

impl Drop for Written {
    fn drop(&mut self) {
        if !self.is_renamed {
            // Where that fails too, the next one is written over it.
            let _ = fs::remove_file(&self.beside);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::name::NameBuf;

    #[test]
    fn files_are_called_by_their_zones_and_stay_in_their_folder() {
        let stem = |name: &str| stem(name.parse::<NameBuf>().unwrap().as_name());
        for (name, expected) in [
            ("Example.COM.", "example.com"),
            (".", "%root"),
            ("a/b.example.", "a%2fb.example"),
            ("*.example.", "%2a.example"),
        ] {
            assert_eq!(stem(name), expected);
        }
        assert!(!stem("\\.\\..example.").starts_with('.'));
        let label = "\\001".repeat(63);
        let long = format!("{label}.{label}.{label}.");
        assert_eq!(stem(&long).len(), 65);
    }
}
