//! What LogAction and LogResponseAction write: files of queries and responses, each with a thread of its own behind a
//! bounded queue, so that a slow disk costs lines, which are counted, and never a worker's time.
//!
//! ```text
//!  text    [seconds.nanoseconds] Packet from ADDRESS:PORT for NAME TYPE with id ID
//!  binary  seconds 8 │ nanoseconds 4 │ ID 2, as in the message │ name … 0 │ type 2 │ family 2 │ address 4 or 16 │ port 2, as in a datagram
//! ```
//!
//! Numbers of the binary form are little-endian where nothing else is said; the time is there if `includeTimestamp` is.

use crate::heap;
use crate::log::{self, Priority};
use crate::pipeline::query::Query;
use std::collections::HashSet;
use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use wire::codes;

/// Lines that may wait: a disk that stops for a tenth of a second at 100,000 queries a second; at most some MB.
const QUEUE: usize = 8_192;

/// A line is on its way to the disk no later than this after its query.
const PATIENCE: Duration = Duration::from_millis(100);

/// What LogAction and LogResponseAction were given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogOptions {
    /// Empty: to the log.
    pub file: PathBuf,
    pub binary: bool,
    /// Else the file is emptied when it is opened first.
    pub append: bool,
    pub buffered: bool,
    /// To the log only with -v or setVerbose(true).
    pub verbose_only: bool,
    pub timestamps: bool,
}

/// One log of queries or responses.
pub struct QueryLog {
    options: LogOptions,
    /// A configuration that is only checked opens nothing.
    writer: OnceLock<Option<SyncSender<Message>>>,
    lost: Arc<AtomicU64>,
}

/// Lines of all logs of this process that found no room, in the queue or on the disk, or whose file could not be opened.
static LOST: AtomicU64 = AtomicU64::new(0);

/// Lines that LogAction and LogResponseAction had no room for, since the start.
pub fn lost_lines() -> u64 {
    LOST.load(Relaxed)
}

enum Message {
    Line(Box<[u8]>),
    Reopen,
}

impl QueryLog {
    pub fn new(options: LogOptions) -> QueryLog {
        QueryLog {
            options,
            writer: OnceLock::new(),
            lost: Arc::default(),
        }
    }

    pub fn options(&self) -> &LogOptions {
        &self.options
    }

    /// Starts the thread, which opens the file, before there is a line: not on the path of a query.
    pub fn open(&self) {
        self.writer.get_or_init(|| self.start());
    }

    /// Writes a line about a query.
    pub fn query(&self, query: &Query<'_>) {
        if !self.has_room() {
            return;
        }
        self.write(match self.options.binary && self.is_file() {
            true => binary(query),
            false => format!(
                "Packet from {} for {} {} with id {}",
                query.client(),
                query.name(),
                qtype(query.parts.qtype),
                query.header().id()
            )
            .into_bytes(),
        });
    }

    /// Writes a line about a response, whose code `rcode` says in words.
    pub fn response(&self, response: &Query<'_>, rcode: &str) {
        if self.has_room() {
            let text = format!(
                "Answer to {} for {} {} ({rcode}) with id {}",
                response.client(),
                response.name(),
                qtype(response.parts.qtype),
                response.header().id()
            );
            self.write(text.into_bytes());
        }
    }

    /// Closes the file and opens it again, for whoever rotates it.
    pub fn reload(&self) {
        if let Some(Some(writer)) = self.writer.get() {
            // A full queue is emptied into the old file first.
            let _ = writer.send(Message::Reopen);
        }
    }

    fn is_file(&self) -> bool {
        !self.options.file.as_os_str().is_empty()
    }

    fn is_wanted(&self) -> bool {
        self.is_file() || !self.options.verbose_only || log::settings().verbose
    }

    /// Whether a line is wanted, and may take memory.
    fn has_room(&self) -> bool {
        if !self.is_wanted() {
            return false;
        }
        let is_short = heap::is_short();
        if is_short {
            self.lose();
        }
        !is_short
    }

    fn write(&self, line: Vec<u8>) {
        let writer = self.writer.get().and_then(Option::as_ref);
        let sent = writer.is_some_and(|writer| writer.try_send(Message::Line(line.into())).is_ok());
        if !sent {
            self.lose();
        }
    }

    fn lose(&self) {
        self.lost.fetch_add(1, Relaxed);
        LOST.fetch_add(1, Relaxed);
    }

    fn start(&self) -> Option<SyncSender<Message>> {
        let (sender, receiver) = sync_channel(QUEUE);
        let (options, lost) = (self.options.clone(), Arc::clone(&self.lost));
        let started = std::thread::Builder::new()
            .name("querylog".to_owned())
            .spawn(move || {
                Writer {
                    options,
                    lost,
                    told: 0,
                    is_failing: false,
                }
                .run(&receiver)
            });
        if let Err(error) = started {
            log::error!("queries are not logged: no thread for it: {error}");
            return None;
        }
        Some(sender)
    }
}

fn qtype(number: u16) -> String {
    codes::qtype::name(number).map_or_else(|| format!("TYPE{number}"), str::to_owned)
}

fn binary(query: &Query<'_>) -> Vec<u8> {
    const INET: u16 = 2;
    const INET6: u16 = 10;
    let mut line = query.header().id().to_be_bytes().to_vec();
    line.extend_from_slice(query.name().as_bytes());
    line.extend_from_slice(&query.parts.qtype.to_le_bytes());
    match query.client().ip() {
        IpAddr::V4(address) => {
            line.extend_from_slice(&INET.to_le_bytes());
            line.extend_from_slice(&address.octets());
        }
        IpAddr::V6(address) => {
            line.extend_from_slice(&INET6.to_le_bytes());
            line.extend_from_slice(&address.octets());
        }
    }
    line.extend_from_slice(&query.client().port().to_be_bytes());
    line
}

/// What comes next, or that nothing has come for a moment. When all `is_done` that a moment without lines is for, there is no
/// such moment: a log of a server that nobody asks sleeps. A line is lost only while others wait, and they wake.
fn next(lines: &Receiver<Message>, is_done: bool) -> Result<Message, RecvTimeoutError> {
    match is_done {
        true => lines.recv().map_err(RecvTimeoutError::from),
        false => lines.recv_timeout(PATIENCE),
    }
}

/// The thread's side.
struct Writer {
    options: LogOptions,
    lost: Arc<AtomicU64>,
    /// Lost lines that were told of.
    told: u64,
    /// The file did not take what was written last.
    is_failing: bool,
}

impl Writer {
    fn run(mut self, lines: &Receiver<Message>) {
        let (mut file, mut is_done) = (self.open(), true);
        loop {
            let message = match next(lines, is_done) {
                Ok(message) => message,
                Err(RecvTimeoutError::Timeout) => {
                    self.check(file.as_mut().map_or(Ok(()), Write::flush));
                    self.tell_lost();
                    is_done = true;
                    continue;
                }
                // Nobody has this log any more.
                Err(RecvTimeoutError::Disconnected) => {
                    return self.check(file.as_mut().map_or(Ok(()), Write::flush));
                }
            };
            is_done = false;
            match message {
                Message::Reopen => file = self.open(),
                Message::Line(line) => match &mut file {
                    Some(file) => {
                        let written = self.line(file, &line);
                        LOST.fetch_add(written.is_err().into(), Relaxed);
                        self.check(written);
                    }
                    None => self.to_log(&line),
                },
            }
        }
    }

    /// `None`: to the log, or the file cannot be opened, which is said.
    fn open(&self) -> Option<BufWriter<File>> {
        /// What this process has opened: a reload goes on where the configuration before it was.
        static OPENED: Mutex<Option<HashSet<PathBuf>>> = Mutex::new(None);
        let path = &self.options.file;
        if path.as_os_str().is_empty() {
            return None;
        }
        let mut opened = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
        let is_first = opened.get_or_insert_default().insert(path.clone());
        // Lines go to its end, wherever that is then: several rules may share a file, and who rotates may empty it.
        match OpenOptions::new().create(true).append(true).open(path) {
            Ok(file) => {
                if is_first && !self.options.append {
                    // A pipe or a device has no length to set.
                    let _ = file.set_len(0);
                }
                Some(BufWriter::new(file))
            }
            Err(error) => {
                log::error!("{}: queries are not logged: {error}", path.display());
                None
            }
        }
    }

    fn line(&self, file: &mut BufWriter<File>, line: &[u8]) -> io::Result<()> {
        if self.options.timestamps {
            let time = SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .unwrap_or_default();
            if self.options.binary {
                file.write_all(&time.as_secs().to_le_bytes())?;
                file.write_all(&time.subsec_nanos().to_le_bytes())?;
            } else {
                write!(file, "[{}.{:09}] ", time.as_secs(), time.subsec_nanos())?;
            }
        }
        file.write_all(line)?;
        if !self.options.binary {
            file.write_all(b"\n")?;
        }
        if self.options.buffered {
            Ok(())
        } else {
            file.flush()
        }
    }

    fn to_log(&self, line: &[u8]) {
        if self.options.file.as_os_str().is_empty() {
            let text = String::from_utf8_lossy(line);
            log::write(self.priority(), log::subsystem(module_path!()), &text, &[]);
        } else {
            // That it could not be opened was said then.
            LOST.fetch_add(1, Relaxed);
        }
    }

    /// What only `-v` says goes where setVerboseLogDestination wants it.
    fn priority(&self) -> Priority {
        match self.options.verbose_only {
            true => Priority::Debug,
            false => Priority::Info,
        }
    }

    fn check(&mut self, written: io::Result<()>) {
        let is_news = self.is_news(written.is_err());
        if let Err(error) = written
            && is_news
        {
            log::error!(
                "{}: lines about queries are lost: {error}; this is said once, until a line is written again",
                self.options.file.display()
            );
        }
    }

    /// Whether a failure is the first one after a success: a full disk is not told of with every query.
    fn is_news(&mut self, is_failing: bool) -> bool {
        let was_failing = std::mem::replace(&mut self.is_failing, is_failing);
        is_failing && !was_failing
    }

    fn tell_lost(&mut self) {
        let lost = self.lost.load(Relaxed);
        if lost > self.told {
            let more = lost - self.told;
            log::warn!(
                "{}: {more} lines about queries are lost: the disk is too slow",
                self.options.file.display()
            );
            self.told = lost;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipeline::scene::{Scene, query};
    use wire::codes::qtype;

    fn options(file: PathBuf) -> LogOptions {
        LogOptions {
            file,
            binary: false,
            append: false,
            buffered: true,
            verbose_only: true,
            timestamps: false,
        }
    }

    fn writer(options: LogOptions) -> Writer {
        Writer {
            options,
            lost: Arc::default(),
            told: 0,
            is_failing: false,
        }
    }

    #[test]
    fn a_full_disk_is_told_of_once() {
        let mut options = options(PathBuf::from("/dev/full"));
        options.buffered = false;
        let mut writer = writer(options);
        let mut file = writer.open().expect("a device without a length");
        let failed = writer.line(&mut file, b"line").is_err();
        assert!(failed);
        assert!(writer.is_news(failed));
        assert!(!writer.is_news(failed));
        assert!(!writer.is_news(false));
        assert!(writer.is_news(failed));
    }

    #[test]
    fn what_only_verbose_servers_log_is_a_verbose_line() {
        let mut options = options(PathBuf::new());
        assert_eq!(writer(options.clone()).priority(), Priority::Debug);
        options.verbose_only = false;
        assert_eq!(writer(options).priority(), Priority::Info);
    }

    /// What the file holds when the log has ended.
    fn logged(change: impl FnOnce(&mut LogOptions)) -> Vec<u8> {
        let folder = tempfile::tempdir().unwrap();
        let mut options = options(folder.path().join("log"));
        change(&mut options);
        let file = options.file.clone();
        let log = QueryLog::new(options);
        log.open();
        let message = query("www.Example.", qtype::AAAA);
        Scene::default().parse(&message, |query| {
            log.query(query);
            log.response(query, "No Error");
        });
        drop(log);
        // The writer may have a pause between the two lines.
        let complete = |bytes: &Vec<u8>| bytes.iter().filter(|octet| **octet == b'\n').count() == 2;
        let began = std::time::Instant::now();
        loop {
            if let Some(bytes) = std::fs::read(&file).ok().filter(complete) {
                return bytes;
            }
            assert!(began.elapsed() < Duration::from_secs(60), "two lines");
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_log_without_lines_sleeps() {
        let (sender, lines) = sync_channel(1);
        let nothing = next(&lines, false).err();
        assert_eq!(nothing, Some(RecvTimeoutError::Timeout));
        let late = std::thread::spawn(move || {
            std::thread::park_timeout(PATIENCE * 3);
            sender.send(Message::Reopen).is_ok()
        });
        assert!(matches!(next(&lines, true), Ok(Message::Reopen)));
        assert!(late.join().unwrap());
        let ended = next(&lines, true).err();
        assert_eq!(ended, Some(RecvTimeoutError::Disconnected));
    }

    /// Two rules may share a file, a reload's new log shares it with the old one, and who rotates by copying empties it.
    #[test]
    fn a_line_goes_to_the_end_of_the_file_whoever_else_writes() {
        let folder = tempfile::tempdir().unwrap();
        let mut options = options(folder.path().join("log"));
        options.buffered = false;
        let file = options.file.clone();
        std::fs::write(&file, "of another run").unwrap();
        let writer = writer(options);
        let [mut first, mut second] = [(); 2].map(|()| writer.open().expect("a file"));
        writer.line(&mut first, b"one").unwrap();
        writer.line(&mut second, b"two").unwrap();
        writer.line(&mut first, b"three").unwrap();
        let written = || std::fs::read_to_string(&file).unwrap();
        assert_eq!(written(), "one\ntwo\nthree\n");
        std::fs::write(&file, "").unwrap();
        writer.line(&mut first, b"four").unwrap();
        assert_eq!(written(), "four\n");
    }

    #[test]
    fn lines_are_dnsdists() {
        let text = "Packet from 192.0.2.9:4242 for www.Example. AAAA with id 4660\n\
                    Answer to 192.0.2.9:4242 for www.Example. AAAA (No Error) with id 4660\n";
        assert_eq!(String::from_utf8_lossy(&logged(|_| ())), text);
        let timed = logged(|options| options.timestamps = true);
        let timed = String::from_utf8(timed).unwrap();
        let (stamp, rest) = timed.split_once("] ").unwrap();
        assert!(stamp.starts_with('[') && stamp.contains('.') && rest.starts_with("Packet from"));
    }

    #[test]
    fn the_binary_form() {
        let message = query("a.", qtype::A);
        let line = Scene::default().parse(&message, |query| binary(query));
        assert_eq!(
            line,
            b"\x12\x34\x01a\x00\x01\x00\x02\x00\xc0\x00\x02\x09\x10\x92"
        );
    }
}
