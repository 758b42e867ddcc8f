//! NOTIFY to secondaries (RFC 1996 §3): each is told until it answers, or until there is something newer to tell.

use super::ask::{self, AfterError, Tries};
use super::places::Doors;
use super::settings::Peer;
use crate::log;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};
use wire::codes::rcode;
use wire::message::Header;
use zone::transfer::query;
use zone::zone::Zone;

/// RFC 1996 §3.6: a NOTIFY is sent again "until either too many copies have been sent (a 'timeout'), an ICMP message
/// indicating that the port is unreachable, or until a NOTIFY response is received". The RFC's 60 s and five times are
/// for the last ones; the first come sooner. A port that is unreachable is that of a secondary which starts anew: it is told no
/// sooner, and no less often.
const TRIES: Tries = Tries {
    waits: &[
        Duration::from_secs(2),
        Duration::from_secs(4),
        Duration::from_secs(8),
        Duration::from_secs(15),
        Duration::from_secs(30),
        Duration::from_secs(60),
        Duration::from_secs(60),
    ],
    after_error: AfterError::InTime,
};

/// How long it is waited for that a version serves. When the thread that swaps configurations takes longer, secondaries are
/// told all the same: whoever asks too early asks again by the zone's times.
const SERVES_WITHIN: Duration = Duration::from_secs(if cfg!(test) { 60 } else { 5 });

/// A version of a zone that will soon serve, or does.
#[derive(Clone)]
pub(super) struct Version {
    /// How many wants of one that serves are met.
    met: watch::Receiver<u64>,
    /// The one that this version was wanted by.
    wanted: u64,
    /// Before that nobody is told.
    from: Instant,
}

impl Version {
    pub(super) fn new(met: watch::Receiver<u64>, wanted: u64, from: Instant) -> Version {
        Version { met, wanted, from }
    }

    /// Waits until it serves and may be told of. RFC 1996 §3.11: a secondary that is told "should behave as though the zone given
    /// in the QNAME had reached its REFRESH interval", so it asks for the SOA record at once.
    async fn serves(mut self) {
        let wanted = self.wanted;
        let met = self.met.wait_for(|met| *met >= wanted);
        // Too long, or nobody is there who could say so: see SERVES_WITHIN.
        let _ = timeout(SERVES_WITHIN, met).await;
        sleep_until(self.from).await;
    }
}

/// When secondaries are told of a version that comes `now`, where they were to be told of the one before it at `before`. A delay
/// that is under way is not begun anew: of a zone that changes more often than that nobody would ever be told.
pub(super) fn from(before: Instant, now: Instant, delay: Duration) -> Instant {
    match before > now {
        true => before.min(now + delay),
        false => now + delay,
    }
}

/// Tells all `peers` about this version, each behind its door; whoever is still being told about an older one is told of it no
/// more.
pub(super) fn all(
    telling: &mut JoinSet<()>,
    peers: &[Peer],
    (zone, version): (&Arc<Zone>, &Version),
    doors: &Arc<Doors>,
) {
    telling.abort_all();
    while telling.try_join_next().is_some() {}
    for peer in peers {
        let of = (Arc::clone(zone), version.clone());
        telling.spawn(one(peer.clone(), of, Arc::clone(doors)));
    }
}

async fn one(peer: Peer, (zone, version): (Arc<Zone>, Version), doors: Arc<Doors>) {
    let apex = zone.apex();
    let serial = zone.soa().serial;
    let soa = zone.soa_record();
    drop(zone);
    version.serves().await;
    let _entered = doors.enter(peer.address).await;
    let request = query::notify(ask::random_id(), apex.as_name(), Some(soa.as_ref()));
    match ask::exchange(&peer, request, TRIES).await {
        Ok(answer) => {
            let code = Header::read(&answer).map_or(0, |header| header.rcode());
            if code == 0 {
                log::verbose!("zone {apex}: {} knows of serial {serial}", peer.address);
            } else {
                let code = rcode::name(code.into()).unwrap_or("an unknown code");
                log::warn!(
                    "zone {apex}: {} answers {code} to NOTIFY of serial {serial}: it must allow this server to notify it",
                    peer.address
                );
            }
        }
        Err(error) => log::warn!(
            "zone {apex}: {} was not told of serial {serial}, and is given up: {error}",
            peer.address
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::zone;
    use super::*;
    use tokio::net::UdpSocket;

    /// A secondary that is down costs no more sockets, however many zones it has.
    #[tokio::test]
    async fn so_many_are_told_at_a_time() {
        let silent = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let address = silent.local_addr().unwrap();
        let peer = Peer::new(address);
        let (_sender, met) = watch::channel(1);
        let (zone, version) = (Arc::new(zone(5, "")), Version::new(met, 1, Instant::now()));
        let doors = Arc::new(Doors::of(2));
        let mut telling = JoinSet::new();
        let peers = vec![peer; 3];
        all(&mut telling, &peers, (&zone, &version), &doors);
        let mut buffer = [0; 512];
        let (_, first) = silent.recv_from(&mut buffer).await.unwrap();
        // The first may be sent again before the second comes.
        while silent.recv_from(&mut buffer).await.unwrap().1 == first {}
        let no_time = Duration::ZERO;
        assert!(timeout(no_time, doors.enter(address)).await.is_err());
        telling.shutdown().await;
        assert!(timeout(no_time, doors.enter(address)).await.is_ok());
    }

    /// Its port is unreachable until it listens there again.
    #[tokio::test(start_paused = true)]
    async fn a_secondary_that_is_down_for_three_minutes_is_still_told() {
        let down = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let peer = Peer::new(down.local_addr().unwrap());
        drop(down);
        let (_sender, met) = watch::channel(1);
        let (zone, version) = (Arc::new(zone(5, "")), Version::new(met, 1, Instant::now()));
        let mut telling = JoinSet::new();
        let doors = Arc::new(Doors::of(2));
        let began = Instant::now();
        all(&mut telling, &[peer], (&zone, &version), &doors);
        telling.join_next().await;
        let took = began.elapsed().as_secs();
        assert!((179..=180).contains(&took), "{took} s");
    }

    #[tokio::test]
    async fn nobody_is_told_before_the_delay_is_over() {
        let told = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let peer = Peer::new(told.local_addr().unwrap());
        let (_sender, met) = watch::channel(1);
        let from = Instant::now() + Duration::from_millis(300);
        let (zone, version) = (Arc::new(zone(5, "")), Version::new(met, 1, from));
        let mut telling = JoinSet::new();
        let doors = Arc::new(Doors::of(2));
        all(&mut telling, &[peer], (&zone, &version), &doors);
        told.recv_from(&mut [0; 512]).await.unwrap();
        assert!(Instant::now() >= from);
        telling.shutdown().await;
    }

    #[test]
    fn a_zone_that_changes_all_the_time_is_told_of_all_the_same() {
        let now = Instant::now();
        let seconds = Duration::from_secs;
        let delay = seconds(10);
        let first = from(now, now, delay);
        assert_eq!(first, now + delay);
        assert_eq!(from(first, now + seconds(9), delay), first);
        let next = now + seconds(11);
        assert_eq!(from(first, next, delay), next + delay);
        // `millrace zone notify`, and a reload that shortens the delay.
        let soon = now + seconds(5);
        assert_eq!(from(first, soon, Duration::ZERO), soon);
        assert_eq!(from(first, soon, seconds(2)), soon + seconds(2));
    }
}
