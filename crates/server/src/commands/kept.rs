//! `millrace xdp load` and `millrace xdp unload`: a program that stays on an interface between two runs, by hand.

use crate::network::interrupts::Interrupts;
use crate::network::privileges;
use std::process::ExitCode;
use xsk::nic::Nic;
use xsk::{AttachMode, Program};

/// Attaches the program and keeps it: without a socket in its map it passes everything.
pub(super) fn load(interface: &str) -> ExitCode {
    privileges::raise_memlock();
    let attached = Nic::by_name(interface).and_then(|nic| {
        let mut program = Program::load()?;
        program.attach_kept(nic.index, AttachMode::Auto)
    });
    say(attached.map(|attachment| {
        format!(
            "{interface}: program attached in {:?} mode and kept; it passes everything until millrace serves with millrace.setKeepXDP(true)",
            attachment.mode
        )
    }))
}

/// Takes it off again, and what a stopped millrace has kept.
pub(super) fn unload(interface: &str) -> ExitCode {
    let unloaded = say(xsk::unload(interface).map(|was_there| match was_there {
        true => format!("{interface}: the program is taken off"),
        false => format!("{interface}: no program is kept there"),
    }));
    match Interrupts::of(interface).restore() {
        Ok(false) => unloaded,
        Ok(true) => {
            println!("{interface}: interrupts come as before a millrace that was killed");
            unloaded
        }
        Err(error) => {
            eprintln!("{interface}: {error}");
            ExitCode::FAILURE
        }
    }
}

fn say(outcome: xsk::Result<String>) -> ExitCode {
    match outcome {
        Ok(line) => {
            println!("{line}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
