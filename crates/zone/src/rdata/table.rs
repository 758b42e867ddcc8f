//! Types as rows of field kinds: to add a type is to add a row.

use wire::codes::{QtypeText, qtype};

/// A part of RDATA: how it lies on the wire, and how it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Field {
    /// A decimal number in one octet.
    U8,
    /// In two.
    U16,
    /// In four.
    U32,
    /// One octet, written as a number or as one of these words; printed as a number.
    Word8(&'static [(&'static str, u8)]),
    /// The same in two octets.
    Word16(&'static [(&'static str, u16)]),
    /// Seconds in four octets, units allowed (`1h30m`).
    Seconds,
    /// Seconds since 1970 modulo 2³², written `YYYYMMDDHHmmSS` (RFC 4034 §3.2).
    Time,
    /// The number of a type, written as its name.
    Kind,
    /// A name that may be compressed in a message, and is in lower case in canonical form (RFC 4034 §6.2).
    Name,
    /// A name that is neither.
    PlainName,
    /// An IPv4 address.
    Ip4,
    /// An IPv6 address.
    Ip6,
    /// A character string: one octet of length, then its octets.
    Text,
    /// The same, which may be left out at the end.
    OptionalText,
    /// One or more of them to the end.
    Texts,
    /// Octets to the end, written as one string (CAA, URI).
    LongText,
    /// A character string of letters and digits (CAA).
    Tag,
    /// Octets to the end, at least one, in Base64.
    Base64,
    /// The same, or none.
    OptionalBase64,
    /// The same, `-` for none (DOA).
    Base64OrDash,
    /// Octets to the end, at least so many, in hexadecimal.
    Hex(usize),
    /// The same, of the length that the digest type in the octet before says (DS).
    Digest,
    /// One octet of length and its octets, in hexadecimal, `-` for none (NSEC3).
    Salt,
    /// One octet of length and its octets, in Base32hex (NSEC3).
    Hash,
    /// A bit map of types to the end (RFC 4034 §4.1.2).
    Kinds,
    /// Six or eight octets, `00-00-5e-00-53-2a` (RFC 7043).
    Eui(usize),
    /// Eight octets, `2001:0DB8:1140:1000` (RFC 6742).
    Node,
    /// The discovery bit and the relay type in one octet (AMTRELAY, RFC 8777 §4.2).
    RelayKind,
    /// An address or a name, as the second octet of the RDATA says under this mask (IPSECKEY, AMTRELAY).
    Gateway(u8),
    /// The length of a prefix that is elsewhere, and the rest of an address (A6).
    AddressSuffix,
    /// The name that has the prefix, absent where its length, the first octet of the RDATA, is 0 (A6).
    PrefixName,
    /// A place on earth (RFC 1876).
    Location,
    /// Address prefixes (RFC 3123).
    Prefixes,
    /// Service parameters (RFC 9460 §2.2).
    Params,
    /// All of a host identity (RFC 8005 §5).
    HostIdentity,
    /// Protocol and ports (RFC 1035 §3.4.2).
    Services,
    /// Octets to the end, `0x47.0005…` (RFC 1706).
    Nsap,
}

/// Algorithms of keys and signatures: IANA, "DNS Security Algorithm Numbers"; at the end what BIND calls some of them.
const ALGORITHMS: &[(&str, u8)] = &[
    ("RSAMD5", 1),
    ("DH", 2),
    ("DSA", 3),
    ("RSASHA1", 5),
    ("DSA-NSEC3-SHA1", 6),
    ("RSASHA1-NSEC3-SHA1", 7),
    ("RSASHA256", 8),
    ("RSASHA512", 10),
    ("ECC-GOST", 12),
    ("ECDSAP256SHA256", 13),
    ("ECDSAP384SHA384", 14),
    ("ED25519", 15),
    ("ED448", 16),
    ("SM2SM3", 17),
    ("ECC-GOST12", 23),
    ("INDIRECT", 252),
    ("PRIVATEDNS", 253),
    ("PRIVATEOID", 254),
    ("NSEC3DSA", 6),
    ("NSEC3RSASHA1", 7),
    ("ECCGOST", 12),
];

/// Certificate types (RFC 4398 §2.1).
const CERTIFICATES: &[(&str, u16)] = &[
    ("PKIX", 1),
    ("SPKI", 2),
    ("PGP", 3),
    ("IPKIX", 4),
    ("ISPKI", 5),
    ("IPGP", 6),
    ("ACPKIX", 7),
    ("IACPKIX", 8),
    ("URI", 253),
    ("OID", 254),
];

/// Ports by name for WKS: IANA's "Service Name and Transport Protocol Port Number Registry", of which those that such records
/// were made for (RFC 1010 is what RFC 1035 §3.4.2 refers to).
pub(super) const SERVICES: &[(&str, u16)] = &[
    ("smtp", 25),
    ("echo", 7),
    ("discard", 9),
    ("systat", 11),
    ("daytime", 13),
    ("qotd", 17),
    ("chargen", 19),
    ("ftp-data", 20),
    ("ftp", 21),
    ("ssh", 22),
    ("telnet", 23),
    ("time", 37),
    ("whois", 43),
    ("nicname", 43),
    ("domain", 53),
    ("tftp", 69),
    ("gopher", 70),
    ("finger", 79),
    ("http", 80),
    ("www", 80),
    ("kerberos", 88),
    ("hostname", 101),
    ("hostnames", 101),
    ("pop2", 109),
    ("pop3", 110),
    ("sunrpc", 111),
    ("auth", 113),
    ("sftp", 115),
    ("nntp", 119),
    ("ntp", 123),
    ("imap", 143),
    ("imap2", 143),
    ("snmp", 161),
    ("bgp", 179),
    ("irc", 194),
    ("ldap", 389),
    ("https", 443),
];

/// Schemes of DSYNC (RFC 9859 §2.1).
const SCHEMES: &[(&str, u8)] = &[("NOTIFY", 1)];

const ALGORITHM: Field = Field::Word8(ALGORITHMS);

/// The fields of a type's RDATA in their order on the wire; `None` for a type that only RFC 3597 can write.
pub(crate) fn row(kind: u16) -> Option<&'static [Field]> {
    use Field::*;
    Some(match kind {
        qtype::A => &[Ip4],
        qtype::NS
        | qtype::MD
        | qtype::MF
        | qtype::CNAME
        | qtype::MB
        | qtype::MG
        | qtype::MR
        | qtype::PTR
        | qtype::DNAME
        | qtype::NSAP_PTR => &[Name],
        qtype::SOA => &[Name, Name, U32, Seconds, Seconds, Seconds, Seconds],
        qtype::WKS => &[Ip4, Services],
        qtype::HINFO => &[Text, Text],
        qtype::MINFO | qtype::RP => &[Name, Name],
        qtype::MX | qtype::AFSDB | qtype::RT | qtype::KX => &[U16, Name],
        qtype::TXT | qtype::SPF | qtype::NINFO | qtype::AVC | qtype::RESINFO | qtype::WALLET => {
            &[Texts]
        }
        qtype::CLA => &[Texts],
        qtype::X25 => &[Text],
        qtype::ISDN => &[Text, OptionalText],
        qtype::NSAP => &[Nsap],
        qtype::SIG | qtype::RRSIG => &[Kind, ALGORITHM, U8, Seconds, Time, Time, U16, Name, Base64],
        qtype::KEY | qtype::DNSKEY | qtype::CDNSKEY | qtype::RKEY => &[U16, U8, ALGORITHM, Base64],
        qtype::PX => &[U16, Name, Name],
        qtype::GPOS => &[Text, Text, Text],
        qtype::AAAA => &[Ip6],
        qtype::A6 => &[AddressSuffix, PrefixName],
        // draft-eastlake-kitchen-sink-02: meaning, coding, subcoding, data.
        qtype::SINK => &[U8, U8, U8, OptionalBase64],
        qtype::LOC => &[Location],
        // IANA's templates of both: Patton's draft on Nimrod, whose endpoints and locators are written in hexadecimal.
        qtype::EID | qtype::NIMLOC => &[Hex(1)],
        qtype::SRV => &[U16, U16, U16, Name],
        qtype::NAPTR => &[U16, U16, Text, Text, Text, Name],
        qtype::CERT => &[Word16(CERTIFICATES), U16, ALGORITHM, Base64],
        qtype::APL => &[Prefixes],
        qtype::DS | qtype::CDS | qtype::TA | qtype::DLV => &[U16, ALGORITHM, U8, Digest],
        qtype::SSHFP => &[U8, U8, Hex(1)],
        qtype::IPSECKEY => &[U8, U8, U8, Gateway(0xff), OptionalBase64],
        qtype::NSEC => &[PlainName, Kinds],
        qtype::DHCID | qtype::OPENPGPKEY | qtype::HHIT | qtype::BRID => &[Base64],
        qtype::NSEC3 => &[U8, U8, U16, Salt, Hash, Kinds],
        qtype::NSEC3PARAM => &[U8, U8, U16, Salt],
        qtype::TLSA | qtype::SMIMEA => &[U8, U8, U8, Hex(1)],
        qtype::HIP => &[HostIdentity],
        qtype::TALINK => &[PlainName, PlainName],
        qtype::CSYNC => &[U32, U16, Kinds],
        // RFC 8976 §2.2.4: "The Digest field MUST NOT be shorter than 12 octets."
        qtype::ZONEMD => &[U32, U8, U8, Hex(12)],
        qtype::SVCB | qtype::HTTPS => &[U16, PlainName, Params],
        qtype::DSYNC => &[Kind, Word8(SCHEMES), U16, PlainName],
        qtype::NID | qtype::L64 => &[U16, Node],
        qtype::L32 => &[U16, Ip4],
        qtype::LP => &[U16, PlainName],
        qtype::EUI48 => &[Eui(6)],
        qtype::EUI64 => &[Eui(8)],
        qtype::URI => &[U16, U16, LongText],
        qtype::CAA => &[U8, Tag, LongText],
        // draft-durand-doa-over-dns-03: enterprise, type, location, media type, data.
        qtype::DOA => &[U32, U32, U8, Text, Base64OrDash],
        qtype::AMTRELAY => &[U8, RelayKind, Gateway(0x7f)],
        _ => return None,
    })
}

/// The fields of a type in words, for errors: `MX number name`.
pub(crate) fn form(kind: u16) -> Option<String> {
    let mut form = QtypeText(kind).to_string();
    for field in row(kind)? {
        form.push(' ');
        form.push_str(noun(*field));
    }
    Some(form)
}

fn noun(field: Field) -> &'static str {
    match field {
        Field::U8 | Field::U16 | Field::U32 => "number",
        Field::Word8(_) | Field::Word16(_) => "number-or-mnemonic",
        Field::Seconds => "time",
        Field::Time => "YYYYMMDDHHmmSS",
        Field::Kind => "type",
        Field::Name | Field::PlainName => "name",
        Field::Ip4 => "IPv4-address",
        Field::Ip6 => "IPv6-address",
        Field::Text | Field::LongText => "\"string\"",
        Field::OptionalText => "[\"string\"]",
        Field::Texts => "\"string\" …",
        Field::Tag => "tag",
        Field::Base64 => "Base64",
        Field::OptionalBase64 => "[Base64]",
        Field::Base64OrDash => "Base64-or--",
        Field::AddressSuffix => "prefix-length [IPv6-address]",
        Field::PrefixName => "[name]",
        Field::Hex(_) | Field::Digest => "hexadecimal",
        Field::Salt => "salt-or--",
        Field::Hash => "Base32hex",
        Field::Kinds => "[type …]",
        Field::Eui(_) => "00-00-5e-…",
        Field::Node => "0:0:0:0",
        Field::RelayKind => "0-or-1 number",
        Field::Gateway(_) => "address-or-name-or-.",
        Field::Location => {
            "degrees [minutes [seconds]] N|S degrees [minutes [seconds]] E|W altitude [size [precision [precision]]]"
        }
        Field::Prefixes => "[[!]family:address/length …]",
        Field::Params => "[key[=value] …]",
        Field::HostIdentity => "algorithm hexadecimal Base64 [name …]",
        Field::Services => "protocol [port …]",
        Field::Nsap => "0x…",
    }
}

/// Whether no record of a zone can have this type: it stands in messages or questions only (RFC 6895 §3.1: "Data TYPEs
/// are the means of storing data", 1 to 127 and 256 up; OPT and NXNAME are no data).
pub(crate) fn is_meta(kind: u16) -> bool {
    matches!(kind, 0 | qtype::OPT | 128..=255)
}
