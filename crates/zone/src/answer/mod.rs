//! Answers from zones, made in the buffer that holds the query.
//!
//! [`answer`] goes the way of RFC 1034 §4.3.2: the zone, down to the name, over aliases to the next name. An answer costs
//! one hash lookup for the zone, one or a few for the name, and one copy per RRset; nothing is allocated or locked. EDNS is
//! the caller's affair: he keeps its octets back from the limit and puts the OPT record behind what is written here.
//!
//! RFC 1034 (§4.3.2), 1035, 2181 (§9: truncation), 2308 (negative answers), 4035 (§3.1: signatures and proofs), 4592
//! (wildcards), 5155 (§7.2: NSEC3), 6604 (response codes of chains), 6672 (DNAME), 8482 (ANY), 9460 (SVCB), 9471 (glue).

mod addresses;
pub mod ahead;
mod denial;
mod writer;
mod zones;

pub use zones::Zones;

use crate::zone::parts::{DELEGATION, DNAME, Node, RECORD_HEADER_LENGTH, Rrset};
use crate::zone::{Found, Zone};
use addresses::Extra;
use ahead::Known;
use arrayvec::ArrayVec;
use denial::{Absence, Absent, Expansion};
use wire::codes::{class, qtype, rcode};
use wire::message::{HEADER_LENGTH, Header, QueryParts};
use wire::name::compressed::expand;
use wire::name::{NAME_LENGTH_MAX, Name};
use writer::{AA, Full, Placed, QR, Section, TC, Writer};
use zones::Home;

/// Aliases that one answer follows, each a CNAME record: what a resolver would follow anyway, and an end to loops.
pub const ALIASES_MAX: usize = 16;
/// Each alias may be a wildcard's, and needs one proof; the last name up to three, and an unsigned delegation two.
const PROOFS_MAX: usize = ALIASES_MAX + 5;

/// What became of a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// No zone encloses the name, or its class is neither theirs nor ANY. The message is as it was.
    NotServed,
    /// The zone with this number does and is not loaded. The message is as it was.
    NotLoaded { zone: usize },
    /// The message is an answer.
    Answered(Answered),
}

/// An answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answered {
    /// Its octets.
    pub length: usize,
    /// See [`wire::codes::rcode`].
    pub rcode: u8,
    /// TC is set: it did not fit.
    pub truncated: bool,
    /// Addresses that are useful and no more did not fit: nothing tells the client so (RFC 2181 §9).
    pub left_out: bool,
    /// The number of the zone of the name that was asked for.
    pub zone: usize,
    /// NOERROR, but nothing in the answer section, and no referral.
    pub no_data: bool,
    /// What names with one answer have in common: a number of the name in its zone that gave it, be it the wildcard that
    /// stands for others or the cut above them; 0 for all that are not there.
    pub origin: u32,
    /// The type of what that name gave; 0 where it is the same whatever was asked for: an alias, a referral, nothing.
    pub given: u16,
}

/// Which zones serve a query, by their numbers: what others have is not for whoever asks, as if they were not there.
pub type Serves<'z> = &'z dyn Fn(usize) -> bool;

/// Zones, and which of them serve a query.
pub type Among<'z> = (&'z Zones, Serves<'z>);

/// Turns the query in `message` into its answer from `zones`, of at most `limit` octets and what the buffer holds.
///
/// The question stays as it is. Behind it nothing of the query is left: `parts` are what remains of it. Counts in the header
/// are those of the records written; whoever appends an OPT record counts it.
///
/// # Panics
/// Where `message` is shorter than the one that `parts` come from.
pub fn answer(zones: &Zones, message: &mut [u8], parts: &QueryParts, limit: usize) -> Outcome {
    answer_among((zones, &|_| true), None, message, parts, limit)
}

/// The same from those of the zones that serve the query. `foreseen`: what is known of the name in these zones already, by
/// [`ahead::foresee`] for the same query.
///
/// # Panics
/// Where `message` is shorter than the one that `parts` come from, or `foreseen` is of other zones.
pub fn answer_among(
    (zones, serves): Among<'_>,
    foreseen: Option<&ahead::Foreseen>,
    message: &mut [u8],
    parts: &QueryParts,
    limit: usize,
) -> Outcome {
    if parts.qclass != class::IN {
        return answer_of_other_class((zones, serves), message, parts, limit);
    }
    let asked = parts.qname(message).as_bytes();
    let labels = usize::from(parts.labels);
    let for_parent = parts.qtype == qtype::DS;
    let home = match foreseen {
        Some(foreseen) => Some(zones.home(foreseen.zone)),
        None => zones.find(asked, labels, for_parent, serves),
    };
    let Some(home) = home else {
        return Outcome::NotServed;
    };
    let number = home.number as usize;
    let Some(zone) = home.zone else {
        return Outcome::NotLoaded { zone: number };
    };
    let (found, absence) = look_up(zone, foreseen, asked, labels);
    let signed = parts.edns.is_some_and(|edns| edns.dnssec_ok);
    let mut writer = Writer::new(message, parts.question_end.into(), limit);
    if let Some(length) = at_once(&mut writer, &found, parts.qtype, signed) {
        return Outcome::Answered(Answered {
            length,
            rcode: 0,
            truncated: false,
            left_out: false,
            zone: number,
            no_data: false,
            origin: found.node.at,
            given: parts.qtype,
        });
    }
    let mut name = [0; NAME_LENGTH_MAX];
    let asked = parts.qname(writer.message).to_lowercase(&mut name);
    let length = asked.len();
    let mut response = Response {
        zones,
        serves,
        writer,
        qtype: parts.qtype,
        signed,
        labels,
        placed: Placed {
            at: HEADER_LENGTH,
            length,
        },
        absence,
        name,
        origin: 0,
        given: 0,
        rcode: rcode::NOERROR,
        authoritative: true,
        referral: false,
        left_out: false,
        extra: None,
        trail: None,
    };
    let outcome = response.fill(home.number, zone, found);
    Outcome::Answered(response.finish(outcome, number))
}

/// The name in its zone; and what is known of its absence, if that is known already.
#[inline(always)]
fn look_up<'z>(
    zone: &'z Zone,
    foreseen: Option<&ahead::Foreseen>,
    asked: &[u8],
    labels: usize,
) -> (Found<'z>, Option<Absence>) {
    let (supposed, absence) = match foreseen.map_or(Known::Nothing, ahead::Foreseen::known) {
        Known::Nothing => (None, None),
        Known::Supposed(place) => (zone.find_at(place, asked), None),
        Known::Absent(absence) => (None, Some(absence)),
    };
    let found = match (&absence, supposed) {
        (Some(absence), _) => absence.found(zone),
        (None, Some(found)) => found,
        (None, None) => zone.find(asked, labels),
    };
    (found, absence)
}

/// A question of another class: ANY is that of every record.
#[cold]
fn answer_of_other_class(
    among: Among<'_>,
    message: &mut [u8],
    parts: &QueryParts,
    limit: usize,
) -> Outcome {
    if parts.qclass != class::ANY {
        return Outcome::NotServed;
    }
    let mut parts = *parts;
    parts.qclass = class::IN;
    let outcome = answer_among(among, None, message, &parts, limit);
    if matches!(outcome, Outcome::Answered(_))
        && let Some(mut header) = Header::read(message)
    {
        // RFC 1034 §3.7.1: "responses to QCLASS=* queries can never be authoritative".
        header.set_aa(false);
        message[..HEADER_LENGTH].copy_from_slice(header.as_bytes());
    }
    outcome
}

/// The way of most answers: the name is there, and has an RRset of the type asked for, which is all there is to say. `None`:
/// it is not so simple, and nothing is written.
#[inline]
fn at_once(writer: &mut Writer<'_>, found: &Found<'_>, kind: u16, signed: bool) -> Option<usize> {
    // No RRset has one of the types that stand for others, ANY and RRSIG.
    if !found.exact() || found.node.has_cut() {
        return None;
    }
    let rrset = found
        .node
        .rrset(kind)
        .filter(|rrset| !rrset.has_targets())?;
    writer.put_direct(&rrset, signed)?;
    Some(writer.finish(QR | AA))
}

/// An answer in the making.
struct Response<'z, 'm> {
    zones: &'z Zones,
    /// See [`answer_among`].
    serves: Serves<'z>,
    writer: Writer<'m>,
    qtype: u16,
    /// Signatures and proofs are wanted.
    signed: bool,
    /// The name that is looked for now, in lower case: the one asked for, or what an alias leads to.
    name: [u8; NAME_LENGTH_MAX],
    labels: usize,
    /// Where it is in the message.
    placed: Placed,
    /// What is known of the name that was asked for.
    absence: Option<Absence>,
    /// See [`Answered::origin`].
    origin: u32,
    /// See [`Answered::given`].
    given: u16,
    /// What is known of the end by now: an answer that does not fit says it all the same.
    rcode: u16,
    authoritative: bool,
    referral: bool,
    /// See [`Answered::left_out`].
    left_out: bool,
    /// The RRset whose targets' addresses go into the additional section.
    extra: Option<Extra<'z>>,
    /// `None` until there is something to remember: most answers have nothing.
    trail: Option<Trail>,
}

/// What an answer has so far, as far as what follows depends on it.
#[derive(Default)]
struct Trail {
    aliases: Few<Placed, ALIASES_MAX>,
    redirections: Few<Redirection, ALIASES_MAX>,
    expansions: Few<Expansion, { ALIASES_MAX + 1 }>,
    /// By zone and place.
    proofs: Few<(u32, u32), PROOFS_MAX>,
}

/// A DNAME record that is in the answer.
#[derive(Clone, Copy, Default)]
struct Redirection {
    zone: u32,
    /// Its RRset's place in the zone.
    at: u32,
    /// Where its body is in the message.
    body_at: usize,
}

/// A list of at most `N`; more are not taken.
#[derive(Clone, Default)]
struct Few<T, const N: usize>(ArrayVec<T, N>);

impl<T, const N: usize> Few<T, N> {
    fn push(&mut self, item: T) {
        let _ = self.0.try_push(item);
    }

    fn items(&self) -> &[T] {
        &self.0
    }
}

/// What one name of a chain comes to.
enum Step {
    /// The end, with this response code.
    Done(u16),
    /// There is an alias, and its target is the name now.
    Follow,
}

impl<'z> Response<'z, '_> {
    /// Writes all sections, the name asked for being found.
    fn fill(&mut self, number: u32, zone: &'z Zone, found: Found<'z>) -> Result<(), Full> {
        self.rcode = self.chain(number, zone, found)?;
        if self.signed {
            self.prove_expansions()?;
        }
        if let Some(extra) = self.extra {
            self.add_addresses(&extra)?;
        }
        Ok(())
    }

    fn finish(&mut self, outcome: Result<(), Full>, zone: usize) -> Answered {
        let truncated = outcome.is_err();
        // RFC 2181 §9: "Where TC is set, the partial RRSet that would not completely fit may be left in the response";
        // it need not, and whoever sees TC asks again. What was in the way of glue only stays.
        let keep = self.referral && self.writer.count(Section::Additional) > 0;
        if truncated && !keep {
            self.writer.clear();
        }
        // RFC 1035 §4.1.1: TC says "that this message was truncated due to length", and nothing of its RCODE.
        let rcode = self.rcode as u8;
        let no_data =
            !truncated && rcode == 0 && !self.referral && self.writer.count(Section::Answer) == 0;
        let flag = |is_set, flag| if is_set { flag } else { 0 };
        let flags = QR | flag(self.authoritative, AA) | flag(truncated, TC) | u16::from(rcode);
        let length = self.writer.finish(flags);
        Answered {
            length,
            rcode,
            truncated,
            left_out: self.left_out,
            zone,
            no_data,
            origin: self.origin,
            given: self.given,
        }
    }

    /// The answer section, over aliases from name to name, and what ends it.
    fn chain(
        &mut self,
        mut number: u32,
        mut zone: &'z Zone,
        mut found: Found<'z>,
    ) -> Result<u16, Full> {
        for step in 0..=ALIASES_MAX {
            match self.step(zone, number, found, step == ALIASES_MAX)? {
                Step::Done(rcode) => return Ok(rcode),
                Step::Follow => {}
            }
            let name = &self.name[..self.placed.length];
            let for_parent = self.qtype == qtype::DS;
            // An alias to what is not served here, or not yet, or not to this client: it goes on from there.
            let Some(Home {
                number: next,
                zone: Some(home),
            }) = self.zones.find(name, self.labels, for_parent, self.serves)
            else {
                break;
            };
            (number, zone) = (next, home);
            found = zone.find(name, self.labels);
        }
        Ok(rcode::NOERROR)
    }

    /// One name: RFC 1034 §4.3.2, step 3.
    fn step(
        &mut self,
        zone: &'z Zone,
        number: u32,
        found: Found<'z>,
        last: bool,
    ) -> Result<Step, Full> {
        let node = found.node;
        self.origin = node.at;
        if node.has_cut()
            && let Some(cut) = node.cut()
        {
            self.origin = cut.at;
            // RFC 4035 §3.1.4.1: DS at a cut is the parent's own.
            let at_cut = found.exact() && cut.at == node.at && cut.has(DELEGATION);
            if !(at_cut && self.qtype == qtype::DS) {
                return match cut.has(DELEGATION) {
                    true => self
                        .refer(zone, number, cut)
                        .map(|()| Step::Done(rcode::NOERROR)),
                    false => self.redirect(number, cut, last),
                };
            }
        }
        if found.exact() {
            return match self.give(number, node, last)? {
                Given::Whole => Ok(Step::Done(rcode::NOERROR)),
                Given::Alias => Ok(Step::Follow),
                Given::Loop => Ok(Step::Done(rcode::NOERROR)),
                Given::Nothing => {
                    self.put_soa(zone)?;
                    if self.signed {
                        self.prove_no_data(zone, number, node, self.placed)?;
                    }
                    Ok(Step::Done(rcode::NOERROR))
                }
            };
        }
        if node.has(DNAME) {
            return self.redirect(number, node, last);
        }
        let mut name = [0; NAME_LENGTH_MAX];
        let name = &mut name[..self.placed.length];
        name.copy_from_slice(&self.name[..self.placed.length]);
        let absent = Absent {
            name,
            placed: self.placed,
            encloser: node.at,
            next_closer_at: found.next_closer_at,
        };
        match node.wildcard() {
            Some(wildcard) => self.expand(zone, number, &absent, wildcard, last),
            None => {
                self.origin = 0;
                self.rcode = rcode::NXDOMAIN;
                self.deny_name(zone, number, &absent)?;
                Ok(Step::Done(rcode::NXDOMAIN))
            }
        }
    }

    /// A name that a wildcard stands for (RFC 4592 §3.3).
    fn expand(
        &mut self,
        zone: &'z Zone,
        number: u32,
        absent: &Absent<'_>,
        wildcard: Node<'z>,
        last: bool,
    ) -> Result<Step, Full> {
        self.origin = wildcard.at;
        let given = self.give(number, wildcard, last)?;
        if let Given::Nothing = given {
            self.put_soa(zone)?;
            if self.signed {
                self.prove_no_wildcard_data(zone, number, absent, wildcard)?;
            }
            return Ok(Step::Done(rcode::NOERROR));
        }
        self.trail().expansions.push(Expansion {
            zone: number,
            encloser: absent.encloser,
            placed: absent.placed,
            next_closer_at: absent.next_closer_at,
        });
        Ok(match given {
            Given::Alias => Step::Follow,
            _ => Step::Done(rcode::NOERROR),
        })
    }
}

/// What a name had to give.
enum Given {
    /// What was asked for.
    Whole,
    /// A CNAME record; its target is the name now.
    Alias,
    /// A CNAME record that is there already, or one too many.
    Loop,
    Nothing,
}

impl<'z> Response<'z, '_> {
    /// Puts what `node` has of the type asked for, or its CNAME record, into the answer section.
    #[inline]
    fn give(&mut self, zone: u32, node: Node<'z>, last: bool) -> Result<Given, Full> {
        let rrset = match self.qtype {
            // RFC 8482 §4.1: one RRset, and a small one.
            qtype::ANY => node.smallest(),
            // RFC 8482 §7 lets the same be done here.
            qtype::RRSIG => return self.give_signatures(zone, node, last),
            kind => node.rrset(kind),
        };
        if let Some(rrset) = rrset {
            let owner = self.placed;
            self.given = rrset.kind;
            let body_at = match rrset.kind {
                // It may have led here, under this name.
                qtype::DNAME if self.is_at(node) => self.put_once(zone, &rrset, owner)?,
                _ => self
                    .writer
                    .put(Section::Answer, &rrset, owner, self.signed)?,
            };
            if rrset.has_targets() {
                self.extra = Some(Extra {
                    zone,
                    rrset,
                    body_at,
                    owner,
                    cut: None,
                });
            }
            return Ok(Given::Whole);
        }
        self.give_alias(node, last)
    }

    /// Whether the name that is looked for now is this node's own, and not one that a wildcard stands for.
    fn is_at(&self, node: Node<'_>) -> bool {
        node.name() == &self.name[..self.placed.length]
    }

    /// The signatures of one RRset.
    fn give_signatures(&mut self, zone: u32, node: Node<'z>, last: bool) -> Result<Given, Full> {
        let Some(rrset) = node.least_signed() else {
            return self.give_alias(node, last);
        };
        self.given = qtype::RRSIG;
        let is_there = self.is_at(node) && self.redirected(zone, &rrset).is_some();
        if !(self.signed && is_there) {
            self.writer.put_signatures(&rrset, self.placed)?;
        }
        Ok(Given::Whole)
    }

    fn give_alias(&mut self, node: Node<'z>, last: bool) -> Result<Given, Full> {
        match node.rrset(qtype::CNAME) {
            Some(alias) => self.follow(&alias, last),
            None => Ok(Given::Nothing),
        }
    }

    fn follow(&mut self, alias: &Rrset<'z>, last: bool) -> Result<Given, Full> {
        if last || self.was_here() {
            return Ok(Given::Loop);
        }
        let body_at = self
            .writer
            .put(Section::Answer, alias, self.placed, self.signed)?;
        self.go_to(body_at + RECORD_HEADER_LENGTH);
        Ok(Given::Alias)
    }

    fn trail(&mut self) -> &mut Trail {
        self.trail.get_or_insert_default()
    }

    /// Whether the name that is looked for now is an alias that the answer has already.
    fn was_here(&self) -> bool {
        let name = &self.name[..self.placed.length];
        let aliases = self
            .trail
            .as_ref()
            .map_or(&[][..], |trail| trail.aliases.items());
        aliases
            .iter()
            .filter(|alias| alias.length == name.len())
            .any(|alias| {
                let mut buffer = [0; NAME_LENGTH_MAX];
                let alias = expand(self.writer.message, alias.at, &mut buffer);
                alias.is_ok_and(|alias| alias.as_bytes().eq_ignore_ascii_case(name))
            })
    }

    /// The name at `at` of the message is looked for next.
    fn go_to(&mut self, at: usize) {
        let alias = self.placed;
        self.trail().aliases.push(alias);
        let mut buffer = [0; NAME_LENGTH_MAX];
        let name = expand(self.writer.message, at, &mut buffer).unwrap_or(Name::ROOT);
        self.labels = name.labels_count();
        self.placed = Placed {
            at,
            length: name.len(),
        };
        self.name = buffer;
        self.name.make_ascii_lowercase();
    }

    /// A name below a DNAME record (RFC 6672 §3.2).
    fn redirect(&mut self, number: u32, owner: Node<'z>, last: bool) -> Result<Step, Full> {
        let redirection = owner.rrset(qtype::DNAME);
        let Some(redirection) = redirection.filter(|_| !last && !self.was_here()) else {
            return Ok(Step::Done(rcode::NOERROR));
        };
        let placed = self.writer.rest_of(self.placed, owner.name().len());
        let body_at = self.put_once(number, &redirection, placed)?;
        let target_at = body_at + RECORD_HEADER_LENGTH;
        let mut buffer = [0; NAME_LENGTH_MAX];
        let Ok(target) = expand(self.writer.message, target_at, &mut buffer) else {
            return Ok(Step::Done(rcode::SERVFAIL));
        };
        let above = self.placed.length - placed.length;
        // RFC 6672 §3.2: "If the resulting name is longer than 255 octets, set RCODE to YXDOMAIN".
        if above + target.len() > NAME_LENGTH_MAX {
            return Ok(Step::Done(rcode::YXDOMAIN));
        }
        let mut labels = [0; NAME_LENGTH_MAX];
        let whole = expand(self.writer.message, self.placed.at, &mut labels);
        let labels = &whole.unwrap_or(Name::ROOT).as_bytes()[..above];
        // RFC 6672 §3.1: "a CNAME RR is synthesized", and its TTL "MUST be" that of the DNAME record.
        let mut fields = [0, qtype::CNAME as u8, 0, class::IN as u8, 0, 0, 0, 0];
        fields[4..].copy_from_slice(&redirection.ttl().to_be_bytes());
        let data = (labels, target_at);
        let data_at = self
            .writer
            .put_record(Section::Answer, self.placed, &fields, data)?;
        self.go_to(data_at);
        Ok(match self.qtype {
            qtype::CNAME | qtype::ANY => Step::Done(rcode::NOERROR),
            _ => Step::Follow,
        })
    }

    /// Puts a DNAME record into the answer section unless it is there, and tells where its body is.
    fn put_once(
        &mut self,
        zone: u32,
        redirection: &Rrset<'z>,
        owner: Placed,
    ) -> Result<usize, Full> {
        if let Some(body_at) = self.redirected(zone, redirection) {
            return Ok(body_at);
        }
        let body_at = self
            .writer
            .put(Section::Answer, redirection, owner, self.signed)?;
        let at = redirection.at;
        self.trail()
            .redirections
            .push(Redirection { zone, at, body_at });
        Ok(body_at)
    }

    /// Where the body of this DNAME record is in the message, if it is.
    fn redirected(&self, zone: u32, redirection: &Rrset<'z>) -> Option<usize> {
        let before = self.trail.as_ref()?.redirections.items();
        let before = before
            .iter()
            .find(|before| (before.zone, before.at) == (zone, redirection.at));
        before.map(|before| before.body_at)
    }

    /// A name at or below a zone cut: where its zone is served (RFC 1034 §4.3.2, step 3b).
    fn refer(&mut self, zone: &'z Zone, number: u32, cut: Node<'z>) -> Result<(), Full> {
        let Some(servers) = cut.rrset(qtype::NS) else {
            return Ok(());
        };
        // RFC 1035 §4.1.1: AA is said of the first name in the answer section.
        self.authoritative = self.writer.count(Section::Answer) > 0;
        self.referral = true;
        let owner = self.writer.rest_of(self.placed, cut.name().len());
        let body_at = self
            .writer
            .put(Section::Authority, &servers, owner, false)?;
        // Without a signature a DS record says nothing.
        if self.signed && zone.is_signed() {
            // RFC 4035 §3.1.4: the DS RRset and its signature, or the proof that there is none.
            match cut.rrset(qtype::DS) {
                Some(signers) => {
                    self.writer.put(Section::Authority, &signers, owner, true)?;
                }
                None => self.prove_no_data(zone, number, cut, owner)?,
            }
        }
        self.extra = Some(Extra {
            zone: number,
            rrset: servers,
            body_at,
            owner,
            cut: Some(cut.at),
        });
        Ok(())
    }

    fn put_soa(&mut self, zone: &'z Zone) -> Result<(), Full> {
        let soa = zone.negative_soa();
        let owner = self.writer.rest_of(self.placed, zone.apex_wire().len());
        self.writer
            .put(Section::Authority, &soa, owner, self.signed)?;
        Ok(())
    }
}
