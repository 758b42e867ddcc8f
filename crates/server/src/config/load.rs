//! Reads a configuration file into a new Lua state.

use super::error::ConfigError;
use super::lua::state::LuaState;
use super::named::{LocalAddress, NamedListener, NamedSpec};
use super::place::Place;
use super::pools::PoolNames;
use super::spec::{ListenerSpec, Purpose, Remark, RemarkKind, ServerSpec, Spec};
use super::{Config, Xdp, defaults};
use crate::pipeline::acl::Netmask;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// What the command line says over the file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Overrides {
    /// `-l`: served in place of the file's listeners.
    pub listeners: Vec<LocalAddress>,
    /// `-a`: the ACL that the file starts with, in place of the default one.
    pub acl: Vec<Netmask>,
    /// Arguments beside the options: more backends.
    pub servers: Vec<SocketAddr>,
}

/// How long a file may run in a reload: nothing else is done for the instance meanwhile.
const RELOAD: Duration = Duration::from_secs(60);

/// Runs `file` (none: dnsdist's defaults) in a new Lua state, which is returned with the Spec that it filled.
/// `previous` is the configuration that serves now: with one, a file that runs for more than a minute is stopped.
///
/// # Errors
/// An unreadable file, what Lua stopped at, or `os.exit`.
pub fn load(
    file: Option<&Path>,
    overrides: &Overrides,
    purpose: Purpose,
    previous: Option<&Config>,
) -> Result<LuaState, ConfigError> {
    let pool_names =
        previous.map_or_else(PoolNames::default, |previous| previous.pool_names.clone());
    let mut spec = Spec::new(purpose, pool_names);
    if !overrides.acl.is_empty() {
        spec.acl.clone_from(&overrides.acl);
    }
    let state = LuaState::new(spec)?.succeeding(previous);
    if let Some(file) = file {
        let path = file.display().to_string();
        refuse_yaml(file, &path)?;
        let text = std::fs::read(file).map_err(|error| ConfigError::Unreadable {
            path: path.clone(),
            reason: error.to_string(),
        })?;
        let run = match previous {
            None => state.run(&path, &text),
            Some(_) => state.run_within(RELOAD, &path, &text),
        };
        // What stops it may be meant for dnsdist, or for another version: a client has what it needs.
        let is_enough = purpose == Purpose::Client
            && state.edit(|spec| spec.console.address.is_some() && spec.console.key.is_some());
        if !is_enough {
            run?;
        }
    }
    state.edit(|spec| {
        apply(overrides, spec);
        remark_unserved(spec);
    });
    Ok(state)
}

/// dnsdist takes files that end so for its other language.
fn refuse_yaml(file: &Path, path: &str) -> Result<(), ConfigError> {
    if file.extension().is_some_and(|extension| extension == "yml") {
        let reason = "YAML is not in millrace yet: write the configuration in Lua".to_owned();
        return Err(ConfigError::Unreadable {
            path: path.to_owned(),
            reason,
        });
    }
    Ok(())
}

fn apply(overrides: &Overrides, spec: &mut Spec) {
    for address in &overrides.servers {
        let key = spec.next_server_key();
        let options = defaults::server(*address);
        spec.servers.push(ServerSpec {
            place: Place::command_line(),
            key,
            id_given: false,
            options,
            live: None,
        });
    }
    if !overrides.listeners.is_empty() {
        spec.listeners.clear();
        spec.paths.clear();
    }
    for address in &overrides.listeners {
        match address {
            LocalAddress::Ip(address) => spec.listeners.push(plain_listener(*address)),
            LocalAddress::Path(path) => spec.paths.push(NamedSpec {
                place: Place::command_line(),
                listener: NamedListener::plain(Arc::clone(path)),
            }),
        }
    }
}

/// Remarks on paths that the acl of a zone names and nobody listens at.
fn remark_unserved(spec: &mut Spec) {
    let is_served = |path: &Path| {
        let mut lines = spec.paths.iter();
        lines.any(|line| *line.listener.path == *path)
    };
    let mut remarks = Vec::new();
    for zone in &spec.zones.list {
        let unserved = zone.settings.acl.paths().filter(|path| !is_served(path));
        remarks.extend(unserved.map(|path| Remark {
            place: zone.place.clone(),
            kind: RemarkKind::UnservedPath,
            subject: path.display().to_string(),
        }));
    }
    for remark in remarks {
        spec.remark(remark);
    }
}

fn plain_listener(address: SocketAddr) -> ListenerSpec {
    ListenerSpec {
        place: Place::command_line(),
        address,
        reuse_port: false,
        xdp: Xdp::Off,
        tcp_listen_queue_size: defaults::TCP_LISTEN_QUEUE_SIZE,
        maximum_tcp_connections: 0,
        cpus: Vec::new(),
        tcp_in_flight: 0,
        interface: None,
        tcp_fast_open_queue: 0,
        proxy_protocol: true,
    }
}
