//! What `millrace zone status` tells of a zone, over the control socket.

use super::live::{Live, State};
use super::order::Letter;
use super::settings::ZoneSettings;
use super::{Local, Order};
use crate::clock;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;
use wire::name::NameBuf;

/// One zone, now.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ZoneStatus {
    pub name: String,
    pub secondary: bool,
    /// `None`: not loaded, or expired: SERVFAIL.
    pub serial: Option<u32>,
    pub records: u64,
    pub expired: bool,
    /// Seconds until a primary is asked, and until the zone expires.
    pub refresh_in: Option<u64>,
    pub expires_in: Option<u64>,
    /// What is done now, octets of it, and of how many; 0 where nobody knows.
    pub work: Option<String>,
    pub done: u64,
    pub total: u64,
    /// What the last work came to, and whether that was a failure.
    pub said: String,
    pub failed: bool,
    /// The same of operators' last orders, the oldest first.
    #[serde(default)]
    pub outcomes: Vec<Outcome>,
    /// Nothing changes it but its expiry, and whether something would have.
    #[serde(default)]
    pub frozen: bool,
    #[serde(default)]
    pub held_back: bool,
    /// Its transfers out are refused.
    #[serde(default)]
    pub withheld: bool,
}

/// What an operator's order came to.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    pub ticket: u64,
    pub said: String,
    pub failed: bool,
}

/// A zone for which something was begun: it is done when there is the outcome with this ticket.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Begun {
    pub name: String,
    pub ticket: u64,
}

impl ZoneStatus {
    /// What came of the order with this ticket, if it has ended. Of one that others have pushed out of the list, what the last
    /// work came to.
    pub fn outcome(&self, ticket: u64) -> Option<Outcome> {
        let last = || Outcome {
            ticket,
            said: self.said.clone(),
            failed: self.failed,
        };
        let is_it = |outcome: &&Outcome| outcome.ticket == ticket;
        let found = self.outcomes.iter().find(is_it).cloned();
        let is_older = self
            .outcomes
            .first()
            .is_some_and(|first| first.ticket > ticket);
        found.or_else(|| is_older.then(last))
    }

    pub fn of(live: &Live, settings: &ZoneSettings) -> ZoneStatus {
        let State {
            timers,
            is_expired,
            is_awaited,
            work,
            said,
            failed,
            tickets: _,
            outcomes,
            is_frozen,
            is_held_back,
            is_withheld,
        } = live.state();
        let served = live.served();
        let soa = served.as_ref().map(|zone| zone.soa());
        // One that has expired is asked for by its own times, too.
        let held = live.held().map(|zone| zone.soa());
        let (done, total) = live.progress.read();
        let now = clock::unix();
        let until = |moment: u64| moment.saturating_sub(now);
        let times = &settings.times;
        let (asks, apex) = (timers.filter(|_| !is_frozen), live.apex.as_name());
        let turn = asks.map(|timers| timers.turn(apex, held, times));
        ZoneStatus {
            name: live.apex.to_string(),
            secondary: settings.is_secondary(),
            serial: soa.map(|soa| soa.serial),
            records: served.as_ref().map_or(0, |zone| zone.records_count()),
            expired: is_expired,
            refresh_in: turn.map(until),
            expires_in: timers
                .zip(soa)
                .map(|(timers, soa)| until(timers.expires(soa, times))),
            work: work
                .or(is_awaited.then_some("waiting to be loaded"))
                .map(str::to_owned),
            done,
            total,
            said,
            failed,
            outcomes: outcomes.into(),
            frozen: is_frozen,
            held_back: is_held_back,
            withheld: is_withheld,
        }
    }
}

impl Local {
    /// How these zones are, or all.
    ///
    /// # Errors
    /// A name that is none, or not served.
    pub fn status(&self, names: &[String]) -> Result<Vec<ZoneStatus>, String> {
        let picked = self.picked(names)?;
        let status = |(live, settings): &Picked<'_>| ZoneStatus::of(live, settings);
        Ok(picked.iter().map(status).collect())
    }

    /// Gives an order to these zones, or to all that can obey it: to each of them or to none. Where none can, each says why.
    ///
    /// # Errors
    /// A name that is none, or not served; a zone that takes no more orders.
    pub fn begin(&self, names: &[String], order: &Order) -> Result<Vec<Begun>, String> {
        let mut picked = self.picked(names)?;
        let can = |(_, settings): &Picked<'_>| order.is_for(settings);
        if names.is_empty() && picked.iter().any(can) {
            picked.retain(can);
        }
        let mut places = Vec::with_capacity(picked.len());
        for (live, _) in &picked {
            let place = live.orders.reserve().ok_or_else(|| {
                format!(
                    "zone {}: it has more orders than it can follow: nothing was begun, try again",
                    live.apex
                )
            })?;
            places.push((live, place));
        }
        let begun = places.into_iter().map(|(live, place)| {
            let ticket = live.ticket();
            place.put(Box::new(Letter {
                order: order.clone(),
                ticket: Some(ticket),
            }));
            Begun {
                name: live.apex.to_string(),
                ticket,
            }
        });
        Ok(begun.collect())
    }

    pub(super) fn picked(&self, names: &[String]) -> Result<Vec<Picked<'_>>, String> {
        if names.is_empty() {
            return Ok(self.iter().collect());
        }
        let find = |text: &String| {
            let name: NameBuf = text.parse().map_err(|error| format!("'{text}': {error}"))?;
            self.find(name.as_name()).ok_or_else(|| {
                format!("zone {name} is not served: `millrace zone status` lists those that are")
            })
        };
        names.iter().map(find).collect()
    }
}

/// A zone that is meant.
type Picked<'l> = (&'l Arc<Live>, &'l Arc<ZoneSettings>);

/// One line, without the line's end.
impl fmt::Display for ZoneStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let role = if self.secondary {
            "secondary"
        } else {
            "primary"
        };
        write!(f, "{} {role}", self.name)?;
        match (self.serial, self.expired) {
            (Some(serial), _) => write!(f, ", serial {serial}, {} records", self.records)?,
            (None, true) => f.write_str(", expired: SERVFAIL")?,
            (None, false) => f.write_str(", not loaded: SERVFAIL")?,
        }
        if let Some(seconds) = self.refresh_in {
            write!(f, ", asks in {seconds} s")?;
        }
        if let Some(seconds) = self.expires_in {
            write!(f, ", expires in {seconds} s")?;
        }
        match (self.frozen, self.held_back) {
            (true, true) => f.write_str(", frozen, and something waits for its thaw")?,
            (true, false) => f.write_str(", frozen")?,
            (false, _) => {}
        }
        if self.withheld {
            f.write_str(", transfers out are frozen")?;
        }
        if let Some(work) = &self.work {
            write!(f, ", {work}")?;
            if self.total > 0 {
                let megabytes = |octets: u64| octets as f64 / 1e6;
                let (done, total) = (megabytes(self.done), megabytes(self.total));
                write!(f, ", {done:.1} of {total:.1} MB")?;
            }
        }
        if !self.said.is_empty() {
            write!(f, "; last: {}", self.said)?;
        }
        Ok(())
    }
}
