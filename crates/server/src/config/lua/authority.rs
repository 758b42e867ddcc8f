//! How zones are answered from: functions of the table `millrace`.

use super::objects::netmask_group;
use super::options::{Options, shown};
use super::zones::TABLE;
use super::{place, spec, wrong};
use crate::config::authority::{CookieSpec, LimitSpec, TEXT_LENGTH_MAX};
use crate::pipeline::authority::limit::LimitOptions;
use crate::pipeline::rules::limiter::Prefixes;
use mlua::{FromLuaMulti, Lua, MultiValue, Table, Value};
use wire::cookie::Secret;

pub(super) fn register(lua: &Lua) -> mlua::Result<()> {
    define(lua, "setVersion", "millrace.setVersion", set_version)?;
    define(lua, "setCookies", "millrace.setCookies", set_cookies)?;
    define(
        lua,
        "setResponseRateLimit",
        "millrace.setResponseRateLimit",
        set_response_rate_limit,
    )
}

/// Makes `function` a function of our own; `name` is its whole name, for messages.
fn define<A: FromLuaMulti + 'static>(
    lua: &Lua,
    key: &'static str,
    name: &'static str,
    function: fn(&Lua, A) -> mlua::Result<()>,
) -> mlua::Result<()> {
    let placed = lua.create_function(move |lua, arguments: MultiValue| {
        A::from_lua_args(arguments, 1, None, lua)
            .and_then(|arguments| function(lua, arguments))
            .map_err(|error| place::located(lua, name, &error))
    })?;
    lua.globals().get::<Table>(TABLE)?.raw_set(key, placed)
}

/// `millrace.setVersion("text")`: the answer to `version.server` and `version.bind`; `""`: REFUSED.
fn set_version(lua: &Lua, version: String) -> mlua::Result<()> {
    if version.len() > TEXT_LENGTH_MAX {
        let length = version.len();
        return Err(wrong(format!(
            "a text of {length} bytes: at most {TEXT_LENGTH_MAX} expected"
        )));
    }
    spec(lua)?.authority.version = Some(version);
    Ok(())
}

/// `millrace.setCookies{secrets={"<32 hexadecimal digits>", …}}`, or `{enabled=false}`.
fn set_cookies(lua: &Lua, table: Table) -> mlua::Result<()> {
    let mut options = Options::new(lua, "millrace.setCookies", Some(table));
    let enabled = options.flag("enabled")?.unwrap_or(true);
    let secrets: Vec<String> = options.get("secrets")?.unwrap_or_default();
    let secrets = secrets.iter().map(|text| secret(text));
    let secrets = secrets.collect::<mlua::Result<Vec<_>>>()?;
    options.finish()?;
    spec(lua)?.authority.cookies = CookieSpec { enabled, secrets };
    Ok(())
}

/// RFC 9018 §4.4: the secret has 128 bits.
fn secret(text: &str) -> mlua::Result<Secret> {
    let octet = |at: usize| u8::from_str_radix(text.get(at..at + 2)?, 16).ok();
    let octets: Option<Vec<u8>> = (0..text.len()).step_by(2).map(octet).collect();
    let octets = octets.and_then(|octets| octets.try_into().ok());
    // The text is a secret, and messages are for logs.
    octets.map(Secret).ok_or_else(|| {
        wrong("secrets: one is not of 32 hexadecimal digits, as `openssl rand -hex 16` prints them")
    })
}

/// Kinds of answers to networks that are remembered unless the file says otherwise: 8 MiB, taken as it fills.
const BUCKETS: usize = 1 << 19;
/// 1 GiB.
const BUCKETS_MAX: usize = 1 << 26;

/// `millrace.setResponseRateLimit{rate=20, …}`; `rate=0`: none, but `total`.
fn set_response_rate_limit(lua: &Lua, table: Table) -> mlua::Result<()> {
    const PER_SECOND: &str = "a whole number of answers a second";
    let mut options = Options::new(lua, "millrace.setResponseRateLimit", Some(table));
    let rate: Option<u32> = options.number("rate", PER_SECOND)?;
    let rate = rate.ok_or_else(|| {
        wrong("rate: the answers a second to one network are missing, as in rate=20")
    })?;
    let burst: Option<u32> = options.number("burst", "a whole number of answers")?;
    if burst == Some(0) && rate > 0 {
        return Err(wrong(format!(
            "burst: 0 answers at once: no client would get any; 1 or more expected, or no burst=, which is {rate}, as rate="
        )));
    }
    let burst = burst.unwrap_or(rate);
    let total: u32 = options.number("total", PER_SECOND)?.unwrap_or(0);
    // No kind alone has more than all together: a limit of that height is none.
    let (rate, burst) = match rate {
        0 => (total, total),
        rate => (rate, burst),
    };
    let limit = LimitOptions {
        rate,
        burst,
        total,
        slip: options
            .number("slip", "a whole number from 0")?
            .unwrap_or(1),
        prefixes: Prefixes::new(
            prefix(&mut options, "v4Prefix", 24, 32)?,
            prefix(&mut options, "v6Prefix", 56, 128)?,
        ),
        buckets: buckets(&mut options)?,
        dry_run: options.flag("dryRun")?.unwrap_or(false),
    };
    let allow = options.get::<Value>("allow")?;
    let allow = allow
        .map(|masks| netmask_group::list(masks, lua))
        .transpose()?;
    options.finish()?;
    let limit = LimitSpec {
        options: limit,
        allow: allow.unwrap_or_default(),
    };
    spec(lua)?.authority.limit = (rate > 0).then_some(limit);
    Ok(())
}

fn prefix(
    options: &mut Options<'_>,
    name: &'static str,
    default: u8,
    most: u8,
) -> mlua::Result<u8> {
    let bits: Option<u8> = options.number(name, "a whole number of bits of an address")?;
    match bits {
        Some(bits) if bits > most => Err(wrong(format!(
            "{name}: {bits} bits: at most {most} expected"
        ))),
        bits => Ok(bits.unwrap_or(default)),
    }
}

fn buckets(options: &mut Options<'_>) -> mlua::Result<usize> {
    let buckets: Option<u32> =
        options.number("tableSize", "a whole number of answers to remember")?;
    let buckets = buckets.map_or(BUCKETS, |buckets| buckets as usize);
    if !(1_000..=BUCKETS_MAX).contains(&buckets) {
        let got = shown(&Value::Integer(buckets as i64));
        return Err(wrong(format!(
            "tableSize: {got}: 1000 to {BUCKETS_MAX} expected, of 16 bytes each"
        )));
    }
    Ok(buckets)
}
