//! What an entry means: a record, or a directive (RFC 1035 §5.1).
//!
//! ```text
//! [owner] [TTL] [class] type RDATA      TTL and class in either order
//! $ORIGIN name     $TTL time     $INCLUDE file [origin]     $GENERATE range owner [TTL] [class] type RDATA
//! ```

use super::generate::Generate;
use super::words::{Words, Wrong, class};
use crate::rdata;
use wire::codes::{QtypeText, qtype};

/// RFC 2181 §8: a TTL is "an unsigned number with a minimum value of 0, and a maximum value of 2147483647".
const TTL_MAX: u32 = 0x7fff_ffff;

/// An entry, understood.
pub(super) enum Entry {
    /// It is in the draft.
    Record,
    /// `$ORIGIN`: as on the wire.
    Origin(Vec<u8>),
    /// `$INCLUDE`: its file, and its origin where one is given.
    Include {
        path: String,
        origin: Option<Vec<u8>>,
    },
    Generate(Generate),
    /// All was said.
    Done,
}

/// The record that is being read, and what is left out in those that follow.
#[derive(Default)]
pub(super) struct Draft {
    pub(super) owner: Vec<u8>,
    pub(super) kind: u16,
    pub(super) class: u16,
    pub(super) ttl: u32,
    pub(super) rdata: Vec<u8>,
    /// What `$TTL` or the settings say.
    pub(super) default_ttl: Option<u32>,
    /// RFC 1035 §5.1: "Omitted class and TTL values are default to the last explicitly stated values."
    pub(super) last_ttl: Option<u32>,
}

impl Draft {
    pub(super) fn entry(
        &mut self,
        words: &mut Words<'_>,
        blank_owner: bool,
        generate_max: u32,
    ) -> Result<Entry, Wrong> {
        let directive = words
            .peek()
            .filter(|word| !blank_owner && !word.quoted && word.text[0] == b'$');
        let Some(directive) = directive else {
            self.record(words, blank_owner)?;
            return Ok(Entry::Record);
        };
        words.take();
        let is = |name: &[u8]| directive.text.eq_ignore_ascii_case(name);
        let origin = words.origin;
        let mut name = Vec::new();
        let entry = if is(b"$ORIGIN") {
            words
                .want("a name, the new origin,")?
                .name(origin, &mut name)?;
            Entry::Origin(name)
        } else if is(b"$TTL") {
            self.default_ttl = Some(ttl(words)?);
            Entry::Done
        } else if is(b"$INCLUDE") {
            let path = path(words)?;
            let origin = words
                .take()
                .map(|word| word.name(origin, &mut name))
                .transpose()?;
            Entry::Include {
                path,
                origin: origin.map(|()| name),
            }
        } else if is(b"$GENERATE") {
            Entry::Generate(Generate::read(words, generate_max)?)
        } else {
            return Err(directive
                .wrong("unknown directive: $ORIGIN, $TTL, $INCLUDE and $GENERATE are known"));
        };
        words.end("the directive")?;
        Ok(entry)
    }

    /// `[owner] [TTL] [class] type RDATA`.
    pub(super) fn record(&mut self, words: &mut Words<'_>, blank_owner: bool) -> Result<(), Wrong> {
        self.owner(words, blank_owner)?;
        let (stated_ttl, kind) = self.ttl_class_kind(words)?;
        self.rdata.clear();
        rdata::read::read(kind, words, &mut self.rdata).map_err(|wrong| with_form(wrong, kind))?;
        self.kind = kind;
        let stated_ttl = stated_ttl.or(self.default_ttl).or(self.last_ttl);
        self.ttl = match (stated_ttl, kind, self.rdata.last_chunk()) {
            (Some(ttl), _, _) => ttl,
            // RFC 2308 §4: MINIMUM once was the TTL of all records that state none.
            (None, qtype::SOA, Some(minimum)) => u32::from_be_bytes(*minimum).min(TTL_MAX),
            _ => {
                return Err(words.wrong(
                    "no TTL: $TTL belongs before the first record, or a TTL behind this owner"
                        .to_owned(),
                ));
            }
        };
        self.last_ttl = Some(self.ttl);
        Ok(())
    }

    fn owner(&mut self, words: &mut Words<'_>, blank_owner: bool) -> Result<(), Wrong> {
        if blank_owner {
            if self.owner.is_empty() {
                return Err(words.wrong(
                    "no owner: the line begins with a blank, and no record before it has an owner; a name or @ \
                     belongs in the first column"
                        .to_owned(),
                ));
            }
            return Ok(());
        }
        self.owner.clear();
        let origin = words.origin;
        let read = words.want("an owner")?.name(origin, &mut self.owner);
        if read.is_err() {
            self.owner.clear();
        }
        read
    }

    fn ttl_class_kind(&mut self, words: &mut Words<'_>) -> Result<(Option<u32>, u16), Wrong> {
        let (mut stated_ttl, mut stated_class) = (None, None);
        loop {
            let word =
                words.want("a type: a record is written 'www 3600 IN A 192.0.2.1'; its type")?;
            if stated_ttl.is_none() && word.text.first().is_some_and(u8::is_ascii_digit) {
                stated_ttl = Some(ttl_of(&word)?);
                continue;
            }
            if stated_class.is_none()
                && let Some(class) = class(word.text)
            {
                if class != self.class {
                    return Err(word.wrong(format_args!(
                        "a class other than the zone's, which is {}",
                        crate::file::print::class_text(self.class)
                    )));
                }
                stated_class = Some(class);
                continue;
            }
            let kind = word.kind()?;
            if rdata::table::is_meta(kind) {
                return Err(word.wrong(format_args!(
                    "{} stands in messages only, a zone has no such record",
                    QtypeText(kind)
                )));
            }
            return Ok((stated_ttl, kind));
        }
    }
}

/// RDATA is wrong: what its type looks like.
fn with_form(mut wrong: Wrong, kind: u16) -> Wrong {
    if let Some(form) = rdata::table::form(kind) {
        wrong.what.push_str("; the form is: ");
        wrong.what.push_str(&form);
    }
    wrong
}

fn ttl(words: &mut Words<'_>) -> Result<u32, Wrong> {
    ttl_of(&words.want("a time, in seconds or with units such as 1h30m,")?)
}

fn ttl_of(word: &super::words::Word<'_>) -> Result<u32, Wrong> {
    // What is above the maximum is read, as other servers read it: the zone takes it as 0 and warns of it.
    word.seconds().map_err(|_| {
        word.wrong(format_args!(
            "a TTL from 0 to {TTL_MAX} seconds (RFC 2181 §8), or with units such as 1w2d3h4m5s, belongs here"
        ))
    })
}

/// A file within the zone's folder.
fn path(words: &mut Words<'_>) -> Result<String, Wrong> {
    let word = words.want("a file's name")?;
    let mut octets = Vec::new();
    word.octets(&mut octets)?;
    let path =
        String::from_utf8(octets).map_err(|_| word.wrong("a file's name in UTF-8 belongs here"))?;
    let climbs = path.split('/').any(|part| part == "..");
    if path.is_empty() || path.starts_with('/') || climbs || path.contains('\0') {
        return Err(word.wrong("the file must lie in the zone's folder: a path without '..' and no '/' at its start belongs here"));
    }
    Ok(path)
}
