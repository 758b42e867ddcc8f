//! Memory that may be refused (F33). Rust ends the process where an allocation fails ("memory allocation of … bytes failed"):
//! one query's want would end everybody's service. So what is long is asked for in ways that may be refused, and what takes no
//! refusal (a task of tokio's, a call of Lua's, a box) is begun only where there is more than it should need.

use std::hint::black_box;

/// What must be there before something begins that takes no refusal, in bytes: many times a task, its channels and its
/// boxes. What another thread takes meanwhile it does not know. (From 64 KiB on, glibc tidies its heap whenever such a piece is
/// given back.)
const MARGIN: usize = 32_768;

/// Whether the allocator has so many bytes at once: they are taken and given back.
pub fn gives(bytes: usize) -> bool {
    let mut probe = Vec::<u8>::new();
    let is_given = probe.try_reserve_exact(bytes).is_ok();
    // What nobody looks at the compiler leaves out, and takes for given.
    black_box(&probe);
    is_given
}

/// Whether nothing should begin now that takes no refusal.
pub fn is_short() -> bool {
    !gives(MARGIN)
}

/// So many zeros.
pub fn zeroed(length: usize) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(length).ok()?;
    bytes.resize(length, 0);
    Some(bytes)
}

/// A copy. As it has no room to spare, it becomes a box where it is.
pub fn copy(bytes: &[u8]) -> Option<Vec<u8>> {
    joined(&[bytes])
}

/// The parts, one behind the other.
pub fn joined(parts: &[&[u8]]) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let length = parts.iter().map(|part| part.len()).sum();
    bytes.try_reserve_exact(length).ok()?;
    for part in parts {
        bytes.extend_from_slice(part);
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_there_can_be_is_refused() {
        let too_much = isize::MAX as usize;
        assert!(!gives(too_much) && zeroed(too_much).is_none());
        assert!(gives(1) && !is_short());
        assert_eq!(zeroed(3), Some(vec![0; 3]));
        assert_eq!(joined(&[b"ab", b"", b"c"]), Some(b"abc".to_vec()));
        assert_eq!(copy(b"abc").map(|copy| copy.capacity()), Some(3));
    }
}
