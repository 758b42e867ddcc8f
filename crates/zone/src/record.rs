//! One resource record, as zone files and transfers give it (RFC 1035 §3.2.1).

use std::fmt;

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

/// The same, its octets somewhere else.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RecordRef<'r> {
    /// See [`Record::owner`].
    pub owner: &'r [u8],
    /// See [`Record::kind`].
    pub kind: u16,
    /// See [`Record::class`].
    pub class: u16,
    /// See [`Record::ttl`].
    pub ttl: u32,
    /// See [`Record::rdata`].
    pub rdata: &'r [u8],
}

impl Record {
    /// A view of this record.
    #[must_use]
    pub fn as_ref(&self) -> RecordRef<'_> {
        RecordRef {
            owner: &self.owner,
            kind: self.kind,
            class: self.class,
            ttl: self.ttl,
            rdata: &self.rdata,
        }
    }
}

impl RecordRef<'_> {
    /// A copy that owns its octets.
    #[must_use]
    pub fn to_owned(&self) -> Record {
        Record {
            owner: self.owner.into(),
            kind: self.kind,
            class: self.class,
            ttl: self.ttl,
            rdata: self.rdata.into(),
        }
    }
}

/// As a line of a zone file, without the line's end.
impl fmt::Display for RecordRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut line = String::new();
        crate::file::print_record(*self, &mut line);
        f.write_str(line.trim_end())
    }
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_ref().fmt(f)
    }
}
