//! Configurations of any calls with any arguments: none panics, and queries to what they make of it get a verdict.

#![no_main]

use fuzz::program;
use fuzz::world::World;
use libfuzzer_sys::fuzz_target;
use millrace::config::pools::PoolNames;
use millrace::config::spec::{Purpose, Spec};
use millrace::config::{LuaState, derive};
use std::sync::Arc;
use wire::message::{QueryFlags, write_query};
use wire::name::Name;

/// Types asked for, some with EDNS.
const QUERIES: [(u16, Option<u16>); 3] = [(1, None), (255, Some(1_232)), (28, Some(4_096))];

const NAMES: [&[u8]; 3] = [
    b"\x03www\x07example\x03com\x00",
    b"\x07blocked\x07example\x00",
    b"\x00",
];

fuzz_target!(|octets: &[u8]| {
    let text = program::write(octets);
    let spec = Spec::new(Purpose::Check, PoolNames::default());
    let state = LuaState::new(spec).expect("a state");
    let _ = state.run("fuzz.lua", text.as_bytes());
    let Ok(config) = state.edit(|spec| derive(spec, None)) else {
        return;
    };
    // Again, as a reload would: everything is found again.
    state
        .edit(|spec| derive(spec, Some(&config)).map(|_| ()))
        .expect("what was derived once");
    let mut world = World::with_config(Arc::new(config));
    for (qtype, payload_size) in QUERIES {
        for name in NAMES {
            let mut message = [0; 282];
            let name = Name::parse(name).expect("a name");
            let flags = QueryFlags {
                recursion_desired: true,
                payload_size,
                ..QueryFlags::default()
            };
            let length = write_query(&mut message, 0x1234, (name, qtype, 1), flags);
            let length = length.expect("282 octets do");
            // Inside the ACL that there is unless a call changes it.
            world.ask("192.168.0.7:4242".parse().unwrap(), &message[..length]);
        }
    }
});
