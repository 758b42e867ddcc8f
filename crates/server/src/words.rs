//! Bytes in atomic words: memory that several threads read while one writes, without `unsafe`.
//!
//! A reader may see a mixture of two writes; whoever uses these words has a sequence or a compare-and-swap that tells
//! (the packet cache, the exchange table, the rings of recent queries).

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// `count` words of zero.
pub fn zeroed(count: usize) -> Box<[AtomicU64]> {
    (0..count).map(|_| AtomicU64::new(0)).collect()
}

/// How many words hold `bytes` bytes.
pub const fn words_for(bytes: usize) -> usize {
    bytes.div_ceil(8)
}

/// Copies `bytes` into the front of `words`; the rest of the last word is zero.
///
/// # Panics
/// When `words` is too short.
pub fn store(words: &[AtomicU64], bytes: &[u8]) {
    let whole = bytes.len() / 8;
    let chunks = bytes.chunks_exact(8);
    let rest = chunks.remainder();
    for (word, chunk) in words[..words_for(bytes.len())].iter().zip(chunks) {
        word.store(
            u64::from_le_bytes(chunk.try_into().unwrap_or_default()),
            Relaxed,
        );
    }
    if !rest.is_empty() {
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        words[whole].store(u64::from_le_bytes(last), Relaxed);
    }
}

/// Copies the front of `words` into all of `bytes`.
///
/// # Panics
/// When `words` is too short.
pub fn load(words: &[AtomicU64], bytes: &mut [u8]) {
    let needed = words_for(bytes.len());
    for (chunk, word) in bytes.chunks_mut(8).zip(&words[..needed]) {
        let value = word.load(Relaxed).to_le_bytes();
        chunk.copy_from_slice(&value[..chunk.len()]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_was_stored_is_loaded(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let words = zeroed(words_for(200));
            store(&words, &bytes);
            let mut back = vec![0; bytes.len()];
            load(&words, &mut back);
            prop_assert_eq!(bytes, back);
        }
    }
}
