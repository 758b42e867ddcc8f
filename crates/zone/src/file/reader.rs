//! Reads zone files entry by entry.

use super::entry::{Draft, Entry};
use super::error::FileError;
use super::generate::Generate;
use super::source::Source;
use super::token::{Broken, Extent, Token, tokenize};
use super::words::Words;
use crate::record::{Record, RecordRef};
use std::io::{self, Read};
use wire::codes;
use wire::name::Name;

/// Opens a file named by `$INCLUDE`. The path is relative, without `..`, and meant relative to the folder of the zone's
/// file; that no symbolic link leads out of it is for the opener to see to.
pub type Opener<'a> = Box<dyn FnMut(&str) -> io::Result<Box<dyn Read + 'a>> + 'a>;

/// How much a zone file may ask for.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Records in all.
    pub records: u64,
    /// Records of one `$GENERATE`.
    pub generate: u32,
    /// Files open at once, the zone's own counted.
    pub depth: usize,
    /// `$INCLUDE`s in all.
    pub includes: u32,
}

impl Default for Bounds {
    /// A hundred million records, 2²⁰ by one `$GENERATE`, a depth of 8, a thousand includes.
    fn default() -> Bounds {
        Bounds {
            records: 100_000_000,
            generate: 1 << 20,
            depth: 8,
            includes: 1_000,
        }
    }
}

/// What is known before the first line.
#[derive(Clone, Copy, Debug)]
pub struct Settings<'s> {
    /// The zone's name: the origin at the start.
    pub origin: Name<'s>,
    /// The class of all records.
    pub class: u16,
    /// The TTL of records without one while no `$TTL` was there.
    pub ttl: Option<u32>,
    pub bounds: Bounds,
}

impl<'s> Settings<'s> {
    /// Class IN, no TTL, [`Bounds::default`].
    #[must_use]
    pub fn new(origin: Name<'s>) -> Settings<'s> {
        Settings {
            origin,
            class: codes::class::IN,
            ttl: None,
            bounds: Bounds::default(),
        }
    }
}

/// The records of a zone file, one after the other.
///
/// As an iterator it gives records that own their octets; [`Reader::read`] lends them, which saves two allocations each.
pub struct Reader<'a> {
    /// The zone's file, and those included that are being read.
    files: Vec<File<'a>>,
    open: Opener<'a>,
    bounds: Bounds,
    records: u64,
    includes: u32,
    origin: Vec<u8>,
    draft: Draft,
    generate: Option<Generate>,
    /// The owner before `$GENERATE`: as in BIND, a line behind it that begins with a blank has this one.
    owner_before: Vec<u8>,
    /// The line that `$GENERATE` made.
    line: Vec<u8>,
    tokens: Vec<Token>,
    /// Line of the last record's first word.
    last_line: u32,
}

struct File<'a> {
    source: Source<'a>,
    /// Origin and owner of the file that includes this one, to go on with.
    outer: (Vec<u8>, Vec<u8>),
}

/// What one step of reading came to.
enum Step {
    Record,
    Nothing,
    End,
}

impl<'a> Reader<'a> {
    /// Reads the zone file `octets`, called `name` in errors; `open` is asked for the files it includes.
    #[must_use]
    pub fn new(
        name: &str,
        octets: impl Read + 'a,
        open: Opener<'a>,
        settings: Settings<'_>,
    ) -> Reader<'a> {
        let draft = Draft {
            class: settings.class,
            default_ttl: settings.ttl,
            ..Draft::default()
        };
        let mut reader = Reader {
            files: Vec::new(),
            open,
            bounds: settings.bounds,
            records: 0,
            includes: 0,
            origin: settings.origin.as_bytes().to_vec(),
            draft,
            generate: None,
            owner_before: Vec::new(),
            line: Vec::new(),
            tokens: Vec::new(),
            last_line: 0,
        };
        reader.push(name, Box::new(octets));
        reader
    }

    /// The next record, as long as nothing else is read; `None` at the end.
    pub fn read(&mut self) -> Option<Result<RecordRef<'_>, FileError>> {
        loop {
            match self.step() {
                Ok(Step::Nothing) => {}
                Ok(Step::End) => return None,
                Ok(Step::Record) => break,
                Err(error) => {
                    if error.is_last {
                        self.files.clear();
                        self.generate = None;
                    }
                    return Some(Err(error));
                }
            }
        }
        Some(Ok(RecordRef {
            owner: &self.draft.owner,
            kind: self.draft.kind,
            class: self.draft.class,
            ttl: self.draft.ttl,
            rdata: &self.draft.rdata,
        }))
    }

    /// An error of the caller's own about the record that was read last, with the place where it stands.
    #[must_use]
    pub fn error(&self, what: String) -> FileError {
        FileError {
            file: self
                .files
                .last()
                .map_or("".into(), |file| file.source.name.clone()),
            line: self.last_line,
            column: 1,
            what,
            is_last: false,
        }
    }

    fn push(&mut self, name: &str, octets: Box<dyn Read + 'a>) {
        self.files.push(File {
            source: Source::new(name, octets),
            outer: (self.origin.clone(), self.draft.owner.clone()),
        });
    }

    fn step(&mut self) -> Result<Step, FileError> {
        if self.generate.is_some() {
            return self.generated();
        }
        let Some(file) = self.files.last_mut() else {
            return Ok(Step::End);
        };
        let source = &mut file.source;
        match tokenize(source.text(), source.ended, &mut self.tokens) {
            Err(Broken::Unfinished) => source.fill().map(|()| Step::Nothing),
            Err(Broken::Wrong {
                at,
                line,
                what,
                extent,
            }) => {
                let error = source.error_at(at, line, what.to_owned());
                source.advance(&extent);
                Err(error)
            }
            Ok(extent) if self.tokens.is_empty() => {
                source.advance(&extent);
                if source.ended && source.text().is_empty() {
                    self.pop();
                }
                Ok(Step::Nothing)
            }
            Ok(extent) => self.entry(&extent),
        }
    }

    /// The file is at its end: the one that included it goes on.
    fn pop(&mut self) {
        if let Some(file) = self.files.pop() {
            // RFC 1035 §5.1: `$INCLUDE` "never changes the relative origin of the parent file".
            (self.origin, self.draft.owner) = file.outer;
        }
    }

    fn entry(&mut self, extent: &Extent) -> Result<Step, FileError> {
        let Some(File { source, .. }) = self.files.last_mut() else {
            return Ok(Step::End);
        };
        let mut words = Words::new(source.text(), &self.tokens, &self.origin);
        let entry = self
            .draft
            .entry(&mut words, extent.blank_owner, self.bounds.generate)
            .map_err(|wrong| source.error_in(&self.tokens, wrong));
        self.last_line = source.line;
        let first = source.error_at(
            self.tokens.first().map_or(0, |token| token.start as usize),
            0,
            String::new(),
        );
        source.advance(extent);
        match entry? {
            Entry::Record => return self.counted(first),
            Entry::Done => {}
            Entry::Origin(origin) => self.origin = origin,
            Entry::Generate(generate) => {
                self.owner_before.clone_from(&self.draft.owner);
                self.generate = Some(generate);
            }
            Entry::Include { path, origin } => self.include(&path, origin, first)?,
        }
        Ok(Step::Nothing)
    }

    /// `place` is where errors are.
    fn counted(&mut self, place: FileError) -> Result<Step, FileError> {
        self.records += 1;
        if self.records > self.bounds.records {
            let what = format!(
                "record {}: at most {} are allowed",
                self.records, self.bounds.records
            );
            return Err(FileError {
                what,
                is_last: true,
                ..place
            });
        }
        Ok(Step::Record)
    }

    fn include(
        &mut self,
        path: &str,
        origin: Option<Vec<u8>>,
        place: FileError,
    ) -> Result<(), FileError> {
        let error = |what, is_last| FileError {
            what,
            is_last,
            ..place
        };
        if self.files.len() >= self.bounds.depth {
            let what = format!(
                "'{path}': files include each other {} deep, which is all that is allowed; does one include itself?",
                self.bounds.depth
            );
            return Err(error(what, true));
        }
        self.includes += 1;
        if self.includes > self.bounds.includes {
            let what = format!(
                "'{path}': {} includes are all that is allowed",
                self.bounds.includes
            );
            return Err(error(what, true));
        }
        let octets = (self.open)(path).map_err(|cause| {
            error(format!("'{path}' cannot be opened: {cause}; it is looked for in the folder of the zone's file"), false)
        })?;
        self.push(&self.name_of_included(path), octets);
        if let Some(origin) = origin {
            self.origin = origin;
        }
        Ok(())
    }

    /// What an included file is called in errors: it is in the folder of the zone's file.
    fn name_of_included(&self, path: &str) -> String {
        let zone_file = self.files.first().map_or("", |file| &file.source.name);
        let folder_end = zone_file.rfind('/').map_or(0, |slash| slash + 1);
        format!("{}{path}", &zone_file[..folder_end])
    }

    /// The next record of a `$GENERATE`.
    fn generated(&mut self) -> Result<Step, FileError> {
        let place = self.error(String::new());
        let line = self
            .generate
            .as_mut()
            .and_then(|generate| generate.next_line(&mut self.line));
        let read = match line {
            None => {
                self.end_generate();
                return Ok(Step::Nothing);
            }
            Some(Err(what)) => Err(what),
            Some(Ok(())) => self.generated_record(),
        };
        match read {
            Ok(()) => self.counted(place),
            Err(what) => {
                self.end_generate();
                let line = super::words::shown(&self.line);
                let what = format!("$GENERATE made '{line}': {what}");
                Err(FileError { what, ..place })
            }
        }
    }

    fn end_generate(&mut self) {
        self.generate = None;
        self.draft.owner.clone_from(&self.owner_before);
    }

    fn generated_record(&mut self) -> Result<(), String> {
        let extent = match tokenize(&self.line, true, &mut self.tokens) {
            Ok(extent) => extent,
            Err(Broken::Wrong { what, .. }) => return Err(what.to_owned()),
            Err(Broken::Unfinished) => return Err("line without an end".to_owned()),
        };
        if extent.length < self.line.len() {
            return Err("several lines: one record belongs here".to_owned());
        }
        let mut words = Words::new(&self.line, &self.tokens, &self.origin);
        self.draft
            .record(&mut words, false)
            .map_err(|wrong| wrong.what)
    }
}

impl Iterator for Reader<'_> {
    type Item = Result<Record, FileError>;

    fn next(&mut self) -> Option<Self::Item> {
        Some(self.read()?.map(|record| record.to_owned()))
    }
}
