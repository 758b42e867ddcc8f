//! How many TCP clients there are at a time, in all and per client, and how often one may come (I6).

use crate::clock::Now;
use crate::config::TcpTuning;
use crate::pipeline::rules::limiter::{Bucket, Rate};
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The connections of all listeners. One lock per connection made and ended, none per query.
#[derive(Debug, Default)]
pub struct Admission(Mutex<Present>);

#[derive(Debug, Default)]
struct Present {
    connections: usize,
    /// Clients that have connections, and with a limit of the rate those that had; hashed with keys of this process.
    clients: HashMap<Key, Client>,
}

/// One client: an address, or all those that the masks make one, and the bits of its port that count.
type Key = (IpAddr, u16);

/// What is known of one.
#[derive(Debug, Default)]
struct Client {
    connections: usize,
    /// New connections that it may open yet.
    allowance: Bucket,
    banned_until: Now,
    /// When it came last.
    last: Now,
}

/// Clients without connections that are remembered for their rate at most: a few MB. Beyond, those that came longest ago are
/// forgotten.
const REMEMBERED_MAX: usize = 65_536;

/// The place of one connection, free again when dropped.
#[derive(Debug)]
pub struct Place {
    admission: Arc<Admission>,
    client: Key,
    is_crowded: bool,
    is_remembered: bool,
}

impl Admission {
    /// A place for one more connection of the client that it comes from; `None` when there are as many as may be, it comes too
    /// often (limits of 0 are none), or there is no memory to know it.
    pub fn admit(
        admission: &Arc<Admission>,
        client: SocketAddr,
        tuning: &TcpTuning,
        now: Now,
    ) -> Option<Place> {
        let client = masked(client, tuning);
        let is_remembered =
            tuning.maximum_connection_rate_per_client > 0 || tuning.maximum_reads_per_query > 0;
        let mut present = admission.lock();
        let connections = present.connections;
        if is_remembered {
            present.forget(tuning, now);
        }
        present.clients.try_reserve(1).ok()?;
        let known = present.clients.entry(client).or_default();
        let is_within = |limit: usize, now: usize| limit == 0 || now < limit;
        let admitted = is_within(tuning.maximum_connections, connections)
            && is_within(tuning.maximum_connections_per_client, known.connections)
            && known.may_come(tuning, now);
        if !admitted {
            if known.connections == 0 && !is_remembered {
                present.clients.remove(&client);
            }
            return None;
        }
        known.connections += 1;
        let is_crowded = tuning.is_overload(connections + 1, tuning.maximum_connections)
            || tuning.is_overload(known.connections, tuning.maximum_connections_per_client);
        present.connections += 1;
        Some(Place {
            admission: Arc::clone(admission),
            client,
            is_crowded,
            is_remembered,
        })
    }

    fn lock(&self) -> MutexGuard<'_, Present> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Present {
    /// Makes room where too many clients are remembered.
    fn forget(&mut self, tuning: &TcpTuning, now: Now) {
        if self.clients.len() < REMEMBERED_MAX {
            return;
        }
        let mut longest = tuning.connection_rate_interval;
        // Half the time makes room at the latest when nothing is left of it: then everybody is new again.
        while self.clients.len() >= REMEMBERED_MAX && !longest.is_zero() {
            self.clients
                .retain(|_, client| client.connections > 0 || now.since(client.last) < longest);
            longest /= 8;
            if longest < Duration::from_millis(1) {
                longest = Duration::ZERO;
                self.clients.retain(|_, client| client.connections > 0);
            }
        }
    }
}

impl Client {
    /// setMaxTCPConnectionRatePerClient: whoever comes more often is not heard for a while; nor who was banned for other reasons.
    fn may_come(&mut self, tuning: &TcpTuning, now: Now) -> bool {
        self.last = now;
        if now < self.banned_until {
            return false;
        }
        let rate = tuning.maximum_connection_rate_per_client;
        if rate == 0 {
            return true;
        }
        let seconds = u32::try_from(tuning.connection_rate_interval.as_secs()).unwrap_or(u32::MAX);
        let burst = rate.saturating_mul(seconds.max(1));
        if self.allowance.take(Rate::new(rate, burst), now) {
            return true;
        }
        self.banned_until = Now(now.0 + tuning.rate_ban.as_nanos() as u64);
        false
    }
}

/// setTCPConnectionsMaskV4, setTCPConnectionsMaskV4Port, setTCPConnectionsMaskV6.
fn masked(client: SocketAddr, tuning: &TcpTuning) -> Key {
    match client.ip() {
        IpAddr::V4(address) => {
            let shift = 32 - u32::from(tuning.client_bits_v4.min(32));
            let mask = u32::MAX.checked_shl(shift).unwrap_or(0);
            let shift = 16 - u32::from(tuning.client_bits_port_v4.min(16));
            let of_port = u16::MAX.checked_shl(shift).unwrap_or(0);
            let address = Ipv4Addr::from(address.to_bits() & mask);
            (address.into(), client.port() & of_port)
        }
        IpAddr::V6(address) => {
            let shift = 128 - u32::from(tuning.client_bits_v6.min(128));
            let mask = u128::MAX.checked_shl(shift).unwrap_or(0);
            (Ipv6Addr::from(address.to_bits() & mask).into(), 0)
        }
    }
}

impl Place {
    /// setTCPConnectionsOverloadThreshold: the limits are near, and the connection is to be short.
    pub fn is_crowded(&self) -> bool {
        self.is_crowded
    }

    /// setBanDurationForExceedingMaxReadIOsPerQuery: the client may not come before then.
    pub fn ban(&self, until: Now) {
        let mut present = self.admission.lock();
        if let Some(client) = present.clients.get_mut(&self.client) {
            client.banned_until = client.banned_until.max(until);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut present = self.admission.lock();
        present.connections -= 1;
        let Some(client) = present.clients.get_mut(&self.client) else {
            return;
        };
        client.connections = client.connections.saturating_sub(1);
        if client.connections == 0 && !self.is_remembered {
            present.clients.remove(&self.client);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Tuning;

    fn tuning() -> TcpTuning {
        TcpTuning {
            maximum_connections: 3,
            maximum_connections_per_client: 2,
            overload_threshold: 0,
            ..Tuning::default().tcp
        }
    }

    /// A client at this address, or at this address and port.
    fn client(text: &str) -> SocketAddr {
        let at_no_port = || SocketAddr::new(text.parse().unwrap(), 0);
        text.parse().unwrap_or_else(|_| at_no_port())
    }

    #[test]
    fn places_are_limited_in_all_and_per_client_and_come_back() {
        let tuning = tuning();
        let admission = Arc::new(Admission::default());
        let [one, other, third] = ["192.0.2.1", "192.0.2.2", "2001:db8::1"].map(client);
        let admit = |from| Admission::admit(&admission, from, &tuning, Now(0));
        let first = admit(one).expect("one of three");
        let _second = admit(one).expect("two of three");
        assert!(admit(one).is_none(), "two per client");
        let _third = admit(other).expect("three of three");
        assert!(admit(third).is_none(), "three in all");
        drop(first);
        assert!(admit(one).is_some());
        assert!(admit(third).is_some());
        assert_eq!(
            admission.lock().clients.len(),
            2,
            "who is gone is forgotten"
        );
    }

    #[test]
    fn masks_make_one_client_of_many_addresses() {
        let tuning = TcpTuning {
            client_bits_v4: 24,
            client_bits_v6: 56,
            maximum_connections_per_client: 1,
            ..tuning()
        };
        let admission = Arc::new(Admission::default());
        let admit = |text| Admission::admit(&admission, client(text), &tuning, Now(0));
        let _first = admit("192.0.2.1").unwrap();
        assert!(admit("192.0.2.200").is_none());
        let _second = admit("2001:db8::1").unwrap();
        assert!(admit("2001:db8:0:ff::").is_none());
        assert!(admit("2001:db8:0:100::").is_some());
        let all = TcpTuning {
            client_bits_v4: 0,
            ..tuning.clone()
        };
        assert_eq!(
            masked(client("192.0.2.1"), &all),
            masked(client("0.0.0.0"), &all)
        );
    }

    /// Behind a carrier's NAT, customers share an address and have ranges of its ports.
    #[test]
    fn bits_of_the_port_tell_clients_of_one_ipv4_address_apart() {
        let tuning = TcpTuning {
            client_bits_port_v4: 2,
            maximum_connections_per_client: 1,
            maximum_connections: 0,
            ..tuning()
        };
        let admission = Arc::new(Admission::default());
        let admit = |text| Admission::admit(&admission, client(text), &tuning, Now(0));
        let _first = admit("192.0.2.1:16383").unwrap();
        assert!(admit("192.0.2.1:1024").is_none(), "the same quarter");
        let _second = admit("192.0.2.1:16384").expect("the next quarter");
        let _third = admit("[2001:db8::1]:16383").unwrap();
        assert!(admit("[2001:db8::1]:16384").is_none(), "IPv6 has no NAT");
        let all = TcpTuning {
            client_bits_port_v4: 16,
            ..tuning.clone()
        };
        let port = |text| masked(client(text), &all).1;
        assert_eq!(port("192.0.2.1:16383"), 16_383);
    }

    #[test]
    fn who_is_banned_may_come_later() {
        let tuning = TcpTuning {
            maximum_reads_per_query: 2,
            ..tuning()
        };
        let admission = Arc::new(Admission::default());
        let admit = |text, now| Admission::admit(&admission, client(text), &tuning, Now(now));
        let place = admit("192.0.2.1", 1).unwrap();
        place.ban(Now(60));
        drop(place);
        assert!(admit("192.0.2.1", 59).is_none());
        assert!(admit("192.0.2.2", 59).is_some());
        assert!(admit("192.0.2.1", 60).is_some());
    }

    #[test]
    fn who_comes_too_often_is_not_heard_for_a_while() {
        const SECOND: u64 = 1_000_000_000;
        let tuning = TcpTuning {
            maximum_connection_rate_per_client: 2,
            connection_rate_interval: Duration::from_secs(5),
            ..tuning()
        };
        let admission = Arc::new(Admission::default());
        let admit = |now| Admission::admit(&admission, client("192.0.2.1"), &tuning, Now(now));
        for _ in 0..10 {
            assert!(admit(SECOND).is_some());
        }
        assert!(admit(SECOND).is_none());
        assert!(admit(10 * SECOND).is_none(), "banned for 10 s");
        assert!(admit(12 * SECOND).is_some());
    }

    #[test]
    fn clients_that_are_remembered_are_bounded() {
        let tuning = TcpTuning {
            maximum_connection_rate_per_client: 1,
            maximum_connections: 0,
            ..tuning()
        };
        let admission = Arc::new(Admission::default());
        for number in 0..2 * REMEMBERED_MAX as u32 {
            let client = SocketAddr::new(Ipv4Addr::from(number).into(), 0);
            let now = Now(u64::from(number) * 1_000);
            assert!(Admission::admit(&admission, client, &tuning, now).is_some());
        }
        assert!(admission.lock().clients.len() <= REMEMBERED_MAX);
    }

    #[test]
    fn near_the_limits_connections_are_to_be_short() {
        let tuning = TcpTuning {
            maximum_connections: 10,
            maximum_connections_per_client: 0,
            overload_threshold: 90,
            ..tuning()
        };
        let admission = Arc::new(Admission::default());
        let places: Vec<bool> = (0..10)
            .map(|_| {
                let place = Admission::admit(&admission, client("::1"), &tuning, Now(0)).unwrap();
                let is_crowded = place.is_crowded();
                std::mem::forget(place);
                is_crowded
            })
            .collect();
        assert_eq!(places.iter().filter(|crowded| **crowded).count(), 2);
    }

    #[test]
    fn a_short_connection_has_one_query_half_a_second_for_it_and_five_in_all() {
        let left = |receive: u64, duration: u64| {
            let mut tuning = TcpTuning {
                receive_timeout: Duration::from_millis(receive),
                maximum_connection_duration: Duration::from_millis(duration),
                ..tuning()
            };
            tuning.hurry();
            assert_eq!(tuning.maximum_queries_per_connection, 1);
            let times = [tuning.receive_timeout, tuning.maximum_connection_duration];
            times.map(|time| time.as_millis())
        };
        assert_eq!(left(2_000, 0), [500, 5_000]);
        assert_eq!(left(100, 60_000), [100, 5_000]);
        assert_eq!(left(2_000, 1_000), [500, 1_000]);
    }
}
