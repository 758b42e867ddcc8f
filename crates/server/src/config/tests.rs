//! Configurations from text to what workers read.

use super::error::ConfigError;
use super::lua::state::LuaState;
use super::pools::PoolNames;
use super::spec::{Purpose, Spec};
use super::{Config, derive};

fn state(text: &str) -> Result<LuaState, ConfigError> {
    let state = LuaState::new(Spec::new(Purpose::Serve, PoolNames::default()))?;
    state.run("test.conf", text.as_bytes())?;
    Ok(state)
}

fn config(text: &str) -> Result<Config, ConfigError> {
    state(text)?.edit(|spec| derive(spec, None))
}

/// The one message of a configuration that does not load.
fn error(text: &str) -> String {
    match config(text) {
        Ok(_) => panic!("this loads: {text}"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn configuration_a() {
    let config = config(
        r#"for i=1,8 do addLocal("192.0.2.1:53", {reusePort=true}) end
           addAction(AllRule(), RCodeAction(DNSRCode.REFUSED))"#,
    )
    .unwrap();
    assert_eq!(config.listeners.len(), 1);
    assert_eq!(config.listeners[0].sockets, 8);
    assert_eq!(config.rules.len(), 1);
}

#[test]
fn errors_tell_file_and_line() {
    for (text, expected) in [
        (
            "addLocl('192.0.2.1')",
            "test.conf:1: attempt to call global 'addLocl' (a nil value): neither dnsdist nor millrace has 'addLocl', and no line before this one defines it",
        ),
        ("\nx = = 1", "test.conf:2: unexpected symbol near '='"),
        (
            "addLocal('192.0.2.300')",
            "test.conf:1: addLocal: '192.0.2.300' is not an address: 192.0.2.1, 192.0.2.1:53, 2001:db8::1 or [2001:db8::1]:53 expected",
        ),
        (
            "addLocal()",
            "test.conf:1: addLocal: argument 1: a string expected, got nil",
        ),
        (
            "addLocal('192.0.2.1', {reusePort=5})",
            "test.conf:1: addLocal: reusePort: true or false expected, got 5",
        ),
        (
            "addAction(5, RCodeAction(5))",
            "test.conf:1: addAction: argument 1: a selector, a netmask or a name expected, got 5",
        ),
        ("error('mine')", "test.conf:1: mine"),
        ("os.exit(3)", "os.exit(3) was called"),
    ] {
        assert_eq!(error(text), expected);
    }
}
