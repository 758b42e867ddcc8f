//! Frames through parser, pipeline and exchange table to answers, with time, true answers and junk in between: the
//! invariants I1, I2, I7 and I11 hold, whatever comes.

#![no_main]

use fuzz::input::Input;
use fuzz::world::{World, receive_both};
use libfuzzer_sys::fuzz_target;
use std::time::Duration;
use wire::message::{HEADER_LENGTH, Header, parse_query};

/// Inside the ACL, of both families; one that a rule drops; one outside.
const CLIENTS: [&str; 4] = [
    "192.0.2.7:4242",
    "[2001:db8::7]:4242",
    "192.0.2.66:4242",
    "203.0.113.7:4242",
];

fuzz_target!(|octets: &[u8]| {
    let mut world = World::default();
    let mut input = Input::new(octets);
    while let Some(step) = input.octet() {
        let choice = usize::from(step) / 8;
        match step % 8 {
            0 => receive_both(&mut world, input.piece().unwrap_or_default()),
            1 | 2 => {
                let client = CLIENTS[choice % CLIENTS.len()].parse().unwrap();
                world.ask(client, input.piece().unwrap_or_default());
            }
            3 => world.wait(Duration::from_millis(
                input.number().unwrap_or_default().into(),
            )),
            _ if world.waiting() == 0 => {}
            4 => {
                let index = choice % world.waiting();
                let message = junk(&world, index, input.piece().unwrap_or_default());
                world.answer(index, &message);
            }
            5 | 6 => {
                let index = choice % world.waiting();
                let message = with_records(&world, index, input.piece().unwrap_or_default());
                world.answer(index, &message);
            }
            _ => {
                let index = choice % world.waiting();
                let message = world.true_answer(index);
                world.forge(index, &message);
            }
        }
    }
    world.settle();
});

/// Any octets as a response under the right ID.
fn junk(world: &World, index: usize, octets: &[u8]) -> Vec<u8> {
    let mut message = octets.to_vec();
    if let Some(mut header) = Header::read(&message) {
        header.set_id(id(world, index));
        header.set_qr(true);
        header.write(&mut message).expect("it was just read there");
    }
    message
}

/// A response to the right question, with flags, counts and records of any octets.
fn with_records(world: &World, index: usize, octets: &[u8]) -> Vec<u8> {
    let answer = world.true_answer(index);
    let (head, records) = octets.split_at(octets.len().min(HEADER_LENGTH));
    let mut message = [head, &[0; HEADER_LENGTH][head.len()..]].concat();
    let mut header = Header::read(&message).expect("twelve octets");
    header.set_id(id(world, index));
    header.set_qr(true);
    header.set_question_count(1);
    header.write(&mut message).expect("twelve octets");
    [&message, &answer[HEADER_LENGTH..], records].concat()
}

fn id(world: &World, index: usize) -> u16 {
    let answer = world.true_answer(index);
    debug_assert!(parse_query(&answer).is_err(), "a response");
    u16::from_be_bytes([answer[0], answer[1]])
}
