//! The service under its AppArmor profile, where the kernel has AppArmor: on the kernels of `./dev test kernels`, and on machines
//! that use it.

use super::{
    LISTEN_BEHIND, Rig, Unit, configuration, is_confined_by, prepare_bpffs, serves, serves_behind,
};
use crate::restart::{Backend, end, restarted};
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use tempfile::NamedTempFile;
use testnet::lab::Topology;
use testnet::subject::StartedBy;

const PATH: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../packaging/apparmor/millrace"
);

/// Beside the profile of a service that runs on this machine.
const NAME: &str = "millrace-followed";

/// Everybody may read it, and the profile says nothing of it. It is there where profiles are (`abi <abi/3.0>`); a file of the
/// checkout may lie where the folders of tests are, which the profile allows here.
const UNLISTED: &str = "/etc/apparmor.d/abi/3.0";

/// The profile, loaded as long as this lives.
struct Profile(NamedTempFile);

impl Profile {
    /// With the folders of tests in the place of /run/millrace, and the program where it was built. `None`: there is no AppArmor.
    fn load() -> Option<Profile> {
        if !Path::new("/sys/kernel/security/apparmor/.replace").exists() {
            println!("SKIP: AppArmor is not in use here, so the profile is not tried");
            return None;
        }
        let text = fs::read_to_string(PATH).expect("the profile");
        let mut changed = text;
        let folders = format!("{}/", std::env::temp_dir().display());
        for (old, new) in [
            ("profile millrace ", format!("profile {NAME} ")),
            ("peer=millrace,", format!("peer={NAME},")),
            (
                "/usr/bin/millrace ",
                format!("{} ", env!("CARGO_BIN_EXE_millrace")),
            ),
            ("/run/millrace/", folders),
        ] {
            assert!(changed.contains(old), "the profile has no {old}");
            changed = changed.replace(old, &new);
        }
        let mut file = NamedTempFile::new().expect("a file");
        file.write_all(changed.as_bytes()).expect("to write");
        let profile = Profile(file);
        profile.parser("--replace");
        Some(profile)
    }

    fn parser(&self, option: &str) {
        let mut parser = Command::new("apparmor_parser");
        parser.args([option, "--skip-cache"]).arg(self.0.path());
        let output = parser.output().expect("apparmor_parser");
        assert!(output.status.success(), "{option}: {output:?}");
    }
}

impl Drop for Profile {
    fn drop(&mut self) {
        self.parser("--remove");
    }
}

/// What the kernel has written of calls that this profile refused, but for so many lines of earlier runs.
fn refused(earlier: usize) -> Vec<String> {
    let output = Command::new("dmesg").output().expect("dmesg");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let lines = text.lines().filter(|line| {
        line.contains("apparmor=\"DENIED\"") && line.contains(&format!("profile=\"{NAME}\""))
    });
    lines.skip(earlier).map(str::to_owned).collect()
}

/// As the unit's user with its capabilities; the profile comes with the daemon's start, as AppArmorProfile= has it.
fn started_by() -> StartedBy {
    let mut command = Unit::read().command();
    let script = format!("echo exec {NAME} >/proc/self/attr/apparmor/exec; exec \"$@\"");
    command.extend(["sh", "-c", &script, "sh"].map(str::to_owned));
    StartedBy {
        command,
        denied: Vec::new(),
    }
}

#[test]
fn under_the_profile_the_service_serves_reloads_and_restarts_and_nothing_is_refused() {
    let Some(_profile) = Profile::load() else {
        return;
    };
    let Some(lab) = Rig::lab("confined", Topology::TwoInterfaces) else {
        return;
    };
    prepare_bpffs(&lab);
    let earlier = refused(0).len();
    let mut rig = Rig::start_by(lab, &configuration(""), &started_by());
    let _backend = Backend::start(&rig, Duration::ZERO);
    is_confined_by(&rig, NAME);
    serves(&rig);
    rig.says("mode, to be kept");
    let said = rig.reload(&configuration(LISTEN_BEHIND));
    assert!(said.contains("enp2s0: AF_XDP program attached"), "{said}");
    serves_behind(&rig);
    let process = restarted(&mut rig);
    is_confined_by(&rig, NAME);
    serves(&rig);
    serves_behind(&rig);
    assert_eq!(refused(earlier), Vec::<String>::new(), "{}", rig.log());
    // And something is: a file that the profile does not list.
    let reads = format!("assert(io.open(\"{UNLISTED}\"))\n");
    let said = rig.reload(&configuration(&reads));
    assert!(said.contains("Permission denied"), "{said}");
    let refused = refused(earlier);
    assert!(
        refused.iter().all(|line| line.contains(UNLISTED)),
        "{refused:?}"
    );
    assert!(
        !refused.is_empty(),
        "the kernel tells of nothing that it refuses"
    );
    end(process);
}
