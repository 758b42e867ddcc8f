//! The console itself: where it listens, its key, who may come.

use super::super::objects::netmask::AnyNetmask;
use super::super::objects::netmask_group;
use super::super::options::Flag;
use super::super::{acl, define, later, place, spec, wrong};
use super::{is_command, say, serving};
use crate::config::addresses;
use crate::config::console::DEFAULT_PORT;
use crate::config::spec::{Remark, RemarkKind};
use crate::control::console::wire::{Cipher, Key, nonce};
use crate::version;
use mlua::{Lua, Value};

pub(super) fn register(lua: &Lua) -> mlua::Result<()> {
    define(lua, "controlSocket", |lua, address: String| {
        let address = addresses::with_port(&address, DEFAULT_PORT).map_err(wrong)?;
        let former = spec(lua)?.console.address;
        later::replaced(lua, "controlSocket", former, address)?;
        spec(lua)?.console.address = Some(address);
        Ok(())
    })?;
    define(
        lua,
        "setConsoleMaximumConcurrentConnections",
        |lua, most| {
            spec(lua)?.console.maximum_connections = most;
            Ok(())
        },
    )?;
    define(lua, "setConsoleOutputMaxMsgSize", |lua, bytes| {
        spec(lua)?.console.maximum_message_size = bytes;
        Ok(())
    })?;
    define(
        lua,
        "setConsoleConnectionsLogging",
        |lua, Flag(enabled): Flag| {
            spec(lua)?.console.log_connections = enabled;
            Ok(())
        },
    )?;
    key(lua)?;
    acl(lua)?;
    define(lua, "showVersion", |lua, ()| {
        say(lua, version());
        Ok(())
    })?;
    define(lua, "showSecurityStatus", |lua, ()| {
        // Nothing is polled: dnsdist shows 0 then, too.
        say(lua, 0);
        Ok(())
    })?;
    define(lua, "shutdown", |lua, ()| match serving(lua) {
        Some(metrics) => {
            metrics.running().stop();
            Ok(())
        }
        None => Err(wrong("there is no running instance to end")),
    })
}

fn key(lua: &Lua) -> mlua::Result<()> {
    define(lua, "setKey", |lua, text: String| {
        let key = match text.parse::<Key>() {
            Ok(key) => Some(key),
            Err(error) if is_command(lua) => return Err(wrong(error.to_string())),
            // dnsdist starts with such a file, and its console lets nobody in.
            Err(error) => {
                let remark = Remark {
                    place: place::caller(lua),
                    kind: RemarkKind::UnusableKey,
                    subject: error.to_string(),
                };
                spec(lua)?.remark(remark);
                None
            }
        };
        spec(lua)?.console.key = key;
        Ok(())
    })?;
    define(lua, "makeKey", |lua, ()| {
        let key = Key::random().map_err(|error| wrong(error.to_string()))?;
        say(lua, format!("setKey(\"{}\")", key.base64()));
        Ok(())
    })?;
    define(lua, "testCrypto", |lua, ()| {
        let works = round_trip().map_err(|error| wrong(error.to_string()))?;
        say(
            lua,
            if works {
                "Everything is ok!"
            } else {
                "Crypto failed.."
            },
        );
        Ok(())
    })
}

/// Whether what one side seals the other opens.
fn round_trip() -> std::io::Result<bool> {
    let (key, one, other) = (Key::random()?, nonce()?, nonce()?);
    let mut sides = [
        Cipher::new(&key, &one, &other),
        Cipher::new(&key, &other, &one),
    ];
    let message = sides[0].seal(b"test");
    Ok(sides[1].open(&message[4..]).as_deref() == Ok(b"test"))
}

fn acl(lua: &Lua) -> mlua::Result<()> {
    define(lua, "setConsoleACL", |lua, masks: Value| {
        let masks = netmask_group::list(masks, lua)?;
        spec(lua)?.console.acl = acl::distinct(masks);
        Ok(())
    })?;
    define(lua, "addConsoleACL", |lua, mask: AnyNetmask| {
        acl::add(&mut spec(lua)?.console.acl, mask.0);
        Ok(())
    })?;
    define(lua, "showConsoleACL", |lua, ()| {
        let masks = spec(lua)?.console.acl.clone();
        masks.iter().for_each(|mask| say(lua, mask));
        Ok(())
    })
}
