//! Where it is measured: a lab, the server under test on a CPU of its own, a backend that is never the limit.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::client::Client;
use super::plan::{Contender, Library, Scenario, Server};
use super::record::said;
use crate::lab::{Lab, Plan, SERVER_BACKENDS, SERVER_CLIENTS, SERVER_V4, TO_SERVER, Topology};
use crate::namespace::{Namespace, run};
use crate::process::Process;
use crate::{During, Failure, Outcome, sys};

/// Our address towards backends, and the backend's.
const LOCAL: &str = "198.51.100.1";
const BACKEND: &str = "198.51.100.2";
const BACKEND_MAC: &str = "02:00:00:00:02:02";

/// How long a server may take to end.
const PATIENCE: Duration = Duration::from_secs(10);

/// Which CPU does what.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cpus {
    pub generator: usize,
    pub server: usize,
}

impl fmt::Display for Cpus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Generator on CPU {}, server on CPU {}; veth, whose receive work runs on the sender's CPU.",
            self.generator, self.server
        )
    }
}

/// Where programs are.
#[derive(Clone, Debug)]
pub(super) struct Places {
    /// Cargo's folder of built programs.
    pub built: PathBuf,
    /// What `make -C bench/yardsticks` builds.
    pub yardsticks: PathBuf,
    /// Where zones are made, and kept for the next run.
    pub zones: PathBuf,
}

/// How long queues that are too many may still be kept after a run: the kernel gives sockets of AF_XDP up a while after their
/// program has ended.
const KEPT: Duration = Duration::from_secs(5);

/// A lab with interfaces of as many queues as a scenario's contenders want.
pub(super) struct Stage {
    lab: Lab,
    library: Library,
    places: Places,
    cpus: Cpus,
    /// The file of the scenario's zone.
    zone: Option<PathBuf>,
}

/// A server that runs, and what is attached for it.
pub(super) struct Running<'s> {
    stage: &'s Stage,
    /// What its process writes; a backend has a file of its own.
    log: PathBuf,
    process: Option<Process>,
    /// Namespace and interface of programs that `ip` attached.
    attached: Vec<(Namespace, String)>,
}

impl Stage {
    /// Builds the lab of a scenario.
    pub(super) fn build(
        prefix: &str,
        scenario: &Scenario,
        library: &Library,
        places: &Places,
        cpus: Cpus,
    ) -> Outcome<Stage> {
        let lab = Lab::up(Plan {
            prefix: prefix.to_owned(),
            topology: if scenario.queues_max() > 2 {
                Topology::FourQueues
            } else {
                Topology::TwoInterfaces
            },
        })?;
        Ok(Stage {
            lab,
            library: library.clone(),
            places: places.clone(),
            cpus,
            zone: None,
        })
    }

    /// Another lab as this one, under a prefix of its own; its servers have the same zone.
    pub(super) fn another(&self, prefix: &str, scenario: &Scenario) -> Outcome<Stage> {
        let mut stage = Stage::build(prefix, scenario, &self.library, &self.places, self.cpus)?;
        stage.zone.clone_from(&self.zone);
        Ok(stage)
    }

    /// Servers are to have this zone.
    pub(super) fn set_zone(&mut self, file: &Path) {
        self.zone = Some(file.to_owned());
    }

    /// Where its queries come from.
    pub(super) fn client(&self) -> Client {
        Client::of_lab(self.lab.client(), self.cpus.generator).written_in(self.lab.ledger().book())
    }

    /// Gives every interface so many queues to receive, and as many to send. Nothing of a run may be left on them.
    pub(super) fn set_queues(&self, queues: u32) -> Outcome<()> {
        let ends = [
            (self.lab.client(), TO_SERVER),
            (self.lab.server(), SERVER_CLIENTS),
            (self.lab.server(), SERVER_BACKENDS),
            (self.lab.backend(), TO_SERVER),
        ];
        ends.into_iter()
            .try_for_each(|(namespace, interface)| set_queues_of(&namespace, interface, queues))
    }

    /// Starts the backend of a scenario, in its namespace.
    pub(super) fn start_backend(&self, name: &str) -> Outcome<Running<'_>> {
        let server = self.library.server(name)?;
        let mut running = self.running("backend.log");
        self.start_server(&mut running, &server, None, (self.lab.backend(), TO_SERVER))?;
        Ok(running)
    }

    /// Starts a contender's server.
    pub(super) fn start(&self, contender: &Contender) -> Outcome<Running<'_>> {
        let mut server = self.library.server(&contender.server)?;
        server.arguments.extend_from_slice(&contender.arguments);
        let words = arguments(&server, named(&server).as_deref());
        if let Some(lack) = lack(&words, contender, self.zone.is_some()) {
            return Err(Failure::new(lack));
        }
        let configuration = contender
            .configuration
            .as_ref()
            .map(|name| self.write_configuration(name, contender))
            .transpose()?;
        let mut running = self.running("server.log");
        for interface in &contender.pass {
            let object = self.places.yardsticks.join("pass.bpf.o");
            running.attach(self.lab.server(), interface, &object)?;
        }
        let path = configuration.as_deref();
        self.start_server(
            &mut running,
            &server,
            path,
            (self.lab.server(), SERVER_CLIENTS),
        )?;
        Ok(running)
    }

    fn running(&self, log: &'static str) -> Running<'_> {
        Running {
            stage: self,
            log: self.folder().join(log),
            process: None,
            attached: Vec::new(),
        }
    }

    fn start_server<'s>(
        &'s self,
        running: &mut Running<'s>,
        server: &Server,
        configuration: Option<&Path>,
        (namespace, interface): (Namespace, &str),
    ) -> Outcome<()> {
        if let Some(object) = &server.attach {
            let object = PathBuf::from(self.fill(object, configuration));
            return running.attach(namespace, interface, &object);
        }
        let program = self.program(server)?;
        let name = program.file_name().map_or_else(
            || "server".to_owned(),
            |name| name.to_string_lossy().into_owned(),
        );
        let log = &running.log;
        let output = File::create(log).during(format!("making {}", log.display()))?;
        let errors = output.try_clone().during("sharing the log")?;
        let mut command = Command::new("taskset");
        command
            .arg("-c")
            .arg(self.cpus.server.to_string())
            .arg(&program)
            .args(
                arguments(server, named(server).as_deref())
                    .iter()
                    .map(|word| self.fill(word, configuration)),
            )
            .current_dir(self.folder())
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(errors);
        sys::unblock_signals(&mut command);
        let child = namespace.spawn(&mut command, Some(&self.lab.bpffs()))?;
        running.process = Some(Process::new(&name, child, self.lab.ledger())?);
        Ok(())
    }

    /// Sets all threads of a server to its CPU once more: knotd chooses CPUs for its threads itself, and beside the
    /// generator it would wake nobody on another core, at half the cost of everybody else.
    pub(super) fn pin(&self, processes: &[u32]) -> Outcome<()> {
        let cpu = self.cpus.server.to_string();
        for process in processes {
            run("taskset", &["-acp", &cpu, &process.to_string()])?;
        }
        Ok(())
    }

    /// The program that the environment names, or the file says.
    pub(super) fn program(&self, server: &Server) -> Outcome<PathBuf> {
        let program = match (named(server), &server.program) {
            (Some(named), _) if server.words => {
                PathBuf::from(words(&named).first().cloned().unwrap_or_default())
            }
            (Some(named), _) => PathBuf::from(named),
            (None, Some(program)) => PathBuf::from(self.fill(program, None)),
            (None, None) => {
                return Err(Failure::new(format!(
                    "the environment names none in {}",
                    server.environment.as_deref().unwrap_or_default()
                )));
            }
        };
        if program.components().count() == 1 || program.is_file() {
            return Ok(program);
        }
        Err(Failure::new(format!(
            "there is no program {}: build it (`./dev bench` does), or name another in {}",
            program.display(),
            server.environment.as_deref().unwrap_or("its file")
        )))
    }

    /// What a server says of its version; its first line.
    pub(super) fn version(&self, server: &Server) -> String {
        if server.words {
            // What it is, is in the command line if anywhere.
            return named(server).map_or_else(String::new, |line| words(&line).join(" "));
        }
        if server.version.is_empty() {
            return String::new();
        }
        self.program(server)
            .map_or_else(|_| String::new(), |program| said(program, &server.version))
    }

    /// Writes a configuration with everything filled in.
    fn write_configuration(&self, name: &str, contender: &Contender) -> Outcome<PathBuf> {
        let (listen, backend) = contender.door.door().options();
        let text = self
            .fill(&self.library.configuration(name)?, None)
            .replace("$LISTEN", listen)
            .replace("$BACKEND_OPTIONS", backend);
        let path = self.folder().join(name.replace('/', "-"));
        fs::write(&path, text).during(format!("writing {}", path.display()))?;
        Ok(path)
    }

    /// Longer names first: some begin with others.
    fn fill(&self, text: &str, configuration: Option<&Path>) -> String {
        let configuration =
            configuration.map_or_else(String::new, |path| path.display().to_string());
        let folder = self.folder().display().to_string();
        let zone = self.zone.as_deref().unwrap_or(Path::new(""));
        text.replace("$BACKEND_INTERFACE", SERVER_BACKENDS)
            .replace("$BACKEND_MAC", BACKEND_MAC)
            .replace("$BACKEND_ADDRESS", BACKEND)
            .replace("$LOCAL", LOCAL)
            .replace("$INTERFACE", SERVER_CLIENTS)
            .replace("$ADDRESS", &SERVER_V4.to_string())
            .replace("$CONFIGURATION", &configuration)
            .replace("$ZONE", &zone.display().to_string())
            .replace("$YARDSTICKS", &self.places.yardsticks.display().to_string())
            .replace("$BUILT", &self.places.built.display().to_string())
            .replace("$FOLDER", &folder)
    }

    /// Takes a program off an interface, where somebody left one.
    fn clear(&self, namespace: &Namespace, interface: &str) {
        // Where there is none that can be taken off, there is nothing to do.
        let _ = namespace.ip(&format!("link set dev {interface} xdp off\n"));
    }

    /// Where configurations and logs go.
    pub(super) fn folder(&self) -> &Path {
        self.lab.ledger().folder()
    }
}

/// Gives one interface so many queues; one that has them is left as it is.
fn set_queues_of(namespace: &Namespace, interface: &str, queues: u32) -> Outcome<()> {
    let count = queues.to_string();
    let wanted = (queues, queues);
    let told = || -> Outcome<Option<(u32, u32)>> {
        let told = namespace.output("ethtool", &["-l", interface])?;
        Ok(queues_in(&told))
    };
    if told()? == Some(wanted) {
        return Ok(());
    }
    let began = Instant::now();
    loop {
        // What ethtool complains of is not told: what counts is how many there are then.
        let _ = namespace.run(|| run("ethtool", &["-L", interface, "rx", &count, "tx", &count]))?;
        match told()? {
            Some(has) if has == wanted => return Ok(()),
            // Nobody tells: the run will.
            None => return Ok(()),
            Some((receive, send)) if began.elapsed() > KEPT => {
                return Err(Failure::new(format!(
                    "{interface} in {} has {receive} queues to receive and {send} to send, where the scenario wants {queues}",
                    namespace.name()
                )));
            }
            Some(_) => std::thread::park_timeout(Duration::from_millis(20)),
        }
    }
}

/// Queues to receive and to send, as `ethtool -l` tells them; nothing where it does not.
fn queues_in(text: &str) -> Option<(u32, u32)> {
    let (_, current) = text.split_once("Current hardware settings:")?;
    let count = |name: &str| -> Option<u32> {
        let mut lines = current.lines();
        let value = lines.find_map(|line| line.trim().strip_prefix(name))?;
        value.trim().parse().ok()
    };
    Some((count("RX:")?, count("TX:")?))
}

/// What the environment names in a server's variable; nothing but spaces names none.
pub(super) fn named(server: &Server) -> Option<OsString> {
    let variable = server.environment.as_ref()?;
    std::env::var_os(variable).filter(|value| !words(value).is_empty())
}

/// A server's arguments: its file's, or those behind the program that the environment names.
fn arguments(server: &Server, named: Option<&OsStr>) -> Vec<String> {
    match named {
        Some(named) if server.words => words(named).into_iter().skip(1).collect(),
        _ => server.arguments.clone(),
    }
}

/// What arguments want that a contender does not have: an empty word in its place would be the server's riddle.
fn lack(arguments: &[String], contender: &Contender, has_zone: bool) -> Option<String> {
    let wants = |name: &str| arguments.iter().any(|word| word.contains(name));
    let (server, name) = (&contender.server, &contender.name);
    if wants("$CONFIGURATION") && contender.configuration.is_none() {
        return Some(format!(
            "the arguments of server {server} have $CONFIGURATION, and the contender \"{name}\" names no `configuration`: a \
             file under bench/configurations"
        ));
    }
    (wants("$ZONE") && !has_zone).then(|| {
        format!("the arguments of server {server} have $ZONE, and the scenario of \"{name}\" has no [zone]")
    })
}

fn words(line: &OsStr) -> Vec<String> {
    let line = line.to_string_lossy();
    line.split_whitespace().map(str::to_owned).collect()
}

/// How a server got onto its interfaces, where its log says so as ours does: "queue 0 of enp1s0 is served over AF_XDP, copy
/// mode; its worker's frames: …".
fn mode_in(log: &str) -> String {
    let lines = log.lines();
    let told = lines.filter_map(|line| line.split_once(" is served over AF_XDP, "));
    let modes = told.filter_map(|(_, told)| told.split(';').next());
    let modes: BTreeSet<&str> = modes.map(str::trim).collect();
    Vec::from_iter(modes).join("; ")
}

impl Running<'_> {
    fn attach(&mut self, namespace: Namespace, interface: &str, object: &Path) -> Outcome<()> {
        namespace.ip(&format!(
            "link set dev {interface} xdpdrv obj {} sec xdp\n",
            object.display()
        ))?;
        self.attached.push((namespace, interface.to_owned()));
        Ok(())
    }

    /// The server's process, for whoever looks at /proc. None runs where a program in the kernel answers.
    pub(super) fn process_id(&self) -> Option<u32> {
        self.process.as_ref().map(Process::id)
    }

    /// Writes down what the server has started itself: some answer from a child of theirs, which outlives a server that is
    /// killed.
    pub(super) fn write_down_children(&self) -> Outcome<()> {
        let book = self.stage.lab.ledger().book();
        self.process_id()
            .map_or(Ok(()), |process| book.add_descendants(process))
    }

    /// How the server got onto its interfaces; empty where its log does not say it.
    pub(super) fn mode(&self) -> String {
        // Where a program in the kernel answers, the log is an earlier server's.
        if self.process.is_none() {
            return String::new();
        }
        let log = fs::read(&self.log).unwrap_or_default();
        mode_in(&String::from_utf8_lossy(&log))
    }

    /// Fails with what the server wrote, if it has ended.
    pub(super) fn check(&mut self) -> Outcome<()> {
        let Some(process) = &mut self.process else {
            return Ok(());
        };
        match process.ended_within(Duration::ZERO)? {
            None => Ok(()),
            Some(status) => {
                let log = fs::read(&self.log).unwrap_or_default();
                Err(Failure::new(format!(
                    "{} ended by itself ({status}): {}",
                    process.name(),
                    String::from_utf8_lossy(&log).trim()
                )))
            }
        }
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        if let Some(mut process) = self.process.take() {
            // What does not end by SIGTERM is killed when the process is dropped.
            let _ = process.terminate(PATIENCE);
        }
        for (namespace, interface) in &self.attached {
            self.stage.clear(namespace, interface);
        }
        // knotd leaves its program behind.
        self.stage.clear(&self.stage.lab.server(), SERVER_CLIENTS);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_of_the_environment_is_a_program_with_its_arguments() {
        let library = Library::ours();
        let server = library.server("named").unwrap();
        let line = OsStr::new(" coredns  -conf /etc/Corefile ");
        assert_eq!(words(line), ["coredns", "-conf", "/etc/Corefile"]);
        assert_eq!(
            arguments(&server, Some(line)),
            ["-conf", "/etc/Corefile"],
            "those behind the program"
        );
        assert!(arguments(&server, Some(OsStr::new("coredns"))).is_empty());
        assert!(arguments(&server, Some(OsStr::new(" "))).is_empty());
        // Another program for a server with a file has that file's arguments, and may have spaces in its name.
        let knotd = library.server("knotd").unwrap();
        let other = OsStr::new("/opt/new knot/knotd");
        assert_eq!(arguments(&knotd, Some(other)), ["-c", "$CONFIGURATION"]);
        assert_eq!(arguments(&knotd, None), ["-c", "$CONFIGURATION"]);
    }

    #[test]
    fn a_contender_without_what_its_server_wants_is_told() {
        let scenarios = Library::ours().scenarios().unwrap();
        let mut contender = scenarios[0].contenders[0].clone();
        let lack = |contender: &Contender, word: &str, has_zone: bool| {
            lack(&[word.to_owned()], contender, has_zone).unwrap_or_default()
        };
        assert_eq!(lack(&contender, "$CONFIGURATION", false), "");
        contender.configuration = None;
        let said = lack(&contender, "--config=$CONFIGURATION", false);
        assert!(
            said.contains("\"millrace, AF_XDP\" names no `configuration`"),
            "{said}"
        );
        let said = lack(&contender, "$ZONE", false);
        assert!(said.contains("has no [zone]"), "{said}");
        assert_eq!(lack(&contender, "$ZONE", true), "");
    }

    #[test]
    fn queues_are_those_that_there_are_now() {
        let text = "Channel parameters for enp1s0:\nPre-set maximums:\nRX:\t\t4\nTX:\t\t4\nOther:\t\tn/a\n\
            Current hardware settings:\nRX:\t\t1\nTX:\t\t2\nOther:\t\tn/a\nCombined:\tn/a\n";
        assert_eq!(queues_in(text), Some((1, 2)));
        assert_eq!(queues_in("netlink error: Operation not supported"), None);
    }

    #[test]
    fn a_servers_mode_is_what_its_log_says() {
        let log = "Ready\nqueue 0 of enp1s0 is served over AF_XDP, copy mode; its worker's frames: 8 MiB\n\
            queue 1 of enp1s0 is served over AF_XDP, copy mode; its worker's frames: 8 MiB\n";
        assert_eq!(mode_in(log), "copy mode");
        let polled = "queue 0 of a is served over AF_XDP, zero-copy mode, busy polling; its";
        assert_eq!(mode_in(polled), "zero-copy mode, busy polling");
        let not = "no AF_XDP on queue 0 of a, kernel sockets serve: no";
        assert_eq!(mode_in(not), "");
    }
}
