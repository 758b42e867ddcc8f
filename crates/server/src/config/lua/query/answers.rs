//! Answers that functions make: `dq:spoof`, `dq:setNegativeAndAdditionalSOA`, and the actions of the same names.

use super::super::wrong;
use super::subject::Subject;
use crate::pipeline::compose::record_class;
use crate::pipeline::query::MESSAGE_MAX;
use crate::pipeline::respond::{edit_header, restore_flags_of};
use std::net::IpAddr;
use wire::answer::{EdnsPolicy, OptFields, append_opt, with_rcode};
use wire::codes::{qtype, rcode};
use wire::edit::{NewRecord, append_record};
use wire::message::{OPT_LENGTH, Section};
use wire::name::NameBuf;

/// Seconds that spoofed records may be kept: dnsdist's default.
const TTL: u32 = 60;

/// Octets of a record without its data: a name, type, class, TTL and length (RFC 1035 §4.1.3).
const RECORD_MAX: usize = 255 + 10;

/// The SOA record of a negative answer.
pub(super) struct Soa {
    pub(super) zone: NameBuf,
    /// Seconds.
    pub(super) ttl: u32,
    pub(super) mname: NameBuf,
    pub(super) rname: NameBuf,
    /// Serial, refresh, retry, expire, minimum.
    pub(super) numbers: [u32; 5],
}

/// The query becomes an answer with those of the addresses that it asks for; where there are none it stays as it is, as with
/// SpoofAction.
pub(super) fn spoof_addresses(subject: &mut Subject, addresses: &[IpAddr]) -> mlua::Result<()> {
    let asked = subject.parts.qtype;
    let records = addresses.iter().filter_map(|address| {
        let (rtype, data) = match address {
            IpAddr::V4(address) => (qtype::A, address.octets().to_vec()),
            IpAddr::V6(address) => (qtype::AAAA, address.octets().to_vec()),
        };
        (asked == rtype || asked == qtype::ANY).then_some((rtype, data))
    });
    let records: Vec<_> = records.collect();
    if records.is_empty() {
        return Ok(());
    }
    answer(subject, rcode::NOERROR, |message| message.answers(&records))
}

/// The query becomes an answer with these data of the type asked for; `type_for_any` in place of ANY.
pub(super) fn spoof_raw(
    subject: &mut Subject,
    data: &[Vec<u8>],
    type_for_any: Option<u16>,
) -> mlua::Result<()> {
    let rtype = match (subject.parts.qtype, type_for_any) {
        (qtype::ANY, Some(rtype)) => rtype,
        (rtype, _) => rtype,
    };
    let records: Vec<_> = data.iter().map(|data| (rtype, data.clone())).collect();
    answer(subject, rcode::NOERROR, |message| message.answers(&records))
}

/// The query becomes an answer with an alias.
pub(super) fn spoof_alias(subject: &mut Subject, name: &NameBuf) -> mlua::Result<()> {
    let data = name.as_name().as_bytes().to_vec();
    answer(subject, rcode::NOERROR, |message| {
        message.answers(&[(qtype::CNAME, data)])
    })
}

/// The query becomes a negative answer with an SOA record in its additional section, as the manual says.
pub(super) fn negative(subject: &mut Subject, nxdomain: bool, soa: &Soa) -> mlua::Result<()> {
    let code = match nxdomain {
        true => rcode::NXDOMAIN,
        false => rcode::NOERROR,
    };
    let mut data = [&soa.mname, &soa.rname]
        .map(|name| name.as_name().as_bytes().to_vec())
        .concat();
    data.extend(soa.numbers.iter().flat_map(|number| number.to_be_bytes()));
    answer(subject, code, |message| {
        message.append(&NewRecord {
            section: Section::Additional,
            owner: Some(soa.zone.as_name()),
            rtype: qtype::SOA,
            class: message.class,
            ttl: soa.ttl,
            rdata: &data,
        })
    })
}

/// An answer that grows.
struct Growing {
    buffer: Vec<u8>,
    length: usize,
    /// Of its records.
    class: u16,
}

impl Growing {
    fn append(&mut self, record: &NewRecord<'_>) -> Option<()> {
        let longest = self.length + RECORD_MAX + record.rdata.len();
        self.buffer.resize(longest.max(self.buffer.len()), 0);
        self.length = append_record(&mut self.buffer, self.length, record)?;
        Some(())
    }

    /// Records of the name asked for.
    fn answers(&mut self, records: &[(u16, Vec<u8>)]) -> Option<()> {
        records.iter().try_for_each(|(rtype, data)| {
            self.append(&NewRecord {
                section: Section::Answer,
                owner: None,
                rtype: *rtype,
                class: self.class,
                ttl: TTL,
                rdata: data,
            })
        })
    }
}

/// Makes the query an answer with what `fill` puts into it, and an OPT record where the client sent one.
fn answer(
    subject: &mut Subject,
    code: u16,
    fill: impl FnOnce(&mut Growing) -> Option<()>,
) -> mlua::Result<()> {
    let parts = subject.parts;
    let mut buffer = subject.message[..parts.end.into()].to_vec();
    restore_flags_of(&mut buffer, subject.client_flags);
    let length = with_rcode(&mut buffer, &parts, code, EdnsPolicy::Omit);
    let mut growing = Growing {
        buffer,
        length,
        class: record_class(parts.qclass),
    };
    let fits = fill(&mut growing).is_some();
    let Growing {
        mut buffer,
        mut length,
        ..
    } = growing;
    buffer.resize(length + OPT_LENGTH, 0);
    if let Some(fields) = own_opt(subject) {
        length = append_opt(&mut buffer, length, fields, &[]);
    }
    buffer.truncate(length);
    if !(fits && subject.replace(buffer)) {
        return Err(wrong(format!(
            "the answer has no room in a message of at most {MESSAGE_MAX} bytes"
        )));
    }
    subject.composed = true;
    Ok(())
}

/// Makes a query whose header says that it is an answer one of ours: its question, and our OPT record where the client sent
/// one. The manual, "EDNS on Self-generated answers", also of "returning a response from Lua": "Those responses should,
/// according to RFC 6891, contain an OPT record if the received request had one". The client's own options, what else it sent
/// and what trails that is not sent back.
pub(super) fn from_header(subject: &mut Subject) {
    let end = usize::from(subject.parts.question_end);
    let Some(question) = subject.message.get(..end) else {
        // A packet of SpoofPacketAction's that has none.
        return;
    };
    let mut message = question.to_vec();
    restore_flags_of(&mut message, subject.client_flags);
    edit_header(&mut message, |header| {
        header.set_answer_count(0);
        header.set_authority_count(0);
        header.set_additional_count(0);
    });
    let extended_rcode = subject.extended_rcode;
    if let Some(fields) = own_opt(subject) {
        message.resize(end + OPT_LENGTH, 0);
        let fields = OptFields {
            extended_rcode,
            ..fields
        };
        append_opt(&mut message, end, fields, &[]);
    } else if extended_rcode > 0 {
        // The lower bits alone would mean something else.
        edit_header(&mut message, |header| {
            header.set_rcode(rcode::SERVFAIL as u8);
        });
    }
    // It has the question of a query that was parsed.
    subject.replace(message);
}

/// The OPT record of an answer of ours. A client without EDNS gets none, whatever rules have put into its query (RFC 6891 §7).
fn own_opt(subject: &Subject) -> Option<OptFields> {
    let edns = subject.parts.edns.filter(|_| !subject.marks.edns_added)?;
    Some(OptFields {
        payload_size: subject.own_payload_size?,
        extended_rcode: 0,
        dnssec_ok: edns.dnssec_ok,
    })
}
