//! What delv makes of our answers: of each that a signed zone gives to a query of the corpus with DO.
//!
//! delv follows a chain by asking for each of its names anew, and takes no referral. So an answer is taken apart into those
//! that its parts have when they are asked for alone: the aliases, the records that they lead to, the proof about DS in a
//! referral, the addresses beside all that. The parts, put together, must be the answer, record by record; and each part delv
//! must find valid, what it proves not to be there included. An answer that is neither a chain nor a referral is its only part.
//!
//! Left over are records that nobody may sign:
//! - RFC 4035 §2.2: "the NS RRsets that appear at delegation points (that is, the NS RRsets in the parent zone that delegate
//!   the name to the child zone's name servers) MUST NOT be signed", nor the addresses below such a point. What they are, the
//!   other servers say, too.
//! - RFC 6672 §5.3.1, of a CNAME record made of a DNAME record: "the CNAME will never be signed. For a DNSSEC validator,
//!   verification of the DNAME RR and then that the CNAME was properly synthesized is sufficient proof." It is made here, too.
//!
//! Where a chain leads out of our zones, the answer ends, and so does what can be validated.

use super::corpus::Question;
use super::read::{self, Message, Read, text};
use super::servers::Responder;
use super::zones::{Ground, ZoneFile, built, records};
use sha1::{Digest, Sha1};
use std::collections::BTreeSet;
use std::sync::Mutex;
use std::thread;
use wire::codes::qtype::{CNAME, DNAME, DS, NS, NSEC3, RRSIG, SOA};
use wire::codes::rcode::{NXDOMAIN, YXDOMAIN};
use wire::name::{NAME_LENGTH_MAX, Name, NameBuf};
use zone::answer::Zones;

impl Ground {
    /// The zone that answers a question.
    pub(crate) fn home(&self, question: &Question) -> Option<&ZoneFile> {
        let name: NameBuf = question.name.parse().expect("a name");
        let is_above = |zone: &&ZoneFile| name.as_name().is_within(&zone.apex().as_name());
        let mut above: Vec<&ZoneFile> = self.files.iter().filter(is_above).collect();
        above.sort_by_key(|zone| zone.name.len());
        let own = above.pop()?;
        // RFC 4035 §3.1.4.1: DS records "appear only at the parental side of zone cuts".
        let is_of_parent = question.kind == DS && name == own.apex();
        Some(above.pop().filter(|_| is_of_parent).unwrap_or(own))
    }

    /// The zones, but that the last bit of one signature is another: of that over this type of this name below `zone`.
    pub(crate) fn with_broken(&self, zone: &ZoneFile, name: &str, covered: u16) -> Zones {
        let apex = zone.apex();
        let owner: NameBuf = format!("{name}{}", zone.name).parse().expect("a name");
        let mut records = records(apex.as_name(), &zone.file);
        let mut broken = 0;
        for record in &mut records {
            let is_it = record.kind == RRSIG
                && record.rdata[..2] == covered.to_be_bytes()
                && record
                    .owner
                    .eq_ignore_ascii_case(owner.as_name().as_bytes());
            if let Some(last) = record.rdata.last_mut().filter(|_| is_it) {
                *last ^= 1;
                broken += 1;
            }
        }
        assert_eq!(broken, 1, "signatures over type {covered} of {owner}");
        let zone = built(apex.as_name(), records);
        let others = self.zones.iter();
        let others = others.map(|(apex, zone)| (apex.to_owned(), zone.cloned()));
        // Of several with the same apex the last one counts.
        Zones::new(others.chain([(apex, Some(zone.into()))]))
    }

    /// Our answer, read.
    pub(crate) fn message(&self, question: &Question) -> Message {
        read::message(&self.ask(question).expect("the zone is served"))
    }
}

/// Answers to queries with DO that cannot be validated, and why.
pub(crate) struct NotValidated {
    pub(crate) reason: &'static str,
    pub(crate) is: fn(&Ground, &Question, &Message) -> bool,
}

pub(crate) const NOT_VALIDATED: &[NotValidated] = &[
    NotValidated {
        reason: "the zone is not signed, and its answer has no signature",
        is: is_unsigned,
    },
    // RFC 4035 §3.1.4.1: the child's server "MUST return an authoritative "no data" response". It proves nothing about DS
    // records, which "appear only at the parental side of zone cuts".
    NotValidated {
        reason: "DS at an apex whose parent is not served: the parent's keys would prove it",
        is: is_ds_without_parent,
    },
];

fn is_unsigned(ground: &Ground, question: &Question, answer: &Message) -> bool {
    let sections = [&answer.answer, &answer.authority, &answer.additional];
    let has_signature = sections.into_iter().flatten().any(|r| r.kind == RRSIG);
    let home = ground.home(question).expect("a zone of ours");
    home.anchor.is_none() && !has_signature
}

fn is_ds_without_parent(ground: &Ground, question: &Question, answer: &Message) -> bool {
    let home = ground.home(question).expect("a zone of ours");
    question.kind == DS && question.name == home.name && answer.answer.is_empty()
}

/// What an answer is put together from.
#[derive(Debug, Default)]
struct Parts {
    /// What delv is to be asked.
    questions: BTreeSet<Question>,
    rcode: u8,
    answer: BTreeSet<Read>,
    authority: BTreeSet<Read>,
}

/// The questions whose answers make up this answer.
pub(crate) fn take_apart(
    ground: &Ground,
    question: &Question,
    answer: &Message,
) -> Result<BTreeSet<Question>, String> {
    let mut parts = Parts::default();
    let (mut name, mut before) = (octets(&question.name), BTreeSet::new());
    // A loop of aliases ends where it began.
    while before.insert(name.clone()) {
        match parts.take_step(ground, &name, question.kind, answer) {
            Some(next) => name = next,
            None => break,
        }
    }
    let is_whole = parts.rcode == answer.rcode
        && parts.answer.iter().eq(&answer.answer)
        && parts.authority.iter().eq(&answer.authority);
    if !is_whole || parts.questions.is_empty() {
        return Err(format!(
            "{question:?} is not what its parts make up\n{answer:#?}\n{parts:#?}"
        ));
    }
    parts.take_addresses(ground, answer)?;
    Ok(parts.questions)
}

impl Parts {
    /// Takes what `answer` has of this name; the name that it leads to.
    fn take_step(
        &mut self,
        ground: &Ground,
        name: &[u8],
        kind: u16,
        answer: &Message,
    ) -> Option<Vec<u8>> {
        let mut records = answer.answer.iter();
        let redirects = |r: &&Read| r.kind == DNAME && is_below(name, &r.owner);
        let target = if let Some(redirection) = records.clone().find(redirects) {
            self.take(ground, &redirection.owner, DNAME);
            let Some(target) = redirected(name, redirection) else {
                // RFC 6672 §3.2: "If the resulting name is longer than 255 octets, set RCODE to YXDOMAIN".
                self.rcode = YXDOMAIN as u8;
                return None;
            };
            self.answer.insert(Read {
                owner: name.to_vec(),
                kind: CNAME,
                ttl: redirection.ttl,
                data: target.clone(),
            });
            target
        } else if let Some(alias) = records.find(|r| r.kind == CNAME && r.owner == name) {
            self.take(ground, name, CNAME);
            alias.data.clone()
        } else {
            self.take_end(ground, name, kind);
            return None;
        };
        (kind != CNAME).then_some(target)
    }

    /// Takes the whole answer to this question.
    fn take(&mut self, ground: &Ground, name: &[u8], kind: u16) {
        let question = asked(name, kind);
        let answer = ground.message(&question);
        self.rcode = answer.rcode;
        self.answer.extend(answer.answer);
        self.authority.extend(answer.authority);
        self.questions.insert(question);
    }

    /// Takes what is at the end of a chain: nothing where it leads out of our zones.
    fn take_end(&mut self, ground: &Ground, name: &[u8], kind: u16) {
        let question = asked(name, kind);
        if ground.home(&question).is_none() {
            return;
        }
        let answer = ground.message(&question);
        match cut(&answer).map(<[u8]>::to_vec) {
            Some(cut) => self.take_referral(ground, &cut, answer),
            None => self.take(ground, name, kind),
        }
    }

    /// RFC 4035 §3.1.4: of a delegation with DS "the name server MUST return both the DS RRset and its associated RRSIG RR(s)
    /// in the Authority section along with the NS RRset", else the proof that there is none: what a question for DS gets.
    fn take_referral(&mut self, ground: &Ground, cut: &[u8], answer: Message) {
        let servers = answer.authority.into_iter().filter(|r| r.kind == NS);
        self.authority.extend(servers);
        let question = asked(cut, DS);
        let proof = ground.message(&question);
        self.authority.extend(proof.answer);
        let denial = proof.authority.into_iter().filter(|r| !is_of(r, SOA));
        self.authority.extend(denial);
        self.questions.insert(question);
    }

    /// RFC 4035 §3.1.1: "When placing a signed RRset in the Additional section, the name server MUST also place its RRSIG RRs
    /// in the Additional section." What is below a delegation is not signed.
    fn take_addresses(&mut self, ground: &Ground, answer: &Message) -> Result<(), String> {
        for record in answer.additional.iter().filter(|r| r.kind != RRSIG) {
            let question = asked(&record.owner, record.kind);
            let alone = ground.message(&question);
            if cut(&alone).is_some() {
                continue;
            }
            let is_of_both = |r: &&Read| r.owner == record.owner && is_of(r, record.kind);
            let beside = answer.additional.iter().filter(is_of_both);
            if !beside.eq(&alone.answer) {
                return Err(format!(
                    "additional section, {question:?}\n{answer:#?}\nalone {alone:#?}"
                ));
            }
            self.questions.insert(question);
        }
        Ok(())
    }
}

/// Who does not believe what, of these questions.
pub(crate) fn complaints(
    ground: &Ground,
    responder: &Responder,
    questions: &BTreeSet<Question>,
) -> Vec<String> {
    let waiting = Mutex::new(questions.iter());
    let next = || waiting.lock().expect("nobody panics").next();
    let complaints = Mutex::new(Vec::new());
    thread::scope(|scope| {
        // A process mostly waits, so there are more of them than processors.
        for _ in 0..4 {
            scope.spawn(|| {
                while let Some(question) = next() {
                    if let Err(complaint) = validate(ground, responder, question) {
                        complaints.lock().expect("nobody panics").push(complaint);
                    }
                }
            });
        }
    });
    complaints.into_inner().expect("nobody panics")
}

/// Has delv validate what the responder answers to a question that is no chain and gets no referral.
pub(crate) fn validate(
    ground: &Ground,
    responder: &Responder,
    question: &Question,
) -> Result<(), String> {
    let zone = ground.home(question).expect("a zone of ours");
    let answer = ground.message(question);
    let said = responder.delv(zone, question);
    // RFC 5155 §9.2: "The AD bit [...] MUST NOT be set when returning a response containing a closest (provable) encloser proof
    // in which the NSEC3 RR that covers the "next closer" name has the Opt-Out bit set." delv has no AD bit: such an answer it
    // may call unsigned, and no other one.
    let is_insecure = said.contains("unsigned answer");
    let is_believed = if is_insecure {
        is_opted_out(question, &answer)
    } else {
        said.contains("fully validated")
    };
    let is_negative = said.contains("negative response");
    let says_the_same = if !answer.answer.is_empty() {
        !is_negative
    } else if u16::from(answer.rcode) == NXDOMAIN {
        is_negative && said.to_lowercase().contains("nxdomain")
    } else {
        is_negative && said.to_lowercase().contains("nxrrset")
    };
    if is_believed && says_the_same {
        Ok(())
    } else {
        Err(format!(
            "{question:?}: delv does not believe it\n{said}\n{answer:#?}"
        ))
    }
}

/// Whether there is a closest encloser proof with opt-out: NSEC3 records with the flag, and none that matches the name
/// (RFC 5155 §7.2.2, §7.2.4 to §7.2.6; its erratum 3441: empty non-terminals above delegations that are opted out).
fn is_opted_out(question: &Question, answer: &Message) -> bool {
    let name = octets(&question.name);
    let proofs = || answer.authority.iter().filter(|r| r.kind == NSEC3);
    // RFC 5155 §3.2: hash algorithm, flags, of which the last one is Opt-Out (§3.1.2.1).
    proofs().any(|proof| proof.data[1] & 1 == 1) && !proofs().any(|proof| is_of_name(proof, &name))
}

/// Whether an NSEC3 record is that of this name (RFC 5155 §5).
fn is_of_name(proof: &Read, name: &[u8]) -> bool {
    let iterations = u16::from_be_bytes([proof.data[2], proof.data[3]]);
    let salt = &proof.data[5..5 + usize::from(proof.data[4])];
    let mut hash = Sha1::digest([name, salt].concat()).to_vec();
    for _ in 0..iterations {
        hash = Sha1::digest([&hash[..], salt].concat()).to_vec();
    }
    let label = data_encoding::BASE32HEX_NOPAD.encode(&hash);
    proof.owner[1..].starts_with(label.to_ascii_lowercase().as_bytes())
}

/// The delegation that an answer refers to.
fn cut(answer: &Message) -> Option<&[u8]> {
    let servers = answer.authority.iter().find(|r| r.kind == NS)?;
    let is_referral = !answer.authoritative && answer.answer.is_empty();
    is_referral.then_some(&servers.owner[..])
}

/// Whether a record is of this type, or a signature over it (RFC 4034 §3.1: the type covered comes first).
fn is_of(record: &Read, kind: u16) -> bool {
    record.kind == kind || record.kind == RRSIG && record.data[..2] == kind.to_be_bytes()
}

fn is_below(name: &[u8], ancestor: &[u8]) -> bool {
    let (name, ancestor) = (parsed(name), parsed(ancestor));
    name != ancestor && name.is_within(&ancestor)
}

/// RFC 6672 §2.2: the labels below the DNAME record's owner, in front of its target; `None` where that is no name any more.
fn redirected(name: &[u8], redirection: &Read) -> Option<Vec<u8>> {
    let labels = &name[..name.len() - redirection.owner.len()];
    let target = [labels, &redirection.data.to_ascii_lowercase()[..]].concat();
    (target.len() <= NAME_LENGTH_MAX).then_some(target)
}

fn asked(name: &[u8], kind: u16) -> Question {
    let (name, signed) = (text(name), true);
    Question { name, kind, signed }
}

fn parsed(name: &[u8]) -> Name<'_> {
    Name::parse(name).expect("a name")
}

/// A name in lower case, as on the wire.
fn octets(name: &str) -> Vec<u8> {
    let name: NameBuf = name.parse().expect("a name");
    name.as_name().as_bytes().to_ascii_lowercase()
}
