//! `floodgate xdp`: kxdpgun's command line (its manual, versions 3.2 to 3.5), and what it lacks.

use super::parse;
use super::values::{affinity, count, mac, ports, rate, seconds, sources};
use crate::connections;
use crate::expected::Expectations;
use crate::failure::{During, Failure, Outcome};
use crate::pace::sleep_precisely;
use crate::path;
use crate::questions::{Carrier, EdnsOption, Format as QuestionFormat, Questions, Style};
use crate::ramp::{self, HIGHEST, RampPlan};
use crate::report::json::RunId;
use crate::report::{Format, Transport, Way, csv, say, say_table, tell, text};
use crate::search::{QUERIES, least_rate};
use crate::shape::Shape;
use crate::tally::Tally;
use crate::watch::{Part, Show, Watch};
use crate::xdp::{Affinity, Generator, Measurement, Mode, Plan, Wake};
use clap::{Parser, ValueEnum};
use std::ffi::OsString;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use wire::frame::{Family, Mac};
use xsk::Sources;

/// Sends DNS queries over AF_XDP at a given rate, whatever comes back, and matches every answer to its query.
#[derive(Debug, Parser)]
#[command(
    name = "floodgate xdp",
    version,
    disable_version_flag = true,
    args_override_self = true
)]
pub(super) struct Command {
    /// How long to send, in seconds
    #[arg(short = 't', long, value_name = "SECONDS", default_value = "5", value_parser = seconds)]
    duration: Duration,
    /// Queries a second, all threads together
    #[arg(short = 'Q', long, value_name = "QUERIES", default_value = "1000", value_parser = rate)]
    qps: f64,
    #[arg(short = 'b', long, value_name = "SIZE", help = "Queries sent at once [default: 10, with -T 1, with --ramp fewer at low rates]", value_parser = clap::value_parser!(u32).range(1..=1024))]
    batch: Option<u32>,
    /// A connection by kernel sockets for every query, over TCP
    #[arg(short = 'T', long, value_name = "MODE", num_args = 0..=1, require_equals = true, default_missing_value = "plain", value_enum)]
    tcp: Option<TcpWord>,
    /// Throw answers away unread: more queries a second, no statistics of answers
    #[arg(short = 'r', long)]
    drop: bool,
    /// The server's port
    #[arg(short = 'p', long, value_name = "NUMBER", default_value_t = 53, value_parser = clap::value_parser!(u16).range(1..))]
    port: u16,
    #[arg(short = 'F', long, value_name = "[START][sSTEP]", help = "CPUs of the threads: the first, and from each to the next [default: 0s1, as far as there are CPUs]", value_parser = affinity)]
    affinity: Option<Affinity>,
    /// File of queries, a line each: `name type [E|D]`, and for single queries edns=SIZE, cookie=HEX, ecs=NETWORK,
    /// option=CODE:HEX; `-` is standard input
    #[arg(short = 'i', long, value_name = "FILE")]
    infile: PathBuf,
    /// The file has messages in wire format, each behind its length in two octets
    #[arg(short = 'B', long)]
    binary: bool,
    /// Send from this interface instead of the route's
    #[arg(short = 'I', long, value_name = "NAME")]
    interface: Option<String>,
    /// Send from this address, or evenly from all of this network (with -T: addresses of this machine)
    #[arg(short = 'l', long, value_name = "ADDRESS[/PREFIX]", value_parser = sources)]
    local: Option<Sources>,
    /// Our MAC address instead of the interface's
    #[arg(short = 'L', long = "local-mac", visible_alias = "mac-local", value_name = "MAC", value_parser = mac)]
    local_mac: Option<Mac>,
    /// The next hop's MAC address instead of the kernel's
    #[arg(short = 'R', long = "remote-mac", visible_alias = "mac-remote", value_name = "MAC", value_parser = mac)]
    remote_mac: Option<Mac>,
    /// Tag frames with this VLAN, and take answers with this tag (`ethtool -K IF rxvlan off` leaves tags in received frames)
    #[arg(short = 'v', long, value_name = "ID", value_parser = clap::value_parser!(u16).range(1..=4094))]
    vlan: Option<u16>,
    /// Largest answer over UDP that queries with EDNS ask for, in octets: 512 to 4096 (edns=SIZE in the file: any)
    #[arg(
        short = 'e',
        long = "edns-size",
        value_name = "SIZE",
        default_value_t = 1232,
        value_parser = clap::value_parser!(u16).range(512..=4096)
    )]
    edns_size: u16,
    /// A client's cookie in every query, 16 hexadecimal digits
    #[arg(long, value_name = "HEX", value_parser = EdnsOption::cookie, conflicts_with = "binary")]
    cookie: Option<EdnsOption>,
    /// A client subnet in every query
    #[arg(long, value_name = "NETWORK", value_parser = EdnsOption::client_subnet, conflicts_with = "binary")]
    ecs: Option<EdnsOption>,
    /// auto: native and zero-copy where possible; copy: native, copying; generic: in the kernel's stack
    #[arg(short = 'm', long, value_enum, default_value = "auto")]
    mode: ModeWord,
    /// Print results as JSON, an object a line
    #[arg(short = 'j', long, conflicts_with = "csv")]
    json: bool,
    /// Print results as CSV
    #[arg(long)]
    csv: bool,
    /// Print statistics every so many milliseconds, of that time alone (SIGUSR1: of the run so far)
    #[arg(short = 'S', long = "stats-period", value_name = "MILLISECONDS", value_parser = count)]
    stats_period: Option<u64>,
    /// No progress line
    #[arg(short = 'q', long)]
    quiet: bool,
    /// Rates, latency and queues on the whole terminal while it runs
    #[arg(long, conflicts_with = "quiet")]
    live: bool,
    /// File of what answers must say, a line each: `name type RCODE`, `name type RDATA` or `* RCODE`
    #[arg(long, value_name = "FILE", conflicts_with = "drop")]
    expect: Option<PathBuf>,
    /// An answer that takes longer is late, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = seconds)]
    late: Duration,
    /// Give queries up that are so late to be sent, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "0.1", value_parser = seconds)]
    patience: Duration,
    /// Ports to send from; only answers to these are taken
    #[arg(long, value_name = "FIRST-LAST", default_value = "16384-20479", value_parser = ports)]
    source_ports: RangeInclusive<u16>,
    /// Find the highest rate of which 99 % is answered right (R99), and the highest without loss (not with `=r99`); -Q is
    /// where to start, -t how long to hold each rate
    #[arg(long, value_name = "r99|all", num_args = 0..=1, require_equals = true, default_missing_value = "all", value_enum, conflicts_with = "drop")]
    ramp: Option<RampWord>,
    /// With --ramp: search so often, and take the median
    #[arg(long, value_name = "TIMES", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..), requires = "ramp")]
    repeat: u32,
    /// With --ramp: the highest rate to try
    #[arg(long, value_name = "QUERIES", default_value_t = HIGHEST, value_parser = rate, requires = "ramp")]
    highest: f64,
    /// How the rate changes: constant, ramp:FROM, burst:SECONDS,PART, sine:SECONDS,DEPTH
    #[arg(long, value_name = "SHAPE", default_value = "constant", value_parser = Shape::from_text, conflicts_with = "ramp")]
    shape: Shape,
    /// What ends a sleep between two batches. answers: they and the schedule; schedule: it alone, for costs that do not depend on
    /// whether the generator sleeps (latencies come out longer, by a batch's interval or 2 ms at most); never: no sleep, a
    /// whole CPU
    #[arg(long, value_enum, default_value = "answers")]
    wake: Wake,
    /// Print the version
    #[arg(short = 'V', long, action = clap::ArgAction::Version)]
    version: Option<bool>,
    /// The server: an address, or a name that has one; several are asked evenly
    #[arg(required = true, value_name = "TARGET")]
    targets: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum RampWord {
    R99,
    All,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum TcpWord {
    Plain,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum ModeWord {
    Auto,
    Copy,
    Generic,
}

pub(super) fn run(arguments: &[OsString]) -> Outcome<ExitCode> {
    let Some(command) = parse::<Command>("floodgate xdp", arguments)? else {
        return Ok(ExitCode::SUCCESS);
    };
    let mut questions = Questions::read(&command.infile, command.question_format())?;
    if let Some(path) = &command.expect {
        let expectations = Expectations::read(path)?;
        questions.expect(&expectations).during(path.display())?;
    }
    // Behind what may wait for standard input, which Ctrl-C ends as it ends any program; before the first thread, as threads
    // inherit which signals are blocked.
    let mut watch = Watch::new(Show::of(command.quiet, command.live))?;
    if command.drop {
        watch.leave_answers_out();
    }
    sleep_precisely()?;
    if command.tcp.is_some() {
        command.run_tcp(&questions, &mut watch)?;
        return Ok(ExitCode::SUCCESS);
    }
    let highest = if command.ramp.is_some() {
        command.check_highest()?;
        command.highest
    } else {
        command.qps
    };
    let mut generator = Generator::new(command.plan()?, questions, highest)?;
    let id = RunId::new(Transport::Udp);
    let way = Way::Xdp(generator.description()?);
    command.say_header(&id, &way);
    if command.ramp.is_some() {
        command.run_ramp(&mut generator, &mut watch, (&id, &way))?;
    } else {
        command.run_once(&mut generator, &mut watch, (&id, &way))?;
    }
    Ok(ExitCode::SUCCESS)
}

impl Command {
    fn run_once(
        &self,
        generator: &mut Generator,
        watch: &mut Watch,
        (id, way): (&RunId, &Way),
    ) -> Outcome<()> {
        self.print_in_between(watch, id);
        let measurement = generator.measure(self.qps, self.duration, watch)?;
        self.say_result((id, way), &measurement, generator.mean_headers_length());
        measurement.failure.map_or(Ok(()), Err)
    }

    fn run_tcp(&self, questions: &Questions, watch: &mut Watch) -> Outcome<()> {
        connections::refuse(&[
            ("-v", self.vlan.is_some()),
            ("-I", self.interface.is_some()),
            ("-L", self.local_mac.is_some()),
            ("-R", self.remote_mac.is_some()),
            ("--ramp", self.ramp.is_some()),
            ("more than one target", self.targets.len() > 1),
        ])?;
        let plan = connections::Plan {
            target: resolve(&self.targets[0], self.port, self.local)?,
            sources: self.local,
            batch: self.batch.unwrap_or(1),
            late_after: self.late,
            patience: self.patience,
            shape: self.shape,
            drop: self.drop,
        };
        path::check_scope(plan.target)?;
        plan.check_sources()?;
        let id = RunId::new(Transport::Tcp);
        let way = Way::KernelSockets {
            threads: 1,
            transport: Transport::Tcp,
        };
        self.say_header(&id, &way);
        self.print_in_between(watch, &id);
        let load = (self.qps, self.duration);
        let measurement = connections::measure(&plan, questions, load, watch)?;
        let headers = tcp_headers_length(plan.target);
        self.say_result((&id, &way), &measurement, headers);
        measurement.failure.map_or(Ok(()), Err)
    }

    fn say_header(&self, id: &RunId, way: &Way) {
        match self.format() {
            Format::Text => say(&text::header(way)),
            Format::Json => {
                let period = self.stats_period.map(Duration::from_millis);
                say(&id.header(way, self.late, period));
            }
            Format::Csv => tell(&text::header(way)),
        }
    }

    fn say_result(&self, (id, way): (&RunId, &Way), measurement: &Measurement, headers: usize) {
        match self.format() {
            Format::Text => say(&text::measurement(measurement, headers)),
            Format::Json => say(&id.summary(measurement)),
            Format::Csv => say_table(&csv::measurement(measurement, way), measurement.sentences()),
        }
    }

    fn run_ramp(
        &self,
        generator: &mut Generator,
        watch: &mut Watch,
        (id, way): (&RunId, &Way),
    ) -> Outcome<()> {
        let plan = RampPlan {
            start: self.qps,
            highest: self.highest,
            duration: self.duration,
            repeats: self.repeat,
            loss_free: self.ramp == Some(RampWord::All),
        };
        let format = self.format();
        let ramp = ramp::run(generator, plan, watch, |probe, measurement| {
            say(&match format {
                Format::Text => text::probe(probe, measurement),
                Format::Json => id.probe(probe, measurement),
                Format::Csv => String::new(),
            });
        })?;
        match format {
            Format::Text => say(&text::ramp(&ramp)),
            Format::Json => say(&id.ramp(&ramp)),
            Format::Csv => say_table(&csv::ramp(&ramp, way), ramp.limit()),
        }
        ramp.failure.map_or(Ok(()), Err)
    }

    /// Whether there is a rate that a ramp can try.
    fn check_highest(&self) -> Outcome<()> {
        let seconds = self.duration.as_secs_f64();
        let least = least_rate(seconds);
        if self.highest >= least {
            return Ok(());
        }
        Err(Failure::new(format!(
            "--highest {}: below {least:.0} queries a second, {seconds} s (-t) have too few queries to tell one lost in a hundred: \
             a higher rate, or -t {:.0} or more",
            self.highest,
            (QUERIES / self.highest).ceil()
        )))
    }

    fn plan(&self) -> Outcome<Plan> {
        Ok(Plan {
            targets: self.resolve_all()?,
            interface: self.interface.clone(),
            sources: self.local,
            local_mac: self.local_mac,
            remote_mac: self.remote_mac,
            vlan: self.vlan,
            ports: self.source_ports.clone(),
            mode: match self.mode {
                ModeWord::Auto => Mode::Auto,
                ModeWord::Copy => Mode::Copy,
                ModeWord::Generic => Mode::Generic,
            },
            drop: self.drop,
            batch: self.batch,
            evenly: self.ramp.is_some(),
            affinity: self.affinity,
            late_after: self.late,
            patience: self.patience,
            shape: self.shape,
            wake: self.wake,
        })
    }

    fn resolve_all(&self) -> Outcome<Vec<SocketAddr>> {
        let resolve = |target: &String| resolve(target, self.port, self.local);
        self.targets.iter().map(resolve).collect()
    }

    fn question_format(&self) -> QuestionFormat {
        if self.binary {
            return QuestionFormat::Binary(match self.tcp {
                Some(_) => Carrier::Stream,
                None => Carrier::Frame,
            });
        }
        let mut style = Style {
            payload_size: self.edns_size,
            ..Style::default()
        };
        for option in self.cookie.iter().chain(&self.ecs) {
            style.add_option(option.clone());
        }
        QuestionFormat::Text(style)
    }

    fn format(&self) -> Format {
        match (self.json, self.csv) {
            (true, _) => Format::Json,
            (_, true) => Format::Csv,
            _ => Format::Text,
        }
    }

    /// Statistics in between; none as CSV, whose lines are all of one kind.
    fn print_in_between(&self, watch: &mut Watch, id: &RunId) {
        if self.csv {
            return;
        }
        let period = self.stats_period.map(Duration::from_millis);
        let (json, drop, id) = (self.json, self.drop, id.clone());
        let print = move |tally: &Tally, part: Part| {
            say(&if json {
                id.periodic(tally, part, drop)
            } else {
                text::periodic(tally, part, drop)
            });
        };
        watch.print_statistics(Box::new(print), period);
    }
}

/// Ethernet, IP and TCP, 20 octets (RFC 9293 §3.1); what an answer's frames hold besides is not known here.
fn tcp_headers_length(target: SocketAddr) -> usize {
    const UDP: usize = 8;
    const TCP: usize = 20;
    Family::of(&target).headers_length() - UDP + TCP
}

/// An address, or the first address of a name that is of the same version of IP as the source.
fn resolve(target: &str, port: u16, sources: Option<Sources>) -> Outcome<SocketAddr> {
    if let Ok(address) = target.parse::<IpAddr>() {
        return Ok(SocketAddr::new(address, port));
    }
    path::check_plain(target)?;
    let mut found = (target, port)
        .to_socket_addrs()
        .during(format!("looking up the target {target}"))?;
    found
        .find(|address| sources.is_none_or(|own| own.address.is_ipv4() == address.is_ipv4()))
        .ok_or_else(|| Failure::new(format!("{target} has no address that we could send to")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Outcome<Command> {
        let words: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
        parse::<Command>("floodgate xdp", &words).map(|command| command.expect("no help asked for"))
    }

    fn failure(line: &str) -> String {
        parsed(line).unwrap_err().to_string()
    }

    #[test]
    fn the_manuals_examples_parse() {
        for line in [
            "-i queries.txt 2001:DB8::1",
            "-t 20 -Q 1000000 -i queries.txt -b 20 -p 8853 192.0.2.1",
            "-Q 2500000 -p 53 -i random_1M 192.0.2.1 -t 60",
            "-t 120 -Q 6000000 -i queries.txt -b 5 -r -p 8853 192.168.101.2",
            "-F 2s2 -I eth0 -l 10.0.0.0/8 -L 02:00:00:00:00:01 -R 2-0-0-0-0-2 -v 7 -e 4096 -m copy -j -S 500 -B -i f ::1",
        ] {
            parsed(line).unwrap();
        }
    }

    #[test]
    fn values_reach_the_plan() {
        let command =
            parsed("-F 2s3 -l 10.1.2.3/8 -R 2:0:0:0:0:a -m generic -i f 192.0.2.1").unwrap();
        let plan = command.plan().unwrap();
        assert_eq!(plan.targets, ["192.0.2.1:53".parse().unwrap()]);
        assert_eq!(plan.affinity, Some(Affinity { start: 2, step: 3 }));
        assert_eq!(plan.remote_mac, Some([2, 0, 0, 0, 0, 10]));
        assert_eq!((plan.mode, plan.batch), (Mode::Generic, None));
        assert_eq!(plan.sources.unwrap().prefix, 8);
    }

    #[test]
    fn a_ramp_sends_evenly_and_has_a_rate_to_try() {
        let evenly = |line: &str| parsed(line).unwrap().plan().unwrap().evenly;
        assert!(evenly("--ramp -i f 192.0.2.1") && !evenly("-i f 192.0.2.1"));
        let highest = |options: &str| {
            let command = parsed(&format!("--ramp {options} -i f 192.0.2.1")).unwrap();
            command.check_highest().map_err(|error| error.to_string())
        };
        assert_eq!(highest("--highest 20"), Ok(()));
        let failure = highest("--highest 5").unwrap_err();
        assert!(
            failure.ends_with("a higher rate, or -t 20 or more"),
            "{failure}"
        );
        let failure = highest("--highest 99 -t 0.5").unwrap_err();
        assert!(failure.ends_with("or -t 2 or more"), "{failure}");
    }

    #[test]
    fn options_are_read_as_getopt_reads_them() {
        // Joined, with `=`, in clusters, behind the target; the last one of two counts.
        let line = "192.0.2.1 -Q100 --qps=200 -rt2.5 -p 5300 --batch 7 -if -T --port=5353";
        let command = parsed(line).unwrap();
        assert_eq!((command.qps, command.batch), (200.0, Some(7)));
        assert_eq!(command.duration, Duration::from_millis(2500));
        assert!(command.drop && command.tcp.is_some());
        assert_eq!((command.port, command.targets.len()), (5353, 1));
        assert_eq!(command.infile, PathBuf::from("f"));
    }

    #[test]
    fn questions_are_written_as_the_options_say() {
        let format = |options: &str| {
            let command = parsed(&format!("{options} -i f 192.0.2.1")).unwrap();
            command.question_format()
        };
        let option = |code, value: &[u8]| EdnsOption {
            code,
            value: value.to_vec(),
        };
        let style = Style::default();
        assert_eq!(format(""), QuestionFormat::Text(style.clone()));
        // The size that queries with EDNS tell; it gives none of them EDNS.
        let large = Style {
            payload_size: 4000,
            ..style.clone()
        };
        assert_eq!(format("-e 4000"), QuestionFormat::Text(large));
        // RFC 7873 §4: option 10, eight octets; RFC 7871 §6: option 8, family, prefix, scope, address.
        let cookie = option(10, b"\x01\x02\x03\x04\x05\x06\x07\x08");
        let network = option(8, b"\0\x01\x18\0\xc0\0\x02");
        let with_options = Style {
            edns: true,
            edns_options: vec![cookie, network],
            ..style
        };
        let line = "--ecs 192.0.2.0/24 --cookie 0102030405060708";
        assert_eq!(format(line), QuestionFormat::Text(with_options));
        assert_eq!(format("-B"), QuestionFormat::Binary(Carrier::Frame));
        assert_eq!(format("-B -T"), QuestionFormat::Binary(Carrier::Stream));
    }

    #[test]
    fn headers_of_tcp_are_those_of_the_version_of_ip() {
        let length = |target: &str| tcp_headers_length(target.parse().unwrap());
        assert_eq!((length("192.0.2.1:53"), length("[::1]:53")), (54, 74));
    }

    #[test]
    fn what_is_wrong_is_one_line_that_says_what_would_be_right() {
        for (line, part) in [
            ("192.0.2.1", "--infile"),
            ("-i f", "<TARGET>"),
            ("-i f -t x 192.0.2.1", "must be a number of seconds"),
            ("-i f -Q 0 192.0.2.1", "must be above 0"),
            ("-i f -b 0 192.0.2.1", "1..=1024"),
            ("-i f -l 10.0.0.0/33 192.0.2.1", "must be 0 to 32"),
            ("-i f -L 02:00 192.0.2.1", "six hexadecimal octets"),
            ("-i f -F x 192.0.2.1", "such as 0s1"),
            ("-i f --source-ports 9-8 192.0.2.1", "FIRST-LAST"),
            ("-i f -U 192.0.2.1", "-U: QUIC is not there"),
            ("-i f --quic=1 192.0.2.1", "--quic: QUIC is not there"),
            ("-i f -T1 192.0.2.1", "-T: its test modes are not there"),
            ("-i f -TR 192.0.2.1", "-T: its test modes are not there"),
            ("-TR -i f 192.0.2.1", "-T: its test modes are not there"),
            ("-R 2:0 -i f 192.0.2.1", "six hexadecimal octets"),
            ("-i f --tcp=7 192.0.2.1", "plain"),
            ("-i f -G /tmp 192.0.2.1", "-G: it is about QUIC"),
            ("-i f -Q -1 192.0.2.1", "unexpected argument '-1'"),
            ("-i f -e 511 192.0.2.1", "512..=4096"),
            ("-i f -v 4095 192.0.2.1", "1..=4094"),
            ("-i f -p 0 192.0.2.1", "0 is not in 1.."),
            ("-i f -m zero 192.0.2.1", "generic"),
            ("-i f --highest 9000 192.0.2.1", "--ramp"),
            ("-i f --repeat 3 192.0.2.1", "--ramp"),
        ] {
            let failure = failure(line);
            assert!(failure.contains(part), "{line}: {failure}");
            assert_eq!(failure.lines().count(), 1, "{failure}");
        }
    }
}
