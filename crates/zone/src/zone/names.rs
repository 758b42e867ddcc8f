//! Names as octets on the wire, where a zone needs more of them than crate `wire` has: their canonical order.

use std::cmp::Ordering;
use wire::name::LABELS_MAX;

/// Where the labels of `name` start, the root's not counted; and how many there are.
fn label_starts(name: &[u8]) -> ([u8; LABELS_MAX + 1], usize) {
    let mut starts = [0; LABELS_MAX + 1];
    let (mut at, mut count) = (0, 0);
    while name[at] != 0 {
        starts[count] = at as u8;
        count += 1;
        at += 1 + usize::from(name[at]);
    }
    (starts, count)
}

/// The name without its first label; the root's is the root.
#[inline]
pub(crate) fn parent(name: &[u8]) -> &[u8] {
    match name[0] {
        0 => name,
        length => &name[1 + usize::from(length)..],
    }
}

/// How many labels a name has without the root's.
pub(crate) fn labels(name: &[u8]) -> usize {
    let (mut at, mut count) = (0, 0);
    while name[at] != 0 {
        at += 1 + usize::from(name[at]);
        count += 1;
    }
    count
}

/// Whether `asked`, in whatever case, is `name`, which is in lower case: eight octets at a time, the last eight of which overlap
/// those before. Most names are too short for a call to be worth it.
#[inline]
pub(crate) fn same(name: &[u8], asked: &[u8]) -> bool {
    if name.len() != asked.len() {
        return false;
    }
    let (Some(last), Some(asked_last)) = (name.last_chunk(), asked.last_chunk()) else {
        return name.eq_ignore_ascii_case(asked);
    };
    let differ =
        |name: &[u8; 8], asked: &[u8; 8]| u64::from_le_bytes(*name) ^ u64::from_le_bytes(*asked);
    let eights = name.as_chunks().0.iter().zip(asked.as_chunks().0);
    // Nearly always the same, for their hashes are: no branch a step. Nearly all names are asked for in lower case.
    let differ = eights.fold(differ(last, asked_last), |bits, (name, asked)| {
        bits | differ(name, asked)
    });
    differ == 0 || same_in_other_case(name, asked)
}

/// Apart, so that names in lower case do not carry it along.
#[inline(never)]
fn same_in_other_case(name: &[u8], asked: &[u8]) -> bool {
    name.eq_ignore_ascii_case(asked)
}

/// Whether `name`, in lower case, is `apex` or below it.
pub(crate) fn is_within(name: &[u8], apex: &[u8]) -> bool {
    let mut suffix = name;
    while suffix.len() > apex.len() {
        suffix = parent(suffix);
    }
    suffix == apex
}

/// RFC 4034 §6.1: "by treating individual labels as unsigned left-justified octet strings. The absence of a octet sorts
/// before a zero value octet, and uppercase US-ASCII letters are treated as if they were lowercase". Both names in lower
/// case here.
pub(crate) fn canonical_order(one: &[u8], other: &[u8]) -> Ordering {
    let (starts, count) = label_starts(one);
    let (other_starts, other_count) = label_starts(other);
    for back in 1..=count.min(other_count) {
        let label = label(one, starts[count - back]);
        let order = label.cmp(self::label(other, other_starts[other_count - back]));
        if order != Ordering::Equal {
            return order;
        }
    }
    count.cmp(&other_count)
}

#[inline]
fn label(name: &[u8], start: u8) -> &[u8] {
    let start = usize::from(start);
    &name[start + 1..start + 1 + usize::from(name[start])]
}

/// Octets that compare as the names do in canonical order: labels from the root, each ended by a zero. Octets 0 and 1
/// within labels are written as two, so that an end sorts before them.
pub(crate) fn push_sort_key(name: &[u8], key: &mut Vec<u8>) {
    let (starts, count) = label_starts(name);
    for start in starts[..count].iter().rev() {
        for octet in label(name, *start) {
            match octet {
                0 | 1 => key.extend([1, 1 + octet]),
                octet => key.push(*octet),
            }
        }
        key.push(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn name(labels: &[&[u8]]) -> Vec<u8> {
        let mut wire = Vec::new();
        for label in labels {
            wire.push(label.len() as u8);
            wire.extend(*label);
        }
        wire.push(0);
        wire
    }

    /// The example of RFC 4034 §6.1.
    #[test]
    fn names_are_ordered_as_rfc_4034_shows() {
        let ordered = [
            name(&[b"example"]),
            name(&[b"a", b"example"]),
            name(&[b"yljkjljk", b"a", b"example"]),
            name(&[b"z", b"a", b"example"]),
            name(&[b"zabc", b"a", b"example"]),
            name(&[b"z", b"example"]),
            name(&[b"\x01", b"z", b"example"]),
            name(&[b"*", b"z", b"example"]),
            name(&[b"\xc8", b"z", b"example"]),
        ];
        for pair in ordered.windows(2) {
            assert_eq!(canonical_order(&pair[0], &pair[1]), Ordering::Less);
        }
    }

    fn any_name() -> impl Strategy<Value = Vec<u8>> {
        let octet = prop::sample::select(vec![0_u8, 1, 2, b'a', b'b', 255]);
        let label = prop::collection::vec(octet, 1..4);
        prop::collection::vec(label, 0..5).prop_map(|labels| {
            let labels: Vec<&[u8]> = labels.iter().map(Vec::as_slice).collect();
            name(&labels)
        })
    }

    proptest! {
        #[test]
        fn names_are_the_same_where_all_octets_are(asked in prop::collection::vec(any::<u8>(), 0..40), at in 0_usize..40) {
            let name = asked.to_ascii_lowercase();
            prop_assert!(same(&name, &asked) && same(&name, &asked.to_ascii_uppercase()));
            prop_assert!(!same(&name, &[&name[..], b"a"].concat()));
            let mut other = name.clone();
            if let Some(octet) = other.get_mut(at) {
                *octet ^= 1;
                prop_assert!(!same(&name, &other));
            }
        }

        #[test]
        fn keys_sort_as_names_and_as_domain_says(one in any_name(), other in any_name()) {
            let (mut key, mut other_key) = (Vec::new(), Vec::new());
            push_sort_key(&one, &mut key);
            push_sort_key(&other, &mut other_key);
            let order = canonical_order(&one, &other);
            prop_assert_eq!(key.cmp(&other_key), order);
            let domain = |name: &[u8]| domain::base::Name::from_octets(name.to_vec()).unwrap();
            prop_assert_eq!(domain(&one).cmp(&domain(&other)), order);
        }
    }
}
