//! The pages: `/metrics`, `/jsonstat`, an index, and those of `/api` ([`super::api`]).

use super::admission::{admit, with_headers};
use super::api;
use super::custom::{self, BODY_MAXIMUM};
use super::json::{Json, made_aside};
use crate::config::Config;
use crate::config::web::WebOptions;
use crate::control::metrics::Metrics;
use crate::control::metrics::statistics::{NO_LONGER_COUNTED, POLICY};
use crate::control::socket::Commands;
use axum::extract::{DefaultBodyLimit, Query, State};
use axum::http::header::{ALLOW, CONTENT_TYPE};
use axum::http::{HeaderName, StatusCode};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::get;
use axum::{Router, middleware};
use serde::Deserialize;
use serde_json::{Map, Value};
use std::sync::Arc;

/// What pages are made of.
#[derive(Clone)]
pub(super) struct Site {
    pub(super) metrics: Arc<Metrics>,
    pub(super) commands: Arc<dyn Commands>,
}

impl Site {
    pub(super) fn config(&self) -> Arc<Config> {
        self.metrics.config()
    }

    /// `None`: there is no web server any more.
    pub(super) fn options(&self) -> Option<WebOptions> {
        let config = self.config();
        let webserver = config.webserver.as_ref();
        webserver.map(|webserver| webserver.options.clone())
    }
}

/// All that is served.
pub(super) fn router(site: Site) -> Router {
    Router::new()
        .route("/", get(index).options(only_read))
        .route("/metrics", get(show_metrics).options(only_read))
        .route("/jsonstat", get(jsonstat).options(only_read))
        .merge(api::router())
        // Around these pages only: the others see for themselves who may come in.
        .route_layer(middleware::from_fn_with_state(site.clone(), admit))
        .fallback(custom::page)
        .layer(DefaultBodyLimit::max(BODY_MAXIMUM))
        .layer(middleware::from_fn_with_state(site.clone(), with_headers))
        .with_state(site)
}

/// Which methods a page takes (RFC 9110 section 10.2.1).
pub(super) type Allow = [(HeaderName, &'static str); 1];

/// The methods of a page that is only read.
pub(super) const READ: Allow = [(ALLOW, "GET,HEAD,OPTIONS")];

/// RFC 9110 section 9.3.7.
pub(super) async fn only_read() -> Allow {
    READ
}

async fn index() -> Html<&'static str> {
    Html(include_str!("index.html"))
}

async fn show_metrics(State(site): State<Site>) -> Response {
    // Kind and version of the text, as scrapers ask for it.
    let kind = [(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")];
    // It reads /proc and asks the workers for their frames: not where others are served.
    match tokio::task::spawn_blocking(move || site.metrics.text()).await {
        Ok(text) => (kind, text).into_response(),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

#[derive(Deserialize)]
struct JsonStat {
    #[serde(default)]
    command: String,
}

async fn jsonstat(State(site): State<Site>, Query(asked): Query<JsonStat>) -> Response {
    match asked.command.as_str() {
        "stats" => made_aside(move || stats(&site)).await,
        // There are no dynamic blocks yet.
        "dynblocklist" | "ebpfblocklist" => Json(Map::new()).into_response(),
        _ => StatusCode::NOT_FOUND.into_response(),
    }
}

/// All statistics as one object, rows of ours among them, and what only this page of dnsdist's has.
fn stats(site: &Site) -> Map<String, Value> {
    let zeros = NO_LONGER_COUNTED.map(|name| (name.to_owned(), 0.into()));
    let config = site.config();
    let policy = super::objects::policy(&config);
    let statistics = site.metrics.statistics().into_iter();
    statistics
        .map(|(name, value)| (name, value.into()))
        .chain(zeros)
        .chain([(POLICY.to_owned(), policy.into())])
        .collect()
}
