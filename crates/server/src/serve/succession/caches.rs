//! Caches on their way to the next process, through a pipe: it keeps neither of the two from serving, and takes no memory
//! beside that of the caches.
//!
//! ```text
//!  length 32 │ description of a cache, as long as 2³¹ is added to the length │ length 32 │ entry │ length 32 │ entry …
//! ```

use crate::clock::Now;
use crate::config::Config;
use crate::pipeline::cache::PacketCache;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Marks the length of a description.
const DESCRIPTION: u32 = 1 << 31;

/// No entry and no description is longer, in bytes.
const LONGEST: usize = 1 << 18;

/// Which cache the entries that follow are of. Entries are made from queries by its options: only a cache of the same ones
/// can use them.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Description {
    pool: String,
    options: String,
}

impl Description {
    fn of(pool: &str, cache: &PacketCache) -> Description {
        Description {
            pool: pool.to_owned(),
            options: format!("{:?}", cache.options()),
        }
    }
}

/// Writes what is in the caches of `config`, each of them once, until all is read or nobody reads any more.
pub(super) fn write(config: &Config, to: OwnedFd) -> io::Result<()> {
    let mut out = BufWriter::new(File::from(to));
    let mut written: Vec<&Arc<PacketCache>> = Vec::new();
    for pool in config.pools.iter().flatten() {
        let Some(cache) = &pool.cache else { continue };
        if written.iter().any(|other| Arc::ptr_eq(other, cache)) {
            continue;
        }
        written.push(cache);
        let text = serde_json::to_vec(&Description::of(&pool.name, cache))?;
        put(&mut out, DESCRIPTION, &text)?;
        for entry in cache.leaving(Now::read()) {
            put(&mut out, 0, &entry)?;
        }
    }
    out.flush()
}

fn put(out: &mut impl Write, mark: u32, bytes: &[u8]) -> io::Result<()> {
    let length = u32::try_from(bytes.len()).map_err(io::Error::other)?;
    out.write_all(&(length | mark).to_le_bytes())?;
    out.write_all(bytes)
}

/// Fills the caches of `config` with what comes; how many entries it took.
///
/// # Errors
/// What comes is cut off: whoever wrote it has ended. What has come by then is taken.
pub(super) fn read(config: &Config, from: OwnedFd) -> io::Result<usize> {
    let mut input = BufReader::new(File::from(from));
    let mut cache: Option<&Arc<PacketCache>> = None;
    let mut taken = 0;
    while let Some((is_description, bytes)) = get(&mut input)? {
        if is_description {
            let description: Description = serde_json::from_slice(&bytes)?;
            cache = described(config, &description);
        } else if let Some(cache) = cache {
            taken += usize::from(cache.arrive(&bytes, Now::read()));
        }
    }
    Ok(taken)
}

fn get(input: &mut impl Read) -> io::Result<Option<(bool, Vec<u8>)>> {
    let mut length = [0; 4];
    match input.read(&mut length)? {
        0 => return Ok(None),
        count => input.read_exact(&mut length[count..])?,
    }
    let length = u32::from_le_bytes(length);
    let is_description = length & DESCRIPTION != 0;
    let length = (length & !DESCRIPTION) as usize;
    if length > LONGEST {
        return Err(io::Error::other(format!("an entry of {length} bytes")));
    }
    let mut bytes = vec![0; length];
    input.read_exact(&mut bytes)?;
    Ok(Some((is_description, bytes)))
}

fn described<'c>(config: &'c Config, description: &Description) -> Option<&'c Arc<PacketCache>> {
    let mut pools = config.pools.iter().flatten();
    let pool = pools.find(|pool| pool.name == description.pool)?;
    let cache = pool.cache.as_ref()?;
    (Description::of(&pool.name, cache) == *description).then_some(cache)
}
