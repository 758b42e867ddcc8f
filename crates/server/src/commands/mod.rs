//! What the words on the command line make the program do: dnsdist's flags, and commands of our own, a file each; those that
//! only ask the running instance share [`running`].

mod arguments;
mod check;
mod console;
mod doctor;
mod kept;
mod mirror;
pub mod running;
mod zone;

pub use arguments::ServeArguments;

use crate::config::ConfigError;
use crate::config::spec::{Purpose, RemarkKind, Spec};
use crate::network::privileges;
use crate::{log, version};
use arguments::Arguments;
use std::ffi::OsString;
use std::fmt::Display;
use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::OnceLock;

/// Reads the command line and does what it says; `serve` is the daemon.
pub fn run(
    words: impl IntoIterator<Item = OsString>,
    serve: impl FnOnce(&ServeArguments) -> ExitCode,
) -> ExitCode {
    let status = act(words, serve);
    match UNSAID.get() {
        None => status,
        Some(error) => {
            complain(format_args!("writing to standard output: {error}"));
            ExitCode::FAILURE
        }
    }
}

fn act(
    words: impl IntoIterator<Item = OsString>,
    serve: impl FnOnce(&ServeArguments) -> ExitCode,
) -> ExitCode {
    match Arguments::read(words) {
        Ok(Arguments::Version) => {
            put(format_args!("{}\n", version()));
            ExitCode::SUCCESS
        }
        Ok(Arguments::Check(arguments)) => check::run(&arguments),
        Ok(Arguments::Serve(arguments)) => serve(&arguments),
        Ok(Arguments::Client(arguments)) => console::talk(&arguments),
        Ok(Arguments::Execute(command, arguments)) => console::execute(&arguments, &command),
        Ok(Arguments::Ask(request, path)) => running::ask(&path, &request),
        Ok(Arguments::Mirror(asked, path)) => asked.run(&path),
        Ok(Arguments::XdpStatus(interface, path)) => {
            running::xdp_status(&path, interface.as_deref())
        }
        Ok(Arguments::XdpLoad(asked)) => asked.run(),
        Ok(Arguments::XdpUnload(interface)) => kept::unload(&interface),
        Ok(Arguments::Zone(arguments)) => arguments.run(),
        Ok(Arguments::Doctor(arguments)) => arguments.run(),
        Err(error) => {
            // Whoever closed our standard error does not want to read this.
            let _ = error.print();
            if error.use_stderr() {
                ExitCode::FAILURE
            } else {
                ExitCode::SUCCESS
            }
        }
    }
}

/// Why something did not get to standard output: what came first.
static UNSAID: OnceLock<io::Error> = OnceLock::new();

/// Prints `text` to standard output. Whoever closed that does not want to read it: `millrace stats | head -1` is no error. A
/// full disk is one.
fn put(text: impl Display) {
    let mut out = io::stdout().lock();
    written(write!(out, "{text}").and_then(|()| out.flush()));
}

/// Keeps in mind what came of writing to standard output.
fn written(outcome: io::Result<()>) {
    if let Err(error) = outcome
        && error.kind() != io::ErrorKind::BrokenPipe
    {
        let _ = UNSAID.set(error);
    }
}

/// Prints a line to standard error, whether somebody reads it or not: the terminal may be gone, the disk full.
fn complain(line: impl Display) {
    let _ = writeln!(io::stderr().lock(), "{line}");
}

/// Logs why there is no configuration, one line per reason.
pub fn say_why(error: &ConfigError) {
    // A file that ends the start by os.exit has said what it had to say.
    if let ConfigError::Exit { .. } = error {
        return;
    }
    for line in error.lines() {
        log::error!("{line}");
    }
}

/// Logs what the operator should know of a configuration that was read.
pub fn say_remarks(spec: &Spec) {
    for remark in &spec.remarks {
        match remark.kind {
            RemarkKind::UnknownOption => {
                log::warn!("Unknown option, ignored"; place = remark.place, option = remark.subject)
            }
            RemarkKind::UnservedPath => {
                log::warn!("Nobody listens at this path of an acl"; place = remark.place, path = remark.subject);
            }
            RemarkKind::UnusableKey => {
                log::warn!("setKey: the console lets nobody in"; place = remark.place, why = remark.subject);
            }
            RemarkKind::UnknownCapability => {
                let known = privileges::capabilities_there_are();
                log::warn!("addCapabilitiesToRetain: there is no such capability, ignored"; place = remark.place, capability = remark.subject, known = known);
            }
            RemarkKind::NoFolder => {
                log::warn!("includeDirectory: there is no such folder, nothing of it is read"; place = remark.place, folder = remark.subject);
            }
            RemarkKind::NoEffectYet if spec.purpose == Purpose::Serve => {
                log::info!("accepted, no effect yet"; place = remark.place, name = remark.subject);
            }
            RemarkKind::NoEffectYet => {}
        }
    }
}
