//! The command line, from outside: what is printed where, and the exit status.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::io::Write;
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use testnet::again_if_interrupted;
use testnet::loopback::own_address;

fn millrace(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_millrace"))
        .args(words)
        .output()
        .expect("the program was built with this test")
}

/// What `--check-config` makes of a file with this text.
fn check(text: &str, words: &[&str]) -> (Output, String) {
    let mut file = tempfile::NamedTempFile::new().expect("there is room for a temporary file");
    file.write_all(text.as_bytes())
        .expect("it was opened for writing");
    let path = file.path().display().to_string();
    let output = millrace(&[&["--check-config", "--supervised", "-C", &path], words].concat());
    (output, path)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

const GOOD: &str = "addLocal('127.0.0.1:5399')";

/// A disk without room.
fn full() -> Stdio {
    let file = std::fs::OpenOptions::new().write(true).open("/dev/full");
    file.expect("Linux has it").into()
}

#[test]
fn what_cannot_be_written_is_an_exit_status_and_what_cannot_be_complained_of_no_panic() {
    let mut zone = tempfile::NamedTempFile::new().expect("there is room for a temporary file");
    writeln!(zone, "@ 60 SOA ns. x. 1 2 3 4 5\n@ 60 NS ns.").expect("it was opened for writing");
    let file = zone.path().to_str().expect("ASCII");
    let run = |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_millrace"));
        command.args(words);
        command
    };
    for words in [&["--version"][..], &["zone", "print", file, "example.com"]] {
        let output = run(words).stdout(full()).output().expect("it runs");
        let line = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{words:?}: {line}");
        assert!(line.contains("standard output: No space left"), "{line}");
    }
    for words in [
        &["stats", "--control", "/nonexistent/control"][..],
        &["zone", "check", "/nonexistent/zone", "example.com"],
        &["doctor", "--interface", "nonexistent"],
    ] {
        let output = run(words).stderr(full()).output().expect("it runs");
        assert_eq!(output.status.code(), Some(1), "{words:?}");
    }
}

#[test]
fn the_usage_begins_with_the_programs_name() {
    for words in [
        &["zone", "--help"][..],
        &["zone", "check", "--help"],
        &["doctor", "--help"],
    ] {
        let help = text(&millrace(words).stdout);
        let begin = format!("Usage: millrace {}", words[..words.len() - 1].join(" "));
        assert!(help.contains(&begin), "{help}");
    }
}

#[test]
fn a_good_file_is_said_in_dnsdists_words() {
    let (output, path) = check(GOOD, &[]);
    let line = text(&output.stderr);
    assert!(
        line.starts_with(r#"msg="Configuration OK" subsystem="setup" level="0" prio="Info" ts=""#),
        "{line}"
    );
    assert!(line.ends_with(&format!("\" path=\"{path}\"\n")), "{line}");
    assert_eq!(line.lines().count(), 1);
    assert_eq!(
        (text(&output.stdout).as_str(), output.status.code()),
        ("", Some(0))
    );
}

#[test]
fn a_good_file_is_said_in_plain_text() {
    let (output, path) = check(GOOD, &["--structured-logging", "false"]);
    assert_eq!(
        text(&output.stdout),
        format!("Configuration '{path}' OK!\n")
    );
    assert_eq!(text(&output.stderr), "");
}

#[test]
fn a_good_file_is_said_in_json() {
    let words = [
        "--structured-logging",
        "true",
        "--structured-logging-backend",
        "json",
    ];
    let (output, path) = check(GOOD, &words);
    let expected = format!(r#"{{"level": "0", "msg": "Configuration OK", "path": "{path}", "#);
    assert!(text(&output.stderr).starts_with(&expected));
}

#[test]
fn every_example_is_good() {
    let examples = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples");
    let files = std::fs::read_dir(examples).expect("examples are a part of the project");
    let paths = files.map(|file| file.expect("the folder can be read").path());
    for path in paths.filter(|path| path.extension().is_some_and(|extension| extension == "lua")) {
        let path = path.display().to_string();
        let output = millrace(&[
            "--check-config",
            "--structured-logging",
            "false",
            "-C",
            &path,
        ]);
        assert_eq!(
            text(&output.stdout),
            format!("Configuration '{path}' OK!\n")
        );
        assert_eq!(text(&output.stderr), "");
    }
}

#[test]
fn what_only_observes_is_not_mentioned_by_a_check() {
    let words = ["--structured-logging-backend", "systemd-journal"];
    let (output, _) = check(
        "setVerboseHealthChecks(true) addLocal('127.0.0.1:5399', {cpus={1}})",
        &words,
    );
    assert_eq!(text(&output.stderr).lines().count(), 1);
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn a_bad_file_is_exit_status_1_with_file_and_line() {
    let (output, path) = check("\nnosuch()", &["--structured-logging", "false"]);
    let said = text(&output.stdout);
    assert!(
        said.starts_with(&format!(
            "{path}:2: attempt to call global 'nosuch' (a nil value)"
        )),
        "{said}"
    );
    assert_eq!(output.status.code(), Some(1));
}

/// dnsdist's status; the unit of the service does not try again what ends with 78 (RestartPreventExitStatus=).
#[test]
fn a_start_by_a_bad_file_is_exit_status_1_and_78_under_a_service_manager() {
    let folder = tempfile::tempdir().expect("there is room for a folder");
    let path = folder.path().join("bad.conf");
    std::fs::write(&path, "\nnosuch()").expect("the folder is ours");
    let nosuch = folder.path().join("nosuch.conf");
    let manager = folder.path().join("notify");
    for path in [path, nosuch] {
        for (is_managed, expected) in [(false, 1), (true, 78)] {
            let mut command = Command::new(env!("CARGO_BIN_EXE_millrace"));
            command.args(["--supervised", "--disable-syslog", "-C"]);
            command.arg(&path).env_remove("NOTIFY_SOCKET");
            if is_managed {
                command.env("NOTIFY_SOCKET", &manager);
            }
            let output = command.output().expect("the program was built");
            assert_eq!(output.status.code(), Some(expected), "{output:?}");
        }
    }
}

/// Nothing can be said of it: that is not "nothing is wrong".
#[test]
fn the_doctor_is_not_content_with_an_interface_that_is_not_there() {
    let output = millrace(&["doctor", "--interface", "lo", "--interface", "nosuch0"]);
    let said = text(&output.stderr);
    assert!(said.contains("there is no interface nosuch0"), "{said}");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(output.stdout.is_empty(), "{output:?}");
}

#[test]
fn a_file_that_is_not_there_is_exit_status_1() {
    let output = millrace(&["--check-config", "-C", "/nonexistent/millrace.conf"]);
    assert!(
        text(&output.stderr)
            .contains("/nonexistent/millrace.conf: cannot be read: No such file or directory")
    );
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn os_exit_is_the_exit_status() {
    for status in [0, 3] {
        let (output, _) = check(&format!("os.exit({status})"), &[]);
        assert_eq!(output.status.code(), Some(status));
        assert_eq!(
            (text(&output.stdout), text(&output.stderr)),
            Default::default()
        );
    }
}

#[test]
fn a_capability_or_a_folder_that_is_not_there_is_a_warning_line() {
    let (output, path) = check(
        "addCapabilitiesToRetain({'cap_sys_admin', 'CAP_NOSUCH'})\nincludeDirectory('/nonexistent')",
        &["--structured-logging", "false"],
    );
    let said = text(&output.stdout);
    let lines: Vec<&str> = said.lines().collect();
    let [capability, folder, good] = lines[..] else {
        panic!("{said}");
    };
    let begin = format!(
        "addCapabilitiesToRetain: there is no such capability, ignored (place {path}:1, capability CAP_NOSUCH, known CAP_AUDIT_CONTROL, "
    );
    assert!(capability.starts_with(&begin), "{capability}");
    assert_eq!(
        folder,
        format!(
            "includeDirectory: there is no such folder, nothing of it is read (place {path}:2, folder /nonexistent)"
        )
    );
    assert_eq!(good, format!("Configuration '{path}' OK!"));
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn a_user_or_a_group_that_is_not_there_is_found_by_the_check() {
    for (words, line) in [
        (["-u", "nosuchuser"], "there is no user nosuchuser (-u "),
        (["-g", "nosuchgroup"], "there is no group nosuchgroup (-g "),
    ] {
        let (output, _) = check(GOOD, &words);
        let said = text(&output.stderr) + &text(&output.stdout);
        assert!(said.contains(&format!("command line: {line}")), "{said}");
        assert_eq!(output.status.code(), Some(1), "{said}");
    }
}

#[test]
fn an_unknown_option_of_a_table_is_a_warning_line() {
    let (output, path) = check(
        "addLocal('127.0.0.1:5399', {reuseport=true})",
        &["--structured-logging", "false"],
    );
    assert_eq!(
        text(&output.stdout),
        format!(
            "Unknown option, ignored (place {path}:1, option addLocal: reuseport)\nConfiguration '{path}' OK!\n"
        )
    );
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn the_version_begins_with_dnsdists_name() {
    let output = millrace(&["--version"]);
    assert!(text(&output.stdout).starts_with("dnsdist (millrace "));
    assert_eq!(output.status.code(), Some(0));
}

/// What `--check-config` and `--version` say to standard error, and with which status they end, where this is their standard
/// output.
fn said_where_output_goes_to(output: impl Fn() -> Stdio) -> Vec<(String, Option<i32>)> {
    let mut file = tempfile::NamedTempFile::new().expect("there is room for a temporary file");
    file.write_all(format!("print('read') {GOOD}").as_bytes())
        .expect("it was opened for writing");
    let path = file.path().display().to_string();
    let check = [
        "--check-config",
        "--structured-logging=false",
        "-C",
        path.as_str(),
    ];
    let run = |words: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_millrace"))
            .args(words)
            .stdout(output())
            .output()
            .expect("the program was built with this test");
        (text(&output.stderr), output.status.code())
    };
    vec![run(&check), run(&["--version"])]
}

#[test]
fn nobody_who_reads_standard_output_is_no_reason_to_fail() {
    let closed = || {
        let (reader, writer) = std::io::pipe().expect("there are descriptors left");
        drop(reader);
        writer.into()
    };
    let said = said_where_output_goes_to(closed);
    assert_eq!(said, vec![(String::new(), Some(0)); 2]);
}

#[test]
fn a_full_disk_below_standard_output_is_told() {
    let full = || {
        let file = std::fs::File::options().write(true).open("/dev/full");
        file.expect("every Linux has it").into()
    };
    let line = "writing to standard output: No space left on device (os error 28)\n";
    let said = said_where_output_goes_to(full);
    assert_eq!(said, vec![(line.to_owned(), Some(1)); 2]);
}

#[test]
fn wrong_words_are_exit_status_1() {
    for words in [
        &["--nosuch"][..],
        &["-l", "nowhere"],
        &["-e", "showServers()"],
        &["--acl", "x"],
    ] {
        let output = millrace(words);
        assert_eq!(
            (output.status.code(), text(&output.stdout).as_str()),
            (Some(1), ""),
            "{words:?}"
        );
        assert_ne!(text(&output.stderr), "", "{words:?}");
    }
}

/// How long something may take that comes at last, in a debug build on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Awaits that somebody listens there: nothing tells when.
fn await_tcp(address: SocketAddr) {
    let began = Instant::now();
    while TcpStream::connect(address).is_err() {
        assert!(began.elapsed() < PATIENCE, "nobody serves {address}");
        std::thread::yield_now();
    }
}

/// The same of a path.
fn await_path(path: &Path) {
    let began = Instant::now();
    while UnixStream::connect(path).is_err() {
        let place = path.display();
        assert!(began.elapsed() < PATIENCE, "nobody serves {place}");
        std::thread::yield_now();
    }
}

/// An instance that serves; killed when the test is over.
struct Served {
    child: Child,
    file: tempfile::NamedTempFile,
}

impl Served {
    /// Starts by a file with this text, and waits until TCP connects to `ready`.
    fn start(text: &str, words: &[&str], ready: SocketAddr) -> Served {
        Served::start_with_log(text, words, ready, Stdio::null())
    }

    /// The same; what it logs goes to `log`.
    fn start_with_log(text: &str, words: &[&str], ready: SocketAddr, log: Stdio) -> Served {
        let mut file = tempfile::NamedTempFile::new().expect("there is room for a temporary file");
        file.write_all(text.as_bytes())
            .expect("it was opened for writing");
        let control = file.path().with_extension("control");
        let child = Command::new(env!("CARGO_BIN_EXE_millrace"))
            .args(["--supervised", "--control"])
            .arg(&control)
            .arg("-C")
            .arg(file.path())
            .args(words)
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("the program was built with this test");
        let served = Served { child, file };
        // "An instance is ready once TCP connects to its listener, within 2 s of start": more for a machine that is busy.
        await_tcp(ready);
        served
    }

    /// The exit status after SIGTERM, and how long the end took.
    fn end(mut self) -> (Option<i32>, Duration) {
        let began = Instant::now();
        let process = Pid::from_raw(self.child.id() as i32);
        kill(process, Signal::SIGTERM).expect("it runs");
        let status = self.child.wait().expect("it is a child of ours");
        (status.code(), began.elapsed())
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// How long an answer is waited for that is not to come.
const SILENCE: Duration = Duration::from_secs(1);

/// Whether a query for `a.` is answered within this time.
fn is_answered(server: SocketAddr, within: Duration) -> bool {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("there are ports");
    let limit = Some(within);
    socket.set_read_timeout(limit).expect("it is more than 0");
    let query = b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x01a\x00\x00\x01\x00\x01";
    socket.send_to(query, server).expect("loopback");
    again_if_interrupted(|| socket.recv(&mut [0; 512])).is_ok()
}

const REFUSES: &str = "addAction(AllRule(), RCodeAction(DNSRCode.REFUSED))";

#[test]
fn sigterm_ends_it_with_status_0() {
    let address = own_address();
    let served = Served::start(REFUSES, &["-l", &address.to_string()], address);
    assert!(is_answered(address, PATIENCE));
    let (status, took) = served.end();
    assert_eq!(status, Some(0));
    // "within 5 s"; more for a build that is not optimised, on a machine that is busy.
    let most = Duration::from_secs(if cfg!(debug_assertions) { 25 } else { 5 });
    assert!(took < most, "{took:?}");
}

/// It is ready once TCP connects, though its first health check still waits for a server that says nothing.
#[test]
fn sigterm_ends_it_with_status_0_while_its_first_health_check_waits() {
    let (address, silent) = (own_address(), UdpSocket::bind("127.0.0.1:0"));
    let silent = silent.expect("there are ports");
    let server = silent.local_addr().expect("it is bound");
    let text = format!("newServer{{address='{server}', checkTimeout=20000}}");
    let served = Served::start(&text, &["-l", &address.to_string()], address);
    let (status, took) = served.end();
    assert_eq!(status, Some(0));
    assert!(took < Duration::from_secs(5), "{took:?}");
}

#[test]
fn what_only_observes_is_said_in_one_line_each_when_serving() {
    let address = own_address();
    let log = tempfile::NamedTempFile::new().expect("there is room for a temporary file");
    let file = log.reopen().expect("it is there");
    let text = format!("snmpAgent() snmpAgent() setRandomizedIdsOverUDP(true)\n{REFUSES}");
    let words = ["--disable-syslog", "-l", &address.to_string()];
    let served = Served::start_with_log(&text, &words, address, file.into());
    assert_eq!(served.end().0, Some(0));
    let said = std::fs::read_to_string(log.path()).expect("it is there");
    let lines: Vec<&str> = said
        .lines()
        .filter(|line| line.contains("accepted, no effect yet"))
        .collect();
    assert_eq!(lines.len(), 2, "{said}");
    assert!(lines[0].contains("snmpAgent") && lines[1].contains("setRandomizedIdsOverUDP"));
}

#[test]
fn listeners_of_the_command_line_replace_those_of_the_file() {
    let (file, one, two) = (own_address(), own_address(), own_address());
    let text = format!("addLocal('{file}') {REFUSES}");
    let words = ["-l", &one.to_string(), "-l", &two.to_string()];
    let served = Served::start(&text, &words, two);
    assert!(is_answered(one, PATIENCE) && is_answered(two, PATIENCE));
    assert!(TcpStream::connect(file).is_err());
    assert_eq!(served.end().0, Some(0));
}

#[test]
fn the_acl_of_the_command_line_stands_in_for_the_default_one_alone() {
    for (text, words, expected) in [
        ("", &[][..], true),
        ("", &["--acl", "192.0.2.0/24"], false),
        ("", &["-a", "192.0.2.0/24", "-a", "127.0.0.0/8"], true),
        ("setACL('127.0.0.0/8')", &["--acl", "192.0.2.0/24"], true),
        ("setACL('192.0.2.0/24')", &["--acl", "127.0.0.0/8"], false),
        ("addACL('127.0.0.0/8')", &["--acl", "192.0.2.0/24"], true),
    ] {
        let address = own_address();
        let listener = address.to_string();
        let words = [&["-l", &listener][..], words].concat();
        let served = Served::start(&format!("{text} {REFUSES}"), &words, address);
        let within = if expected { PATIENCE } else { SILENCE };
        assert_eq!(is_answered(address, within), expected, "{text} {words:?}");
        assert_eq!(served.end().0, Some(0));
    }
}

#[test]
fn yaml_is_an_error_that_says_so() {
    let folder = tempfile::tempdir().expect("there is room for a folder");
    let path = folder.path().join("dnsdist.yml");
    std::fs::write(&path, "binds:\n").expect("the folder is ours");
    let path = path.display().to_string();
    let output = millrace(&["--check-config", "-C", &path]);
    let said = text(&output.stderr);
    assert!(
        said.contains(&format!("{path}: ")) && said.contains("YAML is not in millrace yet"),
        "{said}"
    );
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn commands_run_in_the_instance_whose_file_is_named() {
    let (address, console) = (own_address(), own_address());
    let text = format!(
        "setKey('MXNeLFWHUe4363BBKrY06cAsH8NWNb+Se2eXU5+Bb74=') controlSocket('{console}') counted = 7 {REFUSES}"
    );
    let served = Served::start(&text, &["-l", &address.to_string()], address);
    // It is opened after the listeners.
    await_tcp(console);
    let file = served.file.path().display().to_string();
    for (command, expected) in [
        ("1 + 1", "2\n"),
        ("counted", "7\n"),
        ("'text'", "text\n"),
        ("nil", ""),
        ("counted = 8", ""),
        ("return counted", "8\n"),
        (
            "getQueryCounters()",
            "query counting is currently: disabled (0 records in buffer)\n",
        ),
    ] {
        let output = millrace(&["-C", &file, "-e", command]);
        assert_eq!(crate::text(&output.stdout), expected, "{command}");
        assert_eq!(output.status.code(), Some(0), "{command}");
    }
    let output = millrace(&["-C", &file, "-e", "nosuch()"]);
    assert!(crate::text(&output.stdout).starts_with("Error: "));
    assert_eq!(served.end().0, Some(0));
}

/// Scripts read what the console answers, and the client runs the file to find it.
#[test]
fn what_the_file_prints_does_not_stand_in_the_answer() {
    let (address, console) = (own_address(), own_address());
    let text = format!(
        "setKey('MXNeLFWHUe4363BBKrY06cAsH8NWNb+Se2eXU5+Bb74=') controlSocket('{console}') print('read', 3) {REFUSES}"
    );
    let served = Served::start(&text, &["-l", &address.to_string()], address);
    await_tcp(console);
    let file = served.file.path().display().to_string();
    let output = millrace(&["-C", &file, "-e", "1 + 1"]);
    assert_eq!(crate::text(&output.stdout), "2\n");
    assert_eq!(crate::text(&output.stderr), "read\t3\n");
    assert_eq!(served.end().0, Some(0));
}

/// I12: a check, the console's client and a second start touch nothing of the instance that runs.
#[test]
fn i12_who_comes_second_leaves_the_first_as_it_is() {
    let (address, console, other) = (own_address(), own_address(), own_address());
    let folder = tempfile::tempdir().expect("there is room for a folder");
    let path = folder.path().join("dns.sock");
    let at_path = format!("addLocal('{}')", path.display());
    let text = format!(
        "setKey('MXNeLFWHUe4363BBKrY06cAsH8NWNb+Se2eXU5+Bb74=') controlSocket('{console}') counted = 7 \
         addLocal('{address}') {at_path} {REFUSES}"
    );
    let served = Served::start(&text, &[], address);
    await_tcp(console);
    let control = served.file.path().with_extension("control");
    let paths = [control.as_path(), path.as_path()];
    paths.into_iter().for_each(await_path);
    let inode = |path: &Path| std::fs::metadata(path).map(|file| file.ino()).ok();
    let before = paths.map(inode);

    let elsewhere = folder.path().join("elsewhere.conf");
    std::fs::write(&elsewhere, format!("addLocal('{other}') {at_path}")).expect("it is ours");
    let file = served.file.path().display().to_string();
    let control = control.display().to_string();
    let elsewhere = elsewhere.display().to_string();
    let key = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";
    for (words, is_well) in [
        (&["--check-config", "-C", &file][..], true),
        (&["-C", &file, "-e", "counted = counted + 1"], true),
        (&["-C", &file, "-k", key, "-e", "shutdown()"], false),
        (&["--control", &control, "-C", &file], false),
        (&["--control", &control, "-C", &elsewhere], false),
    ] {
        let output = millrace(words);
        let said = crate::text(&output.stderr);
        assert_eq!(output.status.success(), is_well, "{words:?} {said}");
        assert_eq!(paths.map(inode), before, "{words:?}");
        assert!(is_answered(address, PATIENCE), "{words:?}");
    }
    assert!(TcpStream::connect(other).is_err());
    let output = millrace(&["-C", &file, "-e", "return counted"]);
    assert_eq!(crate::text(&output.stdout), "8\n");
    assert!(millrace(&["stats", "--control", &control]).status.success());
    assert_eq!(served.end().0, Some(0));
}
