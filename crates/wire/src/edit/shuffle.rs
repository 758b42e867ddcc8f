//! The addresses of a name in another order.

use crate::codes::qtype;
use crate::message::{Header, Record, Records, Section};
use crate::name::{NAME_LENGTH_MAX, compressed};

/// So many sets of addresses change their order: an answer has one, or two where it is an answer to ANY.
const RUNS_MAX: usize = 4;

/// Addresses of one name that stand one behind the other.
#[derive(Clone, Copy, Default)]
struct Run {
    /// Where the first one's TTL is.
    first: usize,
    /// Where the second one's is: the first one's owner may be longer, or shorter, than those of all others.
    second: usize,
    /// From one TTL to the next, from the second on.
    stride: usize,
    /// Octets of TTL, length and address.
    length: usize,
    count: u32,
}

impl Run {
    fn of(record: &Record) -> Run {
        Run {
            first: record.ttl_start.into(),
            length: usize::from(record.rdata_end - record.ttl_start),
            count: 1,
            ..Run::default()
        }
    }

    fn add(&mut self, record: &Record) {
        if self.count == 1 {
            self.second = record.ttl_start.into();
            self.stride = usize::from(record.rdata_end - record.owner_start);
        }
        self.count += 1;
    }

    fn place(&self, index: u32) -> usize {
        match index.checked_sub(1) {
            None => self.first,
            Some(behind) => self.second + behind as usize * self.stride,
        }
    }
}

/// Puts the A records and the AAAA records of each name, in the answer section of the response in `message`, into another
/// order. RFC 2181 §5: the records of a set have none. `below(n)`: a random number below `n`. What moves is TTLs and data:
/// names, which others may point to, stay where they are.
pub fn shuffle_addresses(message: &mut [u8], question_end: u16, mut below: impl FnMut(u32) -> u32) {
    for run in runs(message, question_end) {
        for last in (1..run.count).rev() {
            let other = below(last + 1).min(last);
            if other == last {
                continue;
            }
            let place = run.place(other);
            let (front, back) = message.split_at_mut(run.place(last));
            front[place..place + run.length].swap_with_slice(&mut back[..run.length]);
        }
    }
}

/// The rest of them have no records.
fn runs(message: &[u8], question_end: u16) -> [Run; RUNS_MAX] {
    let mut runs = [Run::default(); RUNS_MAX];
    let Some(header) = Header::read(message) else {
        return runs;
    };
    let mut known: usize = 0;
    let mut before: Option<Record> = None;
    for record in Records::new(message, question_end, &header).map_while(Result::ok) {
        if record.section != Section::Answer {
            break;
        }
        if !matches!(record.rtype, qtype::A | qtype::AAAA) {
            before = None;
            continue;
        }
        let count = known.checked_sub(1).map_or(0, |last| runs[last].count);
        if before.is_some_and(|before| is_of_one_set(message, &before, &record, count)) {
            runs[known - 1].add(&record);
        } else if known < RUNS_MAX {
            runs[known] = Run::of(&record);
            known += 1;
        } else {
            break;
        }
        before = Some(record);
    }
    runs
}

/// Whether `other` belongs to the set that `one` is the last of, of so many. Their names are the same in the same octets, so
/// that all strides are equal; only the first one's may be written in another way.
fn is_of_one_set(message: &[u8], one: &Record, other: &Record, count: u32) -> bool {
    let fields = |record: &Record| {
        let start = usize::from(record.ttl_start) - 4;
        (
            message.get(record.owner_start.into()..start),
            message.get(start..record.ttl_start.into()),
        )
    };
    let length = |record: &Record| record.rdata_end - record.rdata_start;
    let ((name, kind), (other_name, other_kind)) = (fields(one), fields(other));
    // Type and class lie between name and TTL.
    kind == other_kind
        && length(one) == length(other)
        && (name == other_name || (count == 1 && have_one_name(message, one, other)))
}

fn have_one_name(message: &[u8], one: &Record, other: &Record) -> bool {
    let mut buffers = [[0; NAME_LENGTH_MAX]; 2];
    let [first, second] = &mut buffers;
    let one = compressed::expand(message, one.owner_start.into(), first);
    let other = compressed::expand(message, other.owner_start.into(), second);
    one.is_ok() && one == other
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::examples::Composed;
    use crate::message::parse_response;

    const TO_QNAME: &[u8] = b"\xc0\x0c";

    /// Fisher and Yates with the least numbers: what was first is last.
    fn turned(message: &[u8]) -> Vec<u8> {
        let mut message = message.to_vec();
        let question_end = parse_response(&message).unwrap().question_end;
        shuffle_addresses(&mut message, question_end, |_| 0);
        message
    }

    #[test]
    fn addresses_change_places_with_their_ttls_and_nothing_else_does() {
        let response = |order: [u8; 3]| {
            let mut message = Composed::response("www.example.com", 1).record(
                Section::Answer,
                TO_QNAME,
                5,
                9,
                TO_QNAME,
            );
            for number in order {
                let address = [192, 0, 2, number];
                let ttl = 300 + u32::from(number);
                message = message.record(Section::Answer, TO_QNAME, 1, ttl, &address);
            }
            let other = message.record(Section::Authority, TO_QNAME, 1, 5, &[192, 0, 2, 9]);
            other
                .record(Section::Authority, TO_QNAME, 1, 6, &[192, 0, 2, 8])
                .octets
        };
        // 3 with 1, then 2 with 3.
        assert_eq!(turned(&response([1, 2, 3])), response([2, 3, 1]));
    }

    #[test]
    fn every_order_comes_and_none_is_lost() {
        let mut message = Composed::response("www.example.com", 28);
        for number in 0..3 {
            message = message.record(Section::Answer, TO_QNAME, 28, 60, &[number; 16]);
        }
        let message = message.octets;
        let mut seen = std::collections::BTreeSet::new();
        for choice in 0..6 {
            let mut shuffled = message.clone();
            let question_end = parse_response(&message).unwrap().question_end;
            shuffle_addresses(&mut shuffled, question_end, |bound| choice % bound);
            assert_eq!(shuffled.len(), message.len());
            seen.insert(shuffled);
        }
        assert_eq!(seen.len(), 6);
    }

    /// Some servers write the first owner out, and point to it; or point to the question, and then write out.
    #[test]
    fn the_first_owner_may_be_written_in_another_way() {
        const WRITTEN: &[u8] = b"\x03www\x07EXAMPLE\x03com\x00";
        let response = |owners: [&[u8]; 3], order: [u8; 3]| {
            let mut message = Composed::response("www.example.com", 1);
            for (owner, number) in owners.into_iter().zip(order) {
                let ttl = 300 + u32::from(number);
                message = message.record(Section::Answer, owner, 1, ttl, &[number; 4]);
            }
            message.octets
        };
        let to_first = b"\xc0\x21";
        for owners in [
            [WRITTEN, to_first, to_first],
            [WRITTEN, TO_QNAME, TO_QNAME],
            [TO_QNAME, WRITTEN, WRITTEN],
        ] {
            let turned = turned(&response(owners, [1, 2, 3]));
            assert_eq!(turned, response(owners, [2, 3, 1]));
        }
        // A third way to write it: that one stays.
        let owners = [WRITTEN, to_first, TO_QNAME];
        let turned = turned(&response(owners, [1, 2, 3]));
        assert_eq!(turned, response(owners, [2, 1, 3]));
    }

    #[test]
    fn different_names_and_types_stay_apart() {
        let message = Composed::response("www.example.com", 255)
            .record(Section::Answer, TO_QNAME, 1, 60, &[192, 0, 2, 1])
            .record(Section::Answer, TO_QNAME, 28, 60, &[1; 16])
            .record(Section::Answer, b"\xc0\x10", 28, 60, &[2; 16])
            .octets;
        assert_eq!(turned(&message), message);
        let short = &message[..20];
        let mut cut = short.to_vec();
        shuffle_addresses(&mut cut, 100, |_| 0);
        assert_eq!(cut, short);
    }
}
