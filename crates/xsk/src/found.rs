//! What is on an interface, whoever has put it there.

use std::path::PathBuf;

use crate::attach::attached_program;
use crate::dnsdist;
use crate::error::Result;
use crate::kept;
use crate::nic::Nic;
use crate::sys::bpf;

/// The XDP program of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    pub id: u32,
    /// In the driver, not in the kernel's stack.
    pub native: bool,
    /// As far as the kernel keeps it (15 octets); `None`: this process may not look (CAP_SYS_ADMIN), nor at the maps.
    pub name: Option<String>,
    /// Names of its maps.
    pub maps: Vec<String>,
    /// Where its link and maps are pinned, of the places that we or dnsdist's loader would choose.
    pub pins: Vec<PathBuf>,
}

impl Found {
    /// What is on the interface; `None`: nothing.
    ///
    /// # Errors
    /// No netlink.
    pub fn on(nic: &Nic) -> Result<Option<Found>> {
        let Some(id) = attached_program(nic.index)? else {
            return Ok(None);
        };
        let facts = bpf::program_by_id(id).and_then(|program| bpf::describe_program(&program));
        let (name, used) = match facts {
            Ok(facts) => (Some(facts.name), facts.maps),
            Err(_) => (None, Vec::new()),
        };
        let mut pins = kept::links_of(&nic.name, nic.index, id);
        pins.extend(dnsdist::pins_on(&kept::folder_of(&nic.name), &used));
        Ok(Some(Found {
            id,
            native: bpf::is_native(nic.index).unwrap_or(true),
            name,
            maps: used.iter().filter_map(|&id| map_name(id)).collect(),
            pins,
        }))
    }
}

fn map_name(id: u32) -> Option<String> {
    let facts = bpf::map_by_id(id).and_then(|map| bpf::describe_map(&map));
    facts.ok().map(|facts| facts.name)
}
