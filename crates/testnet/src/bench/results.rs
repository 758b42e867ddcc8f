//! `bench/results/DATE/`: raw JSON, CSV; [`report`] makes pages of them.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::plan::Scenario;
use super::record::{Machine, Missing, Record};
use super::report;
use crate::{During, Failure, Outcome};

/// The file that holds everything.
const JSON: &str = "results.json";

/// Everything of one run of the bench, or of several that went on in the same folder.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Results {
    pub machine: Machine,
    /// Seconds that each rate of a search was held, and that the other measures took.
    pub search_seconds: u32,
    pub seconds: u32,
    /// 1, or the bench was only tried out.
    pub scale: f64,
    /// Scenarios that were measured to their end, and how often.
    #[serde(default)]
    pub whole: BTreeMap<String, u32>,
    pub records: Vec<Record>,
    pub missing: Vec<Missing>,
}

impl Results {
    /// Reads what [`write`](Results::write) wrote.
    pub(super) fn read(folder: &Path) -> Outcome<Results> {
        let path = folder.join(JSON);
        let text = fs::read_to_string(&path).during(format!("reading {}", path.display()))?;
        let mut results: Results = serde_json::from_str(&text).map_err(|error| {
            Failure::new(format!(
                "{}: {error}: no results of a bench, or not whole; take the file away, or give another folder by --results",
                path.display()
            ))
        })?;
        // In folders of earlier versions the machine alone has them.
        for record in &mut results.records {
            if record.commit.is_empty() {
                record.commit.clone_from(&results.machine.commit);
            }
        }
        Ok(results)
    }

    /// These, which are empty, with what an earlier run has left in a folder.
    ///
    /// # Errors
    /// That one measured something else: on another machine, for other times, at other rates.
    pub(super) fn going_on(self, folder: &Path) -> Outcome<Results> {
        if !folder.join(JSON).is_file() {
            return Ok(self);
        }
        let earlier = Results::read(folder)?;
        let same = self.search_seconds == earlier.search_seconds
            && self.seconds == earlier.seconds
            && self.scale == earlier.scale;
        match self.machine.going_on(&earlier.machine) {
            Some(machine) if same => Ok(Results { machine, ..earlier }),
            _ => Err(Failure::new(format!(
                "{} has results of another machine or kernel, or with other --cpus, --remote, --search, --seconds or --scale: \
                 give another folder by --results",
                folder.display()
            ))),
        }
    }

    /// Whether a scenario was measured to its end, so often at least.
    pub(super) fn is_whole(&self, scenario: &str, repeats: u32) -> bool {
        self.whole.get(scenario).is_some_and(|had| *had >= repeats)
    }

    /// Before a scenario is measured: what could not be measured is tried again; everything is where it is to be `anew`. Where
    /// only one `contender` is measured, what there is of the others stays.
    pub(super) fn begin(&mut self, scenario: &str, anew: bool, contender: Option<&str>) {
        // What the whole scenario could not has no contender.
        let is_meant = |of: &str, name: &str| {
            of == scenario && (name.is_empty() || contender.is_none_or(|one| one == name))
        };
        self.whole.remove(scenario);
        self.missing
            .retain(|missing| !is_meant(&missing.scenario, &missing.contender));
        self.records
            .retain(|record| !anew || !is_meant(&record.scenario, &record.contender));
    }

    /// Writes what a later run goes on from. It is there whole at any time, in case this one is killed or the power fails.
    pub(super) fn save(&self, folder: &Path) -> Outcome<()> {
        fs::create_dir_all(folder).during(format!("making {}", folder.display()))?;
        let (path, part) = (folder.join(JSON), folder.join(format!("{JSON}.part")));
        let text = self.json()?;
        let write = || {
            let mut file = File::create(&part)?;
            file.write_all(text.as_bytes())?;
            // On the disk before it has its name: some file systems change names before they write what is behind them.
            file.sync_all()
        };
        write().during(format!("writing {}", part.display()))?;
        fs::rename(&part, &path).during(format!("writing {}", path.display()))
    }

    /// Writes all files.
    pub(super) fn write(&self, folder: &Path, scenarios: &[Scenario]) -> Outcome<()> {
        let charts = folder.join("charts");
        fs::create_dir_all(&charts).during(format!("making {}", charts.display()))?;
        let write = |name: &str, text: String| {
            let path = folder.join(name);
            fs::write(&path, text).during(format!("writing {}", path.display()))
        };
        self.save(folder)?;
        write("results.csv", self.csv())?;
        let report = report::Report::of(self, scenarios);
        write("README.md", report.markdown())?;
        write("report.html", report.page())?;
        remove_others(&charts, &report)?;
        let mut charts = report.charts();
        charts.try_for_each(|(name, svg)| write(&format!("charts/{name}.svg"), svg.to_owned()))
    }

    /// A line a record, so that files of two runs can be compared.
    fn json(&self) -> Outcome<String> {
        let line = |text: serde_json::Result<String>| text.map_err(|e| Failure::new(e.to_string()));
        let records: Outcome<Vec<String>> = self
            .records
            .iter()
            .map(|record| line(serde_json::to_string(record)))
            .collect();
        let missing: Outcome<Vec<String>> = self
            .missing
            .iter()
            .map(|missing| line(serde_json::to_string(missing)))
            .collect();
        Ok(format!(
            "{{\"machine\": {},\n\"search_seconds\": {}, \"seconds\": {}, \"scale\": {},\n\"whole\": {},\n\
             \"records\": [\n{}\n],\n\"missing\": [\n{}\n]}}\n",
            line(serde_json::to_string(&self.machine))?,
            self.search_seconds,
            self.seconds,
            self.scale,
            line(serde_json::to_string(&self.whole))?,
            records?.join(",\n"),
            missing?.join(",\n")
        ))
    }

    /// A line a record (RFC 4180). What nobody counted is empty: what kxdpgun was to send, whether unread answers were right,
    /// the time of a server that has no process here.
    fn csv(&self) -> String {
        let mut text = String::from(
            "scenario,contender,measure,repeat,figure,unit,server,door,generator,generator_mode,queues,offered,sent,right,\
             unwanted,loss,seconds,user_s,system_s,softirq_s,server_s,witness_asked,witness_answered,disturbed,machine,kernel,\
             commit,server_mode\n",
        );
        for record in &self.records {
            let words = [
                quoted(&record.scenario),
                quoted(&record.contender),
                record.measure.word().to_owned(),
                record.repeat.to_string(),
                format!("{:.3}", record.figure),
                quoted(&record.unit),
                quoted(&record.server),
                record.door.clone(),
                quoted(&record.generator),
                quoted(&record.generator_mode),
                record.queues.to_string(),
                told(record.offered > 0.0, format!("{:.0}", record.offered)),
                format!("{:.0}", record.sent),
                told(!record.is_unread(), format!("{:.0}", record.right)),
                format!("{:.0}", record.unwanted),
                told(record.sent > 0.0, format!("{:.6}", record.loss())),
                format!("{:.3}", record.seconds),
                format!("{:.2}", record.used.user),
                format!("{:.2}", record.used.system),
                format!("{:.2}", record.used.softirq),
                told(
                    record.server_seconds > 0.0,
                    format!("{:.2}", record.server_seconds),
                ),
                record.witness.asked.to_string(),
                record.witness.answered.to_string(),
                quoted(record.disturbed.as_deref().unwrap_or_default()),
                quoted(&self.machine.cpu),
                quoted(&self.machine.kernel),
                quoted(&record.commit),
                quoted(&record.server_mode),
            ];
            text += &words.join(",");
            text.push('\n');
        }
        text
    }
}

/// Removes charts of an earlier report that this one has no longer: they would look like its own.
fn remove_others(folder: &Path, report: &report::Report) -> Outcome<()> {
    let has = |path: &Path| {
        let name = path.file_stem().unwrap_or_default();
        report.charts().any(|(known, _)| name == known)
    };
    let what = || format!("tidying {}", folder.display());
    for entry in fs::read_dir(folder).during(what())? {
        let path = entry.during(what())?.path();
        if path.extension().is_some_and(|end| end == "svg") && !has(&path) {
            fs::remove_file(&path).during(what())?;
        }
    }
    Ok(())
}

/// A number that was told, or nothing.
fn told(is_told: bool, number: String) -> String {
    if is_told { number } else { String::new() }
}

/// A word for CSV.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('"', "\"\""))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::report::tests::{record, results};

    #[test]
    fn a_word_with_quotes_is_a_word_of_csv() {
        let mut results = results(vec![record("x, \"1\"", 1, 5.0)]);
        results.machine.cpu = "CPU 1".to_owned();
        results.machine.kernel = "Linux 6".to_owned();
        results.records[0].commit = "c0ffee".to_owned();
        results.records[0].server_mode = "copy mode".to_owned();
        let csv = results.csv();
        assert_eq!(csv.lines().count(), 2);
        assert!(csv.contains("\"x, \"\"1\"\"\""), "{csv}");
        let [names, values] = [0, 1].map(|line| csv.lines().nth(line).unwrap());
        // Two commas stand in quotes: the contender's and the mode's.
        assert_eq!(names.split(',').count() + 2, values.split(',').count());
        assert!(names.ends_with(",machine,kernel,commit,server_mode"));
        let ends = ",\"CPU 1\",\"Linux 6\",\"c0ffee\",\"copy mode\"";
        assert!(values.ends_with(ends), "{values}");
    }

    #[test]
    fn what_nobody_counted_is_no_nought() {
        let columns = |record: Record| {
            let csv = results(vec![record]).csv();
            let [names, values] = [0, 1].map(|line| csv.lines().nth(line).unwrap().to_owned());
            let names = names.split(',').map(str::to_owned);
            let all: BTreeMap<String, String> =
                names.zip(values.split(',').map(str::to_owned)).collect();
            ["offered", "right", "unwanted", "loss", "server_s"].map(|name| all[name].clone())
        };
        let mut run = record("a", 1, 5.0);
        run.generator_mode = "native".to_owned();
        assert_eq!(columns(run.clone()), ["", "990", "0", "0.010000", ""]);
        (run.offered, run.server_seconds) = (1000.0, 2.0);
        (run.right, run.unwanted) = (0.0, 900.0);
        assert_eq!(
            columns(run.clone()),
            ["1000", "", "900", "0.100000", "2.00"]
        );
        (run.sent, run.unwanted) = (0.0, 0.0);
        assert_eq!(columns(run), ["1000", "0", "0", "", "2.00"]);
    }

    #[test]
    fn a_record_without_a_commit_has_the_machines() {
        let folder = tempfile::tempdir().unwrap();
        let mut earlier = results(vec![record("a", 1, 5.0), record("b", 1, 7.0)]);
        earlier.machine.commit = "a1".to_owned();
        earlier.records[0].commit = "gone".to_owned();
        earlier.records[1].commit = "b2".to_owned();
        earlier.save(folder.path()).unwrap();
        let path = folder.path().join(JSON);
        let text = fs::read_to_string(&path).unwrap();
        let text = text.replace("\"commit\":\"gone\",", "");
        fs::write(&path, text.replace("\"server_mode\":\"\",", "")).unwrap();
        let read = Results::read(folder.path()).unwrap();
        let commits: Vec<&str> = read.records.iter().map(|one| &*one.commit).collect();
        assert_eq!(commits, ["a1", "b2"]);
    }

    #[test]
    fn what_is_written_is_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let written = results(vec![record("a", 1, 5.0), record("b", 1, 7.0)]);
        written.write(folder.path(), &[]).unwrap();
        let read = Results::read(folder.path()).unwrap();
        assert_eq!(read.records.len(), 2);
        assert_eq!(read.records[1].figure, 7.0);
        assert_eq!(read.missing, written.missing);
    }

    #[test]
    fn charts_of_an_earlier_report_go() {
        let folder = tempfile::tempdir().unwrap();
        let charts = folder.path().join("charts");
        fs::create_dir_all(&charts).unwrap();
        for name in ["limits.svg", "limits-2.svg", "notes.txt"] {
            fs::write(charts.join(name), "").unwrap();
        }
        let scenarios = crate::bench::plan::Library::ours().scenarios().unwrap();
        let written = results(vec![record("millrace, AF_XDP", 1, 5.0)]);
        written.write(folder.path(), &scenarios).unwrap();
        let drawn = fs::read_to_string(charts.join("limits.svg")).unwrap();
        assert!(drawn.contains("<svg"), "{drawn}");
        assert!(!charts.join("limits-2.svg").exists());
        assert!(charts.join("notes.txt").exists());
    }

    #[test]
    fn a_file_that_is_not_whole_is_told_with_what_to_do() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(JSON), "{\"machine\": ").unwrap();
        let failure = results(Vec::new()).going_on(folder.path()).unwrap_err();
        assert!(failure.to_string().contains("give another"), "{failure}");
    }

    #[test]
    fn a_folder_with_results_is_gone_on_with() {
        let folder = tempfile::tempdir().unwrap();
        let mut first = results(vec![record("a", 1, 5.0), record("b", 1, 7.0)]);
        first.records[1].scenario = "cache".to_owned();
        first.whole.insert("cache".to_owned(), 2);
        first.save(folder.path()).unwrap();
        let mut second = results(Vec::new()).going_on(folder.path()).unwrap();
        assert!(second.is_whole("cache", 2) && !second.is_whole("cache", 3));
        assert!(!second.is_whole("refused", 1));
        // What was cut short goes on with what it has; a failure is tried again.
        second.begin("refused", false, None);
        assert_eq!((second.records.len(), second.missing.len()), (2, 0));
        // What is named is measured anew; others stay.
        second.begin("refused", true, None);
        let left: Vec<&str> = second.records.iter().map(|one| &*one.scenario).collect();
        assert_eq!(left, ["cache"]);
        second.begin("cache", false, None);
        assert!(!second.is_whole("cache", 1));
    }

    #[test]
    fn contenders_of_another_machine_add_up_in_a_folder() {
        let mut results = results(vec![record("a", 1, 5.0), record("b", 1, 7.0)]);
        results.missing[0].contender = "a".to_owned();
        let mut whole = results.missing[0].clone();
        whole.contender.clear();
        results.missing.push(whole);
        results.begin("refused", true, Some("b"));
        let left: Vec<&str> = results.records.iter().map(|one| &*one.contender).collect();
        assert_eq!((left, results.missing.len()), (vec!["a"], 1));
        results.begin("refused", false, Some("a"));
        assert_eq!((results.records.len(), results.missing.len()), (1, 0));
    }

    #[test]
    fn results_of_something_else_are_not_gone_on_with() {
        let folder = tempfile::tempdir().unwrap();
        results(Vec::new()).save(folder.path()).unwrap();
        let mut shorter = results(Vec::new());
        shorter.search_seconds = 2;
        let failure = shorter.going_on(folder.path()).unwrap_err();
        assert!(failure.to_string().contains("--results"), "{failure}");
    }
}
