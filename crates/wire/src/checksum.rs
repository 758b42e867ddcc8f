//! The Internet checksum (RFC 1071): the ones' complement sum of 16-bit words.
//!
//! The sum does not depend on the byte order (RFC 1071 §2 B) and may be taken over wider words and folded at the end
//! (§2 C). So words are read eight bytes at a time, as they lie in memory, and the result is turned round once.

/// A running ones' complement sum. Pieces may be added in any order, as long as each begins at an even offset of what
/// is summed (only the last may have an odd length).
#[derive(Clone, Copy, Debug, Default)]
pub struct Sum(u64);

impl Sum {
    /// The sum of nothing.
    pub const ZERO: Sum = Sum(0);

    /// Adds `bytes`; an odd last byte counts as if a zero byte followed it (RFC 1071 §4.1).
    #[inline]
    #[must_use]
    pub fn bytes(self, bytes: &[u8]) -> Sum {
        // Four words at a time are an addition each, the carry of one going into the next: word by word they take twice the
        // instructions and a jump each.
        let (fours, mut rest) = bytes.as_chunks::<32>();
        let (mut low, mut carries) = (self.0, 0);
        for four in fours {
            let mut carry = false;
            for word in four.as_chunks::<8>().0 {
                (low, carry) = low.carrying_add(u64::from_ne_bytes(*word), carry);
            }
            carries += u64::from(carry);
        }
        let mut wide = u128::from(carries) << 64 | u128::from(low);
        // No loop: a compiler takes it for a long one.
        if let Some((two, behind)) = rest.split_first_chunk::<16>() {
            for word in two.as_chunks::<8>().0 {
                wide += u128::from(u64::from_ne_bytes(*word));
            }
            rest = behind;
        }
        if let Some((word, tail)) = rest.split_first_chunk::<8>() {
            wide += u128::from(u64::from_ne_bytes(*word));
            rest = tail;
        }
        // How long the tail is no processor can foretell: no branch may depend on it.
        wide += u128::from(match bytes.last_chunk() {
            Some(last) => last_of(*last, rest.len()),
            None => padded(rest),
        });
        // 2^32 and 2^64 are both 1 modulo 2^16 − 1: parts may be added where they stand.
        let low = wide as u64;
        Sum((low & 0xffff_ffff) + (low >> 32) + (wide >> 64) as u64)
    }

    /// Adds one 16-bit number that is not in memory in network byte order.
    #[inline]
    #[must_use]
    pub fn word(self, value: u16) -> Sum {
        Sum(self.0 + u64::from(value.to_be()))
    }

    /// Adds the sum of another piece.
    #[inline]
    #[must_use]
    pub fn and(self, other: Sum) -> Sum {
        Sum(self.0 + other.0)
    }

    /// The sum in 16 bits, as a number. Over data that holds its own right checksum it is 0xffff.
    #[inline]
    #[must_use]
    pub fn fold(self) -> u16 {
        // RFC 1071 §1: a carry out of the highest place is added at the lowest.
        let (sum, carry) = (self.0 as u32).overflowing_add((self.0 >> 32) as u32);
        let sum = sum + u32::from(carry);
        let (sum, carry) = (sum as u16).overflowing_add((sum >> 16) as u16);
        u16::from_be(sum + u16::from(carry))
    }

    /// What goes into a checksum field: the complement of the sum.
    #[inline]
    #[must_use]
    pub fn checksum(self) -> u16 {
        !self.fold()
    }
}

/// The last `count` of eight bytes, at most seven, as a word of which they are the first, the others being zero.
#[inline]
fn last_of(eight: [u8; 8], count: usize) -> u64 {
    // In two steps: of none, all 64 bits are shifted out.
    let last = u64::from_le_bytes(eight) >> (8 * (7 - count)) >> 8;
    u64::from_ne_bytes(last.to_le_bytes())
}

/// Less than eight bytes, and zeros behind them.
#[inline]
fn padded(bytes: &[u8]) -> u64 {
    let mut eight = [0; 8];
    eight[..bytes.len()].copy_from_slice(bytes);
    u64::from_ne_bytes(eight)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// RFC 1071 §4.1, word by word.
    fn naive(bytes: &[u8]) -> u16 {
        let mut sum = 0_u32;
        for pair in bytes.chunks(2) {
            sum += u32::from(pair[0]) << 8 | pair.get(1).map_or(0, |low| u32::from(*low));
            sum = (sum & 0xffff) + (sum >> 16);
        }
        sum as u16
    }

    #[test]
    fn example_of_rfc_1071_section_3() {
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(Sum::ZERO.bytes(&bytes).fold(), 0xddf2);
        assert_eq!(Sum::ZERO.bytes(&bytes).checksum(), !0xddf2);
    }

    #[test]
    fn all_ones_carry_to_the_end() {
        for length in 0..=300 {
            let bytes = vec![0xff; length];
            assert_eq!(
                Sum::ZERO.bytes(&bytes).fold(),
                naive(&bytes),
                "{length} bytes"
            );
        }
    }

    proptest! {
        #[test]
        fn wide_sum_is_the_naive_sum(bytes in prop::collection::vec(any::<u8>(), 0..2000)) {
            prop_assert_eq!(Sum::ZERO.bytes(&bytes).fold(), naive(&bytes));
        }

        #[test]
        fn pieces_of_even_length_add_up(bytes in prop::collection::vec(any::<u8>(), 0..400), cut in 0_usize..200) {
            let cut = (cut * 2).min(bytes.len() & !1);
            let (first, second) = bytes.split_at(cut);
            prop_assert_eq!(Sum::ZERO.bytes(first).bytes(second).fold(), naive(&bytes));
            prop_assert_eq!(Sum::ZERO.bytes(second).bytes(first).fold(), naive(&bytes));
            prop_assert_eq!(Sum::ZERO.bytes(first).and(Sum::ZERO.bytes(second)).fold(), naive(&bytes));
        }

        #[test]
        fn words_are_numbers_in_network_order(words in prop::collection::vec(any::<u16>(), 0..100)) {
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
            let sum = words.iter().fold(Sum::ZERO, |sum, word| sum.word(*word));
            prop_assert_eq!(sum.fold(), naive(&bytes));
        }

        #[test]
        fn data_with_its_own_checksum_sums_to_all_ones(mut bytes in prop::collection::vec(any::<u8>(), 2..200)) {
            bytes[..2].fill(0);
            let checksum = Sum::ZERO.bytes(&bytes).checksum();
            bytes[..2].copy_from_slice(&checksum.to_be_bytes());
            prop_assert_eq!(Sum::ZERO.bytes(&bytes).fold(), 0xffff);
        }
    }
}
