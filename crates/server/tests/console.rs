//! The console from outside: an instance on loopback, our client, and dnsdist's where it is installed.

use std::io::Write;
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use testnet::again_if_interrupted;
use testnet::loopback::own_address;

const KEY: &str = "MXNeLFWHUe4363BBKrY06cAsH8NWNb+Se2eXU5+Bb74=";

/// How long a start or an end may take, in a debug build on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long an answer is waited for that is not to come.
const SILENCE: Duration = Duration::from_secs(2);

/// A server and the file that it was started with.
struct Instance {
    program: &'static str,
    process: Child,
    folder: tempfile::TempDir,
    dns: SocketAddr,
}

const OURS: &str = env!("CARGO_BIN_EXE_millrace");

impl Instance {
    /// `program` under `configuration`, with a listener and a console.
    fn start(program: &'static str, configuration: &str) -> Instance {
        let folder = tempfile::tempdir().expect("a folder");
        let (dns, console) = (own_address(), own_address());
        let text = format!(
            "addLocal('{dns}') controlSocket('{console}') setKey('{KEY}') setSecurityPollSuffix('')\n{configuration}"
        );
        std::fs::write(folder.path().join("file.conf"), text).expect("a file");
        let mut command = Command::new(program);
        command
            .args(["--supervised", "-C"])
            .arg(folder.path().join("file.conf"));
        if program == OURS {
            command.arg("--control").arg(folder.path().join("control"));
        }
        let process = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the program starts");
        let instance = Instance {
            program,
            process,
            folder,
            dns,
        };
        wait_for("the listener", || TcpStream::connect(dns).is_ok());
        wait_for("the console", || TcpStream::connect(console).is_ok());
        instance
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("file.conf")
    }

    /// What `client -e command` prints.
    fn ask_by(&self, client: &str, command: &str) -> String {
        let output = Command::new(client)
            .arg("-C")
            .arg(self.file())
            .args(["-e", command])
            .output();
        text(&output.expect("the client starts"))
    }

    fn ask(&self, command: &str) -> String {
        self.ask_by(OURS, command)
    }

    /// What `client -c` prints when these lines come by standard input.
    fn talk_by(&self, client: &str, lines: &str) -> String {
        let mut child = Command::new(client)
            .arg("-C")
            .arg(self.file())
            .arg("-c")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the client starts");
        let mut input = child.stdin.take().expect("it was piped");
        input.write_all(lines.as_bytes()).expect("the client reads");
        drop(input);
        text(&child.wait_with_output().expect("the client ends"))
    }

    /// The response code of the answer to `name` A.
    fn rcode(&self, name: &str) -> Option<u8> {
        self.rcode_within(name, PATIENCE)
    }

    /// The same; `None`: no answer comes within this time.
    fn rcode_within(&self, name: &str, within: Duration) -> Option<u8> {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("loopback");
        let limit = Some(within);
        socket.set_read_timeout(limit).expect("a limit");
        let mut query = vec![0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        for label in name.split('.') {
            query.push(label.len() as u8);
            query.extend(label.as_bytes());
        }
        query.extend([0, 0, 1, 0, 1]);
        socket.send_to(&query, self.dns).expect("loopback");
        let mut answer = [0; 512];
        let length = again_if_interrupted(|| socket.recv(&mut answer)).ok()?;
        (length >= 12).then_some(answer[3] & 15)
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn text(output: &Output) -> String {
    let streams = [&output.stdout, &output.stderr];
    streams
        .map(|stream| String::from_utf8_lossy(stream).into_owned())
        .concat()
}

fn wait_for(what: &str, mut is_there: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !is_there() {
        assert!(Instant::now() < until, "{what} is not there");
        // tidy: a port that nobody listens on yet, or a process of another program, gives nothing to await
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The program that `DNSDIST` names, or the one in the path.
fn dnsdist() -> Option<&'static str> {
    let named = std::env::var("DNSDIST").unwrap_or_else(|_| "dnsdist".to_owned());
    let named: &'static str = named.leak();
    let found = Command::new(named).arg("--version").output();
    let has_sodium = found.is_ok_and(|output| text(&output).contains("libsodium"));
    if !has_sodium {
        println!("SKIP: dnsdist with libsodium is not installed, so nothing is compared with it");
    }
    has_sodium.then_some(named)
}

const CONFIGURATION: &str = r#"
    newServer{address="127.0.0.1:9", name="one", healthCheckMode="down", pool={"", "abc"}}
    newServer{address="127.0.0.2:9", healthCheckMode="up"}
    pc = newPacketCache(1000) getPool(""):setCache(pc)
    addAction("refused.example", RCodeAction(DNSRCode.REFUSED), {name="refuser"})
    addAction(AndRule({QTypeRule("A"), QNameRule("long.example.com")}), RCodeAction(3))
    greeting = "hello"
"#;

/// Commands, and what is in their answers.
const SHOWN: &[(&str, &str)] = &[
    ("showVersion()", "dnsdist (millrace "),
    ("greeting", "hello\n"),
    (
        "showServers()",
        "0   one                  127.0.0.1:9                    DOWN ",
    ),
    (
        "showServers()",
        "1   127.0.0.2:9          127.0.0.2:9                      UP ",
    ),
    (
        "showRules()",
        "0   refuser                                1 qname in refused.example.",
    ),
    (
        "showRules({truncateRuleWidth=5})",
        "1                                          0 (qtyp ",
    ),
    (
        "topRules(1)",
        "0   refuser                                1 ",
    ),
    ("getRule('refuser'):getSelector():getMatches()", "1\n"),
    (
        "showPools()",
        "                                       0/1000     leastOutstanding one 127.0.0.1:9, ",
    ),
    ("showBinds()", " UDP                   1\n"),
    ("getBindCount()", "2\n"),
    ("showServerPolicy()", "leastOutstanding\n"),
    (
        "topQueries()",
        "   1  www.refused.example.                        1 100.0%\n",
    ),
    (
        "topClients()",
        "   1  127.0.0.1                                   1 100.0%\n",
    ),
    (
        "grepq('refused.example')",
        " www.refused.example.      A               RD    Question\n",
    ),
    (
        "grepq('')",
        " www.refused.example.      A               RD    Question\n",
    ),
    ("grepq('')", " Server       ID    Name "),
    (
        "pc:expungeByName('www.refused.example')",
        "Expunged 0 records\n",
    ),
    ("showResponseLatency()", "No traffic yet.\n"),
    (
        "dumpStats()",
        "acl-drops                          \t          0 ",
    ),
    ("getStatisticsCounters()['self-answered']", "1\n"),
    ("showTCPStats()", " Queued       Max Queued\n"),
    ("showTCPStats()", "\n\nFrontends:\n#   Address "),
    ("showWebserverConfig()", "ACL: 127.0.0.1/32, ::1/128\n"),
    ("pc:printStats()", "Entries: 0/1000\n"),
    ("getServer(0)", "one\n"),
    ("help('showACL')", "showACL(): "),
    ("makeKey()", "setKey(\""),
    ("testCrypto()", "Everything is ok!\n"),
    (
        "addLocal('127.0.0.1:1')",
        "Error: addLocal: cannot be used at runtime",
    ),
    (
        "millrace.addZone{name='late.example', file='late.zone'}",
        "Error: millrace.addZone: cannot be used at runtime",
    ),
    (
        "setMaxTCPClientThreads(4)",
        "Error: setMaxTCPClientThreads: cannot be used at runtime",
    ),
    (
        "nonsense()",
        "Error: console:1: attempt to call global 'nonsense'",
    ),
];

#[test]
fn commands_show_what_there_is() {
    let instance = Instance::start(OURS, CONFIGURATION);
    assert_eq!(instance.rcode("www.refused.example"), Some(5));
    for (command, expected) in SHOWN {
        let until = Instant::now() + PATIENCE;
        let mut answer = instance.ask(command);
        // What a worker counts it shows after its batch, which is after its answer.
        while !answer.contains(expected) && Instant::now() < until {
            answer = instance.ask(command);
        }
        assert!(answer.contains(expected), "{command}:\n{answer}");
    }
}

#[test]
fn what_a_command_changes_serves_before_its_answer_comes() {
    let instance = Instance::start(OURS, CONFIGURATION);
    for (command, name, rcode) in [
        (
            "addAction('late.example', RCodeAction(4))",
            "late.example",
            Some(4),
        ),
        ("mvRule(2, 0)", "late.example", Some(4)),
        ("rmRule('refuser')", "late.example", Some(4)),
        (
            "clearRules() addAction(AllRule(), RCodeAction(3))",
            "refused.example",
            Some(3),
        ),
        ("setACL('192.0.2.0/24')", "late.example", None),
        ("addACL('127.0.0.0/8')", "late.example", Some(3)),
        (
            "setRules({newRuleAction(AllRule(), RCodeAction(5))})",
            "x.example",
            Some(5),
        ),
    ] {
        assert_eq!(instance.ask(command), "", "{command}");
        let within = rcode.map_or(SILENCE, |_| PATIENCE);
        assert_eq!(instance.rcode_within(name, within), rcode, "{command}");
    }
    assert_eq!(
        instance.ask("newServer{address='127.0.0.3:9', name='three', healthCheckMode='down'}"),
        "three\n"
    );
    assert!(instance.ask("showServers()").contains("2   three  "));
    assert_eq!(
        instance.ask("getServer(2):setUp() getServer(2).weight = 7 getServer(2):addPool('new')"),
        ""
    );
    let shown = instance.ask("showServers()");
    assert!(
        shown.contains(" UP     0.0       0   1  7 ") && shown.contains(" new\n"),
        "{shown}"
    );
    assert_eq!(
        instance.ask(
            "rmServer(2) setServerPolicy(roundrobin) setPoolServerPolicy(firstAvailable, 'abc')"
        ),
        ""
    );
    assert!(!instance.ask("showServers()").contains("three"));
    assert_eq!(
        instance.ask("showServerPolicy() showPoolServerPolicy('abc')"),
        "roundrobin\nfirstAvailable\n"
    );
    assert_eq!(
        instance.ask(
            "setServerPolicyLua('mine', function() return 1 end) setPoolServerPolicyLua('own', function() return 1 end, 'abc') showServerPolicy() showPoolServerPolicy('abc')"
        ),
        "mine\nown\n"
    );
    assert!(instance.ask("showPools()").contains(" own one "));
}

/// Else no command after it would serve, until a reload.
#[test]
fn an_address_that_cannot_be_had_spoils_its_own_command_alone() {
    let instance = Instance::start(OURS, CONFIGURATION);
    let holder = TcpListener::bind(own_address()).expect("an address");
    let taken = holder.local_addr().expect("it is bound");
    for (function, rcode) in [("webserver", 3), ("controlSocket", 4)] {
        let answer = instance.ask(&format!("{function}('{taken}')"));
        let expected = format!("cannot listen on {taken}: ");
        assert!(answer.contains(&expected), "{function}: {answer}");
        let rules = format!("setRules({{newRuleAction(AllRule(), RCodeAction({rcode}))}})");
        let answer = instance.ask(&rules);
        assert_eq!(answer, "", "after {function}");
        assert_eq!(instance.rcode("x.example"), Some(rcode), "{function}");
    }
}

#[test]
fn a_reload_drops_what_the_file_does_not_hold_and_says_so() {
    let instance = Instance::start(OURS, CONFIGURATION);
    assert_eq!(instance.ask("addAction(AllRule(), RCodeAction(4))"), "");
    assert_eq!(instance.rcode("x.example"), Some(4));
    let reload = Command::new(OURS)
        .args(["reload", "--control"])
        .arg(instance.folder.path().join("control"))
        .output();
    let said = text(&reload.expect("the program starts"));
    assert!(
        said.contains("dropped: addAction(AllRule(), RCodeAction(4))\n"),
        "{said}"
    );
    assert!(!instance.ask("showRules()").contains("set rcode 4"));
    assert_eq!(instance.ask("delta()"), "");
}

#[test]
fn lines_of_standard_input_are_commands() {
    let instance = Instance::start(OURS, CONFIGURATION);
    let said = instance.talk_by(OURS, "x = 20\nx + 1\n\nprint('a', greeting)\nquit\nx\n");
    assert_eq!(said, "21\na\thello\n");
}

#[test]
fn a_client_without_the_key_or_without_a_server_says_why() {
    let instance = Instance::start(OURS, "");
    let other = Command::new(OURS)
        .arg("-C")
        .arg(instance.file())
        .args([
            "-k",
            "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=",
            "-e",
            "1",
        ])
        .output()
        .expect("the client starts");
    assert!(
        text(&other).contains("another key (setKey)"),
        "{}",
        text(&other)
    );
    assert_eq!(other.status.code(), Some(1));
    let nobody = own_address().to_string();
    let output = Command::new(OURS)
        .arg("-C")
        .arg(instance.file())
        .args(["-e", "1", &nobody])
        .output()
        .expect("the client starts");
    assert!(text(&output).contains(&format!("no console at {nobody}")));
}

#[test]
fn shutdown_ends_the_instance() {
    let mut instance = Instance::start(OURS, "");
    instance.ask("shutdown()");
    let mut status = None;
    wait_for("the end", || {
        status = instance.process.try_wait().expect("it is our child");
        status.is_some()
    });
    assert_eq!(status.and_then(|status| status.code()), Some(0));
}

#[test]
fn dnsdists_client_talks_to_our_server() {
    let Some(dnsdist) = dnsdist() else { return };
    let instance = Instance::start(OURS, CONFIGURATION);
    assert_eq!(instance.ask_by(dnsdist, "greeting"), "hello\n");
    assert!(
        instance
            .ask_by(dnsdist, "showServers()")
            .contains("127.0.0.2:9")
    );
    assert_eq!(
        instance.ask_by(dnsdist, "rmRule(77) "),
        "Error: rmRule: no rule 77: a number below 2, a UUID or a name expected\n"
    );
    let said = instance.talk_by(dnsdist, "x = 20\nx + 1\ngreeting\n");
    assert!(said.contains("21\n") && said.contains("hello\n"), "{said}");
    assert_eq!(
        instance.ask_by(dnsdist, "addAction(AllRule(), RCodeAction(4))"),
        ""
    );
    assert_eq!(instance.rcode("x.example"), Some(4));
}

#[test]
fn our_client_talks_to_dnsdists_server() {
    let Some(dnsdist) = dnsdist() else { return };
    let instance = Instance::start(dnsdist, "greeting = 'hello'");
    assert_eq!(instance.program, dnsdist);
    assert_eq!(instance.ask("greeting"), "hello\n");
    assert!(instance.ask("showVersion()").starts_with("dnsdist "));
    assert_eq!(instance.talk_by(OURS, "x = 20\nx + 1\n"), "21\n");
}
