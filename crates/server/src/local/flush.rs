//! `millrace zone flush`: the zone that serves, as the text of a zone file.

use super::StateDirectory;
use super::live::Live;
use super::settings::ZoneSettings;
use super::store::{self, Store};
use std::path::{Path, PathBuf, absolute};
use std::sync::Arc;

/// Writes what serves into the zone's file; with `to`, a copy into that folder. What it came to.
///
/// # Errors
/// What would be right; whatever file was there is as it was.
pub(super) fn flush(
    live: &Live,
    to: Option<&Path>,
    settings: &ZoneSettings,
    state: &Arc<StateDirectory>,
) -> Result<String, String> {
    let zone = live
        .served()
        .ok_or("it is not served: there is nothing to write")?;
    let path = target(live, to, settings, state)?;
    let written = match to {
        Some(_) => store::write_text(&zone, &path, &live.progress),
        None => store::write_through(&zone, &path, &live.progress),
    };
    written.map_err(|error| format!("{error}; what was there stays"))?;
    let (serial, records) = (zone.soa().serial, zone.records_count());
    let path = path.display();
    Ok(format!(
        "serial {serial}, {records} records written to {path}"
    ))
}

/// The file that may be written.
fn target(
    live: &Live,
    to: Option<&Path>,
    settings: &ZoneSettings,
    state: &Arc<StateDirectory>,
) -> Result<PathBuf, String> {
    let is_secondary = settings.is_secondary();
    let path = match (to, &settings.file) {
        (Some(folder), _) if folder.is_dir() => store::text_in(folder, live.apex.as_name()),
        (Some(folder), _) => {
            let folder = folder.display();
            return Err(format!(
                "{folder}: a directory expected that is there, and that the daemon's user may write to"
            ));
        }
        (None, Some(file)) if is_secondary => file.clone(),
        (None, Some(_)) => {
            let reason = "it is a primary, made of its file: --to DIRECTORY writes a copy";
            return Err(reason.to_owned());
        }
        (None, None) => {
            let reason = "it has no file= to be written to: --to DIRECTORY writes a copy";
            return Err(reason.to_owned());
        }
    };
    let path = absolute(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let same = |file: &PathBuf| file.canonicalize().ok() == path.canonicalize().ok();
    let is_its_file = settings.file.as_ref().is_some_and(same) && path.exists();
    if is_its_file && !is_secondary {
        let path = path.display();
        return Err(format!(
            "{path} is the file that the zone is made of: another directory expected"
        ));
    }
    if Store::new(state, &live.apex, settings.journal_octets).owns(&path) {
        let path = path.display();
        return Err(format!(
            "{path} is where the zone is kept: another directory expected, as one below it"
        ));
    }
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{apex, listed, secondary, zone};
    use super::super::{Progress, read};
    use super::*;
    use std::fs;
    use tempfile::TempDir;

    /// A secondary whose zone serves, in a folder of its own.
    fn serving() -> (TempDir, Live, ZoneSettings, Arc<StateDirectory>) {
        let folder = tempfile::tempdir().unwrap();
        let state = Arc::new(StateDirectory::new(folder.path().join("state")));
        let settings = secondary();
        let live = Live::new(&apex());
        let lines = "www A 192.0.2.80\n*.wild TXT \"a;\\\"b\"\nodd TYPE65280 \\# 2 0a0b";
        live.install(zone(7, lines), true, &settings, &state);
        (folder, live, settings, state)
    }

    #[test]
    fn what_is_written_is_read_back_as_the_same_zone() {
        let (folder, live, mut settings, state) = serving();
        let file = folder.path().join("zone");
        fs::write(&file, "what was there").unwrap();
        settings.file = Some(file.clone());
        let copies = folder.path().join("copies");
        fs::create_dir(&copies).unwrap();
        let served = listed(&live.served().unwrap());
        for (to, path) in [
            (None, file),
            (Some(copies.as_path()), copies.join("example.com.zone")),
        ] {
            live.begin("writing");
            let said = flush(&live, to, &settings, &state).unwrap();
            // `millrace zone flush` draws it.
            let length = fs::metadata(&path).unwrap().len();
            assert_eq!(live.progress.read(), (length, 0));
            let expected = format!(
                "serial 7, {} records written to {}",
                served.len(),
                path.display()
            );
            assert_eq!(said, expected);
            let again = read(apex().as_name(), &path, &Progress::default());
            let again = again.unwrap_or_else(|errors| panic!("{errors:?}"));
            assert_eq!(listed(&again.zone), served);
        }
        let names = |folder: &Path| fs::read_dir(folder).unwrap().count();
        assert_eq!((names(folder.path()), names(&copies)), (3, 1));
    }

    #[test]
    fn what_cannot_be_written_leaves_the_file_and_says_what_would_be_right() {
        let (folder, live, mut settings, state) = serving();
        let refused = |to: Option<&Path>, settings: &ZoneSettings, text: &str| {
            let reason = flush(&live, to, settings, &state).unwrap_err();
            assert!(reason.contains(text), "{reason}");
        };
        refused(None, &settings, "no file= to be written to");
        let missing = folder.path().join("missing");
        refused(Some(missing.as_path()), &settings, "a directory expected");
        refused(Some(state.path()), &settings, "where the zone is kept");
        // The name of the file that would be written beside it is taken.
        fs::create_dir(folder.path().join("zone.new")).unwrap();
        let file = folder.path().join("zone");
        fs::write(&file, "what was there").unwrap();
        settings.file = Some(file.clone());
        refused(None, &settings, "what was there stays");
        assert_eq!(fs::read_to_string(&file).unwrap(), "what was there");
        settings.primaries.clear();
        refused(None, &settings, "--to DIRECTORY writes a copy");
        let own = folder.path().join("example.com.zone");
        fs::write(&own, "what was there").unwrap();
        settings.file = Some(own);
        refused(Some(folder.path()), &settings, "the zone is made of");
        live.expire();
        refused(None, &settings, "it is not served");
    }
}
