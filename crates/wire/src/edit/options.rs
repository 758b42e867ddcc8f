//! The OPT record of a message and its options (RFC 6891 §6.1).

use super::names::{correct_pointers, is_led_into};
use crate::bytes::u16_at;
use crate::message::{
    EdnsOption, EdnsParts, HEADER_LENGTH, Header, OPT_LENGTH, Records, opt_record,
};

/// Gives the message of `length` octets in `buffer`, whose records start at `question_end`, an option. An OPT record that
/// is not there is put behind the last record, with `payload_size`. Returns the new length and where the OPT record is
/// now; `None`, and nothing has changed, where there is no room.
pub fn set_option(
    buffer: &mut [u8],
    (question_end, length): (u16, usize),
    edns: Option<EdnsParts>,
    option: EdnsOption<'_>,
    payload_size: u16,
) -> Option<(usize, EdnsParts)> {
    let added = 4 + option.value.len();
    let Some(edns) = edns else {
        let opt = opt_record(payload_size, 0, false);
        let end = length + OPT_LENGTH + added;
        let room = buffer.get_mut(length..end)?;
        room[..OPT_LENGTH].copy_from_slice(&opt);
        write_option(&mut room[OPT_LENGTH..], option);
        let edns = EdnsParts {
            start: u16::try_from(length).ok()?,
            end: u16::try_from(end).ok()?,
            payload_size,
            extended_rcode: 0,
            version: 0,
            dnssec_ok: false,
            z: 0,
        };
        write_length(buffer, &edns);
        change_additional(buffer, |count| count + 1);
        return Some((end, edns));
    };
    if u16::try_from(length + added).is_err() {
        return None;
    }
    let at = usize::from(edns.end);
    let length = insert(buffer, question_end, length, at, added)?;
    write_option(&mut buffer[at..at + added], option);
    let edns = EdnsParts {
        end: (at + added) as u16,
        ..edns
    };
    write_length(buffer, &edns);
    Some((length, edns))
}

/// Octets by which [`set_option`] makes a message longer at most, with this value.
pub fn option_room(value: &[u8]) -> usize {
    OPT_LENGTH + 4 + value.len()
}

/// Takes the options with this code out of the message of `length` octets. Returns the new length and where the OPT record
/// is now. Linear in the message's length, however many options there are. Where names of records behind the OPT record lead
/// into it those records go as well: only what is additional can be there, and no honest server compresses so.
pub fn remove_options(
    buffer: &mut [u8],
    (question_end, length): (u16, usize),
    edns: EdnsParts,
    code: u16,
) -> (usize, EdnsParts) {
    let end = usize::from(edns.end);
    let mut at = usize::from(edns.start) + OPT_LENGTH;
    // Options that stay move together; what follows the record moves once.
    let mut kept = at;
    while let Some((found, whole)) = option_at(buffer, at, end) {
        if found != code {
            buffer.copy_within(at..at + whole, kept);
            kept += whole;
        }
        at += whole;
    }
    if kept == at {
        return (length, edns);
    }
    // What is no whole option stays, too.
    buffer.copy_within(at..end, kept);
    let gone = at - kept;
    let length = remove(buffer, (question_end, length), edns, gone);
    let edns = EdnsParts {
        end: edns.end - gone as u16,
        ..edns
    };
    write_length(buffer, &edns);
    (length, edns)
}

/// The code of the option at `at`, and its octets with code and length. `None`: it does not lie whole before `end`.
fn option_at(buffer: &[u8], at: usize, end: usize) -> Option<(u16, usize)> {
    let options = buffer.get(at..end)?;
    let whole = 4 + usize::from(u16_at(options, 2)?);
    let code = u16_at(options, 0)?;
    (whole <= options.len()).then_some((code, whole))
}

/// Takes the OPT record out of the message of `length` octets; the new length. As with [`remove_options`], records behind it
/// go as well where their names lead into it.
pub fn remove_opt(
    buffer: &mut [u8],
    (question_end, length): (u16, usize),
    edns: EdnsParts,
) -> usize {
    let whole = usize::from(edns.end - edns.start);
    let length = remove(buffer, (question_end, length), edns, whole);
    change_additional(buffer, |count| count.saturating_sub(1));
    length
}

/// ```text
/// code 2 │ length 2 │ value …
/// ```
fn write_option(room: &mut [u8], option: EdnsOption<'_>) {
    room[..2].copy_from_slice(&option.code.to_be_bytes());
    room[2..4].copy_from_slice(&(option.value.len() as u16).to_be_bytes());
    room[4..].copy_from_slice(option.value);
}

/// Writes the length of the record's data: its last field before the options.
fn write_length(buffer: &mut [u8], edns: &EdnsParts) {
    let fixed = usize::from(edns.start) + OPT_LENGTH;
    let length = edns.end - fixed as u16;
    buffer[fixed - 2..fixed].copy_from_slice(&length.to_be_bytes());
}

fn change_additional(buffer: &mut [u8], change: impl FnOnce(u16) -> u16) {
    debug_assert!(buffer.len() >= HEADER_LENGTH);
    if let Some(mut header) = Header::read(buffer) {
        header.set_additional_count(change(header.additional_count()));
        header.write(buffer).expect("it was just read from there");
    }
}

/// Makes room for `count` octets at `at`; the new length.
fn insert(
    buffer: &mut [u8],
    question_end: u16,
    length: usize,
    at: usize,
    count: usize,
) -> Option<usize> {
    buffer.get(..length + count)?;
    if at < length {
        correct_pointers(&mut buffer[..length], question_end, at, count as isize)?;
        buffer.copy_within(at..length, at + count);
    }
    Some(length + count)
}

/// Takes the last `count` octets of the OPT record out; the new length.
fn remove(
    buffer: &mut [u8],
    (question_end, length): (u16, usize),
    edns: EdnsParts,
    count: usize,
) -> usize {
    let (start, end) = (usize::from(edns.start), usize::from(edns.end));
    let at = end - count;
    if end >= length {
        return length - count;
    }
    let message = &mut buffer[..length];
    if is_led_into(message, question_end, start..end) {
        let behind = records_behind(message, question_end, edns.end);
        change_additional(message, |count| count.saturating_sub(behind));
        return at;
    }
    // To smaller numbers every pointer reaches.
    let _ = correct_pointers(message, question_end, end, -(count as isize));
    message.copy_within(end.., at);
    length - count
}

/// How many records start at `end` or behind it.
fn records_behind(message: &[u8], question_end: u16, end: u16) -> u16 {
    let Some(header) = Header::read(message) else {
        return 0;
    };
    let records = Records::new(message, question_end, &header).flatten();
    // No more than the header counts in sixteen bits.
    records.filter(|record| record.owner_start >= end).count() as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codes::qtype;
    use crate::examples::{Composed, query};
    use crate::message::{Section, parse_query, parse_response};
    use crate::name::{NAME_LENGTH_MAX, compressed};
    use proptest::prelude::*;

    const ECS: u16 = 8;

    fn with_option(message: &[u8], code: u16, value: &[u8]) -> Vec<u8> {
        let parts = parse_query(message).unwrap();
        let mut buffer = message.to_vec();
        buffer.resize(message.len() + 100, 0xee);
        let option = EdnsOption { code, value };
        let places = (parts.question_end, message.len());
        let (length, edns) = set_option(&mut buffer, places, parts.edns, option, 512).unwrap();
        buffer.truncate(length);
        assert_eq!(parse_query(&buffer).unwrap().edns, Some(edns));
        buffer
    }

    #[test]
    fn a_query_without_edns_gets_an_opt_record() {
        let plain = query("www.example.com", 1, None);
        let changed = with_option(&plain, ECS, b"abc");
        assert_eq!(changed.len(), plain.len() + 11 + 4 + 3);
        assert_eq!(
            changed[plain.len()..],
            *b"\x00\x00\x29\x02\x00\x00\x00\x00\x00\x00\x07\x00\x08\x00\x03abc"
        );
    }

    #[test]
    fn an_option_is_put_behind_others_and_taken_out_again() {
        let before = Composed::new(0x0100)
            .question(b"\x01a\x00", 1, 1)
            .opt(0x8000, b"\x00\x0a\x00\x02xy")
            .octets;
        let mut changed = with_option(&before, ECS, b"abc");
        let parts = parse_query(&changed).unwrap();
        let codes: Vec<u16> = parts
            .edns
            .unwrap()
            .options(&changed)
            .map(|option| option.code)
            .collect();
        assert_eq!(codes, [10, 8]);
        let places = (parts.question_end, changed.len());
        let (length, edns) = remove_options(&mut changed, places, parts.edns.unwrap(), ECS);
        assert_eq!(changed[..length], before);
        let length = remove_opt(&mut changed, (parts.question_end, length), edns);
        let plain = Composed::new(0x0100).question(b"\x01a\x00", 1, 1).octets;
        assert_eq!(changed[..length], plain);
    }

    #[test]
    fn all_options_with_the_code_are_taken_out_and_the_others_stay_in_their_order() {
        let options = [
            &b"\x00\x08\x00\x01a\x00\x0a\x00\x02bc"[..],
            b"\x00\x08\x00\x00\x00\x03\x00\x00\x00\x08\x00\x01d",
        ]
        .concat();
        let message = |options: &[u8]| {
            let message = Composed::response("www.example.com", 1).opt(0, options);
            let near = message.octets.len() as u16 | 0xc000;
            message
                .record(Section::Additional, b"\x01a\xc0\x10", qtype::A, 60, b"")
                .record(Section::Additional, &near.to_be_bytes(), qtype::A, 60, b"")
                .octets
        };
        let mut buffer = message(&options);
        let parts = parse_response(&buffer).unwrap();
        let places = (parts.question_end, buffer.len());
        let (length, edns) = remove_options(&mut buffer, places, parts.edns.unwrap(), ECS);
        assert_eq!(
            buffer[..length],
            message(b"\x00\x0a\x00\x02bc\x00\x03\x00\x00")
        );
        assert_eq!(parse_response(&buffer[..length]).unwrap().edns, Some(edns));
    }

    /// The data of an NS record are one octet, a label's length. What stands where that label would end is the next record's
    /// type, which looks like a pointer.
    #[test]
    fn what_runs_past_its_record_is_no_name() {
        let message = Composed::response("www.example.com", 1).opt(0, b"");
        let rtype = message.octets.len() as u16 | 0xc000;
        let before = message
            .record(Section::Additional, b"\x00", qtype::NS, 60, b"\x01")
            .record(Section::Additional, b"\x00", rtype, 60, b"")
            .octets;
        let mut buffer = before.clone();
        buffer.resize(before.len() + 20, 0);
        let parts = parse_response(&before).unwrap();
        let option = EdnsOption {
            code: 15,
            value: b"\x00\x0f",
        };
        let places = (parts.question_end, before.len());
        let (length, _) = set_option(&mut buffer, places, parts.edns, option, 512).unwrap();
        let behind = usize::from(parts.edns.unwrap().end);
        assert_eq!(buffer[behind + 6..length], before[behind..]);
    }

    #[test]
    fn there_is_no_room() {
        let mut buffer = query("a", 1, Some(1_232));
        let before = buffer.clone();
        let parts = parse_query(&buffer).unwrap();
        let option = EdnsOption {
            code: ECS,
            value: b"abc",
        };
        let places = (parts.question_end, before.len());
        assert_eq!(
            set_option(&mut buffer, places, parts.edns, option, 512),
            None
        );
        assert_eq!(set_option(&mut buffer, places, None, option, 512), None);
        assert_eq!(buffer, before);
    }

    /// A response whose OPT record lies between records that point at each other.
    fn between() -> Vec<u8> {
        let message = Composed::response("www.example.com", 1)
            .record(Section::Answer, b"\xc0\x0c", qtype::A, 60, &[192, 0, 2, 1])
            .opt(0, b"\x00\x08\x00\x04\x00\x01\x00\x00");
        let ns = message.octets.len() as u16 | 0xc000;
        message
            .record(
                Section::Additional,
                b"\x02ns\xc0\x10",
                qtype::A,
                60,
                &[192, 0, 2, 2],
            )
            .record(
                Section::Additional,
                &ns.to_be_bytes(),
                qtype::AAAA,
                60,
                &[0; 16],
            )
            .record(
                Section::Additional,
                b"\xc0\x10",
                qtype::NS,
                60,
                &ns.to_be_bytes(),
            )
            .octets
    }

    /// Owners, types, and names in data, as text.
    fn shown(message: &[u8]) -> Vec<String> {
        let parts = parse_response(message).unwrap();
        let header = Header::read(message).unwrap();
        Records::new(message, parts.question_end, &header)
            .map(Result::unwrap)
            .filter(|record| record.rtype != qtype::OPT)
            .map(|record| {
                let mut buffer = [0; NAME_LENGTH_MAX];
                let names: Vec<String> = super::super::names::starts(message, &record)
                    .into_iter()
                    .map(|start| {
                        compressed::expand(message, start, &mut buffer)
                            .unwrap()
                            .to_string()
                    })
                    .collect();
                format!("{} {}", names.join(" "), record.rtype)
            })
            .collect()
    }

    #[test]
    fn pointers_behind_the_opt_record_are_corrected() {
        let before = between();
        let parts = parse_response(&before).unwrap();
        let edns = parts.edns.unwrap();
        let mut buffer = before.clone();
        let places = (parts.question_end, before.len());
        let (length, _) = remove_options(&mut buffer, places, edns, ECS);
        assert_eq!(
            (length, shown(&buffer[..length])),
            (before.len() - 8, shown(&before))
        );
        let mut buffer = before.clone();
        let length = remove_opt(&mut buffer, places, edns);
        assert_eq!(
            (length, shown(&buffer[..length])),
            (before.len() - 19, shown(&before))
        );
        let mut buffer = before.clone();
        buffer.resize(before.len() + 50, 0);
        let option = EdnsOption {
            code: 15,
            value: b"\x00\x0fblocked",
        };
        let (length, _) = set_option(&mut buffer, places, Some(edns), option, 0).unwrap();
        assert_eq!(
            (length, shown(&buffer[..length])),
            (before.len() + 13, shown(&before))
        );
    }

    /// RFC 3597 §4: old senders compress these, and receivers read them.
    #[test]
    fn pointers_in_data_of_types_that_were_compressed_once_are_corrected() {
        let message = Composed::response("www.example.com", 1).opt(0, b"\x00\x08\x00\x01a");
        let near = (message.octets.len() as u16 | 0xc000).to_be_bytes();
        let naptr = [&[0, 1, 0, 2, 1, b'u', 0, 2, b'!', b'!'][..], &near].concat();
        let sig = [&[0; 18][..], &near, b"signature"].concat();
        let nxt = [&near[..], &[0x40]].concat();
        let additional = Section::Additional;
        let before = message
            .record(additional, b"\x02ns\xc0\x10", qtype::A, 60, &[1; 4])
            .record(additional, &near, qtype::NAPTR, 60, &naptr)
            .record(additional, &near, qtype::SIG, 60, &sig)
            .record(additional, &near, qtype::NXT, 60, &nxt)
            // Its strings run past its end.
            .record(additional, &near, qtype::NAPTR, 60, &[0, 1, 0, 2, 200])
            .octets;
        let parts = parse_response(&before).unwrap();
        let mut buffer = before.clone();
        let places = (parts.question_end, before.len());
        let length = remove_opt(&mut buffer, places, parts.edns.unwrap());
        let names = shown(&buffer[..length]);
        assert_eq!(names, shown(&before));
        assert_eq!(names[1], "ns.example.com. ns.example.com. 35");
        assert_eq!(names[2], "ns.example.com. ns.example.com. 24");
        assert_eq!(names[3], "ns.example.com. ns.example.com. 30");
        assert_eq!(names[4], "ns.example.com. 35");
    }

    #[test]
    fn records_whose_names_lead_into_what_is_taken_out_go_with_it() {
        let message = Composed::response("www.example.com", 1);
        let message = message.record(Section::Answer, b"\xc0\x0c", qtype::A, 60, &[1; 4]);
        let start = message.octets.len() as u16;
        // An option that goes, and one with a name in it.
        let message = message.opt(0, b"\x00\x08\x00\x03\x01a\x00\x00\x0a\x00\x03\x01b\x00");
        let end = message.octets.len() as u16;
        let additional = Section::Additional;
        for target in [start, start + 15, end - 3] {
            let into = (target | 0xc000).to_be_bytes();
            let owner = message
                .clone()
                .record(additional, &into, qtype::A, 60, &[2; 4])
                .record(additional, b"\xc0\x0c", qtype::A, 60, &[3; 4]);
            let data = message
                .clone()
                .record(additional, b"\xc0\x0c", qtype::NS, 60, &into);
            for before in [owner.octets, data.octets] {
                let parts = parse_response(&before).unwrap();
                let (places, edns) = ((parts.question_end, before.len()), parts.edns.unwrap());
                let mut buffer = before.clone();
                let length = remove_opt(&mut buffer, places, edns);
                let left = parse_response(&buffer[..length]).unwrap();
                assert_eq!((length, left.edns), (usize::from(start), None));
                assert_eq!((left.answer_count, left.additional_count), (1, 0));
                let mut buffer = before.clone();
                let (length, edns) = remove_options(&mut buffer, places, edns, ECS);
                let left = parse_response(&buffer[..length]).unwrap();
                assert_eq!((length, left.edns), (usize::from(end) - 7, Some(edns)));
                assert_eq!((left.answer_count, left.additional_count), (1, 1));
            }
        }
    }

    /// Two pointers behind the OPT record: one would reach its name after the option is there, one would not.
    #[test]
    fn where_one_pointer_would_not_reach_none_is_changed() {
        const LAST: usize = 0x3ff8;
        let message = Composed::response("www.example.com", 1).opt(0, b"");
        let near = message.octets.len() as u16 | 0xc000;
        let message = message
            .record(Section::Additional, b"\x02ns\xc0\x10", qtype::A, 60, b"")
            .record(Section::Additional, &near.to_be_bytes(), qtype::A, 60, b"");
        let filling = vec![0; LAST - message.octets.len() - 12];
        let far = LAST as u16 | 0xc000;
        let before = message
            .record(Section::Additional, b"\xc0\x10", qtype::TXT, 60, &filling)
            .record(Section::Additional, b"\x01a\xc0\x10", qtype::A, 60, b"")
            .record(Section::Additional, &far.to_be_bytes(), qtype::A, 60, b"")
            .octets;
        let parts = parse_response(&before).unwrap();
        let mut buffer = before.clone();
        buffer.resize(before.len() + 50, 0);
        let option = EdnsOption {
            code: 15,
            value: b"\x00\x0fblocked",
        };
        let places = (parts.question_end, before.len());
        assert_eq!(
            set_option(&mut buffer, places, parts.edns, option, 512),
            None
        );
        assert_eq!(buffer[..before.len()], before);
    }

    proptest! {
        #[test]
        fn any_octets_are_edited_without_panic(octets in prop::collection::vec(any::<u8>(), 12..120)) {
            let mut message = octets;
            message[2] |= 0x80;
            if let Ok(parts) = parse_response(&message) {
                let mut buffer = message.clone();
                let length = usize::from(parts.end);
                if let Some(edns) = parts.edns {
                    remove_options(&mut buffer, (parts.question_end, length), edns, 8);
                    let mut buffer = message.clone();
                    let length = remove_opt(&mut buffer, (parts.question_end, length), edns);
                    prop_assert!(parse_response(&buffer[..length]).is_ok());
                }
            }
        }
    }
}
