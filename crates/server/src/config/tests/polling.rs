//! millrace.setBusyPoll and millrace.setXDPMode.

use super::{config, error};
use xsk::{AttachMode, BindMode, BusyPoll};

#[test]
fn busy_polling_is_off_until_it_is_asked_for() {
    let polled = |text: &str| config(text).tuning.busy_poll;
    let wish = |microseconds, budget| {
        Some(BusyPoll {
            microseconds,
            budget,
        })
    };
    assert_eq!(polled(""), None);
    assert_eq!(polled("millrace.setBusyPoll()"), wish(20, 64));
    assert_eq!(
        polled("millrace.setBusyPoll{microseconds=50, budget=8}"),
        wish(50, 8)
    );
    assert_eq!(polled("millrace.setBusyPoll{microseconds=0}"), None);
}

#[test]
fn what_cannot_be_polled_with_is_an_error() {
    for (options, why) in [
        ("budget=0", "budget: 1 to 64 expected, got 0"),
        ("budget=65", "budget: 1 to 64 expected, got 65"),
        (
            "microseconds=-1",
            "microseconds: 0 to 1000000 expected, got -1",
        ),
        (
            "microseconds=1000001",
            "microseconds: 0 to 1000000 expected, got 1000001",
        ),
    ] {
        let said = error(&format!("millrace.setBusyPoll{{{options}}}"));
        assert!(said.contains(why), "{said}");
    }
}

#[test]
fn a_driver_with_faults_is_used_less() {
    for (text, expected) in [
        ("", (AttachMode::Auto, BindMode::Auto)),
        (
            "millrace.setXDPMode('copy')",
            (AttachMode::Auto, BindMode::Copy),
        ),
        (
            "millrace.setXDPMode('generic')",
            (AttachMode::Generic, BindMode::Copy),
        ),
        (
            "millrace.setXDPMode('copy') millrace.setXDPMode('auto')",
            (AttachMode::Auto, BindMode::Auto),
        ),
    ] {
        let tuning = config(text).tuning;
        assert_eq!((tuning.attach_mode, tuning.bind_mode), expected, "{text}");
    }
    let said = error("millrace.setXDPMode('native')");
    let expected = "\"auto\", \"copy\" or \"generic\" expected, got 'native'";
    assert!(
        said.starts_with("test.conf:1: ") && said.ends_with(expected),
        "{said}"
    );
}
