//! The memory of frames: on reserved huge pages when there are enough, else on transparent ones, else on small ones; nothing of
//! that is an error. Reserved pages are the machine's: this test makes some and gives them back.

use std::fs;

use xsk::{CHUNK, Pages, Umem, UmemOptions, smaps};

const RESERVED: &str = "/proc/sys/vm/nr_hugepages";

/// Reserves huge pages as long as it lives.
struct Reserve {
    before: String,
}

impl Reserve {
    /// `None`: not allowed, or the machine has no room for so many more.
    fn more(pages: u64) -> Option<Reserve> {
        let before = fs::read_to_string(RESERVED).ok()?;
        let wanted = before.trim().parse::<u64>().ok()? + pages;
        let reserve = Reserve { before };
        fs::write(RESERVED, wanted.to_string()).ok()?;
        let there = fs::read_to_string(RESERVED).ok()?;
        (there.trim().parse() == Ok(wanted)).then_some(reserve)
    }
}

impl Drop for Reserve {
    fn drop(&mut self) {
        fs::write(RESERVED, self.before.trim()).unwrap();
    }
}

/// 12 MiB and a little, as an odd number of rings makes it.
const FRAMES: u32 = 6 * 1024 + 64;

/// What a UMEM of [`FRAMES`] lies in once all of it is used.
fn used(mut umem: Umem) -> Pages {
    let frames: Vec<_> = std::iter::from_fn(|| umem.take()).collect();
    for frame in &frames {
        umem.chunk_mut(frame)[CHUNK - 1] = 1;
    }
    let pages = umem.area().pages(&smaps());
    frames.into_iter().for_each(|frame| umem.give(frame));
    pages
}

fn made(huge_pages: bool) -> Pages {
    let options = UmemOptions {
        huge_pages,
        node: Some(0),
    };
    used(Umem::new(FRAMES, options).unwrap())
}

fn shared() -> Pages {
    let memory = Umem::shared_memory(FRAMES, Some(0)).unwrap();
    used(Umem::of_shared_memory(&memory).unwrap())
}

/// Whether the kernel gives transparent huge pages to who asks.
fn has_transparent() -> bool {
    let enabled = fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled");
    enabled.is_ok_and(|words| !words.contains("[never]"))
}

/// Whether the kernel gathers pages of shared memory for who asks (MADV_COLLAPSE): since Linux 6.1.
fn gathers() -> bool {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut numbers = release
        .split('.')
        .map_while(|number| number.parse::<u32>().ok());
    (numbers.next(), numbers.next()) >= (Some(6), Some(1))
}

/// How often the kernel had no huge page for memory that was touched: where it is in pieces.
fn refused() -> Option<String> {
    let text = fs::read_to_string("/proc/vmstat").ok()?;
    let mut lines = text.lines();
    let line = lines.find(|line| line.starts_with("thp_fault_fallback "))?;
    Some(line.to_owned())
}

#[test]
fn frames_lie_in_the_largest_pages_that_there_are() {
    let octets = u64::from(FRAMES) * CHUNK as u64;
    let small = made(false);
    assert_eq!((small.reserved, small.transparent), (0, 0), "{small}");
    assert_eq!(small.octets, octets);
    // Three times as many as a UMEM takes, for the other test has one, and some.
    match Reserve::more(30) {
        None => println!("SKIP: no huge pages can be reserved here"),
        Some(_reserve) => {
            assert_eq!(made(true).reserved, octets, "reserved ones are taken");
            assert_eq!(
                shared().reserved,
                14 << 20,
                "and shared, to the last one's end"
            );
            let (first, second) = (Umem::new(FRAMES, UmemOptions::default()), made(true));
            assert_eq!(used(first.unwrap()).reserved, octets);
            assert_eq!(second.reserved, octets, "as often as there are enough");
        }
    }
    // Whoever runs beside this test may have reserved pages of its own.
    let before = refused();
    let large = made(true);
    if has_transparent() && large.reserved == 0 && refused() == before {
        assert!(large.transparent >= 12 << 20, "all but its end: {large}");
    }
    let before = refused();
    let shared = shared();
    assert_eq!(shared.octets % CHUNK as u64, 0);
    if has_transparent() && gathers() && shared.reserved == 0 && refused() == before {
        assert!(shared.transparent >= 12 << 20, "all but its end: {shared}");
    }
}

#[test]
fn a_node_that_there_is_not_is_no_error() {
    let options = UmemOptions {
        huge_pages: true,
        node: Some(63),
    };
    assert_eq!(
        used(Umem::new(FRAMES, options).unwrap()).octets,
        u64::from(FRAMES) * CHUNK as u64
    );
}
