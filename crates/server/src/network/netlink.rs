//! One netlink connection: requests and their answers.

use futures_util::StreamExt;
use rtnetlink::packet_core::{NLM_F_DUMP, NLM_F_REQUEST, NetlinkMessage, NetlinkPayload};
use rtnetlink::packet_route::RouteNetlinkMessage;
use std::io;

/// Asks the kernel for everything of a kind (`flags` = [`DUMP`]) or for one thing; all messages of its answer.
pub(super) async fn ask(
    handle: &mut rtnetlink::Handle,
    question: RouteNetlinkMessage,
    flags: u16,
) -> io::Result<Vec<RouteNetlinkMessage>> {
    let mut message = NetlinkMessage::from(question);
    message.header.flags = NLM_F_REQUEST | flags;
    let mut answers = handle
        .request(message)
        .map_err(|error| io::Error::other(error.to_string()))?;
    let mut messages = Vec::new();
    while let Some(answer) = answers.next().await {
        match answer.payload {
            NetlinkPayload::InnerMessage(message) => messages.push(message),
            NetlinkPayload::Error(error) => return Err(error.to_io()),
            NetlinkPayload::Overrun(_) => {
                return Err(io::Error::other(
                    "netlink: the answer did not fit the socket's buffer",
                ));
            }
            _ => {}
        }
    }
    Ok(messages)
}

/// Asks for all objects of a kind.
pub(super) const DUMP: u16 = NLM_F_DUMP;

/// Asks for one object.
pub(super) const ONE: u16 = 0;
