//! What the main thread does while others send: signals, the progress line or the live view, statistics in between.

use crate::failure::{During, Failure, Outcome};
use crate::live::{ENTER, LEAVE, Live, Size};
use crate::report::tell;
use crate::tally::Tally;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal, raise};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use std::io::IsTerminal;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Time between two progress lines, and between two screens of the live view.
const PROGRESS_EVERY: Duration = Duration::from_secs(1);
const SCREEN_EVERY: Duration = Duration::from_millis(500);

/// What is shown while a run goes, on standard error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Show {
    Nothing,
    /// One line that is rewritten; nothing where that is no terminal.
    Progress,
    /// The whole screen.
    Live,
}

impl Show {
    /// What `-q` and `--live` ask for.
    pub fn of(quiet: bool, live: bool) -> Show {
        match (quiet, live) {
            (_, true) => Show::Live,
            (true, _) => Show::Nothing,
            _ => Show::Progress,
        }
    }
}

/// Prints statistics in between: what was counted in a part of the run.
pub type Print = Box<dyn FnMut(&Tally, Part)>;

/// A part of a run; both times since its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    pub since: Duration,
    pub until: Duration,
    /// Queries that were due in it, where there is a schedule: a generator that is behind has not counted all of them yet.
    pub offered: Option<u64>,
}

impl Part {
    pub fn length(self) -> Duration {
        self.until - self.since
    }
}

/// How many queries should have been sent by a time.
pub type Schedule = Box<dyn Fn(Instant) -> u64>;

/// Signals, progress line and statistics in between.
pub struct Watch {
    signals: SignalFd,
    show: Show,
    /// Prints statistics on SIGUSR1, and every so often where a time is given.
    statistics: Option<(Print, Option<Duration>)>,
    run: Option<Run>,
    /// How often somebody has asked to stop.
    stops: u32,
    /// Answers are thrown away unread.
    unread: bool,
    /// Statistics in between go to a terminal, too.
    prints_on_terminal: bool,
}

/// One measurement as it goes.
struct Run {
    started: Instant,
    duration: Duration,
    shown: Instant,
    /// When statistics were printed last because it was time, and what was counted then.
    printed: Instant,
    counted: Tally,
    last: Tally,
    live: Option<Live>,
    schedule: Option<Schedule>,
    /// Queries that were due by the time of what was printed last.
    offered: u64,
}

/// What a look at the signals has found.
#[derive(Default)]
struct Signals {
    /// Statistics are asked for (SIGUSR1).
    statistics: bool,
    /// The terminal has another size now (SIGWINCH).
    size: bool,
}

impl Watch {
    /// Takes SIGINT, SIGTERM and SIGUSR1 for itself; SIGHUP too, and with the live view what else comes from its terminal, but of
    /// these nothing that is ignored: whoever started us wants it so. Must come before the first thread starts: they inherit it.
    ///
    /// # Errors
    /// The kernel gives no descriptor for signals, or there is no terminal for the live view.
    pub fn new(show: Show) -> Outcome<Watch> {
        let is_terminal = std::io::stderr().is_terminal();
        if show == Show::Live && !is_terminal {
            return Err(Failure::new("--live: standard error is no terminal"));
        }
        let mut set: SigSet = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGUSR1]
            .into_iter()
            .collect();
        let mut others = vec![Signal::SIGHUP];
        if show == Show::Live {
            others.extend([Signal::SIGQUIT, Signal::SIGTSTP, Signal::SIGWINCH]);
            give_screen_back_before_panics();
        }
        set.extend(others.into_iter().filter(|signal| !is_ignored(*signal)));
        set.thread_block().during("blocking signals")?;
        let flags = SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC;
        let signals = SignalFd::with_flags(&set, flags).during("waiting for signals")?;
        Ok(Watch {
            signals,
            show: if is_terminal { show } else { Show::Nothing },
            statistics: None,
            run: None,
            stops: 0,
            unread: false,
            prints_on_terminal: std::io::stdout().is_terminal(),
        })
    }

    /// Answers are thrown away unread (`-r`): the progress line tells nothing of them.
    pub fn leave_answers_out(&mut self) {
        self.unread = true;
    }

    /// Prints statistics on SIGUSR1: those of the run so far; and every `period` where one is given: what was counted in
    /// it ("only metrics collected in the given period", kxdpgun's manual).
    pub fn print_statistics(&mut self, print: Print, period: Option<Duration>) {
        self.statistics = Some((print, period));
    }

    /// A measurement starts, which should take so long. `what` is measured; its load is spread over a `lane` each. `schedule`: of
    /// an open loop.
    pub fn start(
        &mut self,
        (what, lane): (&str, &'static str),
        duration: Duration,
        schedule: Option<Schedule>,
    ) {
        let now = Instant::now();
        if self.show == Show::Live {
            take_screen();
        }
        self.run = Some(Run {
            started: now,
            duration,
            shown: now,
            printed: now,
            counted: Tally::default(),
            last: Tally::default(),
            live: (self.show == Show::Live).then(|| Live::new(what, lane)),
            schedule,
            offered: 0,
        });
    }

    /// It has ended: takes away what was shown, and prints the last part, which may be shorter than the others or, with the wait
    /// for the last answers, longer. Of the moment between the end of a part and that of the run there is nothing to tell.
    pub fn end(&mut self, counted: Tally) {
        let run = self.leave();
        if let Some((mut run, (print, Some(period)))) = run.zip(self.statistics.as_mut()) {
            // By now all that was due is sent or given up, or will never be.
            run.schedule = None;
            let now = Instant::now();
            if counted.since(&run.counted).is_something() || now - run.printed >= *period / 10 {
                run.print_part(counted, now, print);
            }
        }
    }

    /// Takes away what was shown.
    fn leave(&mut self) -> Option<Run> {
        let run = self.run.take();
        if run.is_some() {
            make_room(self.show);
        }
        run
    }

    /// Whether somebody asked to stop (SIGINT, SIGTERM), or the terminal has gone (SIGHUP).
    pub fn is_stopped(&self) -> bool {
        self.stops > 0
    }

    /// How often somebody asked to: who asks again, or when only the last answers are waited for, does not want to wait.
    pub fn stops(&self) -> u32 {
        self.stops
    }

    /// Waits for at most `limit` and shows what is due; `each` counts what there is so far, by lane. `false`:
    /// stop.
    pub fn turn(&mut self, limit: Duration, each: impl Fn() -> Vec<Tally>) -> bool {
        let asked = self.wait(limit);
        let is_stopped = self.is_stopped();
        let Some(run) = &mut self.run else {
            return !is_stopped;
        };
        if is_stopped {
            // What it still means to send is not due any more.
            run.schedule = None;
        }
        let now = Instant::now();
        if let Some((print, period)) = &mut self.statistics {
            // By the run's clock: a part that is printed a moment late delays no other.
            let part_at = |time: Instant, period: Duration| {
                (time - run.started).as_nanos() / period.as_nanos().max(1)
            };
            let is_time =
                period.is_some_and(|period| part_at(now, period) > part_at(run.printed, period));
            let shares = self.prints_on_terminal && (asked.statistics || is_time);
            if shares {
                make_room(self.show);
            }
            if asked.statistics {
                let tally = Tally::sum(&each());
                let so_far = Part {
                    since: Duration::ZERO,
                    until: now - run.started,
                    offered: Some(run.offered_by(now, &tally)),
                };
                print(&tally, so_far);
            }
            if is_time {
                run.print_part(Tally::sum(&each()), now, print);
            }
            if shares && self.show == Show::Live {
                take_screen();
                run.draw();
            }
        }
        match self.show {
            Show::Progress if now - run.shown >= PROGRESS_EVERY => {
                run.show(Tally::sum(&each()), now, self.unread);
            }
            Show::Live if now - run.shown >= SCREEN_EVERY => run.show_screen(each(), now),
            Show::Live if asked.size => run.draw(),
            _ => {}
        }
        !is_stopped
    }

    /// Waits for signals.
    fn wait(&mut self, limit: Duration) -> Signals {
        let timeout = PollTimeout::try_from(limit).unwrap_or(PollTimeout::MAX);
        // An error is a signal that nobody has blocked: look as well.
        let _ = poll(
            &mut [PollFd::new(self.signals.as_fd(), PollFlags::POLLIN)],
            timeout,
        );
        let mut asked = Signals::default();
        while let Ok(Some(signal)) = self.signals.read_signal() {
            match Signal::try_from(signal.ssi_signo as i32) {
                Ok(Signal::SIGUSR1) => asked.statistics = true,
                Ok(Signal::SIGWINCH) => asked.size = true,
                Ok(Signal::SIGQUIT) => self.obey(Signal::SIGQUIT),
                Ok(Signal::SIGTSTP) => self.obey(Signal::SIGTSTP),
                _ => self.stops += 1,
            }
        }
        asked
    }

    /// Lets a signal that was held back have its usual effect, on the screen that was there before: SIGQUIT ends the program,
    /// SIGTSTP holds it until it is continued.
    fn obey(&self, signal: Signal) {
        give_screen_back();
        let only = SigSet::from(signal);
        // Neither fails: the signal exists.
        let _ = only.thread_unblock();
        let _ = raise(signal);
        let _ = only.thread_block();
        if self.run.is_some() {
            take_screen();
        }
    }
}

/// Whether the live view has the terminal's screen.
static HAS_SCREEN: AtomicBool = AtomicBool::new(false);

fn take_screen() {
    if !HAS_SCREEN.swap(true, Ordering::Relaxed) {
        tell(ENTER);
    }
}

/// The screen is as it was, and the cursor is to be seen.
fn give_screen_back() {
    if HAS_SCREEN.swap(false, Ordering::Relaxed) {
        tell(LEAVE);
    }
}

/// Lines that stay are printed on the screen that stays, from the start of a line.
fn make_room(show: Show) {
    match show {
        Show::Progress => tell("\r\x1b[K"),
        Show::Live => give_screen_back(),
        Show::Nothing => {}
    }
}

/// What a panic says is read on the screen that stays.
fn give_screen_back_before_panics() {
    let says = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        give_screen_back();
        says(panic);
    }));
}

/// Whether whoever started this program wants a signal ignored, as nohup does. A signal that is blocked comes all the same.
fn is_ignored(signal: Signal) -> bool {
    let status = std::fs::read_to_string("/proc/thread-self/status");
    status.is_ok_and(|status| is_ignored_by(&status, signal))
}

/// `SigIgn:` in proc_pid_status(5): a mask in hexadecimal, whose lowest bit is signal 1.
fn is_ignored_by(status: &str, signal: Signal) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal as i32 - 1) & 1 == 1)
}

impl Drop for Watch {
    /// A run that failed leaves the terminal as it was.
    fn drop(&mut self) {
        self.leave();
    }
}

impl Run {
    /// Prints what was counted since the last time.
    fn print_part(&mut self, tally: Tally, now: Instant, print: &mut Print) {
        let offered = self.offered_by(now, &tally);
        let part = Part {
            since: self.printed - self.started,
            until: now - self.started,
            offered: Some(offered.saturating_sub(self.offered)),
        };
        print(&tally.since(&self.counted), part);
        (self.printed, self.counted, self.offered) = (now, tally, offered);
    }

    /// Queries that were due by now: by the schedule, or where there is none, those that are sent or given up.
    fn offered_by(&self, now: Instant, tally: &Tally) -> u64 {
        let schedule = self.schedule.as_ref();
        schedule.map_or_else(|| tally.offered(), |due_by| due_by(now))
    }

    fn show_screen(&mut self, tallies: Vec<Tally>, now: Instant) {
        let elapsed = now - self.started;
        let times = (elapsed, self.duration.saturating_sub(elapsed));
        if let Some(live) = &mut self.live {
            live.look(tallies, now - self.shown, times);
        }
        self.shown = now;
        self.draw();
    }

    /// Draws what was seen last, as large as the terminal is now.
    fn draw(&self) {
        if let Some(live) = &self.live {
            tell(&live.screen(Size::of_terminal()));
        }
    }

    fn show(&mut self, tally: Tally, now: Instant, unread: bool) {
        let seconds = (now - self.shown).as_secs_f64();
        let per_second = |count: u64| count as f64 / seconds;
        let rates = (
            per_second(tally.sent.saturating_sub(self.last.sent)),
            per_second(tally.right - self.last.right),
        );
        let times = (now - self.started, self.duration);
        let line = progress(&tally, rates, times, unread);
        // One that goes on in the next line could not be taken back.
        let width = Size::of_terminal().width();
        let line: String = line.chars().take(width).collect();
        tell(&format!("\r\x1b[K{line}"));
        self.shown = now;
        self.last = tally;
    }
}

/// The progress line: how much of the run's time is left, or where it has no end how much is gone; queries sent and answered
/// right a second since the last line; what is unanswered so far, which includes what is on its way. `unread`: nobody looks at
/// answers.
fn progress(
    tally: &Tally,
    (sent, right): (f64, f64),
    (elapsed, duration): (Duration, Duration),
    unread: bool,
) -> String {
    let time = if duration.is_zero() {
        format!("{:.0} s", elapsed.as_secs_f64())
    } else {
        let left = duration.saturating_sub(elapsed);
        format!("{:.0} s left", left.as_secs_f64())
    };
    if unread {
        return format!("{time}: sent {sent:.0}/s, answers dropped unread");
    }
    let unanswered = tally.unanswered();
    let line = format!("{time}: sent {sent:.0}/s, right {right:.0}/s, unanswered {unanswered}");
    if tally.latency.is_empty() {
        return line;
    }
    let p99 = tally.latency.value_at_quantile(0.99) as f64 / 1e6;
    format!("{line}, p99 {p99:.3} ms")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_signals_are_those_of_the_mask() {
        let status = "Name:\tfloodgate\nSigBlk:\t0000000000000002\nSigIgn:\t0000000000001001\n";
        assert!(is_ignored_by(status, Signal::SIGHUP));
        assert!(is_ignored_by(status, Signal::SIGPIPE));
        assert!(!is_ignored_by(status, Signal::SIGINT));
        assert!(!is_ignored_by("Name:\tfloodgate\n", Signal::SIGHUP));
    }

    #[test]
    fn the_parts_that_are_printed_are_the_whole_run() {
        let sent = |sent| Tally {
            sent,
            ..Tally::default()
        };
        let (tells, told) = std::sync::mpsc::channel();
        let print = move |tally: &Tally, part| tells.send((tally.sent, part)).unwrap();
        let mut watch = Watch::new(Show::Nothing).unwrap();
        watch.print_statistics(Box::new(print), Some(Duration::from_millis(5)));
        watch.start(("nothing", "thread"), Duration::ZERO, None);
        let mut parts: Vec<(u64, Part)> = Vec::new();
        for turn in 1.. {
            assert!(watch.turn(Duration::from_millis(2), || vec![sent(turn)]));
            parts.extend(told.try_iter());
            if parts.len() > 2 {
                watch.end(sent(turn + 7));
                parts.extend(told.try_iter());
                assert_eq!(parts.iter().map(|(sent, _)| sent).sum::<u64>(), turn + 7);
                break;
            }
        }
        assert_eq!(parts[0].1.since, Duration::ZERO);
        for two in parts.windows(2) {
            assert_eq!(two[0].1.until, two[1].1.since);
        }
    }

    #[test]
    fn a_moment_without_anything_at_the_end_is_no_part() {
        let period = Duration::from_secs(3600);
        let sent = |sent| Tally {
            sent,
            ..Tally::default()
        };
        for (at_the_end, parts) in [(0, 0), (1, 1)] {
            let (tells, told) = std::sync::mpsc::channel();
            let mut watch = Watch::new(Show::Nothing).unwrap();
            let print = move |tally: &Tally, _| tells.send(tally.sent).unwrap();
            watch.print_statistics(Box::new(print), Some(period));
            watch.start(("nothing", "thread"), Duration::ZERO, None);
            watch.end(sent(at_the_end));
            assert_eq!(told.try_iter().count(), parts);
        }
    }

    #[test]
    fn what_is_offered_is_what_was_due_and_not_what_a_generator_has_got_to() {
        let mut run = Run {
            started: Instant::now(),
            duration: Duration::ZERO,
            shown: Instant::now(),
            printed: Instant::now(),
            counted: Tally::default(),
            last: Tally::default(),
            live: None,
            schedule: Some(Box::new(|_| 70)),
            offered: 20,
        };
        let (tells, told) = std::sync::mpsc::channel();
        let mut print: Print = Box::new(move |tally, part| {
            tells.send((tally.sent, part.offered)).unwrap();
        });
        let sent = |sent| Tally {
            sent,
            skipped: 5,
            ..Tally::default()
        };
        run.print_part(sent(30), Instant::now(), &mut print);
        // At the end: all that was due is sent or given up.
        run.schedule = None;
        run.print_part(sent(90), Instant::now(), &mut print);
        let expected = [(30, Some(50)), (60, Some(25))];
        assert_eq!(told.try_iter().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn a_panic_is_told_on_the_screen_that_stays() {
        give_screen_back_before_panics();
        take_screen();
        let panicked = std::panic::catch_unwind(|| panic!("as this test wants it"));
        drop(std::panic::take_hook());
        assert!(panicked.is_err() && !HAS_SCREEN.load(Ordering::Relaxed));
    }

    #[test]
    fn a_progress_line_tells_what_is_left_or_gone() {
        let mut tally = Tally {
            sent: 9,
            right: 7,
            ..Tally::default()
        };
        let seconds = Duration::from_secs;
        assert_eq!(
            progress(&tally, (3.0, 2.0), (seconds(4), seconds(10)), false),
            "6 s left: sent 3/s, right 2/s, unanswered 2"
        );
        tally.latency.record(2_000_000).unwrap();
        let line = progress(&tally, (3.0, 2.0), (seconds(4), seconds(10)), false);
        assert!(line.contains("unanswered 2, p99 2.00"), "{line}");
        assert_eq!(
            progress(&tally, (3.0, 0.0), (seconds(4), seconds(10)), true),
            "6 s left: sent 3/s, answers dropped unread"
        );
        let endless = progress(&tally, (3.0, 2.0), (seconds(4), Duration::ZERO), false);
        assert!(endless.starts_with("4 s: sent 3/s"), "{endless}");
    }
}
