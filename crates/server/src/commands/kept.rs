//! `millrace xdp load` and `millrace xdp unload`: a program that stays on an interface between two runs, by hand; and what
//! `millrace xdp status --interface` tells of it when there is nobody to ask.

use crate::network::helper::protocol::mode;
use crate::network::interrupts::Interrupts;
use crate::network::privileges;
use clap::Args;
use nix::unistd::User;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use xsk::nic::Nic;
use xsk::{AttachMode, DNSDIST_PINS, Found, Owner, Program};

/// What `millrace xdp load` takes.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub(super) struct LoadArguments {
    /// The interface to attach it to
    #[arg(long)]
    interface: String,

    /// Attach, in place of our own program, one for a dnsdist (1.9 and newer) that is to be started, and pin its maps
    #[arg(long)]
    dnsdist: bool,

    /// Where these maps are pinned
    #[arg(long, value_name = "FOLDER", requires = "dnsdist", default_value = DNSDIST_PINS)]
    pins: PathBuf,

    /// Who is to open them; _dnsdist or dnsdist unless named, and root alone where neither is known
    #[arg(long, value_name = "USER", requires = "dnsdist")]
    owner: Option<String>,
}

impl LoadArguments {
    /// Attaches a program and keeps it: without a socket in its map it passes everything.
    pub(super) fn run(&self) -> ExitCode {
        privileges::raise_memlock();
        if self.dnsdist {
            load_for_dnsdist(&self.interface, &self.pins, self.owner.as_deref())
        } else {
            load(&self.interface)
        }
    }
}

/// The users that packages of dnsdist make: Debian's, and PowerDNS's own.
const SERVICE_USERS: [&str; 2] = ["_dnsdist", "dnsdist"];

fn load_for_dnsdist(interface: &str, pins: &Path, owner: Option<&str>) -> ExitCode {
    let attached = owner_of_pins(owner).and_then(|owner| xsk::load_dnsdist(interface, pins, owner));
    say(attached.map(|attachment| {
        format!(
            "{interface}: program for dnsdist attached in {} and kept; its maps are pinned in {}",
            mode(&attachment),
            pins.display()
        )
    }))
}

fn owner_of_pins(named: Option<&str>) -> xsk::Result<Option<Owner>> {
    let find = |name: &str| {
        let user = User::from_name(name).ok().flatten()?;
        Some(Owner {
            user: user.uid.as_raw(),
            group: user.gid.as_raw(),
        })
    };
    let unknown = |name| xsk::Error::Invalid(format!("there is no user {name}"));
    match named {
        Some(name) => find(name).map(Some).ok_or_else(|| unknown(name)),
        None => Ok(SERVICE_USERS.into_iter().find_map(find)),
    }
}

/// What is on an interface while no instance runs that could tell.
pub(super) fn status(interface: &str) -> ExitCode {
    let found = Nic::by_name(interface).and_then(|nic| Found::on(&nic));
    say(found.map(|found| match found {
        None => format!("{interface}: no millrace runs, and no XDP program is attached"),
        Some(found) => told(interface, "no millrace runs; what is attached", &found),
    }))
}

/// What is on an interface that the running instance has no program on, if there is something.
pub(super) fn told_beside(interface: &str) -> Option<String> {
    let nic = Nic::by_name(interface).ok()?;
    let found = Found::on(&nic).ok()??;
    let line = "not the running millrace's: kernel sockets serve there; what is attached";
    Some(told(interface, line, &found))
}

fn told(interface: &str, line: &str, found: &Found) -> String {
    let mut text = format!("{interface}: {line}\n  program   {found}");
    if !found.maps.is_empty() {
        text += &format!("\n  maps      {}", found.maps.join(", "));
    }
    for pin in &found.pins {
        text += &format!("\n  pinned    {}", pin.display());
    }
    text
}

fn load(interface: &str) -> ExitCode {
    let attached = Nic::by_name(interface).and_then(|nic| {
        let mut program = Program::load()?;
        program.attach_kept(nic.index, AttachMode::Auto)
    });
    say(attached.map(|attachment| {
        format!(
            "{interface}: program attached in {} and kept; it passes everything until millrace serves with millrace.setKeepXDP(true)",
            mode(&attachment)
        )
    }))
}

/// Takes it off again, and what a stopped millrace has kept.
pub(super) fn unload(interface: &str) -> ExitCode {
    let unloaded = say(xsk::unload(interface).map(|was_there| match was_there {
        true => format!("{interface}: the program is taken off"),
        false => format!("{interface}: no program is kept there"),
    }));
    let restored = Nic::by_name(interface).map_or(Ok(false), |nic| {
        let interrupts = Interrupts::of(nic.index);
        interrupts.restore()
    });
    match restored {
        Ok(false) => unloaded,
        Ok(true) => {
            super::put(format_args!(
                "{interface}: interrupts come as before a millrace that was killed\n"
            ));
            unloaded
        }
        Err(error) => {
            super::complain(format_args!("{interface}: {error}"));
            ExitCode::FAILURE
        }
    }
}

fn say(outcome: xsk::Result<String>) -> ExitCode {
    match outcome {
        Ok(line) => {
            super::put(format_args!("{line}\n"));
            ExitCode::SUCCESS
        }
        Err(error) => {
            super::complain(error);
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_of_an_interface() {
        let found = Found {
            id: 7,
            native: true,
            name: Some("dnsdist".to_owned()),
            tag: Some("00f1e2d3c4b5a697".to_owned()),
            maps: vec!["xsk_map".to_owned(), "xskDestinations".to_owned()],
            pins: vec![PathBuf::from("/sys/fs/bpf/dnsdist/xskmap")],
        };
        let expected = "\
enp1s0: no millrace runs; what is attached
  program   dnsdist, id 7, in native mode, tag 00f1e2d3c4b5a697
  maps      xsk_map, xskDestinations
  pinned    /sys/fs/bpf/dnsdist/xskmap";
        let line = "no millrace runs; what is attached";
        assert_eq!(told("enp1s0", line, &found), expected);
    }

    #[test]
    fn a_user_who_is_named_must_be_there() {
        let root = owner_of_pins(Some("root")).expect("root");
        assert_eq!(root, Some(Owner { user: 0, group: 0 }));
        assert!(owner_of_pins(Some("nobody-of-this-name")).is_err());
    }
}
