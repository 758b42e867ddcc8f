//! The process: files to include, capabilities, what the file is read for, what the system has.

use super::objects::list_of;
use super::{define, place, spec, wrong};
use crate::config::authority::TEXT_LENGTH_MAX;
use crate::config::spec::{Purpose, Remark, RemarkKind};
use crate::network::privileges;
use mlua::{Lua, Table, Value};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

pub(super) fn register(lua: &Lua) -> mlua::Result<()> {
    define(lua, "includeDirectory", |lua, path: String| {
        include_directory(lua, &path)
    })?;
    define(lua, "addCapabilitiesToRetain", |lua, names: Value| {
        let names: Vec<String> = match names {
            Value::Table(table) => list_of(&table)?,
            name => vec![lua.unpack(name)?],
        };
        names.iter().try_for_each(|name| retain(lua, name))
    })?;
    purpose(lua)?;
    // Nothing is polled, which is what most files ask for with "".
    define(lua, "setSecurityPollSuffix", |_, _: String| Ok(()))?;
    define(lua, "setSecurityPollInterval", |_, _: u32| Ok(()))?;
    define(lua, "getCurrentTime", |lua, ()| current_time(lua))?;
    define(lua, "getResolvers", |_, path: String| resolvers(&path))
}

fn purpose(lua: &Lua) -> mlua::Result<()> {
    define(lua, "inConfigCheck", |lua, ()| {
        Ok(spec(lua)?.purpose == Purpose::Check)
    })?;
    define(lua, "inClientStartup", |lua, ()| {
        Ok(spec(lua)?.purpose == Purpose::Client)
    })?;
    define(lua, "setServerID", |lua, id: String| {
        if id.len() > TEXT_LENGTH_MAX {
            return Err(wrong(format!(
                "a text of {} bytes: at most {TEXT_LENGTH_MAX} expected",
                id.len()
            )));
        }
        spec(lua)?.server_id = Some(id);
        Ok(())
    })?;
    define(lua, "getServerID", |lua, ()| {
        Ok(spec(lua)?.server_id.clone().unwrap_or_default())
    })
}

/// Notes a capability of which nothing is taken away. A name that none has is a remark, as dnsdist has it: a file for a newer
/// kernel must not keep an older one from serving.
fn retain(lua: &Lua, name: &str) -> mlua::Result<()> {
    let Some(capability) = privileges::capability(name) else {
        return remark(lua, RemarkKind::UnknownCapability, name);
    };
    let known = &mut spec(lua)?.capabilities;
    if !known.contains(&capability) {
        known.push(capability);
    }
    Ok(())
}

fn remark(lua: &Lua, kind: RemarkKind, subject: &str) -> mlua::Result<()> {
    let remark = Remark {
        place: place::caller(lua),
        kind,
        subject: subject.to_owned(),
    };
    spec(lua)?.remark(remark);
    Ok(())
}

/// Runs the files of the directory that end in `.conf`, by name.
fn include_directory(lua: &Lua, directory: &str) -> mlua::Result<()> {
    let unreadable = |error| wrong(format!("{directory}: cannot be read: {error}"));
    let entries = match std::fs::read_dir(directory) {
        // As dnsdist has it: one line says so, and the file goes on.
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return remark(lua, RemarkKind::NoFolder, directory);
        }
        entries => entries.map_err(unreadable)?,
    };
    let mut files: Vec<PathBuf> = Vec::new();
    for entry in entries {
        files.push(entry.map_err(unreadable)?.path());
    }
    files.sort();
    files
        .iter()
        .filter(|file| is_included(file))
        .try_for_each(|file| run(lua, file))
}

/// dnsdist leaves out hidden files, and folders.
fn is_included(file: &Path) -> bool {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    name.ends_with(".conf") && !name.starts_with('.') && !file.is_dir()
}

fn run(lua: &Lua, file: &Path) -> mlua::Result<()> {
    let path = file.display().to_string();
    let unreadable = |error| wrong(format!("{path}: cannot be read: {error}"));
    let text = std::fs::read(file).map_err(unreadable)?;
    begin(lua, file.canonicalize().map_err(unreadable)?)?;
    let done = place::run(lua, &path, &text);
    if let Some(mut reading) = lua.app_data_mut::<Reading>() {
        reading.0.pop();
    }
    done
}

/// The files that `includeDirectory` is reading, the outermost first.
#[derive(Default)]
struct Reading(Vec<PathBuf>);

/// A file that includes the directory it lies in would be read for ever, one reading within the other, until the stack of the
/// process is used up.
fn begin(lua: &Lua, file: PathBuf) -> mlua::Result<()> {
    let mut reading: Reading = lua.remove_app_data().unwrap_or_default();
    let is_within_itself = reading.0.contains(&file);
    let path = file.display().to_string();
    if !is_within_itself {
        reading.0.push(file);
    }
    lua.set_app_data(reading);
    match is_within_itself {
        true => Err(wrong(format!(
            "{path} is being read already: a file cannot include the directory that it lies in"
        ))),
        false => Ok(()),
    }
}

fn current_time(lua: &Lua) -> mlua::Result<Table> {
    timespec(lua, SystemTime::now())
}

/// A moment, in dnsdist's timespec.
pub(super) fn timespec(lua: &Lua, moment: SystemTime) -> mlua::Result<Table> {
    let since = moment.duration_since(UNIX_EPOCH).unwrap_or_default();
    let time = lua.create_table()?;
    time.raw_set("tv_sec", since.as_secs())?;
    time.raw_set("tv_nsec", since.subsec_nanos())?;
    Ok(time)
}

/// The nameservers of a file in resolv.conf's form.
fn resolvers(path: &str) -> mlua::Result<Vec<String>> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| wrong(format!("{path}: cannot be read: {error}")))?;
    let mut words = text.lines().map(str::split_whitespace);
    Ok(words
        .by_ref()
        .filter_map(|mut words| (words.next() == Some("nameserver")).then(|| words.next())?)
        .map(str::to_owned)
        .collect())
}
