//! The header of a message (RFC 1035 §4.1.1; AD and CD: RFC 4035 §3.1.6, §3.2.2).

/// Octets of a header.
pub const HEADER_LENGTH: usize = 12;

/// A copy of a message's header, to look at, change and write back. Changes nothing by itself.
///
/// ```text
///  0 ID 2 │ 2 QR 1 bit, opcode 4, AA 1, TC 1, RD 1 │ 3 RA 1, Z 1, AD 1, CD 1, RCODE 4 │ 4 QD 2 │ 6 AN 2 │ 8 NS 2 │ 10 AR 2
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header([u8; HEADER_LENGTH]);

/// Getter and setter of one flag.
macro_rules! flag {
    ($(#[$note:meta])* $get:ident, $set:ident: $octet:literal, $mask:literal) => {
        $(#[$note])*
        #[inline]
        #[must_use]
        pub const fn $get(&self) -> bool {
            self.0[$octet] & $mask != 0
        }

        $(#[$note])*
        #[inline]
        pub const fn $set(&mut self, on: bool) {
            self.0[$octet] = if on { self.0[$octet] | $mask } else { self.0[$octet] & !$mask };
        }
    };
}

/// Getter and setter of a 16-bit number.
macro_rules! number {
    ($(#[$note:meta])* $get:ident, $set:ident: $octet:literal) => {
        $(#[$note])*
        #[inline]
        #[must_use]
        pub const fn $get(&self) -> u16 {
            u16::from_be_bytes([self.0[$octet], self.0[$octet + 1]])
        }

        $(#[$note])*
        #[inline]
        pub const fn $set(&mut self, value: u16) {
            let octets = value.to_be_bytes();
            self.0[$octet] = octets[0];
            self.0[$octet + 1] = octets[1];
        }
    };
}

impl Header {
    /// The header of a message; `None` where it has fewer than 12 octets.
    #[inline]
    #[must_use]
    pub fn read(message: &[u8]) -> Option<Header> {
        message.first_chunk().copied().map(Header)
    }

    /// Puts this header at the start of a message; `None`, and nothing is written, where it has fewer than 12 octets.
    #[inline]
    #[must_use]
    pub fn write(&self, message: &mut [u8]) -> Option<()> {
        *message.first_chunk_mut()? = self.0;
        Some(())
    }

    /// The twelve octets.
    #[inline]
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; HEADER_LENGTH] {
        &self.0
    }

    number! {
        /// What joins an answer to its query.
        id, set_id: 0
    }
    number! {
        /// All of the second word: flags, opcode and RCODE.
        flags, set_flags: 2
    }
    flag! {
        /// QR: this is a response.
        qr, set_qr: 2, 0x80
    }
    flag! {
        /// Authoritative answer.
        aa, set_aa: 2, 0x04
    }
    flag! {
        /// Truncated: ask again over TCP.
        tc, set_tc: 2, 0x02
    }
    flag! {
        /// Recursion desired.
        rd, set_rd: 2, 0x01
    }
    flag! {
        /// Recursion available.
        ra, set_ra: 3, 0x80
    }
    flag! {
        /// The bit that is always zero.
        z, set_z: 3, 0x40
    }
    flag! {
        /// Authentic data.
        ad, set_ad: 3, 0x20
    }
    flag! {
        /// Checking disabled.
        cd, set_cd: 3, 0x10
    }

    /// What the message asks for: see [`crate::codes::opcode`].
    #[inline]
    #[must_use]
    pub const fn opcode(&self) -> u8 {
        self.0[2] >> 3 & 0x0f
    }

    /// The lower four bits of `opcode` are taken.
    #[inline]
    pub const fn set_opcode(&mut self, opcode: u8) {
        self.0[2] = self.0[2] & !0x78 | (opcode & 0x0f) << 3;
    }

    /// The four bits of response code that are in the header: see [`crate::codes::rcode`].
    #[inline]
    #[must_use]
    pub const fn rcode(&self) -> u8 {
        self.0[3] & 0x0f
    }

    /// The lower four bits of `rcode` are taken.
    #[inline]
    pub const fn set_rcode(&mut self, rcode: u8) {
        self.0[3] = self.0[3] & 0xf0 | rcode & 0x0f;
    }

    number! {
        /// Entries in the question section.
        question_count, set_question_count: 4
    }
    number! {
        /// Records in the answer section.
        answer_count, set_answer_count: 6
    }
    number! {
        /// Records in the authority section.
        authority_count, set_authority_count: 8
    }
    number! {
        /// Records in the additional section.
        additional_count, set_additional_count: 10
    }

    /// Records in all three sections, as the header says; nothing may be sized by it.
    #[inline]
    #[must_use]
    pub const fn records_count(&self) -> u32 {
        self.answer_count() as u32 + self.authority_count() as u32 + self.additional_count() as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_field_is_where_rfc_1035_draws_it() {
        let mut header = Header::default();
        header.set_id(0x1234);
        header.set_opcode(5);
        header.set_rcode(9);
        header.set_qr(true);
        header.set_rd(true);
        header.set_cd(true);
        header.set_question_count(1);
        header.set_additional_count(0xabcd);
        assert_eq!(
            header.as_bytes(),
            &[0x12, 0x34, 0xa9, 0x19, 0, 1, 0, 0, 0, 0, 0xab, 0xcd]
        );
        assert_eq!(
            (header.opcode(), header.rcode(), header.records_count()),
            (5, 9, 0xabcd)
        );
        header.set_qr(false);
        header.set_opcode(0);
        assert_eq!(header.flags(), 0x0119);
    }

    #[test]
    fn eleven_octets_are_no_header() {
        assert_eq!(Header::read(&[0; 11]), None);
        assert_eq!(Header::default().write(&mut [1; 11]), None);
        assert_eq!(Header::read(&[0; 13]), Some(Header::default()));
    }
}
