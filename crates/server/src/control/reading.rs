//! `millrace zone read`: records that are served, as lines behind the reply; an empty line says that these are all.

use super::protocol::{ReadRequest, Reply, TRANSFER};
use crate::local::Local;
use tokio::io::AsyncWriteExt;
use tokio::net::unix::OwnedWriteHalf;
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

/// Pieces of text that are made ahead of the client.
const AHEAD: usize = 2;

/// Serves one reading until its client has all of it, or takes no more.
pub(super) async fn serve(asked: &ReadRequest, mut writer: OwnedWriteHalf, local: &Local) {
    let (name, rtype) = (asked.name.as_deref(), asked.rtype.as_deref());
    let reading = local.reading(&asked.zone, name, rtype);
    let reply = match &reading {
        Ok(reading) => Reply::of(reading.serial()),
        Err(reason) => Reply::Error(reason.clone()),
    };
    let is_taken = send(&mut writer, &reply.line()).await;
    let Some(reading) = reading.ok().filter(|_| is_taken) else {
        return;
    };
    let (sender, mut texts) = mpsc::channel(AHEAD);
    let writing = spawn_blocking(move || {
        reading.lines(|text| sender.blocking_send(text).is_ok());
    });
    while let Some(text) = texts.recv().await {
        if !send(&mut writer, &text).await {
            return;
        }
    }
    if writing.await.is_ok() {
        // Whoever does not take the end has gone.
        send(&mut writer, "\n").await;
    }
}

/// False: the client has gone, or takes nothing.
async fn send(writer: &mut OwnedWriteHalf, text: &str) -> bool {
    let sent = timeout(TRANSFER, writer.write_all(text.as_bytes())).await;
    matches!(sent, Ok(Ok(())))
}
