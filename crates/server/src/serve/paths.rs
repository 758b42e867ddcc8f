//! Listeners at paths: bound at a start or a reload, as the paths of the configuration come and go. A path where nobody can be
//! served is a line for the operator, and every other listener serves; the next reload tries again.

use super::Daemon;
use super::failure::StartError;
use crate::at_path::PathError;
use crate::config::{Config, NamedListener};
use crate::frontend::inherited::Inherited;
use crate::frontend::named::{NamedSocket, Owner};
use crate::instance::Instance;
use crate::log;
use crate::network::privileges;
use nix::unistd::Gid;
use std::sync::Arc;

/// Listens at all paths, while there are privileges for it. `group`: that of the service, which may connect too.
///
/// # Errors
/// There is no such group, or nobody at all can be served.
pub(super) fn open(
    group: Option<&str>,
    instance: &Instance,
    inherited: &mut Inherited,
) -> Result<(), StartError> {
    let group = group.map(privileges::group_number).transpose();
    let group = group.map_err(|error| StartError::System(error.to_string()))?;
    let config = instance.config.load();
    let (mut serving, mut lines) = (Vec::new(), Vec::new());
    for listener in &config.named {
        match open_one(listener, group, inherited) {
            Ok(socket) => serving.push(Arc::new(socket)),
            Err(error) => lines.push(refusal(listener, &error)),
        }
    }
    if config.listeners.is_empty() && serving.is_empty() && !lines.is_empty() {
        return Err(StartError::System(lines.join("\n")));
    }
    lines.iter().for_each(|line| log::error!("{line}"));
    instance.named.replace(serving);
    leave_others(instance, inherited);
    Ok(())
}

fn open_one(
    listener: &NamedListener,
    group: Option<Gid>,
    inherited: &mut Inherited,
) -> Result<NamedSocket, PathError> {
    let path = &listener.path;
    let taken = inherited.take_named(path);
    let taken = taken.map(|(socket, owner)| NamedSocket::inherit(path, socket, owner));
    // One whose file is gone is of no use: nobody can connect to it.
    if let Some(Ok(socket)) = taken {
        return Ok(socket);
    }
    let socket = NamedSocket::bind(path, listener.tcp_listen_queue_size)?;
    if let Some(group) = group {
        socket.socket.give_to(group)?;
    }
    Ok(socket)
}

/// What has come from another process and is at no path of the configuration.
fn leave_others(instance: &Instance, inherited: &mut Inherited) {
    for (path, (listener, owner)) in inherited.take_all_named() {
        log::notice!("{} is not served any more", path.display());
        // The process before this one serves it until it ends; one whose file is gone leaves nothing behind.
        if owner == Owner::Successor
            && let Ok(socket) = NamedSocket::inherit(&path, listener, owner)
        {
            instance.named.leave(socket);
        }
    }
}

fn refusal(listener: &NamedListener, error: &PathError) -> String {
    format!("cannot serve {}: {error}", listener.path.display())
}

impl Daemon {
    /// Listens at the paths of `config`, by the sockets that are there, and at no others; what cannot be had.
    pub(super) fn listen_at_paths(&self, config: &Config) -> Vec<String> {
        let sockets = &self.instance.named;
        let (mut serving, mut new, mut lines) = (Vec::new(), Vec::new(), Vec::new());
        for listener in &config.named {
            let known = sockets.at(&listener.path);
            // Whoever has removed the file wants it back, or would not name it.
            if let Some(socket) = known.filter(|named| named.socket.is_there()) {
                serving.push(socket);
                continue;
            }
            match NamedSocket::bind(&listener.path, listener.tcp_listen_queue_size) {
                Ok(socket) => new.push(Arc::new(socket)),
                Err(error) => lines.push(refusal(listener, &error)),
            }
        }
        for old in sockets.all().iter() {
            if !serving.iter().any(|socket| Arc::ptr_eq(socket, old)) {
                self.services.refuse(&old.address());
            }
        }
        new.iter()
            .for_each(|socket| self.services.accept_at_path(socket));
        serving.extend(new);
        sockets.replace(serving);
        lines
    }
}
