//! What a header of the PROXY protocol says beside addresses: types and values, from proxies and to backends.

use wire::proxy::{Header, Value};

/// Values in their order; a type may have several. All of them in one piece of memory:
///
/// ```text
/// type 1 │ length 4 │ octets … │ type …
/// ```
///
/// A length has more octets than in a header: what is too long for one is noticed when one is written.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Values(Vec<u8>);

/// The memory that is kept for the values of the next query, in bytes: the longest header that is taken where the configuration
/// does not say otherwise.
const KEPT: usize = 512;

impl Values {
    /// Adds those of a header, without what is about the header itself: its checksum, which would be wrong of any other one, and
    /// padding, which "should be ignored when parsed".
    pub fn receive(&mut self, header: &Header<'_>) {
        let is_about_itself = |value: &Value<'_>| match value.kind {
            Value::CRC32C => value.octets.len() == 4,
            kind => kind == Value::NOOP,
        };
        let kept = header.values().filter(|value| !is_about_itself(value));
        kept.for_each(|value| self.add(value.kind, value.octets));
    }

    pub fn add(&mut self, kind: u8, octets: &[u8]) {
        self.0.push(kind);
        let length = octets.len() as u32;
        self.0.extend_from_slice(&length.to_be_bytes());
        self.0.extend_from_slice(octets);
    }

    pub fn iter(&self) -> impl Iterator<Item = Value<'_>> {
        let mut rest = &self.0[..];
        std::iter::from_fn(move || {
            let (&[kind, a, b, c, d], behind) = rest.split_first_chunk()?;
            let length = u32::from_be_bytes([a, b, c, d]);
            let (octets, behind) = behind.split_at_checked(length as usize)?;
            rest = behind;
            Some(Value { kind, octets })
        })
    }

    /// None are left; a little memory stays.
    pub(in crate::pipeline) fn clear(&mut self) {
        self.0.clear();
        self.0.shrink_to(KEPT);
    }
}

impl FromIterator<(u8, Box<[u8]>)> for Values {
    fn from_iter<I: IntoIterator<Item = (u8, Box<[u8]>)>>(values: I) -> Values {
        let mut all = Values::default();
        for (kind, octets) in values {
            all.add(kind, &octets);
        }
        all
    }
}
