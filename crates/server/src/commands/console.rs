//! `-c` and `-e`: the console's client. It reads the configuration for `controlSocket` and `setKey` only; but for the
//! commands that it sends it touches nothing of the instance (invariant I12).

use super::ServeArguments;
use crate::config::spec::Purpose;
use crate::config::{ConfigError, addresses, console};
use crate::control::console::client::{ClientError, Connection};
use crate::control::console::wire::Key;
use rustyline::completion::Completer;
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::FileHistory;
use rustyline::validate::Validator;
use rustyline::{CompletionType, Config, Context, Editor, Helper};
use std::io::{BufRead, IsTerminal, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::{fmt, io};

/// Talks to the console until the input ends.
pub(super) fn talk(arguments: &ServeArguments) -> ExitCode {
    let outcome = Target::find(arguments).and_then(|target| {
        let mut connection = target.connect()?;
        // An empty command: whoever has another key hears so now.
        connection.ask("")?;
        match io::stdin().is_terminal() {
            true => interactive(&mut connection, target.functions),
            false => plain(&mut connection),
        }
    });
    exit(outcome)
}

/// Runs one command.
pub(super) fn execute(arguments: &ServeArguments, command: &str) -> ExitCode {
    let outcome = Target::find(arguments).and_then(|target| {
        let answer = target.connect()?.ask(command)?;
        show(&answer)
    });
    exit(outcome)
}

fn exit(outcome: Result<(), Failure>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            super::complain(failure);
            ExitCode::FAILURE
        }
    }
}

/// Why the client ends.
#[derive(Debug)]
enum Failure {
    Config(ConfigError),
    NoKey,
    /// Of the argument that is the server to talk to.
    BadAddress(String),
    Client(ClientError),
    /// The terminal, or standard output.
    Terminal(String),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Config(error) => write!(f, "{error}"),
            Failure::NoKey => {
                f.write_str("no key: the configuration (-C FILE) has no setKey, and there is no -k")
            }
            Failure::BadAddress(text) => f.write_str(text),
            Failure::Client(error) => write!(f, "{error}"),
            Failure::Terminal(text) => write!(f, "terminal: {text}"),
        }
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Failure {
        Failure::Client(error)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        Failure::Terminal(error.to_string())
    }
}

// ---------------------------------------------------------------------------------------------- where to

/// The console to talk to.
struct Target {
    address: SocketAddr,
    key: Key,
    maximum: u32,
    /// What can be completed.
    functions: Vec<String>,
}

impl Target {
    /// What the command line says, and for the rest the configuration.
    fn find(arguments: &ServeArguments) -> Result<Target, Failure> {
        let state = arguments
            .load(Purpose::Client, None)
            .map_err(Failure::Config)?;
        let console = state.edit(|spec| spec.console.clone());
        let address = match arguments.server_to_talk_to() {
            Some(text) => {
                addresses::with_port(text, console::DEFAULT_PORT).map_err(Failure::BadAddress)?
            }
            None => reachable(console.address.unwrap_or(USUAL)),
        };
        Ok(Target {
            address,
            key: console.key.ok_or(Failure::NoKey)?,
            maximum: console.maximum_message_size,
            functions: state.functions(),
        })
    }

    fn connect(&self) -> Result<Connection, ClientError> {
        Connection::open(self.address, &self.key, self.maximum)
    }
}

/// Where dnsdist's client asks when neither the command line nor the file says where.
const USUAL: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), console::DEFAULT_PORT);

/// An instance that listens on every address is reached over loopback.
fn reachable(address: SocketAddr) -> SocketAddr {
    let loopback = match address {
        SocketAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
        SocketAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
    };
    match address.ip().is_unspecified() {
        true => SocketAddr::new(loopback, address.port()),
        false => address,
    }
}

// ---------------------------------------------------------------------------------------------- the conversation

fn show(answer: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    out.write_all(answer.as_bytes())?;
    if !answer.is_empty() && !answer.ends_with('\n') {
        out.write_all(b"\n")?;
    }
    Ok(out.flush()?)
}

/// Lines of standard input, one command each.
fn plain(connection: &mut Connection) -> Result<(), Failure> {
    for line in io::stdin().lock().lines() {
        let line = line?;
        if is_end(&line) {
            break;
        }
        show(&connection.ask(&line)?)?;
    }
    Ok(())
}

fn is_end(line: &str) -> bool {
    matches!(line.trim(), "quit" | "exit")
}

/// A line editor with a history that is kept.
fn interactive(connection: &mut Connection, functions: Vec<String>) -> Result<(), Failure> {
    let failed = |error: ReadlineError| Failure::Terminal(error.to_string());
    let config = Config::builder()
        .completion_type(CompletionType::List)
        .auto_add_history(true)
        .build();
    let mut editor: Editor<Words, FileHistory> = Editor::with_config(config).map_err(failed)?;
    editor.set_helper(Some(Words(functions)));
    let history = history_file();
    if let Some(path) = &history {
        // There is none yet the first time.
        let _ = editor.load_history(path);
    }
    let outcome = commands(&mut editor, connection);
    if let Some(path) = &history {
        // A history that cannot be kept is no reason to fail.
        let _ = editor.save_history(path);
    }
    outcome
}

fn commands(
    editor: &mut Editor<Words, FileHistory>,
    connection: &mut Connection,
) -> Result<(), Failure> {
    loop {
        match editor.readline("> ") {
            Ok(line) if is_end(&line) => return Ok(()),
            Ok(line) => show(&connection.ask(&line)?)?,
            // Control-C: the line is given up, not the conversation.
            Err(ReadlineError::Interrupted) => {}
            Err(ReadlineError::Eof) => return Ok(()),
            Err(error) => return Err(Failure::Terminal(error.to_string())),
        }
    }
}

fn history_file() -> Option<PathBuf> {
    Some(std::env::home_dir()?.join(".millrace_history"))
}

/// Completes names of functions.
struct Words(Vec<String>);

impl Completer for Words {
    type Candidate = String;

    fn complete(
        &self,
        line: &str,
        position: usize,
        _: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<String>)> {
        Ok(completions(&self.0, line, position))
    }
}

impl Hinter for Words {
    type Hint = String;
}

impl Highlighter for Words {}

impl Validator for Words {}

impl Helper for Words {}

/// Where the word at `position` begins, and what it may become.
fn completions(functions: &[String], line: &str, position: usize) -> (usize, Vec<String>) {
    let before = &line[..position];
    let is_of_word = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let start = before.trim_end_matches(is_of_word).len();
    let word = &before[start..];
    let fitting = functions.iter().filter(|name| name.starts_with(word));
    (start, fitting.cloned().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_word_at_the_end_is_completed() {
        let functions = ["AllRule", "addACL", "addAction"].map(str::to_owned);
        let complete = |line: &str| completions(&functions, line, line.len());
        assert_eq!(complete("addA").1, ["addACL", "addAction"]);
        assert_eq!(complete("addAction(All"), (10, vec!["AllRule".to_owned()]));
        assert_eq!(complete("x = nothing").1, Vec::<String>::new());
        // What is before the word may take several octets.
        assert_eq!(complete("print('é").0, 9);
        assert_eq!(complete("éaddAct"), (2, vec!["addAction".to_owned()]));
        let whole = "addAction(AllRule())";
        assert_eq!(completions(&functions, whole, 4).1.len(), 2);
    }

    #[test]
    fn an_instance_on_every_address_is_asked_over_loopback() {
        for (written, asked) in [
            ("0.0.0.0:5199", "127.0.0.1:5199"),
            ("[::]:5199", "[::1]:5199"),
            ("192.0.2.1:5199", "192.0.2.1:5199"),
        ] {
            let written = written.parse().unwrap();
            assert_eq!(reachable(written).to_string(), asked);
        }
    }
}
