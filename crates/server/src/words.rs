//! Bytes in atomic words: memory that several threads read while one writes, without `unsafe`.
//!
//! A reader may see a mixture of two writes; whoever uses these words has a sequence or a compare-and-swap that tells
//! (the packet cache, the exchange table, the rings of recent queries).

mod sys;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

pub use sys::Words;

/// `count` words of zero; their pages take no memory until they are touched. From 2 MiB on these are huge pages, if the kernel
/// has some (transparent_hugepage is not `never`).
///
/// # Panics
/// When there is no memory for them.
pub fn zeroed(count: usize) -> Words {
    Words::zeroed(count).unwrap_or_else(|| panic!("there is no memory for {count} words"))
}

/// The same where memory may be short: `None` when there is none, or [`let_grow`] has forbidden to take more.
pub fn try_zeroed(count: usize) -> Option<Words> {
    match MAY_GROW.load(Relaxed) {
        true => Words::zeroed(count),
        false => None,
    }
}

/// Gives the memory of large areas back to the kernel, which makes all of their words zero; how many bytes. They may be used as
/// before, and take memory then.
pub fn give_back(words: &Words) -> u64 {
    words.give_back()
}

/// Whether what can do with the memory it has may take more: the one answer of the whole process, for there is one memory.
static MAY_GROW: AtomicBool = AtomicBool::new(true);

/// Allows or forbids [`try_zeroed`]; whether that is another answer than before.
pub fn let_grow(may: bool) -> bool {
    MAY_GROW.swap(may, Relaxed) != may
}

/// Words in a cache line of 64 bytes.
pub const LINE: usize = 8;

/// Zeroed words in whole cache lines, so that eight words that belong together cost one miss.
///
/// ```text
///  words[0 .. start] unused │ line 0: 8 words │ line 1: 8 words │ …
/// ```
#[derive(Debug, Default)]
pub struct Lines {
    words: Words,
    /// Words before the first line: of less than 2 MiB the allocator aligns to 16 bytes only (asking for more would touch every
    /// page).
    start: usize,
}

impl Lines {
    /// `count` lines of zero; their pages take no memory until they are touched.
    pub fn zeroed(count: usize) -> Lines {
        let words = zeroed((count + 1) * LINE);
        let start = words.as_ptr().addr().wrapping_neg() % (LINE * 8) / 8;
        Lines { words, start }
    }

    /// The words of `count` lines from line `first` on.
    ///
    /// # Panics
    /// When there are not so many.
    pub fn get(&self, first: usize, count: usize) -> &[AtomicU64] {
        let from = self.start + first * LINE;
        &self.words[from..from + count * LINE]
    }

    /// The `COUNT` words from line `first` on: of an array it is known that each is there.
    ///
    /// # Panics
    /// When there are not so many.
    #[inline]
    pub fn array<const COUNT: usize>(&self, first: usize) -> &[AtomicU64; COUNT] {
        let words = self.words.get(self.start + first * LINE..);
        let words = words.and_then(|words| words.first_chunk());
        words.expect("lines that there are")
    }

    /// Asks the processor for line `number`, which will be used soon.
    #[inline]
    pub fn prefetch(&self, number: usize) {
        prefetch(&self.words, self.start + number * LINE);
    }
}

/// Asks the processor for the cache line of the word at `place`, which will be used soon; there may be no such word.
#[inline]
pub fn prefetch(words: &[AtomicU64], place: usize) {
    xsk::prefetch_line(words.as_ptr().wrapping_add(place).cast());
}

/// Words that are compared or copied without a jump for each.
pub const GROUP: usize = 4;

/// Words that are copied without a jump for each, where a group would be too much.
const PAIR: usize = 2;

/// Words in groups: one behind the other from the front on, and the last four, of which some may be in the group before as well.
/// So any number of words from four on is taken without a jump for each, and none of zero is needed behind them. `None`: there
/// are fewer.
#[inline]
pub fn in_groups<T>(words: &[T]) -> Option<(&[[T; GROUP]], &[T; GROUP])> {
    let last = words.last_chunk()?;
    let front = &words[..words.len() - 1];
    Some((front.as_chunks().0, last))
}

/// How many words hold `bytes` bytes, in whole pairs.
pub const fn paired_words_for(bytes: usize) -> usize {
    bytes.div_ceil(8 * PAIR) * PAIR
}

/// How many words hold `bytes` bytes.
pub const fn words_for(bytes: usize) -> usize {
    bytes.div_ceil(8)
}

/// Copies `bytes` into the front of `words`, and zeros into the rest of it.
///
/// # Panics
/// When `words` is too short.
#[inline]
pub fn store_all(words: &[AtomicU64], bytes: &[u8]) {
    store(words, bytes);
    for word in &words[words_for(bytes.len())..] {
        word.store(0, Relaxed);
    }
}

/// Copies the first `length` of `bytes` into the front of `words`, whole groups of them where both have so many: what follows
/// the `length` bytes may be anything then.
///
/// # Panics
/// When `words` is too short.
#[inline]
pub fn store_over(words: &[AtomicU64], bytes: &[u8], length: usize) {
    let count = length.div_ceil(8 * GROUP);
    let groups = words.as_chunks::<GROUP>().0.get(..count);
    let sources = bytes.as_chunks::<{ 8 * GROUP }>().0.get(..count);
    let (Some(groups), Some(sources)) = (groups, sources) else {
        return store(words, &bytes[..length]);
    };
    for (group, source) in groups.iter().zip(sources) {
        for (word, eight) in group.iter().zip(source.as_chunks::<8>().0) {
            word.store(u64::from_le_bytes(*eight), Relaxed);
        }
    }
}

/// Copies `bytes` into the front of `words`; the rest of the last word is zero.
///
/// # Panics
/// When `words` is too short.
#[inline]
pub fn store(words: &[AtomicU64], bytes: &[u8]) {
    let (chunks, rest) = bytes.as_chunks::<8>();
    let (whole, behind) = words.split_at(chunks.len());
    for (word, chunk) in whole.iter().zip(chunks) {
        word.store(u64::from_le_bytes(*chunk), Relaxed);
    }
    if !rest.is_empty() {
        behind[0].store(last(bytes, rest.len()), Relaxed);
    }
}

/// The last `count` bytes, one to seven, the first lowest.
#[inline]
pub fn last(bytes: &[u8], count: usize) -> u64 {
    // Eight are read at once where there are so many: those before are shifted out.
    match bytes.last_chunk::<8>() {
        Some(last) => u64::from_le_bytes(*last) >> (8 * (8 - count)),
        None => partial(&bytes[bytes.len() - count..]),
    }
}

/// Up to seven bytes, the first lowest.
#[inline]
pub fn partial(bytes: &[u8]) -> u64 {
    let join = |word, byte: &u8| word << 8 | u64::from(*byte);
    bytes.iter().rev().fold(0, join)
}

/// Copies the front of `words` into all of `bytes`.
///
/// # Panics
/// When `words` is too short.
#[inline]
pub fn load(words: &[AtomicU64], bytes: &mut [u8]) {
    let (chunks, rest) = bytes.as_chunks_mut::<8>();
    let (whole, behind) = words.split_at(chunks.len());
    for (chunk, word) in chunks.iter_mut().zip(whole) {
        *chunk = word.load(Relaxed).to_le_bytes();
    }
    let count = rest.len();
    if count == 0 {
        return;
    }
    let last = behind[0].load(Relaxed);
    match (whole.last(), bytes.last_chunk_mut::<8>()) {
        // Eight are written at once: those before, which are there already, once more.
        (Some(before), Some(eight)) => {
            let joined = before.load(Relaxed) >> (8 * count) | last << (8 * (8 - count));
            *eight = joined.to_le_bytes();
        }
        _ => bytes.copy_from_slice(&last.to_le_bytes()[..count]),
    }
}

/// Copies `words`, whole pairs that hold `length` bytes, into the front of `bytes`, all of them where there is room: what
/// follows the `length` bytes is written over then. `None`: there is no room for `length`, and nothing was copied.
#[inline]
pub fn load_over(words: &[AtomicU64], bytes: &mut [u8], length: usize) -> Option<()> {
    debug_assert_eq!(words.len(), paired_words_for(length));
    let (pairs, _) = words.as_chunks::<PAIR>();
    let rooms = bytes.as_chunks_mut::<{ 8 * PAIR }>().0;
    match rooms.get_mut(..pairs.len()) {
        Some(rooms) => {
            for (room, pair) in rooms.iter_mut().zip(pairs) {
                for (eight, word) in room.as_chunks_mut::<8>().0.iter_mut().zip(pair) {
                    *eight = word.load(Relaxed).to_le_bytes();
                }
            }
        }
        None => load(words, bytes.get_mut(..length)?),
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::time::{Duration, Instant};

    proptest! {
        #[test]
        fn what_was_stored_is_loaded(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let words = zeroed(paired_words_for(200));
            words.iter().for_each(|word| word.store(u64::MAX, Relaxed));
            let stored = &words[..paired_words_for(bytes.len())];
            store_all(stored, &bytes);
            for room in bytes.len()..bytes.len() + 8 * PAIR + 1 {
                let mut over = vec![0xff; room];
                prop_assert_eq!(load_over(stored, &mut over, bytes.len()), Some(()));
                prop_assert_eq!(&over[..bytes.len()], &bytes[..]);
                prop_assert!(over[bytes.len()..].iter().all(|octet| [0, 0xff].contains(octet)));
            }
            for length in 0..=bytes.len() {
                let over = zeroed(words_for(bytes.len()).next_multiple_of(GROUP));
                store_over(&over, &bytes, length);
                let mut front = vec![0; length];
                load(&over, &mut front);
                prop_assert_eq!(&bytes[..length], &front[..]);
            }
            let mut short = vec![0xff; bytes.len()];
            if short.pop().is_some() {
                prop_assert_eq!(load_over(stored, &mut short, bytes.len()), None);
                prop_assert!(short.iter().all(|octet| *octet == 0xff));
            }
            let mut back = vec![0; bytes.len()];
            load(&words, &mut back);
            prop_assert_eq!(bytes, back);
        }
    }

    #[test]
    fn each_word_from_four_on_is_in_a_group() {
        let words: Vec<usize> = (0..40).collect();
        for count in 0..=words.len() {
            let groups = in_groups(&words[..count]);
            assert_eq!(groups.is_some(), count >= GROUP, "{count} words");
            let Some((front, last)) = groups else {
                continue;
            };
            assert_eq!(front.len() + 1, count.div_ceil(GROUP), "{count} words");
            let mut seen = [front.as_flattened(), last].concat();
            seen.dedup();
            seen.sort_unstable();
            seen.dedup();
            assert_eq!(seen, words[..count]);
        }
    }

    /// Of the area that `words` lie in: kB of transparent huge pages.
    fn huge(words: &Words) -> u64 {
        let smaps = std::fs::read_to_string("/proc/self/smaps").expect("proc is mounted");
        let start = format!("{:x}-", words.as_ptr().addr());
        let mut lines = smaps.lines().skip_while(|line| !line.starts_with(&start));
        let line = lines.find_map(|line| line.strip_prefix("AnonHugePages:"));
        let number = line.and_then(|line| line.split_whitespace().next());
        number.and_then(|number| number.parse().ok()).unwrap_or(0)
    }

    /// How often the kernel had no huge page for memory that was touched.
    fn refused() -> u64 {
        let text = std::fs::read_to_string("/proc/vmstat").unwrap_or_default();
        let mut lines = text.lines();
        let number = lines.find_map(|line| line.strip_prefix("thp_fault_fallback "));
        number.and_then(|number| number.parse().ok()).unwrap_or(0)
    }

    /// Nothing was touched; the first huge page, and the last one, of which half is not enough; the second. Where it is more than
    /// half of one: that one.
    const AS_TOUCHED: [u64; 4] = [0, 2 << 10, 4 << 10, 2 << 10];

    /// Touches words here and there: what lies in huge pages before and after.
    fn huge_as_touched() -> [u64; 4] {
        let words = zeroed((5 << 20) / 8);
        assert_eq!(words.as_ptr().addr() % (2 << 20), 0);
        let before = huge(&words);
        words[0].store(1, Relaxed);
        words[words.len() - 1].store(1, Relaxed);
        let ends = huge(&words);
        words[(3 << 20) / 8].store(1, Relaxed);
        let all = huge(&words);
        let written = words.iter().map(|word| word.load(Relaxed)).sum::<u64>();
        assert_eq!(written, 3, "all others are zero");
        drop(words);
        let more_than_half = zeroed((1 << 20) / 8 + 1);
        more_than_half[0].store(1, Relaxed);
        [before, ends, all, huge(&more_than_half)]
    }

    #[test]
    fn many_words_lie_in_huge_pages_from_the_first_touch_on() {
        let enabled = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled");
        if !enabled.is_ok_and(|words| !words.contains("[never]")) {
            println!("SKIP: this kernel gives no transparent huge pages");
            return;
        }
        // Another test's words may come to lie beside these, and the kernel then tells of both together.
        let (begun, refused) = (Instant::now(), refused());
        let mut found = huge_as_touched();
        while found != AS_TOUCHED && begun.elapsed() < Duration::from_secs(10) {
            std::thread::yield_now();
            found = huge_as_touched();
        }
        if found != AS_TOUCHED && self::refused() > refused {
            println!("SKIP: this machine has no huge page left: its memory is in pieces");
            return;
        }
        assert_eq!(found, AS_TOUCHED);
        assert!(
            Words::zeroed(usize::MAX / 16).is_none(),
            "so much there is not"
        );
        assert_eq!(zeroed(0).len(), 0);
    }

    #[test]
    fn lines_start_where_cache_lines_do() {
        let lines = Lines::zeroed(100);
        assert_eq!(lines.get(0, 1).as_ptr().addr() % 64, 0);
        assert_eq!(lines.get(98, 2).len(), 16);
        assert!(lines.get(0, 100).iter().all(|word| word.load(Relaxed) == 0));
    }
}
