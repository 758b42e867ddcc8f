//! The buffer of a query, which becomes that of its answer.

use super::key::TAIL_MAX;
use super::record::{Record, Ttl};
use crate::pipeline::respond;
use arrayvec::ArrayVec;
use wire::message::HEADER_LENGTH;

/// A query where it lies, and what of it an answer from the cache needs.
pub(super) struct Buffer<'m> {
    /// The query at the front of the room for its answer.
    pub(super) message: &'m mut [u8],
    /// The query's, in bytes.
    pub(super) length: usize,
    pub(super) question_end: u16,
    /// See [`crate::pipeline::query::Query::client_flags`].
    pub(super) client_flags: u16,
}

impl Buffer<'_> {
    /// Makes it the answer, whose length it gives. `None`, and the query is as it was, when the entry was overwritten meanwhile.
    #[inline]
    pub(super) fn fill(self, record: &Record<'_>, change: Ttl) -> Option<usize> {
        let start = usize::from(self.question_end);
        let (head, rest) = self.message.split_at_mut(start);
        let header: &mut [u8; HEADER_LENGTH] = head.first_chunk_mut()?;
        let before = *header;
        let mut behind = Behind::default();
        behind.keep(rest, self.length - start);
        let client_flags = self.client_flags;
        // The ID is the client's already.
        let read = record.read(header, rest, change, |flags| {
            respond::their_flags(flags, client_flags)
        });
        if let Some(body) = read.filter(|_| record.is_whole()) {
            return Some(start + body);
        }
        *header = before;
        behind.put_back(rest);
        None
    }
}

/// What lies behind a question: an answer is read over it, and it is wanted again if that fails.
#[derive(Default)]
struct Behind {
    /// With whatever follows it: an OPT record without options has eleven bytes.
    short: [u8; BEHIND_SHORT],
    /// In place of that, where it is longer; else empty.
    long: ArrayVec<u8, { TAIL_MAX }>,
}

const BEHIND_SHORT: usize = 16;

impl Behind {
    /// Keeps the first `length` bytes of `rest`. It is filled where it lies: to move it would take as long as all the rest.
    #[inline]
    fn keep(&mut self, rest: &[u8], length: usize) {
        match rest.first_chunk() {
            Some(short) if length <= BEHIND_SHORT => self.short = *short,
            // Queries with more than the room behind their question are not for a cache.
            _ => self
                .long
                .extend(rest.iter().copied().take(length.min(TAIL_MAX))),
        }
    }

    #[cold]
    fn put_back(&self, rest: &mut [u8]) {
        let bytes = match self.long.is_empty() {
            true => &self.short[..BEHIND_SHORT.min(rest.len())],
            false => &self.long[..],
        };
        rest[..bytes.len()].copy_from_slice(bytes);
    }
}
