//! `millrace mirror --interface IF -w FILE|- [filter]`: what AF_XDP receives and sends, as pcapng into a file or a pipe.
//!
//! ```text
//!  millrace mirror --interface ens3f0 -w - name example.com | tcpdump -n -r -
//! ```

use crate::control::client;
use crate::control::mirror::RATE_MAX;
use crate::control::mirror::pcapng::{is_packet, whole_block};
use crate::control::protocol::{MirrorRequest, Request};
use clap::Args;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// What `millrace mirror` takes.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub(super) struct MirrorArguments {
    /// The interface whose AF_XDP traffic is copied
    #[arg(long)]
    interface: String,

    /// Where the pcapng stream goes; - is standard output
    #[arg(short = 'w', long = "write", value_name = "FILE")]
    file: PathBuf,

    /// Packets a second at most; others are left out and counted
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=i64::from(RATE_MAX)))]
    rate: u32,

    /// End after so many packets
    #[arg(long, value_name = "NUMBER")]
    count: Option<u64>,

    /// Words that must all hold: host ADDRESS, port NUMBER, name NAME, rcode NAME, query, response, in, out
    filter: Vec<String>,
}

impl MirrorArguments {
    /// Copies until the instance ends, the reader goes, or enough packets came.
    pub(super) fn run(self, control: &Path) -> ExitCode {
        let request = Request::Mirror(MirrorRequest {
            interface: self.interface,
            filter: self.filter,
            rate: self.rate,
        });
        let opened = client::open(control, &request).map_err(|error| error.to_string());
        let copied = opened.and_then(|(_, stream)| {
            // Packets may be rare: no time-out.
            let patient = stream.get_ref().set_read_timeout(None);
            patient.map_err(|error| error.to_string())?;
            let failed = |error| format!("{}: {error}", self.file.display());
            if self.file == Path::new("-") {
                return copy(stream, io::stdout().lock(), self.count).map_err(failed);
            }
            let file = File::create(&self.file).map_err(failed)?;
            copy(stream, file, self.count).map_err(failed)
        });
        match copied {
            Ok(()) => ExitCode::SUCCESS,
            Err(reason) => {
                super::complain(reason);
                ExitCode::FAILURE
            }
        }
    }
}

/// Copies whole blocks only, so that whoever is stopped in between leaves a file that can be read.
fn copy(mut stream: impl Read, mut to: impl Write, count: Option<u64>) -> io::Result<()> {
    let (mut bytes, mut packets) = (Vec::new(), 0);
    let mut buffer = vec![0; 1 << 16];
    loop {
        while let Some(length) = whole_block(&bytes) {
            let block: Vec<u8> = bytes.drain(..length).collect();
            match to.write_all(&block).and_then(|()| to.flush()) {
                // Whoever reads the pipe has seen enough.
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
                written => written?,
            }
            packets += u64::from(is_packet(&block));
            if Some(packets) == count {
                return Ok(());
            }
        }
        match stream.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(read) => bytes.extend(&buffer[..read]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Now;
    use crate::control::mirror::pcapng::Writer;
    use crate::frontend::tap::{Mark, Packet};

    fn stream(packets: usize) -> Vec<u8> {
        let mut writer = Writer::new("veth0", Now(0));
        for _ in 0..packets {
            writer.packet(&Packet {
                time: Now(1),
                queue: 0,
                mark: Mark::Sent,
                bytes: [0; 60].into(),
            });
        }
        writer.take()
    }

    #[test]
    fn whole_blocks_are_copied_and_no_more_than_asked_for() {
        let (three, two) = (stream(3), stream(2));
        let copied = |bytes: &[u8], count| {
            let mut to = Vec::new();
            copy(bytes, &mut to, count).unwrap();
            to
        };
        assert_eq!(copied(&three, None).len(), three.len());
        assert_eq!(copied(&three[..three.len() - 1], None).len(), two.len());
        assert_eq!(copied(&three, Some(2)).len(), two.len());
    }

    /// Is interrupted once, and then at its end.
    struct Interrupted(bool);

    impl Read for Interrupted {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            match std::mem::take(&mut self.0) {
                true => Err(io::ErrorKind::Interrupted.into()),
                false => Ok(0),
            }
        }
    }

    #[test]
    fn an_interruption_is_no_end() {
        let (mut to, two) = (Vec::new(), stream(2));
        copy(Interrupted(true).chain(&two[..]), &mut to, None).unwrap();
        assert_eq!(to, two);
    }
}
