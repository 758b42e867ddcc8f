//! The command line, from outside: what is printed where, and the exit status (reference §0.1).

use std::io::Write;
use std::process::{Command, Output};

fn millrace(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_millrace"))
        .args(words)
        .output()
        .expect("the program was built with this test")
}

/// What `--check-config` makes of a file with this text.
fn check(text: &str, words: &[&str]) -> (Output, String) {
    let mut file = tempfile::NamedTempFile::new().expect("there is room for a temporary file");
    file.write_all(text.as_bytes())
        .expect("it was opened for writing");
    let path = file.path().display().to_string();
    let output = millrace(&[&["--check-config", "--supervised", "-C", &path], words].concat());
    (output, path)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

const GOOD: &str = "addLocal('127.0.0.1:5399')";

#[test]
fn a_good_file_is_said_in_dnsdists_words() {
    let (output, path) = check(GOOD, &[]);
    let line = text(&output.stderr);
    assert!(
        line.starts_with(r#"msg="Configuration OK" subsystem="setup" level="0" prio="Info" ts=""#),
        "{line}"
    );
    assert!(line.ends_with(&format!("\" path=\"{path}\"\n")), "{line}");
    assert_eq!(line.lines().count(), 1);
    assert_eq!(
        (text(&output.stdout).as_str(), output.status.code()),
        ("", Some(0))
    );
}

#[test]
fn a_good_file_is_said_in_plain_text() {
    let (output, path) = check(GOOD, &["--structured-logging", "false"]);
    assert_eq!(
        text(&output.stdout),
        format!("Configuration '{path}' OK!\n")
    );
    assert_eq!(text(&output.stderr), "");
}

#[test]
fn a_good_file_is_said_in_json() {
    let words = [
        "--structured-logging",
        "true",
        "--structured-logging-backend",
        "json",
    ];
    let (output, path) = check(GOOD, &words);
    let expected = format!(r#"{{"level": "0", "msg": "Configuration OK", "path": "{path}", "#);
    assert!(text(&output.stderr).starts_with(&expected));
}

#[test]
fn every_example_is_good() {
    let examples = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples");
    let files = std::fs::read_dir(examples).expect("examples are a part of the project");
    let paths = files.map(|file| file.expect("the folder can be read").path());
    for path in paths.filter(|path| path.extension().is_some_and(|extension| extension == "lua")) {
        let path = path.display().to_string();
        let output = millrace(&[
            "--check-config",
            "--structured-logging",
            "false",
            "-C",
            &path,
        ]);
        assert_eq!(
            text(&output.stdout),
            format!("Configuration '{path}' OK!\n")
        );
        assert_eq!(text(&output.stderr), "");
    }
}

#[test]
fn what_only_observes_is_not_mentioned_by_a_check() {
    let words = ["--structured-logging-backend", "systemd-journal"];
    let (output, _) = check(
        "setVerboseHealthChecks(true) addLocal('127.0.0.1:5399', {cpus={1}})",
        &words,
    );
    assert_eq!(text(&output.stderr).lines().count(), 1);
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn a_bad_file_is_exit_status_1_with_file_and_line() {
    let (output, path) = check("\nnosuch()", &["--structured-logging", "false"]);
    let said = text(&output.stdout);
    assert!(
        said.starts_with(&format!(
            "{path}:2: attempt to call global 'nosuch' (a nil value)"
        )),
        "{said}"
    );
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn a_file_that_is_not_there_is_exit_status_1() {
    let output = millrace(&["--check-config", "-C", "/nonexistent/millrace.conf"]);
    assert!(
        text(&output.stderr)
            .contains("/nonexistent/millrace.conf: cannot be read: No such file or directory")
    );
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn os_exit_is_the_exit_status() {
    for status in [0, 3] {
        let (output, _) = check(&format!("os.exit({status})"), &[]);
        assert_eq!(output.status.code(), Some(status));
        assert_eq!(
            (text(&output.stdout), text(&output.stderr)),
            Default::default()
        );
    }
}

#[test]
fn an_unknown_option_of_a_table_is_a_warning_line() {
    let (output, path) = check(
        "addLocal('127.0.0.1:5399', {reuseport=true})",
        &["--structured-logging", "false"],
    );
    assert_eq!(
        text(&output.stdout),
        format!(
            "Unknown option, ignored (place {path}:1, option addLocal: reuseport)\nConfiguration '{path}' OK!\n"
        )
    );
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn the_version_begins_with_dnsdists_name() {
    let output = millrace(&["--version"]);
    assert!(text(&output.stdout).starts_with("dnsdist (millrace "));
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn wrong_words_are_exit_status_1() {
    for words in [
        &["--nosuch"][..],
        &["-l", "nowhere"],
        &["-e", "showServers()"],
        &["--acl", "x"],
    ] {
        let output = millrace(words);
        assert_eq!(
            (output.status.code(), text(&output.stdout).as_str()),
            (Some(1), ""),
            "{words:?}"
        );
        assert_ne!(text(&output.stderr), "", "{words:?}");
    }
}
