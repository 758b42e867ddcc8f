//! What kind of pages memory lies in, as the kernel says afterwards: what was asked for is not always had.

use std::fmt;

use crate::sys::memory::{HUGE_PAGE, node_of};

/// An area of this process's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Area {
    start: u64,
    octets: u64,
}

/// The pages of an [`Area`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pages {
    /// Of the area.
    pub octets: u64,
    /// Octets in reserved huge pages (vm.nr_hugepages).
    pub reserved: u64,
    /// Octets in transparent huge pages.
    pub transparent: u64,
    /// The node of the machine on which its first page lies; `None`: the kernel knows of none.
    pub node: Option<u32>,
}

/// What the kernel says of all memory of this process (proc_pid_smaps(5)): to be read once for many areas. Empty where it says
/// nothing.
pub fn smaps() -> String {
    std::fs::read_to_string("/proc/self/smaps").unwrap_or_default()
}

impl Area {
    pub(crate) fn new(start: u64, octets: u64) -> Area {
        Area { start, octets }
    }

    /// The kinds of its pages, by [`smaps`]. Pages that were never touched are none yet.
    pub fn pages(&self, smaps: &str) -> Pages {
        let mut pages = Pages {
            octets: self.octets,
            node: node_of(self.start),
            ..Pages::default()
        };
        let mut is_inside = false;
        for line in smaps.lines() {
            if let Some((start, end)) = range(line) {
                is_inside = start < self.start + self.octets && self.start < end;
                continue;
            }
            let Some((name, kilobytes)) = field(line).filter(|_| is_inside) else {
                continue;
            };
            match name {
                "Private_Hugetlb" | "Shared_Hugetlb" => pages.reserved += kilobytes << 10,
                "AnonHugePages" | "ShmemPmdMapped" => pages.transparent += kilobytes << 10,
                _ => {}
            }
        }
        // Areas of the same kind that touch are one to the kernel, and the last huge page may be longer than what is used.
        pages.reserved = pages.reserved.min(self.octets);
        pages.transparent = pages.transparent.min(self.octets);
        pages
    }
}

/// `7f2d5a400000-7f2d5c000000 rw-p 00000000 00:00 0`: where an area starts and ends.
fn range(line: &str) -> Option<(u64, u64)> {
    let (start, end) = line.split(' ').next()?.split_once('-')?;
    let number = |text| u64::from_str_radix(text, 16).ok();
    Some((number(start)?, number(end)?))
}

/// `AnonHugePages:     24576 kB`
fn field(line: &str) -> Option<(&str, u64)> {
    let (name, rest) = line.split_once(':')?;
    Some((name, rest.split_whitespace().next()?.parse().ok()?))
}

/// `24 MiB in reserved huge pages, node 0`
impl fmt::Display for Pages {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mebibytes = |octets: u64| octets >> 20;
        let all = mebibytes(self.octets);
        // What is shorter than a huge page at the end cannot be in one.
        let whole = self.octets / HUGE_PAGE as u64 * HUGE_PAGE as u64;
        match (self.reserved, self.transparent) {
            (0, 0) => write!(out, "{all} MiB in small pages")?,
            (0, some) if some < whole => write!(
                out,
                "{all} MiB, {} of them in transparent huge pages",
                mebibytes(some)
            )?,
            (0, _) => write!(out, "{all} MiB in transparent huge pages")?,
            _ => write!(out, "{all} MiB in reserved huge pages")?,
        }
        match self.node {
            Some(node) => write!(out, ", node {node}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMAPS: &str = "\
10000000-10400000 rw-p 00000000 00:00 0
Size:               4096 kB
AnonHugePages:      4096 kB
Private_Hugetlb:       0 kB
20000000-21a00000 rw-p 00000000 00:0f 4  /anon_hugepage (deleted)
AnonHugePages:         0 kB
Private_Hugetlb:   26624 kB
VmFlags: rd wr mr mw me dc de ht sd
30000000-31a00000 rw-p 00000000 00:00 0
AnonHugePages:      2048 kB
Private_Hugetlb:       0 kB
";

    fn pages(start: u64, octets: u64) -> Pages {
        let pages = Area::new(start, octets).pages(SMAPS);
        Pages {
            node: None,
            ..pages
        }
    }

    #[test]
    fn the_kinds_of_pages_are_read_and_said() {
        let two = 25 << 20;
        assert_eq!(pages(0x1000_0000, 3 << 20).transparent, 3 << 20);
        assert_eq!(pages(0x2000_0000, two).reserved, two);
        assert_eq!(pages(0x3000_0000, two).transparent, 2 << 20);
        assert_eq!(
            pages(0x4000_0000, two),
            Pages {
                octets: two,
                ..Pages::default()
            }
        );
        let said = |start, octets| pages(start, octets).to_string();
        assert_eq!(
            said(0x1000_0000, 3 << 20),
            "3 MiB in transparent huge pages"
        );
        assert_eq!(said(0x2000_0000, two), "25 MiB in reserved huge pages");
        assert_eq!(
            said(0x3000_0000, two),
            "25 MiB, 2 of them in transparent huge pages"
        );
        assert_eq!(said(0x4000_0000, two), "25 MiB in small pages");
        let node = Pages {
            octets: two,
            node: Some(1),
            ..Pages::default()
        };
        assert_eq!(node.to_string(), "25 MiB in small pages, node 1");
    }
}
