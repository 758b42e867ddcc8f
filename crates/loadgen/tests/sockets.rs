//! `floodgate sockets` against a scripted server on the loopback interface: every count exactly what the script made it.

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread::spawn;
use std::time::{Duration, Instant};
use testnet::again_if_interrupted;
use testnet::loopback::own_address;

#[derive(Clone, Copy)]
enum Deed {
    Answer,
    Ignore,
    Twice,
    OtherQuestion,
    OtherId,
    Refused,
}

const SCRIPT: [Deed; 6] = [
    Deed::Answer,
    Deed::Ignore,
    Deed::Twice,
    Deed::OtherQuestion,
    Deed::OtherId,
    Deed::Refused,
];

/// Starts a UDP server that does to each query what the script says, in the order of arrival.
fn udp_server(script: &'static [Deed]) -> SocketAddr {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    spawn(move || {
        let mut buffer = [0; 512];
        for deed in script.iter().cycle() {
            let (length, client) = socket.recv_from(&mut buffer).unwrap();
            let message = &mut buffer[..length];
            message[2] |= 0x80;
            match deed {
                Deed::Ignore => continue,
                Deed::OtherQuestion => message[13] ^= 1,
                // Half of all IDs away: never asked in so short a run.
                Deed::OtherId => message[0] ^= 0x80,
                Deed::Refused => message[3] |= 5,
                Deed::Answer | Deed::Twice => {}
            }
            socket.send_to(message, client).unwrap();
            if matches!(deed, Deed::Twice) {
                socket.send_to(message, client).unwrap();
            }
        }
    });
    address
}

/// Starts a TCP server that answers everything, several queries of a connection in reverse order.
fn tcp_server() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    spawn(move || {
        for stream in listener.incoming() {
            let stream = stream.unwrap();
            spawn(move || while answer_two(&stream).is_some() {});
        }
    });
    address
}

/// Reads two messages, or one and the end, and answers them in reverse order. `None`: the connection has ended.
fn answer_two(mut stream: &TcpStream) -> Option<()> {
    let first = read_message(stream)?;
    stream
        .set_read_timeout(Some(std::time::Duration::from_millis(20)))
        .unwrap();
    let second = read_message(stream);
    stream.set_read_timeout(None).unwrap();
    for mut message in second.into_iter().chain([first]) {
        message[4] |= 0x80;
        // In two writes, so that a message arrives in pieces.
        stream.write_all(&message[..7]).ok()?;
        stream.write_all(&message[7..]).ok()?;
    }
    Some(())
}

/// A message with its length in front.
fn read_message(mut stream: &TcpStream) -> Option<Vec<u8>> {
    let mut length = [0; 2];
    stream.read_exact(&mut length).ok()?;
    let mut message = length.to_vec();
    message.resize(2 + usize::from(u16::from_be_bytes(length)), 0);
    stream.set_read_timeout(None).unwrap();
    stream.read_exact(&mut message[2..]).ok()?;
    Some(message)
}

fn queries(count: usize) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    for number in 0..count {
        writeln!(file, "name{number}.flood.example A").unwrap();
    }
    file
}

fn flood(line: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_floodgate"));
    command.args(line.split_whitespace());
    command
}

fn text(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// Asserts that the output has these lines, but for the spaces at their beginning.
fn assert_lines(text: &str, lines: &[&str]) {
    for line in lines {
        assert!(
            text.lines().any(|found| found.trim_start() == *line),
            "no line {line:?} in\n{text}"
        );
    }
}

#[test]
fn everything_that_comes_back_is_counted_as_what_it_is() {
    let server = udp_server(&SCRIPT);
    // All at once, and not more than a socket's buffer holds.
    let file = queries(180);
    let line = format!(
        "sockets -s {} -p {} -d {} -t 10 -c 5 -T 2 -q 180",
        server.ip(),
        server.port(),
        file.path().display()
    );
    let text = text(&flood(&line).output().unwrap());
    assert_lines(
        &text,
        &[
            "[Status] Testing complete (end of file)",
            "Queries sent:         180",
            "Queries completed:    90 (50.00%)",
            "Queries lost:         90 (50.00%)",
            "Response codes:       NOERROR 60 (66.67%), REFUSED 30 (33.33%)",
            "right 90, wrong 60, duplicate 30, late 0, truncated (TC) 0, question in other case 0",
            "wrong, never-asked: 30",
            "wrong, other-question: 30",
        ],
    );
}

/// Starts a UDP server that answers two queries at a time: each first to who asked the other, then to who asked.
fn crossing_server() -> SocketAddr {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    spawn(move || while cross(&socket).is_ok() {});
    address
}

fn cross(socket: &UdpSocket) -> std::io::Result<()> {
    let mut queries = [[0_u8; 512]; 2];
    let mut asked = Vec::new();
    for query in &mut queries {
        asked.push(socket.recv_from(query)?);
        query[2] |= 0x80;
    }
    for receivers in [[1, 0], [0, 1_usize]] {
        for (number, receiver) in receivers.into_iter().enumerate() {
            let message = &queries[number][..asked[number].0];
            socket.send_to(message, asked[receiver].1)?;
        }
    }
    Ok(())
}

#[test]
fn an_answer_to_another_clients_port_is_wrong_and_does_not_end_the_wait() {
    let server = crossing_server();
    let file = queries(40);
    // The sockets of a thread take turns, a query each.
    let line = format!(
        "sockets -s 127.0.0.1 -p {} -d {} -t 60 -c 2 -q 2",
        server.port(),
        file.path().display()
    );
    let text = text(&flood(&line).output().unwrap());
    assert_lines(
        &text,
        &[
            "Queries completed:    40 (100.00%)",
            "right 40, wrong 40, duplicate 0, late 0, truncated (TC) 0, question in other case 0",
            "wrong, other-destination: 40",
        ],
    );
}

#[test]
fn a_file_is_gone_through_exactly_as_often_as_asked() {
    let server = udp_server(&[Deed::Answer]);
    let file = queries(70);
    let line = format!(
        "-s 127.0.0.1 -p {} -d {} -n 3 -c 4 -T 3 -q 8 -e -D -S 0.01 -t 60",
        server.port(),
        file.path().display()
    );
    let text = text(&flood(&line).output().unwrap());
    assert_lines(
        &text,
        &[
            "[Status] Stopping after 3 runs through file",
            "Queries sent:         210",
            "Queries completed:    210 (100.00%)",
        ],
    );
}

/// Starts a UDP server on an address of loopback; `None`: the port is taken there. It tells which clients asked how often.
fn counting_server(address: SocketAddr) -> Option<std::sync::mpsc::Receiver<SocketAddr>> {
    let socket = UdpSocket::bind(address).ok()?;
    let (tell, told) = std::sync::mpsc::channel();
    spawn(move || {
        let mut buffer = [0; 512];
        while let Ok((length, client)) = socket.recv_from(&mut buffer) {
            buffer[2] |= 0x80;
            socket.send_to(&buffer[..length], client).unwrap();
            if tell.send(client).is_err() {
                break;
            }
        }
    });
    Some(told)
}

#[test]
fn several_servers_are_asked_evenly_from_the_addresses_of_a_network() {
    // Two addresses with the same port: the first one's may be taken at the second.
    let (port, first, second) = (20_000..21_000)
        .find_map(|port| {
            let first = counting_server(SocketAddr::from(([127, 0, 0, 1], port)))?;
            let second = counting_server(SocketAddr::from(([127, 0, 0, 2], port)))?;
            Some((port, first, second))
        })
        .unwrap();
    let file = queries(120);
    let line = format!(
        "sockets -s 127.0.0.1 -s 127.0.0.2 -p {port} -d {} -c 6 -q 12 -t 30 -a 127.0.9.4/31",
        file.path().display()
    );
    let text = text(&flood(&line).output().unwrap());
    assert_lines(
        &text,
        &[
            &format!("[Status] Sending queries (to 127.0.0.1:{port}, 127.0.0.2:{port})"),
            "Queries completed:    120 (100.00%)",
            "answers lost on this side: 0 to full buffers of sockets",
        ],
    );
    for (told, last_octet) in [(first, 4), (second, 5)] {
        let clients: Vec<SocketAddr> = told.try_iter().collect();
        // Whose turn it is changes with each socket, not with each query: a few more or less.
        assert!((45..=75).contains(&clients.len()), "{}", clients.len());
        let own =
            |client: &SocketAddr| client.ip() == std::net::IpAddr::from([127, 0, 9, last_octet]);
        assert!(clients.iter().all(own), "{clients:?}");
    }
}

#[test]
fn servers_of_both_versions_of_ip_are_asked_evenly() {
    let (port, first, second) = (21_000..22_000)
        .find_map(|port| {
            let first = counting_server(SocketAddr::from(([127, 0, 0, 1], port)))?;
            let second = counting_server(format!("[::1]:{port}").parse().unwrap())?;
            Some((port, first, second))
        })
        .expect("a port that is free for both");
    let file = queries(120);
    let path = file.path().display();
    for options in ["-q 12 -t 30", "-q 12 -t 30 -c 6 -T 3"] {
        let line = format!("sockets -s 127.0.0.1 -s ::1 -p {port} -d {path} {options}");
        let text = text(&flood(&line).output().unwrap());
        assert_lines(&text, &["Queries completed:    120 (100.00%)"]);
        assert!(first.try_iter().count() > 0 && second.try_iter().count() > 0);
    }
}

#[test]
fn a_rate_that_cannot_be_kept_shows_in_latencies_and_is_said() {
    let server = udp_server(&[Deed::Ignore]);
    let file = queries(10);
    let line = format!(
        "-s 127.0.0.1 -p {} -d {} -l 0.6 -Q 1000 -q 1 -t 0.1 -O latency-histogram",
        server.port(),
        file.path().display()
    );
    let text = text(&flood(&line).output().unwrap());
    assert!(text.contains("of 1000 asked for: as many waited"), "{text}");
    assert!(
        text.contains("Latency bucket (s):   answer count"),
        "{text}"
    );
}

#[test]
fn who_keeps_a_rate_sleeps_in_between_and_one_lost_query_keeps_nobody_at_work() {
    let (answers, never) = (udp_server(&[Deed::Answer]), udp_server(&[Deed::Ignore]));
    let file = queries(10);
    for (server, load) in [
        (answers, "-l 1 -Q 3000"),
        (answers, "-l 1 -Q 3000 -c 4"),
        (never, "-n 1 -t 0.5"),
    ] {
        let line = format!(
            "-s 127.0.0.1 -p {} -d {} {load} --json",
            server.port(),
            file.path().display()
        );
        let result = summary(&flood(&line).output().unwrap());
        assert_eq!(
            result["floodgate"]["limits"],
            serde_json::json!([]),
            "{load}: {result:#}"
        );
    }
}

#[test]
fn a_rate_and_a_time_limit_are_kept() {
    let server = udp_server(&[Deed::Answer]);
    let file = queries(10);
    let line = format!(
        "-s 127.0.0.1 -p {} -d {} -l 1 -Q 200",
        server.port(),
        file.path().display()
    );
    let text = text(&flood(&line).output().unwrap());
    assert_lines(&text, &["[Status] Testing complete (time limit)"]);
    let sent = text
        .lines()
        .find_map(|line| line.trim().strip_prefix("Queries sent:"));
    let sent: u32 = sent.unwrap().trim().parse().unwrap();
    assert!((1..=200).contains(&sent), "{text}");
}

#[test]
fn tcp_pipelines_reconnects_and_takes_answers_in_any_order() {
    let server = tcp_server();
    let file = queries(100);
    let line = format!(
        "-s 127.0.0.1 -p {} -d {} -m tcp -c 2 -q 8 -t 60 -O num-queries-per-conn=10",
        server.port(),
        file.path().display()
    );
    let text = text(&flood(&line).output().unwrap());
    assert_lines(
        &text,
        &[
            "Queries sent:         100",
            "Queries completed:    100 (100.00%)",
            "right 100, wrong 0, duplicate 0, late 0, truncated (TC) 0, question in other case 0",
            "Connection Statistics:",
        ],
    );
    let again = text
        .lines()
        .find_map(|line| line.trim().strip_prefix("Reconnections:"));
    let again: u32 = again.unwrap().trim().parse().unwrap();
    assert!(
        again >= 8,
        "ten queries a connection, two of which are not again\n{text}"
    );
}

#[test]
fn an_interrupt_ends_the_run_with_what_was_counted() {
    let server = udp_server(&[Deed::Answer, Deed::Ignore]);
    let file = queries(10);
    let line = format!(
        "-s 127.0.0.1 -p {} -d {} -l 600 -t 600 -q 20 -S 0.05",
        server.port(),
        file.path().display()
    );
    let mut child = flood(&(line + " -v"))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    // A rate line comes only while it runs. When nothing is answered any more, all that is under way is ignored.
    let mut rates = lines
        .by_ref()
        .map(Result::unwrap)
        .filter(|line| line.starts_with(|first: char| first.is_ascii_digit()));
    let is_nothing = |line: &String| line.ends_with(": 0.000000");
    rates.find(|line| !is_nothing(line)).unwrap();
    // For two seconds: a server that is kept from its processor answers nothing for a while either.
    let mut silent = 0;
    let is_over = |line: &String| {
        silent = if is_nothing(line) { silent + 1 } else { 0 };
        silent == 40
    };
    rates.find(is_over).unwrap();
    kill(Pid::from_raw(child.id() as i32), Signal::SIGINT).unwrap();
    let text = lines.map(Result::unwrap).collect::<Vec<_>>().join("\n");
    assert!(child.wait().unwrap().success());
    assert!(text.contains("Testing complete (interruption)"), "{text}");
    assert!(text.contains("Queries interrupted:  20"), "{text}");
    let interrupted = text.lines().filter(|line| line.starts_with("> I "));
    assert_eq!(interrupted.count(), 20, "{text}");
}

#[test]
fn an_interrupt_ends_the_wait_for_standard_input() {
    for line in ["sockets -d -", "xdp -i - 127.0.0.1"] {
        // Whoever runs the tests may ignore it.
        let mut child = Command::new("env")
            .args(["--default-signal=INT", env!("CARGO_BIN_EXE_floodgate")])
            .args(line.split_whitespace())
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        let mut input = child.stdin.take().unwrap();
        // Far more than a pipe holds: once all is written, somebody reads.
        input.write_all(&b"a.example A\n".repeat(100_000)).unwrap();
        let process = Pid::from_raw(child.id() as i32);
        let (tell, told) = channel();
        spawn(move || tell.send(child.wait().unwrap()));
        kill(process, Signal::SIGINT).unwrap();
        let Ok(status) = told.recv_timeout(Duration::from_secs(60)) else {
            kill(process, Signal::SIGKILL).unwrap();
            panic!("{line}: it reads on");
        };
        assert_eq!(status.signal(), Some(Signal::SIGINT as i32), "{line}");
    }
}

#[test]
fn a_server_that_is_not_there_costs_queries_and_no_error() {
    let gone = own_address();
    let file = queries(5);
    let line = format!(
        "-s {} -p {} -d {} -t 0.2",
        gone.ip(),
        gone.port(),
        file.path().display()
    );
    let text = text(&flood(&line).output().unwrap());
    assert_lines(&text, &["Queries lost:         5 (100.00%)"]);
}

#[test]
fn a_server_that_takes_no_connection_is_one_line() {
    let gone = own_address();
    let file = queries(5);
    let line = format!(
        "sockets -m tcp -s {} -p {} -d {}",
        gone.ip(),
        gone.port(),
        file.path().display()
    );
    let output = flood(&line).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success());
    assert!(
        said.contains(&format!("no TCP connection to {gone}: ")),
        "{said}"
    );
}

#[test]
fn called_by_another_name_it_is_that() {
    let folder = tempfile::tempdir().unwrap();
    for (name, complaint) in [("kxdpgun", "--infile <FILE>"), ("dnsperf", "no queries")] {
        let link = folder.path().join(name);
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_floodgate"), &link).unwrap();
        let output = Command::new(&link)
            .arg(if name == "kxdpgun" { "-r" } else { "-e" })
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            !output.status.success() && said.contains(complaint),
            "{name}: {said}"
        );
    }
    let output = flood("-s 127.0.0.1 -i file").output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("belong to two commands"), "{said}");
    assert_eq!(said.lines().count(), 1);
}

#[test]
fn scripts_find_dnsperfs_version_and_long_options() {
    let folder = tempfile::tempdir().unwrap();
    let link = folder.path().join("dnsperf");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_floodgate"), &link).unwrap();
    let version = concat!("Version ", env!("CARGO_PKG_VERSION"));
    for option in ["-h", "-H"] {
        let text = text(&Command::new(&link).arg(option).output().unwrap());
        let first: Vec<&str> = text.lines().take(2).collect();
        assert_eq!(first, ["DNS Performance Testing Tool", version], "{option}");
        assert!(text.contains("latency-histogram"), "{text}");
    }
}

#[test]
fn a_zone_may_come_by_standard_input() {
    let mut command = flood("queries --from-zone -");
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut zone = child.stdin.take().unwrap();
    zone.write_all(b"www.example. 60 A 192.0.2.1\n").unwrap();
    drop(zone);
    let output = child.wait_with_output().unwrap();
    assert_eq!(text(&output), "www.example. A\n");
}

#[test]
fn who_reads_no_further_ends_what_is_written_without_a_word() {
    let mut command = flood("queries --random 1000000");
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut first = String::new();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    out.read_line(&mut first).unwrap();
    assert!(first.ends_with(".example.com. A\n"), "{first}");
    drop(out);
    let output = child.wait_with_output().unwrap();
    assert!(
        output.status.success() && output.stderr.is_empty(),
        "{output:?}"
    );
}

#[test]
fn lines_that_are_no_queries_are_left_out_and_told_of() {
    let server = udp_server(&[Deed::Answer]);
    let mut file = queries(2);
    file.write_all(b"a..b A\nno-type\nlast.example A 300\n")
        .unwrap();
    let warning = "2 lines left out as no query, first line 3: `a..b`";
    let of_flags = "1 line asked without flags, first line 5: `300` is no flag";
    for (option, to_stdout) in [("", false), ("-W", true)] {
        let line = format!(
            "sockets -s {} -p {} -d {} {option}",
            server.ip(),
            server.port(),
            file.path().display()
        );
        let output = flood(&line).output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        let text = text(&output);
        assert_lines(&text, &["Queries sent:         3"]);
        for warning in [warning, of_flags] {
            assert_eq!(text.contains(warning), to_stdout, "{text}");
            assert_eq!(told.contains(warning), !to_stdout, "{told}");
        }
    }
}

#[test]
fn a_connection_for_every_query_over_tcp() {
    let server = tcp_server();
    let file = queries(30);
    let line = format!(
        "xdp -T -j --patience 60 --late 60 -t 0.5 -Q 200 -p {} -i {} 127.0.0.1",
        server.port(),
        file.path().display()
    );
    let text = text(&flood(&line).output().unwrap());
    let last: serde_json::Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    assert_eq!(last["queries"], 100, "{last:#}");
    assert_eq!(last["floodgate"]["right"], 100);
    assert_eq!(last["conn_info"]["type"], "tcp");
    assert_eq!(last["response_rcodes"], serde_json::json!({"NOERROR": 100}));
    // Nobody looked at an interface.
    let lost = last["floodgate"]["lost_here"].as_object().unwrap();
    assert!(!lost.contains_key("interface_dropped_in"), "{last:#}");
}

#[test]
fn answers_over_tcp_are_left_unread_where_nobody_wants_them() {
    let server = tcp_server();
    let file = queries(30);
    let line = format!(
        "xdp -T -r -j --patience 60 --late 60 -t 0.5 -Q 200 -p {} -i {} 127.0.0.1",
        server.port(),
        file.path().display()
    );
    let last = summary(&flood(&line).output().unwrap());
    assert_eq!(last["queries"], 100, "{last:#}");
    let own = &last["floodgate"];
    assert_eq!(own["lost_here"]["unwanted"], 100, "{last:#}");
    // Nobody looked whether they are right: a 0 would say that somebody did.
    assert!(own["right"].is_null(), "{last:#}");
    assert!(last.get("responses").is_none(), "{last:#}");
}

#[test]
fn who_asks_again_need_not_wait_for_the_last_answers() {
    // Connections stand, and nobody reads from them.
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let file = queries(5);
    let line = format!(
        "xdp -T -j --patience 60 --late 3600 -t 0.1 -Q 50 -p {} -i {} 127.0.0.1",
        server.local_addr().unwrap().port(),
        file.path().display()
    );
    let mut flood = flood(&line).stdout(Stdio::piped()).spawn().unwrap();
    let mut output = BufReader::new(flood.stdout.take().unwrap());
    let mut header = String::new();
    output.read_line(&mut header).unwrap();
    assert!(header.contains("\"type\":\"header\""), "{header}");
    let started = Instant::now();
    let says_more = || {
        let mut pipe = [PollFd::new(output.get_ref().as_fd(), PollFlags::POLLIN)];
        again_if_interrupted(|| Ok(poll(&mut pipe, PollTimeout::from(5u8))?)).unwrap() > 0
    };
    while !says_more() {
        assert!(started.elapsed() < Duration::from_secs(60), "it waits on");
        kill(Pid::from_raw(flood.id() as i32), Signal::SIGINT).unwrap();
    }
    let last = output.lines().last().unwrap().unwrap();
    assert!(flood.wait().unwrap().success());
    assert!(last.contains("\"type\":\"stats_sum\""), "{last}");
}

#[test]
fn connections_that_are_refused_cost_queries_and_no_error() {
    let gone = own_address();
    let file = queries(5);
    let line = format!(
        "-T -t 0.1 -Q 100 --patience 60 -p {} -i {} {}",
        gone.port(),
        file.path().display(),
        gone.ip()
    );
    let text = text(&flood(&line).output().unwrap());
    assert_lines(&text, &["wrong 0, duplicate 0, late 0, never answered 10"]);
}

#[test]
fn connections_that_there_are_no_descriptors_for_are_the_generators_limit_and_it_says_what_helps() {
    // Connections stand, and nobody answers.
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let file = queries(5);
    let line = format!(
        "xdp -T -j --patience 60 --late 0.1 -t 0.2 -Q 500 -p {} -i {} 127.0.0.1",
        server.local_addr().unwrap().port(),
        file.path().display()
    );
    let mut command = Command::new("prlimit");
    command
        .args(["--nofile=24:24", env!("CARGO_BIN_EXE_floodgate")])
        .args(line.split_whitespace());
    let last = summary(&command.output().unwrap());
    let own = &last["floodgate"];
    assert_eq!(own["offered"], 100, "{last:#}");
    assert!(own["not_sent"].as_u64() > Some(70), "{last:#}");
    let said = own["limits"][0].as_str().unwrap();
    assert!(said.contains("-l NETWORK"), "{said}");
    // What only sends over AF_XDP.
    assert!(!said.contains("(-r)"), "{said}");
}

/// Starts a TCP server that tells who connects, and answers one query of each connection after so long.
fn telling_server(delay: Duration) -> (SocketAddr, Receiver<IpAddr>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (tell, told) = channel();
    spawn(move || {
        while let Ok((mut stream, client)) = listener.accept() {
            // Nobody may want to know.
            let _ = tell.send(client.ip());
            spawn(move || {
                let mut message = read_message(&stream)?;
                // tidy: the time is what is tested
                std::thread::sleep(delay);
                message[4] |= 0x80;
                stream.write_all(&message).ok()
            });
        }
    });
    (address, told)
}

/// The last line of JSON.
fn summary(output: &Output) -> serde_json::Value {
    let text = text(output);
    serde_json::from_str(text.lines().last().unwrap()).unwrap()
}

/// The one line of a run that did not start.
fn complaint(line: &str) -> String {
    let output = flood(line).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success(), "{line}");
    assert!(output.stdout.is_empty(), "{line}: before anything starts");
    assert_eq!(said.lines().count(), 1, "{said}");
    said
}

#[test]
fn connections_come_evenly_from_a_network() {
    let (server, told) = telling_server(Duration::ZERO);
    let file = queries(30);
    let line = format!(
        "xdp -T -j --patience 60 --late 60 -t 0.5 -Q 600 -l 127.0.9.0/29 -p {} -i {} 127.0.0.1",
        server.port(),
        file.path().display()
    );
    let last = summary(&flood(&line).output().unwrap());
    assert_eq!(last["floodgate"]["right"], 300, "{last:#}");
    let mut uses: BTreeMap<IpAddr, u32> = BTreeMap::new();
    for client in told.try_iter() {
        *uses.entry(client).or_default() += 1;
    }
    // As over AF_XDP: neither the network's own address nor everybody's.
    let hosts: Vec<IpAddr> = uses.keys().copied().collect();
    let expected = (1..=6).map(|host| IpAddr::from([127, 0, 9, host]));
    assert_eq!(hosts, expected.collect::<Vec<_>>());
    assert!(
        uses.values().all(|uses| (25..=75).contains(uses)),
        "{uses:?}"
    );
}

#[test]
fn connections_from_what_is_not_ours_are_one_line_before_the_start() {
    let file = queries(1);
    let path = file.path().display();
    for (source, says) in [
        // RFC 5737: for documentation, nobody's.
        ("203.0.113.9", "203.0.113.9 (-l) is no address of this"),
        ("203.0.113.0/24", ", of 203.0.113.0/24 (-l), is no address"),
        ("::1", "different versions of IP"),
    ] {
        let said = complaint(&format!("xdp -T -l {source} -i {path} 127.0.0.1"));
        assert!(said.contains(says), "{said}");
    }
}

#[test]
fn answers_to_the_last_connections_are_late_and_not_lost() {
    // Two seconds after they are late, two seconds before nobody waits any more.
    let (server, _told) = telling_server(Duration::from_secs(6));
    let file = queries(10);
    let line = format!(
        "xdp -T -j --patience 60 --late 4 -t 0.1 -Q 100 -p {} -i {} 127.0.0.1",
        server.port(),
        file.path().display()
    );
    let last = summary(&flood(&line).output().unwrap());
    assert_eq!(last["queries"], 10, "{last:#}");
    assert_eq!(last["floodgate"]["late"], 10, "{last:#}");
    assert_eq!(last["floodgate"]["right"], 0, "{last:#}");
}

/// Octets of header and question of a long query.
const LONG_QUESTION_END: usize = 36;

/// A query of so many octets: most of them are an EDNS option.
fn long_query(length: usize) -> Vec<u8> {
    // An ID, RD; one question, one record more.
    let mut message = b"\0\0\x01\0\0\x01\0\0\0\0\0\x01".to_vec();
    message.extend(b"\x04long\x05flood\x07example\0\0\x01\0\x01");
    assert_eq!(message.len(), LONG_QUESTION_END);
    // OPT: the root, type 41, 4,096 octets, no flags; one option, of code 65001.
    let option = (length - LONG_QUESTION_END - 15) as u16;
    message.extend(b"\0\0\x29\x10\0\0\0\0\0");
    message.extend((option + 4).to_be_bytes());
    message.extend(b"\xfd\xe9");
    message.extend(option.to_be_bytes());
    message.resize(length, 7);
    message
}

/// A file of one message in wire format.
fn binary_file(message: &[u8]) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(&(message.len() as u16).to_be_bytes())
        .unwrap();
    file.write_all(message).unwrap();
    file
}

#[test]
fn long_messages_go_out_whole_over_tcp() {
    const LENGTH: usize = 65_535;
    let server = tcp_server();
    let file = binary_file(&long_query(LENGTH));
    let (port, path) = (server.port(), file.path().display());
    let line = format!("sockets -m tcp -s 127.0.0.1 -p {port} -B -d {path} -t 60");
    let text = text(&flood(&line).output().unwrap());
    assert_lines(
        &text,
        &[
            "Queries completed:    1 (100.00%)",
            &format!("Average packet size:  request {LENGTH}, response {LENGTH}"),
        ],
    );
    let line =
        format!("xdp -T -j --patience 60 --late 60 -t 0.1 -Q 10 -B -p {port} -i {path} 127.0.0.1");
    let last = summary(&flood(&line).output().unwrap());
    assert_eq!(last["floodgate"]["right"], 1, "{last:#}");
    assert_eq!(last["floodgate"]["answer_octets"], LENGTH, "{last:#}");
}

#[test]
fn long_messages_go_out_whole_over_udp() {
    const LENGTH: usize = 65_507;
    let server = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = server.local_addr().unwrap().port();
    let (tell, told) = channel();
    spawn(move || {
        let mut buffer = vec![0; 65_536];
        let (length, client) = server.recv_from(&mut buffer).unwrap();
        tell.send(length).unwrap();
        // The question alone: an answer needs no more.
        buffer[2] |= 0x80;
        buffer[11] = 0;
        let answer = &buffer[..LONG_QUESTION_END];
        server.send_to(answer, client).unwrap();
    });
    let file = binary_file(&long_query(LENGTH));
    let line = format!(
        "sockets -s 127.0.0.1 -p {port} -B -d {} -t 60",
        file.path().display()
    );
    let text = text(&flood(&line).output().unwrap());
    assert_lines(&text, &["Queries completed:    1 (100.00%)"]);
    assert_eq!(told.recv(), Ok(LENGTH));
}

#[test]
fn more_sockets_than_a_shell_allows_files_are_opened() {
    let server = udp_server(&[Deed::Answer]);
    let file = queries(200);
    let line = format!(
        "sockets -s 127.0.0.1 -p {} -d {} -c 200 -q 100 -t 60",
        server.port(),
        file.path().display()
    );
    let mut command = Command::new("prlimit");
    command
        .args(["--nofile=64:1024", env!("CARGO_BIN_EXE_floodgate")])
        .args(line.split_whitespace());
    let text = text(&command.output().unwrap());
    assert_lines(&text, &["Queries completed:    200 (100.00%)"]);
}

#[test]
fn long_answers_come_whole_over_udp() {
    const LENGTH: usize = 60_000;
    let server = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = server.local_addr().unwrap().port();
    spawn(move || {
        let mut answer = long_query(LENGTH);
        answer[2] |= 0x80;
        let mut query = [0; 512];
        while let Ok((_, client)) = server.recv_from(&mut query) {
            answer[..2].copy_from_slice(&query[..2]);
            server.send_to(&answer, client).unwrap();
        }
    });
    let mut file = tempfile::NamedTempFile::new().unwrap();
    write!(file, "long.flood.example A").unwrap();
    let line = format!(
        "sockets -s 127.0.0.1 -p {port} -d {} -n 3 -q 1 -t 60",
        file.path().display()
    );
    let text = text(&flood(&line).output().unwrap());
    assert_lines(
        &text,
        &[
            "Queries completed:    3 (100.00%)",
            &format!("Average packet size:  request {LONG_QUESTION_END}, response {LENGTH}"),
        ],
    );
}

#[test]
fn messages_that_nothing_carries_are_one_line_that_says_what_would() {
    let file = binary_file(&long_query(65_520));
    let path = file.path().display();
    let said = complaint(&format!("sockets -s 127.0.0.1 -B -d {path}"));
    assert!(
        said.contains("octet 0: a message of 65520 octets: at most 65507 fit a datagram"),
        "{said}"
    );
    assert!(said.contains("-m tcp"), "{said}");
    let said = complaint(&format!("xdp -B -i {path} 192.0.2.1"));
    assert!(said.contains("at most 1726 fit a frame"), "{said}");
    assert!(said.contains("`floodgate sockets`"), "{said}");
}

#[test]
fn csv_has_no_lines_in_between() {
    let server = tcp_server();
    let file = queries(5);
    let line = format!(
        "xdp -T --csv -S 20 --patience 60 --late 60 -t 0.2 -Q 100 -p {} -i {} 127.0.0.1",
        server.port(),
        file.path().display()
    );
    let output = flood(&line).output().unwrap();
    let text = text(&output);
    assert_eq!(text.lines().count(), 2, "{text}");
    assert!(text.starts_with("seconds,offered,"), "{text}");
    // What a table has no place for.
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(
        said.lines().next(),
        Some("using kernel sockets, threads 1, TCP")
    );
}

#[test]
fn csv_of_the_other_command_is_a_table_too() {
    let server = tcp_server();
    let file = queries(5);
    let line = format!(
        "sockets --csv -m tcp -t 60 -s 127.0.0.1 -p {} -d {}",
        server.port(),
        file.path().display()
    );
    let output = flood(&line).output().unwrap();
    let text = text(&output);
    assert_eq!(text.lines().count(), 2, "{text}");
    assert!(text.contains(",NOERROR:5,,kernel sockets,"), "{text}");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(
        said.lines().next(),
        Some("using kernel sockets, threads 1, TCP")
    );
}
