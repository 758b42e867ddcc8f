use super::super::fixture::{apex, listed as records, secondary, zone};
use super::super::{flush, read};
use super::*;
use std::os::unix::fs::{PermissionsExt, symlink};
use tempfile::TempDir;

const HOUR: u64 = 3_600;

/// A secondary in a folder of its own, and one that knows nothing yet.
struct Ground {
    folder: TempDir,
    settings: ZoneSettings,
    state: Arc<StateDirectory>,
    live: Live,
}

impl Ground {
    /// Serials 6 and 7 have come, the newer one an hour ago.
    fn new() -> Ground {
        let ground = Ground::empty();
        for serial in [6, 7] {
            ground.install(serial);
        }
        let timers = Timers::new(clock::unix() - HOUR);
        ground
            .live
            .change_state(|state| state.timers = Some(timers));
        ground
    }

    fn empty() -> Ground {
        let folder = tempfile::tempdir().unwrap();
        let state = Arc::new(StateDirectory::new(folder.path().join("state")));
        Ground {
            folder,
            settings: secondary(),
            state,
            live: Live::new(&apex()),
        }
    }

    fn install(&self, serial: u32) {
        let lines = format!("www A 192.0.2.{serial}\n*.wild TXT \"a;\\\"b\"");
        let new = zone(serial, &lines);
        self.live.install(new, true, &self.settings, &self.state);
    }

    fn order(&self, parts: Parts) -> BackupOrder {
        BackupOrder {
            folder: self.folder.path().join("copies"),
            parts,
            is_forced: false,
        }
    }

    fn backup(&self, order: &BackupOrder) -> Result<String, String> {
        backup(&self.live, order, &self.settings, &self.state)
    }

    fn restore(&self, order: &BackupOrder) -> Result<String, String> {
        restore(&self.live, order, &self.settings, &self.state)
    }

    fn served(&self) -> Option<Vec<String>> {
        self.live.served().map(|zone| records(&zone))
    }

    fn serial(&self) -> Option<u32> {
        self.live.served().map(|zone| zone.soa().serial)
    }
}

const WHOLE: Parts = Parts {
    zonefile: true,
    journal: true,
    timers: true,
};

#[test]
fn another_server_goes_on_with_zone_journal_and_timers() {
    let ground = Ground::new();
    let order = ground.order(WHOLE);
    ground.live.begin("copying");
    let said = ground.backup(&order).unwrap();
    let place = order.folder.join("example.com");
    // `millrace zone backup` draws it.
    let length = fs::metadata(place.join(ZONE)).unwrap().len();
    assert_eq!(ground.live.progress.read(), (length, 0));
    let expected = format!(
        "serial 7 copied to {}: journal, timers, zone",
        place.display()
    );
    assert_eq!(said, expected);
    let names = |folder: &Path| fs::read_dir(folder).unwrap().count();
    assert_eq!((names(&order.folder), names(&place)), (1, 4));
    let other = Ground::empty();
    let said = other.restore(&order).unwrap();
    assert!(said.starts_with("serial 7 restored from "), "{said}");
    assert!(said.ends_with(": zone, journal, timers"), "{said}");
    assert_eq!(other.served(), ground.served());
    let timers = |ground: &Ground| ground.live.state().timers.unwrap().refreshed;
    assert_eq!(timers(&other), timers(&ground));
    // It is what another life finds, too.
    let mut kept = store::Store::new(&other.state, &apex(), other.settings.journal_octets);
    assert_eq!(kept.load().unwrap().unwrap().soa().serial, 7);
    assert_eq!(kept.changes(6, 7).unwrap().len(), 1);
    assert_eq!(kept.timers().refreshed, timers(&ground));
    // And the journal goes on from there.
    other.install(8);
    assert_eq!(kept.changes(6, 8).unwrap().len(), 2);
}

#[test]
fn an_older_version_is_restored_over_a_newer_one() {
    let ground = Ground::new();
    let order = ground.order(Parts::default());
    ground.backup(&order).unwrap();
    let before = ground.served();
    ground.install(8);
    let said = ground.restore(&order).unwrap();
    let warned = "; secondaries that have serial 8 do not see it";
    assert!(said.ends_with(warned), "{said}");
    assert_eq!(ground.served(), before);
}

#[test]
fn a_backup_is_replaced_only_by_force_and_nothing_else_ever() {
    let ground = Ground::new();
    let mut order = ground.order(Parts::default());
    ground.backup(&order).unwrap();
    ground.install(8);
    let reason = ground.backup(&order).unwrap_err();
    assert!(reason.contains("+force, which replaces it"), "{reason}");
    order.is_forced = true;
    let said = ground.backup(&order).unwrap();
    assert!(said.starts_with("serial 8 copied to "), "{said}");
    assert_eq!(fs::read_dir(&order.folder).unwrap().count(), 1);
    let place = order.folder.join("example.com");
    fs::remove_file(place.join(LABEL)).unwrap();
    let reason = ground.backup(&order).unwrap_err();
    assert!(reason.contains("is there and is no backup"), "{reason}");
    order.folder = ground.state.path().to_owned();
    let reason = ground.backup(&order).unwrap_err();
    assert!(reason.contains("zones are kept there"), "{reason}");
    // A file where a folder should be: what nobody can write to, root neither, whoever the daemon is.
    order.folder = place.join(ZONE);
    let reason = ground.backup(&order).unwrap_err();
    let named = format!("{}: cannot be written: ", order.folder.display());
    assert!(reason.starts_with(&named), "{reason}");
    assert!(!reason.contains("the daemon is user"), "{reason}");
}

#[test]
fn who_writes_is_said_where_that_is_what_is_wrong() {
    use io::ErrorKind::{IsADirectory, PermissionDenied, ReadOnlyFilesystem, StorageFull};
    let uid = geteuid();
    let user = User::from_uid(uid).ok().flatten().map(|user| user.name);
    let user = user.unwrap_or_else(|| uid.to_string());
    let right = format!("; the daemon is user {user}, who has to be allowed that");
    for (kind, expected) in [
        (PermissionDenied, true),
        (ReadOnlyFilesystem, true),
        (StorageFull, false),
        (IsADirectory, false),
    ] {
        let error = io::Error::from(kind);
        let said = unwritten(store::unable("written", Path::new("/copies"))(error));
        assert!(said.starts_with("/copies: cannot be written: "), "{said}");
        assert_eq!(said.contains(&right), expected, "{said}");
    }
}

/// A folder with one file of this name and text.
fn folder_with(path: &Path, name: &str, text: &str) {
    fs::create_dir_all(path).unwrap();
    fs::write(path.join(name), text).unwrap();
}

fn text(path: &Path) -> String {
    fs::read_to_string(path).unwrap()
}

#[test]
fn nothing_is_removed_but_files_of_backups() {
    let ground = Ground::new();
    let mut order = ground.order(Parts::default());
    let place = Place::new(&order.folder, apex().as_name());
    let refused = |order: &BackupOrder, expected: &str| {
        let reason = ground.backup(order).unwrap_err();
        assert!(reason.contains(expected), "{reason}");
    };
    // Somebody else's, where the backup is written.
    folder_with(&place.fresh, "letter", "dear");
    folder_with(&place.fresh, ZONE, "text");
    refused(&order, "it holds letter, which is no file of a backup");
    assert_eq!(text(&place.fresh.join("letter")), "dear");
    assert_eq!(text(&place.fresh.join(ZONE)), "text");
    fs::remove_dir_all(&place.fresh).unwrap();
    // A link to what is somebody else's.
    let others = ground.folder.path().join("others");
    folder_with(&others, ZONE, "text");
    symlink(&others, &place.fresh).unwrap();
    refused(&order, "example.com~new: cannot be written: ");
    assert_eq!(text(&others.join(ZONE)), "text");
    assert_eq!(fs::read_dir(&others).unwrap().count(), 1);
    fs::remove_file(&place.fresh).unwrap();
    // What another backup has left is ours.
    folder_with(&place.fresh, "zone.new", "half");
    ground.backup(&order).unwrap();
    assert!(!place.fresh.exists());
    order.is_forced = true;
    let label = text(&place.own.join(LABEL));
    folder_with(&place.own, "letter", "dear");
    refused(&order, "example.com is not replaced: it holds letter");
    assert_eq!(text(&place.own.join(LABEL)), label);
    fs::remove_file(place.own.join("letter")).unwrap();
    folder_with(&place.old, "letter", "dear");
    // Whether that is in the way is the file system's matter.
    let _ = ground.backup(&order);
    assert_eq!(text(&place.old.join("letter")), "dear");
    assert!(place.own.join(LABEL).exists());
}

#[test]
fn what_is_replaced_is_there_until_its_successor_is() {
    let ground = Ground::new();
    let order = ground.order(Parts::default());
    let place = Place::new(&order.folder, apex().as_name());
    folder_with(&place.own, LABEL, "1");
    folder_with(&place.fresh, LABEL, "2");
    place.exchange().unwrap();
    assert_eq!(text(&place.own.join(LABEL)), "2");
    // Beside it, by whichever way the file system knows.
    let beside = [&place.fresh, &place.old].map(|path| path.join(LABEL).exists());
    assert!(beside[0] != beside[1]);
    place.settle(true).unwrap();
    assert_eq!(fs::read_dir(&order.folder).unwrap().count(), 1);
    folder_with(&place.fresh, LABEL, "3");
    place.replace().unwrap();
    assert_eq!(text(&place.own.join(LABEL)), "3");
    assert_eq!(text(&place.old.join(LABEL)), "2");
    // There is nothing to put: what was there is there again.
    assert!(place.replace().is_err());
    assert_eq!(text(&place.own.join(LABEL)), "3");
    // What a crash between the two steps leaves.
    fs::rename(&place.own, &place.old).unwrap();
    let reason = ground.restore(&order).unwrap_err();
    let expected = format!("{}, which was being replaced", place.old.display());
    assert!(reason.contains(&expected), "{reason}");
}

#[test]
fn f37_a_restore_that_cannot_be_written_leaves_what_is_kept() {
    let copies = tempfile::tempdir().unwrap();
    let other = Ground::new();
    let mut order = other.order(WHOLE);
    order.folder = copies.path().to_owned();
    other.backup(&order).unwrap();
    let ground = Ground::empty();
    for serial in [5, 6] {
        ground.install(serial);
    }
    let mut kept = store::Store::new(&ground.state, &apex(), ground.settings.journal_octets);
    let facts = Facts::of(Timers::new(clock::unix()));
    kept.write_facts(&facts).unwrap();
    // The names of what would be written beside the files are taken, one after the other.
    for name in ["zone", "journal", "facts"] {
        let beside = ground.state.path().join(format!("example.com.{name}.new"));
        fs::create_dir(&beside).unwrap();
        let reason = ground.restore(&order).unwrap_err();
        assert!(reason.ends_with("; serial 6 serves on"), "{reason}");
        assert_eq!(kept.load().unwrap().unwrap().soa().serial, 6, "{name}");
        assert_eq!(kept.facts(), facts, "{name}");
        assert_eq!(kept.changes(5, 6).unwrap().len(), 1, "{name}");
        fs::remove_dir(&beside).unwrap();
    }
    ground.restore(&order).unwrap();
    assert_eq!(kept.load().unwrap().unwrap().soa().serial, 7);
}

#[test]
fn a_journal_that_leads_to_what_is_restored_stays() {
    let ground = Ground::new();
    let order = ground.order(Parts::default());
    ground.backup(&order).unwrap();
    let kept = store::Store::new(&ground.state, &apex(), ground.settings.journal_octets);
    ground.restore(&order).unwrap();
    assert_eq!(kept.changes(6, 7).unwrap().len(), 1);
    ground.install(8);
    assert_eq!(kept.changes(6, 8).unwrap().len(), 2);
    ground.restore(&order).unwrap();
    assert!(kept.changes(6, 8).is_none() && kept.changes(6, 7).is_none());
}

/// Secondaries may have serial 8 as it was.
#[test]
fn changes_lead_on_from_what_is_restored_when_secondaries_see_it_again() {
    let ground = Ground::new();
    let mut order = ground.order(WHOLE);
    ground.backup(&order).unwrap();
    let kept = store::Store::new(&ground.state, &apex(), ground.settings.journal_octets);
    ground.install(8);
    let said = ground.restore(&order).unwrap();
    let left_out = "; secondaries that have serial 8 do not see it; its journal is left out, ";
    assert!(said.contains(left_out), "{said}");
    assert!(kept.changes(6, 7).is_none());
    ground.install(8);
    ground.install(9);
    assert!(kept.changes(7, 9).is_none() && kept.changes(8, 9).is_none());
    ground.install(10);
    assert_eq!(kept.changes(9, 10).unwrap().len(), 1);
    // The same version again is nothing new to them.
    order.is_forced = true;
    ground.backup(&order).unwrap();
    let said = ground.restore(&order).unwrap();
    assert!(said.ends_with(": zone, journal, timers"), "{said}");
    assert_eq!(kept.changes(9, 10).unwrap().len(), 1);
}

#[test]
fn a_version_in_place_of_one_that_was_purged_may_be_another_one() {
    let ground = Ground::new();
    let kept = store::Store::new(&ground.state, &apex(), ground.settings.journal_octets);
    ground.live.purge(&ground.settings, &ground.state).unwrap();
    for serial in [7, 8, 9] {
        ground.install(serial);
    }
    assert!(kept.changes(7, 9).is_none());
    assert_eq!(kept.changes(8, 9).unwrap().len(), 1);
}

#[test]
fn no_file_is_included_from_a_backup() {
    let ground = Ground::new();
    let order = ground.order(Parts::default());
    ground.backup(&order).unwrap();
    let place = Place::new(&order.folder, apex().as_name());
    let (zone, label) = (place.own.join(ZONE), place.own.join(LABEL));
    let sum = checksum(&zone).unwrap();
    fs::write(
        place.own.join("more"),
        "more 300 IN A 192.0.2.9
",
    )
    .unwrap();
    fs::write(
        &zone,
        text(&zone)
            + "$INCLUDE more
",
    )
    .unwrap();
    let adapted = text(&label).replace(&sum, &checksum(&zone).unwrap());
    fs::write(&label, adapted).unwrap();
    let reason = ground.restore(&order).unwrap_err();
    assert!(reason.contains("no backup includes a file"), "{reason}");
}

#[test]
fn a_configured_file_stays_a_link_and_keeps_its_mode() {
    let ground = Ground::new();
    let order = ground.order(Parts::default());
    ground.backup(&order).unwrap();
    let folder = ground.folder.path().join("elsewhere");
    let mut settings = ground.settings.clone();
    let link = ground.folder.path().join("link");
    settings.file = Some(link.clone());
    symlink(folder.join("file"), &link).unwrap();
    let flushed = || flush::flush(&ground.live, None, &settings, &ground.state);
    let mut primary = Ground::empty();
    primary.settings.primaries.clear();
    primary.settings.file = Some(link.clone());
    let restored = || primary.restore(&order);
    let writers: [&dyn Fn() -> Result<String, String>; 2] = [&flushed, &restored];
    for write in writers {
        folder_with(&folder, "file", "what was there");
        let private = fs::Permissions::from_mode(0o640);
        fs::set_permissions(folder.join("file"), private).unwrap();
        write().unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        let mode = fs::metadata(&link).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o640);
        let again = read(apex().as_name(), &link, &ground.live.progress);
        let again = again.unwrap_or_else(|errors| panic!("{errors:?}"));
        assert_eq!(Some(records(&again.zone)), ground.served());
    }
    // A copy is another matter: who may write to its folder does not choose what is written to.
    let copies = ground.folder.path().join("links");
    fs::create_dir(&copies).unwrap();
    fs::write(folder.join("file"), "what was there").unwrap();
    symlink(folder.join("file"), copies.join("example.com.zone")).unwrap();
    flush::flush(
        &ground.live,
        Some(copies.as_path()),
        &settings,
        &ground.state,
    )
    .unwrap();
    assert_eq!(text(&folder.join("file")), "what was there");
}

#[test]
fn a_broken_backup_leaves_the_zone_serving() {
    let ground = Ground::new();
    let order = ground.order(WHOLE);
    ground.backup(&order).unwrap();
    let place = order.folder.join("example.com");
    ground.install(8);
    let refused = |text: &str| {
        let reason = ground.restore(&order).unwrap_err();
        assert!(reason.contains(text), "{reason}");
        assert!(reason.ends_with("; serial 8 serves on"), "{reason}");
        assert_eq!(ground.serial(), Some(8));
    };
    for name in [ZONE, JOURNAL, TIMERS] {
        let whole = fs::read(place.join(name)).unwrap();
        fs::write(place.join(name), &whole[..whole.len() - 1]).unwrap();
        refused("the backup is damaged");
        fs::remove_file(place.join(name)).unwrap();
        refused("cannot be read");
        fs::write(place.join(name), whole).unwrap();
    }
    let label = fs::read_to_string(place.join(LABEL)).unwrap();
    for (from, to, reason) in [
        ("\"format\": 1", "\"format\": 2", "this one reads format 1"),
        (MAGIC, "another", "no label of a backup"),
        ("example.com.", "example.org.", "zone example.org."),
        ("\"serial\": 7", "\"serial\": 9", "is not the label's"),
        ("{", "", "no label of a backup"),
    ] {
        fs::write(place.join(LABEL), label.replacen(from, to, 1)).unwrap();
        refused(reason);
    }
    fs::remove_file(place.join(LABEL)).unwrap();
    refused("there is no backup of the zone");
    fs::write(place.join(LABEL), label).unwrap();
    ground.restore(&order).unwrap();
    assert_eq!(ground.serial(), Some(7));
}

#[test]
fn timers_are_restored_alone_or_not_at_all() {
    let ground = Ground::new();
    let mut order = ground.order(Parts::default());
    // Longer ago than the 86,400 seconds of the SOA record.
    let expired = Timers::new(clock::unix() - 100 * HOUR);
    ground
        .live
        .change_state(|state| state.timers = Some(expired));
    ground.backup(&order).unwrap();
    let other = Ground::empty();
    let reason = other.restore(&order).unwrap_err();
    assert!(reason.contains("by its timers it has expired"), "{reason}");
    assert_eq!(other.serial(), None);
    order.parts.timers = false;
    let now = clock::unix();
    other.restore(&order).unwrap();
    assert_eq!(other.serial(), Some(7));
    assert!(other.live.state().timers.unwrap().refreshed >= now);
    order.parts = Parts {
        zonefile: false,
        journal: true,
        timers: false,
    };
    let reason = other.restore(&order).unwrap_err();
    assert!(reason.contains("of which nothing is asked for"), "{reason}");
    order.parts.journal = false;
    order.parts.timers = true;
    order.is_forced = true;
    let timers = Timers::new(now - HOUR);
    ground
        .live
        .change_state(|state| state.timers = Some(timers));
    ground.backup(&order).unwrap();
    other.restore(&order).unwrap();
    assert_eq!(
        other.live.state().timers.unwrap().refreshed,
        timers.refreshed
    );
}

#[test]
fn of_a_primary_the_file_is_written_and_counts_as_read() {
    let ground = Ground::new();
    let order = ground.order(Parts::default());
    ground.backup(&order).unwrap();
    let mut primary = Ground::empty();
    primary.settings.primaries.clear();
    let reason = primary.restore(&order).unwrap_err();
    assert!(reason.contains("it has no file="), "{reason}");
    let file = primary.folder.path().join("file");
    fs::write(&file, "what was there").unwrap();
    primary.settings.file = Some(file.clone());
    let said = primary.restore(&order).unwrap();
    assert!(said.ends_with(": zone"), "{said}");
    assert_eq!(primary.served(), ground.served());
    assert!(!primary.live.needs_load(&primary.settings));
    let again = read(apex().as_name(), &file, &primary.live.progress);
    let again = again.unwrap_or_else(|errors| panic!("{errors:?}"));
    assert_eq!(Some(records(&again.zone)), ground.served());
    // The name of what would be written beside it is taken.
    fs::remove_file(&file).unwrap();
    fs::create_dir(primary.folder.path().join("file.new")).unwrap();
    let reason = primary.restore(&order).unwrap_err();
    assert!(reason.ends_with("; serial 7 serves on"), "{reason}");
}
