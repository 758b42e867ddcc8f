//! pcapng (draft-ietf-opsawg-pcapng): what Wireshark, tshark and tcpdump read. Little end first.
//!
//! ```text
//!  section header │ interface description │ packet │ packet │ … │ interface statistics │ …
//!  each: type 32 │ length 32 │ body, a multiple of 4 octets │ length 32
//! ```

use crate::clock::Now;
use crate::frontend::tap::{Mark, Packet};
use std::time::{SystemTime, UNIX_EPOCH};

const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const INTERFACE_DESCRIPTION: u32 = 1;
const INTERFACE_STATISTICS: u32 = 5;
const ENHANCED_PACKET: u32 = 6;

/// "The number used to distinguish sections that have been saved on little-endian machines".
const MAGIC: u32 = 0x1a2b_3c4d;

/// LINKTYPE_ETHERNET.
const ETHERNET: u16 = 1;

/// Options: of every block, then of the section header, interfaces, packets, statistics.
const END: u16 = 0;
const COMMENT: u16 = 1;
const USER_APPLICATION: u16 = 4;
const INTERFACE_NAME: u16 = 2;
const TIME_RESOLUTION: u16 = 9;
const FLAGS: u16 = 2;
const QUEUE: u16 = 6;
const VERDICT: u16 = 7;
const DROPPED: u16 = 5;

/// epb_flags: the direction, bits 0 and 1.
const INBOUND: u32 = 1;
const OUTBOUND: u32 = 2;

/// epb_verdict: "Linux_eBPF_XDP", then 64 bits; XDP_REDIRECT.
const OF_XDP: u8 = 2;
const REDIRECT: u64 = 4;

/// Blocks under way.
pub struct Writer {
    bytes: Vec<u8>,
    /// The wall clock when [`Now`] was 0, in nanoseconds since 1970.
    epoch: u64,
}

impl Writer {
    /// Begins a stream of one interface.
    pub fn new(interface: &str, now: Now) -> Writer {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH);
        let wall = wall.map_or(0, |wall| wall.as_nanos() as u64);
        let mut writer = Writer {
            bytes: Vec::new(),
            epoch: wall.saturating_sub(now.0),
        };
        writer.begin(interface);
        writer
    }

    fn begin(&mut self, interface: &str) {
        self.block(SECTION_HEADER, |body| {
            body.extend(MAGIC.to_le_bytes());
            // Version 1.0, of a length that is not known.
            body.extend([1, 0, 0, 0]);
            body.extend((-1_i64).to_le_bytes());
            option(body, USER_APPLICATION, b"millrace");
            option(body, END, b"");
        });
        self.block(INTERFACE_DESCRIPTION, |body| {
            body.extend(ETHERNET.to_le_bytes());
            body.extend([0; 2]);
            // Whole packets.
            body.extend(0_u32.to_le_bytes());
            option(body, INTERFACE_NAME, interface.as_bytes());
            // Nanoseconds.
            option(body, TIME_RESOLUTION, &[9]);
            option(body, END, b"");
        });
    }

    /// Adds a packet with its marks.
    pub fn packet(&mut self, packet: &Packet) {
        let time = self.epoch.wrapping_add(packet.time.0);
        let length = packet.bytes.len() as u32;
        self.block(ENHANCED_PACKET, |body| {
            body.extend(0_u32.to_le_bytes());
            time_into(body, time);
            body.extend(length.to_le_bytes());
            body.extend(length.to_le_bytes());
            padded(body, &packet.bytes);
            let comment = format!("xsk queue {}, {}", packet.queue, packet.mark.text());
            option(body, COMMENT, comment.as_bytes());
            let received = packet.mark != Mark::Sent;
            let flags = if received { INBOUND } else { OUTBOUND };
            option(body, FLAGS, &flags.to_le_bytes());
            option(body, QUEUE, &packet.queue.to_le_bytes());
            if received {
                let mut verdict = vec![OF_XDP];
                verdict.extend(REDIRECT.to_le_bytes());
                option(body, VERDICT, &verdict);
            }
            option(body, END, b"");
        });
    }

    /// Adds how many packets were not copied so far.
    pub fn statistics(&mut self, lost: u64, now: Now) {
        let time = self.epoch.wrapping_add(now.0);
        self.block(INTERFACE_STATISTICS, |body| {
            body.extend(0_u32.to_le_bytes());
            time_into(body, time);
            option(body, DROPPED, &lost.to_le_bytes());
            option(body, END, b"");
        });
    }

    /// What was written since the last time.
    pub fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.bytes)
    }

    fn block(&mut self, kind: u32, write: impl FnOnce(&mut Vec<u8>)) {
        let mut body = Vec::new();
        write(&mut body);
        let length = body.len() as u32 + 12;
        self.bytes.extend(kind.to_le_bytes());
        self.bytes.extend(length.to_le_bytes());
        self.bytes.extend(body);
        self.bytes.extend(length.to_le_bytes());
    }
}

/// The length of the block at the front, if all of it is there.
pub fn whole_block(bytes: &[u8]) -> Option<usize> {
    let length = u32::from_le_bytes(*bytes.get(4..)?.first_chunk()?) as usize;
    (length >= 12 && bytes.len() >= length).then_some(length)
}

/// Whether a whole block is a packet.
pub fn is_packet(block: &[u8]) -> bool {
    block.starts_with(&ENHANCED_PACKET.to_le_bytes())
}

/// "Timestamp (High), Timestamp (Low)".
fn time_into(body: &mut Vec<u8>, time: u64) {
    body.extend(((time >> 32) as u32).to_le_bytes());
    body.extend((time as u32).to_le_bytes());
}

fn option(body: &mut Vec<u8>, code: u16, value: &[u8]) {
    body.extend(code.to_le_bytes());
    body.extend((value.len() as u16).to_le_bytes());
    padded(body, value);
}

/// "padded to a 32-bit boundary".
fn padded(body: &mut Vec<u8>, value: &[u8]) {
    body.extend(value);
    body.resize(body.len().next_multiple_of(4), 0);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipeline::drop::DropReason;
    use std::io::Write as _;
    use std::process::{Command, Stdio};

    fn stream() -> Vec<u8> {
        let mut writer = Writer::new("veth0", Now(0));
        let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x08, 0x06];
        frame.resize(61, 0);
        for mark in [Mark::Dropped(DropReason::Acl), Mark::Sent] {
            writer.packet(&Packet {
                time: Now(5),
                queue: 3,
                mark,
                bytes: frame.clone().into(),
            });
        }
        writer.statistics(7, Now(9));
        let bytes = writer.take();
        assert!(writer.take().is_empty());
        bytes
    }

    #[test]
    fn blocks_are_whole_and_say_their_length_twice() {
        let stream = stream();
        let (mut rest, mut kinds, mut packets) = (&stream[..], Vec::new(), 0);
        while let Some(length) = whole_block(rest) {
            let (block, after) = rest.split_at(length);
            assert_eq!(length % 4, 0);
            assert_eq!(block[4..8], block[length - 4..]);
            kinds.push(u32::from_le_bytes(*block.first_chunk().unwrap()));
            packets += usize::from(is_packet(block));
            rest = after;
        }
        assert!(rest.is_empty());
        let expected = [
            SECTION_HEADER,
            INTERFACE_DESCRIPTION,
            ENHANCED_PACKET,
            ENHANCED_PACKET,
            INTERFACE_STATISTICS,
        ];
        assert_eq!((&kinds[..], packets), (&expected[..], 2));
        let text = String::from_utf8_lossy(&stream);
        assert!(text.contains("xsk queue 3, dropped: acl") && text.contains("xsk queue 3, sent"));
        assert!(whole_block(&stream[..11]).is_none());
    }

    /// A second opinion, where it is installed.
    #[test]
    fn tcpdump_reads_it() {
        let tcpdump = Command::new("tcpdump")
            .args(["-n", "-e", "-r", "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn();
        let Ok(mut tcpdump) = tcpdump else {
            return println!("SKIP: tcpdump is not installed");
        };
        tcpdump.stdin.take().unwrap().write_all(&stream()).unwrap();
        let output = tcpdump.wait_with_output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{text}");
        assert_eq!(text.lines().count(), 2, "{text}");
        assert!(
            text.contains("02:00:00:00:00:02 > 02:00:00:00:00:01"),
            "{text}"
        );
    }
}
