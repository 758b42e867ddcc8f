//! `floodgate sockets`: dnsperf's command line (its manual, versions 2.10 to 2.14), and what it lacks.

use super::parse;
use super::values::{count, rate, seconds, sources};
use crate::expected::Expectations;
use crate::failure::{During, Failure, Outcome};
use crate::pace::sleep_precisely;
use crate::path;
use crate::questions::{Carrier, EdnsOption, Format as QuestionFormat, Questions, Style};
use crate::report::json::RunId;
use crate::report::{self, Way, csv, dnsperf, say, say_table, tell, text};
use crate::shape::Shape;
use crate::sockets::{OUTSTANDING_MAX, Plan, Transport, measure};
use crate::tally::Tally;
use crate::watch::{Part, Show, Watch};
use clap::{Parser, ValueEnum};
use std::ffi::OsString;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use wire::frame::Family;
use xsk::Sources;

/// Octets of answer that queries with EDNS ask for, as dnsperf has it.
const PAYLOAD_SIZE: u16 = 4096;

/// Sends DNS queries over kernel sockets, a new one for each answer, and matches every answer to its query.
#[derive(Debug, Parser)]
#[command(name = "floodgate sockets", version, args_override_self = true)]
pub(super) struct Command {
    /// The server: an address, or a name that has one; several, each behind a -s of its own, are asked evenly
    #[arg(short = 's', value_name = "SERVER", default_value = "127.0.0.1", action = clap::ArgAction::Append)]
    servers: Vec<String>,
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
    #[arg(short = 'n', value_name = "RUNS", value_parser = count)]
    runs: Option<u64>,
    /// Sockets to send from, at least one for each server [default: that]
    #[arg(short = 'c', value_name = "CLIENTS", value_parser = clap::value_parser!(u32).range(1..=65535))]
    clients: Option<u32>,
    /// Threads; no more than clients
    #[arg(short = 'T', value_name = "THREADS", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: u32,
    /// Queries that may wait for their answers at once, all threads together; of each thread 65536 at most
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
    /// A client's cookie in every query, 16 hexadecimal digits
    #[arg(long, value_name = "HEX", value_parser = EdnsOption::cookie, conflicts_with = "binary")]
    cookie: Option<EdnsOption>,
    /// A client subnet in every query
    #[arg(long, value_name = "NETWORK", value_parser = EdnsOption::client_subnet, conflicts_with = "binary")]
    ecs: Option<EdnsOption>,
    /// How the rate changes, with -Q and -l: constant, ramp:FROM, burst:SECONDS,PART, sine:SECONDS,DEPTH
    #[arg(long, value_name = "SHAPE", default_value = "constant", value_parser = Shape::from_text)]
    shape: Shape,
    /// Print answers a second, every so many seconds
    #[arg(short = 'S', value_name = "SECONDS", value_parser = seconds)]
    interval: Option<Duration>,
    /// Transport
    #[arg(short = 'm', value_enum, default_value = "udp")]
    mode: ModeWord,
    /// inet, inet6 or any
    #[arg(short = 'f', value_enum, default_value = "any")]
    family: FamilyWord,
    /// Send from this address, or each client from the next one of this network
    #[arg(short = 'a', value_name = "ADDRESS[/PREFIX]", value_parser = sources)]
    local: Option<Sources>,
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
    /// num-queries-per-conn=NUMBER, latency-histogram, verbose-interval-stats, suppress=MESSAGE[,MESSAGE]
    #[arg(short = 'O', value_name = "OPTION=VALUE")]
    options: Vec<String>,
    /// Print what -O takes
    #[arg(short = 'H')]
    list_options: bool,
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

/// What `-H` prints.
const LONG_OPTIONS: &str = "\
Long options, -O OPTION=VALUE:
  num-queries-per-conn=NUMBER  queries of one TCP connection, before the next is opened
  latency-histogram            how many latencies are in each bucket
  verbose-interval-stats       with -S: a block instead of a line
  suppress=MESSAGE[,MESSAGE]   no effect: none of dnsperf's messages is printed
  qps-threshold-wait=NUMBER    no effect
";

pub(super) fn run(name: &str, arguments: &[OsString]) -> Outcome<ExitCode> {
    // Scripts take dnsperf's version from its help.
    if name == "dnsperf" && arguments.iter().any(|word| word == "-h") {
        say(dnsperf::BANNER);
    }
    let Some(command) = parse::<Command>("floodgate sockets", arguments)? else {
        return Ok(ExitCode::SUCCESS);
    };
    if command.list_options {
        say(&format!("{}{LONG_OPTIONS}", dnsperf::BANNER));
        return Ok(ExitCode::SUCCESS);
    }
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
        let plan = self.plan()?;
        let long = LongOptions::read(&self.options)?;
        let mut questions = Questions::read(&self.datafile, self.question_format(&plan))?;
        let lines = [
            (questions.left_out(), "left out as no query"),
            (questions.shortened(), "asked without flags"),
        ];
        for (found, what) in lines {
            let Some((count, first)) = found else {
                continue;
            };
            let file = self.datafile.display();
            let plural = if count == 1 { "" } else { "s" };
            self.warn(&format!(
                "{file}: {count} line{plural} {what}, first {first}"
            ));
        }
        if let Some(path) = &self.expect {
            let expectations = Expectations::read(path)?;
            questions.expect(&expectations).during(path.display())?;
        }
        // Behind what may wait for standard input, which Ctrl-C ends as it ends any program; before the first thread.
        let show = Show::of(self.quiet || self.verbose, self.live);
        let mut watch = Watch::new(show)?;
        sleep_precisely()?;
        if self.json || self.csv {
            return self.run_for_programs(&plan, &questions, &mut watch);
        }
        let words: Vec<_> = arguments
            .iter()
            .map(|word| word.to_string_lossy())
            .collect();
        let command_line = format!("{name} {}", words.join(" "));
        let until = dnsperf::stopping(plan.limit, plan.runs);
        say(&dnsperf::status(&command_line, &plan.servers, &until));
        self.print_in_between(&mut watch, long);
        let measurement = measure(&plan, &questions, &mut watch)?;
        say(&dnsperf::measurement(&measurement, long.latency_histogram));
        measurement.failure.map_or(Ok(ExitCode::SUCCESS), Err)
    }

    /// A complaint that does not end the run.
    fn warn(&self, what: &str) {
        let line = format!("Warning: {what}\n");
        if self.warnings_to_stdout {
            say(&line);
        } else {
            tell(&line);
        }
    }

    /// JSON or CSV, as of the other command.
    fn run_for_programs(
        &self,
        plan: &Plan,
        questions: &Questions,
        watch: &mut Watch,
    ) -> Outcome<ExitCode> {
        let transport = match plan.transport {
            Transport::Udp => report::Transport::Udp,
            Transport::Tcp => report::Transport::Tcp,
        };
        let id = RunId::new(transport);
        let way = Way::KernelSockets {
            threads: plan.threads,
            transport,
        };
        if self.json {
            say(&id.header(&way, self.timeout, self.interval));
            let lines = id.clone();
            let print = move |tally: &Tally, part: Part| say(&lines.periodic(tally, part, false));
            watch.print_statistics(Box::new(print), self.interval);
        } else {
            tell(&text::header(&way));
        }
        let result = measure(plan, questions, watch)?.of_all_threads();
        if self.json {
            say(&id.summary(&result));
        } else {
            say_table(&csv::measurement(&result, &way), &result.limits);
        }
        result.failure.map_or(Ok(ExitCode::SUCCESS), Err)
    }

    fn plan(&self) -> Outcome<Plan> {
        let servers = self.resolve_all()?;
        let clients = self
            .clients
            .map_or(servers.len(), |clients| clients as usize);
        if clients < servers.len() {
            return Err(Failure::new(format!(
                "-c {clients}: fewer sockets than servers, each of which needs one: at least {}",
                servers.len()
            )));
        }
        if self.shape != Shape::Constant && (self.rate.is_none() || self.limit.is_none()) {
            return Err(Failure::new(
                "--shape needs a rate and a time: -Q QUERIES -l SECONDS",
            ));
        }
        let outstanding = self.outstanding as usize;
        // One without a client, or without a query that it may send, has nothing to do.
        let threads = clients.min(self.threads as usize).min(outstanding);
        self.check_outstanding(threads)?;
        Ok(Plan {
            servers,
            transport: match self.mode {
                ModeWord::Udp => Transport::Udp,
                ModeWord::Tcp => Transport::Tcp,
            },
            clients,
            threads,
            outstanding,
            rate: self.rate,
            shape: self.shape,
            timeout: self.timeout,
            limit: self.limit,
            runs: self.runs.or(self.limit.is_none().then_some(1)),
            queries_per_connection: LongOptions::read(&self.options)?.queries_per_connection,
            local: self.local,
            local_port: self.local_port,
            buffer_size: self.buffer.map(|kilobytes| kilobytes as usize * 1024),
            verbose: self.verbose,
        })
    }

    /// Fails where a thread would need more message IDs than there are.
    fn check_outstanding(&self, threads: usize) -> Outcome<()> {
        let needed = (self.outstanding as usize).div_ceil(OUTSTANDING_MAX);
        if needed <= threads {
            return Ok(());
        }
        Err(Failure::new(format!(
            "-q {}: of each thread {OUTSTANDING_MAX} queries can wait, as many as there are message IDs: {} at most, or {needed} \
             threads (-T) with a client each (-c)",
            self.outstanding,
            threads * OUTSTANDING_MAX
        )))
    }

    fn question_format(&self, plan: &Plan) -> QuestionFormat {
        if self.binary {
            return QuestionFormat::Binary(match plan.transport {
                // Each query may go to any server: IPv4 has room for less.
                Transport::Udp => {
                    Carrier::Datagram(match plan.servers.iter().any(SocketAddr::is_ipv4) {
                        true => Family::V4,
                        false => Family::V6,
                    })
                }
                Transport::Tcp => Carrier::Stream,
            });
        }
        let mut style = Style {
            payload_size: PAYLOAD_SIZE,
            edns: self.edns,
            dnssec_ok: self.dnssec_ok,
            edns_options: Vec::new(),
        };
        let options = [&self.edns_option, &self.cookie, &self.ecs];
        for option in options.into_iter().flatten() {
            style.add_option(option.clone());
        }
        QuestionFormat::TextThatIsRight(style)
    }

    fn resolve_all(&self) -> Outcome<Vec<SocketAddr>> {
        let servers = self.servers.iter().map(|server| self.resolve(server));
        servers.collect()
    }

    /// The server's first address of the family that is wanted.
    fn resolve(&self, server: &str) -> Outcome<SocketAddr> {
        path::check_plain(server)?;
        let mut found = (server, self.port)
            .to_socket_addrs()
            .during(format!("looking up the server {server}"))?;
        let wanted = |address: &SocketAddr| match self.family {
            FamilyWord::Any => self
                .local
                .is_none_or(|local| local.address.is_ipv4() == address.is_ipv4()),
            FamilyWord::Inet => address.is_ipv4(),
            FamilyWord::Inet6 => address.is_ipv6(),
        };
        let found = found.find(wanted).ok_or_else(|| {
            Failure::new(format!(
                "{server} has no address of the family that is wanted"
            ))
        })?;
        path::check_scope(found).map(|()| found)
    }

    fn print_in_between(&self, watch: &mut Watch, long: LongOptions) {
        let print = move |tally: &Tally, part: Part| {
            say(&if long.verbose_interval_stats {
                dnsperf::statistics(tally, part, long.latency_histogram)
            } else {
                dnsperf::interval(tally, part)
            });
        };
        watch.print_statistics(Box::new(print), self.interval);
    }
}

/// Messages that dnsperf prints unless told not to (its manual, `suppress`), and we do not. It takes their beginnings, too.
const MESSAGES: [&str; 5] = [
    "timeouts",
    "congestion",
    "sendfailed",
    "sockready",
    "unexpected",
];

/// dnsperf's extended options.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct LongOptions {
    queries_per_connection: Option<u64>,
    latency_histogram: bool,
    verbose_interval_stats: bool,
}

impl LongOptions {
    /// Reads `-O OPTION=VALUE`, the last of each kind counting. Some are about messages that we do not print, or about how
    /// dnsperf waits.
    fn read(options: &[String]) -> Outcome<LongOptions> {
        let mut read = LongOptions::default();
        for option in options {
            let (name, value) = option.split_once('=').unwrap_or((option, ""));
            match (name, value) {
                ("num-queries-per-conn", number) => {
                    let number = number.parse().ok().filter(|number| *number > 0);
                    read.queries_per_connection = Some(number.ok_or_else(|| {
                        Failure::new(format!("-O {option}: must be a number above 0"))
                    })?);
                }
                ("latency-histogram", "") => read.latency_histogram = true,
                ("verbose-interval-stats", "") => read.verbose_interval_stats = true,
                ("suppress", messages) if messages.split(',').all(is_message) => {}
                ("qps-threshold-wait", microseconds) if microseconds.parse::<u64>().is_ok() => {}
                _ => {
                    return Err(Failure::new(format!(
                        "-O {option}: expected num-queries-per-conn=NUMBER, latency-histogram, verbose-interval-stats, \
                         qps-threshold-wait=NUMBER or suppress= with any of {}",
                        MESSAGES.join(",")
                    )));
                }
            }
        }
        Ok(read)
    }
}

/// Whether it names one of the messages, or begins to.
fn is_message(word: &str) -> bool {
    !word.is_empty() && MESSAGES.iter().any(|message| message.starts_with(word))
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
        assert_eq!(plan.servers, ["192.0.2.1:5300".parse().unwrap()]);
        assert_eq!(
            (plan.clients, plan.threads, plan.outstanding),
            (500, 16, 100)
        );
        assert_eq!((plan.limit, plan.runs), (None, Some(1)));
        for line in [
            "-s 192.0.2.1 -d f -l 10 -Q 1000 -t 2 -e -D -S 1 -m tcp -O num-queries-per-conn=5",
            "-s 127.0.0.1 -d f -l 5 -S 1 -O latency-histogram -O verbose-interval-stats -O qps-threshold-wait=0",
            "-s 192.0.2.1 -d f -c 5 -l 180 -Q 100 -S 1 -O suppress=timeout,unexpected",
            "-s ::1 -d f -n 3 -q 1000 -a ::1 -x 20000 -b 512 -v -W -f inet6 -O suppress=timeouts,congestion",
        ] {
            parsed(line).unwrap().plan().unwrap();
        }
    }

    #[test]
    fn options_are_read_as_getopt_reads_them() {
        let plan = plan("-s192.0.2.1 -p53 -p5300 -Q100 -eDl2.5 -c 3 -c4").unwrap();
        assert_eq!(plan.servers, ["192.0.2.1:5300".parse().unwrap()]);
        assert_eq!((plan.rate, plan.clients), (Some(100.0), 4));
        assert_eq!(plan.limit, Some(Duration::from_millis(2500)));
        // The loopback interface is the first one everywhere.
        let scoped = parsed("-s fe80::1%lo").unwrap().plan().unwrap();
        assert_eq!(path::scope_of(scoped.servers[0]), 1);
    }

    #[test]
    fn questions_are_written_as_the_options_say() {
        let format = |line: &str| {
            let command = parsed(line).unwrap();
            command.question_format(&command.plan().unwrap())
        };
        let style = || Style {
            payload_size: 4096,
            ..Style::default()
        };
        assert_eq!(format(""), QuestionFormat::TextThatIsRight(style()));
        let with_edns = Style {
            edns: true,
            ..style()
        };
        assert_eq!(
            format("-e"),
            QuestionFormat::TextThatIsRight(with_edns.clone())
        );
        let secure = Style {
            dnssec_ok: true,
            ..style()
        };
        assert_eq!(format("-D"), QuestionFormat::TextThatIsRight(secure));
        // In this order, whatever that of the options is: -E; a cookie (RFC 7873 §4, option 10); a client's network
        // (RFC 7871 §6, option 8).
        let mut with_options = with_edns;
        let option = |code, value: &[u8]| EdnsOption {
            code,
            value: value.to_vec(),
        };
        with_options.edns_options = vec![option(65001, b"\x01\x02")];
        let line = "-E 65001:0102";
        assert_eq!(
            format(line),
            QuestionFormat::TextThatIsRight(with_options.clone())
        );
        let cookie = option(10, b"\x01\x02\x03\x04\x05\x06\x07\x08");
        let network = option(8, b"\0\x01\x18\0\xc0\0\x02");
        with_options.edns_options.extend([cookie, network]);
        let line = "--ecs 192.0.2.0/24 --cookie 0102030405060708 -E 65001:0102";
        assert_eq!(format(line), QuestionFormat::TextThatIsRight(with_options));
        for (line, carrier) in [
            ("-B -s 192.0.2.1", Carrier::Datagram(Family::V4)),
            ("-B -s ::1", Carrier::Datagram(Family::V6)),
            ("-B -s ::1 -s 192.0.2.1", Carrier::Datagram(Family::V4)),
            ("-B -m tcp", Carrier::Stream),
        ] {
            assert_eq!(format(line), QuestionFormat::Binary(carrier), "{line}");
        }
    }

    #[test]
    fn several_servers_have_a_socket_each_at_least() {
        let several = plan("-s 192.0.2.1 -s 192.0.2.2 -s 192.0.2.3 -p 5300").unwrap();
        let addresses: Vec<_> = several.servers.iter().map(SocketAddr::ip).collect();
        assert_eq!(addresses.len(), 3);
        assert_eq!((several.clients, several.threads), (3, 1));
        assert_eq!(plan("-s ::1 -s ::2 -c 9").unwrap().clients, 9);
        let both = plan("-s 192.0.2.1 -s 2001:db8::1").unwrap();
        let versions: Vec<bool> = both.servers.iter().map(SocketAddr::is_ipv4).collect();
        assert_eq!((versions, both.clients), (vec![true, false], 2));
        assert_eq!(plan("").unwrap().servers, ["127.0.0.1:53".parse().unwrap()]);
    }

    #[test]
    fn with_a_time_limit_the_file_is_read_as_often_as_needed() {
        assert_eq!(plan("-l 5").unwrap().runs, None);
        assert_eq!(plan("-l 5 -n 2").unwrap().runs, Some(2));
    }

    #[test]
    fn behind_the_time_limit_nothing_is_sent() {
        let second = Duration::from_secs(1);
        let sending = |line: &str| plan(line).unwrap().sending(7 * second);
        assert_eq!(sending("-l 5"), 5 * second);
        assert_eq!(sending("-l 9 -n 1"), 7 * second);
        assert_eq!(sending(""), 7 * second);
    }

    #[test]
    fn threads_without_a_client_are_not_started() {
        assert_eq!(plan("-c 2 -T 16").unwrap().threads, 2);
        assert_eq!(plan("-c 16 -T 16 -q 3").unwrap().threads, 3);
        let most = plan("-c 2 -T 2 -q 131072").unwrap();
        assert_eq!((most.threads, most.outstanding), (2, 131_072));
    }

    #[test]
    fn what_is_wrong_is_one_line_that_says_what_would_be_right() {
        for (line, part) in [
            ("-m dot", "possible values: udp, tcp"),
            ("-O doh-method=GET", "expected num-queries-per-conn=NUMBER"),
            ("-O num-queries-per-conn=0", "must be a number above 0"),
            ("-s 127.0.0.1 -f inet6", "no address of the family"),
            // -a and -f are of one version of IP.
            ("-s 127.0.0.1 -s ::1 -f inet", "::1 has no address of the"),
            ("-s 127.0.0.1 -s ::1 -a ::1", "127.0.0.1 has no address of"),
            ("-s 192.0.2.1 -s 192.0.2.2 -c 1", "at least 2"),
            ("--shape ramp:0", "-Q QUERIES -l SECONDS"),
            ("-a 127.0.0.1/33", "must be 0 to 32"),
            ("-c 0", "1..=65535"),
            ("-q 65537", "65536 at most, or 2 threads (-T)"),
            ("-q 200000 -T 4 -c 3", "196608 at most, or 4 threads"),
            ("-B -e", "cannot be used with"),
            ("-t never", "must be a number of seconds"),
            ("-u", "-u: dynamic updates are not there"),
            ("-y hmac-sha256:key:c2VjcmV0", "-y: TSIG is not there"),
            ("-O suppress=all", "with any of timeouts,congestion"),
            ("-O suppress=timeouts,", "with any of timeouts"),
            ("-s fe80::1", "say which one is meant, such as fe80::1%eth0"),
            ("-s 192.0.2.1 here", "unexpected argument 'here'"),
        ] {
            let failure = plan(line).unwrap_err().to_string();
            assert!(failure.contains(part), "{line}: {failure}");
            assert_eq!(failure.lines().count(), 1, "{failure}");
        }
    }
}
