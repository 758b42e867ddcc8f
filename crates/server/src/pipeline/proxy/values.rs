//! What a header of the PROXY protocol says beside addresses: types and values, from proxies and to backends.

use wire::proxy::{Header, Value};

/// Values in their order; a type may have several.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Values(Vec<(u8, Box<[u8]>)>);

impl Values {
    /// Those of a header, without what is about the header itself: its checksum, which would be wrong of any other one, and
    /// padding, which "should be ignored when parsed".
    pub fn received(header: &Header<'_>) -> Values {
        let is_about_itself = |value: &Value<'_>| match value.kind {
            Value::CRC32C => value.octets.len() == 4,
            kind => kind == Value::NOOP,
        };
        let kept = header.values().filter(|value| !is_about_itself(value));
        Values(
            kept.map(|value| (value.kind, value.octets.into()))
                .collect(),
        )
    }

    pub fn add(&mut self, kind: u8, octets: &[u8]) {
        self.0.push((kind, octets.into()));
    }

    pub fn iter(&self) -> impl Iterator<Item = Value<'_>> {
        self.0.iter().map(|(kind, octets)| Value {
            kind: *kind,
            octets,
        })
    }
}

impl FromIterator<(u8, Box<[u8]>)> for Values {
    fn from_iter<I: IntoIterator<Item = (u8, Box<[u8]>)>>(values: I) -> Values {
        Values(values.into_iter().collect())
    }
}
