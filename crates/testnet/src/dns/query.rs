//! A query as a scenario describes it, and its octets.

use std::str::FromStr;

use domain::base::Name;
use domain::base::iana::{Class, Rtype};

use crate::{During, Outcome};

/// Everything about a query that a scenario can choose.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Query {
    /// The header's ID.
    pub id: u16,
    /// The header's second 16 bits: QR, opcode, flags, RCODE.
    pub flags: u16,
    /// The name in wire format, its case kept.
    pub name: Vec<u8>,
    /// Type and class by number.
    pub rtype: u16,
    /// Class by number.
    pub class: u16,
    /// The OPT record, if there is one.
    pub edns: Option<Edns>,
    /// Octets behind the message's end.
    pub trailing: Vec<u8>,
}

/// What stands in an OPT record (RFC 6891 section 6.1).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edns {
    /// The requestor's UDP payload size, in octets.
    pub size_octets: u16,
    /// EDNS version; only 0 is defined.
    pub version: u8,
    /// The DNSSEC OK bit (RFC 3225).
    pub dnssec_ok: bool,
    /// Options: code and octets.
    pub options: Vec<(u16, Vec<u8>)>,
    /// How many OPT records; RFC 6891 allows one.
    pub count: u16,
}

impl Default for Edns {
    fn default() -> Self {
        Self {
            size_octets: 1232,
            version: 0,
            dnssec_ok: false,
            options: Vec::new(),
            count: 1,
        }
    }
}

impl Query {
    /// An ordinary query with RD set, class IN, without EDNS.
    pub fn new(name: &str, rtype: &str) -> Outcome<Self> {
        Ok(Self {
            id: 0,
            flags: 0x0100,
            name: name_octets(name)?,
            rtype: type_number(rtype)?,
            class: 1,
            edns: None,
            trailing: Vec::new(),
        })
    }

    /// The message.
    pub fn octets(&self) -> Vec<u8> {
        let additional = self.edns.as_ref().map_or(0, |edns| edns.count);
        let mut octets = Vec::with_capacity(64);
        for field in [self.id, self.flags, 1, 0, 0, additional] {
            octets.extend(field.to_be_bytes());
        }
        octets.extend(&self.name);
        octets.extend(self.rtype.to_be_bytes());
        octets.extend(self.class.to_be_bytes());
        if let Some(edns) = &self.edns {
            (0..edns.count).for_each(|_| edns.append_to(&mut octets));
        }
        octets.extend(&self.trailing);
        octets
    }
}

impl Edns {
    /// Writes one OPT record: root name, type 41, size, extended RCODE, version, flags, options.
    pub fn append_to(&self, octets: &mut Vec<u8>) {
        octets.extend([0, 0, 41]);
        octets.extend(self.size_octets.to_be_bytes());
        octets.extend([0, self.version]);
        octets.extend((u16::from(self.dnssec_ok) << 15).to_be_bytes());
        let length: usize = self.options.iter().map(|(_, value)| 4 + value.len()).sum();
        octets.extend((length as u16).to_be_bytes());
        for (code, value) in &self.options {
            octets.extend(code.to_be_bytes());
            octets.extend((value.len() as u16).to_be_bytes());
            octets.extend(value);
        }
    }
}

/// A name's wire format.
pub(super) fn name_octets(name: &str) -> Outcome<Vec<u8>> {
    let name = Name::<Vec<u8>>::from_str(name).during(format!("name `{name}`"))?;
    Ok(name.as_slice().to_vec())
}

/// A type's number by its mnemonic, or by `TYPE65280`.
pub(super) fn type_number(rtype: &str) -> Outcome<u16> {
    Ok(Rtype::from_str(rtype)
        .during(format!("type `{rtype}`"))?
        .to_int())
}

impl Query {
    /// Sets the class by its mnemonic, or by `CLASS65535`.
    pub fn set_class(&mut self, class: &str) -> Outcome<()> {
        self.class = Class::from_str(class)
            .during(format!("class `{class}`"))?
            .to_int();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dns::hex_of_octets;

    #[test]
    fn a_query_is_laid_out_as_the_standards_say() {
        let mut query = Query::new("Ab.example.", "A").expect("good words");
        query.id = 0x1234;
        query.edns = Some(Edns {
            dnssec_ok: true,
            options: vec![(10, vec![1, 2])],
            ..Edns::default()
        });
        let expected = "1234 0100 0001 0000 0000 0001 024162 076578616d706c65 00 0001 0001 \
                        00 0029 04d0 00 00 8000 0006 000a 0002 0102";
        assert_eq!(hex_of_octets(&query.octets()), expected.replace(' ', ""));
    }

    #[test]
    fn a_bad_name_or_type_is_named() {
        assert!(
            Query::new("a..b", "A")
                .expect_err("empty label")
                .to_string()
                .contains("a..b")
        );
        assert!(
            Query::new("a.", "AAAAA")
                .expect_err("no such type")
                .to_string()
                .contains("AAAAA")
        );
    }
}
