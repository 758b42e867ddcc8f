//! Actions that answer: the query becomes a response in its own buffer.

use crate::pipeline::Env;
use crate::pipeline::query::Query;
use crate::pipeline::respond;
use crate::pipeline::rules::{Action, Outcome};
use wire::message::Header;

/// The options `aa`, `ad` and `ra` of actions that answer: what a header bit is set to, where not to dnsdist's default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AnswerFlags {
    /// Default: cleared.
    pub aa: Option<bool>,
    /// Default: cleared.
    pub ad: Option<bool>,
    /// Default: the query's RD.
    pub ra: Option<bool>,
}

impl AnswerFlags {
    /// Sets the bits in an answer that has dnsdist's defaults.
    fn apply(self, message: &mut [u8]) {
        if self == AnswerFlags::default() {
            return;
        }
        let Some(mut header) = Header::read(message) else {
            return;
        };
        header.set_aa(self.aa.unwrap_or(header.aa()));
        header.set_ad(self.ad.unwrap_or(header.ad()));
        header.set_ra(self.ra.unwrap_or(header.ra()));
        header.write(message).expect("it was just read from there");
    }
}

/// `RCodeAction(rcode [, options])`: answers with this response code.
///
/// Counts self-answered and frontend-*, but not rule-refused and its sisters, as dnsdist: those are for the verdicts
/// `DNSAction.Refused`, `.Nxdomain` and `.ServFail` of Lua actions (seen with 1.7.3).
pub struct RCodeAction {
    rcode: u8,
    flags: AnswerFlags,
}

impl RCodeAction {
    /// Of `rcode` the lower four bits are said.
    pub fn new(rcode: u8) -> RCodeAction {
        RCodeAction::with_flags(rcode, AnswerFlags::default())
    }

    pub fn with_flags(rcode: u8, flags: AnswerFlags) -> RCodeAction {
        RCodeAction {
            rcode: rcode & 15,
            flags,
        }
    }
}

impl Action for RCodeAction {
    fn act(&self, query: &mut Query<'_>, env: &mut Env<'_>) -> Outcome {
        let length = respond::with_rcode(query, env, self.rcode.into());
        self.flags.apply(query.message);
        Outcome::Answer(length)
    }

    fn describe(&self) -> String {
        format!("set rcode {}", self.rcode)
    }
}
