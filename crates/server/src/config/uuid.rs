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
}
