//! `millrace mirror`: what AF_XDP receives and sends on an interface, as a pcapng stream over the control socket.
//!
//! ```text
//!  worker ─ Tap ─▶ queue (bounded) ─▶ serve: pcapng ─▶ control socket ─▶ millrace mirror ─▶ file, tcpdump, Wireshark
//! ```

pub mod pcapng;

use super::protocol::{MirrorRequest, Reply, TRANSFER};
use super::socket::Commands;
use crate::clock::Now;
use crate::frontend::tap::filter::Filter;
use crate::frontend::tap::{Packet, Tap};
use crate::stop::Stop;
use pcapng::Writer;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::mpsc::Receiver;
use tokio::time::{MissedTickBehavior, interval, timeout};

/// The most packets a second that anybody may ask for: each is copied by a worker.
pub const RATE_MAX: u32 = 1_000_000;

/// Packets that are written at once.
const BATCH: usize = 64;

/// How often it is told how many packets are missing.
const TELL_LOST: Duration = Duration::from_secs(1);

/// Serves one mirror until its client goes or the stop is asked for.
pub(super) async fn serve(
    asked: MirrorRequest,
    (reader, mut writer): (OwnedReadHalf, OwnedWriteHalf),
    commands: &dyn Commands,
    stop: &mut Stop,
) {
    let opened = open(&asked, commands);
    let reply = match &opened {
        Ok(_) => Reply::of(format!("mirror of {}", asked.interface)),
        Err(reason) => Reply::Error(reason.clone()),
    };
    let replied = timeout(TRANSFER, writer.write_all(reply.line().as_bytes())).await;
    let Ok((mut packets, lost)) = opened else {
        return;
    };
    if matches!(replied, Ok(Ok(()))) {
        // Whoever asked has gone, or the instance ends: nothing is left to tell.
        let _ = stream(
            &asked.interface,
            &mut packets,
            &lost,
            (reader, writer),
            stop,
        )
        .await;
    }
    packets.close();
    commands.untap();
}

type Opened = (Receiver<Packet>, Arc<AtomicU64>);

fn open(asked: &MirrorRequest, commands: &dyn Commands) -> Result<Opened, String> {
    if !(1..=RATE_MAX).contains(&asked.rate) {
        let rate = asked.rate;
        return Err(format!(
            "rate: 1 to {RATE_MAX} packets a second expected, got {rate}"
        ));
    }
    let filter = Filter::read(&asked.filter).map_err(|error| error.to_string())?;
    let (tap, packets, lost) = Tap::new(filter, asked.rate);
    commands.tap(&asked.interface, tap)?;
    Ok((packets, lost))
}

async fn stream(
    interface: &str,
    packets: &mut Receiver<Packet>,
    lost: &AtomicU64,
    (mut reader, mut writer): (OwnedReadHalf, OwnedWriteHalf),
    stop: &mut Stop,
) -> io::Result<()> {
    let mut pcapng = Writer::new(interface, Now::read());
    writer.write_all(&pcapng.take()).await?;
    let (mut batch, mut ticks) = (Vec::new(), interval(TELL_LOST));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut told = 0;
    loop {
        let mut byte = [0];
        tokio::select! {
            count = packets.recv_many(&mut batch, BATCH) => {
                if count == 0 {
                    return Ok(());
                }
            }
            // A client has nothing to say: it goes.
            _ = reader.read(&mut byte) => return Ok(()),
            () = stop.requested() => return Ok(()),
            _ = ticks.tick() => {}
        }
        batch.drain(..).for_each(|packet| pcapng.packet(&packet));
        let missing = lost.load(Relaxed);
        if missing != told {
            pcapng.statistics(missing, Now::read());
            told = missing;
        }
        let bytes = pcapng.take();
        tokio::select! {
            written = writer.write_all(&bytes) => written?,
            // A client that does not read holds up no end.
            () = stop.requested() => return Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::fixture::Standing;
    use crate::frontend::tap::Mark;
    use crate::stop::Stopper;
    use tokio::net::UnixStream;

    fn asked(interface: &str, filter: &str, rate: u32) -> MirrorRequest {
        MirrorRequest {
            interface: interface.to_owned(),
            filter: vec![filter.to_owned()],
            rate,
        }
    }

    #[tokio::test]
    async fn packets_come_as_blocks_until_the_client_goes() {
        let (mut client, server) = UnixStream::pair().unwrap();
        let standing = Arc::new(Standing::with(crate::config::Config::default()));
        let (commands, stopper) = (Arc::clone(&standing), Stopper::default());
        let mut stop = stopper.watch();
        let serving = tokio::spawn(async move {
            let connection = server.into_split();
            serve(asked("veth0", "", 10), connection, &*commands, &mut stop).await;
        });
        let mut bytes = Vec::new();
        let begun = |bytes: &[u8]| {
            bytes
                .windows(5)
                .any(|part| part == b"veth0" && bytes.len() > 90)
        };
        while !begun(&bytes) {
            assert!(client.read_buf(&mut bytes).await.unwrap() > 0);
        }
        let tap = standing.taps.lock().unwrap()[0].clone();
        (0..12).for_each(|_| tap.copy(&[7; 60], 2, Mark::Sent, Now::read()));
        let text = |bytes: &[u8]| {
            String::from_utf8_lossy(bytes)
                .matches("xsk queue 2, sent")
                .count()
        };
        // Two exceed the rate; a block of statistics says so.
        let mut dropped = vec![5, 0, 8, 0];
        dropped.extend(2_u64.to_le_bytes());
        while text(&bytes) < 10 || !bytes.windows(12).any(|part| part == dropped) {
            assert!(client.read_buf(&mut bytes).await.unwrap() > 0);
        }
        drop(client);
        serving.await.unwrap();
        assert!(tap.is_closed() && standing.taps.lock().unwrap().is_empty());
    }

    /// Longer than anything here takes on a busy machine.
    const PATIENCE: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn a_client_that_does_not_read_holds_up_no_stop() {
        let (client, server) = UnixStream::pair().unwrap();
        let standing = Arc::new(Standing::with(crate::config::Config::default()));
        let (commands, stopper) = (Arc::clone(&standing), Stopper::default());
        let mut stop = stopper.watch();
        let serving = tokio::spawn(async move {
            let connection = server.into_split();
            serve(
                asked("veth0", "", RATE_MAX),
                connection,
                &*commands,
                &mut stop,
            )
            .await;
        });
        client.readable().await.unwrap();
        let tap = standing.taps.lock().unwrap()[0].clone();
        // 6 MB: more than the socket takes.
        (0..4_000).for_each(|_| tap.copy(&[7; 1_500], 0, Mark::Sent, Now::read()));
        for _ in 0..1_000 {
            tokio::task::yield_now().await;
        }
        stopper.stop();
        timeout(PATIENCE, serving).await.unwrap().unwrap();
        assert!(tap.is_closed());
        drop(client);
    }

    #[tokio::test]
    async fn what_cannot_be_mirrored_is_told_why() {
        for (asked, part) in [
            (asked("veth9", "", 10), "AF_XDP is not in use on veth9"),
            (asked("veth0", "and", 10), "'and' is no word of a filter"),
            (asked("veth0", "", 0), "rate: 1 to "),
        ] {
            let (mut client, server) = UnixStream::pair().unwrap();
            let standing = Standing::with(crate::config::Config::default());
            let mut stop = Stopper::default().watch();
            serve(asked, server.into_split(), &standing, &mut stop).await;
            let mut reply = String::new();
            client.read_to_string(&mut reply).await.unwrap();
            assert!(
                reply.starts_with("{\"error\":") && reply.contains(part),
                "{reply}"
            );
        }
    }
}
