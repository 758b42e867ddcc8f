//! Netlink (RFC 3549), as much as two questions need: one request, one answer.
//!
//! ```text
//! length 4 │ type 2 │ flags 2 │ sequence 4 │ port 4 │ fixed part of the type │ attribute, attribute, …   host byte order
//! attribute:  length 2 │ type 2 │ value … │ padding to 4
//! ```

use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, send, socket,
};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

const HEADER_LENGTH: usize = 16;
const NLM_F_REQUEST: u16 = 1;
const NLMSG_ERROR: u16 = 2;

/// A socket to ask the kernel with.
pub(super) struct Netlink(OwnedFd);

/// A type and its value.
pub(super) struct Attribute {
    kind: u16,
    value: Vec<u8>,
}

impl Attribute {
    pub(super) fn new(kind: u16, value: impl Into<Vec<u8>>) -> Attribute {
        let value = value.into();
        Attribute { kind, value }
    }
}

/// What the kernel says, without its header.
pub(super) struct Answer(pub(super) Vec<u8>);

impl Netlink {
    pub(super) fn open() -> io::Result<Netlink> {
        let descriptor = socket(
            AddressFamily::Netlink,
            SockType::Raw,
            SockFlag::SOCK_CLOEXEC,
            SockProtocol::NetlinkRoute,
        )?;
        Ok(Netlink(descriptor))
    }

    /// Asks one question. The kernel's refusal is an error of its number.
    pub(super) fn ask(
        &self,
        kind: u16,
        fixed: &[u8],
        attributes: &[Attribute],
    ) -> io::Result<Answer> {
        let request = request(kind, fixed, attributes);
        send(self.0.as_raw_fd(), &request, MsgFlags::empty())?;
        let mut answer = vec![0; 8192];
        let length = recv(self.0.as_raw_fd(), &mut answer, MsgFlags::empty())?;
        answer.truncate(length);
        let too_short = || io::Error::other("an answer shorter than its header");
        let header: [u8; HEADER_LENGTH] = *answer.first_chunk().ok_or_else(too_short)?;
        let body = answer.split_off(HEADER_LENGTH);
        if u16::from_ne_bytes([header[4], header[5]]) == NLMSG_ERROR {
            let number = body.first_chunk().ok_or_else(too_short)?;
            return Err(io::Error::from_raw_os_error(-i32::from_ne_bytes(*number)));
        }
        Ok(Answer(body))
    }
}

fn request(kind: u16, fixed: &[u8], attributes: &[Attribute]) -> Vec<u8> {
    let mut request = vec![0; 4];
    request.extend(kind.to_ne_bytes());
    request.extend(NLM_F_REQUEST.to_ne_bytes());
    request.extend([0; 8]);
    request.extend(fixed);
    for attribute in attributes {
        request.extend((4 + attribute.value.len() as u16).to_ne_bytes());
        request.extend(attribute.kind.to_ne_bytes());
        request.extend(&attribute.value);
        request.resize(request.len().next_multiple_of(4), 0);
    }
    let length = request.len() as u32;
    request[..4].copy_from_slice(&length.to_ne_bytes());
    request
}

impl Answer {
    /// The fixed part, where it is there.
    pub(super) fn fixed<const N: usize>(&self) -> Option<&[u8; N]> {
        self.0.first_chunk()
    }

    /// The value of the first attribute of this type behind a fixed part of so many octets.
    pub(super) fn attribute(&self, fixed_length: usize, kind: u16) -> Option<&[u8]> {
        let mut rest = self.0.get(fixed_length..)?;
        while let Some(header) = rest.first_chunk::<4>() {
            let length = usize::from(u16::from_ne_bytes([header[0], header[1]]));
            if u16::from_ne_bytes([header[2], header[3]]) == kind {
                return rest.get(4..length);
            }
            rest = rest.get(length.next_multiple_of(4).max(4)..)?;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_found_behind_the_fixed_part() {
        let octets = request(
            7,
            &[9; 12],
            &[Attribute::new(1, [1, 2, 3]), Attribute::new(5, [4, 5])],
        );
        assert_eq!(octets.len(), 16 + 12 + 8 + 8);
        let answer = Answer(octets[HEADER_LENGTH..].to_vec());
        assert_eq!(answer.attribute(12, 1), Some(&[1, 2, 3][..]));
        assert_eq!(answer.attribute(12, 5), Some(&[4, 5][..]));
        assert_eq!(answer.attribute(12, 6), None);
        assert_eq!(Answer(vec![0; 14]).attribute(12, 6), None);
        assert_eq!(
            Answer(vec![0; 40]).attribute(12, 6),
            None,
            "lengths of zero"
        );
    }
}
