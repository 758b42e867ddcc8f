//! Actions that write lines about queries and responses.

use crate::pipeline::Env;
use crate::pipeline::query::Query;
use crate::pipeline::rules::response::{Response, ResponseAction, ResponseOutcome};
use crate::pipeline::rules::selectors::message::rcode_text;
use crate::pipeline::rules::{Action, Outcome};
use crate::querylog::QueryLog;

/// `LogAction([filename [, binary [, append [, buffered [, verboseOnly [, includeTimestamp]]]]]])`.
pub struct LogAction(pub QueryLog);

impl Action for LogAction {
    fn act(&self, query: &mut Query<'_>, _: &mut Env<'_>) -> Outcome {
        self.0.query(query);
        Outcome::Continue
    }

    fn describe(&self) -> String {
        describe(&self.0)
    }

    fn reload(&self) {
        self.0.reload();
    }
}

/// `LogResponseAction([filename [, append [, buffered [, verboseOnly [, includeTimestamp]]]]])`.
pub struct LogResponseAction(pub QueryLog);

impl ResponseAction for LogResponseAction {
    fn act(&self, response: &mut Response<'_>, _: &mut Env<'_>) -> ResponseOutcome {
        let code = u16::from(response.view.header().rcode());
        self.0.response(&response.view, &rcode_text(code));
        ResponseOutcome::Continue
    }

    fn describe(&self) -> String {
        describe(&self.0)
    }

    fn reload(&self) {
        self.0.reload();
    }
}

fn describe(log: &QueryLog) -> String {
    let file = &log.options().file;
    match file.as_os_str().is_empty() {
        true => "log".to_owned(),
        false => format!("log to {}", file.display()),
    }
}
