//! Netmasks laid out for the look-up: up to millions of them cost one short binary search.
//!
//! Of the masks that cover an address the longest decides. Laid side by side, sets of masks are points at which "included"
//! begins or ends; an address is included when the number of points up to it is odd.
//!
//! ```text
//!  masks    10.0.0.0/8 │ !10.1.0.0/16 │ 10.1.2.3/32
//!  points   10.0.0.0 in │ 10.1.0.0 out │ 10.1.2.3 in │ 10.1.2.4 out │ 10.2.0.0 in │ 11.0.0.0 out
//! ```

/// One mask: first and last address, whether it includes.
pub(super) type Span<B> = (B, B, bool);

/// An address as a number.
pub(super) trait Address: Copy + Ord {
    /// The address behind it; `None` behind the last one.
    fn next(self) -> Option<Self>;

    /// Its first so many bits, at most 16, as a number.
    fn first_bits(self, count: u32) -> usize;
}

impl Address for u32 {
    fn next(self) -> Option<u32> {
        self.checked_add(1)
    }

    #[inline]
    fn first_bits(self, count: u32) -> usize {
        (self >> (32 - count)) as usize
    }
}

impl Address for u128 {
    fn next(self) -> Option<u128> {
        self.checked_add(1)
    }

    #[inline]
    fn first_bits(self, count: u32) -> usize {
        (self >> (128 - count)) as usize
    }
}

/// Points at which addresses begin or end to be included, ascending.
#[derive(Clone)]
pub(super) struct Ranges<B> {
    points: Vec<B>,
    /// How many points have lower first bits than each value of so many bits; one entry more at the end.
    index: Vec<u32>,
    index_bits: u32,
}

impl<B: Address> Ranges<B> {
    /// From masks by first address, the wider of two first.
    pub(super) fn new(spans: impl Iterator<Item = Span<B>>) -> Ranges<B> {
        let mut points = Points(Vec::new());
        // The masks around the place where we are, the narrowest last.
        let mut around: Vec<(B, bool)> = Vec::new();
        let leave = |around: &mut Vec<(B, bool)>, points: &mut Points<B>| {
            let left = around.pop().and_then(|(last, _)| last.next());
            if let Some(behind) = left {
                points.set(behind, around.last().is_some_and(|mask| mask.1));
            }
        };
        for (first, last, included) in spans {
            while around.last().is_some_and(|mask| mask.0 < first) {
                leave(&mut around, &mut points);
            }
            around.push((last, included));
            points.set(first, included);
        }
        while !around.is_empty() {
            leave(&mut around, &mut points);
        }
        let Points(mut points) = points;
        points.shrink_to_fit();
        // As many values as points, but no more than fit half a megabyte's cache.
        let index_bits = points.len().max(2).ilog2().min(16);
        let below = |value: usize| {
            let below = |point: &B| point.first_bits(index_bits) < value;
            points.partition_point(below) as u32
        };
        Ranges {
            index: (0..=1 << index_bits).map(below).collect(),
            index_bits,
            points,
        }
    }

    #[inline]
    pub(super) fn contain(&self, address: B) -> bool {
        let place = address.first_bits(self.index_bits);
        let (start, end) = (self.index[place] as usize, self.index[place + 1] as usize);
        let upto = |point: &B| *point <= address;
        (start + self.points[start..end].partition_point(upto)) % 2 == 1
    }
}

/// Points as they are found, in ascending order.
struct Points<B>(Vec<B>);

impl<B: Address> Points<B> {
    /// From `at` on, addresses are included or not.
    fn set(&mut self, at: B, included: bool) {
        if included == (self.0.len() % 2 == 1) {
            return;
        }
        if self.0.last() == Some(&at) {
            self.0.pop();
        } else {
            self.0.push(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points(spans: &[Span<u32>]) -> Vec<u32> {
        Ranges::new(spans.iter().copied()).points
    }

    #[test]
    fn masks_within_masks_are_points_in_order() {
        assert_eq!(
            points(&[(16, 31, true), (16, 19, false), (18, 18, true)]),
            [18, 19, 20, 32]
        );
        let last = u32::MAX;
        assert_eq!(points(&[(0, last, true), (last, last, false)]), [0, last]);
        // Side by side is one; what changes nothing is nothing.
        assert_eq!(points(&[(0, 7, true), (8, 15, true)]), [0, 16]);
        assert_eq!(points(&[(0, 7, true), (4, 7, true)]), [0, 8]);
        assert_eq!(points(&[(0, 7, false)]), [0; 0]);
    }

    #[test]
    fn every_address_is_found_wherever_the_index_cuts() {
        let spans = (0..1_000_u32).map(|number| (number << 20, (number << 20) + 3, true));
        let ranges = Ranges::new(spans);
        for number in 0..1_100 {
            for offset in [0, 3, 4, 0xf_ffff] {
                let expected = number < 1_000 && offset < 4;
                assert_eq!(ranges.contain((number << 20) + offset), expected);
            }
        }
        assert!(Ranges::new([(0_u128, u128::MAX, true)].into_iter()).contain(u128::MAX));
        assert!(!Ranges::new(std::iter::empty()).contain(0_u32));
    }
}
