//! The web server, its credentials and what its API may change.

use super::objects::netmask_group;
use super::options::{Flag, Options};
use super::{console, define, later, spec, wrong};
use crate::config::addresses;
use crate::config::secret::{DEFAULT_WORK_FACTOR, Hash, Secret};
use crate::config::web::{ApiWrites, WebOptions, WebSpec};
use crate::pipeline::acl::{Netmask, NetmaskError};
use axum::http::{HeaderName, HeaderValue};
use mlua::{Lua, Table, Value};
use std::collections::BTreeMap;
use std::path::PathBuf;

pub(super) fn register(lua: &Lua) -> mlua::Result<()> {
    define(lua, "showWebserverConfig", |lua, ()| {
        let web = spec(lua)?.web.clone();
        console::say(lua, shown(&web));
        Ok(())
    })?;
    // What follows the address is how files before 1.6 wrote setWebserverConfig.
    define(
        lua,
        "webserver",
        |lua, (address, password, key, headers, acl): Arguments| {
            let mut web = spec(lua)?.web.clone();
            let address = addresses::with_port(&address, DEFAULT_PORT).map_err(wrong)?;
            later::replaced(lua, "webserver", web.address, address)?;
            web.address = Some(address);
            let options = &mut web.options;
            options.password = secret(password)?.or(options.password.take());
            options.api_key = secret(key)?.or(options.api_key.take());
            hash_credentials(options)?;
            if let Some(headers) = headers {
                options.headers = custom_headers(headers)?;
            }
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
    })?;
    define(
        lua,
        "setAPIWritable",
        |lua, (Flag(allowed), directory): (Flag, Option<PathBuf>)| {
            let directory = directory.filter(|directory| !directory.as_os_str().is_empty());
            if let Some(directory) = directory.as_ref().filter(|directory| !directory.is_dir()) {
                let path = directory.display();
                return Err(wrong(format!("{path}: a directory that exists expected")));
            }
            spec(lua)?.web.options.api = ApiWrites { allowed, directory };
            Ok(())
        },
    )?;
    define(
        lua,
        "hashPassword",
        |_, (password, work_factor): (String, Option<u32>)| {
            let hash = Hash::of(&password, work_factor.unwrap_or(DEFAULT_WORK_FACTOR));
            Ok(hash.map_err(|error| wrong(error.to_string()))?.to_string())
        },
    )
}

/// dnsdist's lines; neither password nor key.
fn shown(web: &WebSpec) -> String {
    let options = &web.options;
    let yes = |is: bool| if is { "yes" } else { "no" };
    let set = |secret: &Option<Secret>| if secret.is_some() { "set" } else { "unset" };
    let acl: Vec<String> = web.acl.iter().map(Netmask::to_string).collect();
    let headers = options
        .headers
        .iter()
        .map(|(name, value)| format!("\n - {name}: {}", String::from_utf8_lossy(value.as_bytes())));
    let headers: Vec<String> = headers.collect();
    let directory = options.api.directory.as_ref();
    [
        "Current web server configuration:".to_owned(),
        format!("ACL: {}", acl.join(", ")),
        format!(
            "Custom headers: {}",
            if headers.is_empty() {
                "None".to_owned()
            } else {
                headers.concat()
            }
        ),
        format!(
            "API requires authentication: {}",
            yes(options.api_requires_authentication)
        ),
        format!(
            "Dashboard requires authentication: {}",
            yes(options.dashboard_requires_authentication)
        ),
        format!(
            "Statistics require authentication: {}",
            yes(options.stats_require_authentication)
        ),
        format!("Password: {}", set(&options.password)),
        format!("API key: {}", set(&options.api_key)),
        format!("API writable: {}", yes(options.api.allowed)),
        format!(
            "API configuration directory: {}",
            directory.map_or_else(String::new, |path| path.display().to_string())
        ),
        format!(
            "Maximum concurrent connections: {}",
            options.maximum_connections
        ),
    ]
    .join("\n")
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
    let to = &mut web.options;
    if let Some(password) = options.get("password")? {
        to.password = secret(Some(password))?;
    }
    // "set to an empty string to disable it"
    if let Some(key) = options.get("apiKey")? {
        to.api_key = secret(Some(key))?;
    }
    if let Some(headers) = options.get("customHeaders")? {
        to.headers = custom_headers(headers)?;
    }
    if let Some(maximum) = options.number::<u32>("maxConcurrentConnections", "a number")? {
        to.maximum_connections = maximum as usize;
    }
    for (name, flag) in [
        (
            "statsRequireAuthentication",
            &mut to.stats_require_authentication,
        ),
        (
            "apiRequiresAuthentication",
            &mut to.api_requires_authentication,
        ),
        (
            "dashboardRequiresAuthentication",
            &mut to.dashboard_requires_authentication,
        ),
        (
            "allowCrossOriginRequests",
            &mut to.allow_cross_origin_requests,
        ),
        ("prometheusAddInstanceLabel", &mut to.add_instance_label),
        ("hashPlaintextCredentials", &mut to.hash_credentials),
    ] {
        *flag = options.flag(name)?.unwrap_or(*flag);
    }
    hash_credentials(to)?;
    if let Some(acl) = options.get::<Value>("acl")? {
        web.acl = netmasks(lua, acl)?;
    }
    Ok(())
}

/// `None` for an empty text.
fn secret(text: Option<String>) -> mlua::Result<Option<Secret>> {
    let Some(text) = text.filter(|text| !text.is_empty()) else {
        return Ok(None);
    };
    let secret = Secret::read(&text);
    secret.map(Some).map_err(|error| wrong(error.to_string()))
}

/// By whichever call they came, before or after the one that asks for it.
fn hash_credentials(options: &mut WebOptions) -> mlua::Result<()> {
    if !options.hash_credentials {
        return Ok(());
    }
    for secret in [&mut options.password, &mut options.api_key] {
        let hashed = secret.take().map(Secret::hashed).transpose();
        *secret = hashed.map_err(|error| wrong(error.to_string()))?;
    }
    Ok(())
}

/// In the order of the alphabet: a Lua table has none.
fn custom_headers(table: Table) -> mlua::Result<Vec<(HeaderName, HeaderValue)>> {
    let pairs = table.pairs::<String, String>();
    let pairs: BTreeMap<String, String> = pairs.collect::<mlua::Result<_>>()?;
    let header = |(name, value): (String, String)| {
        let bad = |what| wrong(format!("customHeaders: '{name}: {value}' has a bad {what}"));
        let parsed: HeaderName = name.parse().map_err(|_| bad("name"))?;
        Ok((parsed, value.parse().map_err(|_| bad("value"))?))
    };
    pairs.into_iter().map(header).collect()
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::LuaState;
    use crate::config::pools::PoolNames;
    use crate::config::spec::{Purpose, Spec};
    use std::sync::Arc;

    #[test]
    fn custom_headers_are_shown_a_line_each() {
        let state = LuaState::new(Spec::new(Purpose::Serve, PoolNames::default())).unwrap();
        let text = "setWebserverConfig({customHeaders={['X-One']='1'}}) showWebserverConfig()";
        let shown = state.command(text).text;
        assert!(
            shown.contains("\nCustom headers: \n - x-one: 1\nAPI requires"),
            "{shown}"
        );
    }

    #[test]
    fn credentials_are_hashed_whichever_call_asks_for_it() {
        const HASH: &str = "setWebserverConfig({hashPlaintextCredentials=true})";
        const SECRETS: &str = "setWebserverConfig({password='p', apiKey='k'})";
        const SERVER: &str = "webserver('127.0.0.1:8083')";
        for text in [
            format!("{SERVER} {HASH} {SECRETS}"),
            format!("{SERVER} {SECRETS} {HASH}"),
            format!("{HASH} webserver('127.0.0.1:8083', 'p', 'k')"),
        ] {
            let state = LuaState::new(Spec::new(Purpose::Serve, PoolNames::default())).unwrap();
            state.run("test.conf", text.as_bytes()).unwrap();
            let config = Arc::new(state).derive(None).unwrap();
            let options = config.webserver.unwrap().options;
            let secrets = [options.password, options.api_key].map(Option::unwrap);
            assert!(secrets.iter().all(Secret::is_slow), "{text}");
            assert!(secrets[0].is(b"p") && secrets[1].is(b"k"), "{text}");
        }
    }
}
