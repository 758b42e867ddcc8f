//! A fuzzer's octets, read as steps.

/// Reads from the front; what is missing at the end is `None`, so that every input means something.
pub struct Input<'i>(&'i [u8]);

impl<'i> Input<'i> {
    pub fn new(octets: &'i [u8]) -> Input<'i> {
        Input(octets)
    }

    pub fn octet(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    /// Two octets, the higher first.
    pub fn number(&mut self) -> Option<u16> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u16::from_be_bytes(*first))
    }

    /// So many octets, or as many as there are.
    pub fn octets(&mut self, count: usize) -> &'i [u8] {
        let (front, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        front
    }

    /// Octets with their count in front, two octets of it.
    pub fn piece(&mut self) -> Option<&'i [u8]> {
        let count = self.number()?;
        Some(self.octets(count.into()))
    }
}
