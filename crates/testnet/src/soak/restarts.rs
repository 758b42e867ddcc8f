//! Restarts by hand-over at the highest rate, up to 100,000 queries a second, at which this machine loses none without one: none
//! is lost. Rules and the cache answer; that answers in flight come from the old process is seen at a lower rate (crates/server/
//! tests/following/restart.rs). The small form is one restart at a rate that every machine has.

use std::process::ExitCode;
use std::time::Duration;

use super::ground::{Ground, configuration};
use super::load::Totals;
use super::{Options, RATE, WARM_UP};
use crate::kernel_counters::KernelDrops;
use crate::metrics::{Metrics, Row};
use crate::subject::Subject;
use crate::{Failure, Outcome};

/// Where the search for a rate begins; each that loses is followed by one of seven tenths.
const HIGHEST: u32 = 100_000;
const LOWEST: u32 = 1_000;

/// How much of it there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Extent {
    /// Where the search begins.
    rate: u32,
    /// How long a rate is held in the search, and before, between and after the restarts.
    held: Duration,
    restarts: usize,
}

impl Extent {
    fn of(options: &Options) -> Self {
        match options.is_small {
            true => Self {
                rate: options.rate.unwrap_or(RATE),
                held: Duration::from_secs(1),
                restarts: 1,
            },
            false => Self {
                rate: options.rate.unwrap_or(HIGHEST),
                held: Duration::from_secs(2),
                restarts: 3,
            },
        }
    }
}

/// By which queries come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Door {
    AfXdp,
    Sockets,
}

impl Door {
    fn of(options: &Options) -> Self {
        match options.by_sockets {
            true => Self::Sockets,
            false => Self::AfXdp,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::AfXdp => "AF_XDP",
            Self::Sockets => "kernel sockets",
        }
    }

    fn configuration(self) -> String {
        let usual = configuration("");
        match self {
            Self::AfXdp => usual,
            Self::Sockets => {
                let listeners = usual.replace("{xdp=true}", "{reusePort=true}");
                listeners.replace(" xdp=true,", "")
            }
        }
    }
}

/// Runs it.
pub(super) fn run(prefix: &str, subject: &Subject, options: &Options) -> Outcome<ExitCode> {
    let extent = Extent::of(options);
    let door = Door::of(options);
    let mut ground = Ground::prepare(prefix, subject, &door.configuration(), LOWEST)?;
    ground.daemon.watch_for(WARM_UP)?;
    if door == Door::AfXdp {
        ground.await_af_xdp()?;
    }
    ground.load.leave_backends_out()?;
    let rate = lossless_rate(&mut ground, extent)?;
    let before = kernel_drops(&ground)?;
    let totals = restarted(&mut ground, rate, extent)?;
    let (count, by) = (extent.restarts, door.name());
    let name = format!("{count} restarts at {rate} queries a second over {by}");
    // What a frozen machine has not asked in time was not lost; of a generator that is late for longer nothing can be said.
    let asked = Totals {
        not_sent: totals.not_sent.saturating_sub(rate.into()),
        ..totals.clone()
    };
    if !is_lossless(&asked) {
        let [server, client] = kernel_drops(&ground)?;
        let server = server.since(&before[0]);
        let client = client.since(&before[1]);
        let text = format!(
            "{name}: {totals:?}, {} unanswered; dropped by the server's kernel: {server}; by the clients': {client}; by the last process: {}\n{}",
            totals.sent - totals.right,
            drops(&ground)?,
            ground.last_lines()
        );
        return Err(Failure::new(text));
    }
    println!("{name}: {} asked, 0 lost", totals.sent);
    ground.check_kernels()?;
    ground.end()?;
    Ok(ExitCode::SUCCESS)
}

fn lossless_rate(ground: &mut Ground, extent: Extent) -> Outcome<u32> {
    let mut rate = extent.rate;
    while rate >= LOWEST {
        let totals = held(ground, rate, |ground| ground.daemon.watch_for(extent.held))?;
        if is_lossless(&totals) {
            return Ok(rate);
        }
        println!("without a restart, {rate} queries a second: {totals:?}");
        rate = rate / 10 * 7;
    }
    Err(Failure::new("this machine loses queries at every rate"))
}

fn restarted(ground: &mut Ground, rate: u32, extent: Extent) -> Outcome<Totals> {
    held(ground, rate, |ground| {
        for _ in 0..extent.restarts {
            ground.daemon.watch_for(extent.held)?;
            ground.daemon.hand_over(&ground.lab)?;
        }
        ground.daemon.watch_for(extent.held)
    })
}

/// What came of a load at this rate while something was done.
fn held(
    ground: &mut Ground,
    rate: u32,
    work: impl FnOnce(&mut Ground) -> Outcome<()>,
) -> Outcome<Totals> {
    ground.load.stop()?;
    ground.load.totals = Totals::default();
    ground.load.rate = rate;
    ground.load.start(&ground.lab)?;
    let done = work(ground);
    ground.load.stop()?;
    done?;
    Ok(ground.load.totals.clone())
}

fn is_lossless(totals: &Totals) -> bool {
    totals.sent > 0 && totals.right == totals.sent && totals.not_sent == 0 && totals.duplicate == 0
}

/// What the process that serves has dropped, by reason.
fn drops(ground: &Ground) -> Outcome<String> {
    let metrics = Metrics::of(&ground.lab.server())?;
    let rows = metrics.rows("millrace_drops", &[]);
    let some: Vec<String> = rows
        .filter(|row| row.value > 0.0)
        .map(Row::to_string)
        .collect();
    Ok(some.join(", "))
}

/// What the kernels of the server and of its clients have dropped.
fn kernel_drops(ground: &Ground) -> Outcome<[KernelDrops; 2]> {
    Ok([
        KernelDrops::of(&ground.lab.server())?,
        KernelDrops::of(&ground.lab.client())?,
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_small_form_is_one_restart_at_a_low_rate() {
        let of = |words: &[&str]| Extent::of(&Options::read(words).expect("options"));
        let (all, small) = (of(&["restarts"]), of(&["restarts", "--small"]));
        assert_eq!((all.rate, all.restarts), (HIGHEST, 3));
        assert_eq!((small.rate, small.restarts), (RATE, 1));
        assert!(small.held < all.held && small.rate >= LOWEST);
    }

    #[test]
    fn without_af_xdp_nothing_is_configured_of_it() {
        let of = |words: &[&str]| Door::of(&Options::read(words).expect("options"));
        assert!(of(&["restarts"]).configuration().contains("xdp=true"));
        let sockets = of(&["restarts", "--sockets"]);
        assert!(!sockets.configuration().contains("xdp=true"));
        assert_eq!(sockets.name(), "kernel sockets");
    }
}
