//! `floodgate sockets`: dnsperf's command line (its manual, version 2.10).

use super::parse;
use super::values::{rate, seconds};
use crate::expected::Expectations;
use crate::failure::{During, Failure, Outcome};
use crate::questions::{EdnsOption, Format as QuestionFormat, Questions, Style};
use crate::report::json::RunId;
use crate::report::{self, Way, csv, dnsperf, say};
use crate::sockets::{Plan, Transport, measure};
use crate::tally::Tally;
use crate::watch::{Show, Watch};
use clap::{Parser, ValueEnum};
use std::ffi::OsString;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Octets of answer that queries with EDNS ask for, as dnsperf has it.
const PAYLOAD_SIZE: u16 = 4096;

/// Sends DNS queries over kernel sockets, a new one for each answer, and matches every answer to its query.
#[derive(Debug, Parser)]
#[command(name = "floodgate sockets", version, args_override_self = true)]
pub(super) struct Command {
    /// The server: an address, or a name that has one
    #[arg(short = 's', value_name = "SERVER", default_value = "127.0.0.1")]
    server: String,
    /// The server's port
    #[arg(short = 'p', value_name = "PORT", default_value_t = 53, value_parser = clap::value_parser!(u16).range(1..))]
    port: u16,
    /// File of queries, a line each: `name type`; standard input without it
    #[arg(short = 'd', value_name = "FILE", default_value = "-")]
    datafile: PathBuf,
    /// The file has messages in wire format, each behind its length in two octets
    #[arg(short = 'B')]
    binary: bool,
    /// Send for so many seconds
    #[arg(short = 'l', value_name = "SECONDS", value_parser = seconds)]
    limit: Option<Duration>,
    /// Go through the file so often; once without -l
    #[arg(short = 'n', value_name = "RUNS", value_parser = clap::value_parser!(u64).range(1..))]
    runs: Option<u64>,
    /// Sockets to send from
    #[arg(short = 'c', value_name = "CLIENTS", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=65535))]
    clients: u32,
    /// Threads; no more than clients
    #[arg(short = 'T', value_name = "THREADS", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: u32,
    /// Queries that may wait for their answers at once
    #[arg(short = 'q', value_name = "QUERIES", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    outstanding: u32,
    /// Queries a second at most
    #[arg(short = 'Q', value_name = "QUERIES", value_parser = rate)]
    rate: Option<f64>,
    /// Seconds after which a query is given up
    #[arg(short = 't', value_name = "SECONDS", default_value = "5", value_parser = seconds)]
    timeout: Duration,
    /// All queries have EDNS
    #[arg(short = 'e', conflicts_with = "binary")]
    edns: bool,
    /// All queries have EDNS and DNSSEC OK
    #[arg(short = 'D', conflicts_with = "binary")]
    dnssec_ok: bool,
    /// All queries have this EDNS option
    #[arg(short = 'E', value_name = "CODE:HEX", value_parser = EdnsOption::from_text, conflicts_with = "binary")]
    edns_option: Option<EdnsOption>,
    /// Print answers a second, every so many seconds
    #[arg(short = 'S', value_name = "SECONDS", value_parser = seconds)]
    interval: Option<Duration>,
    /// Transport
    #[arg(short = 'm', value_enum, default_value = "udp")]
    mode: ModeWord,
    /// inet, inet6 or any
    #[arg(short = 'f', value_enum, default_value = "any")]
    family: FamilyWord,
    /// Send from this address
    #[arg(short = 'a', value_name = "ADDRESS")]
    local_address: Option<IpAddr>,
    /// Send from this port, and each further client from the next
    #[arg(short = 'x', value_name = "PORT", default_value_t = 0)]
    local_port: u16,
    /// Kilobytes of the sockets' buffers
    #[arg(short = 'b', value_name = "KILOBYTES", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    buffer: Option<u32>,
    /// Print a line for every query
    #[arg(short = 'v')]
    verbose: bool,
    /// Complaints go to standard output
    #[arg(short = 'W')]
    warnings_to_stdout: bool,
    /// num-queries-per-conn=NUMBER, suppress=MESSAGE[,MESSAGE]
    #[arg(short = 'O', value_name = "OPTION=VALUE")]
    options: Vec<String>,
    /// No progress line
    #[arg(long)]
    quiet: bool,
    /// Rates, latency and threads on the whole terminal while it runs
    #[arg(long, conflicts_with_all = ["quiet", "verbose"])]
    live: bool,
    /// File of what answers must say, a line each: `name type RCODE`, `name type RDATA` or `* RCODE`
    #[arg(long, value_name = "FILE")]
    expect: Option<PathBuf>,
    /// Print results as JSON, an object a line, instead of dnsperf's block
    #[arg(long, conflicts_with_all = ["csv", "verbose"])]
    json: bool,
    /// Print results as CSV instead
    #[arg(long, conflicts_with = "verbose")]
    csv: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum ModeWord {
    Udp,
    Tcp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum FamilyWord {
    Any,
    Inet,
    Inet6,
}

pub(super) fn run(name: &str, arguments: &[OsString]) -> Outcome<ExitCode> {
    let Some(command) = parse::<Command>("floodgate sockets", arguments)? else {
        return Ok(ExitCode::SUCCESS);
    };
    match command.run(name, arguments) {
        Err(failure) if command.warnings_to_stdout => {
            say(&format!("{failure}\n"));
            Ok(ExitCode::FAILURE)
        }
        other => other,
    }
}

impl Command {
    fn run(&self, name: &str, arguments: &[OsString]) -> Outcome<ExitCode> {
        let show = Show::of(self.quiet || self.verbose, self.live);
        let mut watch = Watch::new(show)?;
        let plan = self.plan()?;
        let mut questions = Questions::read(&self.datafile, self.question_format())?;
        if let Some(path) = &self.expect {
            questions.expect(&Expectations::read(path)?)?;
        }
        if self.json || self.csv {
            return self.run_for_programs(&plan, &questions, &mut watch);
        }
        let words: Vec<_> = arguments
            .iter()
            .map(|word| word.to_string_lossy())
            .collect();
        let command_line = format!("{name} {}", words.join(" "));
        let until = dnsperf::stopping(plan.limit, plan.runs);
        say(&dnsperf::status(&command_line, plan.server, &until));
        self.print_in_between(&mut watch);
        let measurement = measure(&plan, &questions, &mut watch)?;
        say(&dnsperf::measurement(&measurement));
        Ok(ExitCode::SUCCESS)
    }

    /// JSON or CSV, as of the other command.
    fn run_for_programs(
        &self,
        plan: &Plan,
        questions: &Questions,
        watch: &mut Watch,
    ) -> Outcome<ExitCode> {
        let id = RunId::new(match plan.transport {
            Transport::Udp => report::Transport::Udp,
            Transport::Tcp => report::Transport::Tcp,
        });
        let way = Way::KernelSockets {
            threads: plan.threads,
        };
        if self.json {
            say(&id.header(&way, self.timeout, self.interval));
            let lines = id.clone();
            let print =
                move |tally: &Tally, elapsed: Duration| say(&lines.periodic(tally, elapsed));
            watch.print_statistics(Box::new(print), self.interval);
        }
        let result = measure(plan, questions, watch)?.of_all_threads();
        say(&if self.json {
            id.summary(&result)
        } else {
            csv::measurement(&result)
        });
        Ok(ExitCode::SUCCESS)
    }

    fn plan(&self) -> Outcome<Plan> {
        Ok(Plan {
            server: self.resolve()?,
            transport: match self.mode {
                ModeWord::Udp => Transport::Udp,
                ModeWord::Tcp => Transport::Tcp,
            },
            clients: self.clients as usize,
            threads: self.threads.min(self.clients) as usize,
            outstanding: self.outstanding as usize,
            rate: self.rate,
            timeout: self.timeout,
            limit: self.limit,
            runs: self.runs.or(self.limit.is_none().then_some(1)),
            queries_per_connection: self.queries_per_connection()?,
            local_address: self.local_address,
            local_port: self.local_port,
            buffer_size: self.buffer.map(|kilobytes| kilobytes as usize * 1024),
            verbose: self.verbose,
        })
    }

    fn question_format(&self) -> QuestionFormat {
        if self.binary {
            return QuestionFormat::Binary;
        }
        let mut style = Style {
            payload_size: PAYLOAD_SIZE,
            edns: self.edns,
            dnssec_ok: self.dnssec_ok,
            edns_options: Vec::new(),
        };
        if let Some(option) = &self.edns_option {
            style.add_option(option);
        }
        QuestionFormat::Text(style)
    }

    /// The extended options: one means something here, one is for messages that we do not print.
    fn queries_per_connection(&self) -> Outcome<Option<u64>> {
        let mut limit = None;
        for option in &self.options {
            match option.split_once('=') {
                Some(("num-queries-per-conn", number)) => {
                    let number = number.parse().ok().filter(|number| *number > 0);
                    limit = Some(number.ok_or_else(|| {
                        Failure::new(format!("-O {option}: must be a number above 0"))
                    })?);
                }
                Some(("suppress", _)) => {}
                _ => {
                    return Err(Failure::new(format!(
                        "-O {option}: expected num-queries-per-conn=NUMBER or suppress=MESSAGE"
                    )));
                }
            }
        }
        Ok(limit)
    }

    /// The server's first address of the family that is wanted.
    fn resolve(&self) -> Outcome<SocketAddr> {
        let (server, family) = (&self.server, self.family);
        let mut found = (server.as_str(), self.port)
            .to_socket_addrs()
            .during(format!("looking up the server {server}"))?;
        let wanted = |address: &SocketAddr| match family {
            FamilyWord::Any => self
                .local_address
                .is_none_or(|local| local.is_ipv4() == address.is_ipv4()),
            FamilyWord::Inet => address.is_ipv4(),
            FamilyWord::Inet6 => address.is_ipv6(),
        };
        found.find(wanted).ok_or_else(|| {
            Failure::new(format!(
                "{server} has no address of the family that is wanted"
            ))
        })
    }

    fn print_in_between(&self, watch: &mut Watch) {
        let (mut answers, mut at) = (0, Duration::ZERO);
        let print = move |tally: &Tally, elapsed: Duration| {
            say(&dnsperf::interval(tally.right - answers, elapsed - at));
            (answers, at) = (tally.right, elapsed);
        };
        watch.print_statistics(Box::new(print), self.interval);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Outcome<Command> {
        let words: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
        parse::<Command>("floodgate sockets", &words)
            .map(|command| command.expect("no help asked for"))
    }

    fn plan(line: &str) -> Outcome<Plan> {
        parsed(line)?.plan()
    }

    #[test]
    fn published_command_lines_parse() {
        let plan = plan("-s 192.0.2.1 -p 5300 -d uniq.txt -c 500 -T 16").unwrap();
        assert_eq!(plan.server, "192.0.2.1:5300".parse().unwrap());
        assert_eq!(
            (plan.clients, plan.threads, plan.outstanding),
            (500, 16, 100)
        );
        assert_eq!((plan.limit, plan.runs), (None, Some(1)));
        for line in [
            "-s 192.0.2.1 -d f -l 10 -Q 1000 -t 2 -e -D -S 1 -m tcp -O num-queries-per-conn=5",
            "-s ::1 -d f -n 3 -q 1000 -a ::1 -x 20000 -b 512 -v -W -f inet6 -O suppress=timeouts,congestion",
        ] {
            parsed(line).unwrap().plan().unwrap();
        }
    }

    #[test]
    fn with_a_time_limit_the_file_is_read_as_often_as_needed() {
        assert_eq!(plan("-l 5").unwrap().runs, None);
        assert_eq!(plan("-l 5 -n 2").unwrap().runs, Some(2));
    }

    #[test]
    fn threads_without_a_client_are_not_started() {
        assert_eq!(plan("-c 2 -T 16").unwrap().threads, 2);
    }

    #[test]
    fn what_is_wrong_is_one_line_that_says_what_would_be_right() {
        for (line, part) in [
            ("-m dot", "possible values: udp, tcp"),
            ("-O doh-method=GET", "expected num-queries-per-conn=NUMBER"),
            ("-O num-queries-per-conn=0", "must be a number above 0"),
            ("-s 127.0.0.1 -f inet6", "no address of the family"),
            ("-c 0", "1..=65535"),
            ("-B -e", "cannot be used with"),
            ("-t never", "must be a number of seconds"),
        ] {
            let failure = plan(line).unwrap_err().to_string();
            assert!(failure.contains(part), "{line}: {failure}");
            assert_eq!(failure.lines().count(), 1, "{failure}");
        }
    }
}
