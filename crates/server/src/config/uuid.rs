//! Random UUIDs for rules and servers that the file gives none (RFC 9562, section 5.4).

use std::fmt::Write;

/// A UUID of version 4.
pub(super) fn random() -> String {
    let mut octets = [0; 16];
    getrandom::fill(&mut octets).expect("the kernel has random numbers as soon as programs run");
    octets[6] = octets[6] & 0x0f | 0x40;
    octets[8] = octets[8] & 0x3f | 0x80;
    text(octets)
}

/// A UUID that people have written, as all are shown and compared: 32 hexadecimal digits in small letters with the dashes of RFC
/// 9562 section 4. They may be of either case, without any dash, and in braces, as dnsdist takes them. `None`: it is none.
pub(super) fn canonical(text: &str) -> Option<String> {
    let in_braces = text
        .strip_prefix('{')
        .and_then(|text| text.strip_suffix('}'));
    let text = in_braces.unwrap_or(text);
    if !is_one(text) {
        return None;
    }
    let mut digits = text.replace('-', "").to_ascii_lowercase();
    for at in [20, 16, 12, 8] {
        digits.insert(at, '-');
    }
    Some(digits)
}

fn is_one(text: &str) -> bool {
    let is_dash = |at: usize| matches!(at, 8 | 13 | 18 | 23);
    let has_dashes = text.len() == 36;
    let mut octets = text.bytes().enumerate();
    (has_dashes || text.len() == 32)
        && octets.all(|(at, octet)| match has_dashes && is_dash(at) {
            true => octet == b'-',
            false => octet.is_ascii_hexdigit(),
        })
}

fn text(octets: [u8; 16]) -> String {
    let mut text = String::with_capacity(36);
    for (at, octet) in octets.iter().enumerate() {
        if matches!(at, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        let _ = write!(text, "{octet:02x}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_has_its_version_and_its_dashes() {
        let uuid = random();
        assert_eq!(uuid.len(), 36);
        assert_eq!(uuid.as_bytes()[14], b'4');
        assert!(matches!(uuid.as_bytes()[19], b'8' | b'9' | b'a' | b'b'));
        assert_eq!(text([0xab; 16]), "abababab-abab-abab-abab-abababababab");
        assert_ne!(uuid, random());
    }

    #[test]
    fn a_uuid_is_the_same_however_it_is_written() {
        let good = "6ba7b810-9dad-11d1-80b4-00c04fd430c8";
        let (plain, large) = (good.replace('-', ""), good.to_ascii_uppercase());
        for written in [good, &plain, &large, &format!("{{{large}}}")] {
            assert_eq!(canonical(written).as_deref(), Some(good), "{written}");
        }
        let random = random();
        assert_eq!(canonical(&random), Some(random));
    }

    #[test]
    fn what_is_no_uuid_is_seen() {
        let good = "6BA7B810-9dad-11d1-80b4-00c04fd430c8";
        let (letter, long) = (good.replace('6', "g"), good.replace('-', "0"));
        let open = format!("{{{good}");
        for bad in ["", "u", "{}", &good[1..], &letter, &long, &open] {
            assert_eq!(canonical(bad), None, "{bad}");
        }
    }
}
