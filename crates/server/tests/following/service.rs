//! As a service of systemd's: what it is told, the watchdog, sockets that outlive the process (F38). The service manager is a
//! socket of this test's.

use crate::rig::{PATIENCE, REFUSED, Rig, ask};
use crate::stalled::Held;
use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};
use nix::sys::signal::{Signal, kill};
use nix::sys::socket::{setsockopt, sockopt};
use std::ffi::OsString;
use std::fs;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};
use testnet::again_if_interrupted;
use testnet::dns::Query;
use testnet::lab::{Lab, Topology};
use testnet::subject::StartedBy;

const ADDRESS: &str = "192.0.2.1:53";

/// How long something may take that is to be told, in a debug build on a busy machine.
const TOLD_WITHIN: Duration = PATIENCE;

fn configuration() -> String {
    format!("addLocal(\"{ADDRESS}\", {{xdp=true}})\n{REFUSED}")
}

/// A message of the daemon's: its text, and the descriptors that came with it.
type Message = (Vec<u8>, Vec<OwnedFd>);

/// What listens at NOTIFY_SOCKET. It reads at once, as systemd does: ten messages fill the socket (net.unix.max_dgram_qlen), and
/// what is said then comes a second later.
struct Manager {
    messages: Receiver<Message>,
    path: PathBuf,
    _folder: tempfile::TempDir,
    /// The descriptor store.
    stored: Vec<OwnedFd>,
}

impl Manager {
    fn start() -> Manager {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("notify");
        let socket = UnixDatagram::bind(&path).expect("a socket");
        let (sender, messages) = channel();
        std::thread::spawn(move || {
            // Until the manager is gone, or the test's process ends.
            while let Ok(message) = testnet::sys::receive_descriptors(&socket) {
                if sender.send(message).is_err() {
                    return;
                }
            }
        });
        Manager {
            messages,
            path,
            _folder: folder,
            stored: Vec::new(),
        }
    }

    /// Words before the daemon's own, with these variables.
    fn starts(&self, variables: &[&str]) -> StartedBy {
        let notify = format!("NOTIFY_SOCKET={}", self.path.display());
        let words = ["env", &notify]
            .into_iter()
            .chain(variables.iter().copied());
        StartedBy {
            command: words.map(str::to_owned).collect(),
            denied: Vec::new(),
        }
    }

    /// The next message within this time; descriptors go into the store.
    fn hears(&mut self, within: Duration) -> Option<String> {
        let (text, descriptors) = self.messages.recv_timeout(within).ok()?;
        let text = String::from_utf8(text).expect("text");
        if text.contains("FDSTOREREMOVE=1") {
            self.stored.clear();
        }
        self.stored.extend(descriptors);
        Some(text)
    }

    /// Awaits a message that begins so; the whole of it.
    fn awaits(&mut self, beginning: &str) -> String {
        let until = Instant::now() + TOLD_WITHIN;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let said = self.hears(left);
            match said.unwrap_or_else(|| panic!("nothing said of {beginning}")) {
                text if text.starts_with(beginning) => return text,
                _ => {}
            }
        }
    }

    /// Whether something that begins so is said within this time.
    fn is_told(&mut self, beginning: &str, within: Duration) -> bool {
        let until = Instant::now() + within;
        while let Some(text) = self.hears(until.saturating_duration_since(Instant::now())) {
            if text.starts_with(beginning) {
                return true;
            }
        }
        false
    }

    /// Awaits a second and a half without a message that begins so: what was on its way is let through.
    fn awaits_silence(&mut self, beginning: &str) {
        let until = Instant::now() + TOLD_WITHIN;
        while self.is_told(beginning, Duration::from_millis(1_500)) {
            assert!(Instant::now() < until, "{beginning} is told on and on");
        }
    }
}

fn lab(name: &str) -> Option<Lab> {
    Rig::lab(name, Topology::TwoInterfaces)
}

/// `systemctl status` shows what there is, not what there was when the configuration was read.
#[test]
fn f38_the_status_follows_the_queues() {
    let Some(lab) = lab("status") else { return };
    let mut manager = Manager::start();
    let rig = Rig::start_by(lab, &configuration(), &manager.starts(&[]));
    manager.awaits("READY=1");
    rig.ip("link del enp1s0\n");
    let without = "STATUS=configuration 1: 1 addresses, 0 queues over AF_XDP";
    assert!(manager.is_told(without, TOLD_WITHIN));
    rig.server.stop().expect("a good end");
}

#[test]
fn f38_systemd_is_told_what_happens() {
    let Some(lab) = lab("told") else { return };
    let mut manager = Manager::start();
    let mut rig = Rig::start_by(lab, &configuration(), &manager.starts(&[]));
    let ready = manager.awaits("READY=1");
    assert!(
        ready.contains("STATUS=configuration 1: 1 addresses"),
        "{ready}"
    );
    manager.awaits("FDSTORE=1");
    rig.server
        .signal(nix::sys::signal::Signal::SIGHUP)
        .expect("to signal");
    let reloading = manager.awaits("RELOADING=1");
    let (_, moment) = reloading.split_once("MONOTONIC_USEC=").expect("when");
    let moment: u64 = moment.trim().parse().expect("microseconds");
    let uptime = fs::read_to_string("/proc/uptime").expect("/proc");
    let uptime: f64 = uptime
        .split(' ')
        .next()
        .and_then(|text| text.parse().ok())
        .expect("seconds");
    assert!(
        (uptime - moment as f64 / 1e6).abs() < 60.0,
        "{moment} at {uptime}"
    );
    assert!(manager.awaits("READY=1").contains("configuration 2"));
    rig.write("addLocl()\n");
    rig.server
        .signal(nix::sys::signal::Signal::SIGHUP)
        .expect("to signal");
    manager.awaits("RELOADING=1");
    // Nobody waits for ever for a file that is bad: the old configuration is ready.
    assert!(manager.awaits("READY=1").contains("configuration 2"));
    rig.says("the configuration was not reloaded");
    rig.server.stop().expect("a good end");
    manager.awaits("STOPPING=1");
}

/// SIGHUP ends a process that does not listen to it. The file itself sends it, in the first of its runs, before anything serves.
#[test]
fn a_reload_that_is_asked_for_during_the_start_comes_once_after_it() {
    let Some(lab) = lab("early") else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let first = folder.path().join("first");
    fs::write(&first, "").expect("a file");
    let hangs_up = format!(
        "if os.remove(\"{}\") then os.execute('kill -HUP $PPID; kill -HUP $PPID') end\n",
        first.display()
    );
    let mut manager = Manager::start();
    let rig = Rig::start_by(lab, &(hangs_up + &configuration()), &manager.starts(&[]));
    assert!(manager.awaits("READY=1").contains("configuration 1"));
    manager.awaits("RELOADING=1");
    assert!(manager.awaits("READY=1").contains("configuration 2"));
    rig.is_served_over_xdp(ADDRESS, "enp1s0");
    // Programs that the daemon starts have nothing blocked.
    let status = fs::read_to_string(format!("/proc/{}/status", rig.daemon())).expect("its status");
    assert!(status.contains("SigBlk:\t0000000000000000"), "{status}");
    assert!(!manager.is_told("RELOADING=1", Duration::from_secs(1)));
    rig.server.stop().expect("a good end");
}

/// The status tells who has the address; as soon as that one lets go the service starts.
/// The control socket, `/metrics` and the console say that the daemon serves: a query that is asked then comes over AF_XDP.
#[test]
fn whoever_is_answered_at_the_control_socket_finds_queries_coming_over_af_xdp() {
    let Some(lab) = lab("service-entered") else {
        return;
    };
    let rig = Rig::start_in(lab, &configuration());
    let log = rig.log();
    for queue in 0..2 {
        let line = format!("queue {queue} of enp1s0 is served over AF_XDP");
        assert!(log.contains(&line), "the daemon answers without it:\n{log}");
    }
}

#[test]
fn an_address_in_use_is_told_of_and_waited_for() {
    let Some(lab) = lab("occupied") else { return };
    let taken = lab.server().run(|| UdpSocket::bind(ADDRESS));
    let taken = taken.expect("the namespace").expect("a socket");
    let mut manager = Manager::start();
    let by = manager.starts(&[]);
    let letting_go = std::thread::spawn(move || {
        let told = manager.awaits("STATUS=");
        drop(taken);
        (manager, told)
    });
    let mut rig = Rig::start_by(lab, &configuration(), &by);
    let (mut manager, told) = letting_go.join().expect("the service manager");
    let holder = format!("STATUS={ADDRESS} is in use, by UDP {ADDRESS} of process ");
    assert!(told.starts_with(&holder), "{told}");
    assert!(told.contains("it is tried for 10 s"), "{told}");
    rig.says("is free: the start goes on");
    assert!(manager.awaits("READY=1").contains("configuration 1"));
    rig.is_served_over_xdp(ADDRESS, "enp1s0");
    // Nothing was attached before, to be detached when the start had failed.
    let log = rig.log();
    let [free, attached] = ["is free", "program attached in"].map(|text| log.find(text));
    assert!(free < attached, "{log}");
    rig.server.stop().expect("a good end");
}

#[test]
fn f38_a_held_worker_feeds_no_watchdog() {
    let Some(lab) = lab("watched") else { return };
    let mut manager = Manager::start();
    let rig = Rig::start_by(
        lab,
        &configuration(),
        &manager.starts(&["WATCHDOG_USEC=600000"]),
    );
    rig.is_served_over_xdp(ADDRESS, "enp1s0");
    manager.awaits("WATCHDOG=1");
    let held = Held::thread(rig.daemon(), "worker-1");
    manager.awaits_silence("WATCHDOG=1");
    drop(held);
    manager.awaits("WATCHDOG=1");
    rig.server.stop().expect("a good end");
}

/// Clients have all descriptors: that is no reason to end the service.
#[test]
fn f38_the_watchdog_is_fed_where_no_descriptor_is_left() {
    const DESCRIPTORS: usize = 64;
    let Some(lab) = lab("exhausted") else { return };
    let mut manager = Manager::start();
    // Connections stay, though nothing is asked by them.
    let one = format!("setTCPRecvTimeout(600)\naddLocal(\"{ADDRESS}\")\n{REFUSED}");
    let mut by = manager.starts(&["WATCHDOG_USEC=600000"]);
    let limit = format!("--nofile={DESCRIPTORS}:{DESCRIPTORS}");
    by.command.extend(["prlimit".to_owned(), limit]);
    let rig = Rig::start_by(lab, &one, &by);
    manager.awaits("WATCHDOG=1");
    let connected = rig.lab.client().run(|| {
        let connections = (0..DESCRIPTORS).map(|_| TcpStream::connect(ADDRESS));
        connections.collect::<io::Result<Vec<_>>>()
    });
    let connections = connected.expect("the namespace").expect("connections");
    let folder = format!("/proc/{}/fd", rig.daemon());
    rig.awaits("no descriptor to be left", || {
        fs::read_dir(&folder).is_ok_and(|open| open.count() >= DESCRIPTORS)
    });
    // What was said before.
    while manager.hears(Duration::ZERO).is_some() {}
    for _ in 0..3 {
        manager.awaits("WATCHDOG=1");
    }
    drop(connections);
    rig.server.stop().expect("a good end");
}

#[test]
fn f38_a_watchdog_of_another_process_is_not_fed() {
    let Some(lab) = lab("unwatched") else { return };
    let mut manager = Manager::start();
    let variables = ["WATCHDOG_USEC=300000", "WATCHDOG_PID=1"];
    let rig = Rig::start_by(lab, &configuration(), &manager.starts(&variables));
    manager.awaits("READY=1");
    assert!(!manager.is_told("WATCHDOG=1", Duration::from_secs(1)));
    rig.server.stop().expect("a good end");
}

/// The daemon with these sockets as its descriptors 3 and 4, as systemd starts it.
fn start_with(lab: &Lab, sockets: [OwnedFd; 2], folder: &Path, notify: &Path) -> Child {
    let [first, second] = sockets;
    let script = "exec 3<&0 4<&1 </dev/null >/dev/null; LISTEN_PID=$$ LISTEN_FDS=2 exec \"$@\"";
    let mut command = Command::new("sh");
    command
        .args(["-c", script, "sh", env!("CARGO_BIN_EXE_millrace")])
        .arg("--supervised")
        .arg("-C")
        .arg(folder.join("again.lua"))
        .arg("--control")
        .arg(folder.join("again"))
        .env("NOTIFY_SOCKET", notify)
        .stdin(Stdio::from(first))
        .stdout(Stdio::from(second));
    lab.server()
        .spawn(&mut command, Some(&lab.bpffs()))
        .expect("the daemon")
}

/// A query that was sent while nobody served, and its answer.
#[test]
fn f38_sockets_outlive_the_process_in_the_descriptor_store() {
    let Some(lab) = lab("stored") else { return };
    let mut manager = Manager::start();
    // One socket for UDP and one for TCP.
    let one = format!("addLocal(\"{ADDRESS}\")\n{REFUSED}");
    let rig = Rig::start_by(lab, &one, &manager.starts(&[]));
    manager.awaits("FDSTORE=1");
    assert_eq!(manager.stored.len(), 2);
    let lab = rig.stop();
    manager.awaits("STOPPING=1");
    let stopped = Instant::now();
    let client = lab.client();
    let asking = std::thread::spawn(move || ask(&client, ADDRESS, TOLD_WITHIN));
    let folder = tempfile::tempdir().expect("a folder");
    let file = "setACL(\"0.0.0.0/0\")\n".to_owned() + &one;
    fs::write(folder.path().join("again.lua"), file).expect("a configuration");
    let stored = std::mem::take(&mut manager.stored);
    let sockets = stored.try_into().expect("two");
    let mut daemon = start_with(&lab, sockets, folder.path(), &manager.path);
    assert!(asking.join().expect("the client"), "lost, not late");
    println!("stop to answer: {:?} (debug build)", stopped.elapsed());
    manager.awaits("READY=1");
    assert!(ask(&lab.client(), ADDRESS, PATIENCE));
    daemon.kill().expect("to end it");
    daemon.wait().expect("its end");
}

/// The sockets of a socket unit: nobody has served by them yet, and what has come to them is answered, over UDP and TCP.
#[test]
fn f38_what_came_to_a_socket_unit_before_the_start_is_answered() {
    let Some(lab) = lab("activated") else { return };
    let mut manager = Manager::start();
    let opened = lab.server().run(|| {
        let (udp, tcp) = (UdpSocket::bind(ADDRESS)?, TcpListener::bind(ADDRESS)?);
        Ok::<_, io::Error>([OwnedFd::from(udp), OwnedFd::from(tcp)])
    });
    let sockets = opened.expect("the namespace").expect("the unit's sockets");
    let query = Query::new("www.example.com.", "A").expect("a query");
    let query = query.octets();
    let framed = [&(query.len() as u16).to_be_bytes()[..], &query].concat();
    let asked = lab.client().run(|| {
        let udp = UdpSocket::bind("0.0.0.0:0")?;
        udp.set_read_timeout(Some(TOLD_WITHIN))?;
        udp.connect(ADDRESS)?;
        udp.send(&query)?;
        let mut tcp = TcpStream::connect(ADDRESS)?;
        tcp.set_read_timeout(Some(TOLD_WITHIN))?;
        tcp.write_all(&framed)?;
        Ok::<_, io::Error>((udp, tcp))
    });
    let (udp, mut tcp) = asked.expect("the namespace").expect("to ask");
    let folder = tempfile::tempdir().expect("a folder");
    let file = format!("setACL(\"0.0.0.0/0\")\naddLocal(\"{ADDRESS}\")\n{REFUSED}");
    fs::write(folder.path().join("again.lua"), file).expect("a configuration");
    let mut daemon = start_with(&lab, sockets, folder.path(), &manager.path);
    manager.awaits("READY=1");
    // REFUSED is 5 (RFC 1035 section 4.1.1).
    let mut answer = [0; 512];
    again_if_interrupted(|| udp.recv(&mut answer)).expect("an answer over UDP");
    assert_eq!(answer[3] & 15, 5);
    // The length of the message, and its header.
    let mut answer = [0; 14];
    tcp.read_exact(&mut answer).expect("an answer over TCP");
    assert_eq!(answer[5] & 15, 5);
    daemon.kill().expect("to end it");
    daemon.wait().expect("its end");
}

/// Nobody can bind an address of a socket unit, and the unit lends its sockets once.
#[test]
fn sockets_of_a_socket_unit_are_there_when_their_listener_comes_back() {
    let Some(lab) = lab("lentagain") else { return };
    let mut manager = Manager::start();
    let opened = lab.server().run(|| {
        let (udp, tcp) = (UdpSocket::bind(ADDRESS)?, TcpListener::bind(ADDRESS)?);
        Ok::<_, io::Error>([OwnedFd::from(udp), OwnedFd::from(tcp)])
    });
    let sockets = opened.expect("the namespace").expect("the unit's sockets");
    let of_the_unit = sockets
        .each_ref()
        .map(|socket| socket.try_clone().expect("a copy"));
    let folder = tempfile::tempdir().expect("a folder");
    let other = format!("setACL(\"0.0.0.0/0\")\naddLocal(\"192.0.2.1:5300\")\n{REFUSED}");
    let both = format!("{other}addLocal(\"{ADDRESS}\")\n");
    let write = |text: &str| fs::write(folder.path().join("again.lua"), text).expect("a file");
    // One that no listener has at the start, too.
    write(&other);
    let mut daemon = start_with(&lab, sockets, folder.path(), &manager.path);
    manager.awaits("READY=1");
    for text in [&both, &other, &both] {
        write(text);
        let mut command = Command::new(env!("CARGO_BIN_EXE_millrace"));
        let command = command.arg("reload").arg("--control");
        let output = command.arg(folder.path().join("again")).output();
        let output = output.expect("millrace reload");
        assert!(output.status.success(), "{output:?}");
        let served = ask(&lab.client(), ADDRESS, Duration::from_secs(5));
        assert_eq!(served, text == &both, "{text}");
    }
    let connected = lab.client().run(|| TcpStream::connect(ADDRESS));
    connected.expect("the namespace").expect("TCP");
    drop(of_the_unit);
    daemon.kill().expect("to end it");
    daemon.wait().expect("its end");
}

/// `interface=` was changed, and then `systemctl restart`: what the store has would keep the listener from its own address.
#[test]
fn f38_kept_sockets_of_another_interface_give_way() {
    let Some(lab) = lab("elsewhere") else { return };
    let mut manager = Manager::start();
    let opened = lab.server().run(|| {
        let (udp, tcp) = (UdpSocket::bind(ADDRESS)?, TcpListener::bind(ADDRESS)?);
        setsockopt(&udp, sockopt::BindToDevice, &OsString::from("enp1s0"))?;
        Ok::<_, io::Error>([OwnedFd::from(udp), OwnedFd::from(tcp)])
    });
    let sockets = opened.expect("the namespace").expect("kept sockets");
    let folder = tempfile::tempdir().expect("a folder");
    let file = format!("setACL(\"0.0.0.0/0\")\naddLocal(\"{ADDRESS}\")\n{REFUSED}");
    fs::write(folder.path().join("again.lua"), file).expect("a configuration");
    let mut daemon = start_with(&lab, sockets, folder.path(), &manager.path);
    manager.awaits("READY=1");
    assert!(ask(&lab.client(), ADDRESS, PATIENCE));
    daemon.kill().expect("to end it");
    daemon.wait().expect("its end");
}

#[test]
fn a_restart_by_hand_over_tells_which_process_is_the_main_one() {
    let Some(lab) = lab("mainpid") else { return };
    let mut manager = Manager::start();
    let variables = ["WATCHDOG_USEC=600000"];
    let mut rig = Rig::start_by(lab, &configuration(), &manager.starts(&variables));
    manager.awaits("READY=1");
    let process = crate::restart::restarted(&mut rig);
    assert_eq!(manager.awaits("MAINPID="), format!("MAINPID={process}"));
    // Before that systemd would not have listened to it (NotifyAccess=main). The sockets that are kept are its own.
    let ready = manager.awaits("READY=1");
    assert!(ready.contains("STATUS=configuration 1: "), "{ready}");
    manager.awaits("FDSTOREREMOVE=1");
    manager.awaits("FDSTORE=1");
    // The new one is watched from now on, and the end of the old one is not the service's.
    manager.awaits("WATCHDOG=1");
    assert!(!manager.is_told("STOPPING=1", Duration::from_secs(1)));
    // The helper that started it blocks signals.
    kill(process, Signal::SIGHUP).expect("to signal");
    manager.awaits("RELOADING=1");
    assert!(manager.awaits("READY=1").contains("configuration 2"));
    crate::restart::end(process);
    manager.awaits("STOPPING=1");
}

/// What the unit leaves the service, in setpriv's words: `+net_admin,+net_raw`.
fn unit_capabilities() -> String {
    let unit = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../packaging/systemd/millrace.service"
    );
    let unit = fs::read_to_string(unit).expect("the unit");
    let mut lines = unit.lines();
    let line = lines.find_map(|line| line.strip_prefix("AmbientCapabilities="));
    let names = line.expect("capabilities").split(' ');
    let names = names.map(|name| format!("+{}", name.to_lowercase().replace("cap_", "")));
    names.collect::<Vec<_>>().join(",")
}

#[test]
fn the_units_user_limits_and_capabilities_are_enough_to_serve_and_to_restart() {
    let Some(lab) = lab("unit") else { return };
    let mut capabilities = unit_capabilities();
    // LimitMEMLOCK=infinity, which not every machine lets a test have: the capability stands for it.
    if getrlimit(Resource::RLIMIT_MEMLOCK).expect("a limit").1 != RLIM_INFINITY {
        capabilities += ",+ipc_lock";
    }
    let words = format!(
        "setpriv --no-new-privs --reuid=65534 --regid=65534 --clear-groups \
         --inh-caps=-all,{capabilities} --ambient-caps=-all,{capabilities} --bounding-set=-all,{capabilities}"
    );
    let by = StartedBy {
        command: words.split_whitespace().map(str::to_owned).collect(),
        denied: Vec::new(),
    };
    let mut rig = Rig::start_by(lab, &configuration(), &by);
    rig.is_served_over_xdp(ADDRESS, "enp1s0");
    assert_eq!(rig.metric("millrace_helper_alive", &[]), 1.0);
    let process = crate::restart::restarted(&mut rig);
    rig.is_served_over_xdp(ADDRESS, "enp1s0");
    let status = fs::read_to_string(format!("/proc/{process}/status")).expect("its status");
    assert!(status.contains("CapPrm:\t0000000000000000"), "{status}");
    assert!(
        status.contains("Uid:\t65534\t65534\t65534\t65534"),
        "{status}"
    );
    crate::restart::end(process);
}
