//! `millrace.addKey{name="k.", algorithm="hmac-sha256", secret="…"}`: secrets that messages are signed with (RFC 8945).

use super::super::options::Options;
use super::super::{spec, wrong};
use super::name_of;
use data_encoding::BASE64;
use mlua::{Lua, Table};
use std::sync::Arc;
use zone::tsig::{Algorithm, Key};

pub(super) fn add(lua: &Lua, table: Table) -> mlua::Result<()> {
    let mut options = Options::new(lua, "millrace.addKey", Some(table));
    let name: Option<String> = options.get("name")?;
    let name = name.ok_or_else(|| {
        wrong(
            "name: the key's name is missing; both sides must call it the same, as in name=\"k.\"",
        )
    })?;
    let name = name_of(&name)?;
    let algorithm: Option<String> = options.get("algorithm")?;
    let algorithm = algorithm.unwrap_or_else(|| Algorithm::Sha256.name().to_owned());
    let algorithm = Algorithm::of_name(&algorithm).ok_or_else(|| {
        let known: Vec<&str> = Algorithm::ALL.iter().map(|known| known.name()).collect();
        wrong(format!(
            "algorithm: '{algorithm}' is none of {}",
            known.join(", ")
        ))
    })?;
    let secret = secret(options.get("secret")?)?;
    options.finish()?;
    let mut spec = spec(lua)?;
    if spec.zones.key(name.as_name()).is_some() {
        return Err(wrong(format!("name: key {name} was added before")));
    }
    let key = Key::new(name.as_name(), algorithm, &secret);
    spec.zones.keys.push(Arc::new(key));
    Ok(())
}

/// The octets of the secret. Errors do not show it.
fn secret(text: Option<String>) -> mlua::Result<Vec<u8>> {
    let text = text.ok_or_else(|| wrong("secret: the key's secret is missing, in base64"))?;
    let octets = BASE64.decode(text.as_bytes()).map_err(|error| {
        wrong(format!(
            "secret: no base64 at character {}: groups of four of A-Z, a-z, 0-9, + and /, filled up with = expected",
            error.position + 1
        ))
    })?;
    if octets.is_empty() {
        return Err(wrong("secret: it is empty, and everybody knows it"));
    }
    Ok(octets)
}
