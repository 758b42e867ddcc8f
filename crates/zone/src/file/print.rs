//! Records back to zone-file text: one line each, absolute names, nothing left out, so that lines can be sorted, compared
//! and read anywhere.

use crate::rdata;
use crate::record::RecordRef;
use std::fmt::Write;
use wire::codes::{QtypeText, class};

/// Appends `owner TTL class type RDATA` and the line's end.
pub fn print_record(record: RecordRef<'_>, out: &mut String) {
    if rdata::print::name(record.owner, out).is_none() {
        // No zone or transfer has given this: it is shown rather than hidden.
        out.push_str("; malformed owner");
    }
    // Nothing can fail when a String is written to.
    let _ = write!(
        out,
        " {} {} {}",
        record.ttl,
        class_text(record.class),
        QtypeText(record.kind)
    );
    rdata::print::print(record.kind, record.rdata, out);
    out.push('\n');
}

/// A class as zone files write it (RFC 1035 §3.2.4, RFC 3597 §5).
pub(super) fn class_text(number: u16) -> String {
    match number {
        class::IN => "IN".to_owned(),
        class::CHAOS => "CH".to_owned(),
        class::HESIOD => "HS".to_owned(),
        _ => format!("CLASS{number}"),
    }
}
