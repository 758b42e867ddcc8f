//! A message about another name.

use super::names::{names_in_rdata, starts};
use crate::codes::qtype;
use crate::message::{HEADER_LENGTH, Header, Record, Records};
use crate::name::{NAME_LENGTH_MAX, Name, compressed};

/// A pointer to the question's name, right behind the header.
const QUESTION: [u8; 2] = [0xc0, HEADER_LENGTH as u8];

/// The message with another name in its question, which ends at `question_end`, and as the owner of records that were
/// owned by the first one; names in the data of records stay what they are. What trails the last record is left out.
/// `None`: a record is malformed, or would be too long. Allocates.
#[must_use]
pub fn rename(message: &[u8], question_end: u16, name: Name<'_>) -> Option<Vec<u8>> {
    let header = Header::read(message)?;
    let fixed = usize::from(question_end).checked_sub(4)?;
    let old = Name::parse(message.get(HEADER_LENGTH..fixed)?).ok()?;
    let mut out = message[..HEADER_LENGTH].to_vec();
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(&message[fixed..fixed + 4]);
    for record in Records::new(message, question_end, &header) {
        let record = record.ok()?;
        let mut buffer = [0; NAME_LENGTH_MAX];
        let owner = compressed::expand(message, record.owner_start.into(), &mut buffer).ok()?;
        // An OPT record has no other owner than the root, and the root no shorter form.
        match owner == old && record.rtype != qtype::OPT {
            true if name.is_root() => out.push(0),
            true => out.extend_from_slice(&QUESTION),
            false => out.extend_from_slice(owner.as_bytes()),
        }
        // Type, class and TTL; behind them the length of the data.
        let fields = usize::from(record.rdata_start) - 10;
        out.extend_from_slice(&message[fields..fields + 8]);
        append_rdata(message, &record, &mut out)?;
    }
    Some(out)
}

/// The data with its length, names written out: what they pointed at has moved.
fn append_rdata(message: &[u8], record: &Record, out: &mut Vec<u8>) -> Option<()> {
    let length_at = out.len();
    out.extend_from_slice(&[0, 0]);
    match names_in_rdata(record.rtype, record.rdata(message)) {
        None => out.extend_from_slice(record.rdata(message)),
        Some((before, _)) => {
            let data = usize::from(record.rdata_start);
            let mut at = data + before;
            out.extend_from_slice(message.get(data..at)?);
            for start in starts(message, record).into_iter().skip(1) {
                let mut buffer = [0; NAME_LENGTH_MAX];
                let name = compressed::expand(message, start, &mut buffer).ok()?;
                out.extend_from_slice(name.as_bytes());
                at = compressed::skip(message, start).ok()?;
            }
            out.extend_from_slice(message.get(at..record.rdata_end.into())?);
        }
    }
    let length = u16::try_from(out.len() - length_at - 2).ok()?;
    out[length_at..length_at + 2].copy_from_slice(&length.to_be_bytes());
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::examples::Composed;
    use crate::message::{Section, parse_response};

    #[test]
    fn owners_follow_the_question_and_names_in_data_stay() {
        // www.example.com. CNAME with a pointer into the question, and an address of what it names.
        let message = Composed::response("www.example.com", 1)
            .record(Section::Answer, b"\xc0\x0c", 5, 60, b"\x04host\xc0\x10")
            .record(Section::Answer, b"\xc0\x2d", 1, 60, &[192, 0, 2, 1])
            .octets;
        let parts = parse_response(&message).unwrap();
        let name = Name::parse(b"\x01a\x00").unwrap();
        let renamed = rename(&message, parts.question_end, name).unwrap();
        let after = parse_response(&renamed).unwrap();
        assert_eq!(after.question.unwrap().qname(&renamed), name);
        let header = Header::read(&renamed).unwrap();
        let records: Vec<_> = Records::new(&renamed, after.question_end, &header)
            .map(|record| record.unwrap())
            .collect();
        let owner = |record: &Record| {
            let mut buffer = [0; NAME_LENGTH_MAX];
            let name = compressed::expand(&renamed, record.owner_start.into(), &mut buffer);
            name.unwrap().to_owned()
        };
        assert_eq!(owner(&records[0]).as_name(), name);
        assert_eq!(
            records[0].rdata(&renamed),
            b"\x04host\x07example\x03com\x00"
        );
        assert_eq!(owner(&records[1]).to_string(), "host.example.com.");
    }

    #[test]
    fn the_root_has_another_name_and_gets_it_back_and_its_opt_record_stays() {
        let ns = b"\x01a\x00";
        let of_root = Composed::response(".", qtype::NS)
            .record(Section::Answer, b"\x00", qtype::NS, 60, ns)
            .opt(0x8000, b"");
        let of_other = Composed::response("b", qtype::NS)
            .record(Section::Answer, &QUESTION, qtype::NS, 60, ns)
            .opt(0x8000, b"");
        let renamed = |message: &Composed, name| {
            let parts = parse_response(&message.octets).unwrap();
            rename(&message.octets, parts.question_end, name).unwrap()
        };
        let other = Name::parse(b"\x01b\x00").unwrap();
        assert_eq!(renamed(&of_root, other), of_other.octets);
        assert_eq!(renamed(&of_other, Name::ROOT), of_root.octets);
    }
}
