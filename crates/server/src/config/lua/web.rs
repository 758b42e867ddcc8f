//! The web server.

use super::objects::netmask_group;
use super::options::Options;
use super::{define, spec, wrong};
use crate::config::addresses;
use crate::config::spec::WebSpec;
use crate::pipeline::acl::{Netmask, NetmaskError};
use mlua::{Lua, Table, Value};

pub(super) fn register(lua: &Lua) -> mlua::Result<()> {
    // What follows the address is how files before 1.6 wrote setWebserverConfig.
    define(
        lua,
        "webserver",
        |lua, (address, password, key, _headers, acl): Arguments| {
            let mut web = spec(lua)?.web.clone();
            web.address = Some(addresses::with_port(&address, DEFAULT_PORT).map_err(wrong)?);
            web.password = password.or(web.password);
            web.api_key = key.or(web.api_key);
            if let Some(acl) = acl {
                web.acl = netmasks(lua, acl)?;
            }
            spec(lua)?.web = web;
            Ok(())
        },
    )?;
    define(lua, "setWebserverConfig", |lua, table: Table| {
        let mut options = Options::new(lua, "setWebserverConfig", Some(table));
        let mut web = spec(lua)?.web.clone();
        read(lua, &mut options, &mut web)?;
        options.finish()?;
        spec(lua)?.web = web;
        Ok(())
    })
}

type Arguments = (
    String,
    Option<String>,
    Option<String>,
    Option<Table>,
    Option<Value>,
);

/// The port in the manual's examples.
const DEFAULT_PORT: u16 = 8083;

fn read(lua: &Lua, options: &mut Options<'_>, web: &mut WebSpec) -> mlua::Result<()> {
    if let Some(password) = options.get("password")? {
        web.password = Some(password);
    }
    if let Some(key) = options.get("apiKey")? {
        web.api_key = Some(key);
    }
    if let Some(acl) = options.get::<Value>("acl")? {
        web.acl = netmasks(lua, acl)?;
    }
    if let Some(require) = options.flag("statsRequireAuthentication")? {
        web.stats_require_authentication = require;
    }
    options.no_effect_yet(&[
        "allowCrossOriginRequests",
        "apiRequiresAuthentication",
        "customHeaders",
        "dashboardRequiresAuthentication",
        "hashPlaintextCredentials",
        "maxConcurrentConnections",
        "prometheusAddInstanceLabel",
    ])
}

/// `"127.0.0.1, ::1"` or a table of netmasks.
fn netmasks(lua: &Lua, value: Value) -> mlua::Result<Vec<Netmask>> {
    let Value::String(text) = &value else {
        return netmask_group::list(value, lua);
    };
    let text = text.to_string_lossy();
    let masks = text
        .split(',')
        .map(str::trim)
        .filter(|mask| !mask.is_empty());
    masks
        .map(|mask| {
            mask.parse()
                .map_err(|error: NetmaskError| wrong(error.to_string()))
        })
        .collect()
}
