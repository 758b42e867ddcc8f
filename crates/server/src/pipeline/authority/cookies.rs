//! Server cookies (RFC 7873, 9018): a client that shows one gets what is sent to its address, and no forger knows it.
//!
//! Two kinds of secrets. Those of the configuration are for servers that share an address (anycast): the first one makes
//! cookies, all are believed, so that an operator changes them in three steps (RFC 9018 §5): the new one second everywhere,
//! then first, then alone. Without any there is one that never leaves this process, and each day's cookies have a secret
//! made of it, found again by the time in the cookie: nothing is changed by anybody, and nobody waits for it.

use crate::clock::Now;
use crate::counters::Sharded;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use wire::cookie::{Age, Cookie, SERVER_COOKIE_LENGTH, Secret, siphash};

/// Secrets, and what time it is.
pub struct Cookies {
    secrets: Secrets,
    /// Seconds from 1970 to [`Now`]'s zero.
    zero: AtomicU64,
    /// Queries with a COOKIE option.
    pub seen: Sharded,
}

#[derive(Clone, PartialEq, Eq)]
pub enum Secrets {
    /// The first one makes cookies.
    Shared(Vec<Secret>),
    /// From which each day's are made.
    Own(Secret),
}

/// How long cookies are made with one secret of our own, in seconds.
const DAY: u32 = 86_400;

impl Cookies {
    /// `unix`: seconds since 1970 at `now`.
    pub fn new(secrets: Secrets, unix: u64, now: Now) -> Cookies {
        let cookies = Cookies {
            secrets,
            zero: AtomicU64::new(0),
            seen: Sharded::default(),
        };
        cookies.set_clock(unix, now);
        cookies
    }

    pub fn secrets(&self) -> &Secrets {
        &self.secrets
    }

    /// The clock of the system may be set while we run: to be told once in a while.
    pub fn set_clock(&self, unix: u64, now: Now) {
        self.zero.store(unix.wrapping_sub(now.seconds()), Relaxed);
    }

    /// The server cookie for a client at `address` that sent `cookie`, and whether it sent a good one.
    pub fn answer(
        &self,
        cookie: &Cookie,
        address: IpAddr,
        now: Now,
    ) -> ([u8; SERVER_COOKIE_LENGTH], bool) {
        // RFC 9018 §4.3: 32 bits of seconds, compared as serial numbers.
        let time = self.zero.load(Relaxed).wrapping_add(now.seconds()) as u32;
        let age = match &self.secrets {
            Secrets::Shared(secrets) => secrets
                .iter()
                .find_map(|secret| cookie.check(secret, address, time)),
            Secrets::Own(secret) => cookie
                .made_at()
                .and_then(|made_at| cookie.check(&of_day(secret, made_at), address, time)),
        };
        match (age, cookie.server) {
            (Some(Age::Fresh), Some(server)) => (server, true),
            _ => (
                cookie.make(&self.making(time), address, time),
                age.is_some(),
            ),
        }
    }

    fn making(&self, time: u32) -> Secret {
        match &self.secrets {
            Secrets::Shared(secrets) => secrets[0],
            Secrets::Own(secret) => of_day(secret, time),
        }
    }
}

/// The secret for cookies made at `time`: two hashes of the day's number.
fn of_day(secret: &Secret, time: u32) -> Secret {
    let day = u64::from(time / DAY);
    let half = |which: u64| siphash(secret, &(day << 1 | which).to_le_bytes()).to_le_bytes();
    let mut made = [0; 16];
    made[..8].copy_from_slice(&half(0));
    made[8..].copy_from_slice(&half(1));
    Secret(made)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLIENT: Cookie = Cookie {
        client: *b"01234567",
        server: None,
    };

    fn address() -> IpAddr {
        "192.0.2.1".parse().unwrap()
    }

    fn now(seconds: u64) -> Now {
        Now(seconds * 1_000_000_000)
    }

    fn with(server: [u8; SERVER_COOKIE_LENGTH]) -> Cookie {
        Cookie {
            server: Some(server),
            ..CLIENT
        }
    }

    #[test]
    fn a_cookie_outlives_the_day_it_was_made_on_and_not_its_hour() {
        let start = 86_400 * 20_000 - 60;
        let cookies = Cookies::new(Secrets::Own(Secret([7; 16])), start, now(0));
        let (first, is_known) = cookies.answer(&CLIENT, address(), now(0));
        assert!(!is_known);
        let again = |seconds| cookies.answer(&with(first), address(), now(seconds));
        assert_eq!(again(120), (first, true), "the next day");
        let (second, is_known) = again(3_000);
        assert!(is_known && second != first, "it is old");
        assert!(!again(3_601).1);
        assert!(cookies.answer(&with(second), address(), now(3_601)).1);
    }

    #[test]
    fn no_two_days_have_one_secret() {
        let own = Secret([7; 16]);
        assert!(of_day(&own, 0) != of_day(&own, DAY));
        assert!(of_day(&own, DAY) == of_day(&own, 2 * DAY - 1));
    }

    #[test]
    fn shared_secrets_change_in_three_steps() {
        let (old, new) = (Secret([1; 16]), Secret([2; 16]));
        let step =
            |secrets: &[Secret]| Cookies::new(Secrets::Shared(secrets.to_vec()), 1_000, now(0));
        let steps = [
            step(&[old]),
            step(&[old, new]),
            step(&[new, old]),
            step(&[new]),
        ];
        for neighbours in steps.windows(2) {
            for (one, other) in [(0, 1), (1, 0)] {
                let (cookie, _) = neighbours[one].answer(&CLIENT, address(), now(5));
                assert!(neighbours[other].answer(&with(cookie), address(), now(6)).1);
            }
        }
        let (cookie, _) = steps[0].answer(&CLIENT, address(), now(5));
        assert!(!steps[3].answer(&with(cookie), address(), now(6)).1);
    }

    #[test]
    fn a_clock_that_is_set_is_followed() {
        let cookies = Cookies::new(Secrets::Own(Secret([7; 16])), 1_000_000, now(50));
        let (cookie, _) = cookies.answer(&CLIENT, address(), now(60));
        assert_eq!(with(cookie).made_at(), Some(1_000_010));
        cookies.set_clock(2_000_000, now(60));
        assert!(!cookies.answer(&with(cookie), address(), now(60)).1);
    }
}
