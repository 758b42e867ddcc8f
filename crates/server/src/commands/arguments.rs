//! The command line: dnsdist's seventeen options and `--control`; commands to the running instance, and which words are another
//! file's.

use super::doctor::DoctorArguments;
use super::kept::LoadArguments;
use super::mirror::MirrorArguments;
use super::zone::ZoneArguments;
use crate::config::error::Fault;
use crate::config::place::Place;
use crate::config::spec::Purpose;
use crate::config::{self, ConfigError, LocalAddress, LuaState, Overrides, addresses};
use crate::control::console::wire::Key;
use crate::control::protocol::{DEFAULT_PATH, ExplainRequest, Request};
use crate::log::{Facility, Outlets, Settings, Shape};
use crate::network::privileges;
use crate::pipeline::acl::Netmask;
use clap::{CommandFactory, Parser};
use std::ffi::OsString;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use wire::codes::parse_qtype;
use wire::name::NameBuf;

/// What the program is asked for.
#[derive(Debug)]
pub(super) enum Arguments {
    /// `--version`.
    Version,
    /// `--check-config`.
    Check(ServeArguments),
    Serve(ServeArguments),
    /// `-c`: the console.
    Client(ServeArguments),
    /// `-e`: one command.
    Execute(String, ServeArguments),
    /// One of our own commands, to the instance whose control socket is there.
    Ask(Request, PathBuf),
    /// `xdp status` of one interface.
    XdpStatus(Option<String>, PathBuf),
    /// `xdp load` and `xdp unload`: by hand, without an instance.
    XdpLoad(LoadArguments),
    XdpUnload(String),
    /// `mirror`: a stream of packets from the running instance.
    Mirror(MirrorArguments, PathBuf),
    /// What needs no instance: zone files, the machine itself.
    Zone(ZoneArguments),
    Doctor(DoctorArguments),
}

/// Words that are a command of ours when they come first.
const COMMANDS: [&str; 6] = ["reload", "restart", "stats", "xdp", "explain", "mirror"];

/// Commands to the running instance.
#[derive(Debug, Parser)]
#[command(name = "millrace")]
struct AskArguments {
    /// Where the instance's control socket is
    #[arg(long, global = true, value_name = "PATH", default_value = DEFAULT_PATH)]
    control: PathBuf,

    #[command(subcommand)]
    command: AskCommand,
}

#[derive(Debug, clap::Subcommand)]
enum AskCommand {
    /// Read the configuration anew and serve by it
    Reload,
    /// Have a new process of the program on the disk take over, without losing a query
    Restart,
    /// Print all statistics
    Stats,
    /// Show what there is of AF_XDP
    Xdp {
        #[command(subcommand)]
        what: XdpCommand,
    },
    /// Say what would happen to a query, and why; nothing is sent or counted
    Explain {
        /// The name asked for
        name: NameBuf,
        /// The type: AAAA, TYPE28
        #[arg(value_name = "TYPE", value_parser = query_type)]
        qtype: String,
        /// The client
        #[arg(long, value_name = "ADDRESS")]
        from: IpAddr,
        /// The address and port it is sent to; the first that is served unless given
        #[arg(long, value_name = "ADDRESS", value_parser = listener)]
        to: Option<SocketAddr>,
        /// Over TCP
        #[arg(long)]
        tcp: bool,
    },
    /// Copy the packets that AF_XDP receives and sends
    Mirror(MirrorArguments),
}

fn query_type(text: &str) -> Result<String, String> {
    let known = parse_qtype(text).map(|_| text.to_owned());
    known.ok_or_else(|| "a type (AAAA, TYPE28) expected".to_owned())
}

#[derive(Debug, clap::Subcommand)]
enum XdpCommand {
    /// Print programs, maps, sockets and heartbeats
    Status {
        /// Of this interface only
        #[arg(long)]
        interface: Option<String>,
    },
    /// Attach the program to an interface and keep it there: it passes everything until millrace serves
    Load(LoadArguments),
    /// Take a program that was kept off an interface
    Unload {
        /// The interface to take it off
        #[arg(long)]
        interface: String,
    },
}

impl AskArguments {
    fn what(self) -> Arguments {
        let what = match self.command {
            AskCommand::Reload => return Arguments::Ask(Request::Reload, self.control),
            AskCommand::Restart => return Arguments::Ask(Request::Restart, self.control),
            AskCommand::Stats => return Arguments::Ask(Request::Stats, self.control),
            AskCommand::Mirror(asked) => return Arguments::Mirror(asked, self.control),
            AskCommand::Explain {
                name,
                qtype,
                from,
                to,
                tcp,
            } => {
                let asked = ExplainRequest {
                    name: name.to_string(),
                    qtype,
                    from,
                    to,
                    tcp,
                };
                return Arguments::Ask(Request::Explain(asked), self.control);
            }
            AskCommand::Xdp { what } => what,
        };
        match what {
            XdpCommand::Status { interface } => Arguments::XdpStatus(interface, self.control),
            XdpCommand::Load(asked) => Arguments::XdpLoad(asked),
            XdpCommand::Unload { interface } => Arguments::XdpUnload(interface),
        }
    }
}

const DEFAULT_LISTENER: &str =
    "Without a listener in the file or on the command line, 127.0.0.1:53 is served.";

/// What `--help` says of the commands: their names and what they do, as clap knows them.
fn commands_help() -> String {
    let asked = AskArguments::command();
    let mut text = String::from(
        "Commands to the running instance, as the first word (`millrace COMMAND --help`):",
    );
    for command in asked.get_subcommands() {
        let inner = command.get_subcommands().map(|inner| inner.get_name());
        let name: Vec<&str> = std::iter::once(command.get_name()).chain(inner).collect();
        text += &command_help(&name.join(" "), command);
    }
    text += "\n\nZone files, zones and the machine, as the first word (`millrace WORD --help`):";
    text += &command_help("zone", &ZoneArguments::command());
    text += &command_help("doctor", &DoctorArguments::command());
    text
}

fn command_help(name: &str, command: &clap::Command) -> String {
    let about = command.get_about().map(ToString::to_string);
    format!("\n  {name:<12} {}", about.unwrap_or_default())
}

/// A DNS load balancer whose UDP path runs over AF_XDP. It speaks dnsdist's language.
#[derive(Debug, Clone, Parser)]
#[command(name = "millrace", disable_version_flag = true)]
// A wrapper's words and an operator's behind them: the last one counts, as with getopt.
#[command(args_override_self = true)]
#[command(after_help = format!("{}\n\n{DEFAULT_LISTENER}", commands_help()))]
pub struct ServeArguments {
    /// Read the configuration from FILE; the default file may be missing, FILE may not
    #[arg(short = 'C', long = "config", value_name = "FILE")]
    file: Option<PathBuf>,

    /// Serve ADDRESS (port 53 unless it has one; /PATH is a UNIX stream socket) in place of the file's listeners; may be repeated
    #[arg(short = 'l', long = "local", value_name = "ADDRESS", value_parser = local_address)]
    listeners: Vec<LocalAddress>,

    /// Start with an ACL of CIDR in place of the default one; may be repeated
    #[arg(short = 'a', long = "acl", value_name = "CIDR")]
    acl: Vec<Netmask>,

    /// Load everything, touch nothing, say whether it is good
    #[arg(long)]
    check_config: bool,

    /// Accepted: it always stays in the foreground, without a console
    #[arg(long)]
    pub supervised: bool,

    /// Log more: what is of interest in trouble
    #[arg(short, long)]
    verbose: bool,

    /// Log keys and values (true, the default) or plain text (false)
    #[arg(long, value_name = "true|false", action = clap::ArgAction::Set)]
    structured_logging: Option<bool>,

    /// How structured lines look
    #[arg(long, value_name = "BACKEND", value_enum)]
    structured_logging_backend: Option<LogBackend>,

    /// Send nothing to syslog
    #[arg(long)]
    disable_syslog: bool,

    /// Begin plain lines with their time; structured lines have it anyway
    #[arg(long)]
    log_timestamps: bool,

    /// Become this user after the sockets are bound
    #[arg(short = 'u', long = "uid", value_name = "USER")]
    pub user: Option<String>,

    /// Become a member of this group only, after the sockets are bound
    #[arg(short = 'g', long = "gid", value_name = "GROUP")]
    pub group: Option<String>,

    /// Listen for our own commands at PATH (/run/millrace/control unless it is taken)
    #[arg(long, value_name = "PATH")]
    pub control: Option<PathBuf>,

    /// Talk to a running instance
    #[arg(short = 'c', long = "client")]
    client: bool,

    /// Run COMMAND in the running instance
    #[arg(
        short = 'e',
        long = "execute",
        value_name = "COMMAND",
        allow_hyphen_values = true
    )]
    execute: Option<String>,

    /// The console's key; everybody on this machine can read it in the list of processes: better in the file
    #[arg(short = 'k', long = "setkey", value_name = "KEY")]
    key: Option<Key>,

    /// Succeed the process at the other end of standard input (`millrace restart` starts it so)
    #[arg(long, hide = true)]
    pub succeed: bool,

    /// Print the version
    #[arg(short = 'V', long = "version")]
    version: bool,

    /// More backends; with -c or -e the console to talk to
    #[arg(value_name = "BACKEND", value_parser = backend)]
    servers: Vec<Backend>,
}

/// An argument that is no option.
#[derive(Debug, Clone)]
struct Backend {
    /// As it was written: a console has another port than a backend.
    text: String,
    address: SocketAddr,
}

fn backend(text: &str) -> Result<Backend, String> {
    let is_command = COMMANDS.contains(&text) || ["zone", "doctor"].contains(&text);
    let address = listener(text).map_err(|error| match is_command {
        true => format!("{error}; the command comes first: millrace {text} …"),
        false => error,
    })?;
    Ok(Backend {
        text: text.to_owned(),
        address,
    })
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum LogBackend {
    Default,
    Json,
    SystemdJournal,
}

fn local_address(text: &str) -> Result<LocalAddress, String> {
    LocalAddress::parse(text, config::defaults::DNS_PORT)
}

fn listener(text: &str) -> Result<SocketAddr, String> {
    addresses::with_port(text, config::defaults::DNS_PORT)
}

impl Arguments {
    /// Reads the words of a command line, the program's name first.
    ///
    /// # Errors
    /// What is wrong with them; the help text, when that was asked for.
    pub(super) fn read(
        words: impl IntoIterator<Item = OsString>,
    ) -> Result<Arguments, clap::Error> {
        let words = as_options(words.into_iter().collect());
        if words.get(1).is_some_and(|word| word == "zone") {
            return ZoneArguments::read(&words[1..]).map(Arguments::Zone);
        }
        if words.get(1).is_some_and(|word| word == "doctor") {
            return DoctorArguments::read(&words[1..]).map(Arguments::Doctor);
        }
        // Any other word that comes first is a backend.
        if words
            .get(1)
            .is_some_and(|word| COMMANDS.iter().any(|command| word == command))
        {
            return Ok(AskArguments::try_parse_from(words)?.what());
        }
        let arguments = ServeArguments::try_parse_from(words)?;
        if arguments.version {
            return Ok(Arguments::Version);
        }
        if let Some(command) = &arguments.execute {
            return Ok(Arguments::Execute(command.clone(), arguments));
        }
        if arguments.client {
            return Ok(Arguments::Client(arguments));
        }
        if arguments.check_config {
            return Ok(Arguments::Check(arguments));
        }
        Ok(Arguments::Serve(arguments))
    }
}

/// `help`, `help WORD …` and `version` as the options that mean the same.
fn as_options(mut words: Vec<OsString>) -> Vec<OsString> {
    match words.get(1).and_then(|word| word.to_str()) {
        Some("help") => {
            words.remove(1);
            words.push("--help".into());
        }
        Some("version") if words.len() == 2 => words[1] = "--version".into(),
        _ => {}
    }
    words
}

impl ServeArguments {
    /// Whether there are the user and the group to become.
    ///
    /// # Errors
    /// There are not.
    pub fn check_owner(&self) -> Result<(), ConfigError> {
        let found = privileges::look_up(self.user.as_deref(), self.group.as_deref());
        found.map_err(|error| {
            ConfigError::Faults(vec![Fault {
                place: Place::command_line(),
                text: error.to_string(),
            }])
        })
    }

    /// The file that holds the configuration; `None` when none was named and the default one is not there.
    pub fn file(&self) -> Option<&Path> {
        self.file_among(&DEFAULT_FILES)
    }

    fn file_among(&self, defaults: &[&'static str]) -> Option<&Path> {
        let mut defaults = defaults.iter().copied().map(Path::new);
        let default = defaults.find(|file| file.exists());
        self.file.as_deref().or(default)
    }

    /// The file that is read for this purpose. A client that was told both the address and the key needs none: a default file
    /// may be another instance's, or not ours to read.
    fn file_for(&self, purpose: Purpose, defaults: &[&'static str]) -> Option<&Path> {
        let is_told_all = self.key.is_some() && self.server_to_talk_to().is_some();
        match purpose == Purpose::Client && is_told_all {
            true => self.file.as_deref(),
            false => self.file_among(defaults),
        }
    }

    /// With `-c` or `-e`: the console that the command line names.
    pub(super) fn server_to_talk_to(&self) -> Option<&str> {
        self.servers.first().map(|server| server.text.as_str())
    }

    /// Reads the configuration, as [`config::load`] does.
    ///
    /// # Errors
    /// Those of [`config::load`].
    pub fn load(
        &self,
        purpose: Purpose,
        previous: Option<&config::Config>,
    ) -> Result<LuaState, ConfigError> {
        let overrides = Overrides {
            listeners: self.listeners.clone(),
            acl: self.acl.clone(),
            servers: self.servers.iter().map(|server| server.address).collect(),
        };
        let file = self.file_for(purpose, &DEFAULT_FILES);
        let state = config::load(file, &overrides, purpose, previous)?;
        if let Some(key) = &self.key {
            state.edit(|spec| spec.console.key = Some(key.clone()));
        }
        Ok(state)
    }

    /// How log lines look: what the command line says, else what the file says, else the default.
    pub fn log_settings(&self, file: Settings) -> Settings {
        let structured = self
            .structured_logging
            .unwrap_or(file.shape != Shape::Plain);
        let shape = match (structured, self.structured_logging_backend) {
            (false, _) => Shape::Plain,
            (true, Some(LogBackend::Default)) => Shape::Structured,
            (true, Some(LogBackend::Json)) => Shape::Json,
            (true, Some(LogBackend::SystemdJournal)) => Shape::Journal,
            (true, None) if file.shape == Shape::Plain => Shape::Structured,
            (true, None) => file.shape,
        };
        let facility = file.outlets.syslog.unwrap_or(Facility::DAEMON);
        Settings {
            shape,
            timestamps: self.log_timestamps,
            verbose: self.verbose || file.verbose,
            outlets: Outlets {
                syslog: (!self.disable_syslog).then_some(facility),
                ..file.outlets
            },
            ..file
        }
    }
}

/// Where packages put the configuration: ours, then dnsdist's, which prefers YAML: where there is such a file, dnsdist serves
/// by it, and to read the other one would serve something else.
const DEFAULT_FILES: [&str; 3] = [
    "/etc/millrace/millrace.conf",
    "/etc/dnsdist/dnsdist.yml",
    "/etc/dnsdist/dnsdist.conf",
];

#[cfg(test)]
mod tests {
    use super::*;
    use testnet::manual::Page;

    fn read(words: &[&str]) -> Result<Arguments, clap::Error> {
        let words = ["millrace"].iter().chain(words);
        Arguments::read(words.map(OsString::from))
    }

    #[test]
    fn a_client_with_address_and_key_reads_no_default_file() {
        let key = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";
        for (words, file) in [
            (&["-c", "127.0.0.1:5199", "-k", key][..], None),
            (&["-c", "127.0.0.1:5199"], Some("/")),
            (&["-c", "-k", key], Some("/")),
            (
                &["-C", "/named", "-c", "127.0.0.1:5199", "-k", key],
                Some("/named"),
            ),
        ] {
            let Ok(Arguments::Client(arguments)) = read(words) else {
                panic!("no client: {words:?}");
            };
            let found = arguments.file_for(Purpose::Client, &["/"]);
            assert_eq!(found, file.map(Path::new), "{words:?}");
        }
    }

    #[test]
    fn a_command_for_the_console_may_begin_with_a_dash() {
        let Ok(Arguments::Execute(command, _)) = read(&["-c", "-e", "-- nothing"]) else {
            panic!("no command");
        };
        assert_eq!(command, "-- nothing");
    }

    #[test]
    fn a_word_of_ours_that_comes_first_is_a_command() {
        for (words, request) in [
            (&["reload"][..], Request::Reload),
            (&["restart"], Request::Restart),
            (&["stats"], Request::Stats),
        ] {
            let Ok(Arguments::Ask(found, path)) = read(words) else {
                panic!("no command: {words:?}");
            };
            assert_eq!((found, path.as_path()), (request, Path::new(DEFAULT_PATH)));
        }
        for (words, interface) in [
            (&["xdp", "status"][..], None),
            (&["xdp", "status", "--interface", "ens3f0"], Some("ens3f0")),
        ] {
            let Ok(Arguments::XdpStatus(found, path)) = read(words) else {
                panic!("no command: {words:?}");
            };
            assert_eq!(found.as_deref(), interface);
            assert_eq!(path, Path::new(DEFAULT_PATH));
        }
        let Ok(Arguments::Ask(_, path)) = read(&["stats", "--control", "/tmp/c"]) else {
            panic!("no command");
        };
        assert_eq!(path, Path::new("/tmp/c"));
        let explain = [
            "explain",
            "www.example",
            "AAAA",
            "--from",
            "192.0.2.9",
            "--tcp",
        ];
        let Ok(Arguments::Ask(Request::Explain(asked), _)) = read(&explain) else {
            panic!("no command");
        };
        assert_eq!((asked.name.as_str(), asked.tcp), ("www.example.", true));
        assert!(read(&["explain", "www.example", "NONSENSE", "--from", "192.0.2.9"]).is_err());
        let mirror = ["mirror", "--interface", "enp1s0", "-w", "-", "port", "53"];
        assert!(matches!(read(&mirror), Ok(Arguments::Mirror(..))));
        assert!(read(&["mirror", "--interface", "enp1s0", "-w", "-", "--rate", "0"]).is_err());
        let doctor = ["doctor", "--interface", "enp1s0"];
        assert!(matches!(read(&doctor), Ok(Arguments::Doctor(_))));
        assert!(read(&["xdp"]).is_err());
        assert!(read(&["xdp", "unload"]).is_err());
        let load = ["xdp", "load", "--interface", "enp1s0"];
        let options: [&[&str]; 3] = [
            &[],
            &["--dnsdist"],
            &["--dnsdist", "--pins", "/tmp/p", "--owner", "somebody"],
        ];
        for options in options {
            let words = [&load[..], options].concat();
            assert!(
                matches!(read(&words), Ok(Arguments::XdpLoad(_))),
                "{words:?}"
            );
        }
        assert!(read(&[&load[..], &["--pins", "/tmp/p"]].concat()).is_err());
        let unload = read(&["xdp", "unload", "--interface", "enp1s0"]);
        assert!(matches!(unload, Ok(Arguments::XdpUnload(name)) if name == "enp1s0"));
    }

    #[test]
    fn the_help_names_every_command() {
        let help = read(&["--help"]).expect_err("the help text").to_string();
        let listed = |command: &&str| {
            help.lines()
                .any(|line| line.starts_with(&format!("  {command} ")))
        };
        assert_eq!(
            COMMANDS.iter().copied().find(|command| !listed(command)),
            None
        );
        assert!(["zone", "doctor"].iter().all(listed), "{help}");
        assert!(help.contains("  xdp status "), "{help}");
        // -v adds lines, and --supervised changes nothing.
        assert!(help.contains("Log more: "), "{help}");
        assert!(help.contains("Accepted: it always stays "), "{help}");
    }

    #[test]
    fn help_and_version_are_words_too() {
        let text = |words: &[&str]| read(words).expect_err("a help text").to_string();
        assert_eq!(text(&["help"]), text(&["--help"]));
        assert_eq!(
            text(&["help", "xdp", "load"]),
            text(&["xdp", "load", "--help"])
        );
        assert_eq!(text(&["help", "zone"]), text(&["zone", "--help"]));
        assert!(matches!(read(&["version"]), Ok(Arguments::Version)));
    }

    #[test]
    fn what_stands_twice_counts_as_it_stands_last() {
        let words = [
            "-v",
            "--supervised",
            "-C",
            "one.conf",
            "--acl=192.0.2.0/24",
            "-l127.0.0.1:5300",
            "-v",
            "--supervised",
            "--config=two.conf",
            "-a",
            "::1",
            "--local",
            "[::1]:5300",
        ];
        let Ok(Arguments::Serve(arguments)) = read(&words) else {
            panic!("not taken");
        };
        assert_eq!(arguments.file(), Some(Path::new("two.conf")));
        // These add up.
        assert_eq!((arguments.listeners.len(), arguments.acl.len()), (2, 2));
        assert!(arguments.verbose && arguments.supervised);
    }

    #[test]
    fn other_words_are_backends() {
        assert!(matches!(read(&["192.0.2.2"]), Ok(Arguments::Serve(_))));
        assert!(read(&["restart-now"]).is_err());
        let Err(error) = read(&["--control", "path", "reload"]) else {
            panic!("taken as a backend");
        };
        let error = error.to_string();
        assert!(error.contains("comes first: millrace reload"), "{error}");
    }

    /// The first word of a command line that no help text has: a command or an option.
    fn unknown(line: &str) -> Option<String> {
        let line = line.split([';', '|']).next().unwrap_or_default();
        let words = line.split_whitespace().skip(1);
        let words: Vec<&str> = words
            .map(|word| word.trim_matches(['[', ']', '…']))
            .filter(|word| !word.is_empty())
            .collect();
        let (root, words) = match words.first() {
            Some(&"zone") => (ZoneArguments::command(), &words[1..]),
            Some(&"doctor") => (DoctorArguments::command(), &words[1..]),
            Some(word) if COMMANDS.contains(word) => (AskArguments::command(), &words[..]),
            Some(word) if word.starts_with(|first: char| first.is_ascii_lowercase()) => {
                return Some((*word).to_owned());
            }
            _ => (ServeArguments::command(), &words[..]),
        };
        let mut command = &root;
        let mut options: Vec<&clap::Arg> = root.get_arguments().collect();
        let found = words.iter().find(|word| {
            if let Some(long) = word.strip_prefix("--") {
                return !options.iter().any(|option| option.get_long() == Some(long));
            }
            if let Some(short) = word.strip_prefix('-') {
                let short = short.chars().next();
                return short.is_some()
                    && !options.iter().any(|option| option.get_short() == short);
            }
            match command.find_subcommand(word) {
                Some(inner) => {
                    command = inner;
                    options.extend(inner.get_arguments());
                    false
                }
                None => command.has_subcommands(),
            }
        });
        found.map(|word| (*word).to_owned())
    }

    #[test]
    fn the_commands_that_the_manual_prints_are_there() {
        assert_eq!(unknown("millrace xdp load --interface IF --dnsdist"), None);
        assert_eq!(unknown("millrace zone status [NAME…]; --no | x"), None);
        assert_eq!(unknown("millrace zone statu").as_deref(), Some("statu"));
        assert_eq!(unknown("millrace status").as_deref(), Some("status"));
        assert_eq!(unknown("millrace -C FILE -x").as_deref(), Some("-x"));
        assert_eq!(unknown("millrace stats --no").as_deref(), Some("--no"));
        for page in Page::all() {
            let code = page.code();
            for line in code.iter().filter(|line| line.starts_with("millrace ")) {
                assert_eq!(unknown(line), None, "{}: {line}", page.path);
            }
        }
    }
}
