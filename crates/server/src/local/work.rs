//! What is kept of a zone, and of the history between its versions: the one place where a version takes another's place on the
//! disk, whether it comes from a file, from a primary or from a backup.

use super::backup::Holding;
use super::live::Live;
use super::settings::ZoneSettings;
use super::store::{Facts, Past, Recovered, Store, StoreError};
use super::unseen::{Greatest, Step, are_same, step};
use super::{Stamp, StateDirectory};
use std::sync::Arc;
use zone::transfer::Change;
use zone::zone::Zone;

/// What is known of a zone while it is read, built or written.
#[derive(Default)]
pub(super) struct Work {
    /// The files that it was made of, as they were; empty where it was made of none.
    pub(super) stamps: Vec<Stamp>,
    /// `None` before the first time that something is to be kept.
    store: Option<Box<Store>>,
    /// The version that is held was read from a file, and not compared yet with the one that is kept.
    pub(super) is_unkept: bool,
    /// Of a zone that is not kept it is known here alone, else in [`Facts`], too.
    pub(super) greatest: Greatest,
}

impl Work {
    /// The zone's files, where this configuration has them.
    pub(super) fn store(
        &mut self,
        live: &Live,
        settings: &ZoneSettings,
        state: &Arc<StateDirectory>,
    ) -> &mut Store {
        let octets = settings.journal_octets;
        let known = self.store.take().filter(|store| store.is_in(state, octets));
        let store = known.unwrap_or_else(|| {
            let store = Box::new(Store::new(state, &live.apex, octets));
            self.greatest = self.greatest.or_else(|| store.facts().greatest);
            store
        });
        self.store.insert(store)
    }

    /// What `new` is to secondaries in place of `old`, or of what is kept.
    fn step(
        &mut self,
        live: &Live,
        (old, new): (Option<&Zone>, &Zone),
        settings: &ZoneSettings,
        state: &Arc<StateDirectory>,
    ) -> Step {
        let store = self.store(live, settings, state);
        let before = old.map(|old| old.soa().serial).or_else(|| store.serial());
        // Of what was purged.
        let Some(before) = before.or(self.greatest) else {
            return Step::Next;
        };
        let is_same = || old.is_some_and(|old| are_same(old, new));
        step(&mut self.greatest, (before, new.soa().serial), is_same)
    }

    /// Keeps `new`, which takes the place of `old`, and what leads from the one to the other: `changes`, where they are known. It does
    /// not lead on from a serial of which secondaries may have another version. RFC 1995 §4 of whoever asks from there: "If
    /// incremental zone transfer is not available, the entire zone is returned".
    pub(super) fn replace(
        &mut self,
        live: &Live,
        (old, new): (Option<&Zone>, &Zone),
        changes: Option<&[Change]>,
        settings: &ZoneSettings,
        state: &Arc<StateDirectory>,
    ) -> (Step, Result<(), StoreError>) {
        let step = self.step(live, (old, new), settings, state);
        let greatest = self.greatest;
        let store = self.store(live, settings, state);
        let kept = match step {
            Step::Same if greatest.is_none() && store.has(new.soa().serial) => Ok(()),
            Step::Next => store.commit(old, new, changes),
            Step::Same | Step::Anew(_) => store.begin_anew(new, greatest),
        };
        (step, kept)
    }

    pub(super) fn write_facts(
        &mut self,
        live: &Live,
        facts: Facts,
        settings: &ZoneSettings,
        state: &Arc<StateDirectory>,
    ) -> Result<(), StoreError> {
        // That may bring the greatest serial from the disk.
        self.store(live, settings, state);
        let greatest = self.greatest;
        let store = self.store(live, settings, state);
        store.write_facts(&Facts { greatest, ..facts })
    }

    /// Keeps a version that was read from a file, as a change where it can be one; what went wrong, and what is wrong with its
    /// serial.
    pub(super) fn keep_file(
        &mut self,
        live: &Live,
        held: Option<&Zone>,
        zone: &Zone,
        settings: &ZoneSettings,
        state: &Arc<StateDirectory>,
    ) -> Vec<String> {
        let stamps = self.stamps.clone();
        let store = self.store(live, settings, state);
        let is_kept = store.serial() == Some(zone.soa().serial) && store.facts().stamps == stamps;
        if held.is_none() && is_kept {
            return Vec::new();
        }
        let (kept, damage) = match held {
            Some(_) => (None, None),
            None => recovered(store),
        };
        let versions = (held.or(kept.as_ref()), zone);
        let (step, written) = self.replace(live, versions, None, settings, state);
        let facts = Facts {
            stamps,
            ..Facts::default()
        };
        let written = written.and_then(|()| self.write_facts(live, facts, settings, state));
        let failed = written.err();
        let failed =
            failed.map(|error| format!("no journal, secondaries get whole zones: {error}"));
        let damage = damage.map(|damage| {
            let from = kept.filter(|_| !matches!(step, Step::Anew(_)));
            let from = from.map(|kept| kept.soa().serial);
            format!("{damage}; {}", goes_on(zone.soa().serial, from))
        });
        let said = damage.into_iter().chain(failed);
        said.chain(step.of_file()).collect()
    }

    /// Which journal leads to the zone that is restored.
    pub(super) fn past_of<'b>(
        &mut self,
        live: &Live,
        zone: &Zone,
        back: &'b Holding,
        settings: &ZoneSettings,
        state: &Arc<StateDirectory>,
    ) -> Past<'b> {
        let held = live.held();
        let step = self.step(live, (held.as_deref(), zone), settings, state);
        let has_past = match step {
            Step::Next => true,
            Step::Same => self.greatest.is_none(),
            Step::Anew(_) => false,
        };
        match &back.journal {
            _ if !has_past => Past::None,
            Some(octets) => Past::Given(octets),
            None => Past::Own,
        }
    }

    /// Keeps a primary's zone of a backup, and its journal.
    pub(super) fn put_back(
        &mut self,
        live: &Live,
        zone: &Zone,
        past: Past<'_>,
        settings: &ZoneSettings,
        state: &Arc<StateDirectory>,
    ) -> Result<(), StoreError> {
        if !settings.is_kept() {
            return Ok(());
        }
        let facts = Facts {
            stamps: self.stamps.clone(),
            ..Facts::default()
        };
        self.restore(live, zone, past, facts, settings, state)?;
        self.is_unkept = false;
        Ok(())
    }

    pub(super) fn restore(
        &mut self,
        live: &Live,
        zone: &Zone,
        past: Past<'_>,
        facts: Facts,
        settings: &ZoneSettings,
        state: &Arc<StateDirectory>,
    ) -> Result<(), StoreError> {
        let greatest = self.greatest;
        let store = self.store(live, settings, state);
        store.restore(zone, past, &Facts { greatest, ..facts })
    }
}

/// What is kept of a primary's zone, and what is wrong with it: the file serves all the same.
fn recovered(store: &mut Store) -> (Option<Zone>, Option<String>) {
    match store.recover() {
        Ok(Some(Recovered { zone, damage })) => (Some(zone), damage),
        Ok(None) => (None, None),
        Err(error) => (None, Some(error.to_string())),
    }
}

/// What secondaries get of a primary's zone whose history was damaged; `from`: the last serial that is left of it.
fn goes_on(serial: u32, from: Option<u32>) -> String {
    let then = match from {
        Some(from) => format!("IXFR leads to it from serial {from} at the latest, not from behind"),
        None => "secondaries get it whole, and IXFR begins there".to_owned(),
    };
    format!("serial {serial} of the file serves: {then}")
}

impl Past<'_> {
    /// What is said where the journal of a backup is not put back.
    pub(super) fn left_out(&self, back: &Holding) -> Option<String> {
        let is_left_out = back.journal.is_some() && matches!(self, Past::None);
        let said =
            "its journal is left out, as secondaries may have other versions: they get whole zones";
        is_left_out.then(|| said.to_owned())
    }
}

/// What will be after a restart, where a version could not be kept.
pub(super) fn lost(
    kept: Result<(), StoreError>,
    store: &mut Store,
    settings: &ZoneSettings,
) -> Option<String> {
    let error = kept.err()?;
    let file = settings.file.as_ref().filter(|file| file.exists());
    let then = match (store.serial(), file) {
        (Some(serial), _) => format!("serial {serial} serves until a primary sends a newer one"),
        (None, Some(file)) => format!(
            "{} serves until a primary sends a newer version",
            file.display()
        ),
        (None, None) => {
            "the zone is answered with SERVFAIL until a primary sends it: nothing of it is kept"
                .to_owned()
        }
    };
    Some(format!("{error}: after a restart {then}"))
}
