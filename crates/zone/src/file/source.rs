//! One file while it is read: a buffer that always begins with an entry.

use super::ENTRY_LENGTH_MAX;
use super::error::FileError;
use super::token::{Extent, Token};
use super::words::Wrong;
use std::io::{ErrorKind, Read};
use std::sync::Arc;

const BUFFER_LENGTH: usize = 64 << 10;
/// What some editors put before UTF-8.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

pub(super) struct Source<'a> {
    pub(super) name: Arc<str>,
    octets: Box<dyn Read + 'a>,
    buffer: Vec<u8>,
    /// What was read and not yet left behind: `buffer[start..filled]`.
    start: usize,
    filled: usize,
    /// Nothing follows what is in the buffer.
    pub(super) ended: bool,
    /// Line of the first octet in the buffer, from 1.
    pub(super) line: u32,
}

impl<'a> Source<'a> {
    pub(super) fn new(name: &str, octets: Box<dyn Read + 'a>) -> Source<'a> {
        Source {
            name: name.into(),
            octets,
            buffer: vec![0; BUFFER_LENGTH],
            start: 0,
            filled: 0,
            ended: false,
            line: 0,
        }
    }

    /// What is there, from the start of the next entry.
    pub(super) fn text(&self) -> &[u8] {
        &self.buffer[self.start..self.filled]
    }

    /// Reads on. What is in the buffer stays, and may move.
    pub(super) fn fill(&mut self) -> Result<(), FileError> {
        if self.line == 0 {
            self.line = 1;
            return self.skip_mark();
        }
        self.buffer.copy_within(self.start..self.filled, 0);
        self.filled -= self.start;
        self.start = 0;
        if self.filled == self.buffer.len() {
            if self.filled >= ENTRY_LENGTH_MAX {
                return Err(self.error(format!(
                    "entry of more than {ENTRY_LENGTH_MAX} octets: is a quote or a parenthesis not closed?"
                )));
            }
            self.buffer.resize(2 * self.filled, 0);
        }
        self.read()
    }

    /// The first octets of the file.
    fn skip_mark(&mut self) -> Result<(), FileError> {
        while self.filled < BYTE_ORDER_MARK.len() && !self.ended {
            self.read()?;
        }
        if self.text().starts_with(BYTE_ORDER_MARK) {
            self.start = BYTE_ORDER_MARK.len();
        }
        Ok(())
    }

    fn read(&mut self) -> Result<(), FileError> {
        loop {
            match self.octets.read(&mut self.buffer[self.filled..]) {
                Ok(0) => self.ended = true,
                Ok(length) => self.filled += length,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => {
                    return Err(self.error(format!("the file cannot be read on: {error}")));
                }
            }
            return Ok(());
        }
    }

    /// Leaves an entry behind.
    pub(super) fn advance(&mut self, extent: &Extent) {
        self.start += extent.length;
        self.line = self.line.saturating_add(extent.lines);
    }

    /// An error that ends the reading.
    pub(super) fn error(&self, what: String) -> FileError {
        FileError {
            is_last: true,
            ..self.error_at(0, 0, what)
        }
    }

    /// An error at an octet of the entry, so many lines into it.
    pub(super) fn error_at(&self, at: usize, line: u32, what: String) -> FileError {
        let before = &self.text()[..at];
        let line_start = before.iter().rposition(|octet| *octet == b'\n');
        let column = at - line_start.map_or(0, |newline| newline + 1);
        FileError {
            file: self.name.clone(),
            line: self.line.saturating_add(line),
            column: column as u32 + 1,
            what,
            is_last: false,
        }
    }

    /// An error at a word of the entry, or behind its last.
    pub(super) fn error_in(&self, tokens: &[Token], wrong: Wrong) -> FileError {
        let (at, line) = match (tokens.get(wrong.word), tokens.last()) {
            (Some(token), _) => (token.start - u32::from(token.quoted), token.line),
            (None, Some(last)) => {
                let within = last.of(self.text()).iter();
                let lines = within.filter(|octet| **octet == b'\n').count() as u32;
                (last.end + u32::from(last.quoted), last.line + lines)
            }
            (None, None) => (0, 0),
        };
        self.error_at(at as usize, line, wrong.what)
    }
}
