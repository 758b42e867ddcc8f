//! An Ethernet frame that carries one UDP datagram, parsed and checked.
//!
//! Ethernet II (RFC 894, RFC 2464), IPv4 without options (RFC 791), IPv6 without extension headers (RFC 8200), UDP
//! (RFC 768). Everything else is refused by name: the kernel program passes it to the kernel, and what gets here all the
//! same is counted and dropped.
//!
//! ```text
//! IPv4  0 Ethernet 14 │ 14 IPv4 20 │ 34 UDP 8 │ 42 payload … │ padding of short frames
//! IPv6  0 Ethernet 14 │ 14 IPv6 40            │ 54 UDP 8 │ 62 payload … │ padding
//! ```

mod headers;

pub use headers::{Headers, write_headers, write_headers_summed};

use crate::checksum::Sum;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// An Ethernet address.
pub type Mac = [u8; 6];

const ETHERNET_LENGTH: usize = 14;
const IPV4_LENGTH: usize = 20;
const IPV6_LENGTH: usize = 40;
const UDP_LENGTH: usize = 8;
const ETHERTYPE_IPV4: u16 = 0x0800;
const ETHERTYPE_IPV6: u16 = 0x86dd;
const PROTOCOL_UDP: u8 = 17;

/// Octets in front of a UDP payload over IPv4: Ethernet 14, IPv4 20, UDP 8.
const IPV4_HEADERS_LENGTH: usize = ETHERNET_LENGTH + IPV4_LENGTH + UDP_LENGTH;
/// Octets in front of a UDP payload over IPv6: Ethernet 14, IPv6 40, UDP 8.
const IPV6_HEADERS_LENGTH: usize = ETHERNET_LENGTH + IPV6_LENGTH + UDP_LENGTH;

/// The IP version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Family {
    V4,
    V6,
}

impl Family {
    /// The family of an address.
    #[must_use]
    pub const fn of(address: &SocketAddr) -> Family {
        match address {
            SocketAddr::V4(_) => Family::V4,
            SocketAddr::V6(_) => Family::V6,
        }
    }

    /// Octets of Ethernet, IP and UDP header in front of the payload: 42 or 62.
    #[must_use]
    pub const fn headers_length(self) -> usize {
        match self {
            Family::V4 => IPV4_HEADERS_LENGTH,
            Family::V6 => IPV6_HEADERS_LENGTH,
        }
    }
}

/// What the UDP checksum field was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum UdpChecksum {
    /// The full sum, and right.
    Verified,
    /// Only the folded, uncomplemented sum of the pseudo-header: the sender left the rest to a network card.
    Partial,
    /// 0: the sender computed none (RFC 768), which only IPv4 allows.
    Absent,
}

/// A frame that was found to be one good UDP datagram. Holds places and addresses, borrows nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Who sent it.
    pub source: SocketAddr,
    /// To whom; of the same family as `source`.
    pub destination: SocketAddr,
    /// Ethernet address of the sender or its gateway.
    pub source_mac: Mac,
    /// Ethernet address the frame was sent to.
    pub destination_mac: Mac,
    /// Octets from the frame's start to the UDP payload: 42 or 62.
    pub payload_start: u16,
    /// Octets of UDP payload. The frame may be longer (Ethernet padding).
    pub payload_length: u16,
    /// What the UDP checksum was.
    pub checksum: UdpChecksum,
}

impl Default for Packet {
    /// A place for [`Packet::read`]: from nobody to nobody.
    fn default() -> Packet {
        let nobody = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
        Packet {
            source: nobody,
            destination: nobody,
            source_mac: [0; 6],
            destination_mac: [0; 6],
            payload_start: 0,
            payload_length: 0,
            checksum: UdpChecksum::Absent,
        }
    }
}

impl Packet {
    /// Parses and checks a frame, as [`Packet::read`] does.
    ///
    /// # Errors
    /// Those of [`Packet::read`].
    #[inline]
    pub fn parse(frame: &[u8], accept_partial: bool) -> Result<Packet, FrameError> {
        let mut packet = Packet::default();
        packet.read(frame, accept_partial)?;
        Ok(packet)
    }

    /// Parses and checks a frame, and writes what it is where it is to stay: to move it takes as long as to parse it, for
    /// wide loads wait for the narrow stores before them. `accept_partial`: whether the device is one (veth, virtio, tap)
    /// whose senders may leave the UDP checksum to a network card that does not exist.
    ///
    /// # Errors
    /// The first thing that is wrong, by name; what is written then means nothing. Whoever counts needs no more than
    /// [`FrameError::name`].
    #[inline]
    pub fn read(&mut self, frame: &[u8], accept_partial: bool) -> Result<(), FrameError> {
        let ethernet: &[u8; ETHERNET_LENGTH] = frame.first_chunk().ok_or(FrameError::TooShort)?;
        // The group bit is the lowest of the first octet (IEEE 802.3 §3.2.3); nobody sends from a group, and an answer
        // to one would reach everybody.
        if ethernet[6] & 1 != 0 {
            return Err(FrameError::GroupSourceMac);
        }
        match u16_of(ethernet, 12) {
            ETHERTYPE_IPV4 => self.read_ipv4(frame, accept_partial),
            ETHERTYPE_IPV6 => self.read_ipv6(frame, accept_partial),
            _ => Err(FrameError::NotIp),
        }
    }

    /// The IP version.
    #[must_use]
    pub const fn family(&self) -> Family {
        Family::of(&self.source)
    }

    /// The payload of the frame that this was parsed from; empty for another, shorter one.
    #[inline]
    #[must_use]
    pub fn payload<'f>(&self, frame: &'f [u8]) -> &'f [u8] {
        let start = usize::from(self.payload_start);
        frame
            .get(start..start + usize::from(self.payload_length))
            .unwrap_or_default()
    }

    /// The headers of an answer: this packet's, with both ends exchanged.
    #[inline]
    #[must_use]
    pub const fn reply_headers(&self) -> Headers<'_> {
        Headers {
            source_mac: &self.destination_mac,
            destination_mac: &self.source_mac,
            source: &self.destination,
            destination: &self.source,
            code_point: 0,
        }
    }

    #[inline]
    fn read_ipv4(&mut self, frame: &[u8], accept_partial: bool) -> Result<(), FrameError> {
        let head: &[u8; IPV4_HEADERS_LENGTH] = frame.first_chunk().ok_or(FrameError::TooShort)?;
        match head[14] {
            0x45 => {}
            0x46..=0x4f => return Err(FrameError::IpOptions),
            0x40..=0x44 => return Err(FrameError::IpHeaderLength),
            _ => return Err(FrameError::IpVersion),
        }
        let total_length = usize::from(u16_of(head, 16));
        if total_length < IPV4_LENGTH + UDP_LENGTH || total_length > frame.len() - ETHERNET_LENGTH {
            return Err(FrameError::IpLength);
        }
        // More-fragments flag or an offset; do-not-fragment (0x4000) and the unused bit say nothing here.
        if u16_of(head, 20) & 0x3fff != 0 {
            return Err(FrameError::Fragment);
        }
        if head[23] != PROTOCOL_UDP {
            return Err(FrameError::NotUdp);
        }
        if Sum::ZERO.bytes(&head[14..34]).fold() != 0xffff {
            return Err(FrameError::IpChecksum);
        }
        let source = Ipv4Addr::from_octets(*chunk_of(head, 26));
        let destination = Ipv4Addr::from_octets(*chunk_of(head, 30));
        if is_martian_ipv4(source) || source == destination {
            return Err(FrameError::MartianSource);
        }
        let addresses = Sum::ZERO.bytes(&head[26..34]);
        let datagram = &frame[34..ETHERNET_LENGTH + total_length];
        let checksum = check_udp(datagram, addresses, accept_partial)?;
        self.fill(
            head,
            (IpAddr::V4(source), IpAddr::V4(destination)),
            checksum,
        );
        Ok(())
    }

    fn read_ipv6(&mut self, frame: &[u8], accept_partial: bool) -> Result<(), FrameError> {
        let head: &[u8; IPV6_HEADERS_LENGTH] = frame.first_chunk().ok_or(FrameError::TooShort)?;
        if head[14] >> 4 != 6 {
            return Err(FrameError::IpVersion);
        }
        match head[20] {
            PROTOCOL_UDP => {}
            IPV6_FRAGMENT => return Err(FrameError::Fragment),
            // RFC 7045 §4, the registry of IPv6 extension header types, and no-next-header.
            0 | 43 | 50 | 51 | 59 | 60 | 135 | 139 | 140 | 253 | 254 => {
                return Err(FrameError::ExtensionHeader);
            }
            _ => return Err(FrameError::NotUdp),
        }
        // 0 would be a jumbogram (RFC 2675), which needs an extension header and is too short for UDP besides.
        let length = usize::from(u16_of(head, 18));
        if length < UDP_LENGTH || length > frame.len() - ETHERNET_LENGTH - IPV6_LENGTH {
            return Err(FrameError::IpLength);
        }
        let source = Ipv6Addr::from_octets(*chunk_of(head, 22));
        let destination = Ipv6Addr::from_octets(*chunk_of(head, 38));
        if is_martian_ipv6(source) || source == destination {
            return Err(FrameError::MartianSource);
        }
        let addresses = Sum::ZERO.bytes(&head[22..54]);
        let datagram = &frame[54..ETHERNET_LENGTH + IPV6_LENGTH + length];
        let checksum = check_udp(datagram, addresses, accept_partial)?;
        if checksum == UdpChecksum::Absent {
            return Err(FrameError::UdpChecksumAbsent);
        }
        self.fill(
            head,
            (IpAddr::V6(source), IpAddr::V6(destination)),
            checksum,
        );
        Ok(())
    }

    /// Puts together what was checked. `head` ends where the payload starts.
    #[inline(always)]
    fn fill<const N: usize>(
        &mut self,
        head: &[u8; N],
        (source, destination): (IpAddr, IpAddr),
        checksum: UdpChecksum,
    ) {
        self.source = SocketAddr::new(source, u16_of(head, N - UDP_LENGTH));
        self.destination = SocketAddr::new(destination, u16_of(head, N - UDP_LENGTH + 2));
        self.source_mac = *chunk_of(head, 6);
        self.destination_mac = *chunk_of(head, 0);
        self.payload_start = N as u16;
        self.payload_length = u16_of(head, N - UDP_LENGTH + 4) - UDP_LENGTH as u16;
        self.checksum = checksum;
    }
}

/// IPv6's fragment header (RFC 8200 §4.5).
const IPV6_FRAGMENT: u8 = 44;

/// Checks ports, length and checksum of the datagram that fills an IP payload, `addresses` being the sum of both IP
/// addresses.
#[inline]
fn check_udp(
    datagram: &[u8],
    addresses: Sum,
    accept_partial: bool,
) -> Result<UdpChecksum, FrameError> {
    let header: &[u8; UDP_LENGTH] = datagram.first_chunk().ok_or(FrameError::UdpLength)?;
    let length = u16_of(header, 4);
    if usize::from(length) != datagram.len() {
        return Err(FrameError::UdpLength);
    }
    // RFC 768: an unused source port is 0, and then nobody expects an answer.
    if u16_of(header, 0) == 0 {
        return Err(FrameError::SourcePortZero);
    }
    let field = u16_of(header, 6);
    if field == 0 {
        return Ok(UdpChecksum::Absent);
    }
    let pseudo_header = addresses.word(u16::from(PROTOCOL_UDP)).word(length);
    // Before the full sum, because where senders do this they all do, and the payload need not be read then.
    if accept_partial && field == pseudo_header.fold() {
        return Ok(UdpChecksum::Partial);
    }
    match pseudo_header.bytes(datagram).fold() {
        0xffff => Ok(UdpChecksum::Verified),
        _ => Err(FrameError::UdpChecksum),
    }
}

/// Addresses that no packet may come from (RFC 1122 §3.2.1.3): this network, loopback, a group, everybody.
#[inline]
fn is_martian_ipv4(source: Ipv4Addr) -> bool {
    let first = source.octets()[0];
    first == 0 || first == 127 || source.is_multicast() || source.is_broadcast()
}

/// The same for IPv6 (RFC 4291 §2.5.2, §2.5.3, §2.7). IPv4-mapped addresses never appear on the wire (its erratum 3480,
/// which Linux follows): a policy for IPv4 could be got round by them.
#[inline]
fn is_martian_ipv6(source: Ipv6Addr) -> bool {
    source.is_unspecified()
        || source.is_loopback()
        || source.is_multicast()
        || source.to_ipv4_mapped().is_some()
}

/// The number at a place that the array's length makes sure of.
#[inline(always)]
fn u16_of<const N: usize>(bytes: &[u8; N], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

/// The octets at a place that the array's length makes sure of.
#[inline(always)]
fn chunk_of<const N: usize, const M: usize>(bytes: &[u8; N], at: usize) -> &[u8; M] {
    bytes[at..]
        .first_chunk()
        .expect("constant place within a constant length")
}

/// Why a frame is not a [`Packet`]: one drop reason each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum FrameError {
    /// The frame ends before its headers do.
    TooShort,
    /// The Ethernet source is a group address.
    GroupSourceMac,
    /// Neither IPv4 nor IPv6 (a VLAN tag, ARP, 802.3).
    NotIp,
    /// The IP version is not what the Ethernet type says.
    IpVersion,
    /// IPv4 header length below 20.
    IpHeaderLength,
    /// IPv4 options.
    IpOptions,
    /// The IP length is larger than the frame, or too small for UDP.
    IpLength,
    /// A fragment.
    Fragment,
    /// IPv6 extension headers.
    ExtensionHeader,
    /// Neither UDP nor anything that may lie before it.
    NotUdp,
    /// The IPv4 header checksum is wrong.
    IpChecksum,
    /// The source address is one that nothing may come from.
    MartianSource,
    /// The UDP length is not the length of the IP payload.
    UdpLength,
    /// The UDP source port is 0.
    SourcePortZero,
    /// The UDP checksum is wrong.
    UdpChecksum,
    /// The UDP checksum is 0 over IPv6.
    UdpChecksumAbsent,
}

impl FrameError {
    /// Every reason, in the order of their numbers (`error as usize`): for arrays of counters.
    pub const ALL: [FrameError; 16] = [
        FrameError::TooShort,
        FrameError::GroupSourceMac,
        FrameError::NotIp,
        FrameError::IpVersion,
        FrameError::IpHeaderLength,
        FrameError::IpOptions,
        FrameError::IpLength,
        FrameError::Fragment,
        FrameError::ExtensionHeader,
        FrameError::NotUdp,
        FrameError::IpChecksum,
        FrameError::MartianSource,
        FrameError::UdpLength,
        FrameError::SourcePortZero,
        FrameError::UdpChecksum,
        FrameError::UdpChecksumAbsent,
    ];

    /// The counter's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            FrameError::TooShort => "frame-too-short",
            FrameError::GroupSourceMac => "group-source-mac",
            FrameError::NotIp => "not-ip",
            FrameError::IpVersion => "ip-version",
            FrameError::IpHeaderLength => "ip-header-length",
            FrameError::IpOptions => "ip-options",
            FrameError::IpLength => "ip-length",
            FrameError::Fragment => "fragment",
            FrameError::ExtensionHeader => "extension-header",
            FrameError::NotUdp => "not-udp",
            FrameError::IpChecksum => "ip-checksum",
            FrameError::MartianSource => "martian-source",
            FrameError::UdpLength => "udp-length",
            FrameError::SourcePortZero => "source-port-zero",
            FrameError::UdpChecksum => "udp-checksum",
            FrameError::UdpChecksumAbsent => "udp-checksum-absent",
        }
    }
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            FrameError::TooShort => "frame shorter than its headers: UDP needs 42 octets over IPv4, 62 over IPv6",
            FrameError::GroupSourceMac => "Ethernet source is a group address: a sender has an address of its own",
            FrameError::NotIp => "Ethernet type is not IPv4 (0x0800) or IPv6 (0x86dd)",
            FrameError::IpVersion => "IP version field differs from the Ethernet type: 4 belongs to 0x0800, 6 to 0x86dd",
            FrameError::IpHeaderLength => "IPv4 header length below 20 octets (RFC 791 §3.1)",
            FrameError::IpOptions => "IPv4 header with options: only the kernel's path takes them",
            FrameError::IpLength => "IP length does not fit: at least a UDP header, at most what the frame holds",
            FrameError::Fragment => "IP fragment: only the kernel's path takes them",
            FrameError::ExtensionHeader => "IPv6 extension header: only the kernel's path takes them",
            FrameError::NotUdp => "IP protocol is not UDP (17)",
            FrameError::IpChecksum => "IPv4 header checksum wrong (RFC 791 §3.1)",
            FrameError::MartianSource => {
                "source address is unspecified, loopback, multicast, broadcast, IPv4-mapped or the destination itself"
            }
            FrameError::UdpLength => "UDP length differs from the length of the IP payload: both must agree",
            FrameError::SourcePortZero => "UDP source port is 0: nobody expects an answer there (RFC 768)",
            FrameError::UdpChecksum => "UDP checksum wrong (RFC 768)",
            FrameError::UdpChecksumAbsent => "UDP checksum is 0, which IPv6 forbids (RFC 8200 §8.1)",
        })
    }
}

impl std::error::Error for FrameError {}

#[cfg(test)]
mod tests;
