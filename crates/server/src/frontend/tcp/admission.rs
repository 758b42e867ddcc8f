//! How many TCP clients there are at a time, in all and per address (I6).

use crate::config::TcpTuning;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The connections of all listeners. One lock per connection made and ended, none per query.
#[derive(Debug, Default)]
pub struct Admission(Mutex<Present>);

#[derive(Debug, Default)]
struct Present {
    connections: usize,
    /// Only clients that have connections; hashed with keys of this process.
    clients: HashMap<IpAddr, usize>,
}

/// The place of one connection, free again when dropped.
#[derive(Debug)]
pub struct Place {
    admission: Arc<Admission>,
    client: IpAddr,
}

impl Admission {
    /// A place for one more connection of `client`; `None` when there are as many as may be (0 is no limit).
    pub fn admit(admission: &Arc<Admission>, client: IpAddr, tuning: &TcpTuning) -> Option<Place> {
        let mut present = admission.lock();
        let allows = |limit: usize, now: usize| limit == 0 || now < limit;
        let of_client = present.clients.get(&client).copied().unwrap_or(0);
        if !allows(tuning.maximum_connections, present.connections)
            || !allows(tuning.maximum_connections_per_client, of_client)
        {
            return None;
        }
        present.connections += 1;
        present.clients.insert(client, of_client + 1);
        Some(Place {
            admission: Arc::clone(admission),
            client,
        })
    }

    fn lock(&self) -> MutexGuard<'_, Present> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut present = self.admission.lock();
        present.connections -= 1;
        let left = present
            .clients
            .get(&self.client)
            .map_or(0, |count| count - 1);
        if left == 0 {
            present.clients.remove(&self.client);
        } else {
            present.clients.insert(self.client, left);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Tuning;

    #[test]
    fn places_are_limited_in_all_and_per_client_and_come_back() {
        let tuning = TcpTuning {
            maximum_connections: 3,
            maximum_connections_per_client: 2,
            ..Tuning::default().tcp
        };
        let admission = Arc::new(Admission::default());
        let [one, other, third] =
            ["192.0.2.1", "192.0.2.2", "2001:db8::1"].map(|text| text.parse().unwrap());
        let admit = |client| Admission::admit(&admission, client, &tuning);
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
}
