//! Actions that answer: the query becomes a response in its own buffer.

use crate::counters::Counter;
use crate::pipeline::Env;
use crate::pipeline::query::{Protocol, Query};
use crate::pipeline::respond;
use crate::pipeline::rules::selectors::message::rcode_text;
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
    pub(super) fn apply(self, message: &mut [u8]) {
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
/// What four bits do not hold stands in the OPT record (RFC 6891 §6.1.3). A client without EDNS cannot be told a code above
/// 15 and gets SERVFAIL.
///
/// Counts self-answered and frontend-*, but not rule-refused and its sisters, as dnsdist: those are for the verdicts
/// `DNSAction.Refused`, `.Nxdomain` and `.ServFail` of Lua actions (seen with 1.7.3).
pub struct RCodeAction {
    rcode: u8,
    flags: AnswerFlags,
}

impl RCodeAction {
    pub fn new(rcode: u8) -> RCodeAction {
        RCodeAction::with_flags(rcode, AnswerFlags::default())
    }

    pub fn with_flags(rcode: u8, flags: AnswerFlags) -> RCodeAction {
        RCodeAction { rcode, flags }
    }
}

impl Action for RCodeAction {
    fn act(&self, query: &mut Query<'_>, env: &mut Env<'_>) -> Outcome {
        answer(query, env, self.rcode.into(), self.flags)
    }

    fn describe(&self) -> String {
        format!("set rcode {}", self.rcode)
    }
}

/// `ERCodeAction(rcode [, options])`: answers with a response code of up to twelve bits.
///
/// A client without EDNS cannot be told one above 15 and gets SERVFAIL.
pub struct ERCodeAction {
    rcode: u16,
    flags: AnswerFlags,
}

impl ERCodeAction {
    /// Of `rcode` the lower twelve bits are said.
    pub fn with_flags(rcode: u16, flags: AnswerFlags) -> ERCodeAction {
        ERCodeAction {
            rcode: rcode & 0x0fff,
            flags,
        }
    }
}

impl Action for ERCodeAction {
    fn act(&self, query: &mut Query<'_>, env: &mut Env<'_>) -> Outcome {
        answer(query, env, self.rcode, self.flags)
    }

    fn describe(&self) -> String {
        format!("set ercode {}", rcode_text(self.rcode))
    }
}

fn answer(query: &mut Query<'_>, env: &Env<'_>, rcode: u16, flags: AnswerFlags) -> Outcome {
    let length = respond::with_rcode(query, env, rcode);
    flags.apply(query.message);
    Outcome::Answer(length)
}

/// `TCAction()`: tells UDP clients to ask again over TCP. Does nothing to queries over TCP (since 1.7.0).
pub struct TCAction;

impl Action for TCAction {
    fn act(&self, query: &mut Query<'_>, env: &mut Env<'_>) -> Outcome {
        if query.protocol == Protocol::Tcp {
            return Outcome::Continue;
        }
        env.shard.count(Counter::RuleTruncated);
        Outcome::Answer(respond::truncated(query, env))
    }

    fn describe(&self) -> String {
        "tc=1 answer".to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipeline::rules::actions::pass::{SetDisableValidationAction, SetNoRecurseAction};
    use crate::pipeline::rules::actions::remember::SetEDNSOptionAction;
    use crate::pipeline::rules::selectors::logic::AllRule;
    use crate::pipeline::scene::{Reply, Scene, query, query_with_edns};
    use wire::codes::{qtype, rcode};

    fn answered(action: impl Action + 'static, message: &[u8]) -> Vec<u8> {
        match Scene::with_rule(AllRule, action).ask(message) {
            Reply::Answer(answer) => answer,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_response_code_with_header_bits_as_asked() {
        let plain = query("a.", qtype::A);
        assert_eq!(answered(RCodeAction::new(3), &plain)[2..4], [0x81, 0x83]);
        let flags = AnswerFlags {
            aa: Some(true),
            ad: Some(true),
            ra: Some(false),
        };
        let action = RCodeAction::with_flags(3, flags);
        assert_eq!(answered(action, &plain)[2..4], [0x85, 0x23]);
    }

    /// RFC 6891 §6.1.3: its lower bits alone would say NOERROR.
    #[test]
    fn a_code_above_15_is_never_another_one() {
        let badcookie = || RCodeAction::new(rcode::BADCOOKIE as u8);
        let edns = query_with_edns("a.", qtype::A, Some(4_096));
        let answer = answered(badcookie(), &edns);
        let parts = wire::message::parse_response(&answer).unwrap();
        assert_eq!(parts.rcode, rcode::BADCOOKIE);
        assert_eq!(answered(badcookie(), &query("a.", qtype::A))[3] & 15, 2);
        assert_eq!(badcookie().describe(), "set rcode 23");
    }

    #[test]
    fn an_extended_code_needs_edns() {
        let badvers = || ERCodeAction::with_flags(rcode::BADVERS, AnswerFlags::default());
        let edns = query_with_edns("a.", qtype::A, Some(4_096));
        let answer = answered(badvers(), &edns);
        let opt = answer.len() - 11;
        assert_eq!((answer[3] & 15, answer[opt + 5]), (0, 1));
        assert_eq!(
            answer[opt + 3..opt + 5],
            1_232u16.to_be_bytes(),
            "our payload size"
        );
        assert_eq!(answered(badvers(), &query("a.", qtype::A))[3] & 15, 2);
        assert_eq!(
            badvers().describe(),
            "set ercode Bad OPT Version / TSIG Signature Failure"
        );
    }

    #[test]
    fn without_edns_of_our_own_if_so_configured() {
        let mut scene = Scene::with_rule(AllRule, RCodeAction::new(5));
        scene.change(|config| config.tuning.edns_in_self_generated = false);
        let edns = query_with_edns("a.", qtype::A, Some(4_096));
        let Reply::Answer(answer) = scene.ask(&edns) else {
            panic!("no answer")
        };
        assert_eq!(answer.len(), edns.len() - 11);
        assert_eq!(answer[10..12], [0, 0]);
    }

    /// The answer of `action` to a query without EDNS to which `first` has done something.
    fn answered_after(first: impl Action + 'static, action: impl Action + 'static) -> Vec<u8> {
        let mut scene = Scene::with_rule(AllRule, first);
        scene.add_rule(AllRule, action);
        match scene.ask(&query("a.", qtype::A)) {
            Reply::Answer(answer) => answer,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_opt_record_of_a_rule_is_not_answered() {
        let option = || SetEDNSOptionAction {
            code: 65_001,
            value: Box::from(*b"abc"),
        };
        let badvers = ERCodeAction::with_flags(rcode::BADVERS, AnswerFlags::default());
        for (answer, flags) in [
            (answered_after(option(), RCodeAction::new(5)), [0x81, 0x85]),
            (answered_after(option(), badvers), [0x81, 0x82]),
            (answered_after(option(), TCAction), [0x83, 0x80]),
        ] {
            assert_eq!(answer[2..4], flags);
            assert_eq!(answer[4..], query("a.", qtype::A)[4..]);
        }
    }

    #[test]
    fn rd_and_cd_are_the_clients_and_ra_is_its_rd() {
        let answer = answered_after(SetNoRecurseAction, RCodeAction::new(5));
        assert_eq!(answer[2..4], [0x81, 0x85]);
        let answer = answered_after(SetDisableValidationAction, TCAction);
        assert_eq!(answer[2..4], [0x83, 0x80]);
        let flags = AnswerFlags {
            ra: Some(false),
            ..AnswerFlags::default()
        };
        let answer = answered_after(SetNoRecurseAction, RCodeAction::with_flags(5, flags));
        assert_eq!(answer[2..4], [0x81, 0x05]);
    }

    #[test]
    fn truncation_is_for_udp_only() {
        let mut scene = Scene::with_rule(AllRule, TCAction);
        let Reply::Answer(answer) = scene.ask(&query("a.", qtype::ANY)) else {
            panic!("no answer")
        };
        assert_eq!(answer[2..4], [0x83, 0x80]);
        assert_eq!(scene.counted(Counter::RuleTruncated), 1);
        assert_eq!(scene.counted(Counter::FrontendNoerror), 1);
        scene.protocol = Protocol::Tcp;
        assert!(!matches!(
            scene.ask(&query("a.", qtype::ANY)),
            Reply::Answer(_)
        ));
    }
}
