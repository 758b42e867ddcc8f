//! Queries that several servers are asked: which of their answers the client may get.
//!
//! The first good answer is the client's, as soon as a worker has seen it; an error only where nobody had better. What a
//! worker has seen, and when, the world notes here before the worker's turn.

/// What a server sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Said {
    /// The true answer.
    Good,
    /// A true answer, and an error.
    Error,
    /// Nothing that ends a wait (I7).
    Junk,
}

/// What one of the servers has sent for a query.
#[derive(Debug, Clone, Copy)]
pub(super) struct LegAnswer {
    pub(super) serial: usize,
    pub(super) server: u8,
    pub(super) said: Said,
}

/// What workers have seen of answers to one query, the first of each server, in order.
#[derive(Debug, Default)]
pub(super) struct Heard {
    /// While the server was certainly waited for.
    in_time: Vec<(u8, bool)>,
    /// Perhaps too late.
    late: Vec<(u8, bool)>,
    /// Junk came as well.
    has_junk: bool,
}

impl Heard {
    pub(super) fn note(&mut self, answer: LegAnswer, is_in_time: bool) {
        if answer.said == Said::Junk {
            self.has_junk = true;
            return;
        }
        if self.all().any(|(server, _)| *server == answer.server) {
            return;
        }
        let list = match is_in_time {
            true => &mut self.in_time,
            false => &mut self.late,
        };
        list.push((answer.server, answer.said == Said::Good));
    }

    /// Whether there was junk among it.
    pub(super) fn has_junk(&self) -> bool {
        self.has_junk
    }

    fn all(&self) -> impl Iterator<Item = &(u8, bool)> {
        self.in_time.iter().chain(&self.late)
    }

    /// The server whose answer must be the client's.
    pub(super) fn first_good(&self) -> Option<u8> {
        let first = self.in_time.iter().find(|(_, is_good)| *is_good);
        first.map(|(server, _)| *server)
    }

    /// So many answers at least had no use, or were held back for a better one.
    pub(super) fn losers(&self) -> u64 {
        self.in_time.len().saturating_sub(1) as u64
    }

    /// Whether the client may be given the good answer of this server, or an error where there is none.
    pub(super) fn allows(&self, given: Option<u8>) -> bool {
        if let Some(first) = self.first_good() {
            return given == Some(first);
        }
        self.all().any(|&(server, is_good)| match given {
            Some(given) => is_good && server == given,
            None => !is_good,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(answers: &[(u8, bool, bool)]) -> Heard {
        let mut heard = Heard::default();
        for &(server, is_good, is_in_time) in answers {
            let answer = LegAnswer {
                serial: 0,
                server,
                said: if is_good { Said::Good } else { Said::Error },
            };
            heard.note(answer, is_in_time);
        }
        heard
    }

    #[test]
    fn the_first_good_answer_is_the_only_one_that_is_allowed() {
        let heard = heard(&[
            (11, false, true),
            (12, true, true),
            (13, true, true),
            (12, false, true),
        ]);
        assert!(heard.allows(Some(12)));
        assert!(!heard.allows(Some(13)) && !heard.allows(None) && !heard.allows(Some(11)));
        assert_eq!(heard.losers(), 2);
    }

    #[test]
    fn junk_is_no_answer() {
        let mut heard = Heard::default();
        let said = Said::Junk;
        heard.note(
            LegAnswer {
                serial: 0,
                server: 11,
                said,
            },
            true,
        );
        assert!(heard.has_junk() && heard.first_good().is_none());
        assert!(!heard.allows(Some(11)) && !heard.allows(None));
    }

    #[test]
    fn an_error_is_allowed_where_nobody_had_better_in_time() {
        let heard = heard(&[(11, false, true), (12, true, false)]);
        assert!(heard.allows(None) && heard.allows(Some(12)));
        assert!(!heard.allows(Some(11)));
        assert!(!super::Heard::default().allows(None));
    }
}
