//! Numbers of the DNS and their names, from IANA's registry "Domain Name System (DNS) Parameters" (RFC 6895).
//!
//! Each family is a module of constants with a `TABLE` of names for configuration and text. Where dnsdist's name of a
//! number differs from IANA's (`DNSOpcode.Query`, `DNSClass.CHAOS`), the table has dnsdist's first: its users write them.

/// Makes constants, and the table of their names, from one list. A second text is another name of the same number.
macro_rules! codes {
    ($(#[$note:meta])* $module:ident: $number:ty { $($constant:ident $($text:literal)+ = $value:literal,)+ }) => {
        $(#[$note])*
        pub mod $module {
            $(
                #[doc = concat!($($text, " ",)+ "= ", stringify!($value))]
                pub const $constant: $number = $value;
            )+

            /// Names and numbers in ascending order; the first name of a number is the one to print.
            pub const TABLE: &[(&str, $number)] = &[$($(($text, $value),)+)+];

            /// The name to print for a number, if it has one.
            #[must_use]
            pub fn name(number: $number) -> Option<&'static str> {
                TABLE.iter().find(|(_, candidate)| *candidate == number).map(|(name, _)| *name)
            }

            /// The number of a name, upper or lower case.
            #[must_use]
            pub fn number(name: &str) -> Option<$number> {
                TABLE.iter().find(|(candidate, _)| candidate.eq_ignore_ascii_case(name)).map(|(_, number)| *number)
            }
        }
    };
}

codes! {
    /// Response codes. Those above 15 need EDNS (RFC 6891 §6.1.3) or stand in TSIG and TKEY records.
    rcode: u16 {
        NOERROR "NOERROR" = 0,
        FORMERR "FORMERR" = 1,
        SERVFAIL "SERVFAIL" = 2,
        NXDOMAIN "NXDOMAIN" = 3,
        NOTIMP "NOTIMP" = 4,
        REFUSED "REFUSED" = 5,
        YXDOMAIN "YXDOMAIN" = 6,
        YXRRSET "YXRRSET" = 7,
        NXRRSET "NXRRSET" = 8,
        NOTAUTH "NOTAUTH" = 9,
        NOTZONE "NOTZONE" = 10,
        DSOTYPENI "DSOTYPENI" = 11,
        BADVERS "BADVERS" "BADSIG" = 16,
        BADKEY "BADKEY" = 17,
        BADTIME "BADTIME" = 18,
        BADMODE "BADMODE" = 19,
        BADNAME "BADNAME" = 20,
        BADALG "BADALG" = 21,
        BADTRUNC "BADTRUNC" = 22,
        BADCOOKIE "BADCOOKIE" = 23,
    }
}

codes! {
    /// What a message asks for.
    opcode: u8 {
        QUERY "Query" = 0,
        IQUERY "IQuery" = 1,
        STATUS "Status" = 2,
        NOTIFY "Notify" = 4,
        UPDATE "Update" = 5,
        DSO "DSO" = 6,
    }
}

codes! {
    /// Classes, and what a question may hold besides.
    class: u16 {
        IN "IN" = 1,
        CHAOS "CHAOS" "CH" = 3,
        HESIOD "HS" = 4,
        NONE "NONE" = 254,
        ANY "ANY" = 255,
    }
}

codes! {
    /// Types of records, and what a question may hold besides.
    qtype: u16 {
        A "A" = 1,
        NS "NS" = 2,
        MD "MD" = 3,
        MF "MF" = 4,
        CNAME "CNAME" = 5,
        SOA "SOA" = 6,
        MB "MB" = 7,
        MG "MG" = 8,
        MR "MR" = 9,
        NULL "NULL" = 10,
        WKS "WKS" = 11,
        PTR "PTR" = 12,
        HINFO "HINFO" = 13,
        MINFO "MINFO" = 14,
        MX "MX" = 15,
        TXT "TXT" = 16,
        RP "RP" = 17,
        AFSDB "AFSDB" = 18,
        X25 "X25" = 19,
        ISDN "ISDN" = 20,
        RT "RT" = 21,
        NSAP "NSAP" = 22,
        NSAP_PTR "NSAP-PTR" = 23,
        SIG "SIG" = 24,
        KEY "KEY" = 25,
        PX "PX" = 26,
        GPOS "GPOS" = 27,
        AAAA "AAAA" = 28,
        LOC "LOC" = 29,
        NXT "NXT" = 30,
        EID "EID" = 31,
        NIMLOC "NIMLOC" = 32,
        SRV "SRV" = 33,
        ATMA "ATMA" = 34,
        NAPTR "NAPTR" = 35,
        KX "KX" = 36,
        CERT "CERT" = 37,
        A6 "A6" = 38,
        DNAME "DNAME" = 39,
        SINK "SINK" = 40,
        OPT "OPT" = 41,
        APL "APL" = 42,
        DS "DS" = 43,
        SSHFP "SSHFP" = 44,
        IPSECKEY "IPSECKEY" = 45,
        RRSIG "RRSIG" = 46,
        NSEC "NSEC" = 47,
        DNSKEY "DNSKEY" = 48,
        DHCID "DHCID" = 49,
        NSEC3 "NSEC3" = 50,
        NSEC3PARAM "NSEC3PARAM" = 51,
        TLSA "TLSA" = 52,
        SMIMEA "SMIMEA" = 53,
        HIP "HIP" = 55,
        NINFO "NINFO" = 56,
        RKEY "RKEY" = 57,
        TALINK "TALINK" = 58,
        CDS "CDS" = 59,
        CDNSKEY "CDNSKEY" = 60,
        OPENPGPKEY "OPENPGPKEY" = 61,
        CSYNC "CSYNC" = 62,
        ZONEMD "ZONEMD" = 63,
        SVCB "SVCB" = 64,
        HTTPS "HTTPS" = 65,
        DSYNC "DSYNC" = 66,
        HHIT "HHIT" = 67,
        BRID "BRID" = 68,
        SPF "SPF" = 99,
        UINFO "UINFO" = 100,
        UID "UID" = 101,
        GID "GID" = 102,
        UNSPEC "UNSPEC" = 103,
        NID "NID" = 104,
        L32 "L32" = 105,
        L64 "L64" = 106,
        LP "LP" = 107,
        EUI48 "EUI48" = 108,
        EUI64 "EUI64" = 109,
        NXNAME "NXNAME" = 128,
        TKEY "TKEY" = 249,
        TSIG "TSIG" = 250,
        IXFR "IXFR" = 251,
        AXFR "AXFR" = 252,
        MAILB "MAILB" = 253,
        MAILA "MAILA" = 254,
        ANY "ANY" = 255,
        URI "URI" = 256,
        CAA "CAA" = 257,
        AVC "AVC" = 258,
        DOA "DOA" = 259,
        AMTRELAY "AMTRELAY" = 260,
        RESINFO "RESINFO" = 261,
        WALLET "WALLET" = 262,
        CLA "CLA" = 263,
        IPN "IPN" = 264,
        TA "TA" = 32768,
        DLV "DLV" = 32769,
    }
}

codes! {
    /// EDNS options.
    edns_option: u16 {
        LLQ "LLQ" = 1,
        UL "UL" = 2,
        NSID "NSID" = 3,
        DAU "DAU" = 5,
        DHU "DHU" = 6,
        N3U "N3U" = 7,
        ECS "ECS" = 8,
        EXPIRE "EXPIRE" = 9,
        COOKIE "COOKIE" = 10,
        TCPKEEPALIVE "TCPKEEPALIVE" = 11,
        PADDING "PADDING" = 12,
        CHAIN "CHAIN" = 13,
        KEYTAG "KEYTAG" = 14,
        EXTENDEDERROR "EXTENDEDERROR" "EDE" = 15,
        CLIENTTAG "CLIENTTAG" = 16,
        SERVERTAG "SERVERTAG" = 17,
        REPORTCHANNEL "REPORTCHANNEL" = 18,
        ZONEVERSION "ZONEVERSION" = 19,
        UMBRELLA "UMBRELLA" = 20292,
        DEVICEID "DEVICEID" = 26946,
    }
}

codes! {
    /// Extended errors: what an EXTENDEDERROR option says beside the response code (RFC 8914 §4).
    extended_error: u16 {
        NOT_READY "Not Ready" = 14,
        PROHIBITED "Prohibited" = 18,
        NOT_AUTHORITATIVE "Not Authoritative" = 20,
        NOT_SUPPORTED "Not Supported" = 21,
        INVALID_DATA "Invalid Data" = 24,
        INVALID_QUERY_TYPE "Invalid Query Type" = 30,
    }
}

/// The number of a type written as its name or as `TYPE65280` (RFC 3597 §5).
#[must_use]
pub fn parse_qtype(text: &str) -> Option<u16> {
    qtype::number(text).or_else(|| parse_generic(text, "TYPE"))
}

/// The number of a class written as its name or as `CLASS32` (RFC 3597 §5).
#[must_use]
pub fn parse_class(text: &str) -> Option<u16> {
    class::number(text).or_else(|| parse_generic(text, "CLASS"))
}

fn parse_generic(text: &str, word: &str) -> Option<u16> {
    let (head, digits) = text.split_at_checked(word.len())?;
    let plain = !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit());
    (plain && head.eq_ignore_ascii_case(word)).then(|| digits.parse().ok())?
}

/// A type as text: its name, or `TYPE65280` (RFC 3597 §5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QtypeText(pub u16);

impl std::fmt::Display for QtypeText {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match qtype::name(self.0) {
            Some(name) => f.write_str(name),
            None => write!(f, "TYPE{}", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_dnsdist_users_write() {
        assert_eq!(rcode::number("REFUSED"), Some(5));
        assert_eq!(rcode::number("BADSIG"), Some(16));
        assert_eq!(qtype::number("ANY"), Some(255));
        assert_eq!(class::number("IN"), Some(1));
        assert_eq!(class::number("CHAOS"), Some(3));
        assert_eq!(opcode::number("Query"), Some(0));
        assert_eq!(edns_option::number("ECS"), Some(8));
    }

    #[test]
    fn the_first_name_is_printed() {
        assert_eq!(rcode::name(16), Some("BADVERS"));
        assert_eq!(class::name(3), Some("CHAOS"));
        assert_eq!(qtype::name(54), None);
    }

    #[test]
    fn tables_ascend() {
        assert!(rcode::TABLE.is_sorted_by_key(|(_, number)| *number));
        assert!(qtype::TABLE.is_sorted_by_key(|(_, number)| *number));
        assert!(class::TABLE.is_sorted_by_key(|(_, number)| *number));
        assert!(opcode::TABLE.is_sorted_by_key(|(_, number)| *number));
        assert!(edns_option::TABLE.is_sorted_by_key(|(_, number)| *number));
    }

    #[test]
    fn unknown_types_and_classes_as_rfc_3597_writes_them() {
        assert_eq!(parse_qtype("TYPE65280"), Some(65280));
        assert_eq!(parse_qtype("type1"), Some(1));
        assert_eq!(parse_qtype("aaaa"), Some(28));
        for wrong in ["TYPE", "TYPE65536", "TYPE+1", "TYP", "", "TYPE1x"] {
            assert_eq!(parse_qtype(wrong), None, "{wrong}");
        }
        assert_eq!(parse_class("CLASS32"), Some(32));
        assert_eq!(parse_class("CH"), Some(3));
        assert_eq!(QtypeText(1).to_string(), "A");
        assert_eq!(QtypeText(65280).to_string(), "TYPE65280");
    }

    #[test]
    fn types_agree_with_the_domain_crate() {
        for (name, number) in qtype::TABLE {
            let theirs = domain::base::iana::Rtype::from_int(*number).to_string();
            let known = !theirs.starts_with("TYPE");
            // IANA writes NSAP-PTR, domain does not.
            assert!(
                !known || theirs == name.replace('-', ""),
                "{number}: we say {name}, domain says {theirs}"
            );
        }
    }
}
