//! Actions that say something of an answer to come, change EDNS, or write lines.

use super::actions::made;
use super::objects::list_of;
use super::options::Flag;
use super::response_actions::response_made;
use super::selectors::Qtype;
use super::{define, wrong};
use crate::pipeline::extras::ExtendedError;
use crate::pipeline::rules::actions::log::{LogAction, LogResponseAction};
use crate::pipeline::rules::actions::remember::{
    DelayAction, SetEDNSOptionAction, SetExtendedDNSErrorAction, SetMacAddrAction,
    SetMaxReturnedTTLAction, SetTempFailureCacheTTLAction,
};
use crate::pipeline::rules::actions::response::{
    ClearRecordTypesResponseAction, DelayResponseAction, SetEDNSOptionResponseAction,
    SetExtendedDNSErrorResponseAction,
};
use crate::querylog::{LogOptions, QueryLog};
use mlua::{FromLua, Lua, LuaString, Value};
use std::path::{Path, PathBuf};
use std::time::Duration;

pub(super) fn register(lua: &Lua) -> mlua::Result<()> {
    delays(lua)?;
    ttls(lua)?;
    edns(lua)?;
    logs(lua)?;
    define(
        lua,
        "ClearRecordTypesResponseAction",
        |lua, types: Value| {
            let types: Vec<Qtype> = match types {
                Value::Table(list) => list_of(&list)?,
                one => vec![Qtype::from_lua(one, lua)?],
            };
            response_made(ClearRecordTypesResponseAction {
                types: types.into_iter().map(|qtype| qtype.0).collect(),
            })
        },
    )
}

fn delays(lua: &Lua) -> mlua::Result<()> {
    define(lua, "DelayAction", |_, milliseconds: u32| {
        let delay = Duration::from_millis(milliseconds.into());
        made(DelayAction { delay })
    })?;
    define(lua, "DelayResponseAction", |_, milliseconds: u32| {
        let delay = Duration::from_millis(milliseconds.into());
        response_made(DelayResponseAction { delay })
    })
}

fn ttls(lua: &Lua) -> mlua::Result<()> {
    define(lua, "SetMaxReturnedTTLAction", |_, maximum| {
        made(SetMaxReturnedTTLAction { maximum })
    })?;
    // The second name is that before 1.6.
    for name in ["SetTempFailureCacheTTLAction", "TempFailureCacheTTLAction"] {
        define(lua, name, |_, ttl| {
            made(SetTempFailureCacheTTLAction { ttl })
        })?;
    }
    Ok(())
}

fn edns(lua: &Lua) -> mlua::Result<()> {
    define(
        lua,
        "SetEDNSOptionAction",
        |_, (code, value): (u16, LuaString)| {
            made(SetEDNSOptionAction {
                code,
                value: option_value(&value)?,
            })
        },
    )?;
    define(
        lua,
        "SetEDNSOptionResponseAction",
        |_, (code, value): (u16, LuaString)| {
            response_made(SetEDNSOptionResponseAction {
                code,
                value: option_value(&value)?,
            })
        },
    )?;
    // The second name is that before 1.6.
    for name in ["SetMacAddrAction", "MacAddrAction"] {
        define(lua, name, |_, code| made(SetMacAddrAction::new(code)))?;
    }
    type Error = (u16, Option<LuaString>, Option<Flag>);
    define(
        lua,
        "SetExtendedDNSErrorAction",
        |_, (code, text, clear): Error| {
            made(SetExtendedDNSErrorAction {
                error: extended_error(code, text)?,
                clear: Flag::or(clear, true),
            })
        },
    )?;
    define(
        lua,
        "SetExtendedDNSErrorResponseAction",
        |_, (code, text, clear): Error| {
            response_made(SetExtendedDNSErrorResponseAction {
                error: extended_error(code, text)?,
                clear: Flag::or(clear, true),
            })
        },
    )
}

/// Octets of an option at most: what has no room in a datagram of 512 octets beside a long name is of no use.
const OPTION_MAX: usize = 4_000;

fn option_value(value: &LuaString) -> mlua::Result<Box<[u8]>> {
    let octets = value.as_bytes();
    if octets.len() > OPTION_MAX {
        return Err(wrong(format!(
            "{} octets: at most {OPTION_MAX} expected",
            octets.len()
        )));
    }
    Ok((*octets).into())
}

fn extended_error(code: u16, text: Option<LuaString>) -> mlua::Result<ExtendedError> {
    let text = text.map(|text| option_value(&text)).transpose()?;
    Ok(ExtendedError {
        code,
        text: text.unwrap_or_default(),
    })
}

fn logs(lua: &Lua) -> mlua::Result<()> {
    type Wishes = (
        Option<String>,
        Option<Flag>,
        Option<Flag>,
        Option<Flag>,
        Option<Flag>,
        Option<Flag>,
    );
    define(
        lua,
        "LogAction",
        |_, (file, binary, append, buffered, verbose_only, timestamps): Wishes| {
            made(LogAction(QueryLog::new(LogOptions {
                binary: Flag::or(binary, true),
                file: file_of(file)?,
                append: Flag::or(append, false),
                buffered: Flag::or(buffered, false),
                verbose_only: Flag::or(verbose_only, true),
                timestamps: Flag::or(timestamps, false),
            })))
        },
    )?;
    type ResponseWishes = (
        Option<String>,
        Option<Flag>,
        Option<Flag>,
        Option<Flag>,
        Option<Flag>,
    );
    define(
        lua,
        "LogResponseAction",
        |_, (file, append, buffered, verbose_only, timestamps): ResponseWishes| {
            response_made(LogResponseAction(QueryLog::new(LogOptions {
                binary: false,
                file: file_of(file)?,
                append: Flag::or(append, false),
                buffered: Flag::or(buffered, false),
                verbose_only: Flag::or(verbose_only, true),
                timestamps: Flag::or(timestamps, false),
            })))
        },
    )
}

/// The file is opened when there is something to write; that its folder is not there is said now.
fn file_of(file: Option<String>) -> mlua::Result<PathBuf> {
    let file = PathBuf::from(file.unwrap_or_default());
    match file
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty())
    {
        Some(folder) if !Path::is_dir(folder) => Err(wrong(format!(
            "{}: there is no folder {}",
            file.display(),
            folder.display()
        ))),
        _ => Ok(file),
    }
}
