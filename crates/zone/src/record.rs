//! One resource record, as zone files and transfers give it (RFC 1035 §3.2.1).

/// One resource record as zone files and transfers give it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Record {
    /// Its owner's name as on the wire: uncompressed, upper and lower case kept.
    pub owner: Box<[u8]>,
    /// Its type: see [`wire::codes::qtype`].
    pub kind: u16,
    /// See [`wire::codes::class`].
    pub class: u16,
    /// Seconds that others may keep it.
    pub ttl: u32,
    /// Its data as on the wire, names in it uncompressed.
    pub rdata: Box<[u8]>,
}
