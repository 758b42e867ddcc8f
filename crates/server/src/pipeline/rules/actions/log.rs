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
    fn act(&self, query: &mut Query<'_>, env: &mut Env<'_>) -> Outcome {
        if !env.is_rehearsal() {
            self.0.query(query);
        }
        Outcome::Continue
    }

    fn open(&self) {
        self.0.open();
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
    fn act(&self, response: &mut Response<'_>, env: &mut Env<'_>) -> ResponseOutcome {
        if !env.is_rehearsal() {
            let code = u16::from(response.view.header().rcode());
            self.0.response(&response.view, &rcode_text(code));
        }
        ResponseOutcome::Continue
    }

    fn open(&self) {
        self.0.open();
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counters::Shard;
    use crate::pipeline::scene::{Scene, query};
    use crate::querylog::LogOptions;
    use wire::codes::qtype;

    /// Nobody has sent what `millrace explain` supposes.
    #[test]
    fn a_query_that_is_only_supposed_is_not_logged() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("log");
        let action = LogAction(QueryLog::new(LogOptions {
            file: file.clone(),
            binary: false,
            append: false,
            buffered: false,
            verbose_only: true,
            timestamps: false,
        }));
        Action::open(&action);
        let mut supposed = Scene::default();
        supposed.shard = Shard::for_rehearsal();
        let mut asked = Scene::default();
        for (scene, name) in [(&mut supposed, "supposed."), (&mut asked, "asked.")] {
            let message = query(name, qtype::A);
            let outcome = scene.examine(&message, |query, env| action.act(query, env));
            assert_eq!(outcome, Outcome::Continue);
        }
        let line = "Packet from 192.0.2.9:4242 for asked. A with id 4660\n";
        // The thread that writes takes its time.
        let began = std::time::Instant::now();
        let written = loop {
            match std::fs::read_to_string(&file) {
                Ok(text) if text.ends_with(line) => break text,
                other => assert!(began.elapsed().as_secs() < 60, "{other:?}"),
            }
            std::thread::yield_now();
        };
        assert_eq!(written, line);
    }
}
