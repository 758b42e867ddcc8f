//! What is odd about a zone beyond what is seen while it is made: a second look at all of its records, for whoever asks.
//!
//! RFC 2181 §10.3 and 2782 (targets are no aliases), 4034 (§3.1.5: times of signatures, §4.1: NSEC, appendix B: key tags),
//! 4035 §2 (what is signed), 5155 §7.1 (NSEC3). Signatures are verified by [`super::signatures`].

use super::encode::encode_hash;
use super::nsec3::Chain;
use super::parts::{
    DELEGATION, DNAME, HASH_LENGTH, NONE, Node, RECORD_HEADER_LENGTH, Rrset, wire_u16,
};
use super::{Denial, Zone, list, names};
use crate::rdata::bitmap_kinds;
use crate::transfer::serial::is_newer;
use std::fmt;
use wire::codes::{QtypeText, qtype};
use wire::name::{Name, NameBuf};

/// Oddities that are told one by one: a million of them help nobody.
pub(super) const ODDITIES_MAX: usize = 1_000;

/// The flag of NSEC3 records that may cover delegations (RFC 5155 §3.1.2.1).
const OPT_OUT: u8 = 1;

/// Something odd about a zone that is served all the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Oddity {
    /// An NS, MX or SRV record that points to an alias.
    Alias {
        owner: NameBuf,
        kind: u16,
        target: NameBuf,
    },
    /// An MX or SRV record that points to a name of the zone without an address.
    NoAddress {
        owner: NameBuf,
        kind: u16,
        target: NameBuf,
    },
    /// Records of a signed zone without a signature.
    Unsigned { owner: NameBuf, kind: u16 },
    /// A name that no NSEC or NSEC3 record, whichever the zone has, is about.
    NoProof { owner: NameBuf, kind: u16 },
    /// An NSEC or NSEC3 record about `owner` that lists other types than are there.
    Types { owner: NameBuf, kind: u16 },
    /// An NSEC or NSEC3 record that does not lead to the next one.
    Broken { owner: NameBuf, kind: u16 },
    /// Signatures that nobody accepts; the first of them is that of these records.
    Signatures {
        fault: SignatureFault,
        count: usize,
        owner: NameBuf,
        kind: u16,
    },
}

/// Why a signature is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignatureFault {
    /// Its time is over.
    Expired,
    /// Its time has not come.
    NotYet,
    /// The apex has no DNSKEY record of its algorithm and key tag.
    NoKey,
}

impl Oddity {
    /// Whether resolvers that validate take what it is about, or what it is to prove, for bogus: an error for whoever has a
    /// signed zone verified.
    #[must_use]
    pub const fn is_of_validation(&self) -> bool {
        match self {
            Oddity::Unsigned { .. }
            | Oddity::NoProof { .. }
            | Oddity::Types { .. }
            | Oddity::Broken { .. } => true,
            Oddity::Signatures { fault, .. } => !matches!(fault, SignatureFault::NoKey),
            Oddity::Alias { .. } | Oddity::NoAddress { .. } => false,
        }
    }
}

impl fmt::Display for Oddity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Oddity::Alias {
                owner,
                kind,
                target,
            } => write!(
                f,
                "{} of {owner} points to {target}, an alias: the name that has the addresses is right (RFC 2181 §10.3)",
                QtypeText(*kind)
            ),
            Oddity::NoAddress {
                owner,
                kind,
                target,
            } => write!(
                f,
                "{} of {owner} points to {target}, which has no address: add its A or AAAA record",
                QtypeText(*kind)
            ),
            Oddity::Unsigned { owner, kind } => write!(
                f,
                "{} at {owner} has no RRSIG record, and the zone is signed (RFC 4035 §2.2)",
                QtypeText(*kind)
            ),
            Oddity::NoProof { owner, kind } => write!(
                f,
                "no {} record is about {owner}: it can be denied (RFC 4035 §2.3, RFC 5155 §7.1)",
                QtypeText(*kind)
            ),
            Oddity::Types { owner, kind } => write!(
                f,
                "{} about {owner} lists other types than are there (RFC 4034 §4.1.2, RFC 5155 §3.1.8)",
                QtypeText(*kind)
            ),
            Oddity::Broken { owner, kind } => write!(
                f,
                "{} at {owner} does not lead to the next one: the chain is not closed (RFC 4034 §4.1.1, RFC 5155 §3.1.7)",
                QtypeText(*kind)
            ),
            Oddity::Signatures {
                fault,
                count,
                owner,
                kind,
            } => write!(
                f,
                "{count} RRSIG records {fault}, that of {} at {owner} first",
                QtypeText(*kind)
            ),
        }
    }
}

/// As what RRSIG records do.
impl fmt::Display for SignatureFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SignatureFault::Expired => "have expired",
            SignatureFault::NotYet => "are not valid yet",
            SignatureFault::NoKey => "are by keys that the apex has no DNSKEY record of",
        })
    }
}

impl Zone {
    /// What is odd about its targets, signatures and proofs, at most a thousand things that concern validation and a thousand
    /// others; `now` is in seconds since 1970, which wrap.
    #[must_use]
    pub fn oddities(&self, now: u32) -> Vec<Oddity> {
        let apex = self.node(self.apex_at);
        let keys = apex.rrset(qtype::DNSKEY);
        let keys = keys.into_iter().flat_map(|keys| data_of(keys.body(false)));
        let mut look = Look {
            zone: self,
            now,
            keys: keys.filter_map(key_of).collect(),
            last: None,
            oddities: Vec::new(),
            told: [0; 2],
        };
        for at in self.places() {
            look.at_name(self.node(at));
        }
        look.at_end();
        look.oddities
    }

    /// Whether the NSEC3 record of this number says that unsigned delegations between its hash and the next have none of
    /// their own (RFC 5155 §3.1.2.1).
    fn opts_out(&self, chain: &Chain, number: u32) -> bool {
        number != NONE && {
            let (_, rrset) = self.proof(chain, number);
            let data = data_of(rrset.body(false)).next();
            data.is_some_and(|data| data[1] & OPT_OUT != 0)
        }
    }

    /// What a name in lower case, at or below the apex, is to whoever was sent there.
    pub(super) fn target(&self, name: &[u8]) -> Target {
        let found = self.find(name, names::labels(name));
        let node = found.node;
        if let Some(cut) = node.cut() {
            return match cut.has(DELEGATION) {
                true => Target::Elsewhere,
                false => Target::Alias,
            };
        }
        let node = match found.exact() {
            true => Some(node),
            false if node.has(DNAME) => return Target::Alias,
            false => node.wildcard(),
        };
        let has = |kind| node.is_some_and(|node| node.rrset(kind).is_some());
        match (has(qtype::CNAME), has(qtype::A) || has(qtype::AAAA)) {
            (true, _) => Target::Alias,
            (_, true) => Target::Addresses,
            _ => Target::Nothing,
        }
    }
}

/// What a name is to whoever was sent there for addresses.
pub(super) enum Target {
    Addresses,
    Alias,
    /// Another zone knows.
    Elsewhere,
    Nothing,
}

/// A look at one name after the other, in canonical order.
struct Look<'z> {
    zone: &'z Zone,
    now: u32,
    /// Algorithms and key tags.
    keys: Vec<(u8, u16)>,
    /// The last name with an NSEC record, and where that leads to.
    last: Option<(&'z [u8], &'z [u8])>,
    oddities: Vec<Oddity>,
    /// How many of them are not, and are, of validation: many of the former hide none of the latter.
    told: [usize; 2],
}

impl<'z> Look<'z> {
    fn tell(&mut self, oddity: Oddity) {
        let told = &mut self.told[usize::from(oddity.is_of_validation())];
        if *told < ODDITIES_MAX {
            *told += 1;
            self.oddities.push(oddity);
        }
    }

    fn at_name(&mut self, node: Node<'z>) {
        let zone = self.zone;
        if node.cut().is_some_and(|cut| cut.at != node.at) {
            return;
        }
        for rrset in node.rrsets() {
            self.at_targets(node, rrset);
            if is_ours(node, rrset.kind) && !is_of_child(node, rrset.kind) {
                self.at_signatures(node.name(), rrset);
            }
        }
        match zone.denial() {
            Denial::Unsigned => {}
            Denial::Nsec(_) => self.at_nsec(node),
            Denial::Nsec3(chain) => self.at_hash_of(node, chain),
        }
    }

    fn at_targets(&mut self, node: Node<'z>, rrset: Rrset<'z>) {
        let kind = rrset.kind;
        if !matches!(kind, qtype::NS | qtype::MX | qtype::SRV) {
            return;
        }
        for target in list::without_address(node.name(), rrset) {
            let lowered = target.as_name().as_bytes().to_ascii_lowercase();
            let owner = name_of(node.name());
            match self.zone.target(&lowered) {
                // RFC 7505 and RFC 2782 have the root for "none".
                _ if *lowered == [0] => {}
                Target::Alias => self.tell(Oddity::Alias {
                    owner,
                    kind,
                    target,
                }),
                // Of name servers that is said when a zone is made.
                Target::Nothing if kind != qtype::NS => self.tell(Oddity::NoAddress {
                    owner,
                    kind,
                    target,
                }),
                _ => {}
            }
        }
    }

    // ------------------------------------------------------------------------------------------- signatures

    fn at_signatures(&mut self, owner: &[u8], rrset: Rrset<'_>) {
        let kind = rrset.kind;
        if rrset.signatures == 0 && self.zone.is_signed() {
            let owner = name_of(owner);
            self.tell(Oddity::Unsigned { owner, kind });
        }
        for signature in data_of(rrset.signatures_body()) {
            if let Some(fault) = self.fault_of(signature) {
                self.tell_of_signature(fault, owner, kind);
            }
        }
    }

    /// What is wrong with the data of an RRSIG record (RFC 4034 §3.1).
    fn fault_of(&self, data: &[u8]) -> Option<SignatureFault> {
        let (fields, _) = data.split_first_chunk::<18>()?;
        let half = |at: usize| u32::from(wire_u16(fields, at));
        let (expiration, inception) = (half(8) << 16 | half(10), half(12) << 16 | half(14));
        let key = (fields[2], wire_u16(fields, 16));
        if is_newer(self.now, expiration) {
            return Some(SignatureFault::Expired);
        }
        if is_newer(inception, self.now) {
            return Some(SignatureFault::NotYet);
        }
        let is_known = self.keys.contains(&key);
        (!is_known).then_some(SignatureFault::NoKey)
    }

    /// Counts it where one with this fault was told of.
    fn tell_of_signature(&mut self, found: SignatureFault, owner: &[u8], kind: u16) {
        for oddity in &mut self.oddities {
            if let Oddity::Signatures { fault, count, .. } = oddity
                && *fault == found
            {
                *count += 1;
                return;
            }
        }
        self.tell(Oddity::Signatures {
            fault: found,
            count: 1,
            owner: name_of(owner),
            kind,
        });
    }

    // ------------------------------------------------------------------------------------------- proofs

    fn at_nsec(&mut self, node: Node<'z>) {
        let kind = qtype::NSEC;
        let data = node.rrset(kind);
        let data = data.and_then(|rrset| data_of(rrset.body(false)).next());
        let Some(data) = data else {
            if node.rrsets_count() > 0 {
                let owner = name_of(node.name());
                self.tell(Oddity::NoProof { owner, kind });
            }
            return;
        };
        let length = Name::parse(data).map_or(data.len(), |next| next.len());
        let (next, map) = data.split_at(length);
        self.compare_types(node, kind, map);
        let before = self.last.replace((node.name(), next));
        if let Some((before, led_to)) = before {
            self.compare_next(before, led_to, node.name());
        }
    }

    fn compare_next(&mut self, owner: &[u8], led_to: &[u8], next: &[u8]) {
        if !led_to.eq_ignore_ascii_case(next) {
            self.tell(Oddity::Broken {
                owner: name_of(owner),
                kind: qtype::NSEC,
            });
        }
    }

    fn at_hash_of(&mut self, node: Node<'z>, chain: &Chain) {
        let (zone, kind) = (self.zone, qtype::NSEC3);
        let proofs = zone.proofs_of(node);
        if proofs.opted_out || proofs.first == NONE {
            // RFC 5155 §6: opt-out leaves out delegations that are not signed, and what lies only above those, where the
            // record that covers them says so.
            let is_insecure = node.rrset(qtype::DS).is_none() && node.has(DELEGATION);
            let may_be_out = is_insecure || node.rrsets_count() == 0;
            if !may_be_out || !zone.opts_out(chain, proofs.second) {
                let owner = name_of(node.name());
                self.tell(Oddity::NoProof { owner, kind });
            }
            return;
        }
        let (_, rrset) = zone.proof(chain, proofs.first);
        let data = data_of(rrset.body(false)).next();
        if let Some((_, map)) = data.and_then(next_hash) {
            self.compare_types(node, kind, map);
        }
    }

    fn compare_types(&mut self, node: Node<'z>, kind: u16, map: &[u8]) {
        if !bitmap_kinds(map).eq(kinds_of(node)) {
            let owner = name_of(node.name());
            self.tell(Oddity::Types { owner, kind });
        }
    }

    /// The chains are circles.
    fn at_end(&mut self) {
        let zone = self.zone;
        if let Some((owner, led_to)) = self.last {
            self.compare_next(owner, led_to, zone.apex_wire());
        }
        let Denial::Nsec3(chain) = zone.denial() else {
            return;
        };
        let numbers = zone.proof_numbers();
        for (number, after) in numbers.iter().zip(numbers.iter().cycle().skip(1)) {
            let (label, rrset) = zone.proof(chain, *number);
            let owner = [&label[..], zone.apex_wire()].concat();
            self.at_signatures(&owner, rrset);
            let data = data_of(rrset.body(false)).next();
            let led_to = data.and_then(next_hash).map(|(hash, _)| encode_hash(hash));
            if led_to.as_ref() != Some(zone.proof(chain, *after).0) {
                self.tell(Oddity::Broken {
                    owner: name_of(&owner),
                    kind: qtype::NSEC3,
                });
            }
        }
    }
}

/// Whether records of this type are the zone's own at a name, which is not below a cut: glue at a delegation is not.
pub(super) fn is_ours(node: Node<'_>, kind: u16) -> bool {
    !node.has(DELEGATION) || matches!(kind, qtype::NS | qtype::DS | qtype::NSEC)
}

/// RFC 4035 §2.2: NS records at a delegation are not signed.
pub(super) fn is_of_child(node: Node<'_>, kind: u16) -> bool {
    node.has(DELEGATION) && kind == qtype::NS
}

/// The types that a proof about a name has to list, ascending.
fn kinds_of(node: Node<'_>) -> Vec<u16> {
    let rrsets = node.rrsets().filter(|rrset| is_ours(node, rrset.kind));
    let mut is_signed = false;
    let rrsets = rrsets.inspect(|rrset| is_signed |= rrset.signatures > 0);
    let mut kinds: Vec<u16> = rrsets.map(|rrset| rrset.kind).collect();
    if is_signed {
        kinds.push(qtype::RRSIG);
        kinds.sort_unstable();
    }
    kinds
}

/// The data of records as they lie in a zone: each with a pointer as its owner.
pub(super) fn data_of(body: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = body;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let length = usize::from(wire_u16(rest, RECORD_HEADER_LENGTH - 2));
        let (record, behind) = rest.split_at(RECORD_HEADER_LENGTH + length);
        rest = behind;
        Some(&record[RECORD_HEADER_LENGTH..])
    })
}

/// The next hash in the data of an NSEC3 record (RFC 5155 §3.2), and its bit map.
pub(super) fn next_hash(data: &[u8]) -> Option<(&[u8; HASH_LENGTH], &[u8])> {
    let salt_length = usize::from(*data.get(4)?);
    let (length, rest) = data.get(5 + salt_length..)?.split_first()?;
    rest.split_first_chunk()
        .filter(|_| usize::from(*length) == HASH_LENGTH)
}

/// Algorithm and key tag of a DNSKEY record's data (RFC 4034 §2.1, appendix B).
pub(super) fn key_of(data: &[u8]) -> Option<(u8, u16)> {
    let algorithm = *data.get(3)?;
    let value = |(place, octet): (usize, &u8)| u32::from(*octet) << (8 * (1 - place % 2));
    let sum: u32 = data.iter().enumerate().map(value).sum();
    Some((algorithm, (sum + (sum >> 16)) as u16))
}

pub(super) fn name_of(name: &[u8]) -> NameBuf {
    Name::parse(name).expect("names were checked").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::{Opener, Reader, Settings};
    use crate::zone::nsec3::Parameters;
    use std::io::ErrorKind;

    /// Within the time of the signatures.
    const NOW: u32 = 1_900_000_000;

    fn oddities_at(text: &str, now: u32) -> Vec<Oddity> {
        let apex = name("example.com.");
        let open: Opener<'_> = Box::new(|_| Err(ErrorKind::NotFound.into()));
        let reader = Reader::new("zone", text.as_bytes(), open, Settings::new(apex.as_name()));
        let records = reader.map(|record| record.unwrap());
        let (zone, _) = Zone::build(apex.as_name(), records).unwrap();
        zone.oddities(now)
    }

    fn oddities(text: &str) -> Vec<Oddity> {
        oddities_at(text, NOW)
    }

    fn name(text: &str) -> NameBuf {
        text.parse().unwrap()
    }

    /// What resolvers take for bogus is told, however many aliases there are.
    #[test]
    fn a_thousand_targets_hide_no_proof_that_is_missing() {
        let line = |number: u32| format!("a{number} 60 MX 1 nowhere\n");
        let targets: String = (0..1_100).map(line).collect();
        let text = "@ 60 SOA ns host 1 2 3 4 5\n@ 60 NS ns.example.net.\n@ 60 NSEC @ NS SOA NSEC\n";
        let found = oddities(&format!("{text}{targets}"));
        assert_eq!(found.len(), 2_000);
        let (owner, kind) = (name("a0.example.com."), qtype::NSEC);
        assert!(found.contains(&Oddity::NoProof { owner, kind }));
    }

    /// RFC 2181 §10.3, RFC 2782, RFC 7505.
    #[test]
    fn targets_have_addresses_of_their_own() {
        let found = oddities(
            "@ 60 SOA ns host 1 2 3 4 5\n@ 60 NS ns\nns 60 A 192.0.2.1\n\
             @ 60 MX 1 ns\n@ 60 MX 2 alias\n@ 60 MX 3 nowhere\n@ 60 MX 4 mail.wild\n\
             @ 60 MX 5 mail.sub\n@ 60 MX 6 mail.example.net.\nnone 60 MX 0 .\n\
             alias 60 CNAME ns\n*.wild 60 A 192.0.2.2\nsub 60 NS ns.example.net.\n\
             _sip._tcp 60 SRV 1 2 3 host.old\nold 60 DNAME new\n",
        );
        let (apex, service) = (name("example.com."), name("_sip._tcp.example.com."));
        let expected = [
            Oddity::Alias {
                owner: apex.clone(),
                kind: qtype::MX,
                target: name("alias.example.com."),
            },
            Oddity::NoAddress {
                owner: apex,
                kind: qtype::MX,
                target: name("nowhere.example.com."),
            },
            Oddity::Alias {
                owner: service,
                kind: qtype::SRV,
                target: name("host.old.example.com."),
            },
        ];
        assert_eq!(found, expected);
    }

    /// A zone that is signed by one key, from 2026 to 2036; signatures of two octets, for nobody verifies them.
    fn signed() -> String {
        let signature = |owner: &str, kind: &str| {
            let rest = "13 2 60 20361122000000 20261122000000 44413 example.com. Qm9n";
            format!("{owner} 60 RRSIG {kind} {rest}\n")
        };
        let apex = ["SOA", "NS", "DNSKEY", "NSEC"].map(|kind| signature("@", kind));
        let others = ["A", "NSEC"].map(|kind| signature("www", kind));
        format!(
            "@ 60 SOA ns host 1 2 3 4 5\n@ 60 NS ns.example.net.\n@ 60 DNSKEY 257 3 13 Qm9n\n\
             @ 60 NSEC sub NS SOA RRSIG NSEC DNSKEY\nsub 60 NS ns.sub\nns.sub 60 A 192.0.2.3\n\
             sub 60 NSEC www NS RRSIG NSEC\n{}www 60 A 192.0.2.1\nwww 60 NSEC @ A RRSIG NSEC\n{}{}",
            signature("sub", "NSEC"),
            apex.concat(),
            others.concat()
        )
    }

    #[test]
    fn signatures_have_a_time_and_a_key() {
        let zone = signed();
        assert_eq!(oddities(&zone), []);
        let all = |fault| {
            [Oddity::Signatures {
                fault,
                count: 7,
                owner: name("example.com."),
                kind: qtype::NS,
            }]
        };
        let late = oddities_at(&zone, 2_200_000_000);
        assert_eq!(late, all(SignatureFault::Expired));
        let early = oddities_at(&zone, 1_700_000_000);
        assert_eq!(early, all(SignatureFault::NotYet));
        let other = zone.replace("44413", "44414");
        assert_eq!(oddities(&other), all(SignatureFault::NoKey));
        let without = zone.replace("www 60 RRSIG A ", "www 60 RRSIG TXT ");
        let owner = name("www.example.com.");
        let kind = qtype::A;
        assert_eq!(oddities(&without), [Oddity::Unsigned { owner, kind }]);
    }

    #[test]
    fn nsec_records_lead_from_name_to_name_and_list_their_types() {
        let zone = signed();
        let changed = |from: &str, to: &str| oddities(&zone.replace(from, to));
        let (owner, kind) = (name("www.example.com."), qtype::NSEC);
        let broken = Oddity::Broken {
            owner: owner.clone(),
            kind,
        };
        assert_eq!(changed("NSEC @ A", "NSEC sub A"), [broken]);
        let types = Oddity::Types {
            owner: owner.clone(),
            kind,
        };
        assert_eq!(changed("NSEC @ A", "NSEC @ TXT"), [types]);
        let broken = Oddity::Broken {
            owner: name("sub.example.com."),
            kind,
        };
        let without = changed("www 60 NSEC @ A RRSIG NSEC\n", "");
        assert_eq!(without, [Oddity::NoProof { owner, kind }, broken]);
    }

    #[test]
    fn nsec3_records_are_a_circle_and_list_types() {
        let parameters = Parameters {
            iterations: 0,
            salt: Box::default(),
        };
        let label = encode_hash(&parameters.hash(b"\x07example\x03com\x00"));
        let label = std::str::from_utf8(&label[1..]).unwrap();
        let rest = "60 20361122000000 20261122000000 44413 example.com. Qm9n";
        let signed = ["SOA", "NS", "DNSKEY", "NSEC3PARAM"];
        let signed = signed.map(|kind| format!("@ 60 RRSIG {kind} 13 2 {rest}\n"));
        let zone = format!(
            "@ 60 SOA ns host 1 2 3 4 5\n@ 60 NS ns.example.net.\n@ 60 DNSKEY 257 3 13 Qm9n\n\
             @ 60 NSEC3PARAM 1 0 0 -\n{}{label} 60 RRSIG NSEC3 13 3 {rest}\n\
             {label} 60 NSEC3 1 0 0 - {label} NS SOA RRSIG DNSKEY NSEC3PARAM\n",
            signed.concat()
        );
        assert_eq!(oddities(&zone), []);
        let types = Oddity::Types {
            owner: name("example.com."),
            kind: qtype::NSEC3,
        };
        assert_eq!(oddities(&zone.replace("NS SOA", "SOA")), [types]);
        let broken = Oddity::Broken {
            owner: name(&format!("{label}.example.com.")),
            kind: qtype::NSEC3,
        };
        let other = format!("- {} NS", "0".repeat(32));
        let elsewhere = zone.replace(&format!("- {label} NS"), &other);
        assert_eq!(oddities(&elsewhere), [broken]);
    }

    /// RFC 5155 §7.1: the flag is what lets a delegation be without a record.
    #[test]
    fn only_opt_out_leaves_out_delegations() {
        let parameters = Parameters {
            iterations: 0,
            salt: Box::default(),
        };
        let label = encode_hash(&parameters.hash(b"\x07example\x03com\x00"));
        let label = std::str::from_utf8(&label[1..]).unwrap();
        let found = |flags: u8, record: &str| {
            oddities(&format!(
                "@ 60 SOA ns host 1 2 3 4 5\n@ 60 NS ns.example.net.\n@ 60 NSEC3PARAM 1 0 0 -\n\
                 {label} 60 NSEC3 1 {flags} 0 - {label} NS SOA NSEC3PARAM\n{record}\n"
            ))
        };
        let is_left_out = |flags, record, owner: &str| {
            let owner = name(owner);
            let kind = qtype::NSEC3;
            found(flags, record).contains(&Oddity::NoProof { owner, kind })
        };
        for (record, owner) in [
            ("sub 60 NS ns.example.net.", "sub.example.com."),
            ("a.b 60 NS ns.example.net.", "a.b.example.com."),
            ("a.b 60 NS ns.example.net.", "b.example.com."),
        ] {
            assert!(is_left_out(0, record, owner), "{owner}");
            assert!(!is_left_out(1, record, owner), "{owner}");
        }
        let (record, owner) = ("www 60 A 192.0.2.1", "www.example.com.");
        assert!(is_left_out(1, record, owner));
    }
}
