//! `/api/v1`: what dnsdist's manual calls its API ("Built-in webserver", URL endpoints). Statistics here are exactly
//! dnsdist's: rows of our own are in `/metrics` and `/jsonstat` only.

use super::json::{Json, made_aside};
use super::objects;
use super::pages::{Allow, READ, Site, only_read};
use crate::config::Config;
use crate::config::web::ApiWrites;
use crate::log;
use crate::pipeline::acl::{Netmask, Netmasks};
use axum::Router;
use axum::body::Bytes;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::http::header::ALLOW;
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get};
use serde::Deserialize;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use wire::codes::parse_qtype;
use wire::codes::qtype::ANY;
use wire::name::NameBuf;

pub(super) fn router() -> Router<Site> {
    const HOST: &str = "/api/v1/servers/localhost";
    let host = Router::new()
        .route("/statistics", get(statistics).options(only_read))
        .route("/config", get(settings).options(only_read))
        .route(
            "/config/allow-from",
            get(allow_from).put(set_allow_from).options(acl_methods),
        )
        .route("/pool", get(pool).options(only_read))
        .route("/rings", get(rings).options(only_read));
    Router::new()
        .route(HOST, get(overview).options(only_read))
        .nest(HOST, host)
        .route("/api/v1/cache", delete(expunge).options(cache_methods))
}

async fn overview(State(site): State<Site>) -> Response {
    made_aside(move || objects::overview(&site.metrics)).await
}

async fn statistics(State(site): State<Site>) -> Response {
    made_aside(move || items(&site)).await
}

fn items(site: &Site) -> Vec<Value> {
    let statistics = site.metrics.dialect_statistics().into_iter();
    let items = statistics.map(|(name, value)| {
        let value = Value::from(value);
        json!({"name": name, "type": "StatisticItem", "value": value})
    });
    items.collect()
}

async fn settings(State(site): State<Site>) -> Json<Vec<Value>> {
    Json(objects::settings(&site.config()))
}

// ---------------------------------------------------------------------------------------------------- allow-from

async fn allow_from(State(site): State<Site>) -> Json<Value> {
    Json(shown_acl(&site.config().acl))
}

fn shown_acl(acl: &Netmasks) -> Value {
    objects::setting("allow-from", objects::netmasks(acl))
}

#[derive(Deserialize)]
struct AllowFrom {
    value: Vec<String>,
}

/// What `setAPIWritable` allows; `None`: nothing.
fn allowed_writes(site: &Site) -> Option<ApiWrites> {
    let writes = site.options().map(|options| options.api);
    writes.filter(|writes| writes.allowed)
}

async fn acl_methods(State(site): State<Site>) -> Allow {
    match allowed_writes(&site) {
        Some(_) => [(ALLOW, "GET,HEAD,PUT,OPTIONS")],
        None => READ,
    }
}

/// Changes the ACL at once; `setAPIWritable` must allow it, and may name where it is written down.
async fn set_allow_from(State(site): State<Site>, body: Bytes) -> Response {
    let Some(writes) = allowed_writes(&site) else {
        return (StatusCode::METHOD_NOT_ALLOWED, READ).into_response();
    };
    let asked: Result<AllowFrom, String> =
        serde_json::from_slice(&body).map_err(|error| error.to_string());
    let parse = |asked: AllowFrom| {
        let masks = asked.value.iter().map(|text| text.parse::<Netmask>());
        let masks: Result<Vec<_>, _> = masks.collect();
        masks.map_err(|error| error.to_string())
    };
    let masks = match asked.and_then(parse) {
        Ok(masks) => masks,
        Err(reason) => return (StatusCode::BAD_REQUEST, format!("{reason}\n")).into_response(),
    };
    let acl: Netmasks = masks.iter().copied().collect();
    match change_acl(site, masks, writes).await {
        Ok(()) => Json(shown_acl(&acl)).into_response(),
        Err(reason) => {
            log::error!("the ACL was not changed by the API: {reason}");
            (StatusCode::INTERNAL_SERVER_ERROR, format!("{reason}\n")).into_response()
        }
    }
}

/// One change at a time: what the file says last is what serves.
static CHANGE: Mutex<()> = Mutex::new(());

/// Waits for the control thread and perhaps a disk: not where others are served.
async fn change_acl(site: Site, masks: Vec<Netmask>, writes: ApiWrites) -> Result<(), String> {
    let change = move || {
        let _alone = CHANGE.lock().unwrap_or_else(PoisonError::into_inner);
        match &writes.directory {
            Some(directory) => change_with_file(&site, masks, &directory.join("acl.conf")),
            None => site.commands.set_acl(masks),
        }
    };
    let done = tokio::task::spawn_blocking(change).await;
    done.unwrap_or_else(|_| Err("the change has failed: see the log".to_owned()))
}

/// All or nothing. What may fail comes first, the file with a full disk, the ACL during a reload; should the file then not take
/// its name, the former ACL serves again.
fn change_with_file(site: &Site, masks: Vec<Netmask>, file: &Path) -> Result<(), String> {
    let failed = |error: io::Error| format!("{}: {error}", file.display());
    let new = file.with_extension("conf.new");
    let former: Vec<Netmask> = site.config().acl.iter().collect();
    let changed = write_acl(&new, &masks)
        .map_err(failed)
        .and_then(|()| site.commands.set_acl(masks));
    if let Err(reason) = changed {
        // It may not be there.
        let _ = fs::remove_file(new);
        return Err(reason);
    }
    let Err(error) = fs::rename(&new, file) else {
        return Ok(());
    };
    let _ = fs::remove_file(new);
    match site.commands.set_acl(former) {
        Ok(()) => Err(failed(error)),
        Err(reason) => Err(format!(
            "{}; the new ACL serves until the next reload all the same: {reason}",
            failed(error)
        )),
    }
}

/// A line for includeDirectory().
fn write_acl(file: &Path, masks: &[Netmask]) -> io::Result<()> {
    let mut text = String::from("-- Written by the API (PUT config/allow-from).\nsetACL({");
    for (number, mask) in masks.iter().enumerate() {
        let comma = if number == 0 { "" } else { ", " };
        // A string takes any formatting.
        let _ = write!(text, "{comma}\"{mask}\"");
    }
    text.push_str("})\n");
    let mut file = File::create(file)?;
    file.write_all(text.as_bytes())?;
    // Else a machine that loses power may keep the name and not the text.
    file.sync_all()
}

// ---------------------------------------------------------------------------------------------------- pool and rings

#[derive(Deserialize)]
struct PoolAsked {
    name: Option<String>,
}

async fn pool(State(site): State<Site>, Query(asked): Query<PoolAsked>) -> Response {
    let Some(name) = asked.name else {
        return StatusCode::BAD_REQUEST.into_response();
    };
    let config = site.config();
    match find_pool(&config, &name) {
        Some(pool) => Json(objects::one_pool(&site.metrics, &config, pool)).into_response(),
        None => StatusCode::NOT_FOUND.into_response(),
    }
}

fn find_pool<'c>(config: &'c Config, name: &str) -> Option<&'c crate::backend::pool::Pool> {
    let mut pools = config.pools.iter().flatten();
    pools.find(|pool| pool.name == name).map(|pool| &**pool)
}

#[derive(Deserialize)]
struct RingsAsked {
    #[serde(rename = "maxQueries")]
    queries: Option<usize>,
    #[serde(rename = "maxResponses")]
    responses: Option<usize>,
}

async fn rings(State(site): State<Site>, Query(asked): Query<RingsAsked>) -> Response {
    let limit = |number: Option<usize>| number.unwrap_or(usize::MAX);
    let (queries, responses) = (limit(asked.queries), limit(asked.responses));
    // Tens of thousands of entries are copied and sorted.
    made_aside(move || objects::rings(&site.metrics, queries, responses)).await
}

// ---------------------------------------------------------------------------------------------------- cache

#[derive(Deserialize)]
struct ExpungeAsked {
    pool: Option<String>,
    name: Option<String>,
    #[serde(rename = "type")]
    qtype: Option<String>,
    suffix: Option<String>,
}

async fn cache_methods() -> Allow {
    [(ALLOW, "DELETE,OPTIONS")]
}

/// Takes entries for a name out of a pool's cache: of all types or one, with all below the name where `suffix` is there.
async fn expunge(State(site): State<Site>, Query(asked): Query<ExpungeAsked>) -> Response {
    let (Some(pool), Some(name)) = (asked.pool, asked.name) else {
        return bad("pool and name must be given");
    };
    let Ok(name) = name.parse::<NameBuf>() else {
        return bad("name is no domain name");
    };
    let qtype = match only(asked.qtype.as_deref()) {
        Ok(qtype) => qtype,
        Err(reason) => return bad(reason),
    };
    let config = site.config();
    let Some(pool) = find_pool(&config, &pool) else {
        return (StatusCode::NOT_FOUND, "there is no such pool\n").into_response();
    };
    let Some(cache) = pool.cache.clone() else {
        return (StatusCode::NOT_FOUND, "the pool has no cache\n").into_response();
    };
    let suffix = asked.suffix.is_some();
    let removed =
        tokio::task::spawn_blocking(move || cache.expunge_by_name(&name.as_name(), qtype, suffix));
    match removed.await {
        Ok(count) => Json(json!({"status": "purged", "count": count.to_string()})).into_response(),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

fn bad(reason: &str) -> Response {
    (StatusCode::BAD_REQUEST, format!("{reason}\n")).into_response()
}

/// The one type that is asked for, `AAAA`, `TYPE28` or `#28`; `None`: all of them, as `ANY` is to expungeByName.
fn only(text: Option<&str>) -> Result<Option<u16>, &'static str> {
    let Some(text) = text else { return Ok(None) };
    let qtype = match text.strip_prefix('#') {
        Some(number) => number.parse().ok(),
        None => parse_qtype(text),
    };
    match qtype {
        Some(ANY) => Ok(None),
        Some(qtype) => Ok(Some(qtype)),
        None => Err("type: a name (AAAA) or a number (#28, TYPE28) expected"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_is_all_types() {
        for (text, expected) in [
            (None, Ok(None)),
            (Some("ANY"), Ok(None)),
            (Some("#255"), Ok(None)),
            (Some("aaaa"), Ok(Some(28))),
            (Some("TYPE28"), Ok(Some(28))),
            (Some("#28"), Ok(Some(28))),
        ] {
            assert_eq!(only(text), expected, "{text:?}");
        }
        assert!(only(Some("#x")).is_err());
    }
}
