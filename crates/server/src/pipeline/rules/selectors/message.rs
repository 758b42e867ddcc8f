//! Selectors by header, question, records and EDNS.

use crate::pipeline::Env;
use crate::pipeline::query::Query;
use crate::pipeline::rules::Selector;
use wire::codes::{QtypeText, rcode};
use wire::message::{Header, Records, Section};

/// `QTypeRule(qtype)`.
pub struct QTypeRule(pub u16);

impl Selector for QTypeRule {
    fn matches(&self, query: &mut Query<'_>, _: &mut Env<'_>) -> bool {
        query.parts.qtype == self.0
    }

    fn describe(&self) -> String {
        format!("qtype=={}", QtypeText(self.0))
    }
}

/// `QClassRule(qclass)`.
pub struct QClassRule(pub u16);

impl Selector for QClassRule {
    fn matches(&self, query: &mut Query<'_>, _: &mut Env<'_>) -> bool {
        query.parts.qclass == self.0
    }

    fn describe(&self) -> String {
        format!("qclass=={}", self.0)
    }
}

/// `OpcodeRule(code)`.
pub struct OpcodeRule(pub u8);

impl Selector for OpcodeRule {
    fn matches(&self, query: &mut Query<'_>, _: &mut Env<'_>) -> bool {
        query.header().opcode() == self.0
    }

    fn describe(&self) -> String {
        format!("opcode=={}", self.0)
    }
}

/// `RDRule()`: recursion is desired.
pub struct RDRule;

impl Selector for RDRule {
    fn matches(&self, query: &mut Query<'_>, _: &mut Env<'_>) -> bool {
        query.header().rd()
    }

    fn describe(&self) -> String {
        "rd==1".to_owned()
    }
}

/// `DNSSECRule()`: EDNS with the DO flag.
pub struct DNSSECRule;

impl Selector for DNSSECRule {
    fn matches(&self, query: &mut Query<'_>, _: &mut Env<'_>) -> bool {
        query.parts.edns.is_some_and(|edns| edns.dnssec_ok)
    }

    fn describe(&self) -> String {
        "DNSSEC".to_owned()
    }
}

/// `EDNSVersionRule(version)`: EDNS of a version *greater* than this one.
pub struct EDNSVersionRule(pub u8);

impl Selector for EDNSVersionRule {
    fn matches(&self, query: &mut Query<'_>, _: &mut Env<'_>) -> bool {
        query.parts.edns.is_some_and(|edns| edns.version > self.0)
    }

    fn describe(&self) -> String {
        format!("ednsversion>{}", self.0)
    }
}

/// `EDNSOptionRule(optcode)`: EDNS with this option.
pub struct EDNSOptionRule(pub u16);

impl Selector for EDNSOptionRule {
    fn matches(&self, query: &mut Query<'_>, _: &mut Env<'_>) -> bool {
        let edns = query.parts.edns;
        edns.is_some_and(|edns| edns.option(query.message, self.0).is_some())
    }

    fn describe(&self) -> String {
        format!("ednsoptcode=={}", self.0)
    }
}

/// `RCodeRule(rcode)`: the four bits of response code in the header.
pub struct RCodeRule(pub u8);

impl Selector for RCodeRule {
    fn matches(&self, query: &mut Query<'_>, _: &mut Env<'_>) -> bool {
        query.header().rcode() == self.0
    }

    fn describe(&self) -> String {
        format!("rcode=={}", rcode_text(self.0.into()))
    }
}

/// `ERCodeRule(rcode)`: all twelve bits of response code; without EDNS the upper eight are 0.
pub struct ERCodeRule(pub u16);

impl Selector for ERCodeRule {
    fn matches(&self, query: &mut Query<'_>, _: &mut Env<'_>) -> bool {
        let upper = query.parts.edns.map_or(0, |edns| edns.extended_rcode);
        (u16::from(upper) << 4 | u16::from(query.header().rcode())) == self.0
    }

    fn describe(&self) -> String {
        format!("ercode=={}", rcode_text(self.0))
    }
}

/// A response code in the words of showRules(), which are those of IANA's registry.
pub(crate) fn rcode_text(code: u16) -> String {
    let text = match code {
        rcode::NOERROR => "No Error",
        rcode::FORMERR => "Form Error",
        rcode::SERVFAIL => "Server Failure",
        rcode::NXDOMAIN => "Non-Existent domain",
        rcode::NOTIMP => "Not Implemented",
        rcode::REFUSED => "Query Refused",
        rcode::YXDOMAIN => "Name Exists when it should not",
        rcode::YXRRSET => "RR Set Exists when it should not",
        rcode::NXRRSET => "RR Set that should exist does not",
        rcode::NOTAUTH => "Server Not Authoritative for zone / Not Authorized",
        rcode::NOTZONE => "Name not contained in zone",
        rcode::BADVERS => "Bad OPT Version / TSIG Signature Failure",
        rcode::BADKEY => "Key not recognized",
        rcode::BADTIME => "Signature out of time window",
        rcode::BADMODE => "Bad TKEY Mode",
        rcode::BADNAME => "Duplicate key name",
        rcode::BADALG => "Algorithm not supported",
        rcode::BADTRUNC => "Bad Truncation",
        rcode::BADCOOKIE => "Bad/missing Server Cookie",
        _ => return format!("Err#{code}"),
    };
    text.to_owned()
}

/// `RecordsCountRule(section, minCount, maxCount)`: so many records in a section, as the header says.
pub struct RecordsCountRule {
    pub section: CountedSection,
    pub minimum: u16,
    pub maximum: u16,
}

/// `DNSSection.Question` and its sisters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CountedSection {
    Question,
    Records(Section),
}

impl CountedSection {
    /// By its number: 0 question, 1 answer, 2 authority, 3 additional.
    pub fn from_number(number: u8) -> Option<CountedSection> {
        Some(match number {
            0 => CountedSection::Question,
            1 => CountedSection::Records(Section::Answer),
            2 => CountedSection::Records(Section::Authority),
            3 => CountedSection::Records(Section::Additional),
            _ => return None,
        })
    }

    fn count(self, header: &Header) -> u16 {
        match self {
            CountedSection::Question => header.question_count(),
            CountedSection::Records(Section::Answer) => header.answer_count(),
            CountedSection::Records(Section::Authority) => header.authority_count(),
            CountedSection::Records(Section::Additional) => header.additional_count(),
        }
    }

    /// The header field's name (RFC 1035 §4.1.1).
    fn text(self) -> &'static str {
        match self {
            CountedSection::Question => "QD",
            CountedSection::Records(Section::Answer) => "AN",
            CountedSection::Records(Section::Authority) => "NS",
            CountedSection::Records(Section::Additional) => "AR",
        }
    }
}

impl Selector for RecordsCountRule {
    fn matches(&self, query: &mut Query<'_>, _: &mut Env<'_>) -> bool {
        (self.minimum..=self.maximum).contains(&self.section.count(&query.header()))
    }

    fn describe(&self) -> String {
        let (minimum, maximum) = (self.minimum, self.maximum);
        format!(
            "{minimum} <= records in {} <= {maximum}",
            self.section.text()
        )
    }
}

/// `RecordsTypeCountRule(section, qtype, minCount, maxCount)`: so many records of a type in a section.
pub struct RecordsTypeCountRule {
    pub section: CountedSection,
    pub qtype: u16,
    pub minimum: u16,
    pub maximum: u16,
}

impl RecordsTypeCountRule {
    fn count(&self, query: &Query<'_>) -> usize {
        let CountedSection::Records(section) = self.section else {
            return usize::from(query.parts.qtype == self.qtype);
        };
        Records::new(query.bytes(), query.parts.question_end, &query.header())
            .filter_map(Result::ok)
            .filter(|record| record.section == section && record.rtype == self.qtype)
            .count()
    }
}

impl Selector for RecordsTypeCountRule {
    fn matches(&self, query: &mut Query<'_>, _: &mut Env<'_>) -> bool {
        (self.minimum.into()..=self.maximum.into()).contains(&self.count(query))
    }

    fn describe(&self) -> String {
        let (section, qtype) = (self.section.text(), QtypeText(self.qtype));
        let (minimum, maximum) = (self.minimum, self.maximum);
        format!("{minimum} <= {qtype} records in {section} <= {maximum}")
    }
}

/// `TrailingDataRule()`: bytes behind the last record.
pub struct TrailingDataRule;

impl Selector for TrailingDataRule {
    fn matches(&self, query: &mut Query<'_>, _: &mut Env<'_>) -> bool {
        query.length > query.parts.end.into()
    }

    fn describe(&self) -> String {
        "trailing data".to_owned()
    }
}

/// How a size is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Comparison {
    Equal,
    Greater,
    GreaterOrEqual,
    Smaller,
    SmallerOrEqual,
}

impl Comparison {
    /// All, with the manual's names.
    pub const ALL: [(&'static str, Comparison); 5] = [
        ("equal", Comparison::Equal),
        ("greater", Comparison::Greater),
        ("greaterOrEqual", Comparison::GreaterOrEqual),
        ("smaller", Comparison::Smaller),
        ("smallerOrEqual", Comparison::SmallerOrEqual),
    ];

    fn sign(self) -> &'static str {
        match self {
            Comparison::Equal => "==",
            Comparison::Greater => ">",
            Comparison::GreaterOrEqual => ">=",
            Comparison::Smaller => "<",
            Comparison::SmallerOrEqual => "<=",
        }
    }
}

/// `PayloadSizeRule(comparison, size)`: the message's size in bytes.
pub struct PayloadSizeRule {
    pub comparison: Comparison,
    pub size: u16,
}

impl Selector for PayloadSizeRule {
    fn matches(&self, query: &mut Query<'_>, _: &mut Env<'_>) -> bool {
        let (length, size) = (query.length, usize::from(self.size));
        match self.comparison {
            Comparison::Equal => length == size,
            Comparison::Greater => length > size,
            Comparison::GreaterOrEqual => length >= size,
            Comparison::Smaller => length < size,
            Comparison::SmallerOrEqual => length <= size,
        }
    }

    fn describe(&self) -> String {
        format!("payload size {} {}", self.comparison.sign(), self.size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipeline::scene::{Scene, query, query_with_edns};
    use wire::codes::{class, edns_option, opcode, qtype};

    fn matches(selector: &dyn Selector, message: &[u8]) -> bool {
        Scene::default().matches(selector, message)
    }

    #[test]
    fn question_and_header() {
        let any = query("a.", qtype::ANY);
        assert!(matches(&QTypeRule(255), &any));
        assert!(!matches(&QTypeRule(qtype::A), &any));
        assert!(matches(&QClassRule(class::IN), &any));
        assert!(!matches(&QClassRule(class::CHAOS), &any));
        assert!(matches(&RDRule, &any));
        assert!(matches(&OpcodeRule(opcode::QUERY), &any));
        let mut notify = any.clone();
        notify[2] = 4 << 3;
        assert!(matches(&OpcodeRule(opcode::NOTIFY), &notify));
        assert!(!matches(&RDRule, &notify));
        assert!(matches(&RCodeRule(0), &notify));
        notify[3] |= 3;
        assert!(matches(&RCodeRule(3), &notify));
        assert!(matches(&ERCodeRule(3), &notify));
    }

    #[test]
    fn edns() {
        let plain = query("a.", qtype::A);
        let mut edns = query_with_edns("a.", qtype::A, Some(1_232));
        let opt = plain.len();
        assert!(!matches(&DNSSECRule, &plain));
        assert!(!matches(&DNSSECRule, &edns));
        edns[opt + 7] |= 0x80;
        assert!(matches(&DNSSECRule, &edns));
        assert!(!matches(&EDNSOptionRule(edns_option::COOKIE), &edns));
        edns[opt + 10] = 12;
        edns.extend([0, 10, 0, 8, 1, 2, 3, 4, 5, 6, 7, 8]);
        assert!(matches(&EDNSOptionRule(edns_option::COOKIE), &edns));
        assert!(!matches(&EDNSOptionRule(edns_option::ECS), &edns));
        assert!(!matches(&EDNSVersionRule(0), &edns));
        edns[opt + 5] = 1;
        assert!(matches(&ERCodeRule(rcode::BADVERS), &edns));
        edns[opt + 6] = 1;
        assert!(matches(&EDNSVersionRule(0), &edns));
        assert!(!matches(&EDNSVersionRule(1), &edns));
    }

    #[test]
    fn records_and_what_trails_them() {
        let plain = query("a.", qtype::A);
        let mut edns = query_with_edns("a.", qtype::A, Some(1_232));
        let additional = |minimum, maximum| RecordsCountRule {
            section: CountedSection::from_number(3).unwrap(),
            minimum,
            maximum,
        };
        assert!(matches(&additional(1, 1), &edns));
        assert!(!matches(&additional(1, 1), &plain));
        assert!(matches(&additional(0, 0), &plain));
        let of_type = |qtype| RecordsTypeCountRule {
            section: CountedSection::Records(Section::Additional),
            qtype,
            minimum: 1,
            maximum: 1,
        };
        assert!(matches(&of_type(qtype::OPT), &edns));
        assert!(!matches(&of_type(qtype::A), &edns));
        assert!(!matches(&TrailingDataRule, &edns));
        edns.push(0);
        assert!(matches(&TrailingDataRule, &edns));
    }

    /// As dnsdist 1.7.3 prints them.
    #[test]
    fn descriptions() {
        let described = |selector: &dyn Selector| selector.describe();
        assert_eq!(described(&QTypeRule(65_280)), "qtype==TYPE65280");
        assert_eq!(described(&QClassRule(3)), "qclass==3");
        assert_eq!(described(&OpcodeRule(4)), "opcode==4");
        assert_eq!(described(&EDNSVersionRule(0)), "ednsversion>0");
        assert_eq!(described(&EDNSOptionRule(8)), "ednsoptcode==8");
        assert_eq!(described(&RCodeRule(3)), "rcode==Non-Existent domain");
        let badvers = "ercode==Bad OPT Version / TSIG Signature Failure";
        assert_eq!(described(&ERCodeRule(16)), badvers);
        let section = CountedSection::Records(Section::Additional);
        let (minimum, maximum) = (1, 3);
        let counts = RecordsCountRule {
            section,
            minimum,
            maximum,
        };
        assert_eq!(described(&counts), "1 <= records in AR <= 3");
        let qtype = qtype::OPT;
        let types = RecordsTypeCountRule {
            section,
            qtype,
            minimum,
            maximum,
        };
        assert_eq!(described(&types), "1 <= OPT records in AR <= 3");
    }

    #[test]
    fn sizes_are_compared() {
        let mut scene = Scene::default();
        let message = query("a.", qtype::A);
        let size = message.len() as u16;
        let held = |scene: &mut Scene, size| {
            Comparison::ALL.map(|(_, comparison)| {
                scene.matches(&PayloadSizeRule { comparison, size }, &message)
            })
        };
        assert_eq!(held(&mut scene, size), [true, false, true, false, true]);
        assert_eq!(
            held(&mut scene, size - 1),
            [false, true, true, false, false]
        );
        assert_eq!(
            held(&mut scene, size + 1),
            [false, false, false, true, true]
        );
    }
}
