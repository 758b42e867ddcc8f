//! `floodgate queries`: writes files of queries.

use super::parse;
use super::values::{count, exponent};
use crate::failure::{During, Outcome};
use crate::queries::made_up::{Shape, random, zipf};
use crate::queries::{Edns, Writer, capture, zone};
use crate::report::tell;
use clap::{ArgGroup, Parser};
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufWriter, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use wire::codes::parse_qtype;

/// Writes files of queries for the other commands.
#[derive(Debug, Parser)]
#[command(name = "floodgate queries", version)]
#[command(group(ArgGroup::new("what").required(true).args(["random", "zipf", "from_zone", "from_pcap"])))]
pub(super) struct Command {
    /// So many queries, for names that all differ
    #[arg(long, value_name = "N", value_parser = count)]
    random: Option<u64>,
    /// Queries for so many names, some asked far more often than others
    #[arg(long, value_name = "NAMES", value_parser = clap::value_parser!(u32).range(1..))]
    zipf: Option<u32>,
    /// Every owner and type of a zone file; `-` is standard input
    #[arg(long, value_name = "FILE")]
    from_zone: Option<PathBuf>,
    /// What was asked over UDP in a capture (pcap, pcapng); `-` is standard input
    #[arg(long, value_name = "FILE")]
    from_pcap: Option<PathBuf>,
    /// With --zipf: queries to write; a hundred for each name without it
    #[arg(long, value_name = "N", value_parser = count, conflicts_with_all = ["random", "from_zone", "from_pcap"])]
    count: Option<u64>,
    /// With --zipf: how unevenly names are asked
    #[arg(long, value_name = "NUMBER", default_value_t = 1.0, value_parser = exponent, conflicts_with_all = ["random", "from_zone", "from_pcap"])]
    exponent: f64,
    /// With --random and --zipf: the domain of the names
    #[arg(long, value_name = "NAME", default_value = "example.com", conflicts_with_all = ["from_zone", "from_pcap"])]
    suffix: String,
    /// With --random and --zipf: what the first label of each name begins with
    #[arg(long, value_name = "TEXT", default_value = "", conflicts_with_all = ["from_zone", "from_pcap"])]
    prefix: String,
    /// With --random and --zipf: with EDNS and the flag DO
    #[arg(long, conflicts_with_all = ["from_zone", "from_pcap"])]
    dnssec_ok: bool,
    /// With --random and --zipf: types, each as often as any other
    #[arg(long = "type", value_name = "TYPE", value_delimiter = ',', default_value = "A", value_parser = qtype, conflicts_with_all = ["from_zone", "from_pcap"])]
    qtypes: Vec<u16>,
    /// With --random and --zipf: the same seed makes the same queries
    #[arg(long, value_name = "NUMBER", default_value_t = 1, conflicts_with_all = ["from_zone", "from_pcap"])]
    seed: u64,
    /// With --from-zone: what relative names are in
    #[arg(long, value_name = "NAME", conflicts_with_all = ["random", "zipf", "from_pcap"])]
    origin: Option<String>,
    /// With --from-pcap: the servers' port
    #[arg(long, value_name = "PORT", default_value_t = 53, conflicts_with_all = ["random", "zipf", "from_zone"])]
    port: u16,
    /// Write messages in wire format, each behind its length in two octets
    #[arg(short = 'B', long)]
    binary: bool,
    /// The file to write; standard output without it
    #[arg(short = 'o', long, value_name = "FILE")]
    output: Option<PathBuf>,
}

pub(super) fn run(arguments: &[OsString]) -> Outcome<ExitCode> {
    let Some(command) = parse::<Command>("floodgate queries", arguments)? else {
        return Ok(ExitCode::SUCCESS);
    };
    // Before the file is made anew that is written: the one may be the other, and where there is nothing to read it stays.
    let source = command.read()?;
    match &command.output {
        None => return command.print(&source),
        Some(path) => {
            let count = command.write_file(&source, path)?;
            tell(&format!("{count} queries in {}\n", path.display()));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// A pipe that its reader may close, who has enough then (`| head`).
struct Pipe<W> {
    out: W,
    is_closed: bool,
}

impl<W: Write> Pipe<W> {
    fn note<T>(&mut self, result: io::Result<T>) -> io::Result<T> {
        let kind = result.as_ref().map_err(io::Error::kind);
        self.is_closed |= matches!(kind, Err(ErrorKind::BrokenPipe));
        result
    }
}

impl<W: Write> Write for Pipe<W> {
    fn write(&mut self, octets: &[u8]) -> io::Result<usize> {
        let result = self.out.write(octets);
        self.note(result)
    }

    fn flush(&mut self) -> io::Result<()> {
        let result = self.out.flush();
        self.note(result)
    }
}

impl Command {
    /// Writes to standard output, until whoever reads it has enough: a quiet end.
    fn print(&self, source: &[u8]) -> Outcome<ExitCode> {
        self.write_to_pipe(source, std::io::stdout().lock())
            .map(|()| ExitCode::SUCCESS)
    }

    fn write_to_pipe(&self, source: &[u8], out: impl Write) -> Outcome<()> {
        let mut pipe = Pipe {
            out,
            is_closed: false,
        };
        match self.write(source, BufWriter::new(&mut pipe)) {
            Err(_) if pipe.is_closed => Ok(()),
            other => other.map(|_| ()),
        }
    }

    /// The zone or the capture; empty where queries are made up.
    fn read(&self) -> Outcome<Vec<u8>> {
        match self.from_zone.as_ref().or(self.from_pcap.as_ref()) {
            Some(path) if path.as_os_str() == "-" => {
                let mut octets = Vec::new();
                let read = io::stdin().lock().read_to_end(&mut octets);
                read.map(|_| octets).during("reading standard input")
            }
            Some(path) => std::fs::read(path).during(path.display()),
            None => Ok(Vec::new()),
        }
    }

    /// The same into a file. Where the zone or the capture turns out to be none, the file that was there stays.
    fn write_file(&self, source: &[u8], path: &Path) -> Outcome<u64> {
        let create = || File::create(path).during(format!("writing {}", path.display()));
        if self.random.is_some() || self.zipf.is_some() {
            return self.write(source, BufWriter::new(create()?));
        }
        let mut octets = Vec::new();
        let count = self.write(source, &mut octets)?;
        create()?.write_all(&octets).during("writing queries")?;
        Ok(count)
    }

    /// Writes what was asked for, of a zone or a capture with these octets; returns how many queries.
    fn write(&self, source: &[u8], out: impl Write) -> Outcome<u64> {
        let mut writer = Writer::new(out, self.binary);
        let shape = Shape {
            suffix: self.suffix.trim_end_matches('.').to_owned(),
            prefix: self.prefix.clone(),
            edns: if self.dnssec_ok {
                Edns::DnssecOk
            } else {
                Edns::None
            },
            qtypes: self.qtypes.clone(),
            seed: self.seed,
        };
        if let Some(count) = self.random {
            random(count, &shape, &mut writer)?;
        }
        if let Some(names) = self.zipf {
            let count = self.count.unwrap_or(u64::from(names) * 100);
            zipf(names, count, self.exponent, &shape, &mut writer)?;
        }
        if let Some(path) = &self.from_zone {
            let text = std::str::from_utf8(source).during(path.display())?;
            zone::queries(text, self.origin.as_deref(), &mut writer).during(path.display())?;
            return writer.finish().during(path.display());
        }
        if let Some(path) = &self.from_pcap {
            capture::queries(source, self.port, &mut writer).during(path.display())?;
            return writer.finish().during(path.display());
        }
        writer.finish()
    }
}

fn qtype(text: &str) -> Result<u16, String> {
    parse_qtype(text).ok_or_else(|| "must be a type, such as A, AAAA or TYPE65280".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(line: &str) -> Outcome<Vec<String>> {
        let words: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
        let command = parse::<Command>("floodgate queries", &words)?.expect("no help asked for");
        let mut octets = Vec::new();
        command.write(&command.read()?, &mut octets)?;
        let text = String::from_utf8(octets).unwrap();
        Ok(text.lines().map(str::to_owned).collect())
    }

    #[test]
    fn made_up_queries_have_the_shape_that_is_asked_for() {
        let some = lines("--random 9 --type TXT --suffix flood.test.").unwrap();
        assert_eq!(some.len(), 9);
        assert!(some.iter().all(|line| line.ends_with(".flood.test. TXT")));
        let signed = lines("--random 9 --prefix www --dnssec-ok").unwrap();
        let shaped = |line: &String| line.starts_with("www") && line.ends_with(".example.com. A D");
        assert!(signed.iter().all(shaped), "{signed:?}");
        assert_eq!(lines("--zipf 4").unwrap().len(), 400);
        assert_eq!(lines("--zipf 4 --count 7").unwrap().len(), 7);
        assert_eq!(lines("--random 1 --suffix .").unwrap().len(), 1);
    }

    #[test]
    fn a_file_stays_where_its_source_cannot_be_read_and_may_be_its_own_source() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = file.path().to_str().unwrap();
        let zone = "www.example. 60 A 192.0.2.1\n";
        std::fs::write(path, zone).unwrap();
        let write_from = |source: &str| {
            let words = ["--from-zone", source, "-o", path].map(OsString::from);
            run(&words).map(|_| ())
        };
        let broken = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(broken.path(), format!("{zone}b..example. 60 A x\n")).unwrap();
        for source in [
            "/nonexistent/zone",
            "/dev/null",
            broken.path().to_str().unwrap(),
        ] {
            assert!(write_from(source).is_err(), "{source}");
            assert_eq!(std::fs::read_to_string(path).unwrap(), zone, "{source}");
        }
        assert_eq!(write_from(path), Ok(()));
        assert_eq!(std::fs::read_to_string(path).unwrap(), "www.example. A\n");
    }

    /// Takes so many octets, and then fails so.
    struct Ending(usize, ErrorKind);

    impl Write for Ending {
        fn write(&mut self, octets: &[u8]) -> io::Result<usize> {
            if self.0 == 0 {
                return Err(self.1.into());
            }
            let taken = octets.len().min(self.0);
            self.0 -= taken;
            Ok(taken)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_closed_pipe_is_a_quiet_end_and_a_full_disk_is_none() {
        for line in ["--random 9", "--random 100000", "--zipf 9 -B"] {
            let words: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
            let command = parse::<Command>("floodgate queries", &words).unwrap();
            let command = command.expect("no help asked for");
            let end = |kind| command.write_to_pipe(&[], Ending(20, kind));
            assert_eq!(end(ErrorKind::BrokenPipe), Ok(()), "{line}");
            let failure = end(ErrorKind::StorageFull).unwrap_err().to_string();
            assert!(failure.starts_with("writing queries: "), "{failure}");
        }
    }

    #[test]
    fn one_source_must_be_named() {
        assert!(lines("").is_err());
        assert!(lines("--random 1 --zipf 1").is_err());
        // What means nothing to the source is no option of it.
        for (line, part) in [
            ("--random 5 --count 9", "--count"),
            ("--random 5 --origin example.", "--origin"),
            ("--random 5 --exponent 2", "--exponent"),
            ("--zipf 5 --port 54", "--port"),
            ("--from-zone f --type AAAA", "--type"),
            ("--from-zone f --suffix example.", "--suffix"),
            ("--from-pcap f --seed 1", "--seed"),
            ("--from-pcap f --prefix www", "--prefix"),
            ("--from-pcap f --dnssec-ok", "--dnssec-ok"),
        ] {
            let failure = lines(line).unwrap_err().to_string();
            assert!(failure.contains(part), "{line}: {failure}");
            assert!(failure.contains("cannot be used with"), "{line}: {failure}");
        }
        let failure = lines("--random 1 --type B").unwrap_err().to_string();
        assert!(
            failure.contains("such as A, AAAA or TYPE65280"),
            "{failure}"
        );
        assert!(lines("--from-zone /nonexistent").is_err());
        let failure = lines("--zipf 4 --exponent nan").unwrap_err().to_string();
        assert!(failure.contains("a number from 0 to 100"), "{failure}");
    }
}
