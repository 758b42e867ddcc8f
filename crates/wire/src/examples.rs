//! Messages for tests, put together piece by piece, right or wrong.

use crate::message::{Header, QueryFlags, Section, write_query};
use crate::name::NameBuf;

/// A query of class IN and ID 0x1234 with RD, and with EDNS where a payload size is given.
pub(crate) fn query(qname: &str, qtype: u16, payload_size: Option<u16>) -> Vec<u8> {
    let qname: NameBuf = qname.parse().unwrap();
    let flags = QueryFlags {
        recursion_desired: true,
        payload_size,
        ..QueryFlags::default()
    };
    let mut buffer = vec![0; 512];
    let length = write_query(&mut buffer, 0x1234, (qname.as_name(), qtype, 1), flags).unwrap();
    buffer.truncate(length);
    buffer
}

/// A message that grows record by record, its counts with it.
#[derive(Clone)]
pub(crate) struct Composed {
    pub(crate) octets: Vec<u8>,
}

impl Composed {
    /// A header with these flags and ID 0x1234.
    pub(crate) fn new(flags: u16) -> Composed {
        let mut composed = Composed {
            octets: vec![0; 12],
        };
        composed.change_header(|header| {
            header.set_id(0x1234);
            header.set_flags(flags);
        });
        composed
    }

    /// A response with one question.
    pub(crate) fn response(qname: &str, qtype: u16) -> Composed {
        let qname: NameBuf = qname.parse().unwrap();
        Composed::new(0x8180).question(qname.as_name().as_bytes(), qtype, 1)
    }

    pub(crate) fn change_header(&mut self, change: impl FnOnce(&mut Header)) {
        let mut header = Header::read(&self.octets).unwrap();
        change(&mut header);
        header.write(&mut self.octets).unwrap();
    }

    pub(crate) fn question(mut self, qname: &[u8], qtype: u16, qclass: u16) -> Composed {
        self.octets.extend(qname);
        self.octets.extend(qtype.to_be_bytes());
        self.octets.extend(qclass.to_be_bytes());
        self.change_header(|header| header.set_question_count(header.question_count() + 1));
        self
    }

    /// A record of class IN.
    pub(crate) fn record(
        self,
        section: Section,
        owner: &[u8],
        rtype: u16,
        ttl: u32,
        rdata: &[u8],
    ) -> Composed {
        self.record_of_class(section, owner, (rtype, 1, ttl), rdata)
    }

    /// A record; of an OPT record class and TTL are payload size and flags.
    pub(crate) fn record_of_class(
        mut self,
        section: Section,
        owner: &[u8],
        (rtype, class, ttl): (u16, u16, u32),
        rdata: &[u8],
    ) -> Composed {
        self.octets.extend(owner);
        self.octets.extend(rtype.to_be_bytes());
        self.octets.extend(class.to_be_bytes());
        self.octets.extend(ttl.to_be_bytes());
        self.octets
            .extend(u16::try_from(rdata.len()).unwrap().to_be_bytes());
        self.octets.extend(rdata);
        self.change_header(|header| match section {
            Section::Answer => header.set_answer_count(header.answer_count() + 1),
            Section::Authority => header.set_authority_count(header.authority_count() + 1),
            Section::Additional => header.set_additional_count(header.additional_count() + 1),
        });
        self
    }

    /// An OPT record at the end: payload size 1232; extended RCODE, version and flags; options.
    pub(crate) fn opt(self, flags: u32, options: &[u8]) -> Composed {
        self.record_of_class(Section::Additional, b"\x00", (41, 1232, flags), options)
    }
}
