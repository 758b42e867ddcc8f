//! `./dev run`: a lab, `millrace` with a zone of its own, a real DNS server behind it with another, a
//! few queries, and which path each took. Without root the same over kernel sockets on 127.0.0.1.

mod ground;
mod queries;

use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use ground::{Ground, Role};

use crate::process::Process;
use crate::signals::Signals;
use crate::subject::{Subject, SubjectKind};
use crate::{During, Failure, Outcome};

/// How long a server may take to answer TCP.
const START: Duration = Duration::from_secs(30);
const STOP: Duration = Duration::from_secs(30);

/// Runs the tour: until Ctrl-C, or once through. Everything it made is gone when it returns.
pub fn run(prefix: &str, subject: &Subject, once: bool) -> ExitCode {
    let outcome = Signals::take().map_err(|failure| ("signals", failure));
    match outcome.and_then(|signals| {
        Tour {
            prefix,
            subject,
            once,
            signals,
        }
        .run()
    }) {
        Ok(()) => ExitCode::SUCCESS,
        Err((step, failure)) => {
            eprintln!("FAILED at step \"{step}\": {failure}");
            ExitCode::FAILURE
        }
    }
}

struct Tour<'a> {
    prefix: &'a str,
    subject: &'a Subject,
    once: bool,
    signals: Signals,
}

/// A step's name, for failures.
type Step = &'static str;

impl Tour<'_> {
    fn run(&self) -> Result<(), (Step, Failure)> {
        let ground = self.step("lab", || Ground::make(self.prefix))?;
        println!("{}", ground.description());
        let mut knotd = self.step("knotd", || start_knotd(&ground))?;
        let mut server = self.step("millrace", || start_server(&ground, self.subject))?;
        self.step("queries", || queries::ask_all(&ground))?;
        if !self.once {
            println!("{}", ground.what_next());
            self.step("waiting", || {
                self.signals.await_stop(&mut [&mut server, &mut knotd])
            })?;
        }
        self.step("stopping", || stop(server, knotd))?;
        ground.remove();
        println!("Everything is removed.");
        Ok(())
    }

    /// Does one step, unless Ctrl-C came before it.
    fn step<T>(&self, name: Step, work: impl FnOnce() -> Outcome<T>) -> Result<T, (Step, Failure)> {
        if name != "stopping" && self.signals.came(Duration::ZERO) {
            return Err((name, Failure::new("stopped by a signal")));
        }
        work().map_err(|failure| (name, failure))
    }
}

fn start_knotd(ground: &Ground) -> Outcome<Process> {
    ground.in_place_of(Role::Backend, || is_free(ground.backend_address()))??;
    let configuration = ground.write_knot_configuration()?;
    let mut command = Command::new("knotd");
    command.arg("--config").arg(&configuration);
    let mut knotd = ground.spawn(Role::Backend, &mut command, "knotd")?;
    let address = ground.backend_address();
    await_answer(&mut knotd, ground, Role::Backend, address)?;
    println!("knotd serves example.net at {address}");
    Ok(knotd)
}

/// knotd that cannot have its address ends; whoever has it would answer in its place, and other things than knotd would.
fn is_free(address: SocketAddr) -> Outcome<()> {
    let bound = UdpSocket::bind(address).and_then(|_| TcpListener::bind(address));
    let port = address.port();
    bound.map(drop).during(format!(
        "taking {address} for knotd (who has it: ss -lnp \"sport = :{port}\")"
    ))
}

fn start_server(ground: &Ground, subject: &Subject) -> Outcome<Process> {
    let mut command = Command::new(&subject.program);
    command
        .arg("--supervised")
        .arg("-C")
        .arg(ground.server_configuration());
    if subject.kind == SubjectKind::Millrace {
        command.arg("--control").arg(ground.control());
    }
    let name = subject.kind.word();
    let mut server = ground.spawn(Role::Server, &mut command, name)?;
    let address = ground.server_address();
    await_answer(&mut server, ground, Role::Client, address)?;
    server.until(START, "/metrics to answer", || Ok(ground.metrics().is_ok()))?;
    println!(
        "{name} answers at {address}, with {}",
        ground.server_configuration().display()
    );
    Ok(server)
}

/// Awaits that TCP connects; the failure shows what the process wrote instead.
fn await_answer(
    process: &mut Process,
    ground: &Ground,
    from: Role,
    address: SocketAddr,
) -> Outcome<()> {
    let what = format!("TCP to {address} to connect");
    let name = process.name().to_owned();
    let connected = process.until(START, &what, || ground.connects(from, address));
    connected.map_err(|failure| Failure::new(format!("{failure}\n{}", ground.log(&name))))
}

fn stop(mut server: Process, mut knotd: Process) -> Outcome<()> {
    server.terminate(STOP)?;
    knotd.terminate(STOP).map(drop)
}

/// Runs a client's command to its end and gives what it printed.
fn output_of(ground: &Ground, command: &mut Command) -> Outcome<String> {
    command.stdin(Stdio::null());
    let name = command.get_program().to_string_lossy().into_owned();
    let output = ground
        .in_place_of(Role::Client, || command.output())?
        .during(format!("starting {name}"))?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_another_server_has_is_no_place_for_knotd() {
        let udp = UdpSocket::bind("127.0.0.1:0").expect("a port");
        let address = udp.local_addr().expect("its address");
        let failure = is_free(address).expect_err("it is taken").to_string();
        let what = format!("taking {address} for knotd");
        assert!(failure.starts_with(&what), "{failure}");
        drop(udp);
        is_free(address).expect("it is free");
        let _tcp = TcpListener::bind(address).expect("the same port");
        is_free(address).expect_err("it is taken by TCP");
    }
}
