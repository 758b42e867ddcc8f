//! What comes from clients of the control socket and of the console: any line is a request that is written as it was read, or
//! an error of one line; no box is opened that was not sealed with the key, and keys are read as they are written.

#![no_main]

use libfuzzer_sys::fuzz_target;
use millrace::control::console::wire::{Cipher, Key, LENGTH_LENGTH, NONCE_LENGTH, OVERHEAD};
use millrace::control::protocol::{Reply, parse};

/// A key in base64: 32 zeros.
const KEY: &str = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";

fuzz_target!(|octets: &[u8]| {
    sealed(octets);
    let Ok(text) = std::str::from_utf8(octets) else {
        return;
    };
    if let Ok(key) = text.parse::<Key>() {
        // With its padding or without.
        let written = key.base64();
        assert!(
            [&written, written.trim_end_matches('=')].contains(&text.trim()),
            "{written} {text}"
        );
    }
    match parse(text) {
        Err(error) => {
            assert!(!error.is_empty());
            let line = Reply::Error(error).line();
            assert_eq!(line.matches('\n').count(), 1, "{line}");
        }
        Ok(request) => {
            let line = Reply::of(&request).line();
            assert_eq!(line.matches('\n').count(), 1, "{line}");
            let written = line.strip_prefix("{\"result\":");
            let written = written.and_then(|line| line.strip_suffix("}\n"));
            assert_eq!(parse(written.expect("a result")), Ok(request));
        }
    }
});

/// The octets as a box from nobody, and as a text that goes through, whole or not at all.
fn sealed(octets: &[u8]) {
    let key: Key = KEY.parse().expect("a key");
    let (ours, theirs) = ([1; NONCE_LENGTH], [2; NONCE_LENGTH]);
    let reader = || Cipher::new(&key, &theirs, &ours);
    assert!(reader().open(octets).is_err(), "a forgery");
    let message = Cipher::new(&key, &ours, &theirs).seal(octets);
    let (length, sealed) = message.split_at(LENGTH_LENGTH);
    assert_eq!(length, (sealed.len() as u32).to_be_bytes());
    assert_eq!(sealed.len(), octets.len() + OVERHEAD);
    assert_eq!(reader().open(sealed).as_deref(), Ok(octets));
    let mut changed = sealed.to_vec();
    let place = octets.first().map_or(0, |octet| usize::from(*octet)) % changed.len();
    changed[place] ^= 1;
    assert!(reader().open(&changed).is_err(), "a forgery");
}
