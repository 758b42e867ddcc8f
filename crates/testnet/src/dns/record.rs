//! Records: written in zone-file form, read from messages, compared without compression.

use std::fmt;

use domain::base::iana::Class;
use domain::base::message::RecordSection;
use domain::base::rdata::ComposeRecordData;
use domain::base::{ParsedName, ToName};
use domain::rdata::AllRecordData;
use domain::zonefile::inplace::{Entry, Zonefile};

use crate::{During, Failure, Outcome};

/// A record of an answer, or one that a backend puts into its own.
#[derive(Debug, Clone)]
pub struct Record {
    /// The owner in uncompressed wire format, its case kept.
    pub owner: Vec<u8>,
    /// Type by number.
    pub rtype: u16,
    /// Class by number.
    pub class: u16,
    /// Time to live, in seconds.
    pub ttl_seconds: u32,
    /// RDATA with every name in it uncompressed.
    pub data: Vec<u8>,
    text: String,
}

impl Record {
    /// Reads `NAME TTL [IN] TYPE RDATA`, as in a zone file; names are absolute.
    pub fn from_text(text: &str) -> Outcome<Self> {
        let what = || format!("record `{text}`");
        let mut zone = Zonefile::new().allow_invalid();
        zone.set_default_class(Class::IN);
        zone.extend_from_slice(format!("{text}\n").as_bytes());
        let entry = zone.next_entry().during(what())?;
        let Some(Entry::Record(record)) = entry else {
            return Err(Failure::new(format!("{}: not one record", what())));
        };
        let mut data = Vec::new();
        record.data().compose_rdata(&mut data).during(what())?;
        Ok(Self {
            owner: record.owner().to_vec().as_slice().to_vec(),
            rtype: record.rtype().to_int(),
            class: record.class().to_int(),
            ttl_seconds: record.ttl().as_secs(),
            data,
            text: text.split_whitespace().collect::<Vec<_>>().join(" "),
        })
    }

    /// Appends the record to a message, uncompressed.
    pub fn append_to(&self, octets: &mut Vec<u8>) {
        octets.extend(&self.owner);
        octets.extend(self.rtype.to_be_bytes());
        octets.extend(self.class.to_be_bytes());
        octets.extend(self.ttl_seconds.to_be_bytes());
        octets.extend((self.data.len() as u16).to_be_bytes());
        octets.extend(&self.data);
    }
}

impl fmt::Display for Record {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text)
    }
}

/// All records of a section of a message, OPT included.
pub fn records_of(section: RecordSection<'_, [u8]>) -> Outcome<Vec<Record>> {
    section
        .map(|record| read(&record.during("a record's header")?))
        .collect()
}

fn read(record: &domain::base::ParsedRecord<'_, [u8]>) -> Outcome<Record> {
    type Any<'a> = AllRecordData<&'a [u8], ParsedName<&'a [u8]>>;
    let any = record
        .to_any_record::<Any<'_>>()
        .during("a record's RDATA")?;
    let mut data = Vec::new();
    any.data()
        .compose_rdata(&mut data)
        .during("a record's RDATA")?;
    Ok(Record {
        owner: any.owner().to_vec().as_slice().to_vec(),
        rtype: any.rtype().to_int(),
        class: any.class().to_int(),
        ttl_seconds: any.ttl().as_secs(),
        data,
        text: any.to_string(),
    })
}

/// A record that an answer must hold: everything of it given, but the TTL.
#[derive(Debug, Clone)]
pub struct RecordPattern {
    record: Record,
    ttl: Ttl,
}

/// Which TTLs fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ttl {
    /// Written as a number: this one.
    Exactly(u32),
    /// Written `58..60`: these; the clock decides which.
    Between(u32, u32),
}

impl RecordPattern {
    /// Reads `NAME TTL TYPE RDATA` where TTL may be `58..60`.
    pub fn from_text(text: &str) -> Outcome<Self> {
        let ttl_word = text.split_whitespace().nth(1).unwrap_or_default();
        let Some((from, to)) = ttl_word.split_once("..") else {
            let record = Record::from_text(text)?;
            return Ok(Self {
                ttl: Ttl::Exactly(record.ttl_seconds),
                record,
            });
        };
        let seconds = |word: &str| {
            word.parse()
                .during(format!("TTL `{ttl_word}` of record `{text}`"))
        };
        let ttl = Ttl::Between(seconds(from)?, seconds(to)?);
        Ok(Self {
            ttl,
            record: Record::from_text(&text.replacen(ttl_word, to, 1))?,
        })
    }

    /// True if `record` is what the pattern describes. Owners are compared as names are (RFC 4343).
    pub fn matches(&self, record: &Record) -> bool {
        let ttl_fits = match self.ttl {
            Ttl::Exactly(seconds) => record.ttl_seconds == seconds,
            Ttl::Between(from, to) => (from..=to).contains(&record.ttl_seconds),
        };
        ttl_fits
            && self.record.owner.eq_ignore_ascii_case(&record.owner)
            && (self.record.rtype, self.record.class) == (record.rtype, record.class)
            && self.record.data == record.data
    }

    /// True if the clock has a say in the TTL.
    pub fn ages(&self) -> bool {
        matches!(self.ttl, Ttl::Between(..))
    }
}

impl fmt::Display for RecordPattern {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.ttl {
            Ttl::Exactly(_) => write!(formatter, "{}", self.record),
            Ttl::Between(from, to) => write!(formatter, "{} (TTL {from} to {to})", self.record),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_takes_a_range_of_ttls_and_any_case_of_the_owner() {
        let pattern =
            RecordPattern::from_text("www.example.com. 58..60 A 192.0.2.77").expect("good text");
        let fits = |text: &str| pattern.matches(&Record::from_text(text).expect("good text"));
        assert!(fits("WWW.example.com. 58 IN A 192.0.2.77"));
        assert!(!fits("www.example.com. 57 A 192.0.2.77"), "TTL");
        assert!(!fits("www.example.com. 59 A 192.0.2.78"), "data");
        assert!(!fits("www.example.org. 59 A 192.0.2.77"), "owner");
    }

    #[test]
    fn two_records_or_none_are_refused() {
        assert!(Record::from_text("www.example.com. 60 A").is_err());
        assert!(Record::from_text("").is_err());
    }
}
