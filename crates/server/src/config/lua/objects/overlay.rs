//! DNSPacketOverlay and DNSRecord: a message that functions look into, and the functions that read a record's data.

use super::super::query::OwnHeader;
use super::super::{define, wrong};
use super::address::ComboAddress;
use super::name::DnsName;
use super::object;
use crate::config::lua::objects::unknown_is_nil;
use mlua::{FromLua, Lua, LuaString, UserData, UserDataFields, UserDataMethods, Value};
use std::net::{IpAddr, SocketAddr};
use wire::codes::qtype;
use wire::message::{HEADER_LENGTH, Header, Record, Records, Section};
use wire::name::{NAME_LENGTH_MAX, NameBuf, compressed};

pub(super) fn register(lua: &Lua) -> mlua::Result<()> {
    define(lua, "newDNSPacketOverlay", |_, packet: LuaString| {
        let packet = packet.as_bytes();
        PacketOverlay::read(&packet).ok_or_else(|| {
            let length = packet.len();
            wrong(format!(
                "{length} octets: a DNS message with a question expected"
            ))
        })
    })?;
    define(lua, "parseARecord", |_, (packet, record): Parsed| {
        Ok(address(&packet, &record, &[qtype::A]))
    })?;
    define(lua, "parseAAAARecord", |_, (packet, record): Parsed| {
        Ok(address(&packet, &record, &[qtype::AAAA]))
    })?;
    define(lua, "parseAddressRecord", |_, (packet, record): Parsed| {
        Ok(address(&packet, &record, &[qtype::A, qtype::AAAA]))
    })?;
    define(lua, "parseCNAMERecord", |_, (packet, record): Parsed| {
        let start = usize::from(record.record.rdata_start);
        let is_alias = record.record.rtype == qtype::CNAME;
        Ok(is_alias
            .then(|| name_at(&packet.as_bytes(), start))
            .flatten())
    })
}

/// A message, and a record of it.
type Parsed = (LuaString, DnsRecord);

/// The address in the record's data; `None`: it is of another type, or its message is another one.
fn address(packet: &LuaString, record: &DnsRecord, types: &[u16]) -> Option<ComboAddress> {
    if !types.contains(&record.record.rtype) {
        return None;
    }
    let packet = packet.as_bytes();
    let octets = record.record.rdata(&packet);
    let address = match record.record.rtype {
        qtype::A => IpAddr::from(<[u8; 4]>::try_from(octets).ok()?),
        _ => IpAddr::from(<[u8; 16]>::try_from(octets).ok()?),
    };
    Some(ComboAddress(SocketAddr::new(address, 0)))
}

fn name_at(packet: &[u8], start: usize) -> Option<DnsName> {
    let mut buffer = [0; NAME_LENGTH_MAX];
    let name = compressed::expand(packet, start, &mut buffer).ok()?;
    Some(DnsName(NameBuf::from(name)))
}

/// What newDNSPacketOverlay returns.
struct PacketOverlay {
    header: Header,
    qname: DnsName,
    qtype: u16,
    qclass: u16,
    records: Vec<DnsRecord>,
}

impl PacketOverlay {
    /// As far as the records can be read.
    fn read(packet: &[u8]) -> Option<PacketOverlay> {
        let header = Header::read(packet)?;
        let qname = name_at(packet, HEADER_LENGTH)?;
        let end = compressed::skip(packet, HEADER_LENGTH).ok()?;
        let numbers: &[u8; 4] = packet.get(end..)?.first_chunk()?;
        let records = Records::new(packet, u16::try_from(end + 4).ok()?, &header);
        let records = records.map_while(|record| DnsRecord::read(packet, record.ok()?));
        Some(PacketOverlay {
            header,
            qname,
            qtype: u16::from_be_bytes([numbers[0], numbers[1]]),
            qclass: u16::from_be_bytes([numbers[2], numbers[3]]),
            records: records.collect(),
        })
    }

    /// "The number of records in the QUESTION (0) is always set to 0".
    fn count(&self, section: u8) -> usize {
        let records = self.records.iter();
        records.filter(|record| record.place() == section).count()
    }
}

impl UserData for PacketOverlay {
    fn add_fields<F: UserDataFields<Self>>(fields: &mut F) {
        unknown_is_nil(fields);
        fields.add_field_method_get("qname", |_, overlay| Ok(overlay.qname.clone()));
        fields.add_field_method_get("qtype", |_, overlay| Ok(overlay.qtype));
        fields.add_field_method_get("qclass", |_, overlay| Ok(overlay.qclass));
        fields.add_field_method_get("dh", |_, overlay| Ok(OwnHeader::new(overlay.header)));
    }

    fn add_methods<M: UserDataMethods<Self>>(methods: &mut M) {
        methods.add_method(
            "getRecordsCountInSection",
            |_, overlay, section: u8| match section {
                0..=3 => Ok(overlay.count(section)),
                _ => Err(wrong(format!("{section} is not a DNSSection"))),
            },
        );
        methods.add_method("getRecord", |_, overlay, index: usize| {
            overlay.records.get(index).cloned().ok_or_else(|| {
                let count = overlay.records.len();
                wrong(format!(
                    "no record {index}: there are {count}, counted from 0"
                ))
            })
        });
    }
}

/// "This object represents an unparsed DNS record".
#[derive(Clone)]
struct DnsRecord {
    record: Record,
    name: DnsName,
}

impl DnsRecord {
    fn read(packet: &[u8], record: Record) -> Option<DnsRecord> {
        let name = name_at(packet, record.owner_start.into())?;
        Some(DnsRecord { record, name })
    }

    /// Of the table `DNSSection`.
    fn place(&self) -> u8 {
        match self.record.section {
            Section::Answer => 1,
            Section::Authority => 2,
            Section::Additional => 3,
        }
    }
}

impl FromLua for DnsRecord {
    fn from_lua(value: Value, _: &Lua) -> mlua::Result<DnsRecord> {
        object(&value, "what getRecord returns")
    }
}

impl UserData for DnsRecord {
    fn add_fields<F: UserDataFields<Self>>(fields: &mut F) {
        unknown_is_nil(fields);
        fields.add_field_method_get("name", |_, record| Ok(record.name.clone()));
        fields.add_field_method_get("type", |_, record| Ok(record.record.rtype));
        fields.add_field_method_get("class", |_, record| Ok(record.record.class));
        fields.add_field_method_get("ttl", |_, record| Ok(record.record.ttl));
        fields.add_field_method_get("place", |_, record| Ok(record.place()));
        fields.add_field_method_get("contentLength", |_, record| {
            Ok(record.record.rdata_end - record.record.rdata_start)
        });
        fields.add_field_method_get("contentOffset", |_, record| Ok(record.record.rdata_start));
    }
}

#[cfg(test)]
mod tests {
    use crate::config::LuaState;
    use crate::config::pools::PoolNames;
    use crate::config::spec::{Purpose, Spec};

    #[test]
    fn a_message_is_looked_into() {
        let state = LuaState::new(Spec::new(Purpose::Check, PoolNames::default())).unwrap();
        let text = br#"
            local packet = "\18\52\129\128\0\1\0\3\0\0\0\1\3www\7example\0\0\1\0\1"
              .. "\192\12\0\5\0\1\0\0\0\60\0\4\1a\192\16"
              .. "\192\12\0\1\0\1\0\0\1\44\0\4\192\0\2\7"
              .. "\192\12\0\28\0\1\0\0\0\60\0\16\32\1\13\184\0\0\0\0\0\0\0\0\0\0\0\1"
              .. "\0\0\41\4\208\0\0\0\0\0\0"
            local overlay = newDNSPacketOverlay(packet)
            assert(overlay.qname:toString() == "www.example." and overlay.qtype == DNSQType.A and overlay.qclass == 1)
            assert(overlay.dh:getRD() and overlay.dh:getID() == 0x1234 and not overlay.dh:getTC())
            local counts = {}
            for section = 0, 3 do counts[section + 1] = overlay:getRecordsCountInSection(section) end
            assert(table.concat(counts, " ") == "0 3 0 1", table.concat(counts, " "))
            local alias, four, six, opt = overlay:getRecord(0), overlay:getRecord(1), overlay:getRecord(2), overlay:getRecord(3)
            assert(parseCNAMERecord(packet, alias):toString() == "a.example.")
            assert(parseCNAMERecord(packet, four) == nil)
            assert(four.name:toString() == "www.example." and four.type == 1 and four.class == 1 and four.ttl == 300)
            assert(four.place == DNSSection.Answer and four.contentLength == 4)
            assert(packet:byte(four.contentOffset + 1) == 192)
            assert(parseARecord(packet, four):toString() == "192.0.2.7" and parseAAAARecord(packet, four) == nil)
            assert(parseAAAARecord(packet, six):toString() == "2001:db8::1" and parseARecord(packet, six) == nil)
            assert(parseAddressRecord(packet, four):isIPv4() and parseAddressRecord(packet, six):isIPv6())
            assert(parseAddressRecord(packet, alias) == nil and opt.place == DNSSection.Additional)
            assert(not pcall(overlay.getRecord, overlay, 4) and not pcall(newDNSPacketOverlay, "short"))
        "#;
        let ran = state.run("test.conf", text);
        ran.unwrap_or_else(|error| panic!("{error}"));
    }
}
