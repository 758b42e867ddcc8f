use super::*;
use crate::local::fixture::{apex, listed, zone};
use tempfile::TempDir;

const LIMIT: u64 = 1 << 20;

/// A folder, and the right to write to `state` in it.
struct Ground {
    folder: TempDir,
    state: Arc<StateDirectory>,
}

impl Ground {
    fn new() -> Ground {
        let folder = tempfile::tempdir().unwrap();
        let state = Arc::new(StateDirectory::new(folder.path().join("state")));
        Ground { folder, state }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }
}

fn store(ground: &Ground) -> Store {
    Store::new(&ground.state, &apex(), LIMIT)
}

fn version(serial: u32) -> Zone {
    zone(
        serial,
        &format!("www A 192.0.2.{serial}\nold-{serial} TXT x"),
    )
}

/// Versions 1 to `count`, each committed as a change from the one before.
fn committed(store: &mut Store, count: u32) {
    let mut old: Option<Zone> = None;
    for serial in 1..=count {
        let new = version(serial);
        store.commit(old.as_ref(), &new, None).unwrap();
        old = Some(new);
    }
}

fn recovered(folder: &Ground) -> Option<Zone> {
    store(folder).load().unwrap()
}

#[test]
fn versions_are_recovered_and_changes_known() {
    let folder = Ground::new();
    assert!(recovered(&folder).is_none());
    let mut kept = store(&folder);
    committed(&mut kept, 4);
    assert_eq!(store(&folder).serial(), Some(4));
    assert_eq!(listed(&recovered(&folder).unwrap()), listed(&version(4)));
    let changes = kept.changes(2, 4).unwrap();
    assert_eq!(changes.len(), 2);
    assert_eq!(kept.changes(2, 3).unwrap().len(), 1);
    assert!(kept.changes(4, 4).is_none() && kept.changes(9, 4).is_none());
    // Another life goes on where this one ended.
    let mut again = store(&folder);
    again.load().unwrap();
    again.commit(Some(&version(4)), &version(5), None).unwrap();
    assert_eq!(again.changes(1, 5).unwrap().len(), 4);
    // A version that does not follow begins anew.
    again.commit(Some(&version(5)), &version(3), None).unwrap();
    assert_eq!(store(&folder).serial(), Some(3));
    assert!(again.changes(1, 5).is_none());
}

#[test]
fn a_change_that_no_journal_can_have_costs_the_journal_and_not_what_comes_behind() {
    let folder = Ground::new();
    let mut kept = store(&folder);
    committed(&mut kept, 3);
    let (old, lower) = (version(3), version(2));
    let back = Change::between(old.records(), lower.records()).unwrap();
    kept.commit(Some(&old), &lower, Some(&[back])).unwrap();
    assert_eq!(listed(&recovered(&folder).unwrap()), listed(&lower));
    kept.commit(Some(&lower), &version(4), None).unwrap();
    assert_eq!(listed(&recovered(&folder).unwrap()), listed(&version(4)));
}

#[test]
fn f37_what_secondaries_may_have_is_known_before_a_version_that_they_do_not_see() {
    let folder = Ground::new();
    let mut kept = store(&folder);
    committed(&mut kept, 2);
    let blocked = kept.snapshot.with_extension("zone.new");
    fs::create_dir(&blocked).unwrap();
    assert!(kept.begin_anew(&version(1), Some(2)).is_err());
    assert_eq!(listed(&recovered(&folder).unwrap()), listed(&version(2)));
    assert_eq!(store(&folder).facts().greatest, Some(2));
    fs::remove_dir(&blocked).unwrap();
    kept.begin_anew(&version(1), Some(2)).unwrap();
    assert_eq!(listed(&recovered(&folder).unwrap()), listed(&version(1)));
    assert!(kept.changes(1, 2).is_none());
}

#[test]
fn a_journal_that_gets_too_long_loses_its_older_half() {
    let folder = Ground::new();
    let mut kept = Store::new(&folder.state, &apex(), 4_000);
    committed(&mut kept, 60);
    assert_eq!(listed(&recovered(&folder).unwrap()), listed(&version(60)));
    let length = fs::metadata(&kept.journal).unwrap().len();
    assert!(length <= 4_400, "{length}");
    assert!(kept.changes(58, 60).is_some() && kept.changes(2, 60).is_none());
}

#[test]
fn f37_wherever_the_files_are_torn_a_committed_version_is_recovered() {
    let folder = Ground::new();
    let mut kept = store(&folder);
    committed(&mut kept, 3);
    let journal = fs::read(&kept.journal).unwrap();
    for length in (0..journal.len()).step_by(7) {
        fs::write(&kept.journal, &journal[..length]).unwrap();
        let found = recovered(&folder).unwrap();
        let serial = found.soa().serial;
        assert!((1..=3).contains(&serial));
        assert_eq!(listed(&found), listed(&version(serial)), "{length}");
        // And it goes on from there.
        let mut again = store(&folder);
        again.load().unwrap();
        again.commit(Some(&found), &version(9), None).unwrap();
        assert_eq!(listed(&recovered(&folder).unwrap()), listed(&version(9)));
        assert_eq!(again.changes(serial, 9).unwrap().len(), 1);
        fs::write(&kept.journal, &journal).unwrap();
    }
    // What is left of a write that was never finished is nothing.
    fs::write(kept.snapshot.with_extension("zone.new"), b"half").unwrap();
    assert_eq!(store(&folder).serial(), Some(3));
    fs::write(&kept.snapshot, b"millrace zone 1\nhalf").unwrap();
    let error = store(&folder).load().err().unwrap().to_string();
    assert!(
        error.contains("example.com.zone: cannot be used: "),
        "{error}"
    );
}

#[test]
fn f37_what_a_damaged_journal_loses_is_told() {
    let folder = Ground::new();
    let mut kept = store(&folder);
    committed(&mut kept, 4);
    let whole = fs::read(&kept.journal).unwrap();
    let told = |octets: &[u8]| {
        fs::write(&kept.journal, octets).unwrap();
        damage_of(&kept.read_journal().unwrap().unwrap())
    };
    assert_eq!(told(&whole), None);
    let mut changed = whole.clone();
    // In the second of three entries.
    let start = journal::header(apex().as_name()).0.len();
    changed[start + (whole.len() - start) / 3 + 30] ^= 1;
    let text = told(&changed).unwrap();
    assert!(text.starts_with("damaged at octet "), "{text}");
    let reason = "checksum of an entry is wrong; the changes behind serial 2 are discarded, \
                  up to serial 4 as far as can be read";
    assert!(text.ends_with(reason), "{text}");
    assert_eq!(recovered(&folder).unwrap().soa().serial, 2);
    let text = told(&whole[..whole.len() - 1]).unwrap();
    let reason = "the last entry was not written whole; the changes behind serial 3 are discarded";
    assert!(text.contains(reason), "{text}");
    assert!(
        told(b"x")
            .unwrap()
            .starts_with("no journal, or its beginning is damaged")
    );
}

#[test]
fn f37_a_journal_of_another_life_is_not_applied() {
    let folder = Ground::new();
    let mut kept = store(&folder);
    committed(&mut kept, 3);
    let journal = fs::read(&kept.journal).unwrap();
    kept.rewrite(&zone(7, "")).unwrap();
    fs::write(&kept.journal, journal).unwrap();
    assert_eq!(recovered(&folder).unwrap().soa().serial, 7);
}

#[test]
fn f37_a_full_disk_costs_the_commit_and_nothing_else() {
    // A folder that a file stands in the way of: everything written fails.
    let folder = Ground::new();
    let mut kept = store(&folder);
    committed(&mut kept, 2);
    let state = folder.path().join("state");
    let aside = folder.path().join("aside");
    fs::rename(&state, &aside).unwrap();
    fs::write(&state, b"").unwrap();
    assert!(kept.commit(Some(&version(2)), &version(3), None).is_err());
    assert!(kept.commit(Some(&version(3)), &version(4), None).is_err());
    fs::remove_file(&state).unwrap();
    fs::rename(&aside, &state).unwrap();
    assert_eq!(listed(&recovered(&folder).unwrap()), listed(&version(2)));
    // Changes that were not written are a gap: the next version is written whole.
    kept.commit(Some(&version(4)), &version(5), None).unwrap();
    assert_eq!(listed(&recovered(&folder).unwrap()), listed(&version(5)));
}

#[test]
fn f37_a_directory_that_goes_is_made_anew_with_all_that_is_kept() {
    let folder = Ground::new();
    let mut kept = store(&folder);
    committed(&mut kept, 2);
    let state = folder.path().join("state");
    fs::rename(&state, folder.path().join("aside")).unwrap();
    kept.commit(Some(&version(2)), &version(3), None).unwrap();
    assert_eq!(listed(&recovered(&folder).unwrap()), listed(&version(3)));
    assert!(StateDirectory::new(state).is_others(), "one writes there");
}

#[test]
fn f37_a_journal_that_cannot_be_shortened_keeps_its_version_and_grows_no_further() {
    const LIMIT: u64 = 4_000;
    let folder = Ground::new();
    let mut kept = Store::new(&folder.state, &apex(), LIMIT);
    committed(&mut kept, 2);
    let blocked = kept.snapshot.with_extension("zone.new");
    fs::create_dir(&blocked).unwrap();
    let mut commit = |serial: u32| {
        let (old, new) = (version(serial - 1), version(serial));
        kept.commit(Some(&old), &new, None)
    };
    let failed = (3..200).find(|serial| commit(*serial).is_err()).unwrap();
    assert!(commit(failed + 1).is_err());
    let found = recovered(&folder).unwrap();
    assert_eq!(listed(&found), listed(&version(failed - 1)));
    let journal = blocked.with_file_name("example.com.journal");
    let length = fs::metadata(journal).unwrap().len();
    assert!((LIMIT..2 * LIMIT).contains(&length), "{length}");
    fs::remove_dir(&blocked).unwrap();
    commit(failed + 2).unwrap();
    let found = recovered(&folder).unwrap();
    assert_eq!(listed(&found), listed(&version(failed + 2)));
}

#[test]
fn facts_are_kept() {
    let folder = Ground::new();
    let kept = store(&folder);
    assert_eq!(kept.facts(), Facts::default());
    let facts = Facts {
        refreshed: 1_800_000_000,
        expires: Some(1_800_000_900),
        ..Facts::default()
    };
    kept.write_facts(&facts).unwrap();
    assert_eq!(store(&folder).facts(), facts);
}

#[test]
fn f37_what_another_process_kept_is_gone_on_from_not_written_over() {
    let folder = Ground::new();
    let mut older = store(&folder);
    committed(&mut older, 2);
    let next = Arc::new(StateDirectory::new(folder.path().join("state")));
    let mut newer = Store::new(&next, &apex(), LIMIT);
    assert_eq!(newer.load().unwrap().unwrap().soa().serial, 2);
    let refused = newer.commit(Some(&version(2)), &version(3), None);
    let refused = refused.unwrap_err().to_string();
    assert!(
        refused.contains("another process keeps its zones there"),
        "{refused}"
    );
    older.commit(Some(&version(2)), &version(3), None).unwrap();
    folder.state.give();
    assert!(older.commit(Some(&version(3)), &version(4), None).is_err());
    // What it saw before it had the right is not what is there.
    newer.commit(Some(&version(3)), &version(4), None).unwrap();
    assert_eq!(newer.changes(1, 4).unwrap().len(), 3);
}

#[test]
fn f37_behind_a_journal_that_may_not_be_on_the_disk_everything_is_written_anew() {
    let folder = Ground::new();
    let mut kept = store(&folder);
    committed(&mut kept, 2);
    let aside = kept.journal.with_extension("aside");
    fs::rename(&kept.journal, &aside).unwrap();
    fs::create_dir(&kept.journal).unwrap();
    assert!(kept.commit(Some(&version(2)), &version(3), None).is_err());
    fs::remove_dir(&kept.journal).unwrap();
    fs::rename(&aside, &kept.journal).unwrap();
    kept.commit(Some(&version(2)), &version(3), None).unwrap();
    assert!(!kept.journal.exists() && kept.changes(2, 3).is_none());
    assert_eq!(listed(&recovered(&folder).unwrap()), listed(&version(3)));
}

#[test]
fn without_facts_the_zone_was_confirmed_when_its_snapshot_was_written() {
    let folder = Ground::new();
    let mut kept = store(&folder);
    assert_eq!(kept.refreshed(), 0);
    committed(&mut kept, 1);
    let snapshot = OpenOptions::new().write(true).open(&kept.snapshot).unwrap();
    let written = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_700_000_000);
    snapshot.set_modified(written).unwrap();
    assert_eq!(kept.refreshed(), 1_700_000_000);
    fs::write(&kept.facts, "{\"refreshed\": 17").unwrap();
    assert_eq!(kept.refreshed(), 1_700_000_000);
    let facts = Facts {
        refreshed: 1_600_000_000,
        ..Facts::default()
    };
    kept.write_facts(&facts).unwrap();
    assert_eq!(kept.refreshed(), 1_600_000_000);
}
