//! How a compiled zone lies in its arena: names with their RRsets, one behind the other, so that a name that was found has
//! its answer in the next cache lines. All numbers here are little-endian, but those within records.
//!
//! ```text
//! node     0 cut 4 │ 4 wildcard 4 │ 8 proof 4 │ 12 second proof 4 │ 16 RRsets 2 │ 18 flags 1 │ 19 name length 1 │ 20 name │ RRset headers
//!          and, behind more of them than are few: the number of the smallest 2 │ of that with the fewest octets of signatures 2
//! RRset    0 body at 4 │ 4 type 2 │ 6 records 2 │ 8 body length 2 │ 10 signatures 2 │ 12 their length 2 │ 14 pointers 2 │ 16 targets 2
//! body     records, then their RRSIG records, ready to send; then pointers (2 each: places in the body) and targets (6 each)
//! target   0 place of the name in the body 2 │ 2 node 4
//! NSEC3    0 an RRset's header │ 18 label of its owner 33 │ its body
//! ```
//!
//! Records are encoded as they go into an answer whose question is their owner: the owner is a pointer to the question's
//! name, at 12, and a name within data points to the rest of that name ([`Rrset::body_base`] says where the body is then).
//! In every other place the pointers are moved.

use super::overlay::Overlay;
use wire::codes::qtype;
use wire::message::HEADER_LENGTH;

/// No node, no proof.
pub(crate) const NONE: u32 = u32::MAX;
pub(crate) const NODE_HEADER_LENGTH: usize = 20;
pub(crate) const RRSET_HEADER_LENGTH: usize = 18;
pub(crate) const TARGET_LENGTH: usize = 6;
pub(crate) const HASH_LENGTH: usize = 20;
/// So many RRsets of a name are looked at one by one. More are searched by halves, and what of them answers ANY and RRSIG is
/// written down: a name may have some 65,000, and a query for it costs what others cost.
pub(crate) const FEW_RRSETS: usize = 16;
/// What is written down of a name with more.
pub(crate) const CHOICES_LENGTH: usize = 4;
/// The label of an NSEC3 record's owner: its length octet, and the hash in base32hex (RFC 5155 §3.3).
pub(crate) const LABEL_LENGTH: usize = 33;
/// Where it is behind the place of the record: right before the body, so that both are copied at once.
pub(crate) const PROOF_LABEL_AT: usize = RRSET_HEADER_LENGTH;
/// Owner as a pointer 2, type 2, class 2, TTL 4, length 2.
pub(crate) const RECORD_HEADER_LENGTH: usize = 12;
/// A place of a target that is the owner's own name (RFC 9460 §2.5: TargetName ".").
pub(crate) const OWNER_ITSELF: u16 = u16::MAX;
/// RFC 1035 §4.1.4: pointers have fourteen bits.
pub(crate) const POINTER_MAX: usize = 0x3fff;

/// There is a zone cut at this name.
pub(crate) const DELEGATION: u8 = 1;
/// Names below this one are redirected.
pub(crate) const DNAME: u8 = 2;
/// No NSEC3 record matches this name: the first proof matches the closest name above that has one, the second covers the
/// name that is one label longer than that.
pub(crate) const OPTED_OUT: u8 = 4;
/// As [`OPTED_OUT`], and it is not this name that the second proof covers, but one between.
pub(crate) const DEEP: u8 = 8;
/// In an overlay: the base has this name, and the zone has it no more.
pub(crate) const GONE: u8 = 16;

#[inline]
pub(crate) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

#[inline]
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// A 16-bit number within a record.
#[inline]
pub(crate) fn wire_u16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

/// The octets of a zone: its base's, and behind them its overlay's.
#[derive(Clone, Copy)]
pub(crate) struct Arena<'z> {
    base: &'z [u8],
    over: Option<&'z Overlay>,
}

impl<'z> Arena<'z> {
    #[inline]
    pub(crate) fn new(base: &'z [u8], over: Option<&'z Overlay>) -> Arena<'z> {
        Arena { base, over }
    }

    /// The octets from a place on.
    #[inline]
    fn octets_at(self, at: usize) -> &'z [u8] {
        match at < self.base.len() {
            true => &self.base[at..],
            false => self.overlay_octets_at(at),
        }
    }

    #[cold]
    fn overlay_octets_at(self, at: usize) -> &'z [u8] {
        let over = self.over.expect("places are within the zone");
        &over.octets[at - self.base.len()..]
    }

    /// The name that a link leads to.
    #[inline]
    fn linked(self, at: u32) -> Node<'z> {
        let at = self.over.map_or(at, |over| over.newest(at));
        Node::new(self, at)
    }
}

/// A name of the zone with its RRsets; without any it is an empty non-terminal.
#[derive(Clone, Copy)]
pub(crate) struct Node<'z> {
    arena: Arena<'z>,
    /// From its first one on.
    octets: &'z [u8],
    /// Where it is.
    pub(crate) at: u32,
}

impl<'z> Node<'z> {
    #[inline]
    pub(crate) fn new(arena: Arena<'z>, at: u32) -> Node<'z> {
        let octets = arena.octets_at(at as usize);
        Node { arena, octets, at }
    }

    /// All octets from its first one on, the next nodes' too.
    #[inline]
    pub(crate) fn octets(&self) -> &'z [u8] {
        self.octets
    }

    #[inline]
    fn header(&self) -> &'z [u8; NODE_HEADER_LENGTH] {
        self.octets.first_chunk().expect("nodes are whole")
    }

    /// The topmost name, this one or above it, where a delegation is, or above it, where a DNAME is.
    #[inline]
    pub(crate) fn cut(&self) -> Option<Node<'z>> {
        match u32_at(self.header(), 0) {
            NONE => None,
            at => Some(self.arena.linked(at)),
        }
    }

    /// Whether there is a [`cut`](Self::cut), without a look at it: most names have none.
    #[inline]
    pub(crate) fn has_cut(&self) -> bool {
        u32_at(self.header(), 0) != NONE
    }

    /// The child named `*`.
    #[inline]
    pub(crate) fn wildcard(&self) -> Option<Node<'z>> {
        match u32_at(self.header(), 4) {
            NONE => None,
            at => Some(self.arena.linked(at)),
        }
    }

    /// The NSEC3 record that matches this name; see [`OPTED_OUT`].
    #[inline]
    pub(crate) fn proof(&self) -> u32 {
        u32_at(self.header(), 8)
    }

    /// The NSEC3 record that matches or covers the wildcard below this name; see [`OPTED_OUT`].
    #[inline]
    pub(crate) fn second_proof(&self) -> u32 {
        u32_at(self.header(), 12)
    }

    #[inline]
    pub(crate) fn rrsets_count(&self) -> usize {
        u16_at(self.header(), 16).into()
    }

    #[inline]
    pub(crate) fn has(&self, flag: u8) -> bool {
        self.header()[18] & flag != 0
    }

    /// In lower case, uncompressed.
    #[inline]
    pub(crate) fn name(&self) -> &'z [u8] {
        let length = usize::from(self.header()[19]);
        &self.octets[NODE_HEADER_LENGTH..NODE_HEADER_LENGTH + length]
    }

    #[inline]
    fn headers(&self) -> &'z [RrsetHeader] {
        let start = NODE_HEADER_LENGTH + usize::from(self.header()[19]);
        let octets = &self.octets[start..start + self.rrsets_count() * RRSET_HEADER_LENGTH];
        octets.as_chunks().0
    }

    /// In ascending order of types.
    pub(crate) fn rrsets(&self) -> impl Iterator<Item = Rrset<'z>> + use<'z> {
        let (arena, owner_length) = (self.arena, self.header()[19].into());
        let headers = self.headers().iter();
        headers.map(move |header| Rrset::new(arena, header, owner_length))
    }

    #[inline]
    pub(crate) fn rrset(&self, kind: u16) -> Option<Rrset<'z>> {
        let wanted = kind.to_le_bytes();
        let headers = self.headers();
        let header = match headers.len() <= FEW_RRSETS {
            true => headers.iter().find(|header| header[4..6] == wanted),
            false => search(headers, kind),
        }?;
        Some(Rrset::new(self.arena, header, self.header()[19].into()))
    }

    /// The RRset with the fewest octets, signatures counted, NSEC left aside.
    pub(crate) fn smallest(&self) -> Option<Rrset<'z>> {
        self.chosen(0, smallest)
    }

    /// The RRset that has signatures, and of them the fewest octets.
    pub(crate) fn least_signed(&self) -> Option<Rrset<'z>> {
        self.chosen(1, least_signed)
    }

    /// What `choose` chooses, or has chosen where that is written down, as the choice of this number.
    fn chosen(
        &self,
        number: usize,
        choose: fn(&[RrsetHeader]) -> Option<usize>,
    ) -> Option<Rrset<'z>> {
        let headers = self.headers();
        let headers_length = headers.len() * RRSET_HEADER_LENGTH;
        let headers_end = NODE_HEADER_LENGTH + self.name().len() + headers_length;
        let place = match headers.len() <= FEW_RRSETS {
            true => choose(headers)?,
            false => u16_at(self.octets, headers_end + 2 * number).into(),
        };
        let header = headers.get(place)?;
        Some(Rrset::new(self.arena, header, self.header()[19].into()))
    }

    /// Whether it lies below a DNAME record: such names are not seen (RFC 6672 §2.4).
    #[inline]
    pub(crate) fn is_redirected(&self) -> bool {
        self.cut().is_some_and(|cut| !cut.has(DELEGATION))
    }
}

/// The header of an RRset.
type RrsetHeader = [u8; RRSET_HEADER_LENGTH];

/// The header of this type; they ascend.
#[cold]
fn search(headers: &[RrsetHeader], kind: u16) -> Option<&RrsetHeader> {
    let found = headers.binary_search_by_key(&kind, |header| u16_at(header, 4));
    found.ok().map(|place| &headers[place])
}

/// See [`Node::smallest`].
fn smallest(headers: &[RrsetHeader]) -> Option<usize> {
    let octets = |header: &RrsetHeader, at| u32::from(u16_at(header, at));
    let others = headers.iter().enumerate();
    let others = others.filter(|&(_, header)| u16_at(header, 4) != qtype::NSEC);
    let fewest = others.min_by_key(|&(_, header)| octets(header, 8) + octets(header, 12));
    fewest.map(|(place, _)| place)
}

/// See [`Node::least_signed`].
fn least_signed(headers: &[RrsetHeader]) -> Option<usize> {
    let signed = headers.iter().enumerate();
    let signed = signed.filter(|&(_, header)| u16_at(header, 10) > 0);
    let fewest = signed.min_by_key(|&(_, header)| u16_at(header, 12));
    fewest.map(|(place, _)| place)
}

/// What is written down behind many headers: the numbers of what [`Node::smallest`] and [`Node::least_signed`] choose. There
/// are fewer types than numbers; the highest one is none's.
pub(crate) fn choices(headers: &[u8]) -> [u8; CHOICES_LENGTH] {
    let headers = headers.as_chunks().0;
    let number = |place: Option<usize>| place.map_or(u32::from(u16::MAX), |place| place as u32);
    let numbers = number(least_signed(headers)) << 16 | number(smallest(headers));
    numbers.to_le_bytes()
}

/// All records of one owner and type, with their signatures.
#[derive(Clone, Copy)]
pub(crate) struct Rrset<'z> {
    arena: Arena<'z>,
    /// Where its body is: tells RRsets apart.
    pub(crate) at: u32,
    pub(crate) kind: u16,
    pub(crate) records: u16,
    pub(crate) signatures: u16,
    length: u16,
    signatures_length: u16,
    pointers: u16,
    targets: u16,
    /// Octets of its owner's name.
    pub(crate) owner_length: usize,
}

impl<'z> Rrset<'z> {
    #[inline]
    pub(crate) fn new(
        arena: Arena<'z>,
        header: &[u8; RRSET_HEADER_LENGTH],
        owner_length: usize,
    ) -> Rrset<'z> {
        Rrset {
            arena,
            at: u32_at(header, 0),
            kind: u16_at(header, 4),
            records: u16_at(header, 6),
            length: u16_at(header, 8),
            signatures: u16_at(header, 10),
            signatures_length: u16_at(header, 12),
            pointers: u16_at(header, 14),
            targets: u16_at(header, 16),
            owner_length,
        }
    }

    /// The header of the RRset that lies at `at`.
    pub(crate) fn read(arena: Arena<'z>, at: usize, owner_length: usize) -> Rrset<'z> {
        let header = arena.octets_at(at).first_chunk();
        let header = header.expect("headers are whole");
        Rrset::new(arena, header, owner_length)
    }

    /// Where the body would be in a message whose question is the owner.
    #[inline]
    pub(crate) fn body_base(&self) -> usize {
        body_base(self.owner_length)
    }

    /// The records, and behind them their signatures if those are wanted.
    #[inline]
    pub(crate) fn body(&self, signed: bool) -> &'z [u8] {
        let signatures = if signed { self.signatures_length } else { 0 };
        let length = usize::from(self.length) + usize::from(signatures);
        &self.arena.octets_at(self.at as usize)[..length]
    }

    /// Records of the body, signatures counted if those are wanted.
    #[inline]
    pub(crate) fn count(&self, signed: bool) -> u16 {
        self.records + if signed { self.signatures } else { 0 }
    }

    /// The signatures alone.
    pub(crate) fn signatures_body(&self) -> &'z [u8] {
        &self.body(true)[self.length.into()..]
    }

    #[inline]
    fn behind(&self) -> &'z [u8] {
        let length = usize::from(self.length) + usize::from(self.signatures_length);
        &self.arena.octets_at(self.at as usize)[length..]
    }

    /// Places in the body where a name within data is cut short by a pointer.
    #[inline]
    pub(crate) fn pointers(&self) -> impl Iterator<Item = usize> + use<'z> {
        let places = &self.behind()[..2 * usize::from(self.pointers)];
        let places = places.as_chunks::<2>().0.iter();
        places.map(|place| u16::from_le_bytes(*place).into())
    }

    /// Whether its data have names whose addresses are useful.
    #[inline]
    pub(crate) fn has_targets(&self) -> bool {
        self.targets > 0
    }

    /// Names within data whose addresses are useful: their places in the body, and their nodes.
    #[inline]
    pub(crate) fn targets(&self) -> impl Iterator<Item = (u16, Node<'z>)> + use<'z> {
        self.wanted()
            .filter_map(|(place, node)| Some((place, node?)))
    }

    /// The same, with those that are not in the zone although they would be.
    #[inline]
    pub(crate) fn wanted(&self) -> impl Iterator<Item = (u16, Option<Node<'z>>)> + use<'z> {
        let arena = self.arena;
        let targets = &self.behind()[2 * usize::from(self.pointers)..];
        let targets = &targets[..TARGET_LENGTH * usize::from(self.targets)];
        let targets = targets.as_chunks::<TARGET_LENGTH>().0.iter();
        targets.map(move |target| {
            let node = u32_at(target, 2);
            let node = (node != NONE).then(|| arena.linked(node));
            let node = node.filter(|node| !node.has(GONE));
            (u16_at(target, 0), node)
        })
    }

    /// The TTL of its first record, in seconds.
    pub(crate) fn ttl(&self) -> u32 {
        let body = self.body(false);
        u32::from_be_bytes([body[6], body[7], body[8], body[9]])
    }
}

/// See [`Rrset::body_base`].
#[inline]
pub(crate) fn body_base(owner_length: usize) -> usize {
    HEADER_LENGTH + owner_length + 4
}

/// The NSEC3 record at `place`: the label of its owner, and its RRset.
pub(crate) fn proof_at(
    arena: Arena<'_>,
    place: u32,
    apex_length: usize,
) -> (&[u8; LABEL_LENGTH], Rrset<'_>) {
    let at = place as usize;
    let label = arena.octets_at(at + PROOF_LABEL_AT).first_chunk();
    let rrset = Rrset::read(arena, at, LABEL_LENGTH + apex_length);
    (label.expect("labels are whole"), rrset)
}

/// The NSEC3 record at `place` as it is sent: the label of its owner, the record and its signatures; and how many records these
/// are. Nothing but the length waits for the header.
#[inline]
pub(crate) fn whole_proof_at(arena: Arena<'_>, place: u32) -> (&[u8], u16) {
    let (header, octets) = arena
        .octets_at(place as usize)
        .split_first_chunk::<RRSET_HEADER_LENGTH>()
        .expect("headers are whole");
    let length = usize::from(u16_at(header, 8)) + usize::from(u16_at(header, 12));
    let count = u16_at(header, 6) + u16_at(header, 10);
    (&octets[..LABEL_LENGTH + length], count)
}
